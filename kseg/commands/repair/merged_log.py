"""Write batches of several replicas as the segments of one log, and copy the valid batches that found no place in it.

These are the ones that the repairs of several replicas left out, and that no replica brought into the result.

The repair of a replica writes them next to its repaired copy, which is removed at the end. A batch is recognised by its CRC
and its size: its base offset can be wrong.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, NamedTuple

from kseg.commands.repair.damaged_replicas import DamagedReplica, ReplicaBatch
from kseg.commands.repair.repair_losses import LostRange
from kseg.format.record.layout import CRC_AT, INT32_MAX, LEGACY_CRC_AT, PARTITION_LEADER_EPOCH_AT
from kseg.format.segment.segment_reader import SegmentReader
from kseg.format.storage.naming import UNPLACED, base_offset_of
from kseg.format.storage.source import open_source
from kseg.format.writer.output_guards import PartitionFolder


class MergedLog:
    """Writes batches as segments that begin where those of their replicas begin."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        self._out: IO[bytes] | None = None
        self._base = self._end = 0
        self._run: tuple[Path, int, int] | None = None
        self._modified = 0

    def append(self, batch: ReplicaBatch, epoch: int | None) -> None:
        """Add the next batch, with another leader epoch if one is given."""
        size = 0 if self._out is None else self._out.tell() + (self._run[2] - self._run[1] if self._run else 0)
        fits = size + batch.size <= INT32_MAX and batch.last_offset <= self._base + INT32_MAX
        if self._out is None or not batch.position or not fits:
            self.close()
            named = base_offset_of(batch.path.name)
            begins = named is not None and not batch.position and named >= self._end
            self._base = named if named is not None and begins else batch.base_offset
            self._out = (self.folder / f"{self._base:020}.log").open("xb")
        if self._run and self._run[0] == batch.path and self._run[2] == batch.position:
            self._run = (*self._run[:2], batch.position + batch.size)
        else:
            self._flush()
            self._run = batch.path, batch.position, batch.position + batch.size
        if epoch is not None:
            self._flush()
            self._out.seek(PARTITION_LEADER_EPOCH_AT - batch.size, os.SEEK_END)
            self._out.write(epoch.to_bytes(4, "big", signed=True))
            self._out.seek(0, os.SEEK_END)
        self._end = batch.last_offset + 1

    def _flush(self) -> None:
        if self._run is None or self._out is None:
            return
        path, start, end = self._run
        with path.open("rb") as source:
            source.seek(start)
            while start < end:
                data = source.read(min(1 << 20, end - start))
                self._out.write(data)
                start += len(data)
        self._modified = max(self._modified, path.stat().st_mtime_ns)
        self._run = None

    def close(self) -> None:
        """End the current segment. Retention uses the time of its file if its batches have none."""
        if self._out is not None:
            self._flush()
            self._out.close()
            os.utime(self._out.name, ns=(self._modified, self._modified))
            self._out, self._modified = None, 0


class _Copy(NamedTuple):
    path: Path
    position: int
    size: int


#: One copy of each valid batch that the replicas left out, by CRC and size.
UnplacedCopies = dict[tuple[int, int], _Copy]


def copies_missing_in(folder: Path, replicas: Sequence[DamagedReplica]) -> UnplacedCopies:
    """Return those of the replicas that no batch in the log ``folder`` is equal to."""
    found: UnplacedCopies = {}
    for replica in replicas:
        for path in sorted(replica.folder.glob(f"*{UNPLACED}")):
            for key, copy in _batches(path):
                found.setdefault(key, copy)
    for name in PartitionFolder(folder).logs if found else ():
        for key, _ in _batches(folder / name):
            found.pop(key, None)
    return found


def write_copies(copies: UnplacedCopies, folder: Path) -> None:
    """Write them to the folder of the log, in files with the names of their segments."""
    for path, position, size in copies.values():
        with path.open("rb") as source, (folder / path.name).open("ab") as out:
            source.seek(position)
            out.write(source.read(size))


def with_copies(
    known: Sequence[LostRange], copies: UnplacedCopies, replicas: Sequence[DamagedReplica]
) -> list[LostRange]:
    """Return the losses ``known``, and a row for each left out batch that has none: the result has all its offsets.

    A loss in ``known`` counts as a left out batch only if no replica brought its batch into the result.
    """
    left = {crc for crc, _ in copies}
    rows = [_as_lost(row) if row.unplaced and not _crcs(row) & left else row for row in known]
    for row in rows:
        left -= _crcs(row) if row.unplaced else set()
    for replica in replicas:
        for loss in replica.losses:
            if loss.unplaced and left & _crcs(loss) and not replica.is_other_history(loss):
                left -= _crcs(loss)
                rows.append(replace(loss, offset=None, last_offset=None))
    return rows


def _as_lost(row: LostRange) -> LostRange:
    """Return a row about a left out batch as one about lost offsets."""
    return LostRange(row.file, row.position, row.end, row.offset, row.last_offset, row.rule, row.why)


def _batches(path: Path) -> Iterator[tuple[tuple[int, int], _Copy]]:
    with SegmentReader(open_source(str(path)), verify_crc=False) as reader:
        for window in reader.windows():
            rows = window.batches
            for row in range(rows.count):
                yield (rows.crc[row], rows.size[row]), _Copy(path, rows.position[row], rows.size[row])


def _crcs(row: LostRange) -> set[int]:
    """Return the CRCs that the batch of a row can have: the field's place depends on the magic byte, which can be wrong."""
    with Path(row.file).open("rb") as file:
        file.seek(row.position)
        data = file.read(CRC_AT + 4)
    return {int.from_bytes(data[at : at + 4], "big") for at in (CRC_AT, LEGACY_CRC_AT)}
