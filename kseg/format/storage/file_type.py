"""The kind of a file that is not a log segment, and standard input, which can be an archive.

Standard input is decompressed if it is gzip or zstd, and read as an archive if it is one.
"""

from __future__ import annotations

import os
import struct
import sys
from typing import Any

from kseg.engine import imported
from kseg.errors import UnreadableError
from kseg.format.compress.gzip_streams import SIGNATURE_SIZE, Prefixed, compression_of, decompressed
from kseg.format.messages.definitions import APIS, definition, named
from kseg.format.record import bare_message, wide_message
from kseg.format.storage.naming import archive

#: The bytes from the start of a file that suffice to guess its kind.
HEAD = 64 * 1024
# Bytes in which text must be text, and in which a message can follow a damaged one.
_TEXT = _DAMAGED = 1024
# The start of a request: size, API key, API version, correlation id, length of the client id.
_FRAME = struct.Struct(">ihhih")
_SIZE, _LEAST_REQUEST = struct.Struct(">i"), 8
_READ_REQUEST = "kseg.extras.wire.apis:read_request"
_SIGNATURES = (
    (b"\x1f\x8b", "a gzip file: its name must end in .gz, or .tgz for an archive"),
    (b"\x28\xb5\x2f\xfd", "a zstd file: its name must end in .zst"),
    (b"\x04\x22\x4d\x18", "an LZ4 file: unpack it first"),
    (b"BZh", "a bzip2 file: unpack it first"),
    (b"\xfd7zXZ", "an xz file: unpack it first"),
    (b"PK\x03\x04", "a zip file: its name must end in .zip"),
    (b"\xff\xd8\xff", "a JPEG picture"),
    (b"\x89PNG", "a PNG picture"),
    (b"%PDF", "a PDF document"),
    (b"\x7fELF", "a program"),
    (b"PAR1", "a Parquet file"),
)
_BARE = "a message without offset and size: read it with `--as message`"

_SIDE_FILES = {
    ".index": "an offset index",
    ".timeindex": "a time index",
    ".txnindex": "a transaction index",
    ".snapshot": "a producer state snapshot",
}


def describe_file(name: str, head: bytes) -> str:
    """Return a phrase for the kind of a file, by its name and its first bytes (up to HEAD)."""
    for suffix, kind in _SIDE_FILES.items():
        if name.endswith(suffix) or os.path.basename(name).rpartition(".")[0].endswith(suffix):
            named = os.path.basename(name)[:20].isdigit()
            return (
                f"{kind}, which `kseg dump` and `kseg validate` read"
                if named
                else f"{kind}: its name must be 20 digits and the suffix"
            )
    if not head.strip(b"\0"):
        return "only zeros"
    return describe_likely_type(head) or f"no batch found, the file starts with {head[:16].hex(' ')}"


def describe_likely_type(head: bytes) -> str | None:
    """Return a phrase for a kind of file other than a log, by its first bytes; None for bytes of no known kind."""
    proved = describe_certain_type(head)
    if proved:
        return proved
    if bare_message.is_all(head):
        return _BARE
    if _begins_with_request(head):  # one frame that is longer than these bytes
        return "it starts like a request or a response: read it with `--as requests` or `--as responses`"
    if head and all(byte in b"\t\n\r\f\x1b" or 32 <= byte < 127 or byte >= 128 for byte in head[:_TEXT]):
        return "it looks like text"
    return None


def describe_certain_type(head: bytes) -> str | None:
    """Return the phrase if the bytes prove the kind even though they resemble the header of a torn batch.

    A signature would be the upper half of an offset of 10^17 or more, the size of a frame that of one of 10^10; a message of
    the tutorial format has a correct CRC.
    """
    for signature, kind in _SIGNATURES:
        if head.startswith(signature):
            return kind
    if bare_message.is_proved(head, 0, len(head)):
        return _BARE
    # The first message can be damaged or longer than these bytes.
    if any(wide_message.is_proved(head, at, len(head)) for at in range(min(len(head), _DAMAGED))):
        return "messages with an eight-byte CRC of the value: read them with `--as wide-crc`"
    return kind_of_frames(head)


def kind_of_frames(head: bytes) -> str | None:
    """Return a phrase for requests or responses, whose sizes lead from one to the next; None for other bytes.

    The first bytes of a response can resemble the API and its version in a request: the body decides.
    """
    at = complete = 0
    while at + _SIZE.size <= len(head):
        (size,) = _SIZE.unpack_from(head, at)
        if size < _SIZE.size:
            return None
        at += _SIZE.size + size
        complete += at <= len(head)
    if not complete:
        return None
    first = memoryview(head)[_SIZE.size : _SIZE.size + _SIZE.unpack_from(head)[0]]
    if len(first) >= _LEAST_REQUEST and imported(_READ_REQUEST)(first).fault is None:
        return "it starts like requests of a client: read them with `--as requests`"
    if complete > 1 or at == len(head):
        return "it looks like responses of a broker: read them with `--as requests --as responses REQUESTS RESPONSES`"
    return None


def _begins_with_request(head: bytes) -> bool:
    """Return whether the bytes begin with a request of a known API and version with a text client id."""
    if len(head) < _FRAME.size:
        return False
    size, key, version, _, client_id_size = _FRAME.unpack_from(head)
    client_id = head[_FRAME.size :][: max(client_id_size, 0)]
    if not -1 <= client_id_size <= size + 4 - _FRAME.size:
        return False
    name = named(APIS, "request").get(key)
    return bool(name and definition(APIS, name, version)) and client_id.isascii() and b"\0" not in client_id


# The bytes that show whether it is an archive.
_HEAD = 512
# The size of an archive without members: tar writes records of 20 blocks, all zeros.
_EMPTY_TAR = 20 * _HEAD
# Standard input, the stream of its decompressed bytes, and whether it is an archive.
_known: tuple[Any, Any, bool] = (None, None, False)


def unpacked(path: str) -> tuple[Any, bool]:
    """Return the stream of standard input without gzip or zstd, and whether it is an archive, which was read then.

    Its first bytes show its kind. An archive becomes a folder with this path. Raises UnreadableError.
    """
    global _known
    if sys.stdin is None:
        raise UnreadableError("standard input is closed")
    raw = sys.stdin.buffer
    if _known[0] is raw:
        return _known[1:]
    compressed = stream = Prefixed(raw)
    try:
        kind = compression_of(stream.head(SIGNATURE_SIZE))
        if kind:
            stream = Prefixed(decompressed(stream, kind))
        head = stream.head(_HEAD)
        if not any(head):
            head = stream.head(_EMPTY_TAR + 1)
        if not head:
            raise UnreadableError("standard input is empty: nothing was read")
        if len(head) <= _EMPTY_TAR and len(head) % _HEAD == 0 and not any(head):
            raise UnreadableError("standard input: the archive is empty, or the file has only zeros: nothing was read")
        is_archive = archive.is_archive(head)
        if is_archive:
            archive.add_stream(path, stream, head, lambda: compressed.count if kind else None)
    except OSError as error:
        raise UnreadableError(f"standard input: {error.strerror or error}") from error
    _known = raw, stream, is_archive
    return stream, is_archive
