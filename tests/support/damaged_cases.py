"""Segments with seeded damage, for tests that compare two ways of reading.

case = damaged(seed)

The same seed gives the same bytes. Damage is also placed at the boundaries of ranges of a file: ``seams``.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kseg.findings import RULES
from kseg.format.segment.segment_reader import SegmentReader
from kseg.format.sidefiles.indexes import IndexBuilder
from kseg.format.storage.source import open_source
from kseg.format.writer.records_builder import PlainRecord, build_batch, build_message, build_wrapper
from tests.support import damage
from tests.support.fuzzing import cases

NOW = 1_700_000_000_000
CODECS = ("none", "none", "gzip", "snappy", "lz4", "zstd")
#: About the number of ranges into which a reader may split a file here.
RANGES = (2, 3, 5, 8)
_CHUNKS = 8
#: Distributes the cases of a test, so that processes can share them.
chunks = pytest.mark.parametrize("chunk", range(_CHUNKS))


def seeds(chunk: int, sample: int) -> range:
    """Return the seeds of one of the ``chunks``; ``sample`` as in ``fuzzing.cases``."""
    return range(chunk, cases(sample), _CHUNKS)


@dataclass(frozen=True)
class Case:
    """A segment of offsets from ``base`` on: the original, the damaged bytes, and the kinds of damage."""

    seed: int
    base: int
    sound: bytes
    data: bytes
    acts: tuple[str, ...] = field(default=())

    @property
    def name(self) -> str:
        return f"{self.base:020d}.log"


def damaged(seed: int, base: int = 0, acts: int | None = None) -> Case:
    """Return a segment of about 5 to 60 KB with up to three acts of damage."""
    random = Random(seed)
    entries = _entries(random, base)
    sound = b"".join(entries)
    data, done = sound, []
    for _ in range(random.choice((0, 1, 1, 1, 2, 3)) if acts is None else acts):
        act = random.choice(tuple(_ACTS))
        data = _ACTS[act](random, data, _place(random, data)) or data
        done.append(act)
    return Case(seed, base, sound, data, tuple(done))


def rules_setting(random: Random) -> dict[str, str]:
    """Return severities for some rules: for one that damage usually causes, or for many."""
    names = random.sample(sorted(RULES), random.choice((1, 2, 30)))
    names += random.sample(_COMMON, random.choice((0, 1, 3)))
    return {name: random.choice(("ignore", "ignore", "info", "warning", "error")) for name in names}


_COMMON = (
    "zero-tail", "truncated-tail", "lost-bytes", "crc-mismatch", "invalid-size", "unknown-magic", "offset-gap",
    "non-monotonic-offset", "segment-gap", "record-count-mismatch", "sequence-gap", "oversize-entry",
)  # fmt: skip


# --- sound segments ---


def _entries(random: Random, base: int) -> list[bytes]:
    """Return runs of batches of one kind each, as upgrades, several producers and compaction leave them."""
    found: list[bytes] = []
    state = _Writer(random, base)
    wanted = random.choice((40, 120, 240))
    kinds = ["v0", "v1", "w0", "w1", "v2", "v2", "v2", "v2", "txn"]
    kind = random.choice(kinds)
    while len(found) < wanted:
        if random.random() < 0.02 and kind not in ("v2", "txn"):
            kind = random.choice(kinds)
        elif random.random() < 0.05 and kind in ("v2", "txn"):
            kind = random.choice(("v2", "txn"))
        found += state.entries(kind)
    return found


class _Writer:
    def __init__(self, random: Random, base: int) -> None:
        self._random = random
        self._next = base
        self._compacted = random.random() < 0.2
        self._codec = random.choice(CODECS)
        self._sequences: dict[int, int] = {}
        self._leader_epoch = 0
        self._stamp = NOW

    def entries(self, kind: str) -> list[bytes]:
        random = self._random
        if random.random() < 0.1:
            self._codec = random.choice(CODECS)
        if random.random() < 0.02:
            self._leader_epoch += 1
        if self._compacted and random.random() < 0.3:
            self._next += random.randrange(1, 9)
        if kind in ("v0", "v1", "w0", "w1"):
            return [self._legacy(int(kind[1]), kind[0] == "w")]
        if kind == "txn":
            return self._transaction()
        return [self._batch(random.choice((-1, 7, 7, 8)), transactional=False)]

    def _records(self, count: int, *, timed: bool = True) -> list[PlainRecord]:
        random = self._random
        records = []
        for _ in range(count):
            self._stamp += random.randrange(-3, 9)
            value = random.choice((b"", bytes([random.randrange(256)]) * 90, random.randbytes(60), bytes(40)))
            if random.random() < 0.004:
                value = b"".join(build_batch([PlainRecord(n, b"k", b"v", NOW)], base_offset=n) for n in range(6))
            key = random.choice((None, b"k", b"key-%d" % random.randrange(50)))
            records.append(PlainRecord(self._next, key, value, self._stamp if timed else -1))
            self._next += 1
        return records

    def _legacy(self, magic: int, wrapped: bool) -> bytes:
        records = self._records(self._random.randrange(1, 6) if wrapped else 1, timed=bool(magic))
        if not wrapped:
            return build_message(records[0], magic=magic)
        codec = self._codec if self._codec not in ("none", "zstd") else "gzip"
        return build_wrapper(records, magic=magic, compression=codec)

    def _batch(self, producer: int, *, transactional: bool) -> bytes:
        base = self._next
        records = self._records(self._random.randrange(1, 7))
        more: dict[str, Any] = {}
        if producer >= 0:
            sequence = self._sequences.get(producer, 0)
            more = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequence}
            self._sequences[producer] = sequence + len(records)
        return build_batch(
            records, base_offset=base, compression=self._codec, partition_leader_epoch=self._leader_epoch,
            transactional=transactional, **more,
        )  # fmt: skip

    def _transaction(self) -> list[bytes]:
        producer = self._random.choice((20, 21))
        data = [self._batch(producer, transactional=True) for _ in range(self._random.randrange(1, 4))]
        key = b"\0\0\0\1" if self._random.random() < 0.5 else b"\0\0\0\0"
        marker = PlainRecord(self._next, key, bytes(6), self._stamp)
        self._next += 1
        ending = build_batch(
            [marker], base_offset=marker.offset, producer_id=producer, producer_epoch=0, base_sequence=-1,
            partition_leader_epoch=self._leader_epoch, transactional=True, control=True,
        )  # fmt: skip
        return [*data, ending]


# --- damage ---


def _place(random: Random, data: bytes) -> int:
    """Return a position: anywhere, or near a boundary of ranges, often at or near the first byte of a batch."""
    ranges = random.choice(RANGES)
    at = random.choice((random.randrange(len(data)), len(data) * random.randrange(1, ranges) // ranges))
    ends = [place.at for place in damage.entries(data)]
    near = min(ends, key=lambda end: abs(end - at), default=at)
    if random.random() < 0.5:
        near = min((end for end in ends if end >= at), default=at)
    near += random.choice((0, 0, 0, 0, random.randrange(-70, 70), random.randrange(-600, 600)))
    return max(0, min(near, len(data) - 1))


def _zeros(random: Random, data: bytes, at: int) -> bytes:
    size = random.choice((17, 61, 200, 512, 4096, 9000))
    begin = at if random.random() < 0.5 else max(0, at - size)
    return damage.zero(data, begin, min(begin + size, len(data)))


def _zeros_up_to(random: Random, data: bytes, at: int) -> bytes:
    """Overwrite with zeros from one batch boundary to another."""
    places = damage.entries(data)
    near = [n for n, place in enumerate(places) if place.at <= at]
    if not near:
        return data
    first, last = places[max(0, near[-1] - random.randrange(0, 6))], places[near[-1]]
    return damage.zero(data, first.at, random.choice((last.at, last.end)))


def _cut(random: Random, data: bytes, at: int) -> bytes:
    return damage.cut(data, at, min(at + random.choice((1, 8, 61, 300, 3000)), len(data) - 1))


def _insert(random: Random, data: bytes, at: int) -> bytes:
    size = random.choice((1, 12, 100, 700, 5000))
    return damage.insert(data, at, random.choice((random.randbytes(size), bytes(size), b"garbage " * (size // 8))))


def _flip(random: Random, data: bytes, at: int) -> bytes:
    return damage.flip(data, at, 1 << random.randrange(8))


def _overwrite(random: Random, data: bytes, at: int) -> bytes:
    size = min(random.choice((1, 4, 64, 512)), len(data) - at)
    return damage.splice(data, at, at + size, random.randbytes(size))


def _copy(random: Random, data: bytes, at: int) -> bytes:
    """Copy batches to the same or another place: a block of a disk that was written to the wrong place."""
    places = damage.entries(data)
    if not places:
        return data
    first = random.randrange(len(places))
    last = min(first + random.choice((1, 1, 3, 10)), len(places)) - 1
    piece = data[places[first].at : places[last].end]
    to = min((place.at for place in places if place.at >= at), default=len(data))
    if random.random() < 0.5:
        return damage.insert(data, to, piece)
    return damage.splice(data, to, min(to + len(piece), len(data)), piece)


def _drop(random: Random, data: bytes, at: int) -> bytes:
    places = [place for place in damage.entries(data) if place.at >= at][: random.choice((1, 2, 8))]
    return damage.cut(data, places[0].at, places[-1].end) if places else data


def _field(random: Random, data: bytes, at: int) -> bytes:
    """Change a header field, with a valid or an invalid CRC."""
    places = [place for place in damage.entries(data) if place.at >= at]
    if not places:
        return data
    place = places[0]
    name = random.choice([name for name in damage.FIELDS[place.magic] if name != "crc"])
    code = damage.FIELDS[place.magic][name][1]
    bits = 8 * {"q": 8, "i": 4, "I": 4, "h": 2, "H": 2, "B": 1}[code]
    value = random.choice((0, 1, -1, -2, 2**31 - 1, 2**63 - 1, -(2**31), damage.get(data, place.at, name) ^ 1,
                           damage.get(data, place.at, name) + random.randrange(-5, 6)))  # fmt: skip
    value &= (1 << bits) - 1
    if not code.isupper() and value >> (bits - 1):
        value -= 1 << bits
    if name in ("size", "magic") or random.random() < 0.3:
        return damage.put(data, place.at, **{name: value})
    return damage.alter(data, place.at, **{name: value})


def _tail(random: Random, data: bytes, at: int) -> bytes:
    """Return a possible end of a file: incomplete, or with preallocated zeros."""
    if random.random() < 0.5:
        data = data[: max(1, len(data) - random.randrange(1, 200))]
    return data + bytes(random.choice((0, 5, 61, 4096, 20000)))


_ACTS = {
    "zeros": _zeros,
    "zeros-up-to": _zeros_up_to,
    "zeros-between": _zeros_up_to,
    "cut": _cut,
    "insert": _insert,
    "flip": _flip,
    "overwrite": _overwrite,
    "copy": _copy,
    "drop": _drop,
    "field": _field,
    "tail": _tail,
}
# --- as files ---
#: Epoch seconds: a recently written file may still be written, and readers wait for it.
OLD = 1_600_000_000


def written(folder: Path, case: Case) -> Path:
    """Write the segment with the indexes that it had before the damage."""
    folder.mkdir(exist_ok=True)
    path = folder / case.name
    path.write_bytes(case.sound)
    with path.with_suffix(".index").open("wb") as offsets, path.with_suffix(".timeindex").open("wb") as times:
        builder = IndexBuilder(case.base, offsets, times, 1000)
        with SegmentReader(open_source(path)) as reader:
            for window in reader.windows():
                builder.add(window.batches, 0, window.batches.count)
        builder.finish()
    path.write_bytes(case.data)
    for file in folder.glob(f"{path.stem}.*"):
        os.utime(file, (OLD, OLD))
    return path
