"""The views of logs: their columns and readers. ``kseg.scan``, ``kseg sql`` and Spark have the same views."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from kseg import schema
from kseg.errors import UsageError
from kseg.findings import do_nothing
from kseg.format.segment.framed_files import framing
from kseg.format.sidefiles.registry import every_file, find_files
from kseg.format.storage.segment_files import SegmentFile, find_in_use, find_segments
from kseg.report import lag_report, schemas_report
from kseg.report.arrow_table import widened
from kseg.schema import Column
from kseg.text import unknown_name

#: Only returned if requested by name, as Spark's readers of CSV and JSON return malformed rows: rows are those of the data.
DAMAGE = Column("damage", "text", "the damage at this position; null for a row of the data")
#: What precedes the reason why a file was not read, in that column.
UNREAD = "unread: "

#: Only returned if requested by name, and in the tables of ``kseg sql``, where ``key``, ``value`` and ``headers`` are text.
OF_CONTENTS = (
    Column("key_size", "int", "bytes of the key; null if it is null"),
    Column("value_size", "int", "bytes of the value; null if it is null"),
    Column("headers_size", "int", "bytes of the keys and values of the headers"),
    Column("key_encoding", "text", "base64 where the key is not UTF-8 and `key` as text is base64; else null"),
    Column("value_encoding", "text", "base64 where the value is not UTF-8 and `value` as text is base64; else null"),
    Column("key_bytes", "bytes", "the bytes of the key"),
    Column("value_bytes", "bytes", "the bytes of the value"),
    Column("headers_bytes", "headers", "the headers with the bytes of their values"),
)
#: Only returned if requested by name, and in the tables of ``kseg sql``: compressed v0 and v1 messages are opened for it.
FIRST_OFFSET = Column(
    "first_offset", "int", "first offset, also of a compressed v0 or v1 message; null if that cannot be opened"
)
_BYTES = "_bytes"


@dataclass(frozen=True, slots=True)
class LogView:
    """A view: its columns, and "module:function" of its reader, called as ``reader(Task, Split)``.

    The reader of a view of BATCHES returns Arrow batches, that of another one rows by value. It needs one ``unit`` at once:
    BATCHES, a FILE, all files of a FOLDER, or ALL files. ``find`` lists the files of a path.
    """

    columns: tuple[Column, ...]
    reader: str
    unit: str = "batches"
    find: Callable[[str], Iterator[SegmentFile]] = find_in_use


BATCHES, FILE, FOLDER, ALL = "batches", "file", "folder", "all"
FILES = (
    *schema.PLACE_COLUMNS,
    Column("file", "text", "the path as it was given"),
    Column("kind", "text", "segment, or the kind of side file; null for other files"),
    Column("state", "text", "such as: about to be deleted; null for a file in use"),
    Column("base_offset", "int", "from the name; null without one"),
    Column("size", "int", "bytes of the file; null if it is compressed"),
    Column("modified_timestamp", "ms", "when the file was last written; null at a URL"),
)
TOPICS = (
    Column("topic", "text", "name of the topic"),
    Column("topic_id", "text", "id of the topic, from the cluster metadata or from `partition.metadata`"),
    Column("partitions", "int", "number of partitions in the cluster metadata; without that log, in the folders"),
    Column("replicas", "int", "number of partition folders"),
    Column("segments", "int", "number of segments in them"),
    Column("size", "int", "bytes of these segments"),
    Column("is_deleted", "bool", "whether the cluster metadata or the names of folders say that it was deleted"),
    Column("configs", "object", "the topic's own settings; null without the cluster metadata"),
)
#: The columns of ``kseg schemas`` but those that only its options fill.
SCHEMAS = tuple(column for column in schemas_report.FIELDS.columns if column.name not in ("kind", "registry"))
FINDINGS = "findings"
TRANSACTIONS = "transactions"
VIEWS: Mapping[str, LogView] = {
    "records": LogView(widened(schema.RECORD_TABLE), "kseg.extras.views.split_rows:read_records"),
    "batches": LogView(widened(schema.BATCH_TABLE), "kseg.extras.views.split_rows:read_batches"),
    FINDINGS: LogView(
        widened(schema.FINDING_TABLE),
        "kseg.extras.views.whole_files:read_findings",
        FOLDER,
        partial(find_files, unknown=do_nothing),
    ),
    "segments": LogView(widened(schema.SEGMENT_TABLE), "kseg.extras.views.whole_files:read_segments", FILE),
    TRANSACTIONS: LogView(widened(schema.TRANSACTION_TABLE), "kseg.extras.views.whole_files:read_transactions", FOLDER),
    "groups": LogView(
        widened(lag_report.FIELDS.columns[1:]), "kseg.extras.views.whole_files:read_groups", ALL, find_segments
    ),
    "schemas": LogView(widened(SCHEMAS), "kseg.extras.views.whole_files:read_schemas", ALL, find_segments),
    "topics": LogView(widened(TOPICS), "kseg.extras.views.whole_files:read_topics", ALL, find_segments),
    "files": LogView(widened(FILES), "kseg.extras.views.whole_files:read_files", FOLDER, every_file),
}

_TEXT_TYPES = {"bytes": "text", "headers": "text_headers"}
#: View -> the columns that are only returned if requested by name.
ON_REQUEST: Mapping[str, tuple[Column, ...]] = {
    "records": (DAMAGE, *OF_CONTENTS, schema.DECODED),
    "batches": (DAMAGE, FIRST_OFFSET),
    **dict.fromkeys((TRANSACTIONS, "groups", "schemas"), (DAMAGE,)),
}


def columns_of(
    view: str,
    names: Iterable[str],
    *,
    decoded: bool = False,
    framed: str | None = None,
    contents: Iterable[Column] = (),
) -> tuple[Column, ...]:
    """Return the named columns of a view, or all default columns. Raises UsageError for an unknown name.

    A ``*`` among the names means all default columns. A column that is named twice is one column. ``decoded`` adds the
    column for internal topics. ``framed`` is the value of the option ``as``: the columns are then those of that kind of
    file. ``contents`` are the columns of decoded keys and values.
    """
    default = _framed(view, framed) if framed else VIEWS[view].columns
    if view == "records":
        default = (*default, *((schema.DECODED,) if decoded else ()), *contents)
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
    """Return the columns with text instead of bytes: UTF-8 as it is, other bytes in base64. Columns ``…_bytes`` stay."""
    return tuple(
        column if column.name.endswith(_BYTES) else column._replace(json=_TEXT_TYPES.get(column.type, column.type))
        for column in columns
    )
