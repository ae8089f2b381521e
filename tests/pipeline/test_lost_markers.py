"""A load of committed records beside damage: no record of an aborted transaction, and none is left out without a word."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed")

from kseg.format.writer.records_builder import PlainRecord, build_batch
from tests.support.damage import entries, flip, get
from tests.support.pipelines import config, rows, run_here, statuses
from tests.support.transactional_logs import RandomLog, write_log

pytestmark = pytest.mark.slow


def damage(folder: Path, chance: random.Random, share: float, parity: int | None = None) -> None:
    """Damage about this share of the batches; with ``parity`` only those with even, or odd, first offsets."""
    for path in sorted(folder.glob("*.log")):
        data = path.read_bytes()
        for place in entries(data):
            mine = parity is None or get(data, place.at, "base_offset") % 2 == parity
            if mine and chance.random() < share:
                data = flip(data, place.end - 1)
        path.write_bytes(data)


def divide(folder: Path, chance: random.Random) -> None:
    """Divide a log into other segments, as a broker has them that rolled at other times."""
    paths = sorted(folder.glob("*.log"))
    data = b"".join(path.read_bytes() for path in paths)
    for path in paths:
        path.unlink()
    name = paths[0].name
    for place in entries(data):
        if chance.random() < 0.1:
            name = f"{get(data, place.at, 'base_offset'):020}.log"
        with (folder / name).open("ab") as out:
            out.write(data[place.at : place.end])


def loaded(home: Path, log: RandomLog, gaps: str = "continue") -> list[int]:
    """Load a source, and return the offsets in the table. Each that is left out before its end is in the report.

    The previews have the statuses of the next run, and exit with 2 if it does.
    """
    path = config(home, more=f'gaps = "{gaps}"')
    outcome = run_here(path)
    shown = [statuses(path, action) for action in ("status", "plan", "run")]
    assert len({(code == 2, *found) for code, found in shown}) == 1, shown
    got = [row[1] for row in rows(home, "parquet")] if any((home / "lake").rglob("*.parquet")) else []
    ended = {one.offset for one in log.records if one.state in (None, "committed") and not one.control}
    assert not set(got) - ended, "records of aborted or open transactions"
    (partition,) = outcome.partitions
    told = [range(row["offset"], row["last_offset"] + 1) for row in outcome.damage if row["offset"] is not None]
    missing = {offset for offset in log.committed if offset < partition.end_offset} - set(got)
    assert [offset for offset in missing if not any(offset in one for one in told)] == []
    return got


@pytest.mark.parametrize("seed", range(40))
def test_lost_markers_load_no_aborted_record(seed: int, tmp_path: Path) -> None:
    """The next marker of a producer is not that of its earlier transactions, if theirs can be among lost bytes."""
    chance = random.Random(seed)
    folder = tmp_path / "source" / "orders-0"
    log = write_log(folder, chance)
    damage(folder, chance, 0.1)
    loaded(tmp_path, log)


@pytest.mark.parametrize("seed", range(40, 60))
def test_replicas_with_damage_in_other_places_lose_no_record(seed: int, tmp_path: Path) -> None:
    """What one has lost, the other one has: also the markers."""
    chance = random.Random(seed)
    folder = tmp_path / "source" / "one" / "orders-0"
    log = write_log(folder, chance)
    shutil.copytree(folder, tmp_path / "source" / "two" / "orders-0")
    divide(tmp_path / "source" / "two" / "orders-0", chance)
    for parity, name in enumerate(("one", "two")):
        damage(tmp_path / "source" / name / "orders-0", chance, 0.2, parity)
    got = loaded(tmp_path, log)
    assert got == log.committed or log.compacted  # where offsets are missing anyway, a damaged batch can have had them


@pytest.mark.parametrize("seed", range(60, 90))
def test_nothing_after_a_missing_segment_is_loaded(seed: int, tmp_path: Path) -> None:
    """Wherever damage is, too: the segment can come later, and its records would be lost for the table."""
    chance = random.Random(seed)
    folder = tmp_path / "source" / "orders-0"
    log = write_log(folder, chance)
    divide(folder, chance)
    damage(folder, chance, 0.1)
    paths = sorted(folder.glob("*.log"))
    if log.compacted or len(paths) < 3:
        pytest.skip("a log cleaner may have removed the offsets, or no segment can be missing")
    missing = chance.choice(paths[1:-1])
    missing.unlink()
    assert max(loaded(tmp_path, log, "stop"), default=-1) < int(missing.stem)


def test_what_a_log_cleaner_has_removed_is_not_missing(tmp_path: Path) -> None:
    """Its checkpoint shows it where no batch does."""
    folder = tmp_path / "source" / "orders-0"
    folder.mkdir(parents=True)
    for base, offsets in ((0, (0, 1, 2)), (5, (5, 6))):
        data = b"".join(build_batch([PlainRecord(offset, b"key", b"value")]) for offset in offsets)
        (folder / f"{base:020}.log").write_bytes(data)
    path = config(tmp_path)
    assert run_here(path).code == 2
    (tmp_path / "source" / "cleaner-offset-checkpoint").write_text("0\n1\norders 0 5\n")
    assert run_here(path).code == 0
    assert [row[1] for row in rows(tmp_path, "parquet")] == [0, 1, 2, 5, 6]


def test_a_damaged_end_explains_no_more_than_its_headers_say(tmp_path: Path) -> None:
    """Its last batch says that it ends at offset 4: what follows up to the next segment is missing."""
    folder = tmp_path / "source" / "orders-0"
    folder.mkdir(parents=True)
    for offsets in (range(5), range(1000, 1002)):
        data = b"".join(build_batch([PlainRecord(offset, None, b"value")]) for offset in offsets)
        (folder / f"{offsets[0]:020}.log").write_bytes(flip(data, len(data) - 1) if not offsets[0] else data)
    outcome = run_here(config(tmp_path))
    assert outcome.code == 2
    assert "offsets 5..999: in no segment" in outcome.failures[0]
