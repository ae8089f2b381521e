"""Output of ``kseg lag``: rows, or a table with the columns of ``kafka-consumer-groups --describe``."""

from __future__ import annotations

import csv
import heapq
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import TextIO

from kseg.commands.lag.committed_offsets import STATUSES, GroupLag
from kseg.report.row_formats import RowSet, table_of
from kseg.report.tables import TableColumn, cells_of, print_pages, print_text
from kseg.schema import Column, RowKind, names_of, row_maker
from kseg.text import count_of, escape_controls

FIELDS = (
    Column("kind", "text", "lag"),
    Column("group", "text", "the consumer group", "commit.group", TableColumn("group", text="wrap", least=20)),
    Column("topic", "text", "topic of the committed offset", "commit.topic"),
    Column(
        "partition", "int32", "partition of the committed offset", "commit.partition",
        TableColumn("partition", text="wrap", least=14, cell=lambda one: f"{one.commit.topic}-{one.commit.partition}"),
    ),
    Column(
        "committed_offset", "int", "the last committed offset", "commit.offset",
        TableColumn("committed", right=True, priority=2),
    ),
    Column("log_end_offset", "count?", "null without a log", "log.log_end", TableColumn("log end", right=True, priority=3)),
    Column("lag", "int?", "log_end_offset minus committed_offset", shown=TableColumn("lag", right=True)),
    Column("status", "text", "whether a consumer can continue", shown=TableColumn("status"), values=STATUSES),
    Column(
        "commit_timestamp", "ms", "when it was committed", "commit.commit_timestamp", TableColumn("commit time", priority=4)
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
COLUMNS = table_of(FIELDS)
ROW_KINDS = (RowKind("lag", "Lag of consumer groups", FIELDS),)


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
    """Return one row per group and partition."""
    return RowSet(map(row_maker(FIELDS), found), FIELDS, names_of(FIELDS))


#: The most rows of the table without ``detail``.
_MOST_ROWS = 24


def write_table(found: Iterable[GroupLag], total: LagTotal, out: TextIO, *, detail: int = 0) -> None:
    """Write the lags, then a line with the sums. Of many lags only the worst are listed after it, unless ``detail`` is 1."""
    listed = list(islice(found, _MOST_ROWS + 1)) if detail <= 0 else []
    if len(listed) > _MOST_ROWS:
        found = _worst_rows(chain(listed, found))
        print_text(out, summary_line(total), indent=2)
    else:
        found = chain(listed, found)
    print_pages(out, COLUMNS, ((cells_of(COLUMNS, one), "" if one.status == "ok" else "yellow") for one in found))
    if len(listed) > _MOST_ROWS:
        left_out = count_of(total.statuses.total() - _MOST_ROWS, "more partition")
        print_text(out, f"{left_out}: -v lists them", indent=2)
    else:
        worst = total.worst if len(listed) > 1 else None
        print_text(out, summary_line(total) + (f"; {_worst(worst)}" if worst and any(rank(worst)) else ""), indent=2)


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


def _worst(one: GroupLag) -> str:
    commit = one.commit
    return f"the worst: {escape_controls(commit.group)} {escape_controls(commit.topic)}-{commit.partition}"


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
    """Return the summary as one line of text."""
    statuses = ", ".join(f"{total.statuses[status]:,} {status}" for status in STATUSES if total.statuses[status])
    commits = count_of(total.statuses.total(), "commit")
    lag = f"lag {total.lag:,}" if total.unknown < total.statuses.total() else "lag unknown"
    if 0 < total.unknown < total.statuses.total():
        lag += f" without {count_of(total.unknown, 'commit')} of unknown lag"
    return f"{count_of(len(total.groups), 'group')}, {commits}, {lag}: {statuses or 'no offsets'}"
