"""Output of ``kseg sql``: rows of any types, which come as Arrow record batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from itertools import chain, groupby, islice
from operator import itemgetter
from typing import Any, TextIO

from kseg.format.segment.records_chunk import ENCODERS
from kseg.report import parquet
from kseg.report.arrow_table import pa
from kseg.report.formats import View
from kseg.report.row_formats import RowSet, cell, write_columns
from kseg.report.tables import TableColumn, cell_rows, number_column, print_cells, print_pages
from kseg.schema import Column, Row, names_of
from kseg.text import escape_controls, finite, text_or_json, to_json

_Batches = Iterable[Any]
_PLAN = ["explain_key", "explain_value"]
_COLUMNS_OF_TABLES = (
    TableColumn("column", cell=itemgetter("column")),
    TableColumn("type", text="wrap", least=15, cell=itemgetter("type")),
    TableColumn("meaning", text="wrap", least=34, cell=itemgetter("meaning")),
)
#: Unit of a time -> its digits after the second.
_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
_NUMBERS = ("int", "uint", "float", "double", "decimal", "halffloat")


def rows(schema: pa.Schema, batches: _Batches) -> RowSet:
    """Return the rows with values as JSON has them: times in ISO 8601, bytes in base64."""
    names = _names(schema)
    return RowSet((dict(zip(names, values, strict=True)) for values in _values(batches)), names=names)


def write_table(schema: pa.Schema, batches: _Batches, out: TextIO) -> None:
    """Write tables of some hundred rows each. A plan of EXPLAIN is a text."""
    if schema.names == _PLAN:
        for _, plan in _values(batches):
            out.writelines(f"{escape_controls(line)}\n" for line in plan.splitlines())
        return
    columns = [
        number_column(escape_controls(name), str(field.type).startswith(_NUMBERS))
        for name, field in zip(_names(schema), schema, strict=True)
    ]
    found = (["NULL" if value is None else cell(value) for value in values] for values in _values(batches))
    first = [(cells, "") for cells in islice(found, 1)]
    if first:
        print_pages(out, columns, chain(first, ((cells, "") for cells in found)))
    else:
        print_cells(out, columns, ())


def write_jsonl(schema: pa.Schema, batches: _Batches, out: TextIO) -> None:
    """Write a line of JSON per row. Names of columns can have any character."""
    out.writelines(f"{to_json(row)}\n" for row in rows(schema, batches).rows)


def list_rows(found: Sequence[Row]) -> RowSet:
    """Return the rows of ``--tables`` or ``--recipes``."""
    columns = [Column(name, "bool" if isinstance(value, bool) else "text", "") for name, value in found[0].items()]
    return RowSet(found, columns, names_of(columns))


def write_list(found: Sequence[Row], out: TextIO) -> None:
    """Write the recipes, or the columns of the tables that a statement can read, under the name of each table."""
    if "recipe" in found[0]:
        write_columns(list_rows(found), out, View())
        return
    for name, columns in groupby(found, key=itemgetter("table")):
        print_cells(out, _COLUMNS_OF_TABLES, cell_rows(_COLUMNS_OF_TABLES, columns), title=name)


def write_parquet(schema: pa.Schema, batches: _Batches, out: TextIO) -> None:
    names = _names(schema)
    kept = pa.schema([field.with_name(name) for field, name in zip(schema, names, strict=True)])
    renamed = (pa.RecordBatch.from_arrays(batch.columns, schema=kept) for batch in batches)
    parquet.write_arrow(renamed, kept, out, View(terminal=out.isatty()))


def _names(schema: pa.Schema) -> list[str]:
    """Return the names of the columns; a second column of a name gets a number."""
    names: list[str] = []
    for name in schema.names:
        other, n = name, 1
        while other in names:
            n += 1
            other = f"{name}_{n}"
        names.append(other)
    return names


def _values(batches: _Batches) -> Iterator[list[Any]]:
    for batch in batches:
        kinds = batch.schema.types
        for values in zip(*map(_column_values, batch.columns), strict=True):
            yield [_plain(value, kind) for value, kind in zip(values, kinds, strict=True)]


def _column_values(column: pa.Array) -> list[Any]:
    try:
        return column.to_pylist()  # type: ignore[no-any-return]
    except (OverflowError, ValueError):  # times that Python lacks
        return list(map(_scalar_value, column))


def _scalar_value(value: pa.Scalar) -> Any:
    """Return a value as ``to_pylist`` does, with the times that Python lacks as text."""
    kind = value.type
    if not value.is_valid:
        return None
    if pa.types.is_struct(kind):
        return {name: _scalar_value(inner) for name, inner in value.items()}
    if pa.types.is_map(kind):
        return [tuple(map(_scalar_value, pair.values())) for pair in value.values]
    if pa.types.is_nested(kind):
        return list(map(_scalar_value, value.values))
    try:
        return value.as_py()
    except (OverflowError, ValueError):
        return _time_text(value)


def _time_text(value: pa.Scalar) -> str:
    """Return a date or time of any year as text; DuckDB's infinity is the largest number, and -infinity its opposite."""
    number = value.cast(pa.int32() if pa.types.is_date32(value.type) else pa.int64()).as_py()
    if abs(number) == (2**31 - 1 if pa.types.is_date32(value.type) else 2**63 - 1):
        return "infinity" if number > 0 else "-infinity"
    if pa.types.is_date32(value.type):
        return _date_text(number)
    digits = _DIGITS[value.type.unit]
    seconds, fraction = divmod(number, 10**digits)
    days, seconds = divmod(seconds, 86_400)
    fraction_text = f"{fraction:0{digits}}".ljust(3, "0") if digits else "000"
    while len(fraction_text) > 3 and fraction_text.endswith("000"):
        fraction_text = fraction_text[:-3]
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{_date_text(days)}T{clock}.{fraction_text}{'Z' if value.type.tz else ''}"


def _date_text(days: int) -> str:
    """Return a date of any year, by days since 1970. The calendar repeats after 400 years, which have 146,097 days."""
    cycles, days = divmod(days, 146_097)
    found = date(1970, 1, 1) + timedelta(days)
    return f"{found.year + 400 * cycles:04}-{found:%m-%d}"


def _plain(value: Any, kind: pa.DataType) -> Any:
    """Return a value of an Arrow type as JSON has it, and as the decoded values of ``kseg dump`` have it.

    A decimal is a text with all its digits. Without digits after the point it is a number: sums of integers have this type.
    """
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return finite(value)
    if isinstance(value, bytes):
        return ENCODERS["base64"](value)[0]
    if isinstance(value, datetime):
        finest = "microseconds" if value.microsecond % 1000 else "milliseconds"
        if getattr(value, "nanosecond", 0):  # where pandas is installed, pyarrow makes values of its class
            finest = "nanoseconds"
        text = value.isoformat(timespec=finest)
        return text.replace("+00:00", "Z")
    if isinstance(value, Decimal):
        return f"{value:f}" if kind.scale else int(value)
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, dict):
        return {name: _plain(inner, kind.field(name).type) for name, inner in value.items()}
    if pa.types.is_map(kind):
        return {text_or_json(_plain(key, kind.key_type)): _plain(inner, kind.item_type) for key, inner in value}
    if isinstance(value, list):
        return [_plain(inner, kind.value_type) for inner in value]
    return str(value)
