"""Ranges of offsets whose rows are replaced in a table, as filters of its library, and data files without them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any

from kseg.extras.pipeline.data_files import DataFile, DataFiles, NewPlace
from kseg.format.storage import local_files
from kseg.format.storage.naming import without_file_scheme
from kseg.report.arrow_table import dataset, pa, parquet


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
    """Return whether a Parquet file has a row of the ranges."""
    return any(batch.num_rows for batch in parquet_batches(place, ["offset"], ranges))


def files_without(place: str, ranges: Sequence[RowRange], new_place: NewPlace, file_bytes: int) -> list[DataFile]:
    """Write the rows of a Parquet file that are not in the ranges, with their columns as they are; none if all are."""
    with local_files.open_file(without_file_scheme(place), named=False) as raw:
        file = parquet.ParquetFile(pa.PythonFile(raw, mode="r"))
        files = DataFiles(file.schema_arrow, new_place, max(file_bytes, file.metadata.serialized_size))
        try:
            for batch in file.iter_batches():
                kept = pa.Table.from_batches([batch]).filter(~as_expression(ranges))
                for rows in kept.to_batches():
                    files.add(rows)
            return files.take()
        finally:
            files.discard()
