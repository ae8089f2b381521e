"""No record of a compressed v0 or v1 message set whose header is lost is read at its relative offset.

The values are hardly compressible, so the codecs store messages as they are. Each value names the true offset of its record.
"""

from __future__ import annotations

import random
import shutil
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

import pytest

from kseg.commands.repair.repair import repair
from kseg.commands.repair.repaired_segment import RepairPlan
from kseg.errors import KsegError
from kseg.format.segment.deep_reader import DeepIterator
from kseg.format.segment.segment_reader import SegmentReader
from kseg.format.storage.source import open_source
from kseg.format.writer.records_builder import PlainRecord, build_message, build_wrapper
from tests.support.fuzzing import cases

TIME = 1_600_000_000_000
#: An offset that is larger consists of bytes of a codec.
MOST = 1 << 31


@dataclass(slots=True)
class _Log:
    """A segment with random sets. ``bare`` has the uncompressed messages, each as (position, end, offset)."""

    data: bytes
    base: int
    end: int
    bare: list[tuple[int, int, int]]


def _stored_gzip(data: bytes) -> bytes:
    packer = zlib.compressobj(0, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    return packer.compress(data) + packer.flush()


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


def _value(dice: random.Random, offset: int, partition: int) -> bytes:
    size = dice.choice([0, 20, 100, 400, 1200])
    text = bytes(dice.choices(b'abcdefghijklmnop {}":,', k=size)) if dice.random() < 0.2 else dice.randbytes(size)
    return b"%d/%d/" % (partition, offset) + text


def _log(dice: random.Random, partition: int, codecs: list[str]) -> _Log:
    magic, base = dice.choice([0, 1, 1]), dice.choice([1000, 5000, 123_456])
    offset, data = base, b""
    bare = []
    for _ in range(dice.randint(3, 10)):
        codec = dice.choice(codecs)
        records = [
            PlainRecord(offset + n, b"k", _value(dice, offset + n, partition), TIME if magic else -1)
            for n in range(dice.choice([1, 3, 12, 25]))
        ]
        offset += len(records)
        if codec != "none":
            data += _wrapper(records, magic, codec if magic or codec != "lz4" else "gzip")
            continue
        for one in records:
            message = build_message(one, magic=magic)
            bare.append((len(data), len(data) + len(message), one.offset))
            data += message
    return _Log(data, base, offset, bare)


def _damage(log: _Log, other: _Log, dice: random.Random) -> bytes:
    """Return the bytes of a log with some damage, mostly to sectors. Messages outside of it stay in ``bare``."""
    data = log.data
    for _ in range(dice.choice([1, 1, 2])):
        what, size = dice.choice(["zeros", "zeros", "foreign", "noise", "cut"]), dice.choice([512, 512, 4096])
        begin = dice.randrange(len(data) // 512 + 1) * 512
        if what == "cut":
            begin, size = dice.randrange(len(data)), dice.randrange(1, 3000)
            data = data[:begin] + data[begin + size :]
            log.bare = [one for one in log.bare if one[1] <= begin or one[0] >= begin + size]
            return data
        end = min(begin + size, len(data))
        foreign = other.data[begin : begin + size].ljust(size, b"\xee")
        piece = {"zeros": bytes(size), "foreign": foreign, "noise": dice.randbytes(size)}[what]
        data = data[:begin] + piece[: max(end - begin, 0)] + data[end:]
        log.bare = [one for one in log.bare if one[1] <= begin or one[0] >= end]
    return data


def _records(path: Path) -> list[tuple[int, bytes]]:
    """Return the records of a segment as (offset, value)."""
    found = []
    try:
        with SegmentReader(open_source(path)) as reader:
            opener = DeepIterator()
            for window in reader.windows():
                for chunk in opener.chunks(window):
                    found += [(chunk.records.offset[i], chunk.value(i) or b"") for i in range(chunk.records.count)]
    except KsegError:
        pass
    return found


def _wrong(records: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    """Return the records at another offset than their value names."""
    return [(offset, value[:12]) for offset, value in records if int(value.split(b"/")[1]) != offset < MOST]


def problems(seed: int, folder: Path, codecs: list[str]) -> tuple[list[str], int, int]:
    """Return wrong records of a random case, how many undamaged bare messages are read, and how many there are."""
    dice = random.Random(seed)
    log, other = _log(dice, 0, codecs), _log(dice, 1, codecs)
    data = _damage(log, other, dice)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    name = f"{log.base:020}.log"
    path, out = folder / name, folder / "out" / name
    out.parent.mkdir()
    path.write_bytes(data)
    read = _records(path)
    found = {"read": read}
    repair(str(path), str(out), RepairPlan())
    found["repaired"] = _records(out) if out.exists() else []
    wrong = [f"seed {seed}: {what}: {_wrong(records)[:4]}" for what, records in found.items() if _wrong(records)]
    own = {offset for offset, value in read if value.startswith(b"0/")}
    return wrong, sum(offset in own for _, _, offset in log.bare), len(log.bare)


@pytest.mark.fuzz
@pytest.mark.parametrize("codecs", [["none", "snappy", "lz4", "gzip", "stored gzip"], ["none"]])
def test_no_inner_message_is_read_at_its_relative_offset(tmp_path: Path, codecs: list[str]) -> None:
    """Of random damage to sectors, to bytes and by cuts, in segments whose base offset is above those of their sets."""
    found = [problems(seed, tmp_path / "case", codecs) for seed in range(cases(150))]
    assert [one for wrong, _, _ in found for one in wrong] == []
    assert sum(kept for _, kept, _ in found) >= 0.99 * sum(undamaged for *_, undamaged in found)
