"""``kseg validate``: options and exit codes. 1: findings at or above ``--fail-on``. 2: a file could not be read."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kseg.cli import common, spark_session, this_run
from kseg.cli.main import check_type, read_settings
from kseg.cli.messages import FAILED, FOUND, fail, note, note_output
from kseg.cli.progress import index_sizes, progress_bar
from kseg.commands.validate import folder_checks, known_findings
from kseg.commands.validate.validate_ranges import validate_files
from kseg.errors import KsegError, UsageError
from kseg.findings import Policy, do_nothing, parse_severity
from kseg.format.sidefiles import registry
from kseg.format.storage.file_access import Progress
from kseg.format.storage.source import SegmentFile, is_folder, is_url, once_each, total_size
from kseg.format.wire.framings import framed_files
from kseg.format.writer import output_rule
from kseg.report import spool, wording
from kseg.report.formats import VALIDATION, destination, write
from kseg.results import FileResult, Settings, Summary
from kseg.spark.jobs import inventory
from kseg.text import count_of

if TYPE_CHECKING:
    from kseg.report.spool import Run


# The number of skipped files that are listed by name.
_SKIPPED_SHOWN = 8
# The number of known findings that no longer occur that are listed.
_GONE_SHOWN = 20

# Options that a settings file cannot set.
_OF_ONE_RUN = {"paths", "output", "inventory", "state", "framings", "reports", "write_baseline"}
_FAIL_ON = common.Choice(["error", "warning", "info", "never"])


@click.command()
@common.paths_or_current_folder
@click.option("--deep/--shallow", default=True, help="Check records, or only headers and CRCs. Default: deep.")
@common.framings
@common.output_format(VALIDATION)
@common.output
@common.no_crc
@click.option("--max-message-bytes", type=common.WholeNumber(min=1), metavar="N",
              help="Report larger batches as errors. Default: warn at 1048588.")  # fmt: skip
@click.option("--compacted", is_flag=True, help="Check the log of a compacted topic: all records need a key.")
@click.option("--timestamp-before-max-ms", type=common.WholeNumber(min=0), metavar="N",
              help="Report records that are older as errors.")  # fmt: skip
@click.option("--timestamp-after-max-ms", type=common.WholeNumber(min=0), metavar="N",
              help="Report timestamps farther ahead as errors. Default: warn at one hour.")  # fmt: skip
@click.option("--compression-type", type=common.Choice(["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"]),
              default="producer", help="Codec of the topic, for --as requests. Default: producer.")  # fmt: skip
@click.option("--fail-on", type=_FAIL_ON, default="error", show_default=True, help="Exit with 1 from this severity on.")
@click.option("--rule", multiple=True, metavar="NAME=SEVERITY", help="Set the severity of a rule, or ignore it.")
@click.option("--max-per-rule", type=common.WholeNumber(min=1), default=16, show_default=True, metavar="N",
              help="List at most N findings per rule and file.")  # fmt: skip
@common.jobs
@common.max_rate
@click.option("--state", metavar="FILE", type=common.OutputPath(),
              help="Store results in FILE. The next run skips unchanged files.")  # fmt: skip
@click.option("--report", "reports", multiple=True, metavar="FORMAT=FILE", type=common.OutputPath(named=True),
              help="Also write a report to FILE. Repeat it for several.")  # fmt: skip
@common.details("List findings one by one, and every valid segment.",
                "List only damaged partitions and the summary in the table.")  # fmt: skip
@click.option("--baseline", metavar="FILE", type=common.InputPath(),
              help="Known findings, or a repair's report: ignored for the exit code.")  # fmt: skip
@click.option("--write-baseline", metavar="FILE", type=common.OutputPath(),
              help="Write the findings of this run to FILE as known.")  # fmt: skip
@common.spark
@click.option("--inventory", metavar="DIR", type=common.OutputFolder(),
              help="Write findings and segments as Parquet to DIR.")  # fmt: skip
@click.pass_context
def validate(context: click.Context, /, paths: tuple[str, ...], output: str | None, **_: Any) -> int:
    """Check segments and their side files, and list the findings. Without a PATH, check the current folder.

    Checks framing, CRCs, batches, records and codecs, and the files of a folder against each other. `kseg rules RULE`
    explains a finding. Exit codes: 0 no errors (see --fail-on), 1 errors, 2 a file could not be read.
    """
    options = _with_settings(context)
    detail = common.detail_of(options["verbose"], options["quiet"])
    settings = Settings(
        deep=options["deep"],
        verify_crc=not options["no_crc"],
        max_message_bytes=options["max_message_bytes"],
        compacted=options["compacted"],
        timestamp_before_max_ms=options["timestamp_before_max_ms"],
        timestamp_after_max_ms=options["timestamp_after_max_ms"],
        compression_type=options["compression_type"],
        policy=Policy.parse(options["rule"]),
        max_per_rule=options["max_per_rule"],
    )
    master, state_path, tables = options["spark"], options["state"], options["inventory"]
    if tables is not None and not (master and settings.deep):
        raise UsageError("--inventory needs --spark and --deep")
    if options["framings"] and (tables is not None or state_path is not None):
        raise UsageError("--as cannot be combined with --inventory or --state")
    common.check_outputs()
    if tables is not None and state_path is not None:
        raise UsageError("--inventory cannot be combined with --state: --state skips unchanged segments")
    fail_on = None if options["fail_on"] == "never" else parse_severity(options["fail_on"])
    total = Summary()
    vanished, failed = 0, False
    files, unreadable = (framed_files(paths, options["framings"]), []) if options["framings"] else files_of(paths)

    reports = _Reports(options)
    settings = reports.settings(settings)

    def results(progress: Progress) -> Iterator[FileResult]:
        nonlocal failed, vanished
        if pool is not None and tables is not None:
            found = inventory.validate_on_spark(pool, files, settings, Path(tables))
        else:
            on_progress = do_nothing if pool else progress
            found = validate_files(files, settings, options["jobs"], on_progress, pool, state)
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
            vanished += result.vanished
            if result.unread:
                failed = bool(fail(result.unread))
            yield result

    size, index_bytes = total_size(files), index_sizes(files)
    with (
        destination(output) as out,
        progress_bar(None if size is None else size + sum(index_bytes.values())) as progress,
        nullcontext() if master is None else spark_session.spark_pool(master, files, progress) as pool,
        nullcontext() if state_path is None else known_findings.open_state_file(state_path, settings, files) as state,
    ):
        found = reports.results(results(progress))
        write(VALIDATION, options["format_name"], out, found, total, detail=detail, run=reports.run)
    reports.write(total)
    if output is not None:  # the wording is a module that is not loaded without a file
        note_output(output, wording.summary_text(total))
    if state:
        reused = f"{state.reused:,} of {count_of(len(files), 'file')}"
        note(f"{reused} unchanged since the last run: their results are from {state_path}")
    if vanished:
        note(f"a broker deleted {count_of(vanished, 'file')} before kseg could read them")
    if failed:
        return FAILED
    new = reports.new(total)
    if fail_on is not None and new.at_least(fail_on):
        return FOUND
    return FAILED if new.rules["zero-segment"] else 0


class _Reports:
    """What becomes of the results besides the output: further reports, and the baseline."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        """Raises UsageError for a wrong option or a baseline that can't be read."""
        self._options, self._started = options, time.time_ns() // 1_000_000
        self._max_per_rule = options["max_per_rule"]
        self._partial = {"shallow": not options["deep"], "no-crc": options["no_crc"]}
        self._targets = [_report(text) for text in options["reports"]]
        summary = os.environ.get("GITHUB_STEP_SUMMARY")
        self._step_summary = summary if summary and options["format_name"] == "github" else None
        self._path, written = options["baseline"], options["write_baseline"]
        targets = [path for _, path in self._targets]
        if self._step_summary:
            output_rule.check_output(self._step_summary, (), "GITHUB_STEP_SUMMARY")
        for option, path in (("--write-baseline", written), ("--state", options["state"])):
            if path == "-":
                raise UsageError(f"{option}: expected a file, got '-'")
        _check_distinct([options["output"] or "-", *targets, written], [self._path, options["state"]])
        if (self._path or written) and options["state"]:
            raise UsageError("--baseline and --write-baseline cannot be combined with --state")
        self._baseline = known_findings.Baseline(self._path) if self._path else None
        self._written, self._writer = written, known_findings.BaselineWriter() if written else None
        self._spool: spool.Spool[FileResult] | None = spool.Spool() if self._targets or self._step_summary else None

    def settings(self, settings: Settings) -> Settings:
        """Return the settings of the run: a baseline needs all findings, and an HTML page plots the segments."""
        if "html" in (self._options["format_name"], *(name for name, _ in self._targets)):
            settings = replace(settings, outline=True)
        return known_findings.comparing(settings) if self._baseline or self._writer else settings

    def results(self, results: Iterator[FileResult]) -> Iterator[FileResult]:
        """Return the results for the output."""
        if self._writer:
            # The limit per rule is the baseline's, if there is one.
            limit = known_findings.MAX_COMPARED if self._baseline else self._max_per_rule
            results = self._writer.collected(results, limit)
        if self._baseline:
            results = self._baseline.marked(results, self._max_per_rule)
        return spool.recorded(results, self._spool) if self._spool else results

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
        if self._writer:
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
        """Return what the HTML page says about this run."""
        return this_run.this_run(self._started, self._options)

    def new(self, total: Summary) -> Summary:
        """Return the counts that decide the exit code: those of all findings that are not known."""
        return self._baseline.new if self._baseline else total

    def _again(self) -> Iterator[FileResult]:
        assert self._spool
        return self._spool.again()


def _check_distinct(outputs: Sequence[str | None], kept: Sequence[str | None]) -> None:
    """Raise UsageError if a file is written twice, or is a baseline or a state file that the run reads."""
    seen = {os.path.realpath(path) for path in kept if path}
    for path in filter(None, outputs):
        real = path if path == "-" else os.path.realpath(path)
        if real in seen:
            named = "standard output" if path == "-" else path
            raise UsageError(f"{named} is used twice: give each output, baseline and state a file of its own")
        seen.add(real)


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
                files.append(SegmentFile(path))
        except KsegError as error:
            unreadable.append(FileResult(path, (), Summary(unread=1), str(error)))
    skipped = list(dict.fromkeys(skipped))
    if skipped:
        named = ", ".join(skipped[:_SKIPPED_SHOWN]) + ", …" * (len(skipped) > _SKIPPED_SHOWN)
        note(f"skipped {count_of(len(skipped), 'file')} (not Kafka files, or not in use): {named}")
    return once_each(files), unreadable


def _with_settings(context: click.Context) -> dict[str, Any]:
    """Return the options of the command line, and for missing ones those of the settings file."""
    found = read_settings(Path.cwd(), set(setting_names(context.params)))
    options = dict(context.params)
    for parameter in context.command.params:
        name = parameter.name or ""
        setting = found.get(_setting_name(name))
        if setting and context.get_parameter_source(name) is not click.core.ParameterSource.COMMANDLINE:
            try:
                check_type(parameter, setting.value)
                options[name] = parameter.type_cast_value(context, setting.value)
                if name == "rule":
                    Policy.parse(options[name])
            except (click.BadParameter, UsageError) as error:
                why = error.message if isinstance(error, click.BadParameter) else str(error)
                raise UsageError(f"{setting.file}: {setting.key}: {why}") from error
    return options


def setting_names(options: Iterable[str]) -> list[str]:
    """Return the names of those options that a settings file can set, with dashes."""
    return sorted(_setting_name(name) for name in options if name not in _OF_ONE_RUN)


def _setting_name(option: str) -> str:
    return "format" if option == "format_name" else option.replace("_", "-")
