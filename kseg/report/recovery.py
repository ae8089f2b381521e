"""Output of ``kseg recovery``: rows or a table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import TextIO

from kseg.format.log_loader.plan import FAILURES, NOTHING_LOST, LogDirPlan, Lost, PartitionPlan, Step
from kseg.report.tables import TableColumn, print_cells, print_text
from kseg.schema import Row
from kseg.text import count_of, escape_controls, inclusive_range

Plans = Iterable[LogDirPlan | PartitionPlan]


@dataclass(slots=True)
class Total:
    """Counts over all plans, complete after the last one; ``unread`` counts paths without a plan.

    ``failing`` counts partitions and log directories, ``failing_log_dirs`` only these.
    """

    log_dirs: int = 0
    partitions: int = 0
    losing: int = 0
    failing: int = 0
    failing_log_dirs: int = 0
    lost_bytes: int = 0
    lost_records: int = 0
    unread: int = 0

    def counted(self, plans: Plans) -> Iterator[LogDirPlan | PartitionPlan]:
        for plan in plans:
            lost = plan.lost if isinstance(plan, PartitionPlan) else NOTHING_LOST
            self.log_dirs += isinstance(plan, LogDirPlan)
            self.partitions += isinstance(plan, PartitionPlan)
            self.losing += lost.bytes > 0
            self.failing += plan.fails
            self.failing_log_dirs += plan.fails and isinstance(plan, LogDirPlan)
            self.lost_bytes += lost.bytes
            self.lost_records += lost.records
            yield plan


def rows(plans: Plans, total: Total) -> Iterator[Row]:
    """Yield a ``kind="step"`` row per step, a "partition" or "log_dir" row per plan, and a "summary"."""
    for plan in plans:
        for step in plan.steps:
            yield {"kind": "step", **_partition_name(plan), **_step(step)}
        row: Row = {"kind": "log_dir", "folder": plan.folder}
        if isinstance(plan, PartitionPlan):
            row = {"kind": "partition", **_partition_name(plan), "log_start": plan.log_start, "log_end": plan.log_end}
            row |= _lost(plan.lost)
        else:
            row |= {"clean": plan.clean, "partitions": plan.partitions}
        yield {**row, "fails": plan.fails}
    counts = asdict(total)
    del counts["failing_log_dirs"]  # it has a row of its own
    yield {"kind": "summary", **counts}


def _partition_name(plan: LogDirPlan | PartitionPlan) -> Row:
    partition = plan if isinstance(plan, PartitionPlan) else None
    return {
        "folder": plan.folder,
        "topic": partition and partition.topic,
        "partition": partition.partition if partition else None,
    }


def _step(step: Step) -> Row:
    own = {name: getattr(step, name) for name in ("action", "file", "why", "position", "offset")}
    return own | _lost(step.lost)


def _lost(lost: Lost) -> Row:
    return {
        "lost_bytes": lost.bytes,
        "lost_records": lost.records,
        "first_lost_offset": lost.first_offset,
        "last_lost_offset": lost.last_offset,
    }


def write_table(plans: Plans, total: Total, out: TextIO) -> None:
    """Write a table per partition that the broker would change, a line for each other one, and a summary line."""
    for plan in plans:
        head = f"{escape_controls(plan.folder)}: {_head(plan)}"
        if any(step.action != "nothing" for step in plan.steps):
            _write_steps(head, plan.steps, out)
        else:
            print_text(out, head, indent=2)
    print_text(out, summary_line(total), indent=2)


def _head(plan: LogDirPlan | PartitionPlan) -> str:
    if isinstance(plan, LogDirPlan):
        stop = "clean" if plan.clean else "unclean"
        return f"{count_of(plan.partitions, 'partition')}, the last shutdown was {stop}"
    if plan.fails:
        return "the broker cannot load it"
    if any(step.action == "mark-stray" for step in plan.steps):
        return f"becomes stray, and an empty log replaces it: {_lost_text(plan.lost)} out of use"
    log = "" if plan.log_end is None else f"; then starts at offset {plan.log_start} and ends at {plan.log_end}"
    return f"loses {_lost_text(plan.lost)}{log}" if plan.lost.bytes else f"loses nothing{log}"


_COLUMNS = (
    TableColumn("action"),
    TableColumn("file"),
    TableColumn("from byte", right=True, priority=3),
    TableColumn("offset", right=True, priority=4),
    TableColumn("lost", text="wrap", priority=1),
    TableColumn("why", text="wrap"),
)


def _write_steps(head: str, steps: Iterable[Step], out: TextIO) -> None:
    rows = [
        (_cells(step, more), "red" if step.lost.bytes or step.action in FAILURES else "") for step, more in _runs(steps)
    ]
    print_cells(out, _COLUMNS, rows, title=head)


def _cells(step: Step, more: int) -> tuple[str, ...]:
    return (
        step.action,
        escape_controls(step.file or "") + (f" and {more:,} more" if more else ""),
        "" if step.position is None else str(step.position),
        "" if step.offset is None or more else str(step.offset),
        _lost_text(step.lost) if step.lost.bytes else "",
        escape_controls(step.why),
    )


def _runs(steps: Iterable[Step]) -> Iterator[tuple[Step, int]]:
    """Fold consecutive steps with the same action and without loss into one line, with their number."""
    for (_, lossless), run in groupby(steps, key=lambda step: (step.action, not step.lost.bytes)):
        first, *others = run
        if lossless:
            yield first, len(others)
        else:
            yield first, 0
            yield from ((step, 0) for step in others)


def _lost_text(lost: Lost) -> str:
    first, last = lost.first_offset, lost.last_offset
    offsets = "" if first is None or last is None else f", {inclusive_range('offset', first, last)}"
    return f"{count_of(lost.bytes, 'byte')}, {count_of(lost.records, 'record')}{offsets}"


def summary_line(total: Total) -> str:
    """Return the summary as one line of text."""
    failing = {"log directory": total.failing_log_dirs, "partition": total.failing - total.failing_log_dirs}
    causes = " and ".join(count_of(count, noun) for noun, count in failing.items() if count)
    fails = f"; the broker would not start, or go offline, because of {causes}" if causes else ""
    fails += f"; {count_of(total.unread, 'path')} unreadable" if total.unread else ""
    if not total.partitions:
        return f"no partition was read{fails}"
    if not total.lost_bytes:
        return f"no data would be lost in {count_of(total.partitions, 'partition')}{fails}"
    return (
        f"{total.losing:,} of {count_of(total.partitions, 'partition')} would lose data: "
        f"{count_of(total.lost_bytes, 'byte')}, {count_of(total.lost_records, 'readable record')}{fails}"
    )
