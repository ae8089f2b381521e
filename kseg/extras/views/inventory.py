"""``kseg validate --inventory``: findings and segments as Parquet, one row each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import repeat
from pathlib import Path

from kseg import schema
from kseg.commands.validate.folder_checks import check_folders
from kseg.extras.views.view_table import VIEWS
from kseg.extras.views.whole_files import result_and_row
from kseg.format.storage.atomic_write import whole_file
from kseg.format.storage.process_pool import Pool, map_ordered
from kseg.format.storage.segment_files import SegmentFile
from kseg.format.storage.source import local_size
from kseg.report.arrow_table import BATCH_ROWS, ParquetWriter, arrow_schema, from_rows
from kseg.results import FileResult, Settings

#: The views that are written, each to a file with its name.
WRITTEN = ("findings", "segments")


def with_inventory(
    pool: Pool | None, files: Sequence[SegmentFile], settings: Settings, target: Path
) -> Iterator[FileResult]:
    """Yield the results of ``check_folders``, and write ``findings.parquet`` and ``segments.parquet`` at the end.

    The files have the columns of the views of these names. Raises KsegError if they cannot be written.
    ``add_progress`` is called with the bytes that are read.
    """
    target.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        findings, segments = (_Table(stack, target, view) for view in WRITTEN)

        def results() -> Iterator[FileResult]:
            sizes = (local_size(file.path) for file in files)
            for of_segment, row in map_ordered(pool, result_and_row, files, sizes, repeat(settings)):
                if of_segment.summary.files:
                    segments.add(row)
                yield of_segment
                yield from of_segment.indexes

        for result in check_folders(files, settings, results()):
            for verdict in result.verdicts:
                findings.add(verdict.as_row())
            yield result
        findings.close()
        segments.close()


class _Table:
    """Writes the rows of a view to a Parquet file."""

    def __init__(self, stack: ExitStack, folder: Path, view: str) -> None:
        self._columns = VIEWS[view].columns
        self._rows: list[schema.Row] = []
        out = stack.enter_context(whole_file(folder / f"{view}.parquet"))
        self._writer = stack.enter_context(ParquetWriter(out, arrow_schema(self._columns)))

    def add(self, row: schema.Row) -> None:
        self._rows.append(row)
        if len(self._rows) == BATCH_ROWS:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        if self._rows:
            self._writer.write_batch(from_rows(self._columns, self._rows))
            self._rows.clear()
