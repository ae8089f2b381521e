"""The data files of a table: rows as Parquet, one file per day of the timestamp at a time.

Ranges of offsets whose rows are replaced in a table, as filters of its library, and data files without them.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from datetime import date
from functools import reduce
from operator import or_
from typing import Any

from kseg.errors import KsegError
from kseg.extras.pipeline.pipeline_state import new_file, remove_file
from kseg.format.storage import local_files
from kseg.format.storage.naming import without_file_scheme
from kseg.format.storage.segment_files import path_in
from kseg.report.arrow_table import ParquetWriter, dataset, pa, parquet, pc
from kseg.report.parquet import FEW_VALUES, GROUP_BYTES, WITHOUT_STATISTICS

#: Days with an open file. Logs are in the order of time, but for late records.
_OPEN_FILES = 16


@dataclass(frozen=True, slots=True)
class DataFile:
    """A complete data file. ``day`` is that of its timestamps in UTC; None without them, or in a table without days."""

    place: str
    rows: int
    bytes: int
    day: date | None = None


@dataclass(frozen=True, slots=True)
class NewPlace:
    """Returns the path or URL of a new file in a folder, for a day in a table ``by_day``.

    The files have rows of an Arrow ``schema``, and about ``file_bytes``.
    """

    folder: str
    by_day: bool
    file_bytes: int
    schema: Any

    def __call__(self, day: date | None) -> str:
        name = f"kseg-{uuid.uuid4().hex}.parquet"
        return path_in(self.folder, f"date={day or '__HIVE_DEFAULT_PARTITION__'}/{name}" if self.by_day else name)


class DataFiles:
    """Writes rows to new files. No file has its name before it is complete."""

    def __init__(self, new_place: NewPlace) -> None:
        self._new_place = new_place
        self._open: dict[date | None, _OpenFile] = {}
        #: The complete files that are not taken yet.
        self.done: list[DataFile] = []

    def add(self, batch: Any) -> None:
        """Write the rows of an Arrow batch, with the types of the schema."""
        if batch.schema != self._new_place.schema:
            batch = batch.cast(self._new_place.schema)
        for day, rows in self._days(batch):
            file = self._open.pop(day, None)
            if file is None:
                if len(self._open) >= _OPEN_FILES:
                    self._finish(next(iter(self._open)))
                file = _OpenFile(self._new_place(day), self._new_place.schema)
            self._open[day] = file  # the last used is the last
            file.add(rows)
            if file.bytes >= self._new_place.file_bytes:
                self._finish(day)

    def take(self) -> list[DataFile]:
        """Complete the open files, and return all files since the last call."""
        for day in list(self._open):
            self._finish(day)
        done, self.done = self.done, []
        return done

    def discard(self) -> None:
        for file in self._open.values():
            file.discard()
        self._open.clear()

    def _finish(self, day: date | None) -> None:
        file = self._open.pop(day)
        self.done.append(DataFile(file.place, file.rows, file.finish(), day))

    def _days(self, batch: Any) -> Iterator[tuple[date | None, Any]]:
        if not self._new_place.by_day:
            yield None, batch
            return
        days = pc.cast(batch.column("timestamp"), pa.date32())
        for day in pc.unique(days).to_pylist():
            yield day, batch.filter(pc.is_null(days) if day is None else pc.equal(days, pa.scalar(day)))


class _OpenFile:
    """A Parquet file that is being written."""

    def __init__(self, place: str, schema: Any) -> None:
        self.place = place
        self.rows = 0
        self._stack = ExitStack()
        self._out = pa.PythonFile(self._stack.enter_context(new_file(place)), "w")  # it counts its bytes
        self._held: list[Any] = []
        self._held_bytes = self._bytes = 0
        few = [name for name in schema.names if name in FEW_VALUES]
        measured = [name for name in schema.names if name not in WITHOUT_STATISTICS]
        self._writer = ParquetWriter(
            self._out, schema, use_dictionary=few, write_statistics=measured, compression="zstd"
        )

    @property
    def bytes(self) -> int:
        """The bytes written, and the uncompressed ones of the rows that wait for a row group."""
        return self._bytes + self._held_bytes

    def add(self, batch: Any) -> None:
        self._held.append(batch)
        self._held_bytes += batch.nbytes
        self.rows += batch.num_rows
        if self._held_bytes >= GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._held:
            self._writer.write_table(pa.Table.from_batches(self._held, self._writer.schema))
            self._bytes = self._out.tell()
            self._held, self._held_bytes = [], 0

    def finish(self) -> int:
        """Complete the file, and return its bytes."""
        self._flush()
        self._writer.close()
        size: int = self._out.tell()
        self._stack.close()
        return size

    def discard(self) -> None:
        """Remove the file: it never gets its name."""
        with suppress(Exception):
            self._writer.close()  # otherwise pyarrow closes it later, and prints that it cannot
        error = RuntimeError("discarded")
        self._stack.__exit__(RuntimeError, error, None)


def remove_files(files: Iterable[DataFile]) -> None:
    """Remove data files that no commit has."""
    for file in files:
        with suppress(KsegError):
            remove_file(file.place)


@dataclass(frozen=True, slots=True)
class RowRange:
    """The rows of a partition with offsets ``first`` to ``end`` (exclusive)."""

    partition: int
    first: int
    end: int


def as_expression(ranges: Sequence[RowRange]) -> Any:
    """Return an expression of pyarrow that is true for the rows of the ranges."""
    partition, offset = dataset.field("partition"), dataset.field("offset")
    return reduce(or_, ((partition == one.partition) & (offset >= one.first) & (offset < one.end) for one in ranges))


def as_sql(ranges: Sequence[RowRange]) -> str:
    """Return a condition of SQL that is true for the rows of the ranges."""
    return " OR ".join(
        f'("partition" = {one.partition} AND "offset" >= {one.first} AND "offset" < {one.end})' for one in ranges
    )


def parquet_batches(place: str, columns: Sequence[str], ranges: Sequence[RowRange] | None = None) -> Iterator[Any]:
    """Yield the rows of a Parquet file with the named columns, only those of ``ranges`` if there are any."""
    with local_files.open_file(without_file_scheme(place), named=False) as raw:
        file = parquet.ParquetFile(pa.PythonFile(raw, mode="r"))
        if ranges is None:
            yield from file.iter_batches(columns=list(columns))
            return
        groups = [number for number in range(file.num_row_groups) if _can_have(file.metadata.row_group(number), ranges)]
        names = list(dict.fromkeys([*columns, "partition", "offset"]))
        for batch in file.iter_batches(row_groups=groups, columns=names):
            found = pa.Table.from_batches([batch]).filter(as_expression(ranges))
            yield from found.select(list(columns)).to_batches()


def _can_have(group: Any, ranges: Sequence[RowRange]) -> bool:
    """Return whether a row group can have rows of the ranges, by its statistics."""
    bounds = {}
    for number in range(group.num_columns):
        column = group.column(number)
        if column.path_in_schema in ("partition", "offset") and column.is_stats_set and column.statistics.has_min_max:
            bounds[column.path_in_schema] = (column.statistics.min, column.statistics.max)
    if len(bounds) < 2:
        return True
    (low, high), (first, last) = bounds["partition"], bounds["offset"]
    return any(low <= one.partition <= high and one.first <= last and first < one.end for one in ranges)


def has_rows(place: str, ranges: Sequence[RowRange]) -> bool:
    return any(batch.num_rows for batch in parquet_batches(place, ["offset"], ranges))


def files_without(place: str, ranges: Sequence[RowRange], new_place: NewPlace) -> list[DataFile]:
    """Write the rows of a Parquet file that are not in the ranges, with their columns as they are; none if all are."""
    with local_files.open_file(without_file_scheme(place), named=False) as raw:
        file = parquet.ParquetFile(pa.PythonFile(raw, mode="r"))
        most = max(new_place.file_bytes, file.metadata.serialized_size)
        files = DataFiles(replace(new_place, file_bytes=most, schema=file.schema_arrow))
        try:
            for batch in file.iter_batches():
                kept = pa.Table.from_batches([batch]).filter(~as_expression(ranges))
                for rows in kept.to_batches():
                    files.add(rows)
            return files.take()
        finally:
            files.discard()
