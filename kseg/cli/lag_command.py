"""``kseg lag``: options and exit codes. 1: damage, or an offset that a consumer can't continue from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from kseg.cli import common
from kseg.cli.common import parallel_map
from kseg.cli.messages import note, note_after, note_output, progress_bar
from kseg.cli.outcome import FindingNotes
from kseg.cli.typed_command import TableOptions, command
from kseg.commands.lag.committed_offsets import (
    OUTSIDE,
    Commit,
    GroupLag,
    LogDirs,
    PartitionReplica,
    lags,
    now_ms,
    partitions_of,
    read_commits,
)
from kseg.commands.lag.group_events import GroupEvents, read_group
from kseg.commands.lag.history import GroupHistory, group_history, log_requests
from kseg.commands.lag.log_history import read_log, read_offset_map
from kseg.errors import UsageError
from kseg.format.internal_topics.state import Moment
from kseg.format.record.layout import INT64_MAX
from kseg.format.storage.naming import CONSUMER_OFFSETS, SHARE_GROUP_STATE, is_url
from kseg.format.storage.segment_files import check_complete, check_exists, find_segments, is_folder, once_each
from kseg.format.storage.source import local_size
from kseg.report.formats import LAG, LAG_HISTORY, destination
from kseg.report.lag_report import NOT_RESET, LagTotal, answer, summary_line
from kseg.text import count_of


@dataclass(frozen=True, kw_only=True)
class LagOptions(TableOptions):
    group: tuple[str, ...]
    history: str | None
    since: int | None
    until: int | None
    at: Moment | None
    offset_map: str | None


@command(
    LagOptions,
    results=LAG,
    arguments=(common.LOG_PATHS,),
    examples=(
        "kseg lag broker1/logs broker2/logs broker3/logs",
        "kseg lag --history billing --since 6h kafka-logs",
        "kseg lag --format reset-csv -o offsets.csv kafka-logs",
    ),
)
def lag(asked: LagOptions) -> int:
    """List the lag of consumer groups, as kafka-consumer-groups --describe does, but offline.

    PATHs are the log directories of all brokers. The committed offsets are those in __consumer_offsets, the log ends those
    of the replicas with the latest leader epoch. The lag is the difference. --format reset-csv writes the offsets for
    kafka-consumer-groups --reset-offsets --from-file. --history shows since when the lag of a group grows: its commits,
    rebalances, and the appends to its partitions by minute.

    Exit codes: 0 all offsets are in their logs, 1 an offset is outside of its log, or may be another, or
    damage was found, 2 the command
    failed.
    """
    paths, groups = asked.paths, asked.group
    if asked.at is not None and asked.at.offset is not None:
        raise UsageError(f"--at {asked.at.offset}: a lag is that of a time, not of an offset: give a TIME")
    for path in filter(is_url, paths):
        raise UsageError(f"{path}: lag reads local log directories only: give a folder")
    for path in paths:
        check_exists(path)
    common.check_outputs()
    targets = read_offset_map(asked.offset_map) if asked.offset_map else None
    files = once_each(file for path in paths for file in find_segments(path))
    notes, total = FindingNotes(each=asked.verbose), LagTotal()
    notes.weigh(files)
    found = LogDirs(files, notes)
    replicas = partitions_of(found, CONSUMER_OFFSETS)
    if not replicas:
        for path in paths:
            check_complete(path)
        raise UsageError(f"no partition of {CONSUMER_OFFSETS} found: give the log directories of all brokers")
    if asked.history is not None:
        return _HistoryRun(asked, asked.history, found, notes).show(replicas)
    for file in files:
        if is_folder(file.path):
            notes.fail(f"{file.path}: the folder cannot be listed")
    size = sum(local_size(path) or 0 for replica in replicas for path in replica.segments)
    damaged = False

    def commits() -> Iterator[Commit]:
        nonlocal damaged
        for read in each(partial(read_commits, at=asked.at), replicas):
            known = notes.errors
            notes.add(read)
            damaged = damaged or notes.errors > known
            for line in read.undecoded:
                note_after(line)
            yield from (commit for commit in read.commits if not groups or commit.group in groups)

    def mapped(lines: Iterable[GroupLag]) -> Iterator[GroupLag]:
        unmapped = 0
        for one in lines:
            commit = one.commit
            if targets is None or commit.offset is None:
                yield one
            elif (offset := targets.target(commit.topic, commit.partition, commit.offset)) is None:
                unmapped += 1
            else:
                yield replace(one, commit=replace(commit, offset=offset))
        if unmapped:
            note_after(f"left out, because the offset map does not have them: {count_of(unmapped, 'partition')}")

    with asked.work(len(replicas), size) as (out, each, _):
        asked.write(LAG, out, mapped(total.counted(lags(found, commits(), asked.at))), total)
    note_output(asked.output, summary_line(total))
    if asked.format == "reset-csv":
        _note_left_out(total, damaged=damaged)
    _note_other_brokers(total, found)
    for group in sorted(set(groups) - total.groups):
        note(f"group {group}: no committed offset found")
        notes.failed = True
    return notes.exit_code(any(total.statuses[status] for status in (*OUTSIDE, "compacted")))


def _note_other_brokers(total: LagTotal, found: LogDirs) -> None:
    """Print the partitions that the log directories of one broker lack: those with commits, and those with other groups."""
    numbers = {place[1] for place in found.replicas if place[0] == CONSUMER_OFFSETS and found.leader(place)}
    lacking = [number for number in range(max(numbers)) if number not in numbers]
    unknown = total.statuses["missing-partition"]
    what = [f"the partitions of {count_of(unknown, 'commit')}"] if unknown else []
    what += (
        [f"{len(lacking):,} of {max(numbers) + 1:,} known partitions of {CONSUMER_OFFSETS}, with other groups"]
        if lacking
        else []
    )
    if what:
        note_after(f"lag needs the log directories of all brokers: these lack {' and '.join(what)}")


def _note_left_out(total: LagTotal, *, damaged: bool) -> None:
    """Print which statuses are left out, and that a line can be wrong because the commits are ``damaged``."""
    left_out = ", ".join(f"{total.statuses[status]:,} {status}" for status in NOT_RESET if total.statuses[status])
    if left_out:
        note(f"left out because of their status: {left_out}")
    if damaged:
        note(f"{CONSUMER_OFFSETS} is damaged: where the last commit is lost, an earlier one is written")


@dataclass
class _HistoryRun:
    """Shows the history of a group, from all log directories."""

    asked: LagOptions
    group: str
    found: LogDirs
    notes: FindingNotes

    def show(self, replicas: list[PartitionReplica]) -> int:
        """Write the history; return the exit code. ``replicas`` are the partitions of ``__consumer_offsets``."""
        asked = self.asked
        with destination(asked.output) as out:
            events = self._read_events(replicas)
            if events is None:
                raise UsageError(
                    f"group {self.group}: nothing found in {count_of(len(replicas), 'partition')} of {CONSUMER_OFFSETS}"
                )
            history = self._read_logs(events)
            asked.write(LAG_HISTORY, out, history)
        note_output(asked.output, answer(history)[0])
        return self._exit_code(history)

    def _read_events(self, replicas: list[PartitionReplica]) -> GroupEvents | None:
        """Return what the group wrote, None if nothing was found."""
        events = self._newest(CONSUMER_OFFSETS, replicas, {})
        if events is not None and events.protocol != "share":
            return events
        states = partitions_of(self.found, SHARE_GROUP_STATE)
        share = self._newest(SHARE_GROUP_STATE, states, self.found.topics_by_id() if states else {})
        if share is None:
            if events is not None:
                note_after(f"no offsets of a share group without its partition of {SHARE_GROUP_STATE}")
            return events
        if events is not None:
            known = (share.complete_since, events.complete_since)
            share.states = events.states
            share.complete_since = None if None in known else max(one for one in known if one is not None)
        return share

    def _newest(self, topic: str, replicas: list[PartitionReplica], topics: dict[str, str]) -> GroupEvents | None:
        read = partial(read_group, topic=topic, group=self.group, until=self.asked.until, topics=topics)
        found = [events for events in self._each(read, replicas, replicas) if events]
        if len(found) > 1:
            note_after(
                f"group {self.group}: {len(found):,} partitions of {topic} have records of it: the newest is used"
            )
        for events in found:
            if events.unknown:
                what = count_of(events.unknown, "record")
                note_after(f"{events.folder}: left out, because Kafka 4.3 does not know their type: {what}")
        return max(found, key=lambda one: max(line.last_time for line in one.timelines()), default=None)

    def _read_logs(self, events: GroupEvents) -> GroupHistory:
        asked, found = self.asked, self.found
        since, until, now = asked.since or 0, INT64_MAX if asked.until is None else asked.until, now_ms()
        leaders = {place: leader for place in events.commits if (leader := found.leader(place))}
        requests = log_requests(events, leaders, since, until, now)
        read = self._each(read_log, requests.values(), leaders.values())
        logs = dict(zip(requests, read, strict=True))
        return group_history(self.group, events, logs, since, found, min(until, now))

    def _each(self, function: Any, items: Iterable[Any], replicas: Iterable[PartitionReplica]) -> list[Any]:
        """Return the results of a function for all items, and print what could not be read."""
        items = list(items)
        size = sum(local_size(path) or 0 for replica in replicas for path in replica.segments)
        with progress_bar(size) as progress, parallel_map(self.asked.jobs, len(items), size, progress) as each:
            results = list(each(function, items))
        for one in results:
            self.notes.add(one)
        return results

    def _exit_code(self, history: GroupHistory) -> int:
        """Print which logs are missing, and return the exit code."""
        missing = [one for one in history.partitions if one.status == "missing-partition"]
        if missing:
            first = f"{missing[0].topic}-{missing[0].partition}"
            note_after(
                f"lag needs the log directories of all brokers: these lack {count_of(len(missing), 'log')}, first {first}"
            )
        if history.partitions and not history.minutes:
            note(f"group {self.group}: no commit in the requested time")
            self.notes.failed = True
        return self.notes.exit_code(any(one.status in OUTSIDE for one in history.partitions))
