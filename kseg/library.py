"""The public functions over whole files: ``validate``, ``scan``, and iterators over side files and over requests."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from kseg import schema
from kseg.commands.dump import framed_dump
from kseg.commands.validate.folder_checks import check_folders
from kseg.commands.validate.validate_ranges import validate_files
from kseg.engine import lazy
from kseg.errors import UnreadableError, UsageError
from kseg.extras.serialization.record_decoder import DecodeSettings, record_decoder, with_types
from kseg.extras.views import planning, split_rows, view_table
from kseg.findings import Finding, Report, Verdict, do_nothing
from kseg.format.record.layout import ISOLATIONS, READ_UNCOMMITTED
from kseg.format.segment.framed_files import FRAMINGS
from kseg.format.segment.row_filter import RowFilter
from kseg.format.sidefiles.registry import find_files, recognise
from kseg.format.storage.source import SegmentFile, is_folder, open_source
from kseg.report import arrow_table
from kseg.report.arrow_table import pa
from kseg.results import FileResult, Settings, Summary
from kseg.text import parse_offsets, parse_time, unknown_name


@dataclass(frozen=True, slots=True)
class Validation:
    """The result of ``validate``: the results of all files, in the order of the folders, and their sum."""

    files: tuple[FileResult, ...]
    summary: Summary

    @property
    def verdict(self) -> str:
        """``sound`` without errors, ``damaged`` with one; ``undetermined`` if something was not read or not checked."""
        return self.summary.verdict

    @property
    def findings(self) -> tuple[Verdict, ...]:
        """The findings of all files: the first ``Settings.max_per_rule`` of each rule and file; ``summary`` counts all."""
        return tuple(verdict for file in self.files for verdict in file.verdicts)

    @property
    def unread(self) -> Mapping[str, str]:
        """The files that could not be read, with the reason of each."""
        return {file.file: file.unread for file in self.files if file.unread}

    def to_arrow(self) -> pa.RecordBatch:
        """Return the findings as one Arrow batch with the columns of Spark's ``findings`` view.

        Raises UsageError if pyarrow is not installed.
        """
        columns = arrow_table.widened(schema.FINDING_TABLE)
        return arrow_table.from_rows(columns, [verdict.as_row() for verdict in self.findings])


def validate(path: str | os.PathLike[str], *, settings: Settings | None = None, jobs: int = 1) -> Validation:
    """Run every check of ``kseg validate`` over a file, a partition folder, a log directory or an fsspec URL.

    Files of a local folder are also checked against each other. ``settings`` says what to check and which severity each
    rule has; None is the default of the command line. ``jobs`` is the maximum number of processes.

    Raises UnreadableError if a folder cannot be listed or if no file is found in it, or if the one file that ``path`` names
    cannot be read or is not a segment. A file in a folder that cannot be read does not raise: see ``Validation.unread``.
    """
    name = os.fspath(path)
    settings = settings or Settings()
    folder = is_folder(name)
    files = list(find_files(name, do_nothing))
    found = validate_files(files, settings, jobs)
    found = check_folders(files, settings, found)
    results = tuple(result for result in found if not result.vanished)
    if len(files) == 1 and not folder and results and results[0].unread:
        raise UnreadableError(results[0].unread)
    total = Summary()
    for result in results:
        total.add(result.summary)
    return Validation(results, total)


if TYPE_CHECKING:
    from kseg.extras.views.scan import Scan
else:
    Scan = lazy("kseg.extras.views.scan", "Scan")  # needs pyarrow

Path = str | os.PathLike[str]
Time = int | str | datetime


def scan(
    path: Path | Sequence[Path],
    view: str = "records",
    *,
    columns: Sequence[str] = (),
    text: bool = False,
    offsets: str | tuple[int | None, int | None] | None = None,
    since: Time | None = None,
    until: Time | None = None,
    isolation: str = READ_UNCOMMITTED,
    control: bool | None = False,
    key_as: str | None = None,
    value_as: str | None = None,
    schemas: Path | Sequence[Path] = (),
    schema_files: Path | Sequence[Path] = (),
    registry: str | None = None,
    verify_crc: bool = True,
    report: Callable[[str, Finding], object] = do_nothing,
    unread: Callable[[str], object] | None = None,
) -> Scan:
    """Return a view of segments as an Arrow stream, for DuckDB, Polars, pandas, pyarrow and other readers of Arrow.

    ``path`` is a segment, a partition folder, a log directory, a URL, or a list of these. ``view`` is records, batches,
    findings, segments or transactions. ``columns`` are names of its columns, all by default. With ``text``, keys, values and
    header values are text: UTF-8 as it is, other bytes in base64.

    ``offsets``, ``since`` and ``until`` limit records and batches: half-open ranges as in ``kseg dump``. ``offsets`` is
    ``(first, end)`` or text such as ``"5:10"``; times are epoch milliseconds, ISO 8601 or datetimes. Only the bytes are
    read that can hold them according to file names and indexes.

    With ``isolation="read_committed"`` the records are those that a consumer with this isolation level gets. Rows of
    ``records`` are data; with ``control=True`` they are control records, such as transaction markers, with None both.

    ``schemas`` (paths with the topic ``_schemas``), ``schema_files``, ``registry``, ``key_as`` and ``value_as`` are those of
    ``kseg dump`` for decoded keys and values, in the columns ``value_decoded``, ``value_kind``, ``value_schema_id`` and
    ``value_error``. With ``value_as="struct"`` the decoded value is an Arrow struct with the fields of all versions of the
    schema.

    Reading begins with the first pull; this function only opens the paths. Each stream begins at the start. Reading
    continues after damage: ``report`` is called with the path and each Finding, ``unread`` with a line for each file that
    cannot be read. Without ``unread`` such a file ends the stream with an error.

    Raises UsageError for wrong arguments or if pyarrow is not installed, and UnreadableError for a missing path.
    """
    if view not in view_table.VIEWS:
        raise UsageError(unknown_name("view", view, view_table.VIEWS))
    if isolation not in ISOLATIONS:
        raise UsageError(unknown_name("isolation", isolation, ISOLATIONS))
    first, end = _offsets(offsets)
    paths = _paths(path)
    decoding = DecodeSettings(key_as, value_as, _paths(schema_files), _paths(schemas), registry)
    if decoding.sides:
        record_decoder(decoding)  # raises UsageError for names and sources that are wrong
        decoding = with_types(decoding, lambda: planning.topics_in(paths))
    names = [columns] if isinstance(columns, str) else columns
    wanted = view_table.columns_of(view, names, contents=decoding.columns)
    asked = planning.Request(
        paths,
        view,
        view_table.as_text(wanted) if text else wanted,
        decoding=decoding if decoding.sides else None,
        mode="dropmalformed",
        isolation=isolation,
        control=control,
        limits=RowFilter(first, end, _time("since", since), _time("until", until)),
        verify_crc=verify_crc,
    )
    tell = unread or _raise
    found = Scan(
        asked, split_rows.Notices(lambda file, finding: report(file.path, finding), lambda error: tell(str(error)))
    )
    planning.check_paths(asked)
    return found


def _paths(given: Path | Sequence[Path]) -> tuple[str, ...]:
    return tuple(os.fspath(one) for one in ([given] if isinstance(given, (str, os.PathLike)) else given))


def _raise(line: str) -> None:
    raise UnreadableError(line)


def _offsets(given: str | tuple[int | None, int | None] | None) -> tuple[int | None, int | None]:
    if not isinstance(given, str):
        return given or (None, None)
    try:
        return parse_offsets(given)
    except ValueError as error:
        raise UsageError(f"offsets: {error}") from None


def _time(name: str, given: Time | None) -> int | None:
    if given is None or isinstance(given, int):
        return given
    try:
        return parse_time(given.isoformat() if isinstance(given, datetime) else given)
    except ValueError as error:
        raise UsageError(f"{name}: {error}") from None


def framed_rows(
    path: str | os.PathLike[str],
    framing: str,
    *,
    requests: str | os.PathLike[str] | None = None,
    report: Report = do_nothing,
    verify_crc: bool = True,
) -> Iterator[dict[str, Any]]:
    """Iterate over the rows of ``kseg dump --as FRAMING --deep``; keys, values and headers are ``bytes``.

    ``requests`` is the file with the requests that the responses in ``path`` answer. Raises UsageError for an unknown
    framing, UnreadableError and NotASegmentError.
    """
    if framing not in FRAMINGS:
        raise UsageError(unknown_name("framing", framing, FRAMINGS))
    requested = None if requests is None else os.fspath(requests)
    file = SegmentFile(os.fspath(path), framing=framing, requests=requested)
    return framed_dump.framed_rows(file, report, deep=True, verify_crc=verify_crc)


def side_entries(path: str | os.PathLike[str], report: Report = do_nothing) -> Iterator[Any]:
    """Iterate over the entries of a side file: ``OffsetEntry``, ``ProducerState``, ``LeaderEpoch``, and others.

    The file's name decides how it is read. Raises UnreadableError if the name is not that of a side file, or if the file
    cannot be read.
    """
    name = os.fspath(path)
    known = recognise(name)
    if known is None:
        raise UnreadableError(f"{name}: the name is not that of an index, snapshot, checkpoint or metadata file")
    with open_source(name) as source:
        for _, entry in known.side.walk(source, known.base_offset, report):
            yield entry
