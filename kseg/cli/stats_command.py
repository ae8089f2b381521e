"""``kseg stats``: options and exit codes. 1: damage was found. 2: a file could not be read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import click

from kseg.cli import common
from kseg.cli.messages import FAILED, note_output, progress_bar
from kseg.cli.outcome import FindingNotes
from kseg.cli.typed_command import TableOptions, command
from kseg.commands.stats.counted_file import SegmentStats
from kseg.commands.stats.levels import levels, sorted_by_folder, stats_of
from kseg.findings import READ_ERROR, Policy, Severity
from kseg.format.segment.framed_files import framed_files
from kseg.format.storage.segment_files import find_segments, total_size
from kseg.report.formats import STATS, destination
from kseg.report.wording import omitted_findings
from kseg.results import Settings
from kseg.text import count_of


@dataclass(frozen=True, kw_only=True)
class StatsOptions(TableOptions):
    deep: bool
    framings: tuple[str, ...]
    limit: int
    top_keys: bool
    no_crc: bool

    @property
    def reads_records(self) -> bool:
        """Whether batches are opened: if the options say so, or if they count records."""
        return self.deep or self.top_keys


@command(
    StatsOptions,
    results=STATS,
    arguments=(common.LOG_PATHS,),
    examples=(
        "kseg stats kafka-logs",
        "kseg stats --top-keys kafka-logs/orders-0",
        "kseg stats --as requests stream.bin",
    ),
)
def stats(asked: StatsOptions) -> int:
    """Count the content of segments per segment, partition and log directory.

    Counts batches, records, bytes, versions, codecs, timestamps, keys, tombstones, producers, leader epochs and
    transactions, sizes of records and bytes by hour; with --as also requests and responses by API. Shows the batch that
    delays time retention. Skips damage, and reports it on stderr.
    """
    common.check_outputs()
    settings = Settings(deep=asked.reads_records, verify_crc=not asked.no_crc, keys=asked.top_keys)
    outcome = _Outcome(each=asked.verbose)
    if asked.framings:
        files = framed_files(asked.paths, asked.framings)
    else:
        files = sorted_by_folder(outcome.listed(asked.paths, find_segments))
    with destination(asked.output) as out, progress_bar(total_size(files)) as progress:
        counted = stats_of(files, settings, asked.jobs, progress)
        counts = levels(outcome.noted(counted), settings.deep)
        asked.write(STATS, out, counts, asked.limit)
        if outcome.failed and not outcome.read:
            raise click.exceptions.Exit(FAILED)  # inside the block, so that an older output file is kept
    note_output(asked.output, f"{count_of(outcome.read, 'file' if asked.framings else 'segment')} counted")
    return outcome.exit_code(outcome.found)


class _Outcome(FindingNotes):
    """Prints findings on stderr, and counts the errors and the files that were read."""

    read = found = 0

    def noted(self, counted: Iterator[SegmentStats]) -> Iterator[SegmentStats]:
        """Yield the same statistics, and print their findings."""
        for one in counted:
            for verdict in one.result.verdicts:
                if verdict.finding.rule == READ_ERROR:
                    continue  # the reason of ``unread``, below
                # As it was weighed for its file: zeros at the end of a sealed segment are an error.
                self.policy = Policy({verdict.rule.name: verdict.severity})
                self(verdict.file, verdict.finding)
            for rule, more in omitted_findings(one.result):
                if any(verdict.severity >= Severity.WARNING for verdict in one.result.verdicts if verdict.rule is rule):
                    self.more(one.result.file, rule.name, more)
            self.found += one.result.summary.errors
            if one.result.unread:
                self.fail(one.result.unread)
            else:
                self.read += 1
            yield one
