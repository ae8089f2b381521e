"""Offsets that a log lacked before its repair: repair calls those lost that validate does, with the same reasons."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from kseg.format.writer.records_builder import PlainRecord, build_batch, build_message, build_wrapper
from tests.support.cli import invoke
from tests.support.fuzzing import cases
from tests.support.records import NOW

#: A finding or a row: its rule, its offsets and its text.
Missing = tuple[str, int, int, str]


def _batch(first: int, count: int, *, key: bytes | None = b"k", magic: int = 2, without: int | None = None) -> bytes:
    offsets = [offset for offset in range(first, first + count) if offset != without]
    records = [PlainRecord(offset, key, b"v%d" % offset, NOW + offset) for offset in offsets]
    if magic < 2:
        return build_wrapper(records, magic=1, compression="gzip") if count > 1 else build_message(records[0], magic=1)
    return build_batch(records, base_offset=first, last_offset=first + count - 1, partition_leader_epoch=0)


def _by_validate(folder: Path) -> list[Missing]:
    rows = map(json.loads, invoke("validate", "--format", "jsonl", folder).stdout.splitlines())
    found = [row for row in rows if row["kind"] == "finding" and row["rule"] in ("missing-batches", "segment-gap")]
    return sorted((row["rule"], row["facts"]["first"], row["facts"]["last"], row["message"]) for row in found)


def _by_repair(folder: Path, *options: object) -> tuple[int, list[Missing]]:
    target = folder.parent.with_name(f"{folder.parent.name}-repaired")
    done = invoke("repair", "--format", "jsonl", *options, folder, *([] if options else [target]))
    rows = map(json.loads, done.stdout.splitlines())
    found = [row for row in rows if row["kind"] == "missing" and row["rule"] != "offset-gap"]
    return done.exit_code, sorted((row["rule"], row["offset"], row["last_offset"], row["why"]) for row in found)


def _check(folder: Path, *, lost: bool) -> None:
    """Compare validate and repair over a partition, and validate over the result."""
    expected = _by_validate(folder)
    assert bool(expected) == lost
    for options in ([], ["--dry-run"], ["--dry-run", "--indexes-only"]):
        assert _by_repair(folder, *options) == (int(lost), expected), options


def _write(folder: Path, *segments: tuple[int, list[bytes]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for base, batches in segments:
        (folder / f"{base:020}.log").write_bytes(b"".join(batches))


def _checkpoint(name: str, offset: int) -> Callable[[Path], object]:
    return lambda folder: (folder.parent / name).write_text(f"0\n1\nt 0 {offset}\n")


def _add(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).touch()


_HOLE = [_batch(0, 4), _batch(8, 4)]
_HOLE_AT_4 = [_batch(4, 4), _batch(12, 4)]
#: Segments, a change of the folder, and whether their missing offsets are lost.
PARTITIONS: dict[str, tuple[list[tuple[int, list[bytes]]], Callable[[Path], object] | None, bool]] = {
    "nothing indicates compaction": ([(0, _HOLE)], None, True),
    "a record without a key": ([(0, [_batch(0, 4, key=None), _batch(8, 4), _batch(16, 4)])], None, True),
    "two gaps": ([(0, [_batch(0, 4), _batch(8, 1), _batch(16, 4)])], None, False),
    "keys that are repeated between gaps": ([(0, [*_HOLE, _batch(16, 4)])], None, True),
    "fewer records than offsets": ([(0, [_batch(0, 4, without=2), _batch(8, 4)])], None, False),
    "the cleaner was there": ([(0, _HOLE)], _checkpoint("cleaner-offset-checkpoint", 9), False),
    "a cleaner is at work": ([(0, _HOLE)], _add("00000000000000000012.log.cleaned"), False),
    "a cleaner will replace it": ([(0, _HOLE)], _add("00000000000000000000.log.cleaned"), True),
    "a cleaner has replaced a segment": (
        [(0, _HOLE), (12, [_batch(12, 4)])],
        _add("00000000000000000000.log.deleted"),
        False,
    ),
    "a cleaner has replaced a segment before": (
        [(0, [_batch(0, 4)]), (4, _HOLE_AT_4), (16, [_batch(16, 4)])],
        _add("00000000000000000000.log.deleted"),
        True,
    ),
    "no cleaner replaces the newest segment": ([(0, _HOLE)], _add("00000000000000000000.log.deleted"), True),
    "a segment was deleted": ([(0, _HOLE)], _add("00000000000000000010.log.deleted"), True),
    "before the log start": ([(0, _HOLE)], _checkpoint("log-start-offset-checkpoint", 8), False),
    "between segments": ([(0, [_batch(0, 4)]), (8, [_batch(8, 4)])], None, True),
    "between compacted segments": ([(0, [_batch(0, 4, without=2)]), (8, [_batch(8, 4)])], None, False),
    "an index of a lost segment": (
        [(0, [_batch(0, 4)]), (8, [_batch(8, 4)])],
        _add("00000000000000000004.index"),
        True,
    ),
    "at the start of a segment": ([(0, [_batch(0, 4, key=None)]), (4, [_batch(8, 4)])], None, True),
    "message sets": ([(0, [_batch(0, 4, magic=1), _batch(8, 4, magic=1)])], None, True),
    "messages": ([(0, [_batch(0, 1, magic=1), _batch(8, 1, magic=1)])], None, True),
    "no hole": ([(0, [_batch(0, 4), _batch(4, 4)]), (8, [_batch(8, 4)])], None, False),
}


@pytest.mark.parametrize("name", PARTITIONS)
def test_repair_and_validate_agree_about_missing_offsets(name: str, tmp_path: Path) -> None:
    """Exit code 0 of a repair means that no record is missing, as far as the files show."""
    segments, change, lost = PARTITIONS[name]
    folder = tmp_path / "in" / "t-0"
    _write(folder, *segments)
    if change:
        change(folder)
    _check(folder, lost=lost)


@pytest.mark.slow
@pytest.mark.fuzz
def test_repair_and_validate_agree_about_random_holes(tmp_path: Path) -> None:
    """Whole batches and segments are missing in logs of all versions, with and without signs of compaction."""
    some = 0
    for case in range(cases(40)):
        random = Random(case)
        magic, key = random.choice((1, 2, 2)), random.choice((None, b"k", b"k"))
        segments: list[tuple[int, list[bytes]]] = []
        offset = 0
        for _ in range(random.randrange(1, 4)):
            base, batches = offset, list[bytes]()
            for _ in range(random.randrange(1, 6)):
                count = random.randrange(1, 4)
                without = offset + 1 if count > 2 and random.random() < 0.05 else None
                # A broker rolls to a segment that begins at its name: repair moves the first batch of the newest one there.
                if not batches or random.random() < 0.85:
                    batches.append(_batch(offset, count, key=key, magic=magic, without=without))
                offset += count
            segments.append((base, batches))
        folder = tmp_path / str(case) / "t-0"
        _write(folder, *segments)
        expected = _by_validate(folder)
        assert _by_repair(folder) == (int(bool(expected)), expected), case
        some += bool(expected)
    assert some > 5


def test_the_verdict_names_what_was_lost_before(tmp_path: Path) -> None:
    """It is not the damage that this repair removed, and it is not "no data lost"."""
    folder = tmp_path / "t-0"
    _write(folder, (0, _HOLE))
    done = invoke("repair", folder, tmp_path / "new")
    assert done.exit_code == 1
    assert done.stdout.startswith("offsets lost before this repair in 1 place; 0 batches corrected\n")
    assert "no data lost" not in done.stdout
