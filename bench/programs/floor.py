"""The floor: the libraries read a segment, compute its CRCs and decompress it, and do nothing else.

    python floor.py [--shallow] FILE...
    python floor.py --recompress OUT FILE

It does not use kseg. It trusts the file, reads only files of ``bench.corpora``, and uses the fastest call of each library.
``--shallow`` does not decompress. ``--recompress`` is the floor of a conversion: it compresses the records again with the
same codec, computes CRC-32C, writes and syncs. It does not decode, encode, compare or read back a record.
"""

from __future__ import annotations

import json
import os
import struct
import sys
import zlib
from collections.abc import Callable
from typing import Any, BinaryIO

import cramjam
import zstandard
from crc32c import crc32c
from lz4 import frame

try:
    from isal import isal_zlib
except ImportError:
    isal_zlib = zlib

WINDOW = 4 * 1024 * 1024
HEADER = struct.Struct(">qiibIh")
MESSAGE = struct.Struct(">qiIbb")


LENGTH = struct.Struct("<I")
# One buffer for the decompressed blocks of all batches: allocating one per block takes longer than decompressing.
ROOM = memoryview(bytearray(WINDOW))


def unlz4(data: Any) -> memoryview:
    """Decompress an LZ4 frame: a header, then independent blocks of at most 64 kB after their lengths."""
    # Clients may write the size of the content into the header, 8 bytes.
    inflate, at, made = cramjam.lz4.decompress_block_into, 7 + (data[4] & 8), 0
    while size := LENGTH.unpack_from(data, at)[0]:
        at += 4
        if size >> 31:
            size &= 0x7FFFFFFF
            ROOM[made : made + size] = data[at : at + size]
            made += size
        else:
            made += inflate(data[at : at + size], ROOM[made : made + 65536], 65536)
        at += size
    return ROOM[:made]


def unsnappy(data: Any) -> memoryview:
    """Decompress snappy-java's framing: a header of 16 bytes, then blocks, each after its length."""
    inflate, at, made = cramjam.snappy.decompress_raw_into, 16, 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        made += inflate(data[at + 4 : at + 4 + size], ROOM[made:])
        at += 4 + size
    return ROOM[:made]


def zstd_inflater() -> Callable[[Any], Any]:
    decompressor = zstandard.ZstdDecompressor()
    # Kafka's frames have no size. 16 KiB of compressed JSON stay below 1 MiB; larger batches are decompressed in pieces.

    def inflate(data: Any) -> Any:
        try:
            return decompressor.decompress(data, 1 << 20)
        except zstandard.ZstdError:
            return decompressor.decompressobj().decompress(data)

    return inflate


def gunzip(data: Any) -> bytes:
    inflated: bytes = isal_zlib.decompress(data, 31)
    return inflated


def gzip(data: bytes) -> bytes:
    return zlib.compress(data, -1, 31)


def snappy(data: Any) -> bytes:
    """Compress in snappy-java's blocks of 32 kB."""
    parts = []
    for at in range(0, len(data), 32768):
        packed = cramjam.snappy.compress_raw(data[at : at + 32768])
        parts += len(packed).to_bytes(4, "big"), packed
    return b"".join(parts)


def lz4(data: bytes) -> bytes:
    out: bytes = frame.compress(data, block_size=frame.BLOCKSIZE_MAX64KB, block_linked=False, store_size=False)
    return out


NEW_HEADER = bytes(61)


def rewriter(path: str) -> tuple[BinaryIO, Callable[[int, Any], None]]:
    """Return the output file and the function that writes a batch to it: its codec and its payload."""
    out = open(path, "wb", buffering=1 << 20)  # noqa: SIM115
    deflaters = [lambda data: data, gzip, snappy, lz4]

    def rewrite(codec: int, data: Any) -> None:
        packed = deflaters[codec](data)
        crc32c(packed)
        out.write(NEW_HEADER)
        out.write(packed)

    return out, rewrite


def read(file: BinaryIO, deep: bool, rewrite: Callable[[int, Any], None] | None = None) -> tuple[int, int]:
    """Return the number of batches and of decompressed bytes."""
    inflaters = [None, gunzip, unsnappy, unlz4, zstd_inflater()]
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
            out: Any = view[at:end]
            if deep and inflate:
                out = inflate(view[payload:end])
                inflated += len(out)
            if rewrite:
                rewrite(attributes & 7, out)
            entries += 1
            at = end
        kept = filled - at
        if kept == len(buffer):
            raise SystemExit(f"entry {entries} is larger than {WINDOW} bytes")
        buffer[:kept] = buffer[at:filled]
    return entries, inflated


def main() -> None:
    arguments = [argument for argument in sys.argv[1:] if not argument.startswith("--")]
    target, rewrite = rewriter(arguments.pop(0)) if "--recompress" in sys.argv else (None, None)
    entries = inflated = 0
    for path in arguments:
        with open(path, "rb", buffering=0) as file:
            found = read(file, "--shallow" not in sys.argv, rewrite)
        entries, inflated = entries + found[0], inflated + found[1]
    if target:
        target.flush()
        os.fsync(target.fileno())
    print(json.dumps({"batches": entries, "inflated": inflated}))


main()
