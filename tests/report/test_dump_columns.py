"""Every field of the rows of ``dump`` and ``grep`` can be a column of a table and of CSV."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from kseg.format.writer.records_builder import PlainRecord, build_batch
from tests.support.cli import PLAIN, SEGMENTS
from tests.support.cli import kseg_here as kseg
from tests.support.internal_topics import placed


def commands(tmp_path: Path) -> dict[str, list[object]]:
    """Return commands whose rows have all fields between them."""
    internal = placed("__consumer_offsets", tmp_path)
    binary = tmp_path / f"{0:020d}.log"
    binary.write_bytes(build_batch([PlainRecord(0, b"\xff", b"\xfe\x00", 1)]))
    return {
        "batches": ["dump", SEGMENTS / "4.3.0-v2-none-compacted" / PLAIN.name, PLAIN],
        "records": ["dump", "--deep", binary, PLAIN],
        "decoded": ["dump", "--deep", internal],
        "contents": ["dump", "--deep", "--key-as", "auto", "--value-as", "json", PLAIN],
        "matches": ["grep", "-C1", "-m3", "--value-as", "json", "user", PLAIN],
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", ["batches", "records", "decoded", "contents", "matches"])
def test_each_field_of_json_lines_is_a_column(tmp_path: Path, name: str) -> None:
    """The columns are those of the rows, in CSV by default, and in a table with --columns."""
    command = commands(tmp_path)[name]
    rows = [json.loads(line) for line in kseg(*command, "--format", "jsonl").stdout.splitlines()]
    fields = list(dict.fromkeys(field for row in rows for field in row))
    by_default = next(csv.reader(io.StringIO(kseg(*command, "--format", "csv").stdout)))
    assert set(fields) <= set(by_default)
    if name not in ("contents", "matches"):
        assert set(by_default) - set(fields) <= {"key_encoding", "value_encoding"}
    for writer in ("table", "csv"):
        shown = kseg(*command, "--format", writer, "--columns", ",".join(by_default))
        assert (shown.returncode, shown.stderr.count("unknown column")) == (0, 0), shown.stderr
        if writer == "table":
            titles = next(line for line in shown.stdout.splitlines() if " kind " in line).split("  ")
            assert [title.split()[0] for title in titles if title.strip()] == by_default
        else:
            assert next(csv.reader(io.StringIO(shown.stdout))) == by_default
    wrong = kseg(*command, "--format", "table", "--columns", "offsett")
    assert (wrong.returncode, "unknown column 'offsett'" in wrong.stderr) == (2, True)


def test_the_cells_are_the_values_of_the_row() -> None:
    """Also of fields that the table does not show by default."""
    columns = "position,timestamp_type,base_timestamp,producer_epoch,crc,control,kind,file"
    rows = [json.loads(line) for line in kseg("dump", "--format", "jsonl", PLAIN).stdout.splitlines()]
    lines = kseg("dump", "--columns", columns, PLAIN).stdout.splitlines()[4:]
    for row, line in zip(rows, lines, strict=False):
        cells = line.split()
        assert cells[:2] == [str(row["position"]), row["timestamp_type"]]
        assert cells[3:] == [str(row["producer_epoch"]), str(row["crc"]), "no", "batch", row["file"]]
    assert len(lines) >= len(rows) > 1


@pytest.mark.slow
def test_the_timestamp_type_of_a_broker_is_shown() -> None:
    """CreateTime is the usual one, which the tables do not name."""
    folder = next(path for path in sorted(SEGMENTS.glob("*-log-append-time")))
    batches, records = kseg("dump", folder).stdout, kseg("dump", "--deep", folder).stdout
    assert "LogAppendTime" in batches
    assert "timestamp (LogAppendTime)" in records
    assert "LogAppendTime" not in kseg("dump", PLAIN).stdout + kseg("dump", "--deep", PLAIN).stdout
    chosen = kseg("dump", "--deep", "--columns", "offset,timestamp_type", "--limit", 1, PLAIN).stdout
    assert "0   CreateTime" in chosen
