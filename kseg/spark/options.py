"""The options of ``spark.read``: parsing, checks, and narrowing by pushed filters.

Spark passes options as text with case-insensitive names. Names are those of ``kseg dump`` where it has the option.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from kseg.errors import UsageError
from kseg.extras.serialization.decoding import FieldDecoder
from kseg.extras.serialization.record_decoder import DecodeSettings, with_types
from kseg.extras.views.planning import Request, matching, topics_in
from kseg.extras.views.split_rows import NO_NOTICES, Notices
from kseg.extras.views.view_table import ALL, VIEWS, columns_of
from kseg.findings import do_nothing
from kseg.format.record.layout import ISOLATIONS, READ_UNCOMMITTED
from kseg.format.segment.framed_files import FRAMINGS
from kseg.format.segment.row_filter import RowFilter
from kseg.format.storage import file_access
from kseg.format.storage.file_access import parse_rate
from kseg.format.storage.naming import INTERNAL_TOPICS
from kseg.format.storage.segment_files import without_unused
from kseg.format.storage.source import BY_FOLDER, STDIN
from kseg.schema import DECODED, Column
from kseg.text import milliseconds, parse_offsets, parse_time, unknown_name

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
    "float": "double",
    "float32": "float",
    "date": "date",
    "timestamp_ntz": "timestamp_ntz",
}


def ddl(columns: Iterable[Column]) -> str:
    """Return the columns as a schema in Spark's DDL."""
    return ", ".join(f"{_quoted(column.name)} {_type(column, _quoted)}" for column in columns)


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _type(column: Column, name_of: Callable[[str], str] = str) -> str:
    """Return the type of a column in Spark's DDL; with names as they are, it is what Spark prints."""
    inner = [_type(one, name_of) for one in column.of]
    if column.type == "struct":
        fields = [f"{name_of(one.name)}:{kind}" for one, kind in zip(column.of, inner, strict=True)]
        return f"struct<{','.join(fields)}>"
    if column.type in ("list_of", "map_of"):
        return f"{'array' if column.type == 'list_of' else 'map'}<{','.join(inner)}>"
    return _TYPES.get(column.type, column.type)  # decimal(p,s) is the same


def check_types(columns: Iterable[Column], given: Iterable[tuple[str, str]]) -> None:
    """Raise UsageError for a type in a user's schema, given as (name, type) pairs, that is not the type of the column."""
    types = dict(given)
    for column in columns:
        if types[column.name] != _type(column):
            raise UsageError(f"column {column.name} is of type {_type(column)}, not {types[column.name]}")


NO_DECODING = "none"
MODES = ("permissive", "dropmalformed", "failfast")
STARTS = ("earliest", "latest")
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class Options(Request):
    """Checked options: those of any reader, and Spark's own.

    ``pushdown`` is opt-in. Spark (seen up to 4.3) keeps the filtered reader of a source for later queries of the same
    DataFrame, and lets all scans of one plan read with the filters of the last one: rows would be missing.
    ``ignore_unreadable`` continues without the bytes that could not be read; by default the task fails. ``max_rate`` is the
    number of bytes per second that each task reads at most. ``keys`` are the paths of private keys of encrypted objects.

    The last four are of streams only, named as in Spark's Kafka source. At most one limit per trigger is set.
    """

    pushdown: bool = False
    ignore_unreadable: bool = False
    max_rate: float | None = None
    keys: tuple[str, ...] = ()
    starting: str = STARTS[0]
    fail_on_data_loss: bool = True
    max_offsets: int | None = None
    max_bytes: int | None = None

    def file_access(self) -> AbstractContextManager[None]:
        """Return a block in which files are read within the rate of a task, and encrypted objects with the keys."""
        return file_access.file_access(max_rate=self.max_rate, keys=self.keys)

    @property
    def notices(self) -> Notices:
        """The reaction of a task to files that cannot be read."""
        return Notices(unread=do_nothing) if self.ignore_unreadable else NO_NOTICES


def parse(given: Mapping[str, str], schema: Sequence[tuple[str, str]] | None = None) -> Options:
    """Parse the options of a reader. ``schema`` has the (name, type) pairs of a user's schema. Raises UsageError."""
    options = {name.lower(): value for name, value in given.items()}
    if "owner" in options:
        # Spark (seen up to 4.3) creates the table, and then reads it without its options and its location.
        raise UsageError(
            "Spark passes no path to a table: CREATE TEMPORARY VIEW name USING kseg OPTIONS (path '…') works"
        )
    for name in options:
        if name not in _KNOWN:
            raise UsageError(unknown_name("option", name, _KNOWN))
    paths = _paths(options)
    if not paths:
        raise UsageError("no path: give load() a segment, a partition folder, a log directory or a URL")
    if STDIN in paths:
        raise UsageError("Spark cannot read standard input: give load() files, folders or URLs")
    view = _choice("view", options, tuple(VIEWS), "records")
    first, end = _parsed("offsets", options, parse_offsets) or (None, None)
    for name in ("topics", "partitions") if VIEWS[view].unit == ALL else ():
        if name in options:
            raise UsageError(f"option {name}: view {view} reads the files of all topics; use where() on its rows")
    framing = _choice("as", options, tuple(FRAMINGS), "") if "as" in options else None
    if framing:
        _refuse_beside_a_framing(options, framing, view)
    names = _list(options.get("columns")) if schema is None else [name for name, _ in schema]
    default = BY_FOLDER if DECODED.name in names else NO_DECODING
    decode_as: str | None = _choice("decode", options, (NO_DECODING, BY_FOLDER, *INTERNAL_TOPICS), default)
    decode_as = None if decode_as == NO_DECODING else decode_as
    decoding = _decoding(options)
    topics = _set(_list(options.get("topics")))
    if decoding:
        decoding = with_types(decoding, lambda: topics or topics_in(paths))
    contents = decoding.columns if decoding else ()
    columns = columns_of(view, names, decoded=decode_as is not None, framed=framing, contents=contents)
    if schema:
        check_types(columns, schema)
    return Options(
        paths=tuple(paths),
        view=view,
        columns=columns,
        decode_as=decode_as,
        decoding=decoding,
        framing=framing,
        requests=options.get("requests"),
        mode=_choice("mode", options, MODES, "permissive"),
        isolation=_choice("isolation", options, ISOLATIONS, READ_UNCOMMITTED),
        limits=RowFilter(
            first,
            end,
            _parsed("since", options, parse_time),
            _parsed("until", options, parse_time),
            topics=topics,
            partitions=_set([_int("partitions", text) for text in _list(options.get("partitions"))]),
        ),
        verify_crc=_flag("verifycrc", options, default="true"),
        split_bytes=_size("splitbytes", options),
        inventory=options.get("inventory"),
        pushdown=_flag("pushdown", options),
        ignore_unreadable=_flag("ignoreunreadable", options),
        max_rate=_parsed("maxrate", options, parse_rate),
        keys=_keys(options),
        starting=_choice("startingoffsets", options, STARTS, STARTS[0]),
        fail_on_data_loss=_flag("failondataloss", options, default="true"),
        max_offsets=_size("maxoffsetspertrigger", options),
        max_bytes=_size("maxbytespertrigger", options),
    )


def _keys(options: Mapping[str, str]) -> tuple[str, ...]:
    """Return the paths of private keys. Raises UsageError for one that is missing."""
    keys = tuple(_list(options.get("kek")))
    for key in keys:
        if not os.path.exists(key):
            raise UsageError(f"option kek: {key}: No such file or directory")
    return keys


def _paths(options: Mapping[str, str]) -> list[str]:
    """Return the paths: Spark passes one as ``path``, several as JSON in ``paths``. Patterns are expanded."""
    if "paths" not in options:
        paths: list[str] = [options["path"]] if "path" in options else []
    else:
        try:
            paths = json.loads(options["paths"])
        except ValueError:
            raise UsageError("option paths is reserved for Spark: give paths to load()") from None
    return without_unused(found for path in paths for found in _matches(path))


def _matches(path: str) -> list[str]:
    """Return the paths that a pattern matches, or the path. Of a ``file:`` URL it is the local path, as in Spark."""
    return matching(unquote(urlsplit(path).path) if path[:5].lower() == "file:" else path)


def _decoding(options: Mapping[str, str]) -> DecodeSettings | None:
    """Return how keys and values are decoded, None if no option says so. Raises UsageError for an unknown name."""
    if not any(name in options for name in _OF_CONTENTS):
        return None
    key_as, value_as = options.get("keyas"), options.get("valueas")
    for side, name in (("key", key_as), ("value", value_as)):
        if name is not None:
            FieldDecoder(side, name)
    return DecodeSettings(
        key_as,
        value_as,
        schema_files=tuple(_list(options.get("schemafiles"))),
        schemas=tuple(_list(options.get("schemas"))),
        registry=options.get("registry"),
    )


_OF_CONTENTS = ("keyas", "valueas", "schemas", "schemafiles", "registry")
_OF_LOGS = (*_OF_CONTENTS, "decode", "isolation", "topics", "partitions", "offsets", "since", "until", "inventory")


def _refuse_beside_a_framing(options: Mapping[str, str], framing: str, view: str) -> None:
    """Raise UsageError for options that apply to logs only."""
    refused = next((name for name in _OF_LOGS if name in options), "view" if view == "segments" else None)
    if refused:
        raise UsageError(f"option {refused} cannot be combined with option as, which is for files that are not logs")
    if "requests" in options and (framing != "responses" or "paths" in options):
        raise UsageError("option requests: expected the file of requests for one file of responses")


_KNOWN = (
    "path", "paths", "view", "columns", "as", "requests", *_OF_LOGS, "mode", "verifycrc", "splitbytes", "pushdown",
    "ignoreunreadable", "maxrate", "kek",
    "startingoffsets", "failondataloss", "maxoffsetspertrigger", "maxbytespertrigger",
)  # fmt: skip


def _choice(name: str, options: Mapping[str, str], choices: tuple[str, ...], default: str) -> str:
    value = options.get(name, default).lower()
    if value not in choices:
        raise UsageError(f"option {name}: {unknown_name('value', value, choices)}")
    return value


def _flag(name: str, options: Mapping[str, str], default: str = "false") -> bool:
    return _choice(name, options, ("true", "false"), default) == "true"


def _list(text: str | None) -> list[str]:
    return [item.strip() for item in (text or "").split(",") if item.strip()]


def _set(values: list[Any]) -> frozenset[Any] | None:
    return frozenset(values) or None


def _int(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"option {name}: expected a number, got {text!r}") from None


def _size(name: str, options: Mapping[str, str]) -> int | None:
    if name not in options:
        return None
    size = _int(name, options[name])
    if size < 1:
        raise UsageError(f"option {name}: expected at least 1, got {size}")
    return size


def _parsed(name: str, options: Mapping[str, str], parse: Callable[[str], _Value]) -> _Value | None:
    try:
        return parse(options[name]) if name in options else None
    except ValueError as error:
        raise UsageError(f"option {name}: {error}") from None


def apply_filters(limits: RowFilter, filters: Iterable[Filter]) -> RowFilter:
    """Narrow the limits by pushed filters. Rows that pass all filters also pass the result; other filters are ignored."""
    for condition in filters:
        name = ".".join(getattr(condition, "attribute", ()))
        bounds = _BOUNDS.get(type(condition))
        if name in _SETS and isinstance(condition, (EqualTo, EqualNullSafe, In)):
            values = condition.value if isinstance(condition, In) else (condition.value,)
            bound: dict[str, Any] = {_SETS[name]: frozenset(values)}
            limits = limits.both(RowFilter(**bound))
        elif name in _RANGES and bounds is not None:
            values = condition.value if isinstance(condition, In) else (condition.value,)  # type: ignore[attr-defined]
            numbers = [milliseconds(value) if isinstance(value, datetime) else value for value in values]
            # A time between two milliseconds is rounded down, so the bound is exclusive by one.
            first, end = bounds([number for number in numbers if isinstance(number, int)], name == "timestamp")
            low, high = _RANGES[name]
            bound = {low: first, high: end}
            limits = limits.both(RowFilter(**bound))
    return limits


_SETS = {"topic": "topics", "partition": "partitions"}
_RANGES = {
    "offset": ("first_offset", "end_offset"),
    "timestamp": ("since", "until"),
    "timestamp_ms": ("since", "until"),
}
_Bounds = Callable[[list[int], bool], tuple[int | None, int | None]]


def _between(numbers: list[int], rounded: bool) -> tuple[int | None, int | None]:
    return (min(numbers), max(numbers) + 1) if numbers else (None, None)


_BOUNDS: Mapping[type[Filter], _Bounds] = {
    EqualTo: _between,
    EqualNullSafe: _between,
    In: _between,
    GreaterThan: lambda numbers, rounded: (min(numbers) + (not rounded), None) if numbers else (None, None),
    GreaterThanOrEqual: lambda numbers, rounded: (min(numbers), None) if numbers else (None, None),
    LessThan: lambda numbers, rounded: (None, max(numbers) + rounded) if numbers else (None, None),
    LessThanOrEqual: lambda numbers, rounded: (None, max(numbers) + 1) if numbers else (None, None),
}
