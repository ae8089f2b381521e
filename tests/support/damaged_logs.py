"""Random damage to segments, with a record of which batches are complete and where, for the oracles of repair."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kseg.format.writer.records_builder import PlainRecord, build_batch, build_message, build_wrapper
from tests.support import damage

SEGMENTS = Path(__file__).parents[2] / "fixtures" / "segments"
LARGEST = 4096


@dataclass(frozen=True, slots=True)
class Whole:
    """A complete batch of the original at ``data[begin:end]``. ``copy`` is set for a second copy that damage made."""

    index: int
    begin: int
    end: int
    copy: bool = False


class DamagedLog:
    """A segment to damage. ``wholes`` lists its complete batches, also those that damage moved or copied."""

    def __init__(self, data: bytes, name: str) -> None:
        self.original = self.data = data
        self.name = name
        self.history: list[str] = []
        self.batches = [data[place.at : place.end] for place in damage.entries(data)]
        places = enumerate(damage.entries(data))
        self.wholes = [Whole(index, place.at, place.end) for index, place in places]

    def splice(self, begin: int, end: int, piece: bytes, carried: tuple[Whole, ...] = ()) -> None:
        """Replace ``data[begin:end]``; ``carried`` are the complete batches in ``piece``, with positions in it."""
        shift = len(piece) - (end - begin)
        self.data = self.data[:begin] + piece + self.data[end:]
        kept = []
        for whole in self.wholes:
            if whole.end <= begin:
                kept.append(whole)
            elif whole.begin >= end:
                kept.append(Whole(whole.index, whole.begin + shift, whole.end + shift, whole.copy))
            elif not shift and self.data[whole.begin : whole.end] == self.batches[whole.index]:
                kept.append(whole)  # overwritten with the same bytes
        kept += [Whole(one.index, one.begin + begin, one.end + begin, one.copy) for one in carried]
        self.wholes = sorted(set(kept), key=lambda whole: whole.begin)

    def within(self, begin: int, end: int, *, copy: bool) -> tuple[Whole, ...]:
        """Return the complete batches in ``data[begin:end]``, with positions relative to ``begin``."""
        return tuple(
            Whole(one.index, one.begin - begin, one.end - begin, copy or one.copy)
            for one in self.wholes
            if begin <= one.begin and one.end <= end
        )

    def certain(self) -> set[int]:
        """Return the complete batches that contradict no other one: each of them must be kept."""
        certain = set()
        highest = -1
        lowest = [len(self.batches)] * (len(self.wholes) + 1)
        for n in range(len(self.wholes) - 1, -1, -1):
            lowest[n] = min(lowest[n + 1], self.wholes[n].index)
        for n, whole in enumerate(self.wholes):
            if highest < whole.index < lowest[n + 1] and not self._borrowed(whole):
                certain.add(whole.index)
            highest = max(highest, whole.index)
        return certain

    def _borrowed(self, whole: Whole) -> bool:
        """Return whether the batch before lost its end, and is complete again with the first bytes of this one."""
        before = self.batches[whole.index - 1] if whole.index else b""
        if any(one.index == whole.index - 1 for one in self.wholes) or not before:
            return False
        return any(self.data.endswith(before, 0, whole.begin + shared) for shared in range(1, 9))

    def most(self) -> int:
        """Return how many complete batches can be kept at least: the longest ascending subsequence of their indexes.

        Copies don't count, nor do runs of batches that contradict others and that other bytes than a batch follow:
        these could be part of a value in a damaged batch.
        """
        certain = self.certain()
        runs: list[list[Whole]] = []
        for whole in self.wholes:
            if not runs or runs[-1][-1].end != whole.begin:
                runs.append([])
            runs[-1].append(whole)
        ends: list[int] = []
        for run in runs:
            if run[-1].end == len(self.data) or all(whole.index in certain for whole in run):
                for whole in run:
                    if not whole.copy:
                        at = bisect_left(ends, whole.index)
                        ends[at : at + 1] = [whole.index]
        return len(ends)


def _length(dice: random.Random, limit: int) -> int:
    return min(limit, int(2 ** dice.uniform(0, 12)))


def _range(log: DamagedLog, dice: random.Random) -> tuple[int, int]:
    begin = dice.randrange(len(log.data))
    return begin, min(len(log.data), begin + _length(dice, LARGEST))


def _boundary(log: DamagedLog, dice: random.Random) -> int:
    return dice.choice([0, *(whole.end for whole in log.wholes)])


def _group(log: DamagedLog, dice: random.Random) -> tuple[int, int]:
    """Return some adjacent complete batches, as a range of bytes."""
    first = dice.randrange(len(log.wholes))
    last = min(len(log.wholes) - 1, first + int(2 ** dice.uniform(0, 5)) - 1)
    while last > first and any(log.wholes[n].end != log.wholes[n + 1].begin for n in range(first, last)):
        last -= 1
    return log.wholes[first].begin, log.wholes[last].end


def flip_bit(log: DamagedLog, dice: random.Random) -> None:
    at = dice.randrange(len(log.data))
    log.splice(at, at + 1, bytes([log.data[at] ^ 1 << dice.randrange(8)]))


def flip_header_bit(log: DamagedLog, dice: random.Random) -> None:
    """Flip one bit of a batch's first 61 bytes, of which some are outside the CRC."""
    if not log.wholes:
        return
    whole = dice.choice(log.wholes)
    at = min(whole.begin + dice.choice([dice.randrange(8), dice.randrange(17), dice.randrange(61)]), whole.end - 1)
    log.splice(at, at + 1, bytes([log.data[at] ^ 1 << dice.randrange(8)]))


def zero(log: DamagedLog, dice: random.Random) -> None:
    begin, end = _range(log, dice)
    log.splice(begin, end, bytes(end - begin))


def overwrite(log: DamagedLog, dice: random.Random) -> None:
    begin, end = _range(log, dice)
    log.splice(begin, end, dice.randbytes(end - begin))


def cut(log: DamagedLog, dice: random.Random) -> None:
    begin, end = _range(log, dice)
    if end - begin < len(log.data):
        log.splice(begin, end, b"")


def insert(log: DamagedLog, dice: random.Random) -> None:
    at = dice.randrange(len(log.data) + 1)
    size = _length(dice, LARGEST)
    log.splice(at, at, dice.choice([dice.randbytes(size), bytes(size)]))


def swap(log: DamagedLog, dice: random.Random) -> None:
    """Exchange two neighbouring groups of batches."""
    if len(log.wholes) < 2:
        return
    begin, end = _group(log, dice)
    following = [whole for whole in log.wholes if whole.begin == end]
    if following:
        stop = following[0].end
        later = log.within(end, stop, copy=False)
        earlier = tuple(
            Whole(one.index, one.begin + stop - end, one.end + stop - end, one.copy)
            for one in log.within(begin, end, copy=False)
        )
        log.splice(begin, stop, log.data[end:stop] + log.data[begin:end], later + earlier)


def move(log: DamagedLog, dice: random.Random) -> None:
    """Move some batches to another place."""
    if len(log.wholes) < 3:
        return
    begin, end = _group(log, dice)
    piece, carried = log.data[begin:end], log.within(begin, end, copy=False)
    log.splice(begin, end, b"")
    at = _boundary(log, dice)
    log.splice(at, at, piece, carried)


def repeat(log: DamagedLog, dice: random.Random) -> None:
    """Insert stale copies of some batches between two others."""
    if log.wholes:
        begin, end = _group(log, dice)
        at = _boundary(log, dice)
        log.splice(at, at, log.data[begin:end], log.within(begin, end, copy=True))


def stale_block(log: DamagedLog, dice: random.Random) -> None:
    """Overwrite bytes of the log with other bytes of it, as a lost or misdirected write of a block does."""
    begin, end = _range(log, dice)
    at = dice.randrange(len(log.data))
    size = min(end - begin, len(log.data) - at)
    log.splice(at, at + size, log.data[begin : begin + size], log.within(begin, begin + size, copy=True))


def put_elsewhere(log: DamagedLog, dice: random.Random) -> None:
    """Overwrite one batch with another of the same size, or insert it before one."""
    if not log.wholes:
        return
    one = dice.choice(log.wholes)
    alike = [other for other in log.wholes if other.end - other.begin == one.end - one.begin and other != one]
    piece, carried = log.data[one.begin : one.end], log.within(one.begin, one.end, copy=True)
    if alike and dice.random() < 0.7:
        other = dice.choice(alike)
        log.splice(other.begin, other.end, piece, carried)
    else:
        other = dice.choice(log.wholes)
        log.splice(other.begin, other.begin, piece, carried)


def truncate(log: DamagedLog, dice: random.Random) -> None:
    log.splice(len(log.data) - min(len(log.data) - 1, _length(dice, LARGEST)), len(log.data), b"")


def append(log: DamagedLog, dice: random.Random) -> None:
    size = _length(dice, LARGEST)
    log.splice(len(log.data), len(log.data), dice.choice([dice.randbytes(size), bytes(size)]))


DAMAGES: tuple[Callable[[DamagedLog, random.Random], None], ...] = (
    flip_bit, flip_header_bit, flip_header_bit, zero, overwrite, overwrite, cut, cut, insert, insert, swap, move,
    repeat, stale_block, put_elsewhere, truncate, append,
)  # fmt: skip


def do_damage(log: DamagedLog, dice: random.Random) -> None:
    """Apply one to five random damages."""
    for _ in range(dice.choice([1, 1, 2, 2, 3, 5])):
        if not log.data:
            return
        verb = dice.choice(DAMAGES)
        log.history.append(verb.__name__)
        verb(log, dice)


def real_segments() -> list[Path]:
    """Return every segment that a broker wrote and had closed."""
    return sorted(
        path for path in SEGMENTS.glob("*/*.log") if "live" not in path.parent.name and path.stat().st_size > 100
    )


def random_log(dice: random.Random) -> DamagedLog:
    """Return a real segment, or one of many small batches, such as few fixtures have."""
    if dice.random() < 0.7:
        path = dice.choice(real_segments())
        return DamagedLog(path.read_bytes(), path.name)
    return DamagedLog(_many_batches(dice), f"{0:020}.log")


def _many_batches(dice: random.Random) -> bytes:
    magic = dice.choice([0, 1, 2, 2])
    codec = dice.choice(["none", "none", "lz4", "gzip"])
    compacted = dice.random() < 0.3
    alike = dice.random() < 0.5
    producer = magic == 2 and not compacted and dice.random() < 0.5
    out, offset, sequence = [], 0, 0
    for _ in range(dice.randint(50, 300)):
        offset += dice.randrange(20) if compacted else 0
        count = 1 if alike else dice.randint(1, 6)
        records = []
        for i in range(count):
            value = b"x" * 20 if alike else dice.randbytes(dice.randrange(200))
            timestamp = 1_700_000_000_000 + offset * 10 if magic else -1
            records.append(PlainRecord(offset + i, b"%06d" % (offset + i), value, timestamp))
        if magic == 2:
            producer_id, epoch, first = (7, 0, sequence) if producer else (-1, -1, -1)
            out.append(
                build_batch(records, compression=codec, partition_leader_epoch=3, producer_id=producer_id,
                            producer_epoch=epoch, base_sequence=first)
            )  # fmt: skip
        elif codec == "none":
            out += [build_message(one, magic=magic) for one in records]
        else:
            out.append(build_wrapper(records, magic=magic, compression=codec))
        offset += count
        sequence += count
    return b"".join(out)
