"""``kseg lag --history``: reads what a group wrote, then the logs of its partitions."""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from kseg.cli.common import parallel_map
from kseg.cli.messages import FAILED, FOUND, fail, fail_after, note_after, note_output
from kseg.cli.outcome import FindingNotes
from kseg.cli.progress import progress_bar
from kseg.cli.this_run import this_run
from kseg.commands.lag.committed_offsets import OUTSIDE, LogDirs, PartitionReplica, partitions_of
from kseg.commands.lag.group_events import GroupEvents, read_group
from kseg.commands.lag.history import GroupHistory, group_history, log_requests, read_log
from kseg.errors import UsageError
from kseg.format.internal_topics.decode import CONSUMER_OFFSETS, SHARE_GROUP_STATE
from kseg.format.record.layout import INT64_MAX
from kseg.format.sidefiles.metadata_files import topic_id_of
from kseg.format.storage.source import local_size
from kseg.report.formats import LAG_HISTORY, destination, write
from kseg.report.lag_history_report import answer
from kseg.text import count_of

if TYPE_CHECKING:
    from kseg.cli.lag_command import LagOptions


def show_history(asked: LagOptions, group: str, found: LogDirs, replicas: list[PartitionReplica]) -> int:
    """Write the history of a group; return the exit code. ``replicas`` are the partitions of ``__consumer_offsets``."""
    run = _HistoryRun(asked, group, found)
    with destination(asked.output) as out:
        events = run.read_events(replicas)
        if events is None:
            raise UsageError(
                f"group {group}: nothing found in {count_of(len(replicas), 'partition')} of {CONSUMER_OFFSETS}"
            )
        history = run.read_logs(events)
        write(LAG_HISTORY, asked.format, out, history, detail=asked.detail, columns=asked.columns, run=this_run)
    note_output(asked.output, answer(history)[0])
    return run.exit_code(history)


class _HistoryRun:
    def __init__(self, asked: LagOptions, group: str, found: LogDirs) -> None:
        self._asked = asked
        self._group = group
        self._found = found
        self._notes = FindingNotes(each=asked.verbose)
        self._failed = False

    def read_events(self, replicas: list[PartitionReplica]) -> GroupEvents | None:
        """Return what the group wrote, None if nothing was found."""
        events = self._newest(CONSUMER_OFFSETS, replicas, {})
        if events is not None and events.protocol != "share":
            return events
        ids = {topic_id_of(one.folder): place[0] for place, ones in self._found.replicas.items() for one in ones}
        topics = {topic_id: topic for topic_id, topic in ids.items() if topic_id}
        share = self._newest(SHARE_GROUP_STATE, partitions_of(self._found, SHARE_GROUP_STATE), topics)
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
        read = partial(read_group, topic=topic, group=self._group, until=self._asked.until, topics=topics)
        found = [events for events in self._each(read, replicas, replicas) if events]
        if len(found) > 1:
            note_after(
                f"group {self._group}: {len(found):,} partitions of {topic} have records of it: the newest is used"
            )
        for events in found:
            if events.unreadable:
                note_after(f"{events.folder}: left out, because they cannot be decoded: {events.unreadable:,} records")
        return max(found, key=lambda one: max(line.last_time for line in one.timelines()), default=None)

    def read_logs(self, events: GroupEvents) -> GroupHistory:
        """Return the history with the logs of the group's partitions."""
        asked, found = self._asked, self._found
        since, until = asked.since or 0, INT64_MAX if asked.until is None else asked.until
        newest = {place: found.newest(place) for place in events.commits if place in found.replicas}
        requests = log_requests(events, newest, since, until, time.time_ns() // 1_000_000)
        read = self._each(read_log, requests.values(), newest.values())
        logs = dict(zip(requests, read, strict=True))
        deleted = {place[0]: found.is_deleted(place[0]) for place in events.commits if place not in logs}
        return group_history(self._group, events, logs, since, deleted)

    def _each(self, function: Any, items: Iterable[Any], replicas: Iterable[PartitionReplica]) -> list[Any]:
        """Return the results of a function for all items, and print what could not be read."""
        items = list(items)
        size = sum(local_size(path) or 0 for replica in replicas for path in replica.segments)
        with progress_bar(size) as progress, parallel_map(self._asked.jobs, len(items), size, progress) as each:
            results = list(each(function, items))
        for one in results:
            for file, finding in one.findings:
                self._notes(file, finding)
            if one.unread:
                self._failed = bool(fail_after(one.unread))
        return results

    def exit_code(self, history: GroupHistory) -> int:
        """Print which logs are missing, and return the exit code."""
        missing = [one for one in history.partitions if one.status == "missing-partition"]
        if missing:
            first = f"{missing[0].topic}-{missing[0].partition}"
            note_after(
                f"lag needs the log directories of all brokers: these lack {count_of(len(missing), 'log')}, first {first}"
            )
        if history.partitions and not history.minutes:
            self._failed = bool(fail(f"group {self._group}: no commit in the requested time"))
        if self._failed:
            return FAILED
        return FOUND if self._notes.errors or any(one.status in OUTSIDE for one in history.partitions) else 0
