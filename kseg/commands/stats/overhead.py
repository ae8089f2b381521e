"""The cost of each record version: the bytes besides keys and values, the size as v2, and the size with each codec.

Sizes as v2 and with codecs are estimates: the first from mean sizes, the second from a sample.
"""

from __future__ import annotations

import math
from collections import Counter

from kseg.commands.stats.totals import Stats
from kseg.format.compress import codecs
from kseg.format.record import layout
from kseg.format.segment.records_chunk import Chunk
from kseg.schema import Row

#: The default of batch.size in producers: records are packed into batches of this size, in bytes.
PACKED = 16 * 1024
#: The pieces of PACKED bytes that are compressed per file with each codec, at most one of each chunk.
MAX_PIECES = 8
_SAMPLED = "sampled"


def add_sample(chunk: Chunk, sample: Counter[str]) -> None:
    """Compress a piece of the chunk's records with each codec; count its bytes before and after in ``sample``."""
    if sample[_SAMPLED] >= MAX_PIECES * PACKED:
        return
    piece = b""
    for row in range(chunk.first, chunk.stop):
        piece += bytes(_payload(chunk, row)[: PACKED - len(piece)])
        if len(piece) >= PACKED:
            break
    if piece:
        sample[_SAMPLED] += len(piece)
        for codec in codecs.CODECS.values():
            if codec.id:
                sample[codec.name] += len(codecs.compress(codec.id, piece))


def _payload(chunk: Chunk, row: int) -> memoryview:
    """Return the decompressed records of a batch; of a message without compression, its key and value."""
    if row in chunk.payloads:
        return chunk.payloads[row]
    batches = chunk.batches
    at, end, magic = batches.at[row], batches.at[row] + batches.size[row], batches.magic[row]
    begin = layout.RECORD_BATCH_OVERHEAD if magic >= 2 else layout.V1_KEY_AT if magic else layout.V0_KEY_AT
    return chunk.window.view[at + begin : end]


def version_rows(stats: Stats) -> dict[str, Row]:
    """Return by version the bytes of keys and values, and all others after decompression, in all and per record."""
    rows: dict[str, Row] = {}
    for magic, group in by_magic(stats).items():
        content = stats.contents[magic]
        other = _expanded(group) - content
        per_record = round(other / group["records"], 2) if group["records"] else None
        rows[str(magic)] = {"content_bytes": content, "overhead_bytes": other, "overhead_per_record": per_record}
    return rows


def by_magic(stats: Stats) -> dict[int, Counter[str]]:
    """Return the sums of the groups by version."""
    found: dict[int, Counter[str]] = {}
    for (magic, _), group in sorted(stats.groups.items()):
        found.setdefault(magic, Counter()).update(group)
    return found


def _expanded(group: Counter[str]) -> int:
    return group["bytes"] - group["stored"] + group["inflated"]


def as_v2(stats: Stats) -> Row | None:
    """Return the estimated size of all v0 and v1 messages as v2, None without such messages.

    ``bytes`` is their size today after decompression, ``converted_bytes`` that with a batch for each message or compressed
    message set, as ``kseg convert`` writes them, and ``packed_bytes`` that in batches of PACKED bytes (``--rebatch``).
    """
    groups = {magic: group for magic, group in by_magic(stats).items() if magic < 2 and group["records"]}
    if not groups:
        return None
    content = sum(stats.contents[magic] for magic in groups)
    records = sum(group["records"] for group in groups.values())
    size = content / records + _record_overhead(content / records)
    payload = round(records * size)
    batches = sum(group["batches"] for group in groups.values())
    # In a larger batch the offset delta of a record needs more bytes.
    packed = payload + records * (_varint_size(min(records, PACKED / size) / 2) - 1)
    return {
        "bytes": sum(_expanded(group) for group in groups.values()),
        "converted_bytes": payload + layout.RECORD_BATCH_OVERHEAD * batches,
        "packed_bytes": packed + layout.RECORD_BATCH_OVERHEAD * math.ceil(packed / PACKED),
    }


def _record_overhead(content: float) -> int:
    """Return the bytes of a v2 record besides its key and value, for a record of the mean size."""
    # attributes, timestamp delta, offset delta, key length, value length, number of headers
    inner = 5 + _varint_size(content)
    return inner + _varint_size(content + inner)


def _varint_size(value: float) -> int:
    return max(1, math.ceil((int(value) * 2).bit_length() / 7))


def codec_rows(stats: Stats) -> Row | None:
    """Return the estimated bytes of all records with each codec, in batches of PACKED bytes; None without a sample."""
    sampled = stats.sample[_SAMPLED]
    if not sampled:
        return None
    # The sample has the lengths of key and value, as a v2 record has; those of plain v0 and v1 messages are in the header.
    lengths = 8 * sum(
        group["batches"] for (magic, codec), group in stats.groups.items() if magic < 2 and codec == "none"
    )
    inflated = stats.total("inflated") + lengths
    estimates = {name: round(inflated * size / sampled) for name, size in stats.sample.items() if name != _SAMPLED}
    return {"sampled_bytes": sampled, "none": inflated, **estimates}
