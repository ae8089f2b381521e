"""A reused buffer that slides over a source: the window that frames are cut from."""

from __future__ import annotations

from kseg.errors import UnreadableError
from kseg.findings import Finding, Report
from kseg.format.storage.source import Source

#: How often a file may turn out to have been written to while its tail was looked at, before that is left to its writer.
WRITES_FOLLOWED = 3

#: So many bytes hold a whole block of a disk, wherever they begin: fewer can't be a hole.
MIN_ZERO_RUN = 8192
#: A stream without an end (/dev/zero) is given up when so many of its bytes can't be read as anything.
MAX_UNKNOWN_STREAM = 256 * 1024 * 1024


class InputBuffer:
    """``data[start:end]`` are bytes read and not yet used; ``data[0]`` is byte ``shift`` of the file.

    Read with ``readinto``, not mmap: a file truncated under a map kills the process. The buffer grows only as bytes
    come to fill it, so that a size that lies costs no memory, and shrinks again once they are used. ``failed`` is set
    where the source could not be read any further.
    """

    def __init__(self, source: Source, capacity: int, report: Report) -> None:
        self.data = bytearray(capacity)
        self.view = memoryview(self.data)
        self.start = 0
        self.end = 0
        self.shift = source.start
        self.failed = False
        self._capacity = capacity
        self._source = source
        self._report = report
        self._writes = 0

    @property
    def available(self) -> int:
        """Bytes at hand."""
        return self.end - self.start

    @property
    def position(self) -> int:
        """The file position of the first unused byte."""
        return self.shift + self.start

    def fill(self, wanted: int) -> bool:
        """Have ``wanted`` bytes at hand, growing the buffer if they don't fit; False when the file ends before."""
        if self.end - self.start >= wanted:
            return True
        self._slide(wanted)
        while not self.failed:
            if self.end == len(self.data):
                if self.end >= wanted:
                    break
                self._resize(max(len(self.data) * 3 // 2, min(wanted, len(self.data) * 2)))
            count = self._read()
            if not count:
                break
            self.end += count
            # A pipe gives little at a time: enough is enough. A file fills the buffer in one call.
            if self.end >= wanted and self._source.size is None:
                break
        return self.end >= wanted

    def ends_before(self, wanted: int) -> bool:
        """Whether the file is known to end before that many bytes: a torn claim needs no room."""
        return self._source.size is not None and self.position + wanted > self._source.size

    def skip_to(self, position: int) -> None:
        """Use up everything before that byte of the file; it must be at hand, or the byte behind it."""
        self.start = min(position - self.shift, self.end)

    def discard_rest(self) -> int:
        """Read to the end, and use up all of it; returns the bytes. Raises UnreadableError for a stream without one."""
        began = self.position
        while self.fill(1):
            self.start = self.end
            if self._source.size is None and self.position - began > MAX_UNKNOWN_STREAM:
                raise UnreadableError(f"{self._source.name}: nothing that can be read in {MAX_UNKNOWN_STREAM} bytes")
        return self.position - began

    def reread_if_modified(self, *, torn: bool) -> bool:
        """Whether what is at hand is no more what the file holds: written to in its place or, if ``torn``, grown.

        A broker preallocates segments on request, and an append is seen page by page.
        """
        self._writes += 1
        if self._writes > WRITES_FOLLOWED:
            return False
        grown = torn and self._source.refresh()
        return self._source.reread(self.position, self.view[self.start : self.end]) or grown

    def describe_zeros(self, begin: int, end: int) -> str:
        """What the disk tells of zeros in bytes ``begin`` to ``end``, for a message; nothing of few, or of no file."""
        holes = self._source.holes(begin, end) if end - begin >= MIN_ZERO_RUN else None
        if holes is None:
            return ""
        if not holes:
            return ", which the disk holds as they are"
        return f", {holes if holes < end - begin else 'all'} of them a hole on disk, where nothing was ever written"

    def is_outgrown(self) -> bool:
        """Whether the file grows faster than its tail can be looked at."""
        return self._writes > WRITES_FOLLOWED and self._source.refresh()

    def _slide(self, wanted: int) -> None:
        """Move the unused bytes to the buffer's beginning."""
        kept = self.end - self.start
        self.shift += self.start
        if len(self.data) > self._capacity and max(kept, wanted) <= self._capacity // 2:
            begin, old = self.start, self.view
            self.start, self.end = 0, kept
            self._replace(bytearray(self._capacity), old[begin : begin + kept])
        elif self.start:
            self.view[:kept] = self.view[self.start : self.end]
            self.start, self.end = 0, kept

    def _resize(self, capacity: int) -> None:
        self._replace(bytearray(capacity), self.view[: self.end])

    def _replace(self, data: bytearray, kept: memoryview) -> None:
        # A new object: windows handed out before still look at the old one.
        data[: len(kept)] = kept
        self.data, self.view = data, memoryview(data)

    def _read(self) -> int:
        try:
            return self._source.readinto(self.view[self.end :])
        except OSError as error:
            self.failed = True
            why = error.strerror or str(error)
            if not self.end and not self.shift:
                raise UnreadableError(f"{self._source.name}: {why}") from error
            self._report(Finding("read-error", position=self.shift + self.end, facts={"why": why}))
            return 0
