"""The columns of views as types of Spark."""

from __future__ import annotations

from collections.abc import Iterable

from kseg.errors import UsageError
from kseg.schema import Column

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


def ddl(columns: Iterable[Column]) -> str:
    """Return the columns as a schema in Spark's DDL."""
    return ", ".join(f"`{column.name}` {_TYPES[column.type]}" for column in columns)


def check_types(columns: Iterable[Column], given: Iterable[tuple[str, str]]) -> None:
    """Raise UsageError for a type in a user's schema, given as (name, type) pairs, that is not the type of the column."""
    types = dict(given)
    for column in columns:
        if types[column.name] != _TYPES[column.type]:
            raise UsageError(f"column {column.name} is of type {_TYPES[column.type]}, not {types[column.name]}")
