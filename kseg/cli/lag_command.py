"""``kseg lag``: options and exit codes. 1: damage, or an offset outside of its log."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kseg.cli import common
from kseg.cli.common import parallel_map
from kseg.cli.messages import FAILED, FOUND, fail, note_output
from kseg.cli.outcome import FindingNotes
from kseg.cli.progress import progress_bar
from kseg.cli.typed_command import TableOptions, command
from kseg.commands.lag import (
    OUTSIDE,
    Commit,
    LogDirs,
    lags,
    offsets_replicas,
    read_commits,
)
from kseg.errors import UsageError
from kseg.format.internal_topics.decode import CONSUMER_OFFSETS
from kseg.format.storage.source import check_exists, find_segments, is_folder, is_url, local_size, once_each
from kseg.report.formats import LAG, destination, write
from kseg.report.lag_report import LagTotal, summary_line


@dataclass(frozen=True, kw_only=True)
class LagOptions(TableOptions):
    """The command line of ``kseg lag``."""

    group: tuple[str, ...]
    jobs: int


@command(
    LagOptions,
    results=LAG,
    examples=(
        "kseg lag broker1/logs broker2/logs broker3/logs",
        "kseg lag --group billing kafka-logs",
        "kseg lag --format csv -o lag.csv kafka-logs",
    ),
)
def lag(asked: LagOptions) -> int:
    """List the lag of consumer groups, as kafka-consumer-groups --describe does, but offline.

    PATHs are the log directories of all brokers. The committed offsets are those in __consumer_offsets, the log ends those
    of the replicas with the highest end. The lag is the difference.

    Exit codes: 0 all offsets are in their logs, 1 an offset is outside of its log or damage was found, 2 the command
    failed.
    """
    paths, groups = asked.paths, asked.group
    for path in filter(is_url, paths):
        raise UsageError(f"{path}: lag reads local log directories only: give a folder")
    for path in paths:
        check_exists(path)
    common.check_outputs()
    files = once_each(file for path in paths for file in find_segments(path))
    found = LogDirs(files)
    replicas = offsets_replicas(found)
    if not replicas:
        raise UsageError(f"no partition of {CONSUMER_OFFSETS} found: give the log directories of all brokers")
    notes, total = FindingNotes(), LagTotal()
    failed = False
    for file in files:
        if is_folder(file.path):
            failed = bool(fail(f"{file.path}: the folder cannot be listed"))
    size = sum(local_size(path) or 0 for replica in replicas for path in replica.segments)

    def commits() -> Iterator[Commit]:
        nonlocal failed
        for read in each(read_commits, replicas):
            for file, finding in read.findings:
                notes(file, finding)
            if read.unread:
                failed = bool(fail(read.unread))
            yield from (commit for commit in read.commits if not groups or commit.group in groups)

    with (
        destination(asked.output) as out,
        progress_bar(size) as progress,
        parallel_map(asked.jobs, len(replicas), size, progress) as each,
    ):
        write(LAG, asked.format, out, total.counted(lags(found, commits())), total, detail=asked.detail)
    note_output(asked.output, summary_line(total))
    for group in sorted(set(groups) - total.groups):
        failed = bool(fail(f"group {group}: no committed offset found"))
    if failed:
        return FAILED
    return FOUND if notes.errors or any(total.statuses[status] for status in OUTSIDE) else 0
