"""Measure the libraries that can read LZ4 and Snappy: each payload is read by all of them in turns.

A reader does what kseg needs of a batch: it finds the blocks, and the decompressed bytes are in memory afterwards. That of
kseg decompresses into a buffer that it reuses. A library that cannot do that returns new bytes, which are not copied if one
block is the whole payload.
"""

from __future__ import annotations

import json
import random
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

import lz4.block
import lz4.frame
import snappy

from bench.measure import machine
from kseg.format.compress import codecs

PAGE = Path(__file__).resolve().parents[1] / "docs" / "explanation" / "dependencies.md"
MARKER = "codec-readers"
#: Sizes of a batch's records, decompressed.
SIZES = {"1 KB": 1 << 10, "4 KB": 4 << 10, "16 KB": 16 << 10, "64 KB": 64 << 10, "1 MB": 1 << 20}
ROUNDS = 41
#: The seconds that one reader reads before the next one's turn.
TURN = 0.005
_OURS = "cramjam, into a buffer"
_LZ4_HEADER, _SNAPPY_HEADER = 7, 16

Reader = Callable[[memoryview, memoryview], int]


def _of_kseg(codec: int) -> Reader:
    """Return kseg's reader of a codec, which calls cramjam."""

    def read(payload: memoryview, room: memoryview) -> int:
        return len(codecs.CODECS[codec].decompress(payload, len(room), 2, None, room))

    return read


def _blocks(payload: memoryview, at: int, length: struct.Struct) -> Iterator[memoryview]:
    while len(payload) - at >= length.size and (size := length.unpack_from(payload, at)[0] & 0x7FFFFFFF):
        at += length.size
        yield payload[at : at + size]
        at += size


def _in_blocks(at: int, length: struct.Struct, inflate: Callable[[memoryview], bytes]) -> Reader:
    """Return a reader that decompresses each block to new bytes, and several blocks into the buffer."""

    def read(payload: memoryview, room: memoryview) -> int:
        blocks = list(_blocks(payload, at, length))
        if len(blocks) == 1:
            return len(inflate(blocks[0]))
        made = 0
        for block in blocks:
            piece = inflate(block)
            room[made : made + len(piece)] = piece
            made += len(piece)
        return made

    return read


def _lz4_frame(payload: memoryview, room: memoryview) -> int:
    """Read a frame, and check that it is the whole payload: bytes after it are a finding."""
    whole, read = lz4.frame.decompress(payload, return_bytes_read=True)
    return len(whole) if read == len(payload) else 0


#: Codec -> reader by name. The first one is kseg's.
READERS: Mapping[int, Mapping[str, Reader]] = {
    2: {
        _OURS: _of_kseg(2),
        "python-snappy": _in_blocks(_SNAPPY_HEADER, struct.Struct(">i"), snappy.uncompress),
    },
    3: {
        _OURS: _of_kseg(3),
        "lz4.block": _in_blocks(
            _LZ4_HEADER, struct.Struct("<I"), lambda block: lz4.block.decompress(block, uncompressed_size=64 << 10)
        ),
        "lz4.frame": _lz4_frame,
    },
}


def records(size: int) -> bytes:
    """Return ``size`` bytes of JSON values as applications write them, the same in each run."""
    numbers = random.Random(1)
    out = bytearray()
    while len(out) < size:
        order = {"id": numbers.randrange(1 << 40), "user": f"user-{numbers.randrange(5000)}", "total": numbers.random()}
        out += json.dumps(order).encode()
    return bytes(out[:size])


def _seconds(read: Reader, payload: memoryview, room: memoryview, times: int) -> float:
    begin = time.perf_counter()
    for _ in range(times):
        read(payload, room)
    return (time.perf_counter() - begin) / times


def measure(codec: int, size: int, rounds: int = ROUNDS) -> dict[str, list[float]]:
    """Return the seconds of each reader for one payload, one figure per round."""
    data = records(size)
    payload, room = memoryview(codecs.compress(codec, data)), memoryview(bytearray(2 * size + (64 << 10)))
    readers = READERS[codec]
    found: dict[str, list[float]] = {name: [] for name in readers}
    for read in readers.values():
        assert read(payload, room) == size
    times = max(1, int(TURN / _seconds(readers[_OURS], payload, room, 3)))
    for number in range(rounds):
        for name in list(readers)[:: 1 if number % 2 == 0 else -1]:
            found[name].append(_seconds(readers[name], payload, room, times))
    return found


def text(progress: Callable[[str], None]) -> str:
    """Return the table of all codecs, sizes and readers in Markdown. A ratio is the median over the rounds."""
    lines = [
        f"{datetime.now(UTC):%Y-%m-%d}, {machine()}. {ROUNDS} rounds, taking turns; medians.",
        "",
        "| codec | records | reader | time | its time, relative to kseg's reader |",
        "|---|--:|---|--:|--:|",
    ]
    for codec in READERS:
        for text, size in SIZES.items():
            found = measure(codec, size)
            for name, seconds in found.items():
                ratio = median(one / own for one, own in zip(seconds, found[_OURS], strict=True))
                time_of = f"{median(seconds) * 1e6:,.1f} µs"
                lines.append(f"| {codecs.codec_name(codec)} | {text} | {name} | {time_of} | {ratio:.2f} |")
                progress(lines[-1])
    return "\n".join(lines) + "\n"
