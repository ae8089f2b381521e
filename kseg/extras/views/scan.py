"""A view of logs as a dataset of pyarrow and as an Arrow stream, read when it is pulled.

A filter of an Arrow reader implies limits, so that files and bytes without matching rows are not read.

Arrow simplifies a filter under a guarantee, to skip files of a dataset. Here it is asked whether rows below or above a value
can match, and a binary search finds the value. A filter of any form can be used, and what Arrow can't prove is read.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextvars import Context, copy_context
from dataclasses import dataclass, replace
from typing import Any

from kseg.errors import UsageError, each_once
from kseg.extras.views.planning import Request, plan
from kseg.extras.views.split_rows import Notices, Task, read
from kseg.format.record.layout import FIRST_MILLISECOND, INT64_MAX, LAST_MILLISECOND
from kseg.format.segment.row_filter import RowFilter
from kseg.report.arrow_table import ColumnPlace, InMemoryDataset, arrow_schema, dataset, pa

_WORD = re.compile(r"\w+")
#: Column -> the limits that bound it, the smallest and the largest value, and Arrow's type and its units per value.
_RANGES = {
    "offset": ("first_offset", "end_offset", 0, INT64_MAX, None, 1),
    "timestamp": ("since", "until", FIRST_MILLISECOND, LAST_MILLISECOND, "us", 1000),
    "timestamp_ms": ("since", "until", FIRST_MILLISECOND, LAST_MILLISECOND, None, 1),
}


def limits_of(condition: Any, schema: Any, limits: RowFilter, *, ranges: bool) -> RowFilter:
    """Return the limits of a pyarrow filter over columns of the schema, within other limits.

    With ``ranges`` the columns of _RANGES are those of records.
    """
    for name in names_in(condition) & _RANGES.keys() if ranges else ():
        limits = limits.both(_range_of(condition, schema, name))

    def has_matches(topic: str | None, partition: int | None) -> bool:
        """Return False if no row of the partition can match."""
        place = ColumnPlace("", topic, partition).escaped()
        same = (_equals(name, getattr(place, name)) for name in ("topic", "partition"))
        return all(_can_match(condition, schema, guarantee) for guarantee in same)

    return replace(limits, files=has_matches)


def names_in(condition: Any) -> set[str]:
    """Return the words of a pyarrow expression, which has no list of its columns: their names, and other words."""
    return set(_WORD.findall(str(condition)))


def _range_of(condition: Any, schema: Any, name: str) -> RowFilter:
    first_name, end_name, smallest, largest, unit, factor = _RANGES[name]
    column = dataset.field(name)

    def scalar(value: int) -> Any:
        return pa.scalar(value * factor, pa.timestamp(unit, tz="UTC") if unit else pa.int64())

    def can_be_below(value: int) -> bool:
        return _can_match(condition, schema, (column < scalar(value)) | column.is_null())

    def can_be_from(value: int) -> bool:
        return _can_match(condition, schema, (column >= scalar(value)) | column.is_null())

    values = range(smallest, largest)
    first = values[0] + bisect_left(values, True, key=lambda value: can_be_below(value + 1))
    end = values[0] + bisect_left(values, True, key=lambda value: not can_be_from(value))
    return RowFilter(
        **{first_name: first if first > smallest else None, end_name: end if end < largest else None}  # type: ignore[arg-type]
    )


def _equals(name: str, value: Any) -> Any:
    column = dataset.field(name)
    return column.is_null() if value is None else column == value


def _can_match(condition: Any, schema: Any, guarantee: Any) -> bool:
    """Return False if Arrow proves that no row for which the guarantee is true matches the condition."""
    file_format = dataset.IpcFileFormat()
    fragment = file_format.make_fragment(pa.BufferReader(b""), partition_expression=guarantee)
    matching = dataset.FileSystemDataset([fragment], schema, file_format).get_fragments(filter=condition)
    return next(iter(matching), None) is not None


class Scan(InMemoryDataset):  # type: ignore[misc]
    """A view of logs, as ``kseg.scan`` returns it.

    Any library that reads Arrow streams reads it (``__arrow_c_stream__``). DuckDB, pyarrow and Polars
    (``polars.scan_pyarrow_dataset``) read it as a dataset: they request only the columns and the rows of a query.
    Reading begins with the first pull of a batch. Each stream begins at the start.
    """

    def __init__(self, request: Request, notices: Notices) -> None:
        self._request = request
        self._notices = notices
        self._context = copy_context()
        super().__init__(arrow_schema(request.columns).empty_table())  # for the schema alone

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Return a stream of all rows in a PyCapsule, as in Arrow's PyCapsule interface."""
        return self.scanner().to_reader().__arrow_c_stream__(requested_schema)

    def scanner(self, columns: Sequence[str] | None = None, filter: Any = None, **_: Any) -> Scanner:
        """Return a reader of the named columns (None: all) of the rows that match a pyarrow expression."""
        if columns is not None and (isinstance(columns, dict) or not set(columns) <= set(self.schema.names)):
            raise UsageError(f"columns: expected names among {', '.join(self.schema.names)}, got {columns!r}")
        return Scanner(self._request, self._notices, self._context.copy(), columns, filter)

    def get_fragments(self, filter: Any = None) -> Any:
        """Raise UsageError, as the other methods that need files in a format of Arrow do."""
        raise UsageError("kseg.scan has no fragments, and only reads: use scanner(), to_batches() or to_table()")

    replace_schema = filter = get_fragments

    def __repr__(self) -> str:
        return f"<kseg.scan of {self._request.view} in {', '.join(self._request.paths)}>"

    def __reduce__(self) -> Any:
        return Scan, (replace(self._request, decoder=None), self._notices)


@dataclass(frozen=True, slots=True)
class Scanner:
    """One read of a Scan, with the methods of ``pyarrow.dataset.Scanner``."""

    request: Request
    notices: Notices
    context: Context
    columns: Sequence[str] | None
    filter: Any

    @property
    def dataset_schema(self) -> Any:
        """The schema of the view."""
        return arrow_schema(self.request.columns)

    @property
    def projected_schema(self) -> Any:
        """The schema of the rows."""
        view = self.dataset_schema
        return view if self.columns is None else pa.schema([view.field(name) for name in self.columns])

    def to_reader(self) -> Any:
        """Return a ``pyarrow.RecordBatchReader``."""
        return pa.RecordBatchReader.from_batches(self.projected_schema, self.to_batches())

    def to_batches(self) -> Iterator[Any]:
        """Yield the rows as Arrow record batches."""
        batches = self._batches()
        while (batch := self.context.run(next, batches, None)) is not None:
            yield batch

    def to_table(self) -> Any:
        """Return all rows as a ``pyarrow.Table``."""
        return self.to_reader().read_all()

    def head(self, num_rows: int) -> Any:
        """Return the first rows as a table."""
        found, left = [], num_rows
        batches = self.to_batches()
        while left > 0 and (batch := next(batches, None)) is not None:
            found.append(batch.slice(0, left))
            left -= found[-1].num_rows
        return pa.Table.from_batches(found, self.projected_schema)

    def count_rows(self) -> int:
        """Return the number of rows. No column of the records is collected for it."""
        counted = replace(self, columns=self.dataset_schema.names[:1])
        return sum(batch.num_rows for batch in counted.to_batches())

    def _batches(self) -> Iterator[Any]:
        view = self.request.columns
        names = [column.name for column in view] if self.columns is None else list(self.columns)
        tested = names_in(self.filter) if self.filter is not None else ()
        needed = tuple(column for column in view if column.name in names or column.name in tested)
        request = replace(self.request, columns=needed or view[:1], split_bytes=sys.maxsize)
        limits = request.limits
        if self.filter is not None:
            limits = limits_of(self.filter, self.dataset_schema, limits, ranges=request.view == "records")
        notices = replace(self.notices, unread=each_once(self.notices.unread))
        for split in plan(request, limits, notices.unread):
            for batch in read(Task(request, limits, notices), split):
                found = batch if self.filter is None else batch.filter(self.filter)
                if found.num_rows:
                    yield found if found.schema.names == names else found.select(names)
