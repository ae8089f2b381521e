"""Tables at every width: no number is cut, no column disappears without a word, and pipes get everything."""

import io
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kseg.report.row_formats import CellContent, content_cells, content_text
from kseg.report.tables import TableColumn, legend, print_cells, width_of
from tests.support.cli import DAMAGED
from tests.support.cli import kseg_here as kseg
from tests.support.fixtures import SEGMENTS

pytestmark = pytest.mark.slow

LOG = SEGMENTS / "4.3.0-v2-none-transactions"
SCHEMAS = SEGMENTS.parent / "serialized" / "_schemas-0"

numbers = st.integers(-(2**63), 2**63 - 1).map(str)
texts = st.text(st.characters(categories=["L", "N", "P"]), min_size=1, max_size=60)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[TableColumn], list[tuple[list[str], str]]]:
    kinds = draw(st.lists(st.sampled_from(["", "wrap", "cut"]), min_size=1, max_size=8))
    priorities = draw(st.lists(st.integers(0, 3), min_size=len(kinds), max_size=len(kinds)))
    columns = [
        TableColumn(f"column{n}", right=not text, text=text, priority=priority)
        for n, (text, priority) in enumerate(zip(kinds, priorities, strict=True))
    ]
    row = st.tuples(*(texts if column.text else numbers for column in columns)).map(list)
    return columns, [(cells, "red") for cells in draw(st.lists(row, min_size=1, max_size=5))]


def printed(
    columns: list[TableColumn],
    rows: list[tuple[list[str], str]],
    width: int,
    *,
    whole_rows: bool = False,
    colours: bool = False,
) -> list[str]:
    out = Terminal()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", str(width))
        patch.setenv("TERM", "xterm-256color")
        patch.delenv("NO_COLOR", raising=False) if colours else patch.setenv("NO_COLOR", "1")
        with legend(out):
            print_cells(out, columns, rows, whole_rows=whole_rows)
    lines = out.getvalue().splitlines()
    return lines if colours else [re.sub(r"\x1b\[1m|\x1b\[0m", "", line).rstrip() for line in lines]


@given(tables(), st.sampled_from([40, 60, 80, 100, 120, 200]))
def test_no_number_is_cut_and_no_column_is_lost(
    table: tuple[list[TableColumn], list[tuple[list[str], str]]], width: int
) -> None:
    """A cut offset is a wrong offset; an operator must see that a column is missing."""
    columns, rows = table
    lines = printed(columns, rows, width)
    assert all(width_of(line) <= width for line in lines)
    shown = "\n".join(lines)
    named = re.sub(r"\s+", " ", shown)
    for n, column in enumerate(columns):
        assert column.name in named
        hidden = re.search(rf"hidden columns: [^;]*\b{column.name}\b", named)
        assert column.priority or not hidden, "a part of the answer"
        for cells, _ in rows:
            if not column.text and not hidden:
                assert re.search(rf"(?<![\w-]){re.escape(cells[n])}(?!\w)", shown), (cells[n], lines)


@given(tables(), st.sampled_from([40, 60, 80, 120]), st.booleans())
def test_colours_change_no_text(
    table: tuple[list[TableColumn], list[tuple[list[str], str]]], width: int, whole_rows: bool
) -> None:
    """NO_COLOR hides colours and nothing else; a damaged row is red where there are colours."""
    columns, rows = table
    plain = printed(columns, rows, width, whole_rows=whole_rows)
    coloured = printed(columns, rows, width, whole_rows=whole_rows, colours=True)
    assert [re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip() for line in coloured] == plain
    assert not any("\x1b" in line for line in plain)
    if any(line.lstrip().startswith("─") for line in plain):  # not a block of lines per row
        assert "\x1b[31m" in "".join(coloured)


@given(tables())
def test_a_pipe_gets_every_cell_on_the_line_of_its_row(
    table: tuple[list[TableColumn], list[tuple[list[str], str]]],
) -> None:
    """grep finds every cell."""
    columns, rows = table
    out = io.StringIO()
    print_cells(out, columns, rows)
    head, _, *lines = out.getvalue().splitlines()
    assert all(column.name in head for column in columns)
    for (cells, _), line in zip(rows, lines, strict=False):
        assert all(cell in line for cell in cells)


def test_equal_contents_have_one_notation() -> None:
    """A column says once what its bytes are."""

    def of(*contents: bytes | None) -> tuple[str, list[str]]:
        return content_cells([None if content is None else CellContent(content, len(content)) for content in contents])

    assert of(b"a", None, b"") == ("", ["a", "null", '""'])
    # Not those that a tombstone and an empty value have.
    assert of(b"null", b'""') == ("", ['"null"', '""""'])
    assert of((-2).to_bytes(8, "big", signed=True), None) == ("int64", ["-2", "null"])
    assert of(b"\x00\x00\x00\x07", b"\x00\x00\x00\x08") == ("int32", ["7", "8"])
    assert of(b"\x00\x00\x00\x00\x2a\x02\x61") == ("schema id", ["42 0x0261 (2 B)"])
    assert of(b"text", b"\xff\x00") == ("", ["text", "0xff00 (2 B)"])
    assert of(b"\x1b[31m red") == ("", ["\\x1b[31m red"])


def test_bytes_without_a_title_are_not_shown_as_numbers() -> None:
    """A header's value of 4 or 8 bytes can be anything: a number without a word would be a guess."""
    for data in (b"\x9b31m", b"\0" * 7 + b"\1"):
        assert content_text(CellContent(data, len(data))) == f"0x{data.hex()} ({len(data)} B)"
    assert content_text(CellContent(b"\0\0\0\1", 4), "base64") == "AAAAAQ=="


def test_single_messages_have_the_notation_of_records() -> None:
    """null is not a dash."""
    shown = kseg("dump", "--as", "wide-crc", SEGMENTS.parent / "framed" / "several" / "data").stdout
    rows = [line.split() for line in shown.splitlines()[4:7]]
    assert [row[1] for row in rows] == ["first", "null", "third"]
    assert rows[2][2] == "null"


def test_a_marker_is_named_and_times_are_iso() -> None:
    """People read COMMIT and a time, not the bytes of a marker and milliseconds."""
    shown = kseg("dump", "--deep", LOG / "00000000000000000017.log").stdout
    assert "COMMIT producer 2 epoch 0" in shown
    assert "2023-11-14T22:13:20.003Z" in shown


def test_a_template_writes_lines_of_its_own(tmp_path: Path) -> None:
    """Other programs get exactly the bytes that they want."""
    log = SEGMENTS / "4.3.0-v2-none-headers" / "00000000000000000000.log"
    run = kseg("dump", "--template", r"%o\t%k\t%K\t%v", "--limit", "2", log)
    assert run.stdout == "0\t\t-1\tvalue 0\n1\tk1\t2\tvalue 1\n"
    for template, reason in (("%z", "unknown mark %z"), ("a%", "write %%"), (r"\q", "unknown escape")):
        run = kseg("dump", "--template", template, log)
        assert (run.returncode, run.stdout) == (2, "")
        assert reason in run.stderr


def test_columns_choose_and_order() -> None:
    """Columns that were asked for are shown at any width, in the given order."""
    log = SEGMENTS / "4.3.0-v2-none" / "00000000000000000000.log"
    run = kseg("dump", "--columns", "crc_valid,position", log)
    assert run.stdout.splitlines()[2].split() == ["crc_valid", "position"]
    run = kseg("dump", "--columns", "crc_valid,position", "--format", "csv", log)
    assert run.stdout.splitlines()[0] == "crc_valid,position"
    run = kseg("dump", "--columns", "positon", log)
    assert run.returncode == 2
    assert "did you mean position" in run.stderr


def test_validate_leads_with_what_is_damaged(tmp_path: Path) -> None:
    """The answer comes first: which partitions, how much, which rules. Valid segments are counted, not listed."""
    for name, source in (("a-0", LOG), ("b-0", DAMAGED), ("c-0", DAMAGED.parent / "lost-bytes")):
        (tmp_path / name).mkdir()
        for file in source.glob("*.log"):
            (tmp_path / name / file.name).write_bytes(file.read_bytes())
    run = kseg("validate", ".", cwd=tmp_path)
    answer, _, head, _, first, second, *_ = run.stdout.splitlines()
    assert answer == "partitions that need attention: 2 (loses records 2)"
    assert head.split() == ["needs", "attention", "consequence", "lost", "bytes", "offsets", "rules"]
    assert first.split() == ["b-0", "loses", "records", "267", "12..12?", "K201"]
    assert second.split() == ["c-0", "loses", "records", "37", "-", "K105"]
    assert ": sound" not in run.stdout
    quiet = kseg("validate", "-q", ".", cwd=tmp_path).stdout
    assert run.stdout.startswith(quiet[: quiet.index("damaged: ")])
    assert len(quiet.splitlines()) == 9  # with what 12..12? means
    assert re.search(r"the worst: b-0/\d+\.log \(crc-mismatch\)$", quiet, re.MULTILINE)
    verbose = kseg("validate", "-v", "--rule", "no-indexes=ignore", ".", cwd=tmp_path).stdout
    assert verbose.count(": sound") == 6


def test_equal_findings_of_a_file_are_one_row(tmp_path: Path) -> None:
    """Twenty gaps of one file are one row with their range; -v lists them."""
    log = SEGMENTS / "4.3.0-v2-none" / "00000000000000000000.log"
    content = bytearray(log.read_bytes())
    size = 12 + int.from_bytes(content[8:12], "big")
    content[size - 1] ^= 1
    (tmp_path / "00000000000000000000.log").write_bytes(bytes(content[:size]) * 30 + bytes(content[size:]))
    shown = kseg("validate", tmp_path).stdout
    assert "K201 crc-mismatch ×30" in shown
    assert shown.count(" K201 ") == 1
    verbose = kseg("validate", "-v", tmp_path).stdout
    assert verbose.count(" K201 ") == 16
    assert "14 more, not listed" in verbose
    for name in ("csv", "sarif"):  # their rows are read by programs, which do not know that there are more
        run = kseg("validate", "--format", name, tmp_path)
        assert "14 more findings not listed: --limit N" in run.stderr
        assert "not listed" not in kseg("validate", "--format", name, "--limit", "30", tmp_path).stderr


def test_an_odd_variable_is_no_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """COLUMNS comes from the environment: text in it must not end the command."""
    for columns in ("abc", "8.5", "-3", ""):
        monkeypatch.setenv("COLUMNS", columns)
        print_cells(Terminal(), [TableColumn("a")], [(["1"], "")])


def test_paths_are_broken_between_folders_and_texts_between_words() -> None:
    """The name of a segment loses zeros only where the table is too wide, and stays whole otherwise."""
    columns = [TableColumn("path", text="wrap"), TableColumn("message", text="wrap")]
    row = ["some-topic-0/00000000000000000000.log", "CRC mismatch: stored 0x25064564, computed 0x67b53150"]
    lines = printed(columns, [(row, "")], 60)
    words = " ".join(lines).split()
    assert {"some-topic-0/…000.log", "0x25064564,", "0x67b53150"} <= set(words)
    words = " ".join(printed(columns, [(row, "")], 110)).split()
    assert row[0] in words


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--columns", ","], "expected names"),
        (["--template", ""], "is empty"),
        (["--template", "%o", "--columns", "offset"], "cannot be combined with"),
        (["--position", "1", "--as", "message-set"], "is for segments"),
    ],
)
def test_options_that_would_be_ignored_are_refused(arguments: list[str], reason: str) -> None:
    """An option without effect misleads."""
    log = SEGMENTS / "4.3.0-v2-none" / "00000000000000000000.log"
    run = kseg("dump", *arguments, log)
    assert (run.returncode, run.stdout) == (2, "")
    assert reason in run.stderr
    index = kseg("dump", "--position", "1", log.with_suffix(".index"))
    assert (index.returncode, index.stdout) == (2, "")


def test_a_position_after_the_end_is_no_row() -> None:
    """Nothing found is said with what was read, not shown as an empty output."""
    run = kseg("dump", "--position", "99999999", SEGMENTS / "4.3.0-v2-none" / "00000000000000000000.log")
    assert "no rows in 1 segment\n" in run.stderr
