"""The rows of a table from those of the view of records: columns by their paths, with casts, and rows without a typed value.

A path is a column of the view, or a field of a decoded key or value: ``value.total.amount``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

from kseg.errors import KsegError, UsageError
from kseg.extras.pipeline.pipeline_settings import PipelineSettings, TableSettings
from kseg.extras.pipeline.table_columns import TablePath, names_of_fields, shown_field, with_distinct_fields
from kseg.extras.serialization.record_decoder import DecodeSettings, with_types
from kseg.extras.views.view_table import VIEWS
from kseg.report.arrow_table import arrow_schema, pa, pc
from kseg.schema import Column
from kseg.text import unknown_name

_RECORDS = {column.name: column for column in VIEWS["records"].columns}
#: The columns of a row that was rejected: the stored record, and the reason.
REJECTED = (
    *(_RECORDS[name] for name in ("topic", "partition", "offset", "timestamp", "key", "value", "headers")),
    Column("schema_id", "int", "the schema's id in the registry"),
    Column("reason", "text", "why the record is not in the table"),
    Column("run", "text", "the run that rejected it"),
)
_ERRORS = ("key_error", "value_error")


class TableRows:
    """Makes the rows of a table. ``decoding`` is None for a table of records as they are stored."""

    def __init__(self, settings: PipelineSettings, table: TableSettings) -> None:
        self._settings = settings
        self._table = table

    @cached_property
    def decoding(self) -> DecodeSettings | None:
        """The decoder of keys and values, with the columns of all versions of their schemas. Raises UsageError."""
        sides = self._table.sides
        if not sides:
            return None
        files, topics, registry = self._settings.schemas
        key_as, value_as = (self._table.decoded_as if side in sides else None for side in ("key", "value"))
        asked = DecodeSettings(key_as, value_as, files, topics, registry)
        try:
            return with_types(asked, lambda: [self._table.topic])
        except UsageError as error:
            why = re.sub(r"--(key|value)-as", r"\1_as", str(error))  # an option is a key of the table here
            raise UsageError(f"{self._settings.path}: table.{self._table.topic}: {why}") from None

    @cached_property
    def _known(self) -> Mapping[str, Column]:
        contents = self.decoding.columns if self.decoding else ()
        return {**_RECORDS, **{column.name: column for column in contents}}

    @cached_property
    def _paths(self) -> tuple[TablePath, ...]:
        """The columns of the table; those of the value's fields if the configuration has none."""
        given = self._table.paths
        if not self._table.by_schema:
            return given
        value = self._known["value_decoded"]
        if value.type != "struct":
            return (*given, TablePath("value_decoded", "value_decoded"))
        names = names_of_fields(value.of, [*(one.name for one in given), self._table.day_column])
        return (
            *given,
            *(TablePath(name, "value_decoded", (one.name,)) for name, one in zip(names, value.of, strict=True)),
        )

    def _column_of(self, path: TablePath) -> Column:
        """Return the column of a path. Raises UsageError if the schemas lack the field."""
        found = self._known[path.column]
        for name in path.fields:
            among = {one.name: one for one in found.of} if found.type == "struct" else {}
            if name not in among:
                where = f"{self._settings.path}: table.{self._table.topic}.columns: {path.path}"
                known = [shown_field(one).removeprefix(".") for one in among]
                raise UsageError(
                    f"{where}: {unknown_name('field', name, known, '' if known else 'it is in no struct')}"
                )
            found = among[name]
        if path.cast:
            return Column(path.name, path.cast, "")
        return with_distinct_fields(found)._replace(name=path.name)

    @cached_property
    def schema(self) -> Any:
        return arrow_schema(map(self._column_of, self._paths))

    @cached_property
    def needed(self) -> tuple[Column, ...]:
        """The columns of the view that the rows are made of."""
        names = {path.column: None for path in self._paths}
        names |= {"timestamp_ms": None} if "timestamp" in names else {}
        if self.decoding:
            names |= dict.fromkeys(one.name for one in REJECTED if one.name in _RECORDS)
            names |= {f"{side}_{name}": None for side in self._table.sides for name in ("error", "schema_id")}
        return tuple(self._known[name] for name in names)

    @staticmethod
    def without_time(batch: Any) -> int:
        """Return how many rows of the view have a timestamp outside of the years 1 to 9999, which is null in a table."""
        if not {"timestamp", "timestamp_ms"} <= set(batch.schema.names):
            return 0
        lost = pc.and_(pc.is_null(batch.column("timestamp")), pc.is_valid(batch.column("timestamp_ms")))
        return pc.sum(lost).as_py() or 0

    def split(self, batch: Any, run: str) -> tuple[Any, Any]:
        """Return the rows of the table, and the rejected ones (None without any). Raises KsegError with undecoded = stop."""
        if self.decoding is None and not any(path.cast for path in self._paths):
            return batch.select(self.schema.names), None
        errors = self._errors(batch)
        arrays = []
        for path, field in zip(self._paths, self.schema, strict=True):
            found = batch.column(path.column)
            if path.fields:
                found = pc.struct_field(found, path.fields)
            if path.cast:
                found = _cast(found, field, errors)
            elif found.type != field.type:
                found = found.view(field.type)  # fields in it have other names
            arrays.append(found)
        keeps_errors = self._table.undecoded == "column"
        if keeps_errors:
            at = [path.column for path in self._paths].index("value_error")
            arrays[at] = pa.array(errors, pa.string())
        rows = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        if keeps_errors or not any(errors):
            return rows, None
        first = next(i for i, error in enumerate(errors) if error)
        if self._table.undecoded == "stop":
            place = f"{self._table.topic}-{batch.column('partition')[first]}: offset {batch.column('offset')[first]}"
            raise KsegError(f"{place}: {errors[first]}, and undecoded is stop")
        wrong = pa.array([error is not None for error in errors])
        return rows.filter(pc.invert(wrong)), self._rejected(batch.filter(wrong), [one for one in errors if one], run)

    def _errors(self, batch: Any) -> list[str | None]:
        columns = [batch.column(name).to_pylist() for name in _ERRORS if name in batch.schema.names]
        if not columns:
            return [None] * batch.num_rows
        return [next((f"{one}" for one in row if one), None) for row in zip(*columns, strict=True)]

    @staticmethod
    def _rejected(batch: Any, reasons: Sequence[str], run: str) -> Any:
        ids = "value_schema_id" if "value_schema_id" in batch.schema.names else "key_schema_id"
        count = batch.num_rows
        own = {"schema_id": batch.column(ids), "reason": pa.array(reasons, pa.string()), "run": pa.repeat(run, count)}
        arrays = [own[one.name] if one.name in own else batch.column(one.name) for one in REJECTED]
        return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(REJECTED))


class RejectedRows(TableRows):
    """The rows of a table of rejected records: they are as ``TableRows.split`` returns them."""

    schema = cached_property(lambda self: arrow_schema(REJECTED))


def _cast(found: Any, field: Any, errors: list[str | None]) -> Any:
    """Return an array with the type of a field; a value that cannot have it is null, and its reason is added."""
    try:
        return pc.cast(found, field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        pass
    cast = []
    for row in range(len(found)):
        try:
            cast.append(pc.cast(found.slice(row, 1), field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            cast.append(pa.nulls(1, field.type))
            errors[row] = errors[row] or f"column {field.name}: {found[row].as_py()!r} is not {field.type}"[:300]
    return pa.concat_arrays(cast)


def check_evolution(stored: Any, wanted: Any, evolve: str, shown: str) -> bool:
    """Return whether a table lacks fields of a schema. Raises UsageError with evolve = stop, and for other types."""
    added = list(_added("", stored, wanted, shown))
    if added and evolve == "stop":
        raise UsageError(f'table {shown} has no column {added[0]}: set evolve = "add", or columns')
    return bool(added)


def _added(path: str, stored: Any, wanted: Any, shown: str) -> Iterable[str]:
    """Yield the fields of a struct or schema that another one lacks, and the types that are wider. Raises UsageError."""
    known = {field.name.lower(): field for field in stored}
    for field in wanted:
        name = f"{path}{field.name}"
        own = known.get(field.name.lower())
        if own is None:
            yield name
        elif own.name != field.name:
            raise UsageError(
                f"table {shown}: column {path}{own.name} would be {name}, and tables ignore case: list the older schema "
                "before the newer one, or set columns"
            )
        else:
            yield from _changed(name, own.type, field.type, shown)


def _changed(name: str, old: Any, new: Any, shown: str) -> Iterable[str]:
    types = pa.types
    if types.is_struct(old) and types.is_struct(new):
        yield from _added(f"{name}.", list(old), list(new), shown)
    elif (types.is_list(old) or types.is_large_list(old)) and types.is_list(new):
        yield from _changed(name, old.value_type, new.value_type, shown)
    elif types.is_map(old) and types.is_map(new):
        yield from _changed(name, old.item_type, new.item_type, shown)
    elif (old, new) in ((pa.int32(), pa.int64()), (pa.float32(), pa.float64())) or (
        types.is_decimal(old) and types.is_decimal(new) and old.scale == new.scale and old.precision < new.precision
    ):
        yield name
    elif _plain(old) != _plain(new) and (old, new) not in ((pa.int64(), pa.int32()), (pa.float64(), pa.float32())):
        raise UsageError(f"table {shown}: column {name} is {old}, and would be {new}: load into a new table")


def _plain(kind: Any) -> Any:
    """Return a type without its variants: table formats return some texts as large ones, and units of their own."""
    variants = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}
    return variants.get(kind, kind)
