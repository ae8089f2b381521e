"""The tables that a log is seen as: their columns, and their types in Spark."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence

from kseg.errors import UsageError
from kseg.frames.framings import framing
from kseg.log import rows
from kseg.log.rows import Column
from kseg.output.arrow_rows import widened

#: Null in the row of a record; in permissive mode damage has a row of its own.
_DAMAGE = Column("damage", "text", "what is wrong at this position; null for a record")

#: Of a record, given where it is asked for by name: to know it, the markers of a partition are looked for at planning.
TRANSACTION_STATE = Column("transaction_state", "text", "committed, aborted or open; null outside transactions")

FINDINGS = "findings"
VIEWS: Mapping[str, tuple[Column, ...]] = {
    "records": widened((*rows.RECORD_TABLE, _DAMAGE)),
    "batches": widened(rows.BATCH_TABLE),
    FINDINGS: widened(rows.FINDING_TABLE),
    "segments": widened(rows.SEGMENT_TABLE),
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
    schema: Iterable[tuple[str, str]] | None = None,
    *,
    decoded: bool = False,
    framed: str | None = None,
) -> tuple[Column, ...]:
    """The columns of a view that are named, all of them when none is; ``schema`` has names and types. Raises UsageError.

    A ``*`` among the names is all that are there when none is named. ``decoded``: records have that column, too. ``framed``
    is what files are read as that are no log: then they have that framing's columns.
    """
    there = _framed(view, framed) if framed else VIEWS[view]
    if decoded and view == "records":
        there = (*there, rows.DECODED)
    known = {column.name: column for column in (*there, *_ON_REQUEST.get(view, ()))}
    if "*" in names:
        at = names.index("*")
        names = [*names[:at], *(column.name for column in there), *names[at + 1 :]]
    wanted = [(name, None) for name in names] if schema is None else list(schema)
    for name, kind in wanted:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            raise UsageError(f"view {view} has no column {name!r}{f': did you mean {near[0]}?' if near else ''}")
        if kind is not None and kind != _TYPES[known[name].type]:
            raise UsageError(f"column {name} is of type {_TYPES[known[name].type]}, not {kind}")
    return tuple(known[name] for name, _ in wanted) or there


def _framed(view: str, name: str) -> tuple[Column, ...]:
    own = framing(name)
    if view == "records" and own.columns:
        return (*widened(own.columns), _DAMAGE)
    return widened(own.shallow_columns) if view == "batches" and own.columns else VIEWS[view]


def ddl(columns: Iterable[Column]) -> str:
    """The columns as Spark's schema text."""
    return ", ".join(f"`{column.name}` {_TYPES[column.type]}" for column in columns)
