"""The valid batches of a segment that are not in its repaired copy: they are written to a file next to it.

Such a batch has a right CRC, but its base offset, which no CRC covers, contradicts other batches and nothing proves the
right one, or a check finds an error in it. The file has the batches as they are in the source; ``kseg dump`` reads it, a
broker does not. A second copy of a batch that is in the result is not written: its records are in the result.
"""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path
from typing import IO

from kseg.commands.repair.repair_losses import DuplicateBatch, LostRange, UnplacedBatch
from kseg.format.record.columns import CRC_BAD
from kseg.format.record.layout import LOG_OVERHEAD, MAGIC_AT, SIZE_AT
from kseg.format.segment.segment_reader import SegmentReader, Window
from kseg.format.storage.naming import UNPLACED
from kseg.format.storage.source import open_source


def unplaced_path(log: Path) -> Path:
    """Return the path of the file with the unplaced batches of a log."""
    return log.with_name(log.name.removesuffix(".log") + UNPLACED)


class UnplacedBatches:
    """Writes dropped batches to ``out`` (None: only report). ``kinds`` are the rows that report them, by their positions.

    ``copies`` are the positions of the batches that are in the result from another place.
    """

    def __init__(self, out: IO[bytes] | None, copies: Container[int] = ()) -> None:
        self.kinds: dict[int, type[LostRange]] = {}
        self._out = out
        self.copies = copies

    def append(self, window: Window, row: int) -> None:
        """Write a batch, unless its CRC is wrong. A size or a magic that the CRC proves is corrected."""
        batches = window.batches
        if batches.crc_state[row] == CRC_BAD:
            return
        position, at = batches.position[row], batches.at[row]
        if position in self.copies:
            self.kinds[position] = DuplicateBatch
            return
        self.kinds[position] = UnplacedBatch
        if self._out is not None:
            data = bytearray(window.view[at : at + batches.size[row]])
            data[SIZE_AT : SIZE_AT + 4] = (len(data) - LOG_OVERHEAD).to_bytes(4, "big")
            data[MAGIC_AT] = batches.magic[row]
            self._out.write(data)

    def forget(self, end: int) -> None:
        """Drop the kinds of the batches before ``end``, which are reported."""
        self.kinds = {position: kind for position, kind in self.kinds.items() if position >= end}

    def append_all(self, source: str) -> int:
        """Write all valid batches of a segment; return their number. Raises KsegError from reading."""
        with SegmentReader(open_source(source)) as reader:
            for window in reader.windows():
                for row in range(window.batches.count):
                    self.append(window, row)
        return len(self.kinds)
