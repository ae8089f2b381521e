"""Segments of v0 and v1 with message sets whose codecs stored the messages as they are, and damage to them.

Each value names the partition and the true offset of its record.
"""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from kseg.format.writer.records_builder import PlainRecord, build_message, build_wrapper

TIME = 1_600_000_000_000
#: An offset that is larger consists of bytes of a codec.
MOST = 1 << 31
#: All codecs, and only uncompressed messages.
MIXED, PURE = (["none", "snappy", "lz4", "gzip", "stored gzip"], ["none"])
_WORDS = b"order customer status shipped payment failed retry address city street total price currency item".split()


@dataclass(slots=True)
class Log:
    """A segment with random sets. ``style`` is what its values are: "text", "random" or "both".

    ``bare`` has the uncompressed messages as (position, end, offset), ``batches`` all as (position, first offset, last
    offset), and ``sets`` the positions of compressed ones. ``renumbered`` are offsets of which damage changed a byte: no CRC
    covers them.
    """

    data: bytes
    base: int
    style: str
    bare: list[tuple[int, int, int]] = field(default_factory=list)
    batches: list[tuple[int, int, int]] = field(default_factory=list)
    sets: list[int] = field(default_factory=list)
    renumbered: set[int] = field(default_factory=set)


def random_log(
    dice: random.Random, partition: int, codecs: Sequence[str], bases: Sequence[int], *, magic: int | None = None
) -> Log:
    """Return a log of sets of 1 to 25 messages with values of 0 to 20,000 bytes, mostly small ones."""
    magic = dice.choice([0, 1, 1, 1]) if magic is None else magic
    log = Log(b"", dice.choice(bases), dice.choice(["text", "random", "both"]))
    offset, parts, size = log.base, [], 0
    for _ in range(dice.randint(3, 10)):
        codec = dice.choice(codecs)
        records = [
            PlainRecord(offset + n, b"k", random_value(dice, offset + n, partition, log.style), TIME if magic else -1)
            for n in range(dice.choice([1, 3, 12, 25]))
        ]
        offset += len(records)
        if codec != "none":
            parts.append(_wrapper(records, magic, codec if magic or codec != "lz4" else "gzip"))
            log.sets.append(size)
            log.batches.append((size, records[0].offset, offset - 1))
            size += len(parts[-1])
            continue
        for one in records:
            parts.append(build_message(one, magic=magic))
            log.batches.append((size, one.offset, one.offset))
            log.bare.append((size, size + len(parts[-1]), one.offset))
            size += len(parts[-1])
    log.data = b"".join(parts)
    return log


def random_value(dice: random.Random, offset: int, partition: int, style: str) -> bytes:
    """Return a value of a style ("text", "random" or "both") that begins with its partition and its offset."""
    size = dice.choice([0, 20, 100, 400, 1200] * 6 + [5000, 20_000])
    if style == "text" or (style == "both" and dice.random() < 0.4):
        text = b""
        while len(text) < size:
            text += b'{"%s":"%s %d"},' % (dice.choice(_WORDS), dice.choice(_WORDS), dice.randrange(100_000))
        text = text[:size]
    else:
        text = dice.randbytes(size)
    return b"%d/%d/" % (partition, offset) + text


def _wrapper(records: list[PlainRecord], magic: int, codec: str) -> bytes:
    base = records[0].offset if magic else 0
    messages = [PlainRecord(one.offset - base, one.key, one.value, one.timestamp) for one in records]
    inner = b"".join(build_message(one, magic=magic) for one in messages)
    if codec != "stored gzip" or len(zlib.compress(inner)) < len(inner):  # gzip would not store it
        return build_wrapper(records, magic=magic, compression=codec.removeprefix("stored "))
    payload = _stored_gzip(inner)
    time = struct.pack(">q", TIME) if magic else b""
    rest = bytes([magic, 1]) + time + struct.pack(">ii", -1, len(payload)) + payload
    body = struct.pack(">I", zlib.crc32(rest)) + rest
    return struct.pack(">qi", records[-1].offset, len(body)) + body


def _stored_gzip(data: bytes) -> bytes:
    packer = zlib.compressobj(0, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    return packer.compress(data) + packer.flush()


def damage(log: Log, other: Log, dice: random.Random) -> None:
    """Damage a log, mostly sectors of it, often the start of a set. Messages outside of the damage stay in ``bare``."""
    for _ in range(dice.choice([1, 1, 2])):
        what, size = dice.choice(["zeros", "zeros", "foreign", "noise", "cut"]), dice.choice([512, 512, 4096])
        data, at = log.data, dice.randrange(len(log.data))
        if log.sets and dice.random() < 0.7:
            at = min(dice.choice(log.sets) + 12, len(data) - 1)
        begin = at // size * size
        if what == "cut":
            begin, size = max(0, at - dice.randrange(1000)), dice.randrange(1, 3000)
        end, piece = min(begin + size, len(data)), b""
        if what == "foreign":
            piece = other.data[begin:end].ljust(end - begin, b"\xee")
        elif what != "cut":
            piece = bytes(end - begin) if what == "zeros" else dice.randbytes(end - begin)
        log.data = data[:begin] + piece + data[end:]
        log.bare = [one for one in log.bare if one[1] <= begin or one[0] >= end]
        for position, first, last in log.batches:
            kept = slice(position + 8, position + 16)
            if position < end <= position + 8 or (begin < position < end and data[kept] == log.data[kept]):
                log.renumbered.update(range(first, last + 1))
        if what == "cut":
            return


def wrong(log: Log, records: Iterable[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    """Return the records, given as (offset, value), that are at another offset than their value names."""
    found = []
    for offset, value in records:
        partition, true, _ = value.split(b"/", 2)
        if int(true) != offset < MOST and not (partition == b"0" and int(true) in log.renumbered):
            found.append((offset, value[:12]))
    return found
