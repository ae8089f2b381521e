"""``kseg dump``: options and exit codes. 1: damage was found. 2: a file could not be read."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, TextIO

from kseg.cli import common, dump_modes, spark_session
from kseg.cli.messages import FAILED, note, note_output
from kseg.cli.outcome import DumpOutcome, FindingNotes
from kseg.cli.record_options import RecordOptions, files_of, transaction_logs
from kseg.cli.typed_command import SparkOptions, command
from kseg.commands.dump import dump_ranges, follow
from kseg.commands.dump.dump_items import Item, at_position, first_rows
from kseg.commands.dump.dumped_rows import DumpRequest, dump_side_file, last_rows, without_first
from kseg.errors import UsageError
from kseg.extras.serialization import record_decoder
from kseg.format.checks.run_checks import side_file_of
from kseg.format.internal_topics import effective_state
from kseg.format.segment.row_filter import RowFilter
from kseg.format.storage.segment_files import SegmentFile
from kseg.format.storage.source import BY_FOLDER, internal_topic, local_size, open_source, topic_partition
from kseg.report import dump_other_files, dump_report
from kseg.report.formats import DUMP, View, binary, write
from kseg.spark.jobs import written_files
from kseg.text import count_of

if TYPE_CHECKING:
    from kseg.extras.serialization.record_decoder import RecordDecoder
    from kseg.format.internal_topics.effective_state import Owner
    from kseg.format.internal_topics.state import Moment
    from kseg.format.sidefiles.registry import Recognised


@dataclass(frozen=True, kw_only=True)
class DumpOptions(SparkOptions, RecordOptions):
    paths: tuple[str, ...]
    deep: bool | None
    framings: tuple[str, ...]
    position: int | None
    producer_id: int | None
    control: bool | None
    group: str | None
    txn: str | None
    follow: bool
    decode: str | None
    no_decode: bool
    effective: bool
    at: Moment | None

    @property
    def owner(self) -> Owner | None:
        """The group or the transactional id whose records are shown."""
        named = self.group is not None or self.txn is not None
        return effective_state.Owner.of(self.group, self.txn) if named else None

    @property
    def reads_records(self) -> bool:
        """Whether records are shown: if the options say so, or if they are what an option or a format is for."""
        by_default = (
            self.format == "hex" or self.template is not None or self.decoding is not None or bool(self.framings)
        )
        selects = by_default or self.limits.selects_records
        return self.owner is not None or (selects if self.deep is None else self.deep)

    @property
    def format_name(self) -> str:
        """The format; a template is one."""
        return self.format if self.template is None else "template"

    @property
    def keep(self) -> RowFilter:
        return replace(self.limits.of_rows, producer_id=self.producer_id, control=self.control, search=self.owner)

    @property
    def decode_as(self) -> str | None:
        """The argument ``decode_as`` of ``internal_topic``."""
        return None if not self.reads_records or self.no_decode else self.decode or BY_FOLDER

    def request(self, files: Sequence[SegmentFile], decoder: RecordDecoder | None, outcome: DumpOutcome) -> DumpRequest:
        return DumpRequest(
            deep=self.reads_records,
            keep=self.keep,
            headings=self.format_name in ("text", "hex"),
            verify_crc=not self.no_crc,
            damaged=self.format_name == "hex",
            decode_as=self.decode_as,
            decoder=decoder,
            logs=transaction_logs(self.isolation, files, outcome),
        )


@command(
    DumpOptions,
    results=DUMP,
    arguments=(common.LOG_PATHS,),
    examples=(
        "kseg dump kafka-logs/orders-0 --deep",
        "kseg dump orders-0/*.log --deep --offsets 100:110 --format jsonl",
        "kseg dump kafka-logs/__consumer_offsets-3 --effective",
    ),
)
def dump(asked: DumpOptions) -> int:
    """Show the batches or records of segments, or the content of side files.

    A folder means all segments in it. To show an index, a snapshot or a checkpoint, give its own path.
    """
    common.check_outputs()
    outcome = DumpOutcome(at_once=asked.follow)
    if asked.framings:
        return dump_modes.show_framed(asked, outcome)
    if asked.effective:
        return dump_modes.show_effective(asked, outcome)
    files = outcome.segments(asked.paths)
    if (owner := asked.owner) is not None:
        files = files_of(owner, files, asked.decode or BY_FOLDER, asked.partitions)
    files = asked.files_within(files)
    beside = {file.path: known for file in files if (known := side_file_of(file.path))}
    _check_side_files(asked, files, beside)
    if asked.spark is not None:
        if beside:
            raise UsageError("--spark accepts segments only: omit the side files")
        export = written_files.Export(
            asked.output or "", asked.format, asked.encoding, asked.request(files, None, outcome)
        )
        return spark_session.export_segments(asked, files, export, outcome)
    if asked.follow:
        if beside:
            raise UsageError("--follow shows segments only: omit the side files")
        if outcome.failed:
            return FAILED
        _check_follow(file.path for file in files)
    settings = asked.decoding
    if settings and asked.format == "parquet":
        settings = record_decoder.with_types(
            settings, lambda: (topic for file in files if (topic := topic_partition(file.path)[0]))
        )
    decoder = None
    if settings:
        decoder = record_decoder.record_decoder(settings, lambda path: partial(FindingNotes(), path), outcome.undecoded)
    return _Dump(asked, asked.request(files, decoder, outcome), files, beside, outcome).write()


@dataclass
class _Dump:
    """The dump of ``files``; ``beside`` are the side files among them. ``skipped`` are rows of files to follow, by path."""

    asked: DumpOptions
    request: DumpRequest
    files: list[SegmentFile]
    beside: dict[str, Recognised]
    outcome: DumpOutcome
    skipped: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.listed = {file.path: file for file in self.files}

    def write(self) -> int:
        """Write all rows, and return the exit code."""
        asked, outcome = self.asked, self.outcome
        with outcome.output(asked.output) as out:
            view = self._view(out)
            if asked.follow:
                return self._follow(out, view)
            rows = self._last() if asked.last else chain.from_iterable(self._show(file.path) for file in self.files)
            shown = at_position(rows, asked.position)
            shown = outcome.counted(first_rows(shown, asked.limit))
            if self.beside:
                dump_other_files.write_mixed(asked.format, shown, out, view)
            elif view.jobs > 1 and asked.format != "parquet" and not view.terminal and has_parts(self.files):
                self._write_parts(out, view)
            else:
                self._write_rows(shown, out, view)
        note_output(asked.output, count_of(outcome.written, "row"))
        outcome.end_undecoded(failed=asked.selects_by_contents)
        return outcome.exit_code(read=[file for file in self.files if file.path not in self.beside])

    def _view(self, out: TextIO) -> View:
        request = self.request
        decoded = any(internal_topic(file.path, request.decode_as) for file in self.files)
        view = self.asked.view(out, request.decoder)
        return replace(view, deep=request.deep, decoded=decoded, jobs=jobs_of(self.asked))

    def _show(self, path: str, start: int = 0, end: int | None = None) -> Iterator[Item]:
        file = self.listed.get(path) or SegmentFile(path, listed=path not in self.asked.paths)
        report = self.outcome.begin(file)
        known = self.beside.get(path)
        dumped: Iterator[Item]
        if known:
            dumped = dump_side_file(path, known, report)
        else:
            dumped = self.request.items(file, report, start, end)
        yield from self.outcome.attempt(dumped, file)

    def _last(self) -> Iterator[Item]:
        most = self.asked.last or 0
        for last in last_rows(self.files, most, self.request.keep, self.request.counted_items):
            yield from last.of(self._show(last.file.path, last.start, last.end))

    def _write_rows(self, rows: Iterable[Item], out: TextIO, view: View) -> None:
        if view.template:
            dump_report.write_template(rows, out, view)
        else:
            write(DUMP, self.asked.format, out, rows, view=view)

    def _write_parts(self, out: TextIO, view: View) -> None:
        """Write the rows of segments with several processes."""
        outcome = self.outcome
        self._write_rows((), out, view)  # the names of columns
        view = replace(view, continued=True)
        sink = binary(out)

        def write_on(rows: Iterable[Item], into: TextIO) -> None:
            self._write_rows(rows, into, view)

        def show(output: dump_ranges.Output, lines: memoryview) -> None:
            sink.write(lines)
            outcome.written += output.rows
            outcome.rows |= output.shown

        with dump_ranges.dumped_files(self.files, self.request, write_on, view.jobs) as (dump, by_file):
            for file, parts in by_file:
                report = outcome.begin(file)
                rest = dump.show(parts, show)
                if rest is not None:
                    rows = outcome.attempt(dump.rest(file, rest, report), file)
                    write_on(outcome.counted(rows), out)

    def _follow(self, out: TextIO, view: View) -> int:
        def write_on(rows: Iterable[Item], first: bool) -> None:
            self._write_rows(rows, out, replace(view, continued=not first))
            out.flush()

        assert self.request.logs
        follower = follow.Follower(self.asked.paths, self._show_rest, note, self.request.logs.forget)
        if self.asked.last:
            self._begin_with_last(follower, self.asked.last)
        found = self.outcome.counted(follower.rows())
        follow.write_until_interrupted(first_rows(found, self.asked.limit), write_on)
        self.outcome.end_undecoded(failed=self.asked.selects_by_contents)
        return self.outcome.exit_code()

    def _begin_with_last(self, follower: follow.Follower, most: int) -> None:
        started: set[str] = set()
        for last in last_rows(self.files, most, self.request.keep, self.request.counted_items):
            if (folder := os.path.dirname(last.file.path)) not in started:
                started.add(folder)
                follower.begin_at(last.file.path, last.start)
                self.skipped[last.file.path] = last.skipped

    def _show_rest(self, path: str, start: int, end: int) -> Iterator[Item]:
        return without_first(self._show(path, start, end), self.skipped.pop(path, 0))


def _check_side_files(asked: DumpOptions, files: list[SegmentFile], beside: dict[str, Recognised]) -> None:
    """Raise UsageError for options that side files do not have."""
    if beside:
        for option in ("columns", "template", "position", "last"):
            if getattr(asked, option) is not None:
                raise UsageError(f"--{option} is for segments: omit it for side files")
        filtered = asked.keep != RowFilter()
        dump_other_files.refuse_for_side_files([file.path for file in files], asked.format, filtered=filtered)


def _check_follow(paths: Iterable[str]) -> None:
    """Raise UsageError for files that are not local, UnreadableError for unreadable files."""
    for path in paths:
        if local_size(path) is None:
            open_source(path).close()  # raises if it cannot be read, with the reason
            raise UsageError(f"{path}: --follow accepts local files only")


#: The formats that several processes write.
FORMATS = ("jsonl", "csv", "text", "template")
#: The format that another thread encodes: pyarrow leaves Python's lock to the thread that reads the records.
ENCODED = "parquet"
# Fewer bytes are not worth the import of a module and the measuring.
_FEW_BYTES = 8 * 1024 * 1024


def jobs_of(asked: DumpOptions) -> int:
    """Return how many processes or threads dump."""
    alone = asked.follow or asked.registry is not None or asked.function is not None
    limited = any(one is not None for one in (asked.limit, asked.last, asked.position))
    shared = asked.reads_records and asked.format_name in (*FORMATS, ENCODED)
    return asked.jobs if shared and not (alone or limited) else 1


def has_parts(files: Sequence[SegmentFile]) -> bool:
    """Return whether several processes could dump these files in less time than one."""
    return sum(local_size(file.path) or 0 for file in files) > _FEW_BYTES and dump_ranges.can_share_memory()
