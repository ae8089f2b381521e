"""Sums over the headers of v2 batches, by which a repair recognises its own copies.

The CRC of a batch is computed when it is read from the source and again when the result is read back. A batch with the same
header and the same valid CRC is the same batch: its records were decoded and checked in the source.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kseg.format.record.columns import BatchColumns
from kseg.format.record.crc import crc32c

#: The fields that the CRC does not cover, and the CRC itself. A wrong size makes the CRC wrong.
_FIELDS = ("base_offset", "partition_leader_epoch", "crc")


@dataclass(slots=True)
class CopiedBatches:
    """The number of batches of a log, and a sum over each field in their order."""

    count: int = 0
    sums: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_FIELDS, 0))

    def append(self, batches: BatchColumns, row: int, stop: int) -> None:
        """Add the batches ``row`` to ``stop`` (exclusive)."""
        for name in _FIELDS:
            self.sums[name] = crc32c(memoryview(getattr(batches, name))[row:stop].cast("B"), self.sums[name])
        self.count += stop - row
