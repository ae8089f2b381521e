"""The views of logs: their columns and readers. ``kseg.scan``, ``kseg sql`` and Spark have the same views."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kseg import schema
from kseg.errors import UsageError
from kseg.format.segment.framed_files import framing
from kseg.report.arrow_table import widened
from kseg.schema import Column
from kseg.text import unknown_name

#: Only returned if requested by name, as Spark's readers of CSV and JSON return malformed rows: rows are those of the data.
DAMAGE = Column("damage", "text", "the damage at this position; null for a row of the data")

#: Only returned if requested by name, and in the tables of ``kseg sql``: there the bytes of keys and values are text.
SIZES = (Column("key_size", "int", "bytes of the key; null if it is null"),
         Column("value_size", "int", "bytes of the value; null if it is null"))  # fmt: skip


@dataclass(frozen=True, slots=True)
class LogView:
    """A view: its columns, and "module:function" of its reader, called as ``reader(Task, Split)`` for Arrow batches.

    ``by_folder``: the reader needs all files of a folder at once.
    """

    columns: tuple[Column, ...]
    reader: str
    by_folder: bool = False


FINDINGS = "findings"
TRANSACTIONS = "transactions"
VIEWS: Mapping[str, LogView] = {
    "records": LogView(widened(schema.RECORD_TABLE), "kseg.extras.views.split_rows:read_records"),
    "batches": LogView(widened(schema.BATCH_TABLE), "kseg.extras.views.split_rows:read_batches"),
    FINDINGS: LogView(widened(schema.FINDING_TABLE), "kseg.extras.views.whole_files:read_findings", by_folder=True),
    "segments": LogView(widened(schema.SEGMENT_TABLE), "kseg.extras.views.whole_files:read_segments"),
    TRANSACTIONS: LogView(
        widened(schema.TRANSACTION_TABLE), "kseg.extras.views.whole_files:read_transactions", by_folder=True
    ),
}

_TEXT_TYPES = {"bytes": "text", "headers": "text_headers"}
#: View -> the columns that are only returned if requested by name.
ON_REQUEST: Mapping[str, tuple[Column, ...]] = {
    "records": (DAMAGE, *SIZES),
    "batches": (DAMAGE,),
    TRANSACTIONS: (DAMAGE,),
}


def columns_of(
    view: str, names: Iterable[str], *, decoded: bool = False, framed: str | None = None, sides: Iterable[str] = ()
) -> tuple[Column, ...]:
    """Return the named columns of a view, or all default columns. Raises UsageError for an unknown name.

    A ``*`` among the names means all default columns. A column that is named twice is one column. ``decoded`` adds the
    column for internal topics. ``framed`` is the value of the option ``as``: the columns are then those of that kind of
    file. ``sides`` of "key" and "value" are decoded.
    """
    default = _framed(view, framed) if framed else VIEWS[view].columns
    if decoded and view == "records":
        default = (*default, schema.DECODED)
    if view == "records":
        default = (*default, *(column for side in sides for column in schema.CONTENT_COLUMNS[side]))
    known = {column.name: column for column in (*default, *ON_REQUEST.get(view, ()))}
    wanted: list[Column] = []
    for name in names:
        if name != "*" and name not in known:
            raise UsageError(f"view {view}: {unknown_name('column', name, known)}")
        wanted += default if name == "*" else (known[name],)
    return tuple(dict.fromkeys(wanted)) or default


def _framed(view: str, name: str) -> tuple[Column, ...]:
    own = framing(name)
    if view == "records" and own.columns:
        return widened(own.columns)
    return widened(own.shallow_columns) if view == "batches" and own.columns else VIEWS[view].columns


def as_text(columns: Iterable[Column]) -> tuple[Column, ...]:
    """Return the columns with text instead of bytes: UTF-8 as it is, other bytes in base64."""
    return tuple(column._replace(json=_TEXT_TYPES.get(column.type, column.type)) for column in columns)
