"""A condition in SQL on the fields of records, for ``--where``: it is checked once, and evaluated by DuckDB for each chunk.

The fields are the columns of the table ``records`` of ``kseg sql``. A name after a field that is JSON, and a name or a
number in brackets, lead into it: ``value.order.items[0].id``, ``key['a.b']``. ``headers['source']`` is the value of the last
header of that name.

What a condition implies is used before it is evaluated: ranges of offsets and times, topics and partitions limit the files
and the bytes that are read (``scan.limits_of``), and a text that each matching record contains is searched in its bytes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from kseg import schema
from kseg.errors import UsageError
from kseg.extras.serialization import record_decoder
from kseg.extras.sql.statement import (
    LIMITS,
    RECORDS,
    TABLES,
    connected,
    duckdb,
    error_line,
    settings_of,
)
from kseg.extras.sql.where_syntax import ROW, parsed
from kseg.extras.views.scan import limits_of
from kseg.format.record.memory import Needle
from kseg.format.segment.records_chunk import Chunk
from kseg.format.segment.row_filter import BatchTransactions, RecordCondition, RowFilter, among_rows, rows_with
from kseg.format.storage.source import BY_FOLDER, internal_topic, topic_partition
from kseg.report.arrow_rows import RecordRows, payload_runs
from kseg.report.arrow_table import ColumnPlace, InMemoryDataset, arrow_schema, pa
from kseg.schema import Column

#: Rows of an Arrow record batch: a query costs as much as hundreds of them.
_MOST_ROWS = 64 * 1024
_CONTENTS = {column.name for columns in schema.CONTENT_COLUMNS.values() for column in columns}
#: If at most one in this many records of a chunk is a candidate, only candidates are copied.
_FEW = 8


def parse_where(text: str, sides: Sequence[str] = ()) -> tuple[Where, RowFilter]:
    """Return a condition, and the limits that it implies. ``sides`` of "key" and "value" are decoded.

    Raises UsageError for a text that is not one condition on known fields.
    """
    fields = _fields(sides)
    connection = _connection()
    try:
        plain, guarded = parsed(connection, text, fields, sides)
    except UsageError as error:
        raise UsageError(f"--where: {error}") from None
    columns = tuple(fields[name] for name in plain.columns)
    probe = _Probe(columns)
    _execute(connection, plain.sql, probe)
    limits = RowFilter()
    if probe.condition is not None:
        limits = limits_of(probe.condition, probe.schema, limits, ranges=True)
    return Where(plain.sql, guarded.sql, columns, plain.texts), limits


def _fields(sides: Sequence[str]) -> dict[str, Column]:
    """Return the fields that a condition can have: those of ``kseg sql``."""
    content = [column for side in sides for column in schema.CONTENT_COLUMNS[side]]
    return {column.name: column for column in (*TABLES[RECORDS], *content)}


@dataclass(frozen=True, slots=True)
class Where(RecordCondition):
    """A condition: the queries of its two forms, the columns that they read, and the texts of ``where_syntax.Query``."""

    sql: str
    guarded: str
    columns: tuple[Column, ...]
    texts: tuple[bytes, ...] | None

    @property
    def reads_contents(self) -> bool:
        """Whether the columns include those of decoded keys or values."""
        return any(column.name in _CONTENTS for column in self.columns)

    def of_segment(
        self, path: str, transactions: BatchTransactions | None, decoder: record_decoder.RecordDecoder | None
    ) -> SegmentWhere:
        topic, partition = topic_partition(path)
        place = ColumnPlace(path, topic, partition, internal_topic(path, BY_FOLDER), transactions, decoder)
        return SegmentWhere(self, place.escaped())

    def rows(self, chunk: Chunk, among: Sequence[int]) -> Sequence[int]:
        """Raise TypeError: the fields of a record include those of its segment."""
        raise TypeError("a condition needs a segment: of_segment")


class SegmentWhere(RecordCondition):
    """A condition on the records of one segment. Raises UsageError where a value cannot be converted as it says."""

    def __init__(self, where: Where, place: ColumnPlace) -> None:
        self._where = where
        self._place = place
        self._sql = where.sql
        self._needles = None if where.texts is None else tuple(map(Needle, where.texts))
        self._gathered = RecordRows(where.columns, max_rows=_MOST_ROWS)  # empty between two chunks

    def rows(self, chunk: Chunk, among: Sequence[int]) -> Sequence[int]:
        if self._needles is not None:
            among = among_rows(rows_with(chunk, self._needles), chunk, among)
        if not among:
            return among
        few = len(among) * _FEW <= chunk.records.count
        runs = ((chunk.payload(chunk.records.batch[i]), i, i + 1) for i in among) if few else payload_runs(chunk)
        copied = among if few else range(chunk.records.count)
        found: list[int] = []
        at = 0
        for batch in self._batches(chunk, runs):
            found += self._found(batch, copied[at : at + batch.num_rows])
            at += batch.num_rows
        return found if few else among_rows(found, chunk, among)

    def _batches(self, chunk: Chunk, runs: Iterable[tuple[memoryview, int, int]]) -> Iterator[Any]:
        """Yield the columns of the records in runs: the payload of a batch, and its first and last record (exclusive)."""
        for data, start, stop in runs:
            yield from self._gathered.add(self._place, chunk, data, start, stop)
        yield from self._gathered.finish()

    def _found(self, batch: Any, rows: Sequence[int]) -> list[int]:
        """Return those of the rows that fulfil the condition; ``batch`` has their columns."""
        connection = _connection()
        table = _with_numbers(batch)
        try:
            numbers = _execute(connection, self._sql, table)
        except NotJson:
            self._sql = self._where.guarded  # other values of the segment are probably not JSON, either
            numbers = _execute(connection, self._sql, table)
        return [rows[number] for number in numbers]


class _Probe(InMemoryDataset):  # type: ignore[misc]
    """An empty table that notes the filter with which DuckDB requests its rows."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self.condition: Any = None
        super().__init__(_with_numbers(arrow_schema(columns).empty_table()))

    def scanner(self, columns: Sequence[str] | None = None, filter: Any = None, **_: Any) -> Any:
        self.condition = filter
        return super().scanner(columns=columns)


class NotJson(UsageError):
    """A value is not JSON, and a condition leads into it."""


def _connection() -> Any:
    """Return the connection of this process. One that was opened before a fork cannot be used after it."""
    return _opened(os.getpid())[1]


@lru_cache(maxsize=1)
def _opened(process: int) -> tuple[Any, Any]:
    """Return the context of a connection, which is closed with the process, and the connection."""
    context = connected(settings_of("", LIMITS[-1]), {})
    return context, context.__enter__()


def _execute(connection: Any, sql: str, rows: Any) -> list[int]:
    """Return the numbers of the rows of a query. Raises UsageError."""
    connection.register(RECORDS, rows)
    try:
        return [row for (row,) in connection.execute(sql).fetchall()]
    except duckdb.InvalidInputException as error:
        raise NotJson(f"--where: {error_line(error)}") from None
    except UnicodeDecodeError:  # the message has a part of the value, which was cut within a character
        raise NotJson("--where: a value is not what a function or a cast expects") from None
    except duckdb.ConversionException as error:
        raise UsageError(f"--where: {error_line(error)}: try_cast(… as …) returns null instead") from None
    except (duckdb.Error, pa.ArrowException, OSError) as error:
        raise UsageError(f"--where: {error_line(error)}") from None
    finally:
        connection.unregister(RECORDS)


def _with_numbers(table: Any) -> Any:
    """Return a record batch or a table with the numbers of its rows, from 0 on, as the last column."""
    numbers = _numbers()[: table.num_rows]
    if isinstance(table, pa.Table):
        return table.append_column(ROW, numbers)
    kind = table.schema.append(pa.field(ROW, pa.int64()))
    return pa.Table.from_batches([pa.RecordBatch.from_arrays([*table.columns, numbers], schema=kind)])


@lru_cache(maxsize=1)
def _numbers() -> Any:
    return pa.array(range(_MOST_ROWS), pa.int64())
