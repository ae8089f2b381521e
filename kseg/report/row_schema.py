"""The JSON Schema of the rows of each command, from the declarations of their fields."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from kseg.engine import imported
from kseg.errors import UsageError
from kseg.extras.wire import unframed
from kseg.extras.wire.connections import FRAME_COLUMNS
from kseg.extras.wire.produce_verdict import VERDICT_COLUMNS
from kseg.format.sidefiles.registry import COMMON, SIDE_FILES
from kseg.report import row_formats
from kseg.results import COUNTS
from kseg.schema import BATCH_COLUMNS, CONTENT_COLUMNS, DECODED, RECORD_COLUMNS, SEARCH_COLUMNS, Column, Row, RowKind
from kseg.text import one_of

#: Raise it with each change of the rows, and name the change in CHANGES.md.
VERSION = 21
#: The modules that declare rows, in the order of the documentation.
_DECLARED = (
    "effective_report",
    "stats_rows",
    "diff_report",
    "diff_keys_report",
    "diff_metadata_report",
    "doctor_report",
    "recovery_report",
    "repair_report",
    "convert_report",
    "adopt_report",
    "tier_report",
    "carve_report",
    "transactions_report",
    "lag_report",
    "schemas_report",
    "rules_report",
    "pipeline_report",
)
# A message outside of a log lacks an offset, and its CRC can have 64 bits.
_UNPLACED = {
    "offset": Column("offset", "int?", "null for a message that is in no compressed message"),
    "last_offset": Column("last_offset", "int?", "null for a message that is in no compressed message"),
    "crc": Column("crc", "int", "the stored CRC"),
}
_MESSAGE, _BARE = (
    tuple(_UNPLACED.get(one.name, one) for one in columns) for columns in (unframed.WIDE_COLUMNS, BATCH_COLUMNS)
)
_IN_FRAME = tuple(
    column._replace(json=f"[{column.json.strip('[]')}]") for column in (FRAME_COLUMNS[7], *FRAME_COLUMNS[11:])
)
_RECORD = (
    *RECORD_COLUMNS,
    DECODED,
    *(column for side in ("key", "value") for column in CONTENT_COLUMNS[side]),
    *_IN_FRAME,
)
_SUMMARY = (
    Column("kind", "text", "summary"),
    *(Column(name, "count?" if name == "records" else "count", meaning) for name, meaning in COUNTS.items()),
    Column("verdict", "text", "of all files together", values=("sound", "damaged", "undetermined")),
    Column("rules", "map", "findings by rule, also those beyond `--limit`", of=(Column("", "count", "findings"),)),
    Column(
        "produce_outcomes",
        "[map]",
        "with `--as requests`: record sets by verdict",
        of=(Column("", "count", "record sets"),),
    ),
    Column("produce_verdicts", "[objects]", "with `--as requests`: the verdicts on record sets", of=VERDICT_COLUMNS),
)
#: The rows whose writers do not need a declaration: they are compiled, or have one row per line of their source.
_ROWS = (
    RowKind("dump", "Batches", "without `--deep`").of(*BATCH_COLUMNS, *_IN_FRAME),
    RowKind("dump", "Records", "with `--deep`").of(*_RECORD),
    RowKind("dump", "Requests and responses", "with `--as requests` and `--as responses`").of(*FRAME_COLUMNS[:11]),
    RowKind("dump", "Messages with a CRC of 64 bits", "with `--deep --as wide-crc`").of(*_MESSAGE),
    RowKind("dump", "Messages without an offset", "with `--as message` and `--as wide-crc`").of(*_BARE),
    *(
        RowKind("dump", f"{side.title[:1].upper()}{side.title[1:]}").of(side.kind, *COMMON[1:], *side.columns)
        for side in SIDE_FILES
    ),
    RowKind("grep", "Found records").of(*_RECORD, *SEARCH_COLUMNS),
    row_formats.FINDINGS,
    RowKind("validate", "Summary of a validation", "the last row").of(*_SUMMARY),
)
_RANGES = {
    "int": (-(2**63), 2**63 - 1),
    "ms": (-(2**63), 2**63 - 1),
    "count": (0, 2**63 - 1),
    "int32": (-(2**31), 2**31 - 1),
}
_NAMES = {"text": "string", "bytes": "string", "bool": "boolean", "float": "number"}
_HEADER = (Column("key", "text", "the key of the header"), Column("value", "bytes?", "the value of the header"))


def row_kinds() -> list[RowKind]:
    return [*_ROWS, *(kind for module in _DECLARED for kind in imported(f"kseg.report.{module}:ROW_KINDS"))]


def row_schema(command: str | None = None) -> Row:
    """Return the JSON Schema (draft 2020-12) of the rows that a command writes with ``--format jsonl``.

    Parameters:
        command: such as "validate"; None for the rows of any command.

    Raises UsageError for a command without such rows.
    """
    kinds = row_kinds()
    commands = list(dict.fromkeys(kind.command for kind in kinds))
    if command is not None and command not in commands:
        raise UsageError(f"no JSON Schema for {command}: expected {one_of(commands)}")
    wanted = commands if command is None else [command]
    definitions: Row = {}
    for name in wanted:
        of_command = {
            f"{name}.{kind.title.lower().replace(' ', '-')}": _object(kind.columns, kind.title)
            for kind in kinds
            if kind.command == name
        }
        definitions[name] = {"anyOf": [{"$ref": f"#/$defs/{row}"} for row in of_command]}
        definitions |= of_command
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:kseg:rows:{VERSION}" + (f":{command}" if command else ""),
        "anyOf": [{"$ref": f"#/$defs/{name}"} for name in wanted],
        "$defs": definitions,
    }


def _object(columns: Iterable[Column], title: str = "") -> Row:
    columns = tuple(columns)
    return {
        **({"title": title} if title else {}),
        "type": "object",
        "properties": dict(_properties(columns)),
        "required": [column.name for column in columns if not column.json.startswith("[")],
        "additionalProperties": False,
    }


def _properties(columns: Iterable[Column]) -> Iterator[tuple[str, Row]]:
    for column in columns:
        found = _property(column)
        yield column.name, {"description": column.meaning, **found} if column.name != "kind" else found
        if column.json.strip("[?]") == "bytes":
            yield f"{column.name}_encoding", {"const": "base64"}


def _property(column: Column) -> Row:
    base = column.json.strip("[?]")
    if base == "json":
        return {}
    found: Row
    values = column.values or ((column.meaning,) if column.name == "kind" else ())
    if isinstance(values, range):
        found = {"type": "integer", "minimum": values[0], "maximum": values[-1]}
    elif values:
        found = {"type": "string", "enum": [*values]}
    elif base in _RANGES:
        found = {"type": "integer", **dict(zip(("minimum", "maximum"), _RANGES[base], strict=True))}
    elif base == "object":
        found = _object(column.of) if column.of else {"type": "object"}
    elif base == "map":
        found = {"type": "object", "additionalProperties": _item(column.of)}
    elif base in ("objects", "headers"):
        found = {"type": "array", "items": _item(column.of or _HEADER)}
    elif base in ("texts", "ints"):
        found = {"type": "array", "items": {"type": "string" if base == "texts" else "integer"}}
    else:
        found = {"type": _NAMES[base]}
    if column.json.strip("[]").endswith("?"):
        found["type"] = [found["type"], "null"]
        if "enum" in found:
            found["enum"].append(None)
    return found


def _item(columns: tuple[Column, ...]) -> Any:
    """Return the schema of an object, or of the value that the only column without a name describes."""
    return _property(columns[0]) if not columns[0].name else _object(columns)
