"""The history of a group: its commits and generations next to the appends to its partitions, by minute.

A committed offset proves that the log had reached it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kseg.commands.lag.committed_offsets import Commit, LogDirs, LogExtent, PartitionReplica, Place, lag_of
from kseg.commands.lag.group_events import (
    MINUTE,
    MOST_CELLS,
    Committed,
    GroupEvents,
    GroupState,
    Timeline,
)
from kseg.commands.lag.log_history import LogHistory, LogRequest
from kseg.format.storage.naming import base_offset_of

#: The fewest slots of a partition, also of groups with very many partitions.
_FEWEST_SLOTS = 240
#: The part of the highest lag that counts as normal: growth begins after it.
_NORMAL_PART = 10


@dataclass(frozen=True, slots=True)
class GroupMinute:
    """A slot of the history. Lags are those at its end, in offsets and milliseconds, None if no partition's is known.

    ``lag_ms`` is the age of the oldest unread record. ``unknown`` is the number of partitions without a known lag.
    """

    group: str
    timestamp: int
    commits: int
    consumed: int
    appended: int
    lag: int | None
    lag_ms: int | None
    unknown: int
    rebalances: int
    generation: int | None
    members: int | None
    state: str | None


@dataclass(frozen=True, slots=True)
class PartitionMinute:
    """A slot of a partition that has commits or appends."""

    group: str
    topic: str
    partition: int
    timestamp: int
    commits: int
    consumed: int
    appended: int
    committed_offset: int | None
    log_end_offset: int | None
    lag: int | None
    lag_ms: int | None


@dataclass(frozen=True, slots=True)
class Growth:
    """The growth to the highest lag. ``began`` is the minute after the last one with a normal lag, ``lag`` the lag before.

    Rates are offsets per minute, before it began and from then to the peak; None for a part without a minute.
    """

    began: int
    lag: int
    peak: int
    peak_lag: int
    appended_before: float | None
    appended: float
    consumed_before: float | None
    consumed: float
    rebalances: int


@dataclass(slots=True)
class PartitionHistory:
    """A partition at the end of the history, with the ``log_end`` of that time. The ``status`` is that of ``GroupLag``.

    After the deletion of its offset the status is "no-offset".
    """

    group: str
    topic: str
    partition: int
    committed: Committed
    status: str
    log_end: int | None = None
    lag: int | None = None
    lag_ms: int | None = None
    commits: int = 0
    consumed: int = 0
    appended: int = 0
    lags: list[int | None] = field(default_factory=list)
    growth_began: int | None = None


@dataclass(slots=True)
class GroupHistory:
    """The history of a group from ``start`` to ``end`` (epoch milliseconds), in slots of ``width`` milliseconds.

    ``complete_since`` is the time from which no commit was removed by the cleaner.
    """

    group: str
    protocol: str | None
    start: int
    end: int
    width: int
    complete_since: int | None
    minutes: list[GroupMinute]
    partitions: list[PartitionHistory]
    partition_minutes: list[PartitionMinute]
    growth: Growth | None


def log_requests(
    events: GroupEvents, replicas: Mapping[Place, PartitionReplica], since: int, until: int, now: int
) -> dict[Place, LogRequest]:
    """Return the logs to read for a group, by partition. The history begins at ``since`` or when it is complete."""
    start = max(since, events.complete_since if events.complete_since is not None else now)
    for line in events.timelines():
        line.begin_at(start // line.width)
    most = max(MOST_CELLS // max(len(events.commits), 1), _FEWEST_SLOTS)
    found = {}
    for place, line in events.commits.items():
        values = [line.before, *(value for _, value in line.slots.values())]
        if place in replicas:
            local = base_offset_of(replicas[place].segments[0]) or 0  # earlier records may be in tiered storage
            offsets = sorted({one.offset for one in values if one and one.offset is not None and one.offset >= local})
            found[place] = LogRequest(replicas[place], offsets, start // line.width * line.width, until, now, most)
    return found


def group_history(
    group: str, events: GroupEvents, logs: Mapping[Place, LogHistory], since: int, dirs: LogDirs, at: int
) -> GroupHistory:
    """Combine the events of a group with the logs of its partitions. ``at`` is the time at which commits can be expired."""
    lines = [*events.timelines(), *(log.ends for log in logs.values())]
    slots = _common_slots(lines, max(len(events.commits), 1))
    events.width = lines[0].width
    end = max((line.last_time for line in lines), default=-1)
    follow = [
        _PartitionFollower(group, place, line, logs.get(place), dirs.extent(place))
        for place, line in sorted(events.commits.items())
    ]
    minutes: list[GroupMinute] = []
    details: list[PartitionMinute] = []
    state = events.states.before
    for slot in slots:
        time = slot * events.width
        found = [one.step(slot, min(time + events.width - 1, end)) for one in follow]
        changes, state = events.states.slots.get(slot, (0, state))
        details += [one for one in found if one.commits or one.appended]
        minutes.append(_summed(group, time, found, changes, state))
    partitions = [one.finish(dirs, at) for one in follow]
    for one in partitions:
        began = _growth_range(one.lags)
        one.growth_began = None if began is None else minutes[began[0]].timestamp
    start = slots.start * events.width if slots else max(since, 0)
    return GroupHistory(
        group, events.protocol, start, end, events.width, events.complete_since, minutes,
        partitions, details, _growth(minutes, events.width),
    )  # fmt: skip


def _common_slots(lines: Sequence[Timeline[object]], partitions: int) -> range:
    """Give all timelines slots of one width, and return the slots from the first to the last."""
    width = max(line.width for line in lines)
    most = max(MOST_CELLS // partitions, _FEWEST_SLOTS)
    while True:
        for line in lines:
            line.widen(width)
        used = [slot for line in lines for slot in line.slots]
        slots = range(min(used), max(used) + 1) if used else range(0)
        if len(slots) <= most:
            return slots
        width *= 2


class _PartitionFollower:
    """Follows a partition from slot to slot. ``found`` is its history so far."""

    def __init__(
        self, group: str, place: Place, line: Timeline[Committed], log: LogHistory | None, extent: LogExtent | None
    ) -> None:
        self.found = PartitionHistory(group, *place, Committed(None, -1), "no-offset")
        self._line = line
        self._log = log
        self._start = extent.log_start if extent else 0
        self._committed = line.before
        self._end = log.ends.before if log else None
        # A log that ends before a committed offset has lost records: until the next commit its ends are unknown.
        lost = [slot for slot, (_, one) in line.slots.items() if self._is_after_end(one.offset)]
        self._unknown_until = max(lost, default=None)

    def step(self, slot: int, now: int) -> PartitionMinute:
        """Return the next slot. ``now`` is the time of its end."""
        commits, committed = self._line.slots.get(slot, (0, self._committed))
        appended, self._end = self._log.ends.slots.get(slot, (0, self._end)) if self._log else (0, None)
        after = committed.offset if committed else None
        consumed = (committed.consumed if committed else 0) - (self._committed.consumed if self._committed else 0)
        self._committed = committed
        is_known = not self._is_after_end(after) and (self._unknown_until is None or slot > self._unknown_until)
        if after is not None and self._end is not None and is_known:
            self._end = max(self._end, after)
        found = self.found
        found.lag, found.lag_ms = self._lag(now) if is_known else (None, None)
        found.lags.append(found.lag)
        found.commits += commits
        found.consumed += consumed
        found.appended += appended
        return PartitionMinute(
            found.group, found.topic, found.partition, slot * self._line.width, commits, consumed, appended, after,
            self._end, found.lag, found.lag_ms,
        )  # fmt: skip

    def _lag(self, now: int) -> tuple[int | None, int | None]:
        offset = self._committed.offset if self._committed else None
        if self._log is None or offset is None or self._end is None or self._committed is None:
            return None, None
        lag = max(self._end - offset - self._committed.delivered, 0)
        if not lag:
            return 0, 0
        # The records that the log no longer has are not those at later offsets.
        time = self._log.times.get(offset) if offset >= self._start else None
        return lag, None if time is None or time < 0 else max(now - time, 0)

    def _is_after_end(self, offset: int | None) -> bool:
        """Return whether a committed offset is after the end of the log."""
        return offset is not None and self._log is not None and offset > (self._log.log_end or 0)

    def finish(self, dirs: LogDirs, at: int) -> PartitionHistory:
        """Return the partition at the end of the history."""
        found, last = self.found, self._committed
        if last is not None and last.offset is not None:
            commit = Commit(
                found.group, found.topic, found.partition, last.offset, None, "", last.time, last.expire_timestamp,
                last.topic_id,
            )  # fmt: skip
            found.status = lag_of(dirs, commit, at).status
        found.committed, found.log_end = last or found.committed, self._end
        return found


def _summed(
    group: str, time: int, found: Sequence[PartitionMinute], changes: int, state: GroupState | None
) -> GroupMinute:
    lags = [one.lag for one in found if one.lag is not None]
    ages = [one.lag_ms for one in found if one.lag_ms is not None]
    return GroupMinute(
        group, time, sum(one.commits for one in found), sum(one.consumed for one in found),
        sum(one.appended for one in found), sum(lags) if lags else None, max(ages, default=None),
        len(found) - len(lags), changes, state.generation if state else None, state.members if state else None,
        state.state if state else None,
    )  # fmt: skip


def _growth(minutes: Sequence[GroupMinute], width: int) -> Growth | None:
    # The sum jumps when the lag of another partition becomes known.
    first = len(minutes)
    while first and minutes[first - 1].unknown == minutes[-1].unknown:
        first -= 1
    found = _growth_range([one.lag for one in minutes[first:]])
    if found is None:
        return None
    began, peak = found[0] + first, found[1] + first
    before, after = minutes[first:began], minutes[began : peak + 1]

    def rate(part: Sequence[GroupMinute], name: str) -> float:
        total: int = sum(getattr(one, name) for one in part)
        return round(total / len(part) / (width / MINUTE), 1)

    # The offsets of the first slot can be those of a part of it.
    before = before[1:] or before
    return Growth(
        minutes[began].timestamp, minutes[began - 1].lag or 0, minutes[peak].timestamp, minutes[peak].lag or 0,
        rate(before, "appended") if before else None, rate(after, "appended"),
        rate(before, "consumed") if before else None, rate(after, "consumed"),
        sum(one.rebalances for one in minutes[max(began - 1, 0) : peak + 1]),
    )  # fmt: skip


def _growth_range(lags: Sequence[int | None]) -> tuple[int, int] | None:
    """Return where the growth to the highest lag began, and its highest point, None without growth.

    The lag before is at most a tenth of the highest, or the lowest one; from there on back while it falls.
    """
    known = [(number, lag) for number, lag in enumerate(lags) if lag is not None]
    if not known:
        return None
    peak = max(range(len(known)), key=lambda at: (known[at][1], at))
    highest = known[peak][1]
    normal = max(highest // _NORMAL_PART, min(lag for _, lag in known[: peak + 1]))
    at = max(at for at in range(peak + 1) if known[at][1] <= normal)
    while at and known[at - 1][1] < known[at][1]:
        at -= 1
    return (known[at + 1][0], known[peak][0]) if at < peak else None
