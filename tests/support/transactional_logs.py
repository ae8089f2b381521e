"""Random logs with interleaved transactions, and the truth about each record.

The encoder shares nothing with kseg: its oracle must not make kseg's mistakes.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

TRANSACTIONAL, CONTROL = 16, 32
ABORT, COMMIT = 0, 1
NOW = 1_700_000_000_000

_POLYNOMIAL = 0x82F63B78
_TABLE = []
for _byte in range(256):
    for _ in range(8):
        _byte = _byte >> 1 ^ (_POLYNOMIAL if _byte & 1 else 0)
    _TABLE.append(_byte)


def crc32c(data: bytes) -> int:
    value = 0xFFFFFFFF
    for byte in data:
        value = value >> 8 ^ _TABLE[(value ^ byte) & 255]
    return value ^ 0xFFFFFFFF


def varint(number: int) -> bytes:
    """Return a zig-zag varint."""
    number = number << 1 if number >= 0 else (-number << 1) - 1
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def batch(
    first: int, last: int, records: Sequence[tuple[int, bytes, bytes | None]], attributes: int = 0, producer: int = -1,
    producer_epoch: int = -1, sequence: int = -1, leader_epoch: int = 0,
) -> bytes:  # fmt: skip
    """Return a v2 batch; ``records`` are (offset, key, value)."""
    body = b""
    for offset, key, value in records:
        content = b"\0" + varint(0) + varint(offset - first)
        content += varint(len(key)) + key
        content += (varint(-1) if value is None else varint(len(value)) + value) + varint(0)
        body += varint(len(content)) + content
    times = (NOW + first, NOW + first)
    covered = struct.pack(
        ">hiqqqhii", attributes, last - first, *times, producer, producer_epoch, sequence, len(records)
    )
    covered += body
    return struct.pack(">qiib", first, 9 + len(covered), leader_epoch, 2) + struct.pack(">I", crc32c(covered)) + covered


@dataclass
class Truth:
    """A record: ``state`` None is outside transactions, ``control`` a marker."""

    offset: int
    state: str | None
    producer: int
    epoch: int
    sequence: int
    leader_epoch: int
    control: bool = False


@dataclass
class RandomLog:
    """A partition with the truth about its records, in their order. ``stable`` is None without an open transaction."""

    records: list[Truth] = field(default_factory=list)
    stable: int | None = None
    compacted: bool = False

    @property
    def committed(self) -> list[int]:
        """The offsets that a consumer with read_committed gets."""
        return [
            one.offset
            for one in self.records
            if not one.control
            and one.state in (None, "committed")
            and (self.stable is None or one.offset < self.stable)
        ]


@dataclass
class _Producer:
    number: int
    epoch: int = 0
    sequence: int = 0
    open: list[Truth] = field(default_factory=list)


@dataclass
class _Stored:
    data: bytes
    first: int
    producer: int = -1
    marker: bool = False
    kept: list[Truth] = field(default_factory=list)


def write_log(
    folder: Path, chance: random.Random, *, steps: int = 60, value_size: int = 12, producers: Sequence[int] = ()
) -> RandomLog:
    """Write a partition of several segments. One log in three is compacted up to its last stable offset."""
    writing = [_Producer(number) for number in producers or range(1000, 1000 + chance.randint(1, 6))]
    stored: list[_Stored] = []
    offset = leader_epoch = 0
    for _ in range(steps):
        leader_epoch += chance.random() < 0.03
        one = chance.choice(writing)
        kind = chance.random()
        if kind < 0.15:
            count = chance.randint(1, 4)
            truth = [Truth(offset + n, None, -1, -1, -1, leader_epoch) for n in range(count)]
            stored.append(_write(truth, 0, value_size))
        elif kind < 0.7:
            count = chance.randint(1, 4)
            truth = [
                Truth(offset + n, "open", one.number, one.epoch, one.sequence + n, leader_epoch) for n in range(count)
            ]
            stored.append(_write(truth, TRANSACTIONAL, value_size))
            one.sequence += count
            one.open += truth
        else:
            count = 1
            stored.append(_end(one, offset, leader_epoch, chance))
        offset += count
    stable = min((one.open[0].offset for one in writing if one.open), default=None)
    compacted = chance.random() < 1 / 3
    if compacted:
        stored = _compacted(stored, offset if stable is None else stable, chance)
    folder.mkdir(parents=True)
    path = folder / f"{0:020}.log"
    for one_batch in stored:
        if chance.random() < 0.08:
            path = folder / f"{one_batch.first:020}.log"
        with path.open("ab") as out:
            out.write(one_batch.data)
    return RandomLog([truth for one_batch in stored for truth in one_batch.kept], stable, compacted)


def _write(
    truth: list[Truth], attributes: int, value_size: int, first: int | None = None, last: int | None = None
) -> _Stored:
    """Return a batch; the cleaner keeps the offsets ``first`` and ``last`` of a batch."""
    one = truth[0]
    first = one.offset if first is None else first
    sequence = one.sequence if one.sequence < 0 else one.sequence - (one.offset - first)
    records = [(at.offset, b"key-%d" % (at.offset % 7), b"value %d " % at.offset + b"x" * value_size) for at in truth]
    last = truth[-1].offset if last is None else last
    data = batch(first, last, records, attributes, one.producer, one.epoch, sequence, one.leader_epoch)
    return _Stored(data, first, one.producer if attributes else -1, kept=truth)


def _end(producer: _Producer, offset: int, leader_epoch: int, chance: random.Random) -> _Stored:
    """End the transaction of a producer; coordinators also write markers without data."""
    kind = chance.choice((ABORT, COMMIT))
    state = ("aborted", "committed")[kind]
    if chance.random() < 0.4:  # transactions v2: the marker has the next epoch, which begins at sequence 0
        producer.epoch += 1
        producer.sequence = 0
    for one in producer.open:
        one.state = state
    producer.open = []
    truth = Truth(offset, state, producer.number, producer.epoch, -1, leader_epoch, control=True)
    key, value = struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 0)
    data = batch(
        offset,
        offset,
        [(offset, key, value)],
        TRANSACTIONAL | CONTROL,
        producer.number,
        producer.epoch,
        -1,
        leader_epoch,
    )
    return _Stored(data, offset, producer.number, True, [truth])


def _compacted(stored: list[_Stored], end: int, chance: random.Random) -> list[_Stored]:
    """Clean batches before ``end``: without aborted data and some other records, and without markers that have no data."""
    kept: list[_Stored] = []
    with_data: set[int] = set()
    for one in stored:
        if one.first >= end:
            kept.append(one)
        elif one.marker:
            if one.producer in with_data or chance.random() < 0.5:
                kept.append(one)
            with_data.discard(one.producer)
        else:
            left = [truth for truth in one.kept if truth.state != "aborted" and chance.random() < 0.6]
            if left:
                attributes = TRANSACTIONAL if one.producer >= 0 else 0
                kept.append(_write(left, attributes, 12, one.first, one.kept[-1].offset))
                with_data.add(one.producer)
    return kept
