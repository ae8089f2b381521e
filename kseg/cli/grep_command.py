"""``kseg grep``: options and exit codes. 0: a record matches. 1: none does. 2: a file could not be read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TextIO

import click

from kseg.cli import common
from kseg.cli.grep_run import GrepRun, grep_run
from kseg.cli.messages import FAILED, note, note_after
from kseg.cli.outcome import DumpOutcome, segments_text
from kseg.cli.record_options import RecordOptions, transaction_logs
from kseg.cli.typed_command import command
from kseg.commands.dump.dump_items import RecordsItem, first_rows
from kseg.commands.dump.dumped_rows import DumpRequest
from kseg.commands.grep import partitioners
from kseg.commands.grep.matches import FIELDS, GrepQuery, JsonPath
from kseg.errors import UsageError
from kseg.extras.views.grep_request import GrepRequest
from kseg.format.segment.row_filter import RecordCondition, ValueIsNull
from kseg.format.storage.segment_files import SegmentFile, without_unused
from kseg.report import dump_report
from kseg.report import grep_report as report
from kseg.report.formats import MATCHES, write
from kseg.text import count_of

#: Of partitions that are read or not, the names of this many are printed.
_NAMES_SHOWN = 12


@dataclass(frozen=True, kw_only=True)
class GrepOptions(RecordOptions):
    arguments: tuple[str, ...]
    patterns: tuple[str, ...]
    literal: bool
    ignore_case: bool
    whole: bool
    invert: bool
    fields: tuple[str, ...] | None
    json_paths: tuple[JsonPath, ...]
    key_hex: tuple[bytes, ...]
    key_int32: tuple[bytes, ...]
    key_int64: tuple[bytes, ...]
    null_key: bool
    null_value: bool
    partitioner: str | None
    all_partitions: bool
    count: bool
    files_only: bool
    quiet: bool
    only_matching: bool
    max_count: int | None
    before: int | None
    after: int | None
    context: int

    @property
    def all_keys(self) -> tuple[bytes | None, ...]:
        return (*self.keys, *self.key_hex, *self.key_int32, *self.key_int64, *[None] * self.null_key)

    @property
    def own_conditions(self) -> tuple[RecordCondition, ...]:
        return (ValueIsNull(),) if self.null_value else ()

    @property
    def first_is_pattern(self) -> bool:
        """Whether the first argument is the pattern: no option contains one."""
        conditions = self.all_keys or self.null_value or self.headers or self.where is not None
        return not (self.patterns or self.json_paths or conditions)

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths among the arguments. Raises UsageError."""
        paths = self.arguments[1:] if self.first_is_pattern else self.arguments
        if not paths:
            hint = "" if self.output is None else "; -o names the output file, --only-matching shows the matching texts"
            raise UsageError(f"expected PATTERN and PATH: `kseg grep failed kafka-logs`{hint}")
        if paths.count("-") > 1:
            raise UsageError("standard input can be read only once: give one -")
        return tuple(without_unused(paths))

    @property
    def query(self) -> GrepQuery:
        """The search. Raises UsageError for options that need a pattern."""
        query = GrepQuery(
            patterns=self.arguments[:1] if self.first_is_pattern else self.patterns,
            literal=self.literal,
            ignore_case=self.ignore_case,
            whole=self.whole,
            invert=self.invert,
            fields=self.fields or (("value",) if self.json_paths else FIELDS),
            json_paths=self.json_paths,
            conditions=self.limits.conditions,
        )
        needing = {"-v": self.invert, "--only-matching": self.only_matching, "-x": self.whole, "--in": self.fields}
        for option in (name for name, value in needing.items() if value and not query.has_pattern):
            raise UsageError(f"{option} needs a pattern: add -e PATTERN or --json-path")
        return query

    def request(self, files: Sequence[SegmentFile], outcome: DumpOutcome) -> GrepRequest:
        """Return the parts of each of the files that are searched and shown."""
        before, after = (self.context if own is None else own for own in (self.before, self.after))
        if self.count or self.files_only or self.quiet:
            before = after = 0
        logs = transaction_logs(self.isolation, files, outcome)
        dump = DumpRequest(
            True, self.limits.of_rows, verify_crc=not self.no_crc, wrong_crc=True, before=before, after=after, logs=logs
        )
        return GrepRequest(self.query, self.decoding, dump)


@command(
    GrepOptions,
    results=MATCHES,
    arguments=(
        click.Argument(["arguments"], metavar="[PATTERN] PATH...", nargs=-1, required=True, type=common.PathText()),
    ),
    examples=(
        "kseg grep 'order 4711' kafka-logs",
        "kseg grep --key customer-7 --since 2024-05-01 kafka-logs/orders-0",
        "kseg grep --where \"value.total > 100 and key = 'k7'\" kafka-logs",
    ),
)
def grep(asked: GrepOptions) -> int:
    """Find records by a regular expression, a text, a JSON path, a key or a condition.

    PATTERN is a regular expression of Python. It is the first argument, unless -e, --json-path, --key, --header, --where or
    --null-… says what to search. Exit codes: 0 a record matches, 1 none does, 2 a file cannot be read.
    """
    paths, _ = asked.paths, asked.query
    common.check_outputs(*paths)
    outcome = DumpOutcome()
    files, limited = _of_partitions(asked.files_within(outcome.segments(paths)), asked)
    most = 1 if asked.files_only else asked.max_count
    decides = asked.query.reads_contents or asked.selects_by_contents
    with grep_run(files, asked.request(files, outcome), outcome, most, 1 if asked.quiet else asked.jobs) as run:
        if asked.quiet:
            outcome.rows = any(isinstance(item, RecordsItem) for item in run.items())
            outcome.end_undecoded(failed=decides)
            return 0 if outcome.rows else _not_found(limited, outcome)
        with outcome.output(asked.output) as out:
            terminal = out.isatty()
            _write(run, files, out, asked)
            outcome.end_undecoded(failed=decides)
    if not outcome.rows:
        if asked.limit != 0:
            note_after(f"no match in {segments_text(files)}")
        return _not_found(limited, outcome)
    if terminal and not asked.files_only and asked.limit is None and asked.last is None:
        matches = f"{count_of(run.matches, 'record')} in {count_of(run.files, 'segment')}"
        note_after(f"{matches} of {len(files):,} {'matches' if run.matches == 1 else 'match'}")
    return FAILED if outcome.failed else 0


def _of_partitions(
    files: list[SegmentFile], asked: GrepOptions
) -> tuple[list[SegmentFile], Sequence[partitioners.PartitionChoice]]:
    """Return the files to read, and the choice for each topic of which not all partitions are read."""
    partitioner, total = asked.partitioner, asked.partitions
    if partitioner is None:
        return files, ()
    keys = [key for key in asked.all_keys if key is not None]
    files, choices = partitioners.files_of_keys(files, keys, partitioner, total)
    for choice in choices:
        if choice.total is None and len(choice.read) > 1:
            note(f"{choice.topic}: all its partitions here are read: --partitions N reads only that of the key")
    limited = [choice for choice in choices if choice.unread or choice.missing]
    if len(limited) == 1:
        (choice,) = limited
        chosen = [str(number) for number in sorted({*choice.read, *choice.missing})]
        source = "" if total else " (the number of folders here; --partitions N sets another)"
        note(
            f"{choice.topic}: reads only partition{'s' * (len(chosen) > 1)} {_names(chosen)} of {choice.total}{source}, "
            f"as {partitioner} chooses"
        )
    elif limited:
        read, others = (sum(map(len, some)) for some in zip(*((c.read, c.unread) for c in limited), strict=True))
        note(f"{len(limited)} topics: reads only {read} of {read + others} partitions here, as {partitioner} chooses")
    return files, limited


def _not_found(limited: Sequence[partitioners.PartitionChoice], outcome: DumpOutcome) -> int:
    """Return the exit code of a search without a match, and print which partitions it has not read."""
    missing = [f"{choice.topic}-{number}" for choice in limited for number in choice.missing]
    unread = [f"{choice.topic}-{number}" for choice in limited for number in choice.unread]
    if missing:
        note_after(f"not in the given paths: {_names(missing)}, which can have the key")
    if unread:
        note_after(
            f"not read: {_names(unread)}. Omit --partitioner to read all: keys from before partitions were added, "
            "or of another partitioner, are there"
        )
    return FAILED if outcome.failed or missing else 1


def _names(names: Sequence[str]) -> str:
    more = len(names) - _NAMES_SHOWN
    return ", ".join(names[:_NAMES_SHOWN]) + (f" and {more:,} more" if more > 0 else "")


def _write(run: GrepRun, files: Sequence[SegmentFile], out: TextIO, asked: GrepOptions) -> None:
    view = replace(asked.view(out, run.request.decoder), searched=True)
    if asked.files_only or asked.count:
        report.write_files(islice(run.counts(), asked.limit), out, counts=not asked.files_only)
        return
    items = first_rows(run.last_items(files, asked.last) if asked.last else run.items(), asked.limit)
    if asked.only_matching:
        report.write_matches(items, out, view)
    elif view.template:
        dump_report.write_template(items, out, view)
    else:
        write(MATCHES, asked.format, out, items, view=view)
