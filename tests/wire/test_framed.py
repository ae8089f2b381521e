"""Files that are not logs, read with --as: every row, and every finding with its position."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kseg.commands.validate.validate import validate_segment
from kseg.format.storage.segment_files import SegmentFile
from kseg.results import Settings
from tests.support import framed_files as framed
from tests.support.cli import invoke, rows_of
from tests.support.framed_files import ARTICLE, BARE_SECOND, EXAMPLE, FRAMED, PLAIN, SECOND, THIRD
from tests.support.fuzzing import cases
from tools import make_findings

FOLDER = make_findings.FRAMES
SEGMENT = make_findings.SEGMENTS / "4.3.0-v2-none" / make_findings.FIRST


rows = partial(rows_of, code=None)


def test_the_example_is_the_tutorials() -> None:
    """48 bytes, of which 18 are the header, and the CRC that the tutorial prints."""
    assert len(EXAMPLE) == 48
    assert len(EXAMPLE) - len(b"first" + b"this is the first message") == 18
    assert int.from_bytes(EXAMPLE[:8], "big") == 4252115574


@pytest.mark.parametrize("name", FRAMED)
def test_findings_are_exact(name: str) -> None:
    """The fixtures are those of the table, and the findings of each were reviewed by hand."""
    framing, data = FRAMED[name]
    path = FOLDER / name / "data"
    assert path.read_bytes() == data
    expected = [json.loads(line) for line in (path.parent / "expect.jsonl").read_text(encoding="utf-8").splitlines()]
    found = make_findings.findings(path, {"framing": framing})
    assert [json.loads(json.dumps(row)) for row in found] == expected


def test_messages_are_rows_with_all_that_they_have() -> None:
    """Every field of a message is a column."""
    (row,) = rows("dump", "--as", "wide-crc", FOLDER / "example" / "data")
    wanted = {
        "kind": "record", "position": 0, "size": 48, "key": "first", "value": "this is the first message", "magic": 0,
        "compression": "gzip", "crc": 4252115574, "crc_valid": True, "offset": None, "headers": [],
    }  # fmt: skip
    assert {name: row[name] for name in wanted} == wanted
    (entry,) = rows("dump", "--as", "wide-crc", "--shallow", FOLDER / "example" / "data")
    assert (entry["kind"], entry["size"], entry["crc"]) == ("batch", 48, 4252115574)
    several = rows("dump", "--as", "wide-crc", FOLDER / "several" / "data")
    assert [(row["key"], row["value"]) for row in several] == [
        ("first", "this is the first message"), (None, "the second has no key"), ("third", None),
    ]  # fmt: skip
    assert rows("dump", "--as", "wide-crc", FOLDER / "gzip" / "data")[0]["value"] == "this is compressed"


def test_reading_continues_after_damage() -> None:
    """A wrong length costs its message, and not the following ones."""
    for name, keys in (("key-length", [None, "third"]), ("value-length", ["first", None]), ("magic", ["first", None])):
        done = invoke("dump", "--as", "wide-crc", "--format", "jsonl", FOLDER / name / "data")
        assert done.exit_code == 1
        assert [json.loads(line)["key"] for line in done.stdout.splitlines()] == keys


@pytest.mark.parametrize("format_name", ["table", "csv", "text", "parquet"])
def test_every_format_has_the_message(format_name: str, tmp_path: Path) -> None:
    """Each format prints key and value; the codec that only the attributes claim is damage."""
    out = tmp_path / "out"
    done = invoke("dump", "--as", "wide-crc", "--format", format_name, "-o", out, FOLDER / "example" / "data")
    assert (done.exit_code, "claimed-codec" in done.stderr) == (1, True), done.output
    if format_name == "parquet":
        import pyarrow.parquet as pq

        (row,) = pq.read_table(out).to_pylist()
        assert (row["key"], row["value"], row["crc"]) == (b"first", b"this is the first message", 4252115574)
    else:
        text = out.read_text(encoding="utf-8")
        assert "this is the first message" in text
        assert "4252115574" in text


def test_null_and_empty_differ_for_people_too(tmp_path: Path) -> None:
    """As in the table and the text of a segment: a size of -1 is null;

    a column of nulls alone is printed, too.
    """
    path = tmp_path / "data"
    path.write_bytes(framed.message(None, b"no key") + framed.message(b"", b"empty key") + framed.message(b"k", None))
    text = invoke("dump", "--as", "wide-crc", "--format", "text", path).stdout.splitlines()
    for line, said in zip(
        text,
        (
            "keySize: -1 valueSize: 6 value: no key",
            "keySize: 0 key:  valueSize: 9 value: empty key",
            "keySize: 1 key: k valueSize: -1 size",
        ),
        strict=True,
    ):
        assert said in line
    cells = [line.split() for line in invoke("dump", "--as", "wide-crc", "--format", "table", path).stdout.splitlines()]
    assert [cell[:4] for cell in cells if cell and cell[0].isdigit()] == [
        ["0", "null", "no", "key"], ["24", '""', "empty", "key"], ["51", "k", "null", "19"],
    ]  # fmt: skip
    path.write_bytes(framed.message(None, b"no key"))
    assert "key" in invoke("dump", "--as", "wide-crc", "--format", "table", path).stdout.splitlines()[2].split()
    # A request does not have a key.
    shown = invoke(
        "dump", "--as", "requests", "--format", "table", make_findings.STREAMS / make_findings.PRODUCED
    ).stdout
    # A pipe gets whole cells.
    assert "…" not in shown


def test_a_file_that_fails_as_a_segment_is_recognised(tmp_path: Path) -> None:
    """By the CRC of a message near its beginning, under any name and with any other damage there."""
    path = tmp_path / make_findings.FIRST
    tutorials = [data for framing, data in FRAMED.values() if framing == "wide-crc"]
    for data in (*tutorials, SECOND + PLAIN, framed.message(b"long", b"x" * 9_000)):
        path.write_bytes(data)
        for verb in ("dump", "validate"):
            done = invoke(verb, path)
            assert done.exit_code == 2, done.output
            assert "--as wide-crc" in done.stderr
    path.write_bytes(bytes(100))
    assert "wide-crc" not in invoke("validate", path).output


def test_a_message_without_offset_and_size_has_the_row_of_its_log(tmp_path: Path) -> None:
    """The articles' 22 bytes: plain content, the claimed codec, no offset; one severity everywhere."""
    assert len(ARTICLE) == 22
    path = FOLDER / "message-article" / "data"
    wanted = {
        "kind": "record", "position": 0, "size": 22, "key": "key", "value": "value", "magic": 0, "offset": None,
        "compression": "lz4", "crc_valid": True, "timestamp": None,
    }  # fmt: skip
    (row,) = rows("dump", "--as", "message", "--deep", path)
    assert {name: row[name] for name in wanted} == wanted
    (entry,) = rows("dump", "--as", "message", "--shallow", path)
    assert (entry["kind"], entry["size"], entry["base_offset"], "offset" in entry) == ("batch", 22, None, False)
    assert "claimed-codec" in invoke("dump", "--as", "message", path).stderr
    for name in ("table", "csv", "text", "parquet"):
        out = tmp_path / f"out.{name}"
        done = invoke("dump", "--as", "message", "--format", name, "-o", out, path)
        assert (done.exit_code, b"value" in out.read_bytes()) == (1, True), done.output
    several = rows("dump", "--as", "message", FOLDER / "message-several" / "data")
    assert [(row["key"], row["timestamp"]) for row in several] == [
        ("key", None),
        (None, 1_700_000_000_000),
        ("third", None),
    ]
    inside = rows("dump", "--as", "message", FOLDER / "message-gzip" / "data")
    assert [(row["key"], row["value"], row["compression"]) for row in inside] == [("in", "side", "gzip")]
    wrong = rows("dump", "--as", "message", FOLDER / "message-wrong-crc" / "data")
    assert [(row["key"], row["crc_valid"]) for row in wrong] == [("key", False), (None, True)]


@pytest.mark.parametrize("fixture", ["0.8.2.2-v0-none", "2.8.2-v1-gzip", "0.10.2.2-v1-none"])
def test_messages_of_brokers_are_read_without_their_offsets(fixture: str, tmp_path: Path) -> None:
    """Each batch of a real segment without its first twelve bytes: the same records, except for offset and position."""
    log = (make_findings.SEGMENTS / fixture / make_findings.FIRST).read_bytes()
    path, at, bare = tmp_path / "bare", 0, b""
    while at < len(log):
        end = at + 12 + int.from_bytes(log[at + 8 : at + 12], "big")
        at, bare = end, bare + log[at + 12 : end]
    path.write_bytes(bare)
    names = ("key", "value", "timestamp", "timestamp_type")
    given = rows("dump", "--deep", make_findings.SEGMENTS / fixture / make_findings.FIRST)
    found = rows("dump", "--as", "message", "--deep", path)
    assert [[row[name] for name in names] for row in found] == [[row[name] for name in names] for row in given]
    done = invoke("validate", "--as", "message", path)
    assert (done.exit_code, "sound" in done.stdout) == (0, True), done.output


def test_a_message_without_offset_and_size_is_recognised(tmp_path: Path) -> None:
    """By its lengths or its CRC. A log whose first size field is damaged stays a damaged log."""
    path = tmp_path / "any"
    for data in (ARTICLE, BARE_SECOND, FRAMED["message-several"][1], framed.bare(b"key", b"value", crc=1)):
        path.write_bytes(data)
        for arguments in (("dump",), ("validate",), ("dump", "--as", "message-set")):
            done = invoke(*arguments, path)
            assert (done.exit_code, "--as message`" in done.stderr) == (2, True), (arguments, done.output)
    log = bytearray((make_findings.SEGMENTS / "0.8.2.2-v0-none" / make_findings.FIRST).read_bytes())
    log = log[: 12 + int.from_bytes(log[8:12], "big")]
    log[11] ^= 0x40
    path.write_bytes(log)
    assert invoke("validate", path).exit_code == 1


def test_the_start_of_another_file_is_not_a_cut_log(tmp_path: Path) -> None:
    """A program's header reads like a batch without a size; a real batch, alone and cut or damaged, stays damaged."""
    path = tmp_path / "file"
    path.write_bytes(
        b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x03\x00\x3e\x00\x01\x00\x00\x00" + bytes(8) + b"\x40" + bytes(200)
    )
    done = invoke("validate", path)
    assert (done.exit_code, "not a Kafka log segment: a program" in done.stderr) == (2, True)
    log = SEGMENT.read_bytes()
    batch = log[: 12 + int.from_bytes(log[8:12], "big")]
    for damaged in (batch[:-9], batch[:8] + bytes(4) + batch[12:-1] + b"?", b"\x7fELF" + log[4:]):
        path.write_bytes(damaged)
        assert invoke("validate", path).exit_code == 1


def test_findings_on_other_files_do_not_mention_recovery() -> None:
    """A broker does not truncate a log at a tutorial's message;

    for a frame, the finding says who ends the connection.
    """
    lies = FOLDER / "key-length" / "data"
    for name in ("table", "github", "junit", "html"):
        done = invoke("validate", "--as", "wide-crc", "--format", name, lies)
        assert "invalid-size" in done.stdout
        assert "Recovery" not in done.stdout, name
    cut = make_findings.FINDINGS / "frame-cut" / "03.requests"
    for name in ("table", "github", "junit", "html"):
        assert "until the connection ends" in invoke("validate", "--as", "requests", "--format", name, cut).stdout, name


def test_a_wrong_crc_loses_its_message() -> None:
    """As in a segment, and as a summary's lost_bytes counts."""
    *_, summary = rows("validate", "--as", "wide-crc", FOLDER / "wrong-crc" / "data")
    assert (summary["lost_bytes"], summary["batches"]) == (len(EXAMPLE), 2)


def test_an_empty_file_is_undetermined() -> None:
    """Nothing was read, so nothing is called sound."""
    for framing in ("wide-crc", "message", "requests", "responses"):
        done = invoke("validate", "--as", framing, "/dev/null")
        assert (done.exit_code, done.stdout.split(":")[0]) == (2, "undetermined")
        assert "/dev/null is empty: nothing was read" in done.stderr


def test_a_message_set_is_read_as_a_segment_is(tmp_path: Path) -> None:
    """The same rows; an incomplete last batch is reported, and is not damage; the name does not contain an offset."""
    path = tmp_path / f"{7:020}.log"
    data = SEGMENT.read_bytes()
    path.write_bytes(data)
    for depth in ("--shallow", "--deep"):
        plain = rows("dump", depth, SEGMENT)
        assert [{**row, "file": str(SEGMENT)} for row in rows("dump", "--as", "message-set", depth, path)] == plain
    path.write_bytes(data[:-100])
    done = invoke("validate", "--as", "message-set", "--format", "jsonl", path)
    finding, summary = map(json.loads, done.stdout.splitlines())
    assert (finding["rule"], finding["severity"]) == ("partial-entry", "info")
    assert (done.exit_code, summary["verdict"], summary["lost_bytes"]) == (0, "sound", 0)
    shown = invoke("dump", "--as", "message-set", path)
    assert shown.exit_code == 0
    assert "partial-entry" in shown.stderr
    assert invoke("validate", path).exit_code == 1


def test_impossible_requests_are_one_line(tmp_path: Path) -> None:
    """Contradicting options are rejected with the option's name."""
    example = FOLDER / "example" / "data"
    for arguments, said in (
        (("dump", "--as", "wide-crc", tmp_path), "is a folder"),
        (("dump", "--as", "wide-crc", "--as", "wide-crc", example), "once per PATH"),
        (("dump", "--as", "wide-crc", "--as", "message-set", example, example), "dump them separately"),
        (("dump", "--as", "wide-crc", "--key", "first", example), "--offsets"),
        (("dump", "--as", "wide-crc", "--follow", example), "--follow"),
        (("dump", "--as", "message-set", "--key", "first", example), "wide-crc"),
        (("validate", "--as", "wide-crc", "--cache", tmp_path / "s", example), "--cache"),
        (("validate", "--as", "wide-crc", tmp_path / "nothing"), "No such file"),
        (("dump", "--as", "message-set", example), "wide-crc"),
    ):
        done = invoke(*arguments)
        assert (done.exit_code, said in done.stderr) == (2, True), (arguments, done.output)


def test_standard_input_is_read_too() -> None:
    """A pipe gives the rows of the file."""
    command = [sys.executable, "-m", "kseg", "dump", "--as", "wide-crc", "--format", "jsonl", "-"]
    done = subprocess.run(command, input=PLAIN + THIRD, capture_output=True, check=True)
    assert [json.loads(line)["key"] for line in done.stdout.splitlines()] == ["first", "third"]


@settings(max_examples=cases(60))
@given(st.data())
def test_any_bytes_end_in_findings(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Flips, cuts and noise: never an exception, and lost and read bytes add up to the file."""
    framing, sound = FRAMED[data.draw(st.sampled_from(sorted(FRAMED)))]
    raw = bytearray(sound * 2)
    for at in data.draw(st.lists(st.integers(0, len(raw) - 1), max_size=3)):
        raw[at] ^= 0xFF
    raw[data.draw(st.integers(0, len(raw))) :] = data.draw(st.binary(max_size=40))
    path = tmp_path_factory.getbasetemp() / "fuzzed"
    path.write_bytes(raw)
    result = validate_segment(SegmentFile(str(path), framing=framing), Settings())
    assert (result.unread is None) == bool(raw), result.unread  # only an empty file is unread
    assert result.summary.bytes == len(raw)
    assert result.summary.lost_bytes <= len(raw)
