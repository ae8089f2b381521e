"""Ranges of time select records by their own timestamps, also where the header of their batch has a wrong largest one."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from random import Random
from typing import Any

import pytest

import kseg
from kseg.extras.views import zone_maps
from kseg.format.writer.records_builder import PlainRecord, build_batch, build_message, build_wrapper
from tests.support.cli import invoke

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pytest.importorskip("duckdb", reason="DuckDB is not installed")
pq = pytest.importorskip("pyarrow.parquet")

BEGIN = 1_700_000_000_000
#: The kinds of batches whose header says that it is older than its records, and no field of it contradicts that.
HIDDEN = "v2 too low"
KINDS = ("v0", "v0 set", "v1", "v1 set", "v1 append", "v2", "v2 append", "v2 none", "v2 before its base", HIDDEN)


def random_batch(dice: Random, kind: str, offset: int, time: int) -> tuple[bytes, dict[int, int], int]:
    """Return a batch, the timestamps of its records by offset, and the largest timestamp in its header."""
    count = 1 if kind in ("v0", "v1") else dice.randrange(1, 6)
    times = [time + dice.randrange(1000) if kind[1] > "0" else -1 for _ in range(count)]
    if kind[1] == "2" and kind != "v2 before its base":
        times = [dice.choice((one, one, one, -1)) for one in times]
    stored = {"v2 none": -1, "v2 before its base": times[0] - dice.randrange(1, 900)}.get(kind, max(times))
    if kind == HIDDEN:
        stored = max(times[0], 0)
    elif kind in ("v1 set", "v1 append", "v2 append"):
        stored = dice.choice((-1, time - dice.randrange(900), time + dice.randrange(900)))
    records = [PlainRecord(offset + n, b"k", b"needle", times[n]) for n in range(count)]
    kwargs: dict[str, Any] = {"timestamp_type": "LogAppendTime" if "append" in kind else "CreateTime"}
    if "append" in kind:
        times = [stored] * count
    if kind in ("v0", "v1"):
        data = build_message(records[0], magic=int(kind[1]))
    elif kind[1] < "2":
        data = build_wrapper(records, magic=int(kind[1]), compression="gzip", append_time=stored, **kwargs)
    else:
        data = build_batch(records, compression=dice.choice(("none", "lz4")), max_timestamp=stored, **kwargs)
    return data, {offset + n: times[n] for n in range(count)}, stored


def partition(folder: Path, dice: Random, kinds: tuple[str, ...] = KINDS) -> dict[int, tuple[int, int | None]]:
    """Write a log. Return of each record by offset its timestamp, and the header's if only that can be asked."""
    folder.mkdir(parents=True)
    parts, found, offset = [], dict[int, tuple[int, int | None]](), 0
    for _ in range(dice.randrange(1, 12)):
        kind = dice.choice(kinds)
        data, times, stored = random_batch(dice, kind, offset, BEGIN + dice.randrange(4000))
        parts.append(data)
        found |= {at: (time, stored if kind == HIDDEN else None) for at, time in times.items()}
        offset += len(times)
    (folder / f"{0:020}.log").write_bytes(b"".join(parts))
    return found


def within(found: dict[int, tuple[int, int | None]], since: int, until: int | None, *, opened: bool) -> list[int]:
    """Return the offsets of the records in a range. If batches are not ``opened``, some headers are trusted."""
    return [
        offset
        for offset, (time, header) in found.items()
        if time != -1 and since <= time < (until or 1 << 62) and (opened or header is None or header >= since)
    ]


def scanned(folder: Path, **asked: Any) -> list[int]:
    scan = kseg.scan(folder, columns=["offset"], **asked)
    return [row["offset"] for batch in pa.RecordBatchReader.from_stream(scan) for row in batch.to_pylist()]


def test_records_are_selected_by_their_own_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """25 random logs of all versions with headers that are right, too low, too high and -1. Readers that open all batches
    find exactly the records in the range. The views find them all but those of v2 batches with a plausible header."""
    monkeypatch.setattr(zone_maps, "ZONE_BYTES", 100)
    for seed in range(25):
        dice = Random(seed)
        folder = tmp_path / str(seed) / "orders-0"
        found = partition(folder, dice)
        inventory = tmp_path / f"{seed}.parquet"
        pq.write_table(pa.RecordBatchReader.from_stream(kseg.scan(folder, "segments")).read_all(), inventory)
        for _ in range(3):
            since = BEGIN + dice.randrange(-500, 5000)
            asked: dict[str, Any] = {"since": since, "until": dice.choice((None, since + dice.randrange(1, 3000)))}
            wanted = within(found, since, asked["until"], opened=True)
            assert [one.offset for one in kseg.open_partition(folder).records(**asked)] == wanted, (seed, asked)
            assert [one.offset for one in kseg.grep(folder, "needle", **asked)] == wanted, (seed, asked)
            listed = within(found, since, asked["until"], opened=False)
            assert scanned(folder, **asked) == listed, (seed, asked)
            assert scanned(folder, inventory=str(inventory), **asked) == listed, (seed, asked)


@pytest.mark.parametrize("kind", ["v1 set", "v2 none"])
def test_each_spelling_of_a_condition_has_the_same_records(kind: str, tmp_path: Path) -> None:
    """``dump --since``, ``grep --where`` and conditions of SQL that do and don't limit the batches that are opened."""
    folder = tmp_path / "orders-0"
    folder.mkdir()
    records = [PlainRecord(n, b"k", b"needle", BEGIN + n) for n in range(3)]
    old = {"v1 set": BEGIN, "v2 none": -1}[kind]
    data = build_batch(records, max_timestamp=old)
    if kind == "v1 set":
        data = build_wrapper(records, magic=1, compression="gzip", append_time=old)
    (folder / f"{0:020}.log").write_bytes(data)
    text = ("--format", "jsonl", folder)
    outputs = [invoke("dump", "--deep", "--since", BEGIN + 1, *text).stdout]
    for condition in (f"timestamp_ms >= {BEGIN + 1}", f"epoch_ms(timestamp) >= {BEGIN + 1}"):
        outputs.append(invoke("grep", "--where", condition, *text).stdout)
        outputs.append(invoke("sql", f"select * from records where {condition}", *text).stdout)
    for output in outputs:
        rows = [json.loads(line) for line in output.splitlines()]
        assert [row["offset"] for row in rows if row.get("kind", "record") == "record"] == [1, 2], output


def test_a_time_index_of_old_headers_hides_no_records(tmp_path: Path) -> None:
    """A broker makes it of the headers: the index of a log that begins with v1 chooses no bytes and no segments."""
    folder = tmp_path / "orders-0"
    folder.mkdir()
    times = {n: BEGIN + n % 3 for n in range(9)}
    sets = [
        build_wrapper(
            [PlainRecord(n, b"k", b"needle", times[n]) for n in range(first, first + 3)],
            magic=1,
            compression="gzip",
            append_time=BEGIN,
        )
        for first in (0, 3, 6)
    ]
    log = folder / f"{0:020}.log"
    log.write_bytes(sets[0] + sets[1])
    log.with_suffix(".index").write_bytes(struct.pack(">ii", 3, len(sets[0])))
    log.with_suffix(".timeindex").write_bytes(struct.pack(">qi", BEGIN, 2))
    (folder / f"{6:020}.log").write_bytes(sets[2])
    wanted = [n for n, time in times.items() if time > BEGIN]
    assert [one.offset for one in kseg.open_partition(folder).records(since=BEGIN + 1)] == wanted
    assert scanned(folder, since=BEGIN + 1) == wanted
    log.with_suffix(".timeindex").write_bytes(struct.pack(">qi", BEGIN, 5))  # as at a roll
    assert scanned(folder, since=BEGIN + 1) == wanted
