"""Output of ``kseg lag``: rows, or a table with the columns of ``kafka-consumer-groups --describe``.

With ``--history``: the answer, a plot and the partitions of a group, or rows by minute.
"""

from __future__ import annotations

import csv
import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from operator import attrgetter
from typing import TextIO

from kseg.commands.lag.committed_offsets import STATUSES, GroupLag
from kseg.commands.lag.group_events import MINUTE
from kseg.commands.lag.history import GroupHistory, GroupMinute, Growth, PartitionHistory, PartitionMinute
from kseg.report.row_formats import RowSet, table_of
from kseg.report.tables import TableColumn, bar_lines, cell_rows, print_pages, print_text
from kseg.schema import Column, RowKind
from kseg.text import count_of, duration, iso_time

FIELDS = RowKind("lag", "Lag of consumer groups").of(
    "lag",
    Column("group", "text", "the consumer group", "commit.group", TableColumn("group", text="wrap", least=20)),
    Column("topic", "text", "topic of the committed offset", "commit.topic"),
    Column(
        "partition", "int32", "partition of the committed offset", "commit.partition",
        TableColumn("partition", text="wrap", least=14, cell=lambda one: f"{one.commit.topic}-{one.commit.partition}"),
    ),
    Column(
        "committed_offset", "int?", "the last committed offset; null if the cleaner removed it", "commit.offset",
        TableColumn("committed", right=True, priority=2),
    ),
    Column("log_end_offset", "count?", "null if it is unknown", "log_end", TableColumn("log end", right=True, priority=3)),
    Column("lag", "int?", "log_end_offset minus committed_offset", shown=TableColumn("lag", right=True)),
    Column("status", "text", "whether a consumer can continue", shown=TableColumn("status"), values=STATUSES),
    Column(
        "commit_timestamp", "ms?", "when it was committed", "commit.commit_timestamp", TableColumn("commit time", priority=4)
    ),
    Column(
        "metadata", "text", "text of the consumer", "commit.metadata", TableColumn("metadata", text="cut", priority=5)
    ),
    Column("leader_epoch", "int?", "leader epoch of the last consumed record", "commit.leader_epoch"),
    Column("expire_timestamp", "ms?", "null if it expires with the group", "commit.expire_timestamp"),
    Column("log_start_offset", "count?", "start of the log", "log.log_start"),
    Column("high_watermark", "count?", "from the checkpoint; null without one", "log.high_watermark"),
    Column("replica", "text?", "folder of the replica that leads: of the latest leader epoch", "log.folder"),
)  # fmt: skip
COLUMNS = table_of(FIELDS.columns)


@dataclass(slots=True)
class LagTotal:
    """Sums over all commits, complete after the last one."""

    groups: set[str] = field(default_factory=set)
    statuses: Counter[str] = field(default_factory=Counter)
    lag: int = 0
    unknown: int = 0
    worst: GroupLag | None = None

    def counted(self, found: Iterable[GroupLag]) -> Iterator[GroupLag]:
        for one in found:
            self.groups.add(one.commit.group)
            self.statuses[one.status] += 1
            self.lag += max(one.lag or 0, 0)
            self.unknown += one.lag is None
            self.worst = one if self.worst is None else max(self.worst, one, key=rank)
            yield one


def rank(one: GroupLag) -> tuple[bool, int]:
    """Return a key that is larger for a worse lag: first those that a consumer cannot continue from."""
    return one.status != "ok", one.lag or 0


def rows(found: Iterable[GroupLag], total: LagTotal) -> RowSet:
    return RowSet.made(FIELDS.columns, found)


#: The most rows of a table without ``detail``: with long names of groups they take three times as many lines, and a screen
#: shows them.
_MOST_ROWS = 16


def write_table(found: Iterable[GroupLag], total: LagTotal, out: TextIO, *, detail: int = 0) -> None:
    """Write the lags, then a line with the sums. Of many lags only the worst are listed after it, unless ``detail`` is 1."""
    listed = list(islice(found, _MOST_ROWS + 1)) if detail <= 0 else []
    if len(listed) > _MOST_ROWS:
        found = _worst_rows(chain(listed, found))
        print_text(out, summary_line(total))
    else:
        found = chain(listed, found)
    print_pages(out, COLUMNS, cell_rows(COLUMNS, found, lambda one: "" if one.status == "ok" else "yellow"))
    if len(listed) > _MOST_ROWS:
        print_text(out, f"{count_of(total.statuses.total() - _MOST_ROWS, 'more partition')}: -v lists them")
    else:
        print_text(out, summary_line(total) + (_worst(total) if len(listed) > 1 else ""))


def _worst_rows(found: Iterable[GroupLag]) -> list[GroupLag]:
    """Return commits that a consumer cannot continue from, and the largest lags: half of the rows each, if there are."""
    heaps: tuple[list[tuple[int, int, GroupLag]], ...] = ([], [])
    for number, one in enumerate(found):
        heap = heaps[one.status == "ok"]
        heapq.heappush(heap, (one.lag or 0, -number, one))
        if len(heap) > _MOST_ROWS:
            heapq.heappop(heap)
    faults, late = ([one for *_, one in sorted(heap, reverse=True)] for heap in heaps)
    faults = faults[: max(_MOST_ROWS // 2, _MOST_ROWS - len(late))]
    return faults + late[: _MOST_ROWS - len(faults)]


def _worst(total: LagTotal) -> str:
    if total.worst is None or not any(rank(total.worst)):
        return ""
    commit = total.worst.commit
    return f"; the worst: {commit.group} {commit.topic}-{commit.partition}"


#: Commits that are not written for ``kafka-consumer-groups --reset-offsets``: Kafka no longer has them, or they are of
#: another log, or may be those of another time.
NOT_RESET = ("expired", "other-topic-id", "deleted-topic", "compacted")


def write_reset(found: Iterable[GroupLag], total: LagTotal, out: TextIO) -> None:
    """Write lines that ``kafka-consumer-groups --reset-offsets --from-file`` reads: group, topic, partition, offset.

    Source: ``OffsetsUtils.parseResetPlan`` and ``CsvUtils`` of Kafka 4.3.
    """
    lines = csv.writer(out, lineterminator="\n")
    lines.writerows(
        (one.commit.group, one.commit.topic, one.commit.partition, one.commit.offset)
        for one in found
        if one.status not in NOT_RESET
    )


def summary_line(total: LagTotal) -> str:
    statuses = ", ".join(f"{total.statuses[status]:,} {status}" for status in STATUSES if total.statuses[status])
    commits = count_of(total.statuses.total(), "commit")
    lag = f"lag {total.lag:,}" if total.unknown < total.statuses.total() else "lag unknown"
    if 0 < total.unknown < total.statuses.total():
        lag += f" without {count_of(total.unknown, 'commit')} of unknown lag"
    return f"{count_of(len(total.groups), 'group')}, {commits}, {lag}: {statuses or 'no offsets'}"


_GROUP = Column("group", "text", "the group")
_TIME = "start of the minute, or of a wider slot"
_PLACE = (Column("topic", "text", "topic of the offsets"), Column("partition", "int32", "partition of the offsets"))
_AGE = "age of the oldest unread record in ms; null if unknown"


def minute_text(timestamp: int) -> str:
    """Return a time as ISO 8601 to the minute."""
    return "-" if timestamp < 0 else iso_time(timestamp)[:16] + "Z"


def age_text(age: int | None) -> str:
    """Return an age in words, ``-`` if it is unknown."""
    if age is None:
        return "-"
    return count_of(age // MINUTE, "minute") if 2 * MINUTE <= age < 120 * MINUTE else duration(age)


def _number(name: str, title: str = "", priority: int = 0) -> TableColumn:
    return TableColumn(title or name, right=True, priority=priority, cell=attrgetter(name))


MINUTE_FIELDS = RowKind("lag", "History of a group by minute", "with `--history`").of(
    "lag-minute",
    _GROUP,
    Column("timestamp", "ms", _TIME, shown=TableColumn("minute", cell=lambda one: minute_text(one.timestamp))),
    Column(
        "commits", "count", "commits; of a share group the writes of its state", shown=_number("commits", priority=3)
    ),
    Column("consumed", "count", "offsets by which the committed ones rose", shown=_number("consumed")),
    Column("appended", "count", "offsets by which the logs grew", shown=_number("appended")),
    Column("lag", "count?", "offsets between both at the end of it; null if unknown", shown=_number("lag")),
    Column("lag_ms", "count?", _AGE, shown=TableColumn("oldest unread", cell=lambda one: age_text(one.lag_ms))),
    Column("unknown", "count", "partitions of unknown lag", shown=_number("unknown", priority=6)),
    Column("rebalances", "count", "changes of the generation", shown=_number("rebalances", priority=4)),
    Column("generation", "int?", "generation or epoch of the group", shown=_number("generation", priority=5)),
    Column("members", "count?", "members of the group", shown=_number("members", priority=1)),
    Column("state", "text?", "Stable, Empty, Assigning, Reconciling or Dead", shown=TableColumn("state", priority=2)),
)
_PARTITION_MINUTE = RowKind(
    "lag", "History of a partition by minute", "with `--history`: if it has commits or appends"
).of(
    "lag-partition-minute",
    _GROUP,
    *_PLACE,
    Column("timestamp", "ms", _TIME),
    Column("commits", "count", "commits; of a share group the writes of its state"),
    Column("consumed", "count", "offsets by which the committed one rose"),
    Column("appended", "count", "offsets by which the log grew"),
    Column("committed_offset", "int?", "the last one of the minute; null before the first and after a deletion"),
    Column("log_end_offset", "count?", "at the end of the minute; null if unknown"),
    Column("lag", "count?", "offsets between both; null if unknown"),
    Column("lag_ms", "count?", _AGE),
)
PARTITION_FIELDS = RowKind("lag", "End of the history of a partition", "with `--history`").of(
    "lag-partition",
    _GROUP,
    *_PLACE[:1],
    _PLACE[1]._replace(
        shown=TableColumn("partition", text="wrap", least=14, cell=lambda one: f"{one.topic}-{one.partition}")
    ),
    Column("committed_offset", "int?", "the last one", "committed.offset",
        TableColumn("committed", right=True, priority=3, cell=lambda one: one.committed.offset)),
    Column("commit_timestamp", "ms", "time of the last commit", "committed.time",
        TableColumn("last commit", priority=4, cell=lambda one: minute_text(one.committed.time))),
    Column("log_end_offset", "count?", "null without a log", "log_end",
        TableColumn("log end", right=True, priority=3, cell=attrgetter("log_end"))),
    Column("lag", "count?", "offsets between both; null if unknown", shown=_number("lag")),
    Column("lag_ms", "count?", _AGE, shown=TableColumn("oldest unread", cell=lambda one: age_text(one.lag_ms))),
    Column("status", "text", "whether a consumer can continue", shown=TableColumn("status"),
        values=(*STATUSES, "no-offset")),
    Column("growth_began", "ms?", "minute in which the growth to the highest lag began; null without growth",
        shown=TableColumn("growth began", cell=lambda one: minute_text(one.growth_began or -1))),
    Column("commits", "count", "commits in the history", shown=_number("commits", priority=5)),
    Column("consumed", "count", "offsets by which the committed one rose", shown=_number("consumed", priority=2)),
    Column("appended", "count", "offsets by which the log grew", shown=_number("appended", priority=2)),
)  # fmt: skip
_RATE = "offsets per minute"
_GROWTH = (
    Column("began", "ms", "the minute after the last one with a normal lag: a tenth of the highest, or the lowest"),
    Column("lag", "count", "the lag before it began"),
    Column("peak", "ms", "the minute of the highest lag"),
    Column("peak_lag", "count", "the highest lag"),
    Column("appended_before", "float?", f"{_RATE} before it began"),
    Column("appended", "float", f"{_RATE} from then to the peak"),
    Column("consumed_before", "float?", f"{_RATE} before it began"),
    Column("consumed", "float", f"{_RATE} from then to the peak"),
    Column("rebalances", "count", "changes of the generation from the minute before to the peak"),
)
_HISTORY = RowKind("lag", "Summary of the history of a group", "with `--history`: the last row").of(
    "lag-history",
    _GROUP,
    Column("protocol", "text?", "classic, consumer, share or streams; null without metadata of the group"),
    Column("start", "ms", "start of the history"),
    Column("end", "ms?", "time of the last event; null without one", lambda one: None if one.end < 0 else one.end),
    Column("width_ms", "count", "width of a slot: a minute, or wider if there are too many", "width"),
    Column("complete_since", "ms?", "from then on no commit was removed by the cleaner; null if that is never"),
    Column("growth", "object?", "the growth to the highest lag; null without growth", of=_GROWTH),
)
ROW_KINDS = (FIELDS, MINUTE_FIELDS, _PARTITION_MINUTE, PARTITION_FIELDS, _HISTORY)
MINUTE_COLUMNS = table_of(MINUTE_FIELDS.columns)
PARTITION_COLUMNS = table_of(PARTITION_FIELDS.columns)
_MAKERS = {
    GroupMinute: MINUTE_FIELDS.maker(),
    PartitionMinute: _PARTITION_MINUTE.maker(),
    PartitionHistory: PARTITION_FIELDS.maker(),
    GroupHistory: _HISTORY.maker(),
}


def history_rows(found: GroupHistory) -> RowSet:
    """Return the rows of minutes, of partitions by minute, of partitions, and the summary. CSV has those of minutes."""
    items = chain(found.minutes, found.partition_minutes, found.partitions, (found,))
    made = (_MAKERS[type(one)](one) for one in items)
    return RowSet.of(MINUTE_FIELDS.columns, made)


def write_history(found: GroupHistory, out: TextIO, *, detail: int = 0) -> None:
    """Write the answer, a plot, and the partitions, the worst first; with ``detail`` 1 also the minutes, -1 the answer."""
    for line in answer(found):
        print_text(out, line)
    if detail < 0 or not found.minutes:
        return
    if found.partitions:
        out.write("\n")
        out.writelines(f" {line}\n" for line in plot(found))
    ranked = worst_first(found)
    listed = ranked if detail > 0 else ranked[:_MOST_ROWS]
    out.write("\n" * (not out.isatty()))
    print_pages(
        out, PARTITION_COLUMNS, cell_rows(PARTITION_COLUMNS, listed, lambda one: "" if one.status == "ok" else "yellow")
    )
    if len(ranked) > len(listed):
        print_text(out, f"{count_of(len(ranked) - len(listed), 'more partition')}: -v lists them, and the minutes")
    if detail > 0:
        print_pages(out, MINUTE_COLUMNS, cell_rows(MINUTE_COLUMNS, found.minutes))


def worst_first(found: GroupHistory) -> list[PartitionHistory]:
    """Return the partitions in the order of a table."""
    return sorted(found.partitions, key=lambda one: (one.status == "ok", -(one.lag or 0), one.topic, one.partition))


def answer(found: GroupHistory) -> list[str]:
    """Return sentences: the lag at the end, since when it grows and what changed then, and how far the history goes back."""
    if not found.minutes:
        return [f"{found.group}: no commit in the history", *_known(found)]
    last = found.minutes[-1]
    if not found.partitions:
        lines = [f"{found.group}: no committed offset"]
    elif last.lag is None:
        lines = [f"{found.group}: lag unknown in {count_of(len(found.partitions), 'partition')}"]
    else:
        known = count_of(len(found.partitions) - last.unknown, "partition")
        unknown = f", unknown in {last.unknown:,}" if last.unknown else ""
        oldest = f"; the oldest unread record is {age_text(last.lag_ms)} old" if last.lag_ms else ""
        lines = [f"{found.group}: lag {last.lag:,} in {known}{unknown} at {minute_text(found.end)}{oldest}"]
    if found.growth:
        lines += _growth(found.growth, last.lag or 0)
    if last.state:
        generation = "" if last.generation is None else f", generation {last.generation:,}"
        lines.append(f"{found.protocol} group, {last.state}, {count_of(last.members or 0, 'member')}{generation}")
    return lines + _known(found)


def _growth(growth: Growth, lag: int) -> list[str]:
    verb = "grows" if 2 * lag > growth.peak_lag else "grew"
    first = f"it {verb} since {minute_text(growth.began)}, from {growth.lag:,}"
    if lag != growth.peak_lag:
        first += f"; highest was {growth.peak_lag:,} at {minute_text(growth.peak)}"
    appended, consumed = (
        f"{name} {'' if before is None else f'{before:,.1f} before, '}{after:,.1f} then"
        for name, before, after in (
            ("appended", growth.appended_before, growth.appended),
            ("consumed", growth.consumed_before, growth.consumed),
        )
    )
    return [first, f"per minute: {appended}; {consumed}; {count_of(growth.rebalances, 'rebalance')} in that time"]


def _known(found: GroupHistory) -> list[str]:
    if found.complete_since is None:
        return ["no history: the cleaner may have removed each commit but the last"]
    if found.start // found.width * found.width <= found.complete_since:
        return [f"the history is known since {minute_text(found.complete_since)}"]
    return []


_PLOT_COLUMNS = 56
_LAG_LINES = 4
_NAME, _HIGHEST = 14, 8


def plot_slots(found: GroupHistory, most: int) -> list[Sequence[GroupMinute]]:
    """Return the minutes in at most ``most`` parts of equal length."""
    step = -(-len(found.minutes) // most)
    return [found.minutes[at : at + step] for at in range(0, len(found.minutes), step)]


def last_known(part: Sequence[GroupMinute], name: str) -> int | None:
    return next((value for one in reversed(part) if (value := getattr(one, name)) is not None), None)


def plot(found: GroupHistory) -> list[str]:
    """Return the lines of a plot of at most 80 columns. ``?`` is an unknown lag."""
    parts = plot_slots(found, _PLOT_COLUMNS)
    per_minute = found.width // MINUTE

    def rates(name: str) -> list[float | None]:
        return [sum(getattr(one, name) for one in part) / len(part) / per_minute for part in parts]

    lines = _bars("lag", [last_known(part, "lag") for part in parts], _LAG_LINES, lambda high: f"{high:,.0f}")
    lines += _bars("oldest unread", [last_known(part, "lag_ms") for part in parts], 1, _short_age)
    for name in ("appended", "consumed", "commits"):
        lines += _bars(f"{name}/min", rates(name), 1, lambda high: f"{high:,.0f}" if high >= 10 else f"{high:,.1f}")
    marks = "".join("^" if any(one.rebalances for one in part) else " " for part in parts)
    lines += [_line("rebalances", str(sum(one.rebalances for one in found.minutes)), marks)] if marks.strip() else []
    if found.growth:
        began = found.growth.began
        grown = next(at for at, part in enumerate(parts) if part[-1].timestamp >= began)
        lines.append(_line("growth began", "", " " * grown + "^"))
    step = count_of(len(parts[0]) * per_minute, "minute")
    first, last = minute_text(found.minutes[0].timestamp), minute_text(found.minutes[-1].timestamp)
    return [*lines, f"{first} to {last}, {step} per column"]


def _bars(name: str, values: Sequence[float | None], height: int, shown: Callable[[float], str]) -> list[str]:
    highest = max((value for value in values if value is not None), default=0)
    first, *others = bar_lines(values, height)
    return [_line(name, shown(highest), first), *(_line("", "", drawn) for drawn in others)]


def _short_age(age: float) -> str:
    minutes = int(age) // MINUTE
    return f"{age // 1000:.0f} s" if minutes < 2 else f"{minutes} min" if minutes < 120 else f"{minutes // 60:,} h"


def _line(name: str, highest: str, drawn: str) -> str:
    return f"{name:<{_NAME}}{highest:>{_HIGHEST}} │{drawn}".rstrip()
