"""The payload of a large batch, read in windows: a small file can decompress to more than fits in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from kseg.format.compress.codecs import Buffer, DecompressionLimit

#: The smallest size of a window in bytes, except for the last one.
WINDOW = 2 * 1024 * 1024


class LargePayload:
    """A decompressed payload that is read from start to end, once or several times.

    ``data`` is the current window, ``final`` whether the payload ends with it, ``size`` the number of bytes read so
    far. ``record_limit`` is the largest size of one record in bytes.
    """

    def __init__(self, pieces: Callable[[], Iterator[Buffer]], record_limit: int) -> None:
        self._open = pieces
        self._record_limit = record_limit
        self._pieces: Iterator[Buffer] = iter(())
        self._next: Buffer | None = None
        self.data: Any = b""
        self.final = True
        self.size = 0

    def begin(self) -> None:
        """Read the first window. Raises CodecError, like the other methods."""
        self._pieces = self._open()
        self.data = b""
        self.size = 0
        self._advance()
        self.refill(0)

    def refill(self, at: int) -> None:
        """Replace the window by one that begins at its byte ``at`` and continues after its end.

        Raises DecompressionLimit if a record is larger than ``record_limit``.
        """
        rest = memoryview(self.data)[at:]
        if len(rest) > self._record_limit:
            raise DecompressionLimit(self._record_limit)
        kept: list[Buffer] = [rest] if len(rest) else []
        size, wanted = len(rest), max(WINDOW, 2 * len(rest))
        while size < wanted and self._next is not None:
            kept.append(self._next)
            size += len(self._next)
            self._advance()
        self.data = kept[0] if len(kept) == 1 else b"".join(kept)
        self.final = self._next is None

    def discard_rest(self) -> None:
        """Read to the end, which proves that the compressed stream is complete."""
        self.data = b""
        while self._next is not None:
            self._advance()

    def _advance(self) -> None:
        self._next = next(self._pieces, None)
        self.size += len(self._next or b"")
