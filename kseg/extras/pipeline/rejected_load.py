"""The side table of records without a row in their table. Its commits precede those of the table.

The calls that load the table write its files, so no process holds the records of several calls. The next offsets of the side
table are its own. If a run is killed between the two commits, the next one reads the same offsets again, and leaves out the
rejected records that the side table has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kseg.extras.pipeline.data_files import DataFile, DataFiles, NewPlace
from kseg.extras.pipeline.lake_table import LakeTable, TableState
from kseg.report.arrow_table import pc


@dataclass(frozen=True, slots=True)
class RejectedPlace:
    """The side table as a call needs it to write files: ``loaded`` are its next offsets by partition."""

    schema: Any
    new_place: NewPlace
    file_bytes: int
    loaded: Mapping[str, int]

    def files(self) -> DataFiles:
        """Return a writer of its data files."""
        return DataFiles(self.schema, self.new_place, self.file_bytes)

    def missing(self, partition: str, rows: Any) -> Any:
        """Return those of the rows of a partition that the side table does not have."""
        first = self.loaded.get(partition)
        return rows if first is None else rows.filter(pc.greater_equal(rows.column("offset"), first))


class RejectedLoad:
    """Commits the files of the side table, which is created if it does not exist."""

    def __init__(self, table: LakeTable, run: str) -> None:
        table.create()
        self._table = table
        self._run = run
        self._state = table.remove_orphans(table.read_state() or TableState(), run)
        self._files: list[DataFile] = []
        loaded = {partition: one.next_offset for partition, one in self._state.offsets.items()}
        #: The side table for the calls of this load.
        self.place = RejectedPlace(table.schema, table.new_place, table.settings.file_bytes, loaded)

    def add(self, files: Sequence[DataFile]) -> None:
        """Add the complete files of a call."""
        self._files += files

    def commit(self, following: TableState) -> None:
        """Commit the records up to the offsets that the table is about to have."""
        if not self._files:
            return
        files, self._files = self._files, []  # a failed commit can have been made: its files stay
        rows = sum(file.rows for file in files) + (self._state.rows if self._state.run == self._run else 0)
        after = replace(self._state, offsets={**self._state.offsets, **following.offsets}, run=self._run, rows=rows)
        self._table.commit(files, self._state, after)
        self._state = after

    def remove_orphans(self) -> None:
        """Remove the files that no commit has."""
        self._state = self._table.remove_orphans(self._state, self._run)

    def take(self) -> list[DataFile]:
        """Return the files that no commit has."""
        files, self._files = self._files, []
        return files
