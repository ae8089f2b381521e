"""Standard input: decompressed if it is gzip or zstd, and read as an archive if it is one."""

from __future__ import annotations

import sys
from typing import Any

from kseg.errors import UnreadableError
from kseg.format.compress.file_streams import SIGNATURE_SIZE, Prefixed, compression_of, decompressed
from kseg.format.storage import archive

# The bytes that show whether it is an archive.
_HEAD = 512
# The size of an archive without members: tar writes records of 20 blocks, all zeros.
_EMPTY_TAR = 20 * _HEAD
# Standard input, the stream of its decompressed bytes, and whether it is an archive.
_known: tuple[Any, Any, bool] = (None, None, False)


def unpacked(path: str) -> tuple[Any, bool]:
    """Return the stream of standard input without gzip or zstd, and whether it is an archive, which was read then.

    Its first bytes show what it is. An archive becomes a folder with this path. Raises UnreadableError.
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
