"""A writer of partitions, for tests that read while it writes."""

from __future__ import annotations

from pathlib import Path

from kseg.format.writer.records_builder import PlainRecord, build_batch


class Writer:
    """Appends batches to a partition as a broker does: byte for byte at the end, sometimes in a new segment."""

    def __init__(self, folder: Path, *, segment_batches: int = 50) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.offset = 0
        self._every = segment_batches
        self.path = folder
        self._left = 0
        self._rest = b""

    def append(self, batches: int, *, torn: bool = False) -> None:
        """Append complete batches; with ``torn`` the last one's second half comes with the next call."""
        for number in range(batches):
            self._finish()
            if not self._left:
                self.path = self.folder / f"{self.offset:020d}.log"
                self._left = self._every
            self._left -= 1
            records = [
                PlainRecord(
                    self.offset + i, key=b"%d" % (self.offset + i), value=b"v" * 80, timestamp=1_700_000_000_000
                )
                for i in range(4)
            ]
            self._rest = build_batch(records, base_offset=self.offset)
            self.offset += 4
            if torn and number == batches - 1:
                with self.path.open("ab") as log:
                    log.write(self._rest[:-20])
                self._rest = self._rest[-20:]
            else:
                self._finish()

    def _finish(self) -> None:
        if self._rest:
            with self.path.open("ab") as log:
                log.write(self._rest)
        self._rest = b""
