"""The manifest of a segment in Aiven's tiered storage plugin: where the chunks of its log and its side files are.

The objects of a segment are ``<20 digits>-<segment id>`` with the suffixes ``.log``, ``.indexes`` and ``.rsm-manifest``.
Sources: ``SegmentManifestV1``, ``FixedSizeChunkIndex``, ``VariableSizeChunkIndex``, ``ChunkSizesBinaryCodec`` of the plugin.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from kseg.errors import UnreadableError
from kseg.extras.tiered_keys import IV_SIZE, TAG_SIZE
from kseg.format.compress import codecs
from kseg.format.record.layout import INT32_MAX

#: The side files in the object ``.indexes``: name in the manifest -> suffix of the file in remote storage.
SIDE_FILES = {
    "offset": ".index",
    "timestamp": ".timeindex",
    "producerSnapshot": ".snapshot",
    "leaderEpoch": ".leader_epoch_checkpoint",
    "transaction": ".txnindex",
}
#: The most bytes of a manifest, of a chunk, and the most chunks. The plugin's chunks have 4 MiB by default.
MOST_MANIFEST, MOST_CHUNK, MOST_CHUNKS = 16 << 20, 256 << 20, 1 << 20
LEAST_CHUNK = 1 << 10
_ZSTD = 4


class ManifestError(UnreadableError):
    """The content of an object is not that of a manifest. The object itself was read."""


@dataclass(frozen=True, slots=True)
class Chunks:
    """The pieces of a file of ``size`` bytes, each stored alone in an object.

    Chunk ``i`` has the bytes from ``i * chunk_size`` on. It is stored in bytes ``starts[i]`` to ``starts[i + 1]``.
    """

    size: int
    chunk_size: int
    starts: Sequence[int]
    compressed: bool = False

    def size_of(self, chunk: int) -> int:
        """Return the number of bytes of a chunk after decoding."""
        return min(self.chunk_size, self.size - chunk * self.chunk_size)


@dataclass(frozen=True, slots=True)
class Manifest:
    """A manifest. ``side_files`` are the parts of ``.indexes`` by suffix.

    ``data_key`` is the id of the RSA key and the wrapped AES key, None for a segment that is not encrypted. ``metadata`` is
    the plugin's copy of the segment's record in ``__remote_log_metadata``.
    """

    log: Chunks
    side_files: Mapping[str, Chunks]
    data_key: tuple[str, bytes] | None
    aad: bytes
    metadata: Mapping[str, Any]


def parse_manifest(data: bytes, where: str) -> Manifest:
    """Return the manifest in the bytes of its object. Raises ManifestError with ``where``, its path."""
    try:
        return _parse(json.loads(data))
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise ManifestError(f"{where}: not a manifest of a segment: {error!r}") from error
    except (ValueError, RecursionError, codecs.CodecError) as error:  # ValueError: JSON, base64, UTF-8
        raise ManifestError(f"{where}: not a manifest of a segment: {error}") from error


def _parse(fields: Any) -> Manifest:
    if fields["version"] != "1":
        raise ValueError(f"expected version '1', got {fields['version']!r}")
    encryption = fields.get("encryption")
    key = None
    if encryption:
        key_id, colon, wrapped = encryption["dataKey"].rpartition(":")
        if not colon:
            raise ValueError("expected a data key such as 'key1:base64'")
        key = key_id, _bytes_of(wrapped)
    least = IV_SIZE + TAG_SIZE if key else 0
    parts = {SIDE_FILES[name]: part for name, part in fields["segmentIndexes"].items() if part and name in SIDE_FILES}
    return Manifest(
        _log_chunks(fields["chunkIndex"], compressed=bool(fields["compression"])),
        {suffix: _part(part, least) for suffix, part in parts.items()},
        key,
        _bytes_of(encryption["aad"]) if encryption else b"",
        copied if isinstance(copied := fields.get("remoteLogSegmentMetadata"), dict) else {},
    )


def _part(part: Any, least: int) -> Chunks:
    """Return a part of ``.indexes`` as one chunk. An empty part is not encrypted."""
    position, size = _number(part["position"]), _number(part["size"])
    plain = max(0, size - least)
    return Chunks(plain, plain, (position, position + size))


def _log_chunks(index: Any, *, compressed: bool) -> Chunks:
    size, chunk_size = _number(index["originalFileSize"]), _number(index["originalChunkSize"])
    if not 0 < chunk_size <= INT32_MAX or min(chunk_size, size) > MOST_CHUNK:
        raise ValueError(f"expected chunks of 1 to {MOST_CHUNK:,} bytes, got {chunk_size:,}")
    count = -(-size // chunk_size)
    if chunk_size < LEAST_CHUNK and count > LEAST_CHUNK:  # each chunk is a read of its own
        raise ValueError(f"expected chunks of at least {LEAST_CHUNK:,} bytes in a large file, got {chunk_size:,}")
    if count > MOST_CHUNKS:
        raise ValueError(f"expected at most {MOST_CHUNKS:,} chunks, got {count:,}")
    if index["type"] == "fixed":
        sizes = [_number(index["transformedChunkSize"])] * (count - 1)
        sizes += [_number(index["finalTransformedChunkSize"])] * min(count, 1)
    elif index["type"] == "variable":
        sizes = _chunk_sizes(_bytes_of(index["transformedChunks"]))
    else:
        raise ValueError(f"expected a chunk index of type fixed or variable, got {index['type']!r}")
    if len(sizes) != count:
        raise ValueError(f"expected {count:,} chunks for {size:,} bytes, got {len(sizes):,}")
    return Chunks(size, chunk_size, list(accumulate(sizes, initial=0)), compressed)


def _chunk_sizes(data: bytes) -> list[int]:
    """Decode ``transformedChunks``: zstd of the count, a base, the bytes per value, and the values, the last one in full."""
    plain = bytes(codecs.decompress(_ZSTD, data, limit=4 * MOST_CHUNKS + 13))
    count = int.from_bytes(plain[:4], signed=True)
    if not 0 <= count <= MOST_CHUNKS:
        raise ValueError(f"expected at most {MOST_CHUNKS:,} chunks, got {count:,}")
    if count <= 1:
        expected, sizes = 4 + 4 * count, [int.from_bytes(plain[4:8], signed=True)] * count
    else:
        base, width = int.from_bytes(plain[4:8], signed=True), int.from_bytes(plain[8:9])
        end = 9 + width * (count - 1)
        expected = end + 4
        if len(plain) == expected:
            sizes = [base + int.from_bytes(plain[at : at + width]) for at in range(9, end, width or 1)]
            sizes = sizes or [base] * (count - 1)
            sizes.append(int.from_bytes(plain[end:], signed=True))
    if len(plain) != expected or min(sizes, default=0) < 0:
        raise ValueError(f"the sizes of {count:,} chunks do not fit into {len(plain):,} bytes")
    return sizes


def _number(value: Any) -> int:
    """Return a size or a position of the manifest. Raises ValueError."""
    if type(value) is not int or not 0 <= value <= INT32_MAX:
        raise ValueError(f"expected a number of bytes, got {value!r}")
    return value


def _bytes_of(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(f"not base64: {error}") from error
