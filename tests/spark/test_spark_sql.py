"""``kseg sql --spark``: the same statements have the same results on Spark and in DuckDB."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kseg import Header
from kseg.extras.sql.recipes import RECIPES
from kseg.extras.sql.statement import TABLES
from kseg.format.writer.records_builder import PlainRecord, build_batch
from tests.support import fleet
from tests.support.cli import DAMAGED, SEGMENTS, kseg, kseg_here
from tests.support.damage import flip
from tests.support.spark_jobs import on_spark, run

pytest.importorskip("pyspark", reason="pyspark is not installed")
pytest.importorskip("duckdb", reason="duckdb is not installed")
pytestmark = pytest.mark.spark

HEADERS = SEGMENTS / "4.3.0-v2-none-headers"
STATEMENTS = {
    "select \"offset\", offset + 1 as n, key, value from records where key like 'k%' order by 1": HEADERS,
    "select h.key, h.value from (select explode(headers) as h from records) order by 1, 2": HEADERS,
    "select state, count(*) as n from transactions group by 1 order by 1": SEGMENTS / "4.3.0-v2-none-transactions",
    "select key_size, headers_size, key_encoding, value_encoding, key_bytes, value_bytes, decoded from records": HEADERS,
    "select subject, version, id, used_by from schemas": SEGMENTS.parent / "serialized",
    "select kind, state, base_offset, size from files": HEADERS,
}


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("statement", STATEMENTS)
def test_results_are_those_of_duckdb(statement: str) -> None:
    """A statement can be tried on one machine, and then run on a cluster."""
    arguments = ("sql", statement, STATEMENTS[statement].absolute(), "--format", "csv")
    there = on_spark(*arguments)
    here = run("sql", statement.replace("explode", "unnest"), *arguments[2:])
    assert (here.exit_code, there.exit_code, there.stderr) == (0, 0, "")
    assert len(here.stdout.splitlines()) > 1
    # Nulls come first in Spark, and last in DuckDB.
    assert sorted(there.stdout.splitlines()) == sorted(here.stdout.splitlines())


@pytest.mark.usefixtures("spark")
def test_bytes_are_the_same_text_as_in_duckdb(tmp_path: Path) -> None:
    """Also what Spark would break into lines, what is nearly UTF-8, and what its own escapes could change."""
    odd = [
        b"\xed\xa0\x80",
        b"\xc0\x80",
        b"\xf4\x90\x80\x80",
        b"\xef\xbf\xbf",
        b"a\0b",
        b"\r\n",
        b"\xe2\x80\xa8",
        b"\xc3",
        b"\\r'",
    ]
    values = [*odd, *(bytes([n] * n) for n in range(50, 250, 7)), "aé€😀".encode() * 60, b"", None]
    records = [
        PlainRecord(n, values[n - 1], value, 1_700_000_000_000, (Header("h", value),)) for n, value in enumerate(values)
    ]
    log = tmp_path / "orders-0" / f"{0:020}.log"
    log.parent.mkdir()
    log.write_bytes(build_batch(records))
    here, there = (
        one("sql", 'select * from records order by "offset"', log.parent, "--format", "jsonl")
        for one in (run, on_spark)
    )
    assert (here.exit_code, len(here.stdout.splitlines())) == (0, len(values))
    assert there.stdout == here.stdout


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("name", RECIPES)
def test_recipes_have_the_rows_of_duckdb(name: str, tmp_path: Path) -> None:
    """A recipe has one text for both."""
    names = (
        "0.8.2.2-v0-lz4",
        "4.3.0-v2-none-transactions",
        "4.3.0-v2-none-compacted-transactions",
        "2.8.2-v0v1v2-mixed",
    )
    # The segment occurs twice in a folder: overlaps and duplicates.
    again = tmp_path / "again-0"
    again.mkdir()
    for offset in (0, 1):
        (again / f"{offset:020}.log").write_bytes(
            (SEGMENTS / "4.3.0-v2-none-transactions" / f"{0:020}.log").read_bytes()
        )
    paths = [*fleet.make(tmp_path), again, *((SEGMENTS / name).absolute() for name in names)]
    here = run("sql", "--recipe", name, "--format", "jsonl", *paths)
    there = on_spark("sql", "--recipe", name, "--format", "jsonl", *paths)
    assert here.stdout
    assert there.stdout == here.stdout
    # Skipped damage of the fleet gives exit code 1, as a problem does.
    assert there.exit_code == here.exit_code == 1


def test_a_wrong_statement_is_one_line() -> None:
    """Spark's error has the name; its plan and the traceback are left out."""
    done = kseg("sql", "select kye from records", DAMAGED, "--spark", "local[1]")
    assert done.returncode == 2
    assert "kye" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(("table", "start"), [("records", kseg), ("batches", kseg_here)])
def test_damage_is_reported_as_on_one_machine(
    table: str, start: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    """The rows are those of the data; the notice and the exit code say that some are missing."""
    damaged = SEGMENTS.parent / "findings" / "crc-mismatch"
    arguments = ("sql", f"select count(*) as n from {table}", damaged.absolute(), "--format", "csv")
    there, here = start(*arguments, "--spark", "local[2]"), kseg_here(*arguments)
    assert (there.stdout, there.stderr, there.returncode) == (here.stdout, here.stderr, 1)
    assert "crc-mismatch at byte 475" in here.stderr


@pytest.mark.usefixtures("spark")
def test_damage_is_counted_without_rows(tmp_path: Path) -> None:
    """Spark drops the plan of an empty result, and must not drop the count of damage with it."""
    log = tmp_path / "orders-0" / f"{0:020}.log"
    log.parent.mkdir()
    log.write_bytes(flip((SEGMENTS / "4.3.0-v2-none-transactions" / log.name).read_bytes(), 300))
    here, there = (one("sql", "--recipe", "gaps", "--format", "jsonl", log.parent) for one in (run, on_spark))
    assert (here.exit_code, here.stdout) == (1, "")
    assert (there.exit_code, there.stdout) == (here.exit_code, here.stdout)
    assert sorted(there.stderr.splitlines()) == sorted(here.stderr.splitlines())


@pytest.mark.usefixtures("spark")
def test_the_tasks_obey_the_rate() -> None:
    """As the processes of one machine do."""
    log = SEGMENTS / "4.3.0-v2-none-segments"
    size, begin = sum(path.stat().st_size for path in log.glob("*.log")), time.monotonic()
    done = on_spark("sql", "select count(*) from records", log.absolute(), "--max-rate", max(size // 3, 1))
    assert done.exit_code == 0
    assert time.monotonic() - begin > 2.5


def _odd_folders(tmp_path: Path) -> dict[str, Path]:
    """Return folders with files that cannot be read, or that are missing, by what they are."""
    whole = (SEGMENTS / "4.3.0-v2-none-transactions" / f"{0:020}.log").read_bytes()
    text = b"not a segment at all\n" * 20
    first, second = f"{0:020}.log", f"{1000:020}.log"
    contents: dict[str, dict[str, bytes]] = {
        "empty": {},
        "side-files": {f"{0:020}.index": bytes.fromhex("0000000100000100"), f"{0:020}.timeindex": b""},
        "no-segment": {first: text},
        "one-unreadable": {first: whole, second: text},
        "a-folder-like-a-segment": {first: whole},
        "a-link-to-nothing": {first: whole},
        "damage": {first: flip(whole, 300)},
        "missing": {},
    }
    folders = {name: tmp_path / name / "orders-0" for name in contents}
    for name, files in contents.items():
        folders[name].mkdir(parents=True)
        for file, data in files.items():
            (folders[name] / file).write_bytes(data)
    (folders["a-folder-like-a-segment"] / second).mkdir()
    (folders["a-link-to-nothing"] / second).symlink_to(tmp_path / "nothing")
    folders["missing"].rmdir()
    return folders


@pytest.mark.usefixtures("spark")
def test_odd_folders_have_the_rows_and_the_exit_code_of_one_machine(tmp_path: Path) -> None:
    """A job that tests the exit code sees the same on a cluster. Only a read error ends it there: Spark repeats its task."""
    codes = set()
    for what, folder in _odd_folders(tmp_path).items():
        for table in TABLES:
            arguments = ("sql", f"select * from {table}", folder, "--format", "jsonl")
            here, there = run(*arguments), on_spark(*arguments)
            codes.add(here.exit_code)
            assert there.exit_code == here.exit_code, (what, table, there.stderr)
            assert set(there.stderr.splitlines()) <= set(here.stderr.splitlines()), (what, table)
            assert bool(there.stderr) == bool(here.stderr), (what, table)
            if what != "a-link-to-nothing":
                assert _rows(there.stdout) == _rows(here.stdout), (what, table)
    assert codes == {0, 1, 2}


def _rows(text: str) -> list[str]:
    return sorted(json.dumps(json.loads(line), sort_keys=True) for line in text.splitlines())
