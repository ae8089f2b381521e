"""The floor: a segment's bytes read, CRC'd and decompressed by the libraries, and nothing else done with them.

    python floor.py [--shallow] FILE

Written apart from kseg, on purpose: it trusts the file, knows only what ``bench.corpora`` makes, and takes of each
library the fastest call that was found. ``--shallow`` leaves the decompression out.
"""

from __future__ import annotations

import json
import struct
import sys
import zlib
from collections.abc import Callable
from typing import Any, BinaryIO

import cramjam
import zstandard
from crc32c import crc32c
from lz4 import frame

WINDOW = 4 * 1024 * 1024
HEADER = struct.Struct(">qiibIh")
MESSAGE = struct.Struct(">qiIbb")


def lz4_inflater() -> Callable[[Any], Any]:
    # A context kept from batch to batch: 5.1 us a batch where lz4.frame.decompress takes 5.6.
    context = frame.create_decompression_context()

    def inflate(data: Any) -> Any:
        frame.reset_decompression_context(context)
        return frame.decompress_chunk(context, data)[0]

    return inflate


def snappy(data: Any) -> list[Any]:
    """snappy-java's framing: a header of 16 bytes, then blocks, each behind its length."""
    blocks = []
    at = 16
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        blocks.append(cramjam.snappy.decompress_raw(data[at + 4 : at + 4 + size]))
        at += 4 + size
    return blocks


def zstd_inflater() -> Callable[[Any], Any]:
    decompressor = zstandard.ZstdDecompressor()
    # Kafka's frames carry no size; a batch of 16 KiB of JSON stays below 1 MiB. Larger ones go by pieces.

    def inflate(data: Any) -> Any:
        try:
            return decompressor.decompress(data, 1 << 20)
        except zstandard.ZstdError:
            return decompressor.decompressobj().decompress(data)

    return inflate


def gunzip(data: Any) -> bytes:
    return zlib.decompress(data, 31)


def read(file: BinaryIO, deep: bool) -> tuple[int, int]:
    """(entries, bytes inflated)."""
    inflaters = [None, gunzip, snappy, lz4_inflater(), zstd_inflater()]
    buffer = bytearray(WINDOW)
    view = memoryview(buffer)
    unpack, zlib_crc, v2_crc = HEADER.unpack_from, zlib.crc32, crc32c
    entries = inflated = kept = 0
    while True:
        got = file.readinto(view[kept:])  # type: ignore[attr-defined]
        if not got:
            break
        filled, at = kept + got, 0
        while filled - at >= 23:
            _, size, _, magic, crc, attributes = unpack(buffer, at)
            end = at + 12 + size
            if end > filled:
                break
            if magic == 2:
                if v2_crc(view[at + 21 : end]) != crc:
                    raise SystemExit(f"bad CRC at entry {entries}")
                payload = at + 61
            else:
                _, _, crc, magic, attributes = MESSAGE.unpack_from(buffer, at)
                if zlib_crc(view[at + 16 : end]) != crc:
                    raise SystemExit(f"bad CRC at entry {entries}")
                payload = at + 18 + 8 * magic + 8  # a wrapper's key is null
            inflate = inflaters[attributes & 7]
            if deep and inflate:
                out = inflate(view[payload:end])
                inflated += sum(map(len, out)) if type(out) is list else len(out)
            entries += 1
            at = end
        kept = filled - at
        if kept == len(buffer):
            raise SystemExit(f"entry {entries} is larger than {WINDOW} bytes")
        buffer[:kept] = buffer[at:filled]
    return entries, inflated


def main() -> None:
    path = sys.argv[-1]
    with open(path, "rb", buffering=0) as file:
        entries, inflated = read(file, deep="--shallow" not in sys.argv)
    print(json.dumps({"batches": entries, "inflated": inflated}))


main()
