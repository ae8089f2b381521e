"""The side table of records without a row in their table. Its commits precede those of the table.

Its next offsets are its own. If a run is killed between the two commits, the next one reads the same offsets again, and
leaves out the rejected records that the side table has.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kseg.extras.pipeline.data_files import DataFiles
from kseg.extras.pipeline.lake_table import LakeTable, TableState
from kseg.report.arrow_table import pc


class RejectedLoad:
    """Loads rejected records. The side table is created with the first of them."""

    def __init__(self, table: LakeTable, run: str) -> None:
        self._table = table
        self._run = run
        self._state: TableState | None = None
        self._files: DataFiles | None = None
        self._rows = 0

    def add(self, partition: str, rows: Any) -> None:
        """Add rejected records of a partition, such as ``orders-0``."""
        if self._files is None or self._state is None:
            self._table.create()
            self._table.remove_orphans()
            self._state = self._table.read_state() or TableState()
            self._files = DataFiles(self._table.schema, self._table.new_place, self._table.settings.file_bytes)
        loaded = self._state.offsets.get(partition)
        if loaded:
            rows = rows.filter(pc.greater_equal(rows.column("offset"), loaded.next_offset))
        if rows.num_rows:
            self._rows += rows.num_rows
            self._files.add(rows)

    def commit(self, following: TableState) -> None:
        """Commit the records up to the offsets that the table is about to have."""
        if not self._rows or self._files is None or self._state is None:
            return
        before = self._state.rows if self._state.run == self._run else 0
        offsets = {**self._state.offsets, **following.offsets}
        after = replace(self._state, offsets=offsets, run=self._run, rows=before + self._rows)
        self._table.commit(self._files.take(), self._state, after)
        self._state, self._rows = after, 0

    def discard(self) -> None:
        """Remove files that are not complete."""
        if self._files is not None:
            self._files.discard()
