"""Output of ``kseg lag``: rows, or a table with the columns of ``kafka-consumer-groups --describe``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TextIO

from kseg.commands.lag.lag import STATUSES, GroupLag
from kseg.report.rows import RowSet
from kseg.report.tables import TableColumn, print_pages, print_text
from kseg.schema import Row
from kseg.text import count_of, escape_controls, iso_time

_NAMES = (
    "kind", "group", "topic", "partition", "committed_offset", "log_end_offset", "lag", "status", "commit_timestamp",
    "metadata", "leader_epoch", "expire_timestamp", "log_start_offset", "high_watermark", "replica",
)  # fmt: skip


@dataclass(slots=True)
class Total:
    """Sums over all commits, complete after the last one."""

    groups: set[str] = field(default_factory=set)
    statuses: Counter[str] = field(default_factory=Counter)
    lag: int = 0
    unknown: int = 0

    def counted(self, found: Iterable[GroupLag]) -> Iterator[GroupLag]:
        for one in found:
            self.groups.add(one.commit.group)
            self.statuses[one.status] += 1
            self.lag += max(one.lag or 0, 0)
            self.unknown += one.lag is None
            yield one


def rows(found: Iterable[GroupLag], total: Total) -> RowSet:
    """Return one ``kind="lag"`` row per group and partition."""
    return RowSet(map(_row, found), names=_NAMES)


def _row(one: GroupLag) -> Row:
    commit, log = one.commit, one.log
    return {
        "kind": "lag",
        "group": commit.group,
        "topic": commit.topic,
        "partition": commit.partition,
        "committed_offset": commit.offset,
        "log_end_offset": log and log.log_end,
        "lag": one.lag,
        "status": one.status,
        "commit_timestamp": commit.commit_timestamp,
        "metadata": commit.metadata,
        "leader_epoch": commit.leader_epoch,
        "expire_timestamp": commit.expire_timestamp,
        "log_start_offset": log and log.log_start,
        "high_watermark": log and log.high_watermark,
        "replica": log and log.folder,
    }


_COLUMNS = (
    TableColumn("group", text="wrap"),
    TableColumn("partition", text="wrap"),
    TableColumn("committed", right=True),
    TableColumn("log end", right=True),
    TableColumn("lag", right=True),
    TableColumn("status"),
    TableColumn("commit time", priority=1),
    TableColumn("metadata", text="cut", priority=2),
)


def write_table(found: Iterable[GroupLag], total: Total, out: TextIO) -> None:
    """Write the lags, then a line with the sums."""
    print_pages(out, _COLUMNS, ((_cells(one), "" if one.status == "ok" else "yellow") for one in found))
    print_text(out, summary_line(total), indent=2)


def summary_line(total: Total) -> str:
    """Return the summary as one line of text."""
    statuses = ", ".join(f"{total.statuses[status]:,} {status}" for status in STATUSES if total.statuses[status])
    partitions = count_of(total.statuses.total(), "partition")
    lag = f"lag {total.lag:,}" if total.unknown < total.statuses.total() else "lag unknown"
    if 0 < total.unknown < total.statuses.total():
        lag += f" without {count_of(total.unknown, 'partition')} of unknown lag"
    return f"{count_of(len(total.groups), 'group')}, {partitions}, {lag}: {statuses or 'no offsets'}"


def _cells(one: GroupLag) -> list[str]:
    commit, log = one.commit, one.log
    numbers = [commit.offset, None if log is None else log.log_end, one.lag]
    texts = [one.status, iso_time(commit.commit_timestamp), commit.metadata]
    place = f"{commit.topic}-{commit.partition}"
    cells = [commit.group, place, *("-" if number is None else str(number) for number in numbers), *texts]
    return [*map(escape_controls, cells)]
