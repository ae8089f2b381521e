"""``kseg pipeline`` where something is wrong: no row is lost or loaded twice, and one line says why."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed")

import pyarrow as pa
import pyarrow.parquet as pq

from kseg.errors import KsegError
from kseg.format.writer.records_builder import PlainRecord, build_batch
from tests.support.damage import flip, put
from tests.support.growing_logs import batch, write
from tests.support.pipelines import (
    TRANSACTIONS,
    config,
    leased,
    quarantined,
    rows,
    run,
    run_here,
    run_in_process,
    table_rows,
)
from tests.support.read_faults import local_faults

pytestmark = pytest.mark.slow


def log(folder: Path, count: int = 6, *, first: int = 0) -> Path:
    """Write a log with two segments."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    write(folder, [batch(number) for number in range(first, first + count // 2)], first=first)
    write(folder, [batch(number) for number in range(first + count // 2, first + count)], first=first + count // 2)
    return folder


def offsets(home: Path, kind: str = "parquet") -> list[int]:
    return [row[1] for row in rows(home, kind)]


def code_of(path: Path) -> int:
    """Return the exit code of a run."""
    try:
        return run_here(path).code
    except (KsegError, OSError):
        return 2


@pytest.mark.parametrize("error", ["EIO", "EACCES"])
def test_a_read_error_at_any_call_fails_the_run_and_loses_no_row(tmp_path: Path, error: str) -> None:
    """A disk that fails once, at any call: exit code 2, or the right rows; never damage; the next run has all rows."""
    source = log(tmp_path / "whole" / "source" / "orders-0")
    with local_faults(source.parent) as faults:
        run_here(config(tmp_path / "whole"))
    whole = offsets(tmp_path / "whole")
    calls, failed = faults.calls, 0
    for number in range(calls):
        home = tmp_path / str(number)
        shutil.copytree(source, home / "source" / "orders-0")
        path = config(home)
        with local_faults(home / "source", error, range(number, number + 1)):
            code = code_of(path)
        assert code in (0, 2), number
        failed += code == 2
        assert not (home / "quarantine").exists(), number
        loaded = offsets(home) if (home / "lake").exists() and list((home / "lake").rglob("*.json")) else []
        assert (loaded == whole) if not code else loaded == whole[: len(loaded)], number
        assert run_here(path).code == 0
        assert offsets(home) == whole, number
    assert failed > 3


def test_a_segment_without_permission_is_not_damage(tmp_path: Path) -> None:
    """A folder that cannot be listed, or a lasting error: exit code 2 each night, and nothing is set aside."""
    log(tmp_path / "source" / "orders-0")
    path = config(tmp_path)
    with local_faults(tmp_path / "source", "EACCES", range(8, 10**6)):
        assert code_of(path) == 2
    assert not (tmp_path / "quarantine").exists()
    assert run_here(path).code == 0


@pytest.mark.parametrize("torn", [False, True])
def test_offsets_after_lost_bytes_at_the_end_of_a_segment_are_not_waited_for(torn: bool, tmp_path: Path) -> None:
    """Bytes after a damaged batch, or after a wrong size field, can be those of the offsets before the next segment."""
    folder = tmp_path / "source" / "orders-0"
    folder.parent.mkdir()
    write(folder, [batch(0)])
    path = write(folder, [batch(1), batch(2), batch(3)], first=1)
    write(folder, [batch(4)], first=4)
    size = len(batch(1))
    first = put(batch(2), 0, size=len(batch(2)) + len(batch(3))) if torn else flip(batch(2), 70)
    path.write_bytes(batch(1) + first + flip(batch(3), 59))
    done = run_here(config(tmp_path))
    assert (done.code, offsets(tmp_path)) == (1, [*range(8), *range(16, 20)])
    listed = quarantined(tmp_path)
    assert {(one["position"], one["end"]) for one in listed if one["file"]} == {(size, 3 * size)}
    # The header of a batch whose size is wrong has only its own offsets.
    assert [(one["offset"], one["last_offset"]) for one in listed if not one["file"]] == ([(12, 15)] if torn else [])


def test_a_newest_segment_without_a_valid_batch_is_listed_in_each_run(tmp_path: Path) -> None:
    """Nothing of it can be loaded, and no later segment shows that its offsets are lost: it must not pass in silence."""
    folder = tmp_path / "source" / "orders-0"
    folder.parent.mkdir()
    write(folder, [batch(0)])
    path = write(folder, [batch(1), batch(2)], first=1)
    path.write_bytes(flip(batch(1), 70) + flip(batch(2), 70))
    for run_number in range(1, 3):
        assert run_here(config(tmp_path)).code == 1
        assert offsets(tmp_path) == [*range(4)]
        assert len(list((tmp_path / "quarantine").rglob("*.jsonl"))) == run_number
    write(folder, [batch(1), batch(2)], first=1)
    assert run_here(config(tmp_path)).code == 0
    assert offsets(tmp_path) == [*range(12)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[pipeline]\n", "no table: add [table.TOPIC]"),
        ("[pipelin]\n[table.orders]\npath='x'\n", "source.paths: expected folders"),
        ("[table.orders]\npth='x'\n", "table.orders.path: expected a folder or URL"),
        ("[table.orders]\npath='x'\npartitions='day'\n", "unknown key 'partitions': did you mean partition?"),
        ("[table.orders]\npath='x'\ncolumns=['ofset']\n", "unknown column 'ofset'"),
        (
            "[table.orders]\npath='x'\ncolumns=['value']\n",
            "columns: expected partition and offset among the names, got",
        ),
        ("[table.orders]\npath='x'\ncolumns=['offset']\n", "columns: expected partition among the names, got"),
        ("[table.orders]\npath='source/x'\n", "is in the source"),
        ("[validate]\nfail_if='never'\n[table.orders]\npath='x'\n", "validate.fail_if: expected a condition such as"),
        ("[table.orders]\npath='x'\n[table.users]\npath='x'\n", "is also the table of orders"),
        ("[table.orders]\npath=", "Invalid value"),
        (
            "[pipeline]\nstat='state'\n[table.orders]\npath='x'\n",
            "unknown key 'stat': did you mean state? in [pipeline]",
        ),
        ("[pipeline]\nstate='x'\n[table.orders]\npath='x'\n", "pipeline.state: "),
        ("[pipeline]\nstate='x/s'\n[table.orders]\npath='x'\n", "is in the table of orders"),
        ("[table.orders]\npath='x'\n[table.users]\npath='x/users'\n", "is in the table of orders"),
        (
            "[pipeline]\nstate='s'\nengine='auto'\n[table.orders]\npath='x'\n",
            "pipeline.spark: expected a master of Spark",
        ),
        ("[validate]\nfail_if='damaged > 100% of bytes'\n[table.orders]\npath='x'\n", "validate.fail_if: expected"),
        ("[report]\nto=['{runs}.html']\n[table.orders]\npath='x'\n", "only {run} is"),
        ("[report]\nto=['html:{runs}']\n[table.orders]\npath='x'\n", "only {run} is"),
        ("[report]\nto=['openlineage:x.html']\n[table.orders]\npath='x'\n", "or openlineage:FILE.jsonl"),
        ("[report]\nto=['openlineage:catalog:5000']\n[table.orders]\npath='x'\n", "or openlineage:FILE.jsonl"),
    ],
)
def test_a_wrong_configuration_is_one_line(tmp_path: Path, text: str, message: str) -> None:
    """It names the file, the key and the expected value, before anything is read or written."""
    head = "" if "source.paths" in message else '[source]\npaths = ["source"]\n'
    if "[pipeline]" not in text and "source.paths" not in message:
        head = f'[pipeline]\nstate = "state"\n{head}'
    (tmp_path / "night.toml").write_text(head + text)
    done = run(tmp_path / "night.toml")
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["night.toml"]


def test_a_second_run_is_refused_while_one_works(tmp_path: Path) -> None:
    """The lease names the process; that of a process which is dead does not count."""
    log(tmp_path / "source" / "orders-0")
    path = config(tmp_path)
    assert run(path).returncode == 0
    leased(tmp_path / "state" / "lease")
    done = run(path)
    assert done.returncode == 2
    assert f"another run works: process {os.getpid()}" in done.stderr
    leased(tmp_path / "state" / "lease", began="1")
    assert run(path).returncode == 0
    assert not (tmp_path / "state" / "lease").exists()


def test_a_gap_stops_the_load_or_is_listed(tmp_path: Path) -> None:
    """A segment that is not there yet is waited for; retention before the load is named with its offsets."""
    folder = log(tmp_path / "source" / "orders-0")
    path = config(tmp_path)
    assert run(path).returncode == 0
    write(folder, [batch(number) for number in range(9, 12)], first=9)
    done = run(path)
    assert done.returncode == 2
    assert "orders-0: offsets 24..35: in no segment" in done.stderr
    assert offsets(tmp_path) == list(range(24))
    for segment in sorted(folder.iterdir())[:6]:
        segment.unlink()
    done = run(path)
    assert done.returncode == 2
    assert "offsets 24..35: deleted before the load: set source.gaps" in done.stderr
    assert run(config(tmp_path, more='gaps = "continue"')).returncode == 1
    assert offsets(tmp_path) == [*range(24), *range(36, 48)]
    assert [(row["offset"], row["last_offset"]) for row in quarantined(tmp_path)] == [(24, 35)]


def check_previews(path: Path, reason: str) -> None:
    """Check that plan and status say that the only partition cannot be loaded."""
    for action in ("plan", "status"):
        done = run(path, action)
        text = " ".join(done.stdout.split())
        assert (done.returncode, "failed" in text, reason in text) == (2, True, True), action
        assert "1 partition cannot be loaded" in text, action


def test_a_topic_that_was_created_again_is_not_loaded(tmp_path: Path) -> None:
    """By the topic id, or because the log ends before the loaded offsets. plan and status exit with 2, as the run does."""
    folder = tmp_path / "source" / "orders-0"
    shutil.copytree(TRANSACTIONS, folder)
    path = config(tmp_path)
    assert run(path).returncode == 0
    before = rows(tmp_path, "parquet")
    text = (folder / "partition.metadata").read_text()
    (folder / "partition.metadata").write_text(text.replace("topic_id: 1Hu3", "topic_id: 1Hu4"))
    done = run(path)
    assert done.returncode == 2
    assert "the topic was deleted and created again" in done.stderr
    check_previews(path, "the topic was deleted and created again")
    shutil.rmtree(folder)
    log(folder)
    done = run(path)
    assert done.returncode == 2
    assert "the log ends at offset 24" in done.stderr
    check_previews(path, "the log ends at offset 24")
    assert rows(tmp_path, "parquet") == before


def test_more_damage_than_allowed_loads_no_row(tmp_path: Path) -> None:
    """Exit code 3; the damage is reported."""
    folder = log(tmp_path / "source" / "orders-0")
    first = folder / f"{0:020}.log"
    data = bytearray(first.read_bytes())
    data[-5] ^= 1
    first.write_bytes(data)
    path = config(tmp_path)
    path.write_text('[validate]\nfail_if = "damaged > 1% of bytes"\n' + path.read_text())
    assert run(path).returncode == 3
    assert not (tmp_path / "lake").exists()
    path.write_text(path.read_text().replace("1% of bytes", "1 segments"))
    assert run(path).returncode == 1
    assert offsets(tmp_path) == [*range(8), *range(12, 24)]


def test_a_table_of_somebody_else_is_refused(tmp_path: Path) -> None:
    """A folder with other files keeps them; so does an Iceberg table with rows that no pipeline has loaded."""
    log(tmp_path / "source" / "orders-0")
    (tmp_path / "lake" / "orders").mkdir(parents=True)
    pq.write_table(pa.table({"a": [1]}), tmp_path / "lake" / "orders" / "mine.parquet")
    done = run(config(tmp_path))
    assert done.returncode == 2
    assert "has files that no pipeline has written, such as mine.parquet" in done.stderr
    catalogs = pytest.importorskip("pyiceberg.catalog", reason="pyiceberg is not installed")
    catalog = catalogs.load_catalog(
        "ice", type="sql", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/lake"
    )
    catalog.create_namespace("lake")
    table = catalog.create_table("lake.orders", pa.schema([("a", pa.int64())]))
    table.append(pa.table({"a": [1]}))
    catalog.close()
    done = run(config(tmp_path, "iceberg"))
    assert done.returncode == 2
    assert "has rows that no pipeline has loaded" in done.stderr
    with catalog:
        assert catalog.load_table("lake.orders").scan().to_arrow().num_rows == 1


def test_other_commits_and_rollbacks_keep_the_rows_right(tmp_path: Path) -> None:
    """Another program adds a snapshot, and snapshots are rolled back: each record is in the table once."""
    pytest.importorskip("pyiceberg", reason="pyiceberg is not installed")
    from tests.support.pipelines import iceberg_table

    folder = tmp_path / "source" / "orders-0"
    folder.parent.mkdir(parents=True)
    write(folder, [batch(number) for number in range(3)])
    path = config(tmp_path, "iceberg")
    assert run_here(path).code == 0
    first = iceberg_table(tmp_path).current_snapshot().snapshot_id
    with iceberg_table(tmp_path).transaction() as change:
        change.set_properties({"owner": "someone"})
    write(folder, [batch(number) for number in range(3, 6)], first=3)
    assert run_here(path).code == 0
    assert offsets(tmp_path, "iceberg") == list(range(24))
    iceberg_table(tmp_path).manage_snapshots().rollback_to_snapshot(first).commit()
    assert offsets(tmp_path, "iceberg") == list(range(12))
    assert run_here(path).code == 0
    assert offsets(tmp_path, "iceberg") == list(range(24))


def test_verify_finds_a_row_that_is_missing_changed_or_twice(tmp_path: Path) -> None:
    """Counts, offsets and checksums are compared; before the change they are the same."""
    shutil.copytree(TRANSACTIONS, tmp_path / "source" / "orders-0")
    path = config(tmp_path)
    assert run(path).returncode == 0
    assert run(path, "verify").returncode == 0
    (data,) = (tmp_path / "lake").rglob("*.parquet")
    whole = pq.ParquetFile(data).read()
    changes: list[Callable[[pa.Table], pa.Table]] = [
        lambda table: table.slice(1),
        lambda table: pa.concat_tables([table, table.slice(3, 1)]),
        lambda table: table.set_column(
            5, "value", pa.array([b"x", *table.column("value").to_pylist()[1:]], pa.binary())
        ),
    ]
    reasons = ["44 rows in the table, 45 rows in the segments", "46 rows in the table", "other keys or values"]
    for change, reason in zip(changes, reasons, strict=True):
        pq.write_table(change(whole), data)
        done = run(path, "verify")
        assert done.returncode == 1, done.stderr
        assert reason in done.stdout


def test_a_sound_replica_takes_the_place_of_a_damaged_one(tmp_path: Path) -> None:
    """Two brokers have the partition, each with damage in another segment: all rows are loaded, once."""
    for broker in range(2):
        folder = log(tmp_path / "source" / f"broker-{broker}" / "orders-0")
        segment = sorted(folder.glob("*.log"))[broker]
        data = bytearray(segment.read_bytes())
        data[-5] ^= 1
        segment.write_bytes(data)
    path = config(tmp_path, source="source/broker-*")
    done = run(path)
    assert done.returncode == 0, done.stdout
    assert offsets(tmp_path) == list(range(24))
    spare = tmp_path / "source" / "broker-0" / "orders-0" / f"{0:020}.log"
    assert f"2 damaged segments not needed, as another replica has the rows, such as {spare}" in done.stdout
    assert "not needed" not in run(path).stdout


#: Milliseconds: the last of the year 9999, and what no timestamp of a table can be, such as microseconds.
LAST, OUTSIDE = 253_402_300_799_999, (253_402_300_800_000, 1_700_000_000_000_000, 1 << 62, -(1 << 60))


@pytest.mark.parametrize("with_number", [False, True])
def test_a_timestamp_that_a_table_cannot_have_is_counted(tmp_path: Path, kind: str, with_number: bool) -> None:
    """The page says: it is null, the run counts the rows, and a column timestamp_ms has the number. It is no damage."""
    folder = tmp_path / "source" / "orders-0"
    folder.mkdir(parents=True)
    times = [-1, 0, LAST, -5, *OUTSIDE]
    batches = [build_batch([PlainRecord(n, b"k", b"v", time)], base_offset=n) for n, time in enumerate(times)]
    (folder / f"{0:020}.log").write_bytes(b"".join(batches))
    table = 'columns = ["partition", "offset", "timestamp", "timestamp_ms", "value"]\n' if with_number else ""
    path = config(tmp_path, kind, table=table)
    done = run_in_process(path)
    assert (done.returncode, (tmp_path / "quarantine").exists()) == (0, False)
    what = "rows of orders loaded without the timestamp, which is outside of the years 1 to 9999"
    assert f"{len(OUTSIDE)} {what}" in " ".join(done.stdout.split())
    found = sorted(table_rows(tmp_path, kind), key=lambda row: row["offset"])
    stored = [None if row["timestamp"] is None else row["timestamp"].timestamp() for row in found]
    assert [one is None for one in stored] == [time == -1 or time in OUTSIDE for time in times]
    if with_number:
        assert [row["timestamp_ms"] for row in found] == [None if time == -1 else time for time in times]
    (report,) = (tmp_path / "reports").glob("*.jsonl")
    assert json.loads(report.read_text().splitlines()[-1])["without_time"] == {"orders": len(OUTSIDE)}
    again = run_in_process(path, "replay", "--topic", "orders", "--offsets", "0:2:6")
    assert (again.returncode, "2 rows of" in again.stdout, "outside of the years" in again.stdout) == (0, True, True)
