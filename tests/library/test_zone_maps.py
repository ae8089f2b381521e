"""Zone maps: a plan with an inventory gives the rows of one without it, from fewer bytes."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random
from typing import Any

import pytest

import kseg
from kseg.commands.validate.validate import validate_segment
from kseg.errors import KsegError
from kseg.extras.views import whole_files, zone_maps
from kseg.extras.views.planning import Request, plan
from kseg.extras.views.split_rows import Task, read
from kseg.extras.views.view_table import VIEWS, columns_of
from kseg.format.segment.row_filter import RowFilter
from kseg.format.writer.records_builder import PlainRecord, build_batch, build_message, build_wrapper
from tests.support.cli import invoke
from tests.support.damage import flip
from tests.support.fixtures import SEGMENTS

pytest.importorskip("pyarrow", reason="pyarrow is not installed")
import pyarrow as pa
import pyarrow.parquet as pq

HOUR = 3_600_000
BEGIN = 1_700_000_000_000


def random_batch(dice: Random, offset: int, time: int) -> tuple[bytes, int]:
    """Return a batch of any version and its number of records; their times are not in order, and some have none."""
    kind = dice.choice(("v2", "v2", "v2", "v1", "wrapper", "v0", "appended"))
    count = 1 if kind in ("v0", "v1") else dice.randrange(1, 6)
    times = [-1 if kind == "v0" else time + dice.randrange(-HOUR, HOUR) for _ in range(count)]
    records = [PlainRecord(offset + n, b"k", dice.randbytes(90), times[n]) for n in range(count)]
    if kind in ("v0", "v1"):
        return build_message(records[0], magic=int(kind[1])), count
    if kind == "wrapper":
        return build_wrapper(records, magic=1, compression="gzip"), count
    if kind == "appended":
        return build_batch(records, timestamp_type="LogAppendTime", max_timestamp=time), count
    return build_batch(records, compression=dice.choice(("none", "lz4"))), count


def write_log(folder: Path, dice: Random) -> None:
    """Write a partition of several segments without indexes, as a backup has it; some offsets are missing."""
    folder.mkdir(parents=True)
    offset = time = 0
    for _ in range(dice.randrange(1, 4)):
        path = folder / f"{offset:020}.log"
        parts = []
        for _ in range(dice.randrange(1, 30)):
            offset += dice.choice((0, 0, 3))
            data, count = random_batch(dice, offset, BEGIN + time)
            parts.append(data)
            offset += count
            time += dice.randrange(HOUR)
        path.write_bytes(b"".join(parts))


def random_limits(dice: Random) -> RowFilter:
    def bound(largest: int, begin: int = 0) -> int | None:
        return dice.choice((None, begin + dice.randrange(-largest // 9, largest)))

    return RowFilter(bound(250), bound(250), bound(60 * HOUR, BEGIN), bound(60 * HOUR, BEGIN))


def rows_of(folder: Path, view: str, limits: RowFilter, inventory: Path | None) -> tuple[list[dict[str, Any]], int]:
    """Return the rows of a view, and the bytes that the plan has."""
    names = ("offset", "timestamp_ms") if view == "records" else ("base_offset", "position")
    asked = Request(
        (str(folder),),
        view,
        columns_of(view, names),
        limits=limits,
        inventory=None if inventory is None else str(inventory),
    )
    splits = plan(asked, limits)
    found = [row for split in splits for batch in read(Task(asked, limits), split) for row in batch.to_pylist()]
    return found, sum(piece.bytes for split in splits for piece in split)


def inventory_of(folder: Path, target: Path) -> Path:
    pq.write_table(pa.RecordBatchReader.from_stream(kseg.scan(folder, "segments")).read_all(), target)
    return target


@pytest.mark.slow
def test_no_row_is_lost_by_a_zone_map(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """60 random logs of all versions, with times in any order, and 12 ranges of offsets and times of each: the same rows."""
    monkeypatch.setattr(zone_maps, "ZONE_BYTES", 900)
    plain = skipped = 0
    for seed in range(60):
        dice = Random(seed)
        folder = tmp_path / str(seed) / "orders-0"
        write_log(folder, dice)
        inventory = inventory_of(folder, tmp_path / f"{seed}.parquet")
        for _ in range(12):
            limits, view = random_limits(dice), dice.choice(("records", "records", "batches"))
            wanted, size = rows_of(folder, view, limits, None)
            found, fewer = rows_of(folder, view, limits, inventory)
            assert found == wanted, (seed, view, limits)
            assert fewer <= size
            plain, skipped = plain + size, skipped + size - fewer
    assert skipped > plain * 0.3


@pytest.mark.parametrize("change", ["damage", "appended", "replaced"])
def test_a_segment_that_has_changed_is_read_as_without_it(
    change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The map is that of one version of a file. A damaged segment has none, so that its damage is found."""
    monkeypatch.setattr(zone_maps, "ZONE_BYTES", 900)
    folder = tmp_path / "orders-0"
    write_log(folder, Random(3))
    log = max(folder.glob("*.log"))
    data = log.read_bytes()
    if change == "damage":
        log.write_bytes(flip(data, 200))
    inventory = inventory_of(folder, tmp_path / "inventory.parquet")
    if change == "appended":
        with log.open("ab") as out:
            out.write(random_batch(Random(1), 10_000, BEGIN)[0])
    elif change == "replaced":
        (tmp_path / "new").write_bytes(data)
        os.replace(tmp_path / "new", log)
    limits = RowFilter(since=BEGIN + 40 * HOUR, until=BEGIN + 41 * HOUR)
    names = [piece.file.path for split in plan(asked(folder, inventory), limits) for piece in split]
    assert str(log) in names


def asked(folder: Path, inventory: Path, view: str = "records") -> Request:
    return Request((str(folder),), view, VIEWS[view].columns, inventory=str(inventory))


def test_validate_writes_it_and_sql_reads_less(tmp_path: Path) -> None:
    """With one process and with two; the paths can be given in another way. The file is that of the view."""
    source = SEGMENTS / "4.3.0-v2-none-segments"
    backup = tmp_path / "orders-0"
    backup.mkdir()
    for log in source.glob("*.log"):
        (backup / log.name).write_bytes(log.read_bytes())
    targets = [tmp_path / "one", tmp_path / "two"]
    for jobs, target in enumerate(targets, 1):
        assert invoke("validate", "--jobs", jobs, "--inventory", target, backup).exit_code == 0
    one, two = (pq.read_table(target / "segments.parquet").to_pylist() for target in targets)
    assert one == two
    assert one == pa.RecordBatchReader.from_stream(kseg.scan(backup, "segments")).read_all().to_pylist()
    statement = "select offset from records where timestamp >= '2023-11-15 02:00' and timestamp < '2023-11-15 03:00'"
    outputs = [
        invoke("sql", "--format", "jsonl", *given, statement, tmp_path / "orders-0" / ".." / "orders-0").stdout
        for given in ((), ("--inventory", targets[0]))
    ]
    assert outputs[0] == outputs[1] != ""


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file or directory"),
        ("folder", "no inventory: expected segments.parquet of kseg validate --inventory"),
        ("text", "no inventory: expected the view segments as Parquet"),
        ("findings", "no inventory: expected the view segments as Parquet"),
        ("types", "no inventory: expected the view segments as Parquet"),
    ],
)
def test_another_file_is_no_inventory(content: str | None, message: str, tmp_path: Path) -> None:
    place = tmp_path / "inventory"
    if content == "folder":
        place.mkdir()
    elif content == "text":
        place.write_text("name")
    elif content == "findings":
        pq.write_table(pa.table({"rule": ["crc-mismatch"]}), place)
    elif content == "types":
        pq.write_table(pa.table({name: [{"a": 1}] for name in ("file", "stamp", "zone_positions")}), place)
    with pytest.raises(KsegError, match=message):
        kseg.scan(SEGMENTS / "4.3.0-v2-none", inventory=place)


def test_a_view_of_whole_files_refuses_an_inventory(tmp_path: Path) -> None:
    folder = SEGMENTS / "4.3.0-v2-none"
    inventory = inventory_of(folder, tmp_path / "inventory.parquet")
    with pytest.raises(KsegError, match="inventory: view segments reads whole files"):
        kseg.scan(folder, "segments", inventory=inventory)


def test_a_segment_that_is_read_again_has_the_row_of_the_second_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker truncates a log while it is checked: the offsets and zones are those of the verdict."""
    log = tmp_path / "orders-0" / f"{0:020}.log"
    log.parent.mkdir()
    log.touch()
    first, second = (
        b"".join(build_batch([PlainRecord(n, None, b"v", BEGIN + n)]) for n in range(count)) for count in (40, 7)
    )

    def twice(*given: Any) -> Any:
        for data in (first, second):
            log.write_bytes(data)
            result = validate_segment(*given)
        return result

    monkeypatch.setattr(whole_files, "validate_segment", twice)
    (row,) = pa.RecordBatchReader.from_stream(kseg.scan(log.parent, "segments")).read_all().to_pylist()
    assert (row["records"], row["last_offset"], row["max_timestamp_ms"]) == (7, 6, BEGIN + 6)
