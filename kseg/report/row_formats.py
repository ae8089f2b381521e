"""Rows of any kind: their writers as JSON Lines and CSV, and their cells in tables. ``parquet`` writes them as Parquet.

Rows and results that several reports read, or that follow an answer, are kept: on disk if they are many.
"""

from __future__ import annotations

import base64
import codecs
import io
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby, islice
from typing import IO, TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TextIO, TypeVar

from kseg.engine import lazy
from kseg.errors import UsageError
from kseg.format.segment import records_chunk as segment_rows
from kseg.format.storage import atomic_write
from kseg.report import tables
from kseg.report.formats import View
from kseg.results import FileResult, Summary, result_rows
from kseg.schema import FINDING_COLUMNS, Column, Row, RowKind, row_maker
from kseg.text import escape_controls, is_formula, iso_time, row_to_json, to_json, unknown_name

if TYPE_CHECKING:
    import pickle

    from kseg.report.tables import TableColumn
else:
    # Importing them takes 4 ms. Few runs have results to keep, fewer have many.
    pickle = lazy("pickle")

Item = TypeVar("Item")

_CSV_SPECIAL = re.compile(r'[",\r\n]')
#: Types of columns whose cells are aligned to the right.
NUMBERS = ("int", "int32", "ms")
#: Characters of a cell. Longer texts are cut: rich needs about 80 bytes of memory per character.
_CELL_LENGTH = 10_000
#: The bytes of results that are kept in memory; more of them are kept on disk.
_IN_MEMORY = 16 * 1024 * 1024
FINDINGS = RowKind("validate", "Findings").of(
    *FINDING_COLUMNS, Column("known", "[bool]", "true if the baseline has the finding")
)
#: The largest id of a schema that is recognised. Registries count from 1; other formats often have larger numbers there.
_LARGEST_ID = 1_000_000
#: How a missing and an empty key or value is shown.
_NULL, _EMPTY = "null", '""'


class TextOutput(Protocol):
    """An output of text."""

    def write(self, text: str, /) -> object: ...


@dataclass(frozen=True, slots=True)
class RowSet:
    """Rows whose bytes are not encoded yet. ``columns`` are the columns in Parquet, and ``names`` those in CSV.

    ``kind``: of rows of several kinds, CSV has those of this one.
    """

    rows: Iterable[Row]
    columns: Sequence[Column] = ()
    names: Sequence[str] = ()
    kind: str = ""

    @classmethod
    def of(cls, columns: Sequence[Column], rows: Iterable[Row]) -> RowSet:
        """Return rows of several kinds, of which CSV has those with these columns."""
        return cls(rows, columns, csv_names(columns), columns[0].meaning)

    @classmethod
    def made(cls, columns: Sequence[Column], items: Iterable[Any]) -> RowSet:
        """Return the rows of results of one kind."""
        return cls(map(row_maker(columns), items), columns, csv_names(columns))


def csv_names(columns: Sequence[Column]) -> list[str]:
    """Return the names of the columns in CSV: each column of bytes is followed by one with their encoding."""
    encodings = {column.name: [f"{column.name}_encoding"] for column in columns if column.type == "bytes"}
    return [name for column in columns for name in (column.name, *encodings.get(column.name, ()))]


def finding_rows(results: Iterable[FileResult], total: Summary) -> RowSet:
    """Return a row per finding, and one with the summary: without the module of the table, which few runs need."""
    return RowSet.of(FINDINGS.columns, result_rows(results, total))


@dataclass(frozen=True, slots=True)
class Pieces:
    """The value of a field with a large text. ``texts`` returns the text in pieces, each time that it is called."""

    texts: Callable[[], Iterable[str]]


def write_jsonl(found: RowSet | Iterable[Row], out: TextOutput, view: View | None = None) -> None:
    for row in text_rows(found, view or View()):
        out.write(row_to_json(row) + "\n")


def chosen(found: RowSet, view: View) -> RowSet:
    """Return the rows with the columns of the view, in their order. Raises UsageError for an unknown column."""
    for name in view.columns:
        if name not in found.names:
            raise UsageError(f"--columns: {unknown_name('column', name, found.names)}")
    return replace(found, names=view.columns) if view.columns else found


def write_columns(found: RowSet, out: TextIO, view: View) -> None:
    """Write tables with the columns of the view."""
    numbers = {column.name for column in found.columns if column.type in NUMBERS}
    columns = [tables.number_column(name, name in numbers) for name in chosen(found, view).names]
    shown = (row for row in text_rows(found, view, _for_people) if found.kind in ("", row.get("kind")))
    tables.print_pages(out, columns, (([cell(row.get(one.name), one.name) for one in columns], "") for row in shown))


def write_csv(found: RowSet, out: TextOutput, view: View) -> None:
    """Write the names of the columns, unless the rows continue others, and one line per row."""
    if found.names and not view.continued:
        out.write(",".join([csv_cell(name, view) for name in found.names]) + "\n")
    for text in csv_lines(found, view):
        out.write(text)


def csv_lines(found: RowSet, view: View) -> Iterator[str]:
    """Yield one line per row; that of a row with Pieces in pieces."""
    for row in text_rows(found, view):
        if found.kind not in ("", row.get("kind")):
            continue
        values = [row.get(name) for name in found.names]
        if not any(isinstance(value, Pieces) for value in values):
            yield ",".join([csv_cell(value, view) for value in values]) + "\n"
            continue
        for i, value in enumerate(values):
            yield "," if i else ""
            yield from _csv_pieces(value, view) if isinstance(value, Pieces) else (csv_cell(value, view),)
        yield "\n"


def _for_people(data: bytes) -> tuple[str, str | None]:
    return key_text(data), segment_rows.ENCODERS["auto"](data)[1]


def text_rows(found: RowSet | Iterable[Row], view: View, auto: segment_rows.Encoder | None = None) -> Iterable[Row]:
    """Return the rows with their bytes as text, in the encoding of the view; with ``auto`` in place of that of this name."""
    if not isinstance(found, RowSet):
        return found
    if not any(column.type == "bytes" for column in found.columns):
        return found.rows
    encode = auto if auto and view.encoding == "auto" else segment_rows.ENCODERS[view.encoding]
    return (segment_rows.encoded(row, encode) for row in found.rows)


def csv_cell(value: Any, view: View) -> str:
    """Return a CSV cell: null is empty, an empty text is ``""``. Python 3.11's csv module writes both alike.

    A formula gets an apostrophe before it.
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    text = to_json(value) if isinstance(value, (dict, list)) else str(value)
    if view.terminal:
        text = escape_controls(text)
    if isinstance(value, (int, float)):
        return text
    if is_formula((text,)):
        text = "'" + text
    if text and not _CSV_SPECIAL.search(text):
        return text
    return '"' + text.replace('"', '""') + '"'


def _csv_pieces(content: Pieces, view: View) -> Iterator[str]:
    """Yield the CSV cell that ``csv_cell`` returns for a text, in pieces."""

    def texts() -> Iterable[str]:
        return map(escape_controls, content.texts()) if view.terminal else content.texts()

    plain = any(texts()) and not any(map(_CSV_SPECIAL.search, texts()))
    quote = "" if plain else '"'
    yield quote + "'" * is_formula(texts())
    for text in texts():
        yield text.replace('"', '""')
    yield quote


def table_of(fields: Iterable[Column]) -> list[TableColumn]:
    """Return the columns of a table of the fields that are shown, each with its cells."""
    return [
        field.shown
        if field.shown.cell
        else field.shown._replace(cell=partial(_value_cell, field.of_item(), field.name))
        for field in fields
        if field.shown
    ]


def _value_cell(value: Callable[[Any], Any], name: str, item: Any) -> str:
    return cell(value(item), name)


def pages(found: Iterable[Row]) -> Iterator[list[Row]]:
    """Yield the rows of one table each: of one file, and few enough to lay out at once."""
    for _, of_file in groupby(found, key=lambda row: row["file"]):
        while page := list(islice(of_file, tables.PAGE_ROWS)):
            yield page


#: The names of columns with times, in epoch milliseconds: ours, and Kafka's such as ``commitTimestamp``.
_TIMES = re.compile(r"(?:.*_)?timestamp(?:_ms)?|[a-z]+[A-Za-z]*Timestamp(?:Ms)?|delete_horizon")


def is_time(name: str) -> bool:
    """Return whether a column has times in epoch milliseconds."""
    return bool(_TIMES.fullmatch(name))


def cell(value: Any, name: str = "") -> str:
    """Return the text of a table cell: at most _CELL_LENGTH characters, followed by the whole length if it was cut.

    ``name`` is that of the column: a time is written as ISO 8601.
    """
    if value is None:
        return "-"
    if is_time(name) and isinstance(value, int) and value >= 0:
        return iso_time(value)
    if isinstance(value, bool):
        return "yes" if value else "NO" if name == "crc_valid" else "no"
    if isinstance(value, Pieces):
        return _cut(value.texts())
    return _cut((to_json(value) if isinstance(value, (dict, list)) else str(value),))


def _cut(texts: Iterable[str]) -> str:
    """Return the first _CELL_LENGTH characters of a text that comes in pieces, and its length if there are more."""
    first, length = "", 0
    for text in texts:
        first += text[: _CELL_LENGTH - len(first)]
        length += len(text)
    return escape_controls(first) + (f"… ({length:,} characters)" if length > _CELL_LENGTH else "")


class CellContent(NamedTuple):
    """A key, a value or a header's value: its first bytes, and its size. None for null."""

    data: bytes
    size: int


def content_cells(contents: Sequence[CellContent | None], encoding: str = "auto") -> tuple[str, list[str]]:
    """Return the notation of a column of keys or values, and its cells.

    The notation is empty for text, or "int64", "int32", "schema id" (of a schema registry) or the ``encoding`` if that is
    not ``auto``. A column that has both text and other bytes has text; other bytes are in hexadecimal with their size.
    """
    full = [content for content in contents if content and content.size]
    kind = _named_notation(encoding)
    if encoding == "auto" and full and not any(map(_is_text, full)):
        sizes = {content.size for content in full}
        kind = {8: "int64", 4: "int32"}.get(sizes.pop(), "") if len(sizes) == 1 else ""
        if not kind and all(map(_has_schema_id, full)):
            kind = "schema id"
    return kind, [cell_text(content, kind, encoding) for content in contents]


def content_text(content: CellContent | None, encoding: str = "auto") -> str:
    """Return a key, a value or a header's value. Bytes that are not text are in hexadecimal: no title names a number."""
    return cell_text(content, _named_notation(encoding), encoding)


def key_text(key: bytes) -> str:
    """Return a whole key, as ``content_text`` does."""
    return content_text(CellContent(key, len(key)))


def _named_notation(encoding: str) -> str:
    return encoding if encoding in ("hex", "base64") else ""


def cell_text(content: CellContent | None, kind: str, encoding: str) -> str:
    """Return a cell of a column with the notation ``kind``, as ``content_cells`` returns it."""
    if content is None:
        return _NULL
    data, size = content
    rest = f"… ({size:,} bytes)" if size > len(data) else ""
    if not size:
        return _EMPTY
    if kind == "schema id":
        return f"{int.from_bytes(data[1:5], 'big')} {_hex(CellContent(data[5:], size - 5))}"
    if kind == "hex":
        return data.hex() + rest
    if kind == "base64":
        return base64.b64encode(data).decode() + rest
    if kind:
        return str(int.from_bytes(data, "big", signed=True))
    if encoding == "utf8" or _is_text(content):
        text = escape_controls(str(data, "utf-8", "ignore" if rest else "replace")) + rest
        # Converters of Kafka Connect write the text null, which is not the value of a tombstone.
        return f'"{text}"' if text in (_NULL, _EMPTY) else text
    return _hex(content)


def _is_text(content: CellContent) -> bool:
    """Return whether bytes are UTF-8 without zeros, and with few control characters other than line breaks and tabs."""
    data, size = content
    try:
        # The last character may be cut.
        text = codecs.getincrementaldecoder("utf-8")().decode(data, final=size == len(data))
    except UnicodeDecodeError:
        return False
    if text.isprintable():
        return True
    controls = sum(character < " " and character not in "\t\r\n" for character in text)
    return "\0" not in text and controls * 4 <= len(text)


def _has_schema_id(content: CellContent) -> bool:
    """Return whether bytes begin as those of a schema registry's serializers: 0, and an id of four bytes."""
    return content.size >= 5 and not content.data[0] and 0 < int.from_bytes(content.data[1:5], "big") <= _LARGEST_ID


def _hex(content: CellContent) -> str:
    more = "…" if content.size > len(content.data) else ""
    return f"0x{content.data.hex()}{more} ({content.size:,} B)"


class Spool(Generic[Item]):
    """The items of a run that were added, in memory or on disk."""

    def __init__(self) -> None:
        self._file: IO[bytes] = io.BytesIO()

    def add(self, item: Item) -> None:
        pickle.dump(item, self._file)
        if isinstance(self._file, io.BytesIO) and self._file.tell() > _IN_MEMORY:
            on_disk = atomic_write.temporary_file()
            on_disk.write(self._file.getbuffer())
            self._file = on_disk

    def again(self) -> Iterator[Item]:
        end = self._file.tell()
        self._file.seek(0)
        while self._file.tell() < end:
            yield pickle.load(self._file)

    def close(self) -> None:
        self._file.close()


def recorded(results: Iterable[FileResult], spool: Spool[FileResult]) -> Iterator[FileResult]:
    """Yield the results and keep them, without the facts that reports do not need."""
    for result in results:
        spool.add(replace(result, facts=None))
        yield result
