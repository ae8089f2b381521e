"""Write batches of several replicas as the segments of one log."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO

from kseg.commands.repair.damaged_replicas import ReplicaBatch
from kseg.format.record.layout import INT32_MAX, PARTITION_LEADER_EPOCH_AT
from kseg.format.storage.naming import base_offset_of


class MergedLog:
    """Writes batches as segments that begin where those of their replicas begin."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        self._out: IO[bytes] | None = None
        self._end = 0
        self._run: tuple[Path, int, int] | None = None
        self._modified = 0

    def append(self, batch: ReplicaBatch, epoch: int | None) -> None:
        """Add the next batch, with another leader epoch if one is given."""
        size = 0 if self._out is None else self._out.tell() + (self._run[2] - self._run[1] if self._run else 0)
        if self._out is None or not batch.position or size + batch.size > INT32_MAX:
            self.close()
            named = base_offset_of(batch.path.name)
            base = named if named is not None and not batch.position and named >= self._end else batch.base_offset
            self._out = (self.folder / f"{base:020}.log").open("xb")
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
