"""Logs with unique keys, damaged batch by batch, and what becomes of each record in a repair: the truth is known."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kseg.format.record.layout import CONTROL
from kseg.format.segment.deep_reader import DeepIterator
from kseg.format.segment.segment_reader import SegmentReader
from kseg.format.storage.source import open_source
from kseg.format.writer.records_builder import PlainRecord, build_batch, build_message, build_wrapper

KINDS = ("v2", "v2", "compacted", "producer", "transactional", "v1", "v1-wrapper", "v0", "v0-wrapper")
_START = 1_700_000_000_000
Parts = list[bytes]


@dataclass(frozen=True, slots=True)
class TrueLog:
    """A log before damage. ``batches`` are (bytes, (offset, key) of each record); a control record has the key None."""

    kind: str
    start: int
    batches: list[tuple[bytes, list[tuple[int, bytes | None]]]]

    @property
    def offsets(self) -> dict[bytes | None, int]:
        return {key: offset for _, records in self.batches for offset, key in records}


def body(batch: bytes) -> bytes:
    """Return the bytes of a batch from the magic on: a base offset, a size and an epoch can be wrong."""
    return batch[16:]


def true_log(dice: random.Random) -> TrueLog:
    """Return a log of 8 to 60 batches."""
    kind = dice.choice(KINDS)
    start = offset = dice.choice([0, 0, 1000, 123456])
    number = sequence = 0
    same_time, alike = dice.random() < 0.2, dice.random() < 0.4
    codec = dice.choice(["none", "none", "lz4", "gzip"])
    batches: list[tuple[bytes, list[tuple[int, bytes | None]]]] = []
    for _ in range(dice.randint(8, 60)):
        if kind == "compacted" and batches:
            offset += dice.choice([0, 0, 1, 3, 10, 100, dice.randrange(3000)])
        count = 1 if alike else dice.randint(1, 6)
        records = []
        for n in range(count):
            time = -1 if kind[:2] == "v0" else _START + (0 if same_time else (offset + n) * 10)
            value = b"x" * 20 if alike else dice.randbytes(dice.randrange(150))
            records.append(PlainRecord(offset + n, b"key-%06d" % (number + n), value, time))
        known: list[tuple[int, bytes | None]] = [(one.offset, one.key) for one in records]
        if kind.endswith("wrapper") and codec != "none":
            batches.append((build_wrapper(records, magic=int(kind[1]), compression=codec), known))
        elif kind[:2] in ("v0", "v1"):
            batches += [(build_message(one, magic=int(kind[1])), [(one.offset, one.key)]) for one in records]
        else:
            ids: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0, "base_sequence": sequence}
            fields: dict[str, Any] = {
                **(ids if kind in ("producer", "transactional") else {}),
                "transactional": kind == "transactional",
            }
            batches.append((build_batch(records, compression=codec, partition_leader_epoch=3, **fields), known))
        offset, number, sequence = offset + count, number + count, sequence + count
        if kind == "transactional" and dice.random() < 0.3:
            marker = [PlainRecord(offset, b"\0\0\0\1", bytes(6), _START + (0 if same_time else offset * 10))]
            ids = {"producer_id": 7, "producer_epoch": 0, "base_sequence": -1, "transactional": True, "control": True}
            batches.append((build_batch(marker, partition_leader_epoch=3, **ids), [(offset, None)]))
            offset += 1
    return TrueLog(kind, start, batches)


def flip_base_offset(parts: Parts, n: int, dice: random.Random) -> None:
    bit = dice.choice([dice.randrange(4, 16), dice.randrange(33), dice.randrange(63)])
    parts[n] = (int.from_bytes(parts[n][:8]) ^ 1 << bit).to_bytes(8) + parts[n][8:]


def _flip_two(parts: Parts, n: int, dice: random.Random) -> None:
    for one in range(n, min(n + 2, len(parts))):
        flip_base_offset(parts, one, dice)


def _flip_header(parts: Parts, n: int, dice: random.Random) -> None:
    at = dice.randrange(min(61, len(parts[n])))
    parts[n] = parts[n][:at] + bytes([parts[n][at] ^ 1 << dice.randrange(8)]) + parts[n][at + 1 :]


def _zero(parts: Parts, n: int, dice: random.Random) -> None:
    at = dice.randrange(len(parts[n]))
    end = min(len(parts[n]), at + dice.randrange(1, 300))
    parts[n] = parts[n][:at] + bytes(end - at) + parts[n][end:]


def _cut(parts: Parts, n: int, dice: random.Random) -> None:
    at = dice.randrange(len(parts[n]))
    parts[n] = parts[n][:at] + parts[n][at + dice.randrange(1, 300) :]


def _swap(parts: Parts, n: int, dice: random.Random) -> None:
    other = dice.choice([min(n + 1, len(parts) - 1), dice.randrange(len(parts))])
    parts[n], parts[other] = parts[other], parts[n]


def _repeat(parts: Parts, n: int, dice: random.Random) -> None:
    parts.insert(dice.choice([n, dice.randrange(len(parts))]), parts[n])


def _drop(parts: Parts, n: int, dice: random.Random) -> None:
    if len(parts) > 3:
        del parts[n]


def _insert(parts: Parts, n: int, dice: random.Random) -> None:
    size = dice.randrange(1, 200)
    parts.insert(n, dice.choice([dice.randbytes(size), bytes(size)]))


DAMAGES: tuple[Callable[[Parts, int, random.Random], None], ...] = (
    flip_base_offset, flip_base_offset, flip_base_offset, _flip_two, _flip_header, _zero, _cut, _swap, _swap, _repeat,
    _repeat, _drop, _insert,
)  # fmt: skip


def damaged(log: TrueLog, dice: random.Random) -> bytes:
    """Return the log with one to four damages."""
    parts = [batch for batch, _ in log.batches]
    for _ in range(dice.choice([1, 1, 1, 2, 2, 3, 4])):
        dice.choice(DAMAGES)(parts, dice.randrange(len(parts)), dice)
        parts = [part for part in parts if part] or [b"\1"]
    return b"".join(parts)


def records_of(path: Path) -> set[tuple[int, bytes | None]]:
    """Return the offset and the key of each readable record; a control record has the key None."""
    found: set[tuple[int, bytes | None]] = set()
    with SegmentReader(open_source(path)) as reader:
        opener = DeepIterator()
        for window in reader.windows():
            for chunk in opener.chunks(window):
                batches = chunk.batches
                for row in range(chunk.first, chunk.stop):
                    control = batches.magic[row] >= 2 and batches.attributes[row] & CONTROL
                    found |= {(chunk.records.offset[i], None if control else chunk.key(i)) for i in chunk.rows(row)}
    return found
