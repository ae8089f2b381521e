"""Lines of deep dumps: the compiled loop, the code for large records, and the rows give the same text.

Both engines run the loop here; interpreted it is slow, and the command line does not use it then, but the source is
the same.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kseg.commands.dump import dump_log_lines, record_lines
from kseg.commands.dump.csv_lines import write_csv_lines
from kseg.commands.dump.dump_items import RecordsItem
from kseg.commands.dump.line_writer import ENCODINGS, STEERING_END, Layout, LineBuffer, write_lines
from kseg.commands.dump.record_lines import json_layout, text_layout, text_lines, write_json, write_text
from kseg.extras.serialization.decoding import FieldDecoder
from kseg.extras.serialization.record_decoder import RecordDecoder
from kseg.format.record.default_records import MAX_HEADERS
from kseg.format.segment import records_chunk
from kseg.format.segment.records_chunk import Header, timestamp_type
from kseg.format.writer.records_builder import PlainRecord, build_batch, build_message, build_wrapper
from kseg.report import dump_report as report_dump
from kseg.report import row_formats as report_rows
from kseg.report.formats import DUMP, View, write
from kseg.report.row_formats import RowSet
from kseg.text import encoded, escape_controls, to_json
from tests.support.fixtures import dump_segment
from tests.support.fuzzing import cases

# Text that JSON or a terminal needs escaped, that decoders must reject, and the limits of valid text.
PIECES = [
    b"plain", b'"', b"\\", b"/", b"%s", b"\0", b"\n", b"\x1b[2J", b"\x7e\x7f", "\x80\x9f\xa0".encode(),
    "\u2027\u2028\u2029\u202a\u202e\u202f\u2065\u2066\u2069\u206a".encode(), "\u07ff\u0800\ud7ff\ue000\uffff".encode(),
    "\U00010000\U0001f600\U0010ffff".encode(), "schlüssel-☃-’".encode(), b"\x80", b"\xbf", b"\xc0\x80", b"\xc1\xbf",
    b"\xc2", b"\xe0\x80\x80", b"\xe0\x9f\xbf", b"\xe2\x80", b"\xed\xa0\x80", b"\xed\xbf\xbf", b"\xf0\x8f\xbf\xbf",
    b"\xf0\x9f\x98", b",", b"\r", b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80", b"\xff", b"\xe2\x28\xa1", b"\xc3\xc3",
    "\uff1d".encode(), "\ufeff".encode(), b"\xef\xbc", b"=", b"@", b"+", b"-", b"'", b"\t", b"(1|2", b"a/+=", b"1.5_ ",
]  # fmt: skip
NUMBERS = [-1, 0, 1, 9, 10, 99, 100, 2**31, 2**53 - 1, 1_700_000_000_000, -2, -(10**18), 2**60]

contents = st.none() | st.lists(st.sampled_from(PIECES), max_size=6).map(b"".join) | st.binary(max_size=40)
headers = st.lists(st.builds(Header, st.sampled_from(["", "trace", "a,b", "\x1b", "\u2028", "\udcff", "ä"]), contents))
records = st.lists(
    st.tuples(contents, contents, st.sampled_from(NUMBERS), headers.map(lambda found: tuple(found[:3]))),
    min_size=1,
    max_size=5,
)


#: Key, value, timestamp, headers.
Found = tuple[bytes | None, bytes | None, int, tuple[Header, ...]]


@pytest.fixture(scope="module")
def segment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One file that every example overwrites; its name needs escaping."""
    return tmp_path_factory.mktemp("lines") / "100%s\x1b\u2028.log"


def runs(segment: Path, data: bytes) -> Iterator[RecordsItem]:
    segment.write_bytes(data)
    return (item for item in dump_segment(str(segment), deep=True) if isinstance(item, RecordsItem))


def written(write: Callable[[LineBuffer], None], capacity: int = 1 << 16) -> str:
    sink = io.BytesIO()
    lines = LineBuffer(sink, capacity)
    write(lines)
    lines.flush()
    return sink.getvalue().decode()


def looped(run: RecordsItem, layout: Layout, other: Callable[[int], Iterable[bytes]], capacity: int = 1 << 16) -> str:
    chunk, row = run.chunk, run.row
    data, first, stop = chunk.payload(row), run.kept[0], run.kept[-1] + 1
    return written(
        lambda lines: write_lines(lines, layout, chunk.batches, row, chunk.records, data, first, stop, other), capacity
    )


def stamp_of(run: RecordsItem) -> str | None:
    return timestamp_type(run.chunk.batches.magic[run.row], run.chunk.batches.attributes[run.row])


def json_rows(run: RecordsItem, encoding: str) -> list[str]:
    encode = records_chunk.ENCODERS[encoding]
    return [to_json(records_chunk.record_row(run.file, record, encode)) + "\n" for record in run.records()]


def check(segment: Path, data: bytes, encoding: str) -> None:
    found = 0
    for run in runs(segment, data):
        check_run(run, encoding)
        found += 1
    assert found


#: Keys and values that are not JSON or UTF-8 have an error.
DECODER = RecordDecoder(FieldDecoder("key", "string"), FieldDecoder("value", "json"))


def csv_of_rows(run: RecordsItem, view: View) -> list[str]:
    """Return the lines of the rows, and check that they are the lines that are written."""
    found = report_dump.rows([run], view)
    every = [RowSet(report_dump.record_rows(run, (i,), view), found.columns, found.names) for i in run.kept]
    wanted = ["".join(report_rows.csv_lines(rows, view)) for rows in every]
    out = io.TextIOWrapper(io.BytesIO(), "utf-8", newline="")
    report_dump.write_csv([run], out, view)
    out.seek(0)
    assert out.read() == ",".join(found.names) + "\n" + "".join(wanted)
    return wanted


def check_csv(run: RecordsItem, encoding: str) -> None:
    """Compare the loop's lines with those of the rows. The loop leaves out records with text that is not UTF-8."""
    view, row = View(True, encoding), run.row
    found = report_dump.rows([run], view)
    wanted = csv_of_rows(run, view)
    decoded = replace(run, decoder=DECODER)
    for columns in ((), ("value_decoded", "offset"), ("offset", "value_error", "value_decoded")):
        csv_of_rows(decoded, View(True, encoding, contents=DECODER.columns, columns=columns))
    chunk, batches = run.chunk, run.chunk.batches
    layout = report_dump.csv_layout(run.file, stamp_of(run), batches.magic[row] >= 2, encoding, tuple(found.names))
    json = json_layout("", None, True, encoding)

    def loop(lines: LineBuffer) -> None:
        data, first, stop = chunk.payload(row), run.kept[0], run.kept[-1] + 1
        write_csv_lines(lines, layout, json, batches, row, chunk.records, data, first, stop, lambda i: [b"other\n"])

    values = encoding == "utf8"
    assert written(loop) == "".join(loop_lines(run, wanted, values, values))


def check_run(run: RecordsItem, encoding: str) -> None:
    check_csv(run, encoding)
    decoded, encode = replace(run, decoder=DECODER), records_chunk.ENCODERS[encoding]
    found = (
        records_chunk.encoded(row, encode) for row in report_dump.record_rows(decoded, run.kept, View(True, encoding))
    )
    assert written(lambda lines: write_json(decoded, encoding, lines)) == "".join(to_json(row) + "\n" for row in found)
    wanted = json_rows(run, encoding)
    assert written(lambda lines: write_json(run, encoding, lines)) == "".join(wanted)
    modern = run.batch.magic >= 2
    layout = json_layout(run.file, stamp_of(run), modern, encoding)
    values = encoding == "utf8"
    assert looped(run, layout, lambda i: [b"other\n"]) == "".join(loop_lines(run, wanted, values, values))
    if modern:
        wanted = [dump_log_lines.record_line(record, run.batch) + "\n" for record in run.records()]
        assert text_lines(run, run.kept) == wanted
        assert written(lambda lines: write_text(run, lines)) == "".join(wanted)
        layout = text_layout(stamp_of(run))
        assert looped(run, layout, lambda i: [b"other\n"]) == "".join(loop_lines(run, wanted, True, False))


def loop_lines(run: RecordsItem, lines: list[str], values: bool, header_values: bool) -> Iterator[str]:
    """Return the loop's lines. It leaves a record to other code if the record has text that is not UTF-8.

    Header keys must be text; keys, values and header values only with that encoding.
    """
    for record, line in zip(run.records(), lines, strict=True):
        texts = [header.key.encode("utf-8", "surrogateescape") for header in record.headers]
        texts += [record.key or b"", record.value or b""] if values else []
        texts += [header.value or b"" for header in record.headers] if header_values else []
        yield line if all(map(is_utf8, texts)) else "other\n"


def is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("=1+1", "'=1+1"), ("@SUM(A1)", "'@SUM(A1)"), ("+cmd|' /C calc'!A0", "'+cmd|' /C calc'!A0"), ("-1+2", "'-1+2"),
        ("=A1,B1", "\"'=A1,B1\""), ('="a"', "\"'=\"\"a\"\"\""), ("\t=1", "'\t=1"), ("'quoted'", "''quoted'"),
        ("=", "="), ("-", "-"), ("'", "'"), ("-17.5", "-17.5"), ("+49 151", "+49 151"), ("+q/8=", "+q/8="), ("a=b", "a=b"),
        ("\n=1", "\"'\n=1\""), ("\uff1d1+1", "'\uff1d1+1"), ("\uff20A", "'\uff20A"), ("\u00a0=1", "'\u00a0=1"),
        ("\ufeff=1", "'\ufeff=1"), ("\uff0b1", "'\uff0b1"), ("\uff0d\U0001f600", "'\uff0d\U0001f600"),
        ("\uff1d", "\uff1d"), ("\u00a9=1", "\u00a9=1"), ("\uff21=1", "\uff21=1"),
    ],
)  # fmt: skip
def test_a_formula_is_text_in_csv(segment: Path, text: str, cell: str) -> None:
    """A spreadsheet must not run what a producer wrote; numbers and base64 stay as they are."""
    (run,) = runs(segment, build_batch([PlainRecord(0, text.encode(), None, 0)]))
    out = io.TextIOWrapper(io.BytesIO(), "utf-8", newline="")
    report_dump.write_csv([run], out, View(True, columns=("key",)))
    out.seek(0)
    assert out.read() == f"key\n{cell}\n"


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ENCODINGS)
@settings(max_examples=cases(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(found=records, sequence=st.sampled_from([-1, 0, 2**31 - 2]), appended=st.booleans(), codec=st.booleans())
@example(found=[(piece, piece, 0, (Header("k", piece),)) for piece in PIECES], sequence=-1, appended=False, codec=False)
def test_a_line_is_the_row(segment: Path, encoding: str, found: list[Found], sequence: int, appended: bool,
                           codec: bool) -> None:  # fmt: skip
    """The lines are equal to the byte for all keys and values:

    one wrong escape makes invalid JSON or controls a terminal.
    """
    plain = [PlainRecord(2**40 + 3 * n, key, value, stamp, h) for n, (key, value, stamp, h) in enumerate(found)]
    data = build_batch(
        plain,
        base_timestamp=plain[0].timestamp,
        base_sequence=sequence,
        producer_id=-1 if sequence < 0 else 7,
        timestamp_type="LogAppendTime" if appended else "CreateTime",
        compression="gzip" if codec else "none",
    )
    check(segment, data, encoding)


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ENCODINGS)
@settings(max_examples=cases(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(found=records, size=st.sampled_from([6, 9, 27]))
@example(found=[(piece, piece, 0, (Header("k", piece),)) for piece in PIECES], size=6)
@example(found=[(b"".join(PIECES), b"".join(PIECES), 0, (Header("a", None), Header("b", b"")))], size=6)
def test_a_line_in_pieces_is_the_row(segment: Path, encoding: str, found: list[Found], size: int) -> None:
    """A large record is written in pieces: the line is the same wherever a piece ends, also within a character."""
    plain = [PlainRecord(n, key, value, stamp, h) for n, (key, value, stamp, h) in enumerate(found)]
    with patch.object(dump_log_lines, "PIECE_BYTES", size), patch.object(record_lines, "_LARGE_RECORD", -1):
        for run in runs(segment, build_batch(plain, base_timestamp=plain[0].timestamp)):
            wanted = json_rows(run, encoding)
            # A buffer of one byte can't hold a line.
            assert written(lambda lines, run=run: write_json(run, encoding, lines), 1) == "".join(wanted)  # type: ignore[misc]
            wanted = [dump_log_lines.record_line(record, run.batch) + "\n" for record in run.records()]
            assert written(lambda lines, run=run: write_text(run, lines), 1) == "".join(wanted)  # type: ignore[misc]


@pytest.mark.slow
@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize("encoding", ENCODINGS)
@settings(max_examples=cases(30), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(found=records, size=st.sampled_from([6, 9, 27]))
@example(found=[(piece, piece, 0, (Header("k", piece),)) for piece in [*PIECES, b"", b'a"b', b"a,b", b"\r"]], size=6)
def test_cells_in_pieces_are_the_cells(
    segment: Path, encoding: str, terminal: bool, found: list[Found], size: int
) -> None:
    """CSV and tables of large records have the same quotes, escapes and cuts as small ones."""
    plain = [PlainRecord(n, key, value, stamp, h) for n, (key, value, stamp, h) in enumerate(found)]
    segment.write_bytes(build_batch(plain, base_timestamp=plain[0].timestamp))
    view = View(True, encoding, terminal=terminal)

    def outputs() -> list[str]:
        texts = []
        for name in ("csv", "table"):
            out = io.TextIOWrapper(io.BytesIO(), "utf-8", newline="")
            write(DUMP, name, out, dump_segment(str(segment), deep=True), view=view)
            out.seek(0)
            texts.append(out.read())
        return texts

    with patch.object(report_rows, "_CELL_LENGTH", 20):
        wanted = outputs()
        with patch.object(dump_log_lines, "PIECE_BYTES", size), patch.object(record_lines, "_LARGE_RECORD", -1):
            assert outputs() == wanted


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("last", [b"", b"\xe2\x82", b"\xff"], ids=["text", "cut", "bytes"])
def test_a_large_record_is_written_in_pieces(segment: Path, encoding: str, last: bytes) -> None:
    """A record of real size: key, value and headers have several pieces, with characters across the boundaries."""
    large = b"a" + "\u20ac".encode() * (dump_log_lines.PIECE_BYTES // 2) + last
    found = (Header("k" * dump_log_lines.PIECE_BYTES, large), Header("null", None))
    (run,) = runs(segment, build_batch([PlainRecord(0, large, large, 0, found), PlainRecord(1, b"k", b"v", 0)]))
    sink = Sizes()
    lines = LineBuffer(sink)
    write_json(run, encoding, lines)
    lines.flush()
    assert sink.getvalue().decode() == "".join(json_rows(run, encoding))
    assert sink.largest < 8 * dump_log_lines.PIECE_BYTES


def test_no_more_headers_are_written_in_pieces_than_as_a_row(segment: Path) -> None:
    """A small file can hold millions of headers: every way to write a line prints the same first ones."""
    found = tuple(Header(str(n), b"v" * 20) for n in range(MAX_HEADERS + 5))
    (run,) = runs(segment, build_batch([PlainRecord(0, None, None, 0, found)]))
    assert record_lines.is_large(run, 0)
    assert written(lambda lines: write_json(run, "auto", lines)) == "".join(json_rows(run, "auto"))
    (record,) = run.records()
    assert written(lambda lines: write_text(run, lines)) == dump_log_lines.record_line(record, run.batch) + "\n"


@pytest.mark.parametrize("codec", ["none", "gzip"])
@pytest.mark.parametrize("magic", [0, 1])
def test_a_large_message_is_the_row(segment: Path, magic: int, codec: str) -> None:
    """v0 and v1, single and in a message set, with the CRC that kafka-dump-log prints."""
    plain = [PlainRecord(3, b"k", b"\xe2\x82\xac" * dump_log_lines.PIECE_BYTES, 5 if magic else -1)]
    made = (
        build_message(plain[0], magic=magic)
        if codec == "none"
        else build_wrapper(plain, magic=magic, compression=codec)
    )
    (run,) = runs(segment, made)
    assert written(lambda lines: write_json(run, "auto", lines)) == "".join(json_rows(run, "auto"))
    assert written(lambda lines: write_text(run, lines)) == "".join(text_lines(run, run.kept))


class Sizes(io.BytesIO):
    """Counts the bytes in memory, and the size of the largest write."""

    largest = 0

    def write(self, data: Any) -> int:
        self.largest = max(self.largest, len(data))
        return super().write(data)


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("magic", [0, 1])
def test_a_message_within_a_wrapper_has_no_sequence(segment: Path, magic: int, encoding: str) -> None:
    """The same loop writes v0 and v1, with null for columns that they lack."""
    stamps = [5, -1, 2**40] if magic else [-1] * 3
    plain = [PlainRecord(7 + n, None if n == 1 else b"k", b'"\xff', stamp) for n, stamp in enumerate(stamps)]
    check(segment, build_wrapper(plain, magic=magic, compression="gzip"), encoding)


def test_records_larger_than_the_buffer_are_written_in_order(segment: Path) -> None:
    """A record can be larger than the buffer: order and content must not depend on it."""
    sizes = [0, 1, 30, 2000, 5, 119, 120, 121, 122, 70_000, 3]
    plain = [PlainRecord(n, b"k", b"\x01" * size, 0, (Header("h", b"\x02" * size),)) for n, size in enumerate(sizes)]
    (run,) = runs(segment, build_batch(plain))
    wanted = json_rows(run, "auto")
    layout = json_layout(run.file, "CreateTime", True, "auto")
    requested = []

    def other(i: int) -> Iterable[bytes]:
        requested.append(sizes[i])
        return [encoded(wanted[i])]

    assert looped(run, layout, other, capacity=4096) == "".join(wanted)
    assert {2000, 70_000} <= set(requested) < set(sizes)


def test_code_points_after_the_table_are_escaped() -> None:
    """The loop looks code points up in a table; larger code points must be escaped, too."""
    beyond = "".join(map(chr, [*range(STEERING_END, 0xD800), *range(0xE000, 0x110000)]))
    assert escape_controls(beyond) == beyond
