"""The manifest of a segment in Aiven's tiered storage plugin: where the chunks of its log and its side files are.

The objects of a segment are ``<20 digits>-<segment id>`` with the suffixes ``.log``, ``.indexes`` and ``.rsm-manifest``.
Sources: ``SegmentManifestV1``, ``FixedSizeChunkIndex``, ``VariableSizeChunkIndex``, ``ChunkSizesBinaryCodec`` of the plugin.

The keys of encrypted objects: a data key per segment, wrapped by an RSA key that the user has.

Source: ``RsaEncryptionProvider`` and ``AesEncryptionProvider`` of Aiven's tiered storage plugin.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from kseg.engine import lazy
from kseg.errors import UnreadableError, UsageError
from kseg.format.compress import codecs
from kseg.format.record.layout import INT32_MAX
from kseg.format.storage import file_access, local_files

if TYPE_CHECKING:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa
    from cryptography.hazmat.primitives.ciphers import aead
else:
    _NEEDED = "encrypted objects need cryptography: pip install 'kseg[tiered]', which has cryptography"
    serialization = lazy("cryptography.hazmat.primitives.serialization", needed=_NEEDED)
    rsa = lazy("cryptography.hazmat.primitives.asymmetric.rsa", needed=_NEEDED)
    aead = lazy("cryptography.hazmat.primitives.ciphers.aead", needed=_NEEDED)

#: The environment variable with the path of a private key, for runs without ``--kek``.
VARIABLE = "KSEG_KEK"
#: The bytes of the initialization vector at the start of each encrypted part, and of the tag at its end.
IV_SIZE, TAG_SIZE = 12, 16
_AES_SIZES = (16, 24, 32)


class Cipher:
    """AES-GCM with the data key and the additional authenticated data of one segment."""

    def __init__(self, data_key: bytes, aad: bytes) -> None:
        self._aead: Any = aead.AESGCM(data_key)
        self._aad = aad

    def decrypt(self, data: bytes) -> bytes | None:
        """Return the plain bytes of ``iv + encrypted bytes + tag``, None if the tag does not match."""
        if len(data) < IV_SIZE + TAG_SIZE:
            return None
        try:
            plain: bytes = self._aead.decrypt(data[:IV_SIZE], data[IV_SIZE:], self._aad)
        except Exception as error:  # InvalidTag: importing its class would import the library
            if type(error).__name__ != "InvalidTag":
                raise
            return None
        return plain


def data_key(wrapped: bytes, key_id: str, where: str) -> bytes:
    """Return the data key that one of the user's keys unwraps.

    ``key_id`` is the plugin's name of the RSA key, and ``where`` the manifest. Raises UnreadableError without such a key.
    """
    paths = file_access.current().keys or tuple(filter(None, [os.environ.get(VARIABLE)]))
    if not paths:
        raise UnreadableError(
            f"{where}: encrypted for the RSA key {key_id!r}: give its private key (PEM) with --kek FILE or {VARIABLE}"
        )
    for path in paths:
        key = _unwrapped(wrapped, _private_key(path))
        if key is not None and len(key) in _AES_SIZES:
            return key
    given = " and ".join(paths)
    raise UnreadableError(f"{where}: encrypted for the RSA key {key_id!r}: {given} cannot decrypt the data key")


@cache
def _private_key(path: str) -> Any:
    """Return the numbers of the RSA key in a PEM file without a password. Raises UsageError and UnreadableError."""
    pem = local_files.read_file(path)
    try:
        key = serialization.load_pem_private_key(pem, None)
    except (ValueError, TypeError) as error:  # TypeError: it has a password
        raise UsageError(f"{path}: expected a private key in PEM without a password: {error}") from error
    except Exception as error:
        if type(error).__name__ != "UnsupportedAlgorithm":
            raise
        raise UsageError(f"{path}: {error}") from error
    if not isinstance(key, rsa.RSAPrivateKey):
        raise UsageError(f"{path}: expected an RSA key, got {type(key).__name__}")
    return key.private_numbers()


@lru_cache(64)
def _unwrapped(wrapped: bytes, key: Any) -> bytes | None:
    """Decode RSA-OAEP with SHA3-512 for the label's hash and for MGF1 (RFC 8017, 7.1.2); None for a wrong key.

    The library refuses this hash: raw RSA by the numbers of the key.
    """
    modulus = key.public_numbers.n
    size = (modulus.bit_length() + 7) // 8
    number = int.from_bytes(wrapped)
    if len(wrapped) != size or number >= modulus:
        return None
    # The Chinese remainder theorem takes a quarter of the time.
    of_p, of_q = pow(number, key.dmp1, key.p), pow(number, key.dmq1, key.q)
    encoded = (of_q + key.q * ((of_p - of_q) * key.iqmp % key.p)).to_bytes(size)
    label = hashlib.sha3_512().digest()
    masked_seed, masked = encoded[1 : 1 + len(label)], encoded[1 + len(label) :]
    seed = _xor(masked_seed, _mask(masked, len(masked_seed)))
    block = _xor(masked, _mask(seed, len(masked)))
    padding, mark, message = block[len(label) :].partition(b"\1")
    if encoded[0] or block[: len(label)] != label or padding.strip(b"\0") or not mark:
        return None
    return message


def _mask(seed: bytes, size: int) -> bytes:
    """MGF1 with SHA3-512."""
    made = b"".join(hashlib.sha3_512(seed + n.to_bytes(4)).digest() for n in range(size // 64 + 1))
    return made[:size]


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))


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
