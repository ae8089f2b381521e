"""A damaged topic ``_schemas``: the records whose schemas are there are read, and nothing is said to be complete."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import kseg
from tests.support.cli import invoke
from tests.support.schema_registry import SERIALIZED, damaged_schemas

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")

#: Offsets of the fixture whose values have the lost schema, and one that has a schema that is there.
LOST, KNOWN = (0, 1, 2), 4


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with records and with the topic that has lost schema 2."""
    shutil.copytree(SERIALIZED / "orders-0", tmp_path / "orders-0")
    damaged_schemas(tmp_path / "_schemas-0", 2)
    return tmp_path


def test_grep_searches_the_records_after_one_that_lacks_its_schema(folder: Path) -> None:
    """The search ended at the first such record, and found neither a key nor a value after it."""
    for asked, found in ((("--json-path", "$.id=1"), [KNOWN]), (("order-1",), [1, KNOWN])):
        done = invoke("grep", "--schemas", folder / "_schemas-0", *asked, folder / "orders-0")
        assert [int(line.split(":")[1]) for line in done.stdout.splitlines()] == found, done.output
        assert (done.exit_code, done.stderr.count("where a schema may be lost")) == (2, 1), "the answer is incomplete"


def test_the_library_reports_a_lost_schema_once_and_reads_on(folder: Path) -> None:
    """``unread`` gets what could not be read; without it the reading ends with an error."""
    lines: list[str] = []
    found = kseg.grep(folder / "orders-0", schemas=folder / "_schemas-0", json_paths=["$.id=1"], unread=lines.append)
    assert [record.offset for record in found] == [KNOWN]
    table = pa.table(
        kseg.scan(
            folder / "orders-0", columns=["offset", "value_error"], schemas=folder / "_schemas-0", unread=lines.append
        )
    )
    errors = {row["offset"]: row["value_error"] for row in table.to_pylist()}
    assert tuple(offset for offset, error in errors.items() if error) == LOST
    assert {*lines} == {errors[0]}
    assert len(lines) == 2, "once in each call"
    with pytest.raises(kseg.UnreadableError, match="a schema may be lost"):
        list(kseg.grep(folder / "orders-0", schemas=folder / "_schemas-0", json_paths=["$.id=1"]))
    with pytest.raises(pa.ArrowInvalid, match="a schema may be lost"):
        pa.table(kseg.scan(folder / "orders-0", schemas=folder / "_schemas-0"))
