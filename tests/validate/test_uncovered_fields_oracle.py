"""One flipped bit in a field that no CRC covers: the offset of a batch, or its leader epoch.

All records are readable, so none is lost. The first finding names the damaged batch, and repair corrects that one.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kseg.commands.repair.repair import repair
from kseg.commands.repair.repair_losses import CorrectedBatch, LostRange
from kseg.commands.repair.repaired_segment import RepairPlan
from kseg.findings import Finding
from kseg.format.record.layout import PARTITION_LEADER_EPOCH_AT
from kseg.format.segment import several_processes
from kseg.format.writer.records_builder import PlainRecord, build_batch, build_message, build_wrapper
from kseg.library import validate
from kseg.results import Settings
from tests.support.cli import invoke
from tests.support.fuzzing import cases
from tests.support.records import NOW

CODECS = {
    0: ("none", "gzip", "snappy"),
    1: ("none", "gzip", "snappy", "lz4"),
    2: ("none", "gzip", "snappy", "lz4", "zstd"),
}
CLAIMS_OF_A_LOSS = {"missing-batches", "segment-gap", "offset-gap", "lost-bytes"}


@dataclass
class Log:
    """A partition of one or two segments, the base offsets of which are ``bases``. ``ends`` are those of the batches."""

    magic: int
    codec: str
    batches: list[bytes]
    ends: list[int]
    epochs: list[int]
    bases: list[int]

    def segments(self) -> dict[int, list[int]]:
        """Return the numbers of the batches of each segment, by its base offset."""
        firsts = [self.bases[0], *(end + 1 for end in self.ends)]
        return {
            base: [n for n in range(len(self.batches)) if max(one for one in self.bases if one <= firsts[n]) == base]
            for base in self.bases
        }

    def write(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        for base, numbers in self.segments().items():
            (folder / f"{base:020}.log").write_bytes(b"".join(self.batches[n] for n in numbers))
        if self.magic == 2:
            firsts = [self.bases[0], *(end + 1 for end in self.ends)]
            starts = {epoch: firsts[n] for n, epoch in reversed(list(enumerate(self.epochs)))}
            lines = [f"{epoch} {start}\n" for epoch, start in sorted(starts.items())]
            (folder / "leader-epoch-checkpoint").write_text(f"0\n{len(lines)}\n{''.join(lines)}")


def _log(dice: Random, magic: int) -> Log:
    codec, producer, key = dice.choice(CODECS[magic]), dice.random() < 0.5, dice.choice([None, b"k"])
    offset = begin = dice.choice([0, 0, 1, 7, 1000, 2**33 + 5])
    log = Log(magic, codec, [], [], [], [begin])
    epoch = dice.randint(0, 4)
    for n in range(dice.randint(5, 9)):
        count = 1 if magic < 2 and codec == "none" else dice.randint(1, 6)
        records = [
            PlainRecord(n, key, b"v%d" % n, NOW + n - begin if magic else -1) for n in range(offset, offset + count)
        ]
        epoch += dice.choice([1, 1, 2, 5]) if dice.random() < 0.2 else 0
        if magic == 2:
            sequence = {"producer_id": 7, "producer_epoch": 0, "base_sequence": offset - begin} if producer else {}
            ids: dict[str, Any] = {"partition_leader_epoch": epoch, "compression": codec, **sequence}
            log.batches.append(build_batch(records, **ids))
        elif codec == "none":
            log.batches.append(build_message(records[0], magic=magic))
        else:
            log.batches.append(build_wrapper(records, magic=magic, compression=codec))
        offset += count
        log.ends.append(offset - 1)
        log.epochs.append(epoch)
        if n == 2 and dice.random() < 0.4:
            log.bases.append(offset)
    return log


def _flipped(batch: bytes, begin: int, size: int, bit: int) -> bytes:
    field = int.from_bytes(batch[begin : begin + size]) ^ 1 << bit
    return batch[:begin] + field.to_bytes(size) + batch[begin + size :]


def _flip(log: Log, dice: Random) -> int | None:
    """Flip a bit of a batch that is neither the first nor the last of its segment; return its number.

    None if the flipped value contradicts nothing: an epoch between those around it, or the offset after the log's end,
    where repair looks for a batch that was moved.
    """
    numbers = dice.choice([numbers for numbers in log.segments().values() if len(numbers) > 2])
    n = dice.choice(numbers[1:-1])
    epoch = log.magic == 2 and dice.random() < 0.5
    bit = dice.randrange(32 if epoch else 64) if dice.random() < 0.5 else dice.randrange(10)
    begin, size = (PARTITION_LEADER_EPOCH_AT, 4) if epoch else (0, 8)
    log.batches[n] = _flipped(log.batches[n], begin, size, bit)
    stored = int.from_bytes(log.batches[n][begin : begin + size], signed=True)
    if epoch:
        return None if log.epochs[n - 1] <= stored <= log.epochs[n + 1] else n
    first = stored if log.magic == 2 else stored - (log.ends[n] - log.ends[n - 1] - 1)
    return None if first == log.ends[-1] + 1 else n


def _findings(folder: Path, *, deep: bool = True, jobs: int = 1) -> list[tuple[str, Finding]]:
    """Return the findings with the names of their files, those about damage."""
    report = validate(folder, jobs=jobs, settings=Settings(deep=deep))
    found = [(Path(one.file).name, one.finding) for result in report.files for one in result.verdicts]
    return [one for one in found if one[1].rule != "no-indexes"]


def _problems(seed: int, magic: int, folder: Path) -> list[str]:
    dice = Random(seed)
    log = _log(dice, magic)
    sound = list(log.batches)
    n = _flip(log, dice)
    if n is None:
        return []
    log.write(folder / "t-0")
    base, numbers = next(one for one in log.segments().items() if n in one[1])
    place = f"{base:020}.log", sum(len(log.batches[m]) for m in numbers if m < n)
    found, shallow = _findings(folder / "t-0"), _findings(folder / "t-0", deep=False)
    problems = [] if {(name, one.position) for name, one in found} == {place} else [f"{found} instead of {place}"]
    problems += [f"lost: {one}" for _, one in found if one.rule in CLAIMS_OF_A_LOSS]
    problems += [f"shallow: {one}" for _, one in shallow if one.rule in CLAIMS_OF_A_LOSS - {"offset-gap"}]
    lines: list[LostRange] = []
    repair(str(folder / "t-0"), str(folder / "out"), RepairPlan(), report=lines.append)
    if [(type(one), Path(one.file).name, one.position) for one in lines] != [(CorrectedBatch, *place)]:
        problems.append(f"repair: {lines}")
    log.batches = sound
    if any(
        (folder / "out" / f"{base:020}.log").read_bytes() != b"".join(sound[m] for m in numbers)
        for base, numbers in log.segments().items()
    ):
        problems.append("the result is another log")
    return [f"seed {seed}, v{magic} {log.codec}, batch {n}: {problem}" for problem in problems]


@pytest.mark.slow
@pytest.mark.fuzz
@pytest.mark.parametrize("magic", CODECS)
def test_the_damaged_batch_is_named_and_no_record_is_called_lost(magic: int, tmp_path: Path) -> None:
    """Also without decoding, when a message set does not show its first offset, nothing claims a loss."""
    assert [one for seed in range(cases(40)) for one in _problems(seed, magic, tmp_path / str(seed))] == []


@pytest.mark.slow
@pytest.mark.parametrize("magic", CODECS)
def test_several_processes_name_the_same_batch(magic: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The damaged batch can be the first or the last of a range of the file, whose other neighbour is in the next one."""
    monkeypatch.setattr(several_processes, "RANGE_SIZE", 150)
    monkeypatch.setattr(several_processes, "SEARCH_REACH", 4_000)
    monkeypatch.setattr(several_processes, "BEGIN_ALONE", False)
    for seed in range(12):
        log = _log(Random(seed), magic)
        if _flip(log, Random(seed)) is not None:
            log.write(tmp_path / str(seed) / "t-0")
            assert _findings(tmp_path / str(seed) / "t-0", jobs=2) == _findings(tmp_path / str(seed) / "t-0"), seed


def _sets(magic: int, *counts: int) -> list[bytes]:
    """Return message sets in gzip with so many messages."""
    firsts = [sum(counts[:n]) for n in range(len(counts))]
    return [
        build_wrapper(
            [PlainRecord(first + i, b"k", b"v", NOW if magic else -1) for i in range(count)],
            magic=magic,
            compression="gzip",
        )
        for first, count in zip(firsts, counts, strict=True)
    ]


@pytest.mark.parametrize("bit", [0, 8, 40])
def test_the_offset_of_a_message_set_is_its_last_one(bit: int, tmp_path: Path) -> None:
    """The batches around a set show its first offset, and its messages how many follow: repair says the same."""
    sets = _sets(1, 2, 3, 2)
    sets[1] = _flipped(sets[1], 0, 8, bit)
    log = tmp_path / "t-0" / f"{0:020}.log"
    log.parent.mkdir()
    log.write_bytes(b"".join(sets))
    ((name, found),) = _findings(log.parent)
    assert (name, found.position, found.offset, found.last_offset) == (log.name, len(sets[0]), 2, 4)
    fits = "prove that its" if bit == 40 else "fit"
    claim = f"offset {4 ^ 1 << bit} after offset 1: the header claims it, but the batches around it"
    assert found.message == f"{claim} {fits} last offset {'is 4' if bit == 40 else '4'}"
    assert f"{claim} prove that its last offset is 4" in invoke("repair", "--dry-run", log.parent).stdout
    assert "loses records" not in invoke("doctor", log.parent).stdout


@pytest.mark.parametrize("magic", [0, 1])
def test_an_offset_out_of_reach_of_the_segment_is_named_without_a_field_of_v2(magic: int, tmp_path: Path) -> None:
    """v0 and v1 have no last offset delta."""
    sets = _sets(magic, 2, 3, 2)
    log = tmp_path / f"{0:020}.log"
    log.write_bytes(sets[0] + _flipped(sets[1], 0, 8, 40) + sets[2])
    ((_, found),) = _findings(log, deep=False)
    assert found.message == f"the header claims offset {4 + 2**40}, but its segment ends before {2**31 + 1}"


@pytest.mark.parametrize("stored", [True, False])
def test_the_last_leader_epoch_of_a_segment_is_compared_with_the_next_segment(stored: bool, tmp_path: Path) -> None:
    """With the checkpoint or two later batches, as repair decides: the sound batches and the checkpoint are not named."""
    batches = [build_batch([PlainRecord(n, b"k", b"v", NOW)], partition_leader_epoch=3) for n in range(4)]
    log = Log(2, "none", batches, [0, 1, 2, 3], [3] * 4, [0, 2])
    batches[1] = _flipped(batches[1], PARTITION_LEADER_EPOCH_AT, 4, 8)
    log.write(tmp_path / "t-0")
    if not stored:
        (tmp_path / "t-0" / "leader-epoch-checkpoint").unlink()
    ((name, found),) = _findings(tmp_path / "t-0")
    assert (name, found.rule, found.position) == (f"{0:020}.log", "leader-epoch-regression", len(batches[0]))
    assert found.message == "leader epoch 259 is above the next epoch 3; without it, the epochs do not decrease"
    assert "leader epoch 259 is now 3" in invoke("repair", "--dry-run", tmp_path / "t-0").stdout


def test_the_checkpoint_decides_which_of_two_leader_epochs_is_wrong(tmp_path: Path) -> None:
    """A single batch of a new epoch before a damaged one is right if the checkpoint has its epoch."""
    epochs = [3, 5, 5, 5]
    batches = [build_batch([PlainRecord(n, b"k", b"v", NOW)], partition_leader_epoch=e) for n, e in enumerate(epochs)]
    batches[2] = _flipped(batches[2], PARTITION_LEADER_EPOCH_AT, 4, 0)
    Log(2, "none", batches, [0, 1, 2, 3], epochs, [0]).write(tmp_path / "t-0")
    ((_, found),) = _findings(tmp_path / "t-0")
    assert found.position == 2 * len(batches[0])
    assert "leader epoch 4 is now 5" in invoke("repair", "--dry-run", tmp_path / "t-0").stdout
