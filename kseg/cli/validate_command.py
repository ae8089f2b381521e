"""``kseg validate``: options and exit codes. 1: findings at or above ``--fail-on``. 2: a file could not be read."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kseg.cli import common, spark_session
from kseg.cli.messages import FAILED, FOUND, fail_after, index_sizes, note, note_after, note_output, progress_bar
from kseg.cli.typed_command import SparkOptions, TableOptions, command, this_run
from kseg.commands.validate import folder_checks, known_findings, result_store
from kseg.commands.validate.validate_ranges import validate_files
from kseg.errors import KsegError, UsageError
from kseg.extras.views import whole_files
from kseg.findings import Policy, Severity, do_nothing, parse_severity
from kseg.format.segment import framed_files
from kseg.format.sidefiles import registry
from kseg.format.storage import file_access, process_pool
from kseg.format.storage.file_access import Progress
from kseg.format.storage.naming import is_url
from kseg.format.storage.segment_files import SegmentFile, as_decoded, is_folder, once_each, total_size
from kseg.format.writer import output_rule
from kseg.report import wording
from kseg.report.formats import VALIDATION, destination, write
from kseg.report.row_formats import Spool, recorded
from kseg.results import FileResult, Settings, Summary
from kseg.text import count_of

if TYPE_CHECKING:
    from kseg.format.storage.process_pool import Pool
    from kseg.report.formats import Run


# The number of skipped files that are listed by name.
_SKIPPED_SHOWN = 8
#: Formats that have no place for the number of findings that are not listed.
_SILENT = frozenset({"csv", "sarif"})
# The number of known findings that no longer occur that are listed.
_GONE_SHOWN = 20


@dataclass(frozen=True, kw_only=True)
class ValidateOptions(SparkOptions, TableOptions):
    """The command line of ``kseg validate``, together with its settings file."""

    deep: bool
    framings: tuple[str, ...]
    no_crc: bool
    max_message_bytes: int | None
    compacted: bool
    timestamp_before_max_ms: int | None
    timestamp_after_max_ms: int | None
    compression_type: str
    fail_on: str
    rule: tuple[str, ...]
    limit: int
    cache: str | None
    reports: tuple[str, ...]
    label: tuple[str, ...]
    help_uri: str | None
    baseline: str | None
    write_baseline: str | None
    inventory: str | None

    @property
    def settings(self) -> Settings:
        """The settings of the checks. Raises UsageError."""
        return Settings(
            deep=self.deep,
            verify_crc=not self.no_crc,
            max_message_bytes=self.max_message_bytes,
            compacted=self.compacted,
            timestamp_before_max_ms=self.timestamp_before_max_ms,
            timestamp_after_max_ms=self.timestamp_after_max_ms,
            compression_type=self.compression_type,
            policy=Policy.parse(self.rule),
            max_per_rule=self.limit,
        )

    @property
    def least_failing(self) -> Severity | None:
        """The severity from which on a finding causes exit code 1; None for no severity."""
        return None if self.fail_on == "never" else parse_severity(self.fail_on)


@command(
    ValidateOptions,
    results=VALIDATION,
    settings=True,
    arguments=(
        click.Argument(
            ["paths"], metavar="[PATH]...", nargs=-1, callback=common.or_current_folder, type=common.InputPath()
        ),
    ),
    examples=(
        "kseg validate /var/kafka-logs",
        "kseg validate --format junit -o report.xml backups",
        "kseg validate --cache state.kseg --fail-on warning kafka-logs",
    ),
)
def validate(asked: ValidateOptions) -> int:
    """Check segments and their side files, and list the findings. Without a PATH, check the current folder.

    Checks framing, CRCs, batches, records and codecs, and the files of a folder against each other. `kseg rules RULE`
    explains a finding. Exit codes: 0 no errors (see --fail-on), 1 errors, 2 a file could not be read.
    """
    settings, fail_on = asked.settings, asked.least_failing
    cache_path, tables = asked.cache, asked.inventory
    common.check_outputs()
    total = Summary()
    omitted, failed = 0, False
    files, unreadable = (
        (framed_files.framed_files(asked.paths, asked.framings), []) if asked.framings else files_of(asked.paths)
    )

    reports = _Reports(asked)
    settings = reports.settings(settings)

    def results(progress: Progress) -> Iterator[FileResult]:
        nonlocal failed, omitted
        if tables is not None:
            found = whole_files.with_inventory(pool, files, settings, Path(tables))
        else:
            on_progress = do_nothing if pool else progress
            found = validate_files(files, settings, asked.jobs, on_progress, pool, state)
            if any(file.indexes is not None for file in files):
                found = folder_checks.check_folders(files, settings, found)
            else:  # few files by themselves need the module
                found = (
                    next(folder_checks.check_folders(files, settings, [each])) if each.found == {"zero-tail"} else each
                    for each in found
                )
        for result in chain(unreadable, found):
            progress(index_bytes.pop(result.file, 0))
            total.add(result.summary)
            if result.vanished:
                file_access.current().deleted(result.file)
            if asked.format in _SILENT:
                omitted += sum(count for _, count in wording.omitted_findings(result))
            if result.unread:
                failed = bool(fail_after(result.unread))
            yield result

    size, index_bytes = total_size(files), index_sizes(files)
    with (
        destination(asked.output) as out,
        progress_bar(None if size is None else size + sum(index_bytes.values())) as progress,
        _pool(asked, files, progress) as pool,
        nullcontext() if cache_path is None else result_store.open_state_file(cache_path, settings, files) as state,
    ):
        asked.write(VALIDATION, out, reports.results(results(progress)), total, run=reports.run)
    reports.write(total)
    if asked.output is not None:  # the wording is a module that is not loaded without a file
        note_output(asked.output, wording.summary_text(total))
    if state:
        reused = f"{state.reused:,} of {count_of(len(files), 'file')}"
        note(f"{reused} unchanged since the last run: their results are from {cache_path}")
    if omitted:
        note(f"{count_of(omitted, 'more finding')} not listed: --limit N lists more per rule and file")
    if failed:
        return FAILED
    new = reports.new(total)
    if fail_on is not None and new.at_least(fail_on):
        return FOUND
    return FAILED if new.rules["zero-segment"] else 0


@contextmanager
def _pool(asked: ValidateOptions, files: Sequence[SegmentFile], progress: Progress) -> Iterator[Pool | None]:
    """Yield what runs one call for each file; None if the files are checked in this process or in ranges."""
    if asked.spark is not None:
        with spark_session.spark_pool(asked, files, progress) as executors:
            yield executors
    elif asked.inventory is None:
        yield None
    elif (jobs := min(asked.jobs, len(files))) > 1:
        with process_pool.process_pool(jobs, progress) as processes:
            yield processes
    else:
        with process_pool.progress_to(progress):
            yield None


class _Reports:
    """What becomes of the results besides the output: further reports, and the baseline."""

    def __init__(self, asked: ValidateOptions) -> None:
        """Raises UsageError for a wrong option or a baseline that can't be read."""
        self._asked, self._started = asked, time.time_ns() // 1_000_000
        self._partial = {"shallow": not asked.deep, "no-crc": asked.no_crc}
        self._targets = [_report(text) for text in asked.reports]
        summary = os.environ.get("GITHUB_STEP_SUMMARY")
        self._step_summary = summary if summary and asked.format == "github" else None
        self._path, self._written = asked.baseline, asked.write_baseline
        if self._step_summary:
            output_rule.check_output(self._step_summary, (), "GITHUB_STEP_SUMMARY")
            common.check_outputs(written=[self._step_summary])
        self._baseline = known_findings.Baseline(self._path) if self._path else None
        self._writer = known_findings.BaselineWriter() if self._written else None
        self._spool = Spool[FileResult]() if self._targets or self._step_summary else None

    def settings(self, settings: Settings) -> Settings:
        """Return the settings of the run: a baseline needs all findings, and an HTML page plots the segments."""
        if "html" in (self._asked.format, *(name for name, _ in self._targets)):
            settings = replace(settings, outline=True)
        return known_findings.comparing(settings) if self._baseline or self._writer else settings

    def results(self, results: Iterator[FileResult]) -> Iterator[FileResult]:
        """Return the results for the output."""
        if self._writer:
            # The limit per rule is the baseline's, if there is one.
            limit = known_findings.MAX_COMPARED if self._baseline else self._asked.limit
            results = self._writer.collected(results, limit)
        if self._baseline:
            results = self._baseline.marked(results, self._asked.limit)
        return recorded(results, self._spool) if self._spool else results

    def write(self, total: Summary) -> None:
        """Write the reports and the baseline after the run, and report the known findings that are gone."""
        for name, path in self._targets:
            with destination(path) as out:
                write(VALIDATION, name, out, self._again(), total, run=self.run)
        if self._step_summary:
            with open(self._step_summary, "a", encoding="utf-8") as out:
                write(VALIDATION, "markdown", out, self._again(), total)
        if self._spool:
            self._spool.close()
        if self._writer and self._written:
            self._writer.write(self._written)
            note(f"{self._written}: {count_of(len(self._writer.entries), 'known finding')}")
        if self._baseline:
            gone = self._baseline.gone()
            known, unread = count_of(self._baseline.known, "known finding"), self._baseline.unread()
            others = f"; {unread:,} of files that were not read" if unread else ""
            skipped = [f"--{name}" for name, on in self._partial.items() if on]
            occur = f"not found, but not all was checked ({', '.join(skipped)})" if skipped else "no longer occur"
            note(f"{known} of {self._path}; {len(gone):,} {occur}{others}")
            for entry in gone[:_GONE_SHOWN]:
                note(f"{'not' if skipped else 'no longer'} found: {entry.get('file')}: {entry.get('rule')}")

    def run(self) -> Run:
        return replace(this_run(self._started), labels=self._asked.label, help_uri=self._asked.help_uri)

    def new(self, total: Summary) -> Summary:
        """Return the counts that decide the exit code: those of all findings that are not known."""
        return self._baseline.new if self._baseline else total

    def _again(self) -> Iterator[FileResult]:
        assert self._spool
        return self._spool.again()


def _report(text: str) -> tuple[str, str]:
    """Parse FORMAT=FILE. Raises UsageError."""
    name, equals, path = text.partition("=")
    if not equals or not path or name not in VALIDATION.writers:
        formats = ", ".join(VALIDATION.writers)
        raise UsageError(f"--report: expected FORMAT=FILE, such as junit=report.xml, got {text!r}; formats: {formats}")
    return name, path


def files_of(paths: tuple[str, ...]) -> tuple[list[SegmentFile], list[FileResult]]:
    """Return the files to check, and a result for each path that could not be read. Prints the skipped files."""
    files: list[SegmentFile] = []
    skipped: list[str] = []
    unreadable: list[FileResult] = []
    for path in paths:
        try:
            if is_folder(path) or is_url(path):
                files += registry.find_files(path, skipped.append)
            else:
                files.append(SegmentFile(as_decoded(path)))
        except KsegError as error:
            unreadable.append(FileResult(path, (), Summary(unread=1), str(error)))
    skipped = list(dict.fromkeys(skipped))
    if skipped:
        named = ", ".join(skipped[:_SKIPPED_SHOWN]) + ", …" * (len(skipped) > _SKIPPED_SHOWN)
        note_after(f"skipped {count_of(len(skipped), 'file')} (not Kafka files, or not in use): {named}")
    return once_each(files), unreadable
