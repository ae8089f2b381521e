"""Repair randomly damaged partition folders: logs and side files, one folder for each seed."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from kseg.commands.repair.repair import repair
from kseg.commands.repair.repair_losses import LostRange
from kseg.commands.repair.repaired_segment import RepairPlan
from kseg.commands.validate.validate_ranges import validate_files
from kseg.errors import KsegError
from kseg.findings import Severity
from kseg.format.storage.segment_files import find_segments
from kseg.results import Settings
from tests.support.damage import entries
from tests.support.damaged_logs import SEGMENTS, DamagedLog, cut, flip_bit, insert, overwrite, truncate, zero
from tests.support.fuzzing import cases

#: Segments 0, 24, 48, 72, 96 and 120, of three batches each but the last, which has one.
PARTITION = SEGMENTS / "4.3.0-v2-none-segments"
CHUNKS = 4
#: Damage that leaves each batch in its place. Moved batches are the subject of the oracle of single segments.
IN_PLACE = (flip_bit, zero, overwrite, cut, insert, truncate)


def batches(data: bytes) -> set[bytes]:
    return {data[place.at : place.end] for place in entries(data)}


def offsets(batch: bytes) -> set[int]:
    first = int.from_bytes(batch[:8])
    return set(range(first, first + int.from_bytes(batch[23:27]) + 1))


def damage_folder(folder: Path, dice: random.Random) -> set[bytes]:
    """Damage one or two logs and some side files; return the batches that stay whole and in their place."""
    logs = {path: DamagedLog(path.read_bytes(), path.name) for path in sorted(folder.glob("*.log"))}
    for path in dice.sample(sorted(logs), dice.choice([1, 1, 2])):
        dice.choice(IN_PLACE)(logs[path], dice)
        path.write_bytes(logs[path].data)
    for path in sorted(folder.glob("*index")):
        if dice.random() < 0.2:
            path.write_bytes(dice.randbytes(dice.randrange(200)))
        elif dice.random() < 0.2:
            path.unlink()
    return {log.batches[index] for log in logs.values() for index in log.certain()}


def run(seed: int, folder: Path) -> list[str]:
    """One case; returns what is wrong with the result."""
    dice = random.Random(seed)
    source, target = folder / "in" / "t-0", folder / "out" / "t-0"
    for path in (source, target):
        shutil.rmtree(path.parent, ignore_errors=True)
    shutil.copytree(PARTITION, source, ignore=shutil.ignore_patterns("ORIGIN", "expect.jsonl"))
    target.parent.mkdir()
    originals = {batch for path in source.glob("*.log") for batch in batches(path.read_bytes())}
    certain = damage_folder(source, dice)
    reported: list[LostRange] = []
    try:
        repair(str(source), str(target), RepairPlan(), reported.append)
    except KsegError as error:
        return [f"seed {seed}: not repaired: {error}"]
    kept = {batch for path in target.glob("*.log") for batch in batches(path.read_bytes())}
    wrong = [f"not kept: offset {min(offsets(batch))}" for batch in certain - kept]
    wrong += [f"invented: offset {min(offsets(batch))}" for batch in kept - originals]
    wrong += _wrong_losses(originals, kept, reported)
    for result in validate_files(find_segments(str(target)), Settings(), 1):
        wrong += [f"{one.rule.name} in the result" for one in result.verdicts if one.severity >= Severity.ERROR]
    return [f"seed {seed}: {what}" for what in wrong]


def _wrong_losses(originals: set[bytes], kept: set[bytes], reported: list[LostRange]) -> list[str]:
    """Compare the offsets that are listed as lost with those that are lost."""
    there = {offset for batch in kept for offset in offsets(batch)}
    lost = {offset for batch in originals for offset in offsets(batch)} - there
    listed: set[int] = set()
    for one in reported:
        if one.kind in ("lost", "missing") and one.offset is not None and one.last_offset is not None:
            listed |= set(range(one.offset, one.last_offset + 1))
    wrong = [f"listed as lost, but kept: {sorted(listed & there)}"] if listed & there else []
    # Of the last batches of the log no other batch shows how many there were.
    unlisted = {offset for offset in lost - listed if offset < max(there, default=0)}
    return wrong + ([f"lost, but not listed: {sorted(unlisted)}"] if unlisted else [])


@pytest.mark.slow
@pytest.mark.fuzz
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_repair_of_damaged_folders(chunk: int, tmp_path: Path) -> None:
    """Each whole batch of a partition is kept, none is invented, and the listed lost offsets are the real ones."""
    count = max(1, cases(80) // CHUNKS)
    wrong = [what for seed in range(chunk * count, (chunk + 1) * count) for what in run(seed, tmp_path)]
    assert wrong == []
