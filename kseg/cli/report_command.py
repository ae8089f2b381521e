"""``kseg report``: options and exit codes. 1: damage, a loss at the start of a broker, or a hanging transaction."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from itertools import chain

import click

from kseg.cli import common
from kseg.cli.messages import FAILED, FOUND, fail, note
from kseg.cli.progress import progress_bar
from kseg.cli.recovery_command import plans_of
from kseg.cli.this_run import this_run
from kseg.cli.transactions_command import items_of
from kseg.cli.validate_command import files_of
from kseg.commands.recovery import RecoveryRequest
from kseg.commands.stats.levels import levels, sorted_by_folder, stats_of
from kseg.commands.validate.folder_checks import check_folders
from kseg.commands.validate.validate_ranges import validate_files
from kseg.errors import UsageError
from kseg.extras.html import incident
from kseg.extras.html.incident import IncidentPart
from kseg.extras.html.recovery_page import recovery_sections
from kseg.extras.html.stats_page import stats_sections
from kseg.extras.html.transactions_page import transaction_sections
from kseg.extras.html.validation_page import collect
from kseg.findings import Policy, do_nothing
from kseg.format.storage.file_access import Progress
from kseg.format.storage.naming import base_offset_of
from kseg.format.storage.source import SegmentFile, is_url, total_size
from kseg.report import recovery_report, transactions_report
from kseg.report.formats import destination
from kseg.report.wording import summary_text
from kseg.results import FileResult, Settings, Summary
from kseg.text import count_of

_STATES = ("hanging", "open", "aborted")
_TOP_PRODUCERS = 10


@click.command()
@common.paths
@common.output
@click.option("--deep/--shallow", default=True, help="Check records, or only headers and CRCs. Default: deep.")
@click.option("--clean/--unclean", default=None, help="Assume this shutdown. Default: .kafka_cleanshutdown.")
@click.option("--max-age", type=common.WholeNumber(min=0), default=900, show_default=True, metavar="SECONDS",
              help="Set the age from which an open transaction is hanging.")  # fmt: skip
@click.option("--rule", multiple=True, metavar="NAME=SEVERITY", help="Set the severity of a rule, or ignore it.")
@click.option("--max-per-rule", type=click.IntRange(min=1), default=16, show_default=True, metavar="N",
              help="List at most N findings per rule and file.")  # fmt: skip
@common.jobs
@common.max_rate
def report(
    paths: tuple[str, ...],
    output: str | None,
    deep: bool,
    clean: bool | None,
    max_age: int,
    rule: tuple[str, ...],
    max_per_rule: int,
    jobs: int,
) -> int:
    """Write one HTML page for an incident: validate, recovery, transactions and stats.

    Reads the segments once for each of these parts. The page needs no other file and no network.

    Exit codes: 0 nothing found, 1 damage, data that a broker would lose at its start, or a hanging transaction, 2 a file
    could not be read.
    """
    if output in (None, "-") and sys.stdout is not None and sys.stdout.isatty():
        raise UsageError("the page is HTML: name a file, such as -o incident.html")
    common.check_outputs()
    settings = Settings(deep=deep, policy=Policy.parse(rule), max_per_rule=max_per_rule, outline=True)
    run, total = this_run(), Summary()
    files, unreadable = files_of(paths)
    segments = [file for file in files if base_offset_of(file.path) is not None]
    with destination(output) as out, progress_bar(_twice(total_size(files))) as progress:
        found = collect(_results(files, unreadable, settings, jobs, progress, total))
        others = _Others(paths, segments, jobs, progress)
        parts = [others.recovery(clean), others.transactions(max_age), others.stats()]
        incident.write_html(found, total, parts, out, run=run)
    if output not in (None, "-"):
        note(f"{output}: {summary_text(total)}")
    if total.unread:
        return FAILED
    return FOUND if total.errors or any(part.answer for part in parts) else 0


def _twice(size: int | None) -> int | None:
    return None if size is None else 2 * size


def _results(
    files: list[SegmentFile],
    unreadable: list[FileResult],
    settings: Settings,
    jobs: int,
    progress: Progress,
    total: Summary,
) -> Iterator[FileResult]:
    found = validate_files(files, settings, jobs, progress)
    if any(file.indexes is not None for file in files):
        found = check_folders(files, settings, found)
    for result in chain(unreadable, found):
        total.add(result.summary)
        if result.unread:
            fail(result.unread)
        yield result


def _brokers(paths: tuple[str, ...], segments: list[SegmentFile]) -> Iterator[list[str]]:
    """Yield the log directories and partition folders of each broker.

    Those that the command line names are one broker. Log directories below a named folder, such as a backup of several
    brokers, are one broker each.
    """
    named = {os.path.normpath(path) for path in paths if not is_url(path) and os.path.isdir(path)}
    folders = {os.path.dirname(os.path.normpath(file.path)) for file in segments if not is_url(file.path)}
    log_dirs = {os.path.dirname(folder) for folder in folders - named}
    own = sorted(named & (folders | log_dirs))
    if own:
        yield own
    for below in sorted(log_dirs - named):
        if any(below.startswith(os.path.join(path, "")) for path in named):
            yield [below]


class _Others:
    """The parts next to the validation, which has reported damage and unreadable files already."""

    def __init__(self, paths: tuple[str, ...], segments: list[SegmentFile], jobs: int, progress: Progress) -> None:
        self._brokers = list(_brokers(paths, segments))
        self._segments = segments
        self._jobs = jobs
        self._progress = progress

    def recovery(self, clean: bool | None) -> IncidentPart:
        """Return the prediction for the log directories and partition folders among the paths."""
        total = recovery_report.RecoveryTotal()

        def unread(why: str) -> None:
            total.unread += 1  # validation prints the reason

        plans = (made for of_broker in self._brokers for made in plans_of(of_broker, RecoveryRequest(clean), unread))
        sections = recovery_sections(total.counted(plans), total)
        if not (total.partitions or total.log_dirs):
            return IncidentPart()
        answer = f"If a broker started now: {recovery_report.summary_line(total)}."
        return IncidentPart(sections, answer if total.harms else "")

    def transactions(self, max_age: int) -> IncidentPart:
        """Return the transactions, if there are any."""
        total, now = transactions_report.TransactionsTotal(), time.time_ns() // 1_000_000
        items = total.counted(items_of(self._segments, now, max_age, do_nothing, do_nothing))
        sections = transaction_sections(items, total, _STATES)
        if not any(total.states.values()):
            return IncidentPart()
        hanging = count_of(total.states["hanging"], "transaction")
        verb = "hangs" if total.states["hanging"] == 1 else "hang"
        return IncidentPart(sections, f"{hanging} {verb}." if total.states["hanging"] else "")

    def stats(self) -> IncidentPart:
        """Return the counts of the headers of valid batches."""
        if not self._segments:
            return IncidentPart()
        settings = Settings(deep=False)
        counted = stats_of(sorted_by_folder(self._segments), settings, self._jobs, self._progress)
        return IncidentPart(stats_sections(levels(counted, deep=False), _TOP_PRODUCERS))
