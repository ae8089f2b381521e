"""The commands of `kseg doctor` and repairs leave out no readable record without naming it, for faults with a right CRC.

A faulty writer made them: messages with a wrong CRC in a set, an incomplete message, and wrong offsets and counts. The value
of a record is its true offset.
"""

from __future__ import annotations

import json
import random
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

import kseg
from kseg.errors import KsegError
from kseg.format.writer.records_builder import PlainRecord, build_batch, build_message, build_wrapper
from tests.support import damage
from tests.support.cli import invoke
from tests.support.fuzzing import cases
from tests.support.records import NOW

pytestmark = pytest.mark.slow

Dice = random.Random


def _batch(dice: Dice, magic: int, first: int, last: int, *, compacted: bool) -> bytes:
    """Return a batch of the offsets ``first`` to ``last``, some of which compaction has removed."""
    offsets = [*range(first, last + 1)]
    if compacted:
        offsets = sorted(dice.sample(offsets, dice.randint(1, len(offsets))))
    records = [PlainRecord(one, b"k", b"%d" % one, NOW + one if magic else -1) for one in offsets]
    codec = dice.choice(["none", "gzip", "lz4"]) if magic == 2 else dice.choice(["none", "gzip", "gzip", "snappy"])
    if magic == 2:
        return build_batch(records, base_offset=first, last_offset=last, compression=codec, partition_leader_epoch=0)
    if codec == "none":
        return b"".join(build_message(one, magic=magic) for one in records)
    return build_wrapper(records, magic=magic, compression=codec)


def _messages(payload: bytes) -> list[bytes]:
    places = [*damage.entries(payload)]
    return [payload[one.at : one.end] for one in places]


def _of_set(dice: Dice, data: bytes, place: damage.Place) -> bytes:
    """Return the data with a fault in a v0 or v1 set."""
    messages = _messages(damage.inflated(data, place))
    n = dice.randrange(len(messages))
    match dice.choice(["crc", "cut", "added", "offset"]):
        case "crc":
            for one in {n, dice.randrange(len(messages))}:
                messages[one] = damage.put(messages[one], 0, crc=one)
        case "cut":
            messages[-1] = messages[-1][: dice.randrange(1, len(messages[-1]))]
        case "added":
            messages.append(messages[n][: dice.randrange(1, len(messages[n]))])
        case _:
            wrong = damage.get(messages[n], 0, "base_offset") + dice.choice([-3, -1, 1, 5])
            messages[n] = damage.put(messages[n], 0, base_offset=max(wrong, 0))
    return damage.with_inflated(data, place, b"".join(messages))


def _of_batch(dice: Dice, data: bytes, place: damage.Place) -> bytes:
    """Return the data with a wrong field in the header of a v2 batch, or with a wrong offset of a record."""
    field = dice.choice(["last_offset_delta", "last_offset_delta", "record_count", "record"])
    if field != "record":
        value = damage.get(data, place.at, field) + dice.choice([-2, -1, 1, 3, 12])
        return damage.alter(data, place.at, **{field: max(value, 0)})
    records = damage.records(damage.inflated(data, place))
    n = dice.randrange(len(records))
    changed = bytearray(records[n])
    changed[3] = 2 * dice.choice([0, 1, 2, 5, 9, 20])  # length, attributes, timestamp delta, offset delta: a byte each
    records[n] = bytes(changed)
    return damage.with_inflated(data, place, b"".join(records))


def _make(dice: Dice, folder: Path) -> None:
    """Write a partition of two segments, one to three batches of which have a fault."""
    magic = dice.choice([0, 1, 1, 2, 2])
    batches: list[bytes] = []
    offset, firsts = dice.choice([0, 0, 50]), list[int]()
    total = dice.randint(4, 9)
    middle = dice.randrange(1, total)
    for n in range(total):
        count = dice.choice([1, 2, 4, 8])
        firsts.append(offset)
        compacted = n < middle - 1 and dice.random() < 0.15  # never in the newest segment
        batches.append(_batch(dice, magic, offset, offset + count - 1, compacted=compacted))
        offset += count
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    faulty = dice.sample(range(len(batches)), dice.choice([1, 1, 2]))
    for n in faulty:
        place = damage.entries(batches[n])[0]
        if magic == 2:
            batches[n] = _of_batch(dice, batches[n], place)
        elif damage.get(batches[n], 0, "attributes") & 7:
            batches[n] = _of_set(dice, batches[n], place)
    for first, own in ((firsts[0], batches[:middle]), (firsts[middle], batches[middle:])):
        (folder / f"{first:020}.log").write_bytes(b"".join(own))


def _records(folder: Path) -> dict[bytes, int]:
    """Return the offsets of the records that can be read, by their values."""
    found: dict[bytes, int] = {}
    for path in sorted(folder.glob("*.log")):
        try:
            for one in kseg.open_segment(path).records():
                found.setdefault(one.value or b"", one.offset)
        except KsegError:
            continue
    return found


def _names(rows: list[dict[str, Any]], offset: int) -> bool:
    """Return whether a report of a repair names an offset as not in its result."""
    lost = [row for row in rows if row["kind"] in ("lost", "salvaged", "gap") and row["offset"] is not None]
    return any(
        row["offset"] <= offset <= (offset if row["last_offset"] is None else row["last_offset"]) for row in lost
    )


def _rows(*arguments: object) -> list[dict[str, Any]]:
    done = invoke(*arguments)
    assert done.exit_code in (0, 1), done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


def _problems(home: Path, before: dict[bytes, int], *options: str) -> tuple[list[str], bool]:
    """Return what is wrong after a repair, and whether it lost records that could be read."""
    target = home / "new" / "t-0"
    shutil.rmtree(target.parent, ignore_errors=True)
    target.parent.mkdir()
    rows = _rows("repair", "--format", "jsonl", *options, home / "logs" / "t-0", target)
    after = _records(target)
    gone = [(offset, int(value)) for value, offset in before.items() if value not in after]
    silent = [places for places in gone if not any(_names(rows, offset) for offset in places)]
    moved = [(value, at) for value, at in after.items() if at not in (before.get(value), int(value))]
    found = [f"{options}: {what}" for what in (silent and f"not named: {silent}", moved and f"moved: {moved}") if what]
    return found, bool(gone)


def problems(seed: int, home: Path) -> list[str]:
    dice = random.Random(seed)
    _make(dice, home / "logs" / "t-0")
    (home / "logs" / "t-0" / "partition.metadata").write_text("version: 0\ntopic_id: ask2xr5IR-quz-SAaQsi7w")
    before = _records(home / "logs" / "t-0")
    found = [one for options in ((), ("--salvage-records",)) for one in _problems(home, before, *options)[0]]
    rows = _rows("doctor", "--format", "jsonl", home / "logs")
    (loss,) = (row["text"] for row in rows if row["kind"] == "answer" and row["subject"] == "loss")
    for command in rows[-1]["commands"]:
        if command.startswith("kseg repair "):
            wrong, lost = _problems(home, before, *[word for word in shlex.split(command) if word.startswith("--")])
            found += wrong + ["doctor says no loss"] * (lost and "the repairs leave out" not in loss)
    return [f"{seed}: {one}" for one in found]


@pytest.mark.fuzz
def test_each_readable_record_is_kept_or_named(tmp_path: Path) -> None:
    """In the report of the repair, and in the answers of doctor if its commands lose it."""
    assert [one for seed in range(cases(25)) for one in problems(seed, tmp_path)] == []
