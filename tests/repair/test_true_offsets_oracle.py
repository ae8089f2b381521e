"""Repair writes no record at a wrong offset, for random damage to base offsets and to the order of batches.

Unlike the logs of ``lost_batches``, these have timestamps out of order, gaps together with producers, and batches next to
bytes that are not batches. Each value names the true offset of its record.
"""

from __future__ import annotations

import random
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from kseg.commands.repair.repair import repair
from kseg.commands.repair.repair_losses import LostRange
from kseg.commands.repair.repaired_segment import RepairPlan
from kseg.format.writer.records_builder import PlainRecord, build_batch, build_message, build_wrapper
from tests.support.fuzzing import cases
from tests.support.lost_batches import Parts, records_of

NAME = f"{0:020}.log"
TIME = 1_600_000_000_000


@dataclass(slots=True)
class _Log:
    """A log to damage. ``parts`` are its batches and other bytes, ``records`` those of each batch by its body.

    ``overwritten`` are the bodies of the batches whose base offset field was written.
    """

    kind: str
    parts: Parts
    records: dict[bytes, list[tuple[int, bytes | None]]]
    overwritten: set[bytes] = field(default_factory=set)

    @property
    def truth(self) -> set[tuple[int, bytes | None]]:
        return {one for records in self.records.values() for one in records}


def _times(dice: random.Random, order: str, offset: int) -> int:
    jitter = {"rising": 0, "jittered": dice.randint(-30, 30), "random": dice.randrange(10_000)}
    return TIME + (0 if order == "random" else 10 * offset) + jitter[order]


def _log(dice: random.Random) -> _Log:
    magic, order = dice.choice([0, 1, 2, 2, 2]), dice.choice(["rising", "jittered", "jittered", "random"])
    gaps, most = dice.choice(["dense", "dense", "small", "large"]), dice.choice([1, 1, 2, 3, 5])
    producers = dice.choice([0, 1, 1, 3]) if magic == 2 else 0
    codec = dice.choice(["none", "lz4"])
    parts: Parts = []
    batches: dict[bytes, list[tuple[int, bytes | None]]] = {}
    offset, sequences = 0, [0] * producers
    for _ in range(dice.randint(5, 14)):
        if gaps != "dense" and parts and dice.random() < 0.5:
            offset += dice.choice([1, 2, 3, 6, 9]) if gaps == "small" else dice.choice([1, 5, 100, 3000, 70_000])
        count = dice.randint(1, most)
        records = [
            PlainRecord(offset + n, b"%d" % (offset + n), b"v", _times(dice, order, offset + n) if magic else -1)
            for n in range(count)
        ]
        which = dice.randrange(producers) if producers and dice.random() < 0.9 else -1
        if magic < 2 and codec == "none":
            made = [(build_message(one, magic=magic), [one]) for one in records]
        elif magic < 2:
            made = [(build_wrapper(records, magic=magic, compression=codec), records)]
        elif which < 0:
            made = [(build_batch(records), records)]
        else:
            ids: dict[str, Any] = {"producer_id": which + 7, "producer_epoch": 0, "base_sequence": sequences[which]}
            made = [(build_batch(records, **ids), records)]
            sequences[which] += count
        parts += [batch for batch, _ in made]
        batches |= {batch[8:]: [(one.offset, one.key) for one in held] for batch, held in made}
        offset += count
    return _Log(f"v{magic} {codec} {order} {gaps} {most} records {producers} producers", parts, batches)


def _store(log: _Log, n: int, offset: int) -> None:
    log.parts[n] = offset.to_bytes(8) + log.parts[n][8:]
    log.overwritten.add(log.parts[n][8:])


def _damage(log: _Log, dice: random.Random) -> str:
    """Do one damage to a log and return its name. Each batch stays in it as a whole but its base offset."""
    parts = log.parts
    n = dice.choice([at for at, part in enumerate(parts) if part[8:] in log.records])
    what = dice.choice(["swap", "swap", "exchange", "move", "overwrite", "flip", "flip", "garbage", "both", "both"])
    if what == "swap":
        first = dice.randrange(len(parts) - 1)
        parts[first], parts[first + 1] = parts[first + 1], parts[first]
    elif what == "exchange":
        other = dice.randrange(len(parts))
        parts[n], parts[other] = parts[other], parts[n]
    elif what == "move":
        parts.insert(dice.randrange(len(parts)), parts.pop(n))
    elif what == "flip":
        stored = int.from_bytes(parts[n][:8])
        _store(log, n, stored ^ 1 << dice.choice([dice.randrange(5), dice.randrange(20), dice.randrange(63)]))
    if what in ("overwrite", "both"):
        # A v0 or v1 wrapper at offset 0 would begin before it.
        zero = 0 if parts[n][16] == 2 else 1 << 20
        _store(log, n, dice.choice([dice.randrange(1 << 64), dice.randrange(1 << 17), zero]))
    if what in ("garbage", "both"):
        parts.insert(n, dice.randbytes(dice.choice([1, 7, 61, 300])))
    return what


def _problems(seed: int, folder: Path) -> list[str]:
    dice = random.Random(seed)
    log = _log(dice)
    whats = [_damage(log, dice) for _ in range(dice.choice([1, 1, 1, 2]))]
    source, target = folder / "in" / NAME, folder / "out" / NAME
    for path in (source, target):
        shutil.rmtree(path.parent, ignore_errors=True)
        path.parent.mkdir()
    source.write_bytes(b"".join(log.parts))
    rows: list[LostRange] = []
    result = repair(str(source), str(target), RepairPlan(), rows.append)
    found = records_of(target) if target.exists() else set()
    # Nothing shows that an overwritten offset is wrong if it fits: its batch stays, and may cost the one it contradicts.
    stored = _kept_as_stored(log)
    # An overwritten offset can be that of another batch, which then looks like the wrong one.
    forged = {offset for offset, _ in stored}
    true = {key: offset for offset, key in log.truth}
    wrong = {(offset, key) for offset, key in found - log.truth - stored if true[key] not in forged}
    problems = [f"wrong offsets: {sorted(wrong)}"] if wrong else []
    if not (result.lost or result.missing) and not log.overwritten and found != log.truth:
        problems.append(f"no loss reported of {sorted(log.truth - found)}")
    return [f"seed {seed} ({log.kind}; {', '.join(whats)}): {what}" for what in problems]


def _kept_as_stored(log: _Log) -> set[tuple[int, bytes | None]]:
    """Return the records of the batches with an overwritten base offset, with the offsets they have in the damaged file."""
    stored = set()
    for part in log.parts:
        if part[8:] in log.overwritten:
            records = log.records[part[8:]]
            begin = int.from_bytes(part[:8]) - (records[-1][0] - records[0][0] if part[16] < 2 else 0)
            stored |= {(begin + offset - records[0][0], key) for offset, key in records}
    return stored


@pytest.mark.slow
@pytest.mark.fuzz
def test_no_record_gets_a_wrong_offset(tmp_path: Path) -> None:
    """A batch that repair moves or corrects has its true offset, and a loss is reported."""
    assert [problem for seed in range(cases(400)) for problem in _problems(seed, tmp_path)] == []


@pytest.mark.parametrize("sequenced", [False, True])
@pytest.mark.parametrize("first", range(1, 5))
def test_swapped_batches_with_late_timestamps_go_back(first: int, sequenced: bool, tmp_path: Path) -> None:
    """The timestamps rise in the wrong order of the file: the order is wrong, and the offsets are right."""
    times = [TIME + 10 * n for n in range(8)]
    times[first], times[first + 1] = times[first + 1], times[first]
    ids: list[dict[str, Any]] = [
        {"producer_id": 5, "producer_epoch": 0, "base_sequence": n} if sequenced else {} for n in range(8)
    ]
    batches = [build_batch([PlainRecord(n, b"k", b"%d" % n, times[n])], **ids[n]) for n in range(8)]
    source = tmp_path / NAME
    source.write_bytes(b"".join([*batches[:first], batches[first + 1], batches[first], *batches[first + 2 :]]))
    repair(str(source), str(tmp_path / "out.log"), RepairPlan())
    assert (tmp_path / "out.log").read_bytes() == b"".join(batches)


def test_sequences_do_not_show_how_many_offsets_compaction_removed(tmp_path: Path) -> None:
    """A batch with an overwritten base offset next to lost bytes is left out of a log with gaps: sequences prove nothing."""
    firsts = [0, 3, 6, 12, 21, 24]
    batches = [
        build_batch(
            [PlainRecord(first + i, b"k", b"v", TIME + 10 * first + i) for i in range(3)],
            producer_id=7, producer_epoch=0, base_sequence=3 * n,
        )
        for n, first in enumerate(firsts)
    ]  # fmt: skip
    damaged = b"\x55" * 61 + bytes.fromhex("10119b7fc51987ed") + batches[3][8:]
    source = tmp_path / NAME
    source.write_bytes(b"".join([*batches[:3], damaged, *batches[4:]]))
    result = repair(str(source), str(tmp_path / "out.log"), RepairPlan())
    assert (tmp_path / "out.log").read_bytes() == b"".join(batches[:3] + batches[4:])
    assert result.lost
