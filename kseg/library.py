"""The public functions over whole files: ``validate``, ``scan``, and iterators over side files and over requests.

``Schemas`` decodes keys and values.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kseg import schema
from kseg.commands.dump import framed_dump
from kseg.commands.validate.folder_checks import check_folders
from kseg.commands.validate.validate_ranges import validate_files
from kseg.engine import lazy
from kseg.errors import UnreadableError, UsageError, each_once
from kseg.extras.serialization import record_decoder
from kseg.extras.serialization.decoding import NOT_DECODED, DecodedValue, FieldDecoder
from kseg.extras.serialization.record_decoder import DecodeSettings
from kseg.extras.serialization.schema_set import Schema
from kseg.extras.views import planning, split_rows, view_table
from kseg.findings import Finding, Report, Verdict, do_nothing
from kseg.format.record.layout import ISOLATIONS, READ_UNCOMMITTED
from kseg.format.segment.framed_files import FRAMINGS
from kseg.format.segment.records_chunk import Header, Record
from kseg.format.segment.row_filter import RowFilter
from kseg.format.sidefiles.registry import find_files, recognise
from kseg.format.storage.naming import is_url
from kseg.format.storage.segment_files import SegmentFile, check_exists, is_folder, without_unused
from kseg.format.storage.source import BY_FOLDER, STDIN, open_source
from kseg.report import arrow_table
from kseg.report.arrow_table import pa
from kseg.results import FileResult, Settings, Summary
from kseg.text import Time, check_number, epoch_time, parse_offsets, unknown_name


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
    check_number("jobs", jobs, 1)
    name = os.fspath(path)
    settings = settings or Settings()
    if name != STDIN and not is_url(name):
        check_exists(name)
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


class Schemas:
    """The schemas of a registry, which decode keys and values: Avro, Protobuf and JSON.

    Iterate over it for the versions of its subjects.
    """

    def __init__(
        self,
        path: Path | Sequence[Path] = (),
        *,
        files: Sequence[Path] = (),
        registry: str | None = None,
        registry_ca: Path | None = None,
    ) -> None:
        """Read the schemas.

        Parameters:
            path: segments of the topic ``_schemas``, its partition folder, or a log directory with it.
            files: schema files, each as FILE, SUBJECT=FILE or ID=FILE.
            registry: the URL of a registry, which is asked last.
            registry_ca: a file with certificates for it.

        Raises UsageError without a source and for a source without schemas, and UnreadableError.
        """
        self.settings = DecodeSettings(
            schema_files=tuple(os.fspath(one) for one in files),
            schemas=tuple(paths_of(path)),
            registry=registry,
            registry_ca=None if registry_ca is None else os.fspath(registry_ca),
        )
        decoder = record_decoder.record_decoder(self.settings)
        if decoder is None or decoder.key is None or decoder.value is None:
            raise UsageError("Schemas: expected a path, files or the URL of a registry")
        self._decoders = {"key": decoder.key, "value": decoder.value}
        self._source = decoder.schemas

    def __iter__(self) -> Iterator[Schema]:
        """Iterate over the schemas, also deleted ones, by subject and version. Those of a registry's URL are left out."""
        return iter(self._source.all())

    def decode(
        self,
        data: bytes | None,
        topic: str | None = None,
        *,
        side: str = "value",
        headers: Sequence[Header] = (),
    ) -> DecodedValue:
        """Return a key or a value decoded: ``value`` is what JSON has, ``error`` the reason if it is None.

        Parameters:
            data: the stored bytes.
            topic: the topic, which chooses the subject of a value without a schema id.
            side: "value" or "key".
            headers: those of the record, which can have the schema id.

        Raises UsageError for another ``side``, and if a library is missing.
        """
        check_name("side", side, self._decoders)
        if data is None:
            return NOT_DECODED
        return self._decoders[side].decode(topic, data, [(one.key, one.value) for one in headers])

    def decode_record(self, record: Record) -> tuple[DecodedValue, DecodedValue]:
        """Return the decoded key and the decoded value of a record. Control records are not decoded."""
        if record.control is not None:
            return NOT_DECODED, NOT_DECODED
        return (
            self.decode(record.key, record.topic, side="key", headers=record.headers),
            self.decode(record.value, record.topic, headers=record.headers),
        )


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
    schemas: Path | Sequence[Path] | Schemas | None = None,
    key_as: str | None = None,
    value_as: str | None = None,
    verify_crc: bool = True,
    inventory: str | os.PathLike[str] | None = None,
    report: Callable[[str, Finding], object] = do_nothing,
    unread: Callable[[str], object] | None = None,
) -> Scan:
    """Return a view of segments as an Arrow stream, for DuckDB, Polars, pandas, pyarrow and other readers of Arrow.

    ``path`` is a segment, a partition folder, a log directory, a URL, or a list of these. ``view`` is records, batches,
    findings, segments, transactions, groups, topics, schemas or files. ``columns`` are names of its columns, all by default;
    ``*`` means all of these, next to others such as ``decoded``, the JSON of internal topics. With ``text``, keys, values
    and header values are text: UTF-8 as it is, other bytes in base64.

    ``offsets``, ``since`` and ``until`` limit records and batches: half-open ranges as in ``kseg dump``. ``offsets`` is
    ``(first, end)`` or text such as ``"5:10"``; times are epoch milliseconds, datetimes, ISO 8601 or text
    such as ``"yesterday"``. Only the bytes are read that can hold them according to file names and indexes.

    ``inventory`` is the view ``segments`` of these segments as Parquet: a file, a folder or a URL. The zones of segments
    that cannot hold the records are then skipped, also without indexes. A segment that has changed since is read as
    without it.

    With ``isolation="read_committed"`` the records are those that a consumer with this isolation level gets. Rows of
    ``records`` are data; with ``control=True`` they are control records, such as transaction markers, with None both.

    ``schemas`` are paths of the topic ``_schemas``, or a Schemas. ``key_as`` and ``value_as`` name a deserializer, such as
    json or avro. The rows of ``records`` then have ``value_decoded`` (JSON) and the other columns of ``kseg sql``. With
    ``value_as="struct"`` it is an Arrow struct with the fields of all versions of the schema.

    Reading begins with the first pull; this function only opens the paths. Each stream begins at the start. Reading
    continues after damage: ``report`` is called with the path and each Finding, ``unread`` with a line for each file that
    cannot be read, and once for each reason why a schema cannot, which is the error of its decoded values. Without
    ``unread`` such a file or schema ends the stream with an error.

    Raises UsageError for wrong arguments or if pyarrow is not installed, and UnreadableError for a missing path.
    """
    check_name("view", view, view_table.VIEWS)
    check_name("isolation", isolation, ISOLATIONS)
    first, end = offset_range(offsets)
    paths = tuple(without_unused(paths_of(path)))
    decoding = decode_settings(schemas, key_as, value_as)
    decoder = None
    if decoding is not None:  # raises UsageError for names and sources that are wrong
        decoding, decoder = record_decoder.typed_decoder(decoding, lambda: planning.topics_in(paths), undecoded(unread))
    wanted = view_table.columns_of(view, texts(columns), contents=decoding.columns if decoding else ())
    asked = planning.Request(
        paths,
        view,
        view_table.as_text(wanted) if text else wanted,
        decode_as=BY_FOLDER,
        decoding=decoding,
        decoder=decoder,
        mode="dropmalformed",
        isolation=isolation,
        control=control,
        limits=RowFilter(first, end, epoch_time("since", since), epoch_time("until", until)),
        verify_crc=verify_crc,
        inventory=None if inventory is None else os.fspath(inventory),
    )
    tell = unread or raise_unreadable
    found = Scan(
        asked, split_rows.Notices(lambda file, finding: report(file.path, finding), lambda error: tell(str(error)))
    )
    planning.check_paths(asked)
    return found


def raise_unreadable(line: str) -> None:
    """Raise UnreadableError: what ``unread`` does by default."""
    raise UnreadableError(line)


def undecoded(unread: Callable[[str], object] | None) -> record_decoder.Unread:
    """Return the callback of a decoder for a schema that a source has not given: ``unread`` once for each reason.

    Without ``unread`` it raises RegistryError.
    """
    if unread is None:
        return record_decoder.raise_unread
    tell = each_once(unread)
    return lambda found: tell(found.error or "")


def paths_of(path: Path | Sequence[Path]) -> list[str]:
    """Return one path or several as texts."""
    return [os.fspath(one) for one in ([path] if isinstance(path, (str, os.PathLike)) else path)]


def texts(given: str | Iterable[str]) -> tuple[str, ...]:
    """Return one text or several as a tuple: a single name is not the names of its letters."""
    return (given,) if isinstance(given, str) else tuple(given)


def check_name(what: str, given: str, known: Iterable[str]) -> None:
    """Raise UsageError if the value of an argument is none of the known ones."""
    if not isinstance(given, str):
        raise UsageError(f"{what}: expected a text, got {given!r}")
    if given not in known:
        raise UsageError(unknown_name(what, given, known))


def decode_settings(
    schemas: Path | Sequence[Path] | Schemas | None, key_as: str | None, value_as: str | None
) -> DecodeSettings | None:
    """Return how keys and values are decoded, None for not at all. Raises UsageError for an unknown deserializer."""
    for side, name in (("key", key_as), ("value", value_as)):
        if name is not None:
            FieldDecoder(side, name)
    if isinstance(schemas, Schemas):
        return replace(schemas.settings, key_as=key_as, value_as=value_as)
    given = DecodeSettings(key_as, value_as, schemas=() if schemas is None else tuple(paths_of(schemas)))
    return given if given.sides else None


def offset_range(given: str | tuple[int | None, int | None] | None) -> tuple[int | None, int | None]:
    """Return the first offset and the end, exclusive; None is unbounded. Raises UsageError."""
    try:
        first, end = parse_offsets(given) if isinstance(given, str) else given or (None, None)
    except (TypeError, ValueError) as error:
        raise UsageError(f"offsets: {error}") from None
    for one in (first, end):
        check_number("offsets", one)
    return first, end


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
    check_name("framing", framing, FRAMINGS)
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
