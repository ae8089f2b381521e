"""The views of a log in Spark: their columns and types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kseg import schema
from kseg.errors import UsageError
from kseg.format.wire.framings import framing
from kseg.report.arrow_rows import widened
from kseg.schema import Column
from kseg.text import unknown_name

#: Null for records; in permissive mode damage is a separate row.
_DAMAGE = Column("damage", "text", "the damage at this position; null for a record")

#: Only returned if requested by name: it needs all transaction markers of a partition at planning.
TRANSACTION_STATE = Column("transaction_state", "text", "committed, aborted or open; null outside transactions")


@dataclass(frozen=True, slots=True)
class LogView:
    """A view: its columns, and "module:function" of its reader, called as ``reader(Task, Split)`` for Arrow batches."""

    columns: tuple[Column, ...]
    reader: str


FINDINGS = "findings"
VIEWS: Mapping[str, LogView] = {
    "records": LogView(widened((*schema.RECORD_TABLE, _DAMAGE)), "kseg.spark.source.reading:read_records"),
    "batches": LogView(widened(schema.BATCH_TABLE), "kseg.spark.source.reading:read_batches"),
    FINDINGS: LogView(widened(schema.FINDING_TABLE), "kseg.spark.source.reading:read_findings"),
    "segments": LogView(widened(schema.SEGMENT_TABLE), "kseg.spark.source.reading:read_segments"),
}

_ON_REQUEST: Mapping[str, tuple[Column, ...]] = {"records": (TRANSACTION_STATE,)}

_TYPES = {
    "int": "bigint",
    "int32": "int",
    "timestamp": "timestamp",
    "bool": "boolean",
    "text": "string",
    "texts": "array<string>",
    "ints": "array<bigint>",
    "bytes": "binary",
    "headers": "array<struct<key:string,value:binary>>",
    "object": "string",
}


def columns_of(
    view: str,
    names: Sequence[str],
    user_schema: Iterable[tuple[str, str]] | None = None,
    *,
    decoded: bool = False,
    framed: str | None = None,
) -> tuple[Column, ...]:
    """Return the named columns of a view, or all default columns. ``user_schema`` has (name, type) pairs. Raises UsageError.

    A ``*`` among the names means all default columns. ``decoded`` adds the column for internal topics. ``framed`` is the
    value of the option ``as``: the columns are then those of that kind of file.
    """
    there = _framed(view, framed) if framed else VIEWS[view].columns
    if decoded and view == "records":
        there = (*there, schema.DECODED)
    known = {column.name: column for column in (*there, *_ON_REQUEST.get(view, ()))}
    if "*" in names:
        at = names.index("*")
        names = [*names[:at], *(column.name for column in there), *names[at + 1 :]]
    wanted = [(name, None) for name in names] if user_schema is None else list(user_schema)
    for name, kind in wanted:
        if name not in known:
            raise UsageError(f"view {view}: {unknown_name('column', name, known)}")
        if kind is not None and kind != _TYPES[known[name].type]:
            raise UsageError(f"column {name} is of type {_TYPES[known[name].type]}, not {kind}")
    return tuple(known[name] for name, _ in wanted) or there


def _framed(view: str, name: str) -> tuple[Column, ...]:
    own = framing(name)
    if view == "records" and own.columns:
        return (*widened(own.columns), _DAMAGE)
    return widened(own.shallow_columns) if view == "batches" and own.columns else VIEWS[view].columns


def ddl(columns: Iterable[Column]) -> str:
    """Return the columns as a schema in Spark's DDL."""
    return ", ".join(f"`{column.name}` {_TYPES[column.type]}" for column in columns)
