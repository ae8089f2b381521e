"""Output of ``kseg recovery``: rows or a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TextIO

from kseg.consequences import attention_text
from kseg.format.log_loader.plan import (
    ACTIONS,
    EMPTIED,
    FORGET,
    LOSE_METADATA,
    MARK_FORGOTTEN,
    MARK_STRAY,
    NOTHING_LOST,
    REJECT_ID,
    STRAYS,
    WITH_ZEROS,
    LogDirPlan,
    Lost,
    PartitionPlan,
    Step,
)
from kseg.format.log_loader.start_harm import REMEDIES, Harm, harm_of, is_affected, is_harmful
from kseg.report.ranking import MOST_ROWS, common_text, fold, names_text
from kseg.report.row_formats import RowSet
from kseg.report.spool import Spool
from kseg.report.tables import FOLDED, TableColumn, print_cells, print_text
from kseg.schema import Column, Row, RowKind, names_of, row_maker
from kseg.text import count_of, escape_controls, inclusive_range, shortened

Plans = Iterable[LogDirPlan | PartitionPlan]


@dataclass(slots=True)
class RecoveryTotal:
    """Counts over all plans (see _SUMMARY), complete after the last one.

    ``failing_log_dirs`` are those of ``failing`` that are log directories, ``empty`` is the first folder without a segment.
    """

    log_dirs: int = 0
    partitions: int = 0
    losing: int = 0
    failing: int = 0
    failing_log_dirs: int = 0
    lost_bytes: int = 0
    lost_records: int = 0
    forgetting: int = 0
    without_metadata: int = 0
    unread: int = 0
    without_segments: int = 0
    without_records: int = 0
    emptied: int = 0
    unknown: int = 0
    empty: str = ""

    @property
    def harms(self) -> bool:
        """Whether the start would lose data, producers or topics, or fail."""
        return bool(self.lost_bytes or self.failing or self.forgetting or self.without_metadata or self.emptied)

    @property
    def unseen(self) -> bool:
        """Whether data are unknown: a log has only zeros, or all folders that were found lack segments."""
        return bool(self.unknown or (self.without_segments and not (self.partitions or self.failing)))

    def counted(self, plans: Plans) -> Iterator[LogDirPlan | PartitionPlan]:
        for plan in plans:
            lost = plan.lost
            self.log_dirs += isinstance(plan, LogDirPlan)
            if isinstance(plan, PartitionPlan) and not plan.has_segments:
                self.without_segments += 1
                self.empty = self.empty or plan.folder
            elif isinstance(plan, PartitionPlan):
                self.partitions += 1
                self.without_records += plan.log_end is not None and plan.log_start == plan.log_end
            self.losing += lost.bytes > 0
            self.failing += plan.fails
            self.failing_log_dirs += plan.fails and isinstance(plan, LogDirPlan)
            self.lost_bytes += lost.bytes
            self.lost_records += lost.records
            self.forgetting += any(step.action == FORGET for step in plan.steps)
            self.emptied += any(step.action == EMPTIED for step in plan.steps)
            self.unknown += any(step.action == WITH_ZEROS for step in plan.steps)
            self.without_metadata += any(step.action == LOSE_METADATA for step in plan.steps)
            yield plan


_PLACE = (
    Column("folder", "text", "the folder of the partition, or the log directory"),
    Column("topic", "text?", "from the name of the folder; null for a log directory"),
    Column("partition", "int32?", "from the name of the folder"),
)
_LOST = (
    Column("lost_bytes", "count", "bytes that would be lost", "lost.bytes"),
    Column("lost_records", "count", "readable records in them", "lost.records"),
    Column(
        "first_lost_offset", "int?", "first offset in them; null if unknown or nothing is lost", "lost.first_offset"
    ),
    Column("last_lost_offset", "int?", "last offset in them", "lost.last_offset"),
)
_STEP = (
    Column("action", "text", "action of the broker", values=tuple(ACTIONS)),
    Column("file", "text?", "the file; null for the folder"),
    Column("why", "text", "the reason"),
    Column("position", "count?", "byte from which on the file would be truncated"),
    Column("offset", "int?", "offset from which on"),
    *_LOST,
)
_FAILS = Column("fails", "bool", "whether the broker could not use it")
_PARTITION = (
    Column("kind", "text", "partition"),
    *_PLACE,
    Column("log_start", "int?", "start of the log then; null if the broker fails"),
    Column("log_end", "int?", "end of the log then"),
    *_LOST,
    _FAILS,
)
_LOG_DIR = (
    Column("kind", "text", "log_dir"),
    _PLACE[0],
    Column("clean", "bool", "whether the last shutdown was clean"),
    Column("partitions", "count", "number of its partitions"),
    _FAILS,
)
_SUMMARY = (
    Column("kind", "text", "summary"),
    Column("log_dirs", "count", "number of log directories"),
    Column("partitions", "count", "number of partitions with a segment"),
    Column("losing", "count", "partitions that would lose data"),
    Column("failing", "count", "partitions and log directories that the broker could not use"),
    Column("lost_bytes", "count", "bytes that would be lost"),
    Column("lost_records", "count", "readable records in them"),
    Column("forgetting", "count", "partitions that lose the state of their producers"),
    Column("without_metadata", "count", "log directories that can lose all topics"),
    Column("unread", "count", "paths without a prediction"),
    Column("without_segments", "count", "folders without a segment"),
    Column("without_records", "count", "partitions whose log would end where it starts"),
    Column("emptied", "count", "partitions whose log has lost its records before the start"),
    Column("unknown", "count", "partitions whose log has only zeros: nothing shows whether it had records"),
)
_STEPS = (Column("kind", "text", "step"), *_PLACE)
ROW_KINDS = (
    RowKind("recovery", "Steps of a broker's start", (*_STEPS, *_STEP)),
    RowKind("recovery", "Partitions after a start", _PARTITION, "a row per partition"),
    RowKind("recovery", "Log directories at a start", _LOG_DIR, "a row per log directory"),
    RowKind("recovery", "Summary of a start", _SUMMARY, "the last row"),
)


def rows(plans: Plans, total: RecoveryTotal) -> RowSet:
    """Return a row per step, one per plan, and a summary."""
    return RowSet(_rows(plans, total), _PARTITION, names_of(_PARTITION), "partition")


def _rows(plans: Plans, total: RecoveryTotal) -> Iterator[Row]:
    place, step, partition, log_dir = map(row_maker, (_STEPS, _STEP, _PARTITION, _LOG_DIR))
    for plan in plans:
        yield from (place(plan) | step(one) for one in plan.steps)
        yield partition(plan) if isinstance(plan, PartitionPlan) else log_dir(plan)
    yield row_maker(_SUMMARY)(total)


def write_table(plans: Plans, total: RecoveryTotal, out: TextIO, *, detail: int = 0) -> None:
    """Write the folders that a start would harm, the remedies, a table of steps for each harmed folder, and a summary line.

    The worst come first, so the plans are kept until the last one; many equal folders are one row, and then only
    ``detail`` 1 lists their steps. With ``detail`` 1 all partitions have their steps, with -1 none; a single partition also
    has them without a loss.
    """
    spool = Spool[LogDirPlan | PartitionPlan]()
    harms: list[Harm] = []
    changed = 0
    unlisted: LogDirPlan | PartitionPlan | None = None
    for plan in plans:
        if is_affected(plan):
            harms.append(harm_of(plan))
        else:
            changed += any(step.action != "nothing" for step in plan.steps)
        if detail > 0 or (not detail and is_affected(plan)):
            spool.add(plan)
        else:
            unlisted = plan
    if unlisted and not detail and total.partitions + total.log_dirs == 1:
        spool.add(unlisted)
        changed = 0
    harms.sort(key=lambda harm: harm.rank)
    if harms:
        _write_answer(harms, out, whole=detail > 0)
    many = detail == 0 and len(harms) > 1 and max(total.partitions, len(harms)) > MOST_ROWS
    for plan in () if many else spool.again():
        head = f"{escape_controls(plan.folder)}: {headline(plan)}"
        if any(step.action != "nothing" for step in plan.steps):
            _write_steps(head, plan.steps, out, FOLDED if detail <= 0 else len(plan.steps) + 1)
        else:
            print_text(out, head, indent=2)
    spool.close()
    if many:
        print_text(out, f"-v lists the steps of the {count_of(len(harms), 'folder')}", indent=2)
    if changed and detail <= 0:
        print_text(
            out, f"{count_of(changed, 'other folder')} would change without a loss: -v lists the steps", indent=2
        )
    worst = f"; the worst: {harms[0].place}" if len(harms) > 1 else ""
    print_text(out, summary_line(total) + worst, indent=2)


def _write_answer(harms: Sequence[Harm], out: TextIO, *, whole: bool) -> None:
    """Write the numbers of harmed partitions, the folders, many equal ones as one row, and what to do."""
    partitions = Counter(harm.consequence for harm in harms if not harm.is_log_dir)
    log_dirs = Counter(harm.consequence for harm in harms if harm.is_log_dir)
    harmed = attention_text(partitions, log_dirs, head="partitions that a start would harm")
    print_text(out, f"{harmed}; `kseg doctor` also counts damage that a start does not see", indent=2)
    out.write("\n" * (not out.isatty()))
    groups = answer_groups(harms, whole=whole)
    rows = [answer_cells(group) for group in groups]
    if len(groups) < len(harms):
        rows = [(*cells, shortened(would, _MOST_CHARACTERS)) for *cells, would in rows]
    print_cells(out, ANSWER_COLUMNS, [(cells, "red") for cells in rows])
    causes = frozenset[str]().union(*(harm.causes for harm in harms))
    if MARK_FORGOTTEN in causes:
        causes -= {"bytes"}  # those of the metadata log are the cause
    texts = [text for cause, text in REMEDIES.items() if cause in causes]
    if len(groups) < len(harms):
        texts[_MOST_REMEDIES:] = ["For the other folders, `kseg doctor DIR` says what."][: len(texts[_MOST_REMEDIES:])]
    for text in texts:
        print_text(out, f"What to do: {text}", indent=2)
    out.write("\n")


def answer_groups(harms: Sequence[Harm], *, whole: bool = False) -> list[list[Harm]]:
    """Return ranked harms in groups that are a row each: those of many for which a start does the same are one."""
    return fold(harms, lambda harm: (harm.consequence, harm.is_log_dir, *harm.kinds), whole=whole, most=_MOST_HARMS)


#: The most folders that are a row each, and of more the length of the cell with the steps, and the remedies.
_MOST_HARMS = 6
_MOST_CHARACTERS = 70
_MOST_REMEDIES = 2


ANSWER_COLUMNS = (
    TableColumn("folder", text="wrap", least=18),
    TableColumn("consequence"),
    TableColumn("lost", text="wrap", least=13),
    TableColumn("the broker would", text="wrap", least=20),
)


def answer_cells(group: Sequence[Harm]) -> Sequence[str]:
    """Return the cells of harmed folders: the sum of their losses, and the effect of a start on the first."""
    lost = _lost_text(sum((harm.lost for harm in group), NOTHING_LOST))
    if any(_lost_offsets(harm.lost) != _lost_offsets(group[0].lost) for harm in group):
        lost = lost.partition(", offset")[0]  # a range over several partitions says nothing
    would = group[0].would + (" …" if any(harm.would != group[0].would for harm in group) else "")
    consequence = common_text(harm.consequence.label for harm in group)
    return (
        names_text(harm.folder for harm in group),
        consequence,
        lost or "-",
        escape_controls(would),
    )


def headline(plan: LogDirPlan | PartitionPlan) -> str:
    if isinstance(plan, LogDirPlan):
        stop = "clean" if plan.clean else "unclean"
        return f"{count_of(plan.partitions, 'partition')}, the last shutdown was {stop}"
    if plan.fails:
        return "the broker cannot load it"
    if any(step.action == MARK_STRAY for step in plan.steps):
        return f"becomes stray, and an empty log replaces it: {_lost_text(plan.lost)} out of use"
    if any(step.action == REJECT_ID for step in plan.steps):
        return f"stays offline: {_lost_text(plan.lost)} out of use"
    if any(step.action in STRAYS for step in plan.steps):
        return f"becomes stray: {_lost_text(plan.lost)} out of use"
    log = "" if plan.log_end is None else f"; then starts at offset {plan.log_start} and ends at {plan.log_end}"
    if plan.lost.bytes:
        return f"loses {_lost_text(plan.lost)}{log}"
    return f"loses {'its producers' if any(step.action == FORGET for step in plan.steps) else 'nothing'}{log}"


STEP_COLUMNS = (
    TableColumn("action"),
    TableColumn("file", text="wrap", least=23),
    TableColumn("lost", text="wrap", least=13),
    TableColumn("why", text="wrap", least=18),
)


def _write_steps(head: str, steps: Iterable[Step], out: TextIO, folded: int) -> None:
    print_cells(out, STEP_COLUMNS, list(step_rows(steps, folded)), title=head)


def step_rows(steps: Iterable[Step], folded: int = FOLDED) -> Iterator[tuple[Sequence[str], str]]:
    """Yield (cells, style) of the steps of a folder.

    Those without a loss, and from ``folded`` on those with one, are one row per action.
    """
    for (_, harmless), group in groupby(steps, key=lambda step: (step.action, not step.lost.bytes)):
        run = list(group)
        parts = [run] if harmless or len(run) >= folded else [[step] for step in run]
        style = "red" if is_harmful(run[0]) else ""
        yield from ((_cells(part), style) for part in parts)


def _cells(run: Sequence[Step]) -> tuple[str, ...]:
    """Return the cells of a step, or of several with one action: the place and the reason of the first."""
    step, more = run[0], len(run) - 1
    return (
        step.action,
        escape_controls(step.file or "") + (f" and {more:,} more" if more else _from(step)),
        _lost_text(sum((one.lost for one in run), NOTHING_LOST)),
        escape_controls(step.why),
    )


def _from(step: Step) -> str:
    """Return the byte and the offset from which on a step changes its file."""
    places = (("byte", step.position), ("offset", step.offset))
    known = ", ".join(f"{noun} {at}" for noun, at in places if at is not None)
    return f" from {known}" if known else ""


def _lost_text(lost: Lost) -> str:
    """Return the lost bytes, records and offsets; empty without a loss."""
    if not lost.bytes:
        return ""
    return f"{count_of(lost.bytes, 'byte')}, {count_of(lost.records, 'record')}{_lost_offsets(lost)}"


def _lost_offsets(lost: Lost) -> str:
    first, last = lost.first_offset, lost.last_offset
    return "" if first is None or last is None else f", {inclusive_range('offset', first, last)}"


def summary_line(total: RecoveryTotal) -> str:
    """Return the summary as one line of text."""
    failing = {"log directory": total.failing_log_dirs, "partition": total.failing - total.failing_log_dirs}
    causes = " and ".join(count_of(count, noun) for noun, count in failing.items() if count)
    fails = f"; the broker would not start, or go offline, because of {causes}" if causes else ""
    fails += f"; {count_of(total.unread, 'path')} unreadable" if total.unread else ""
    if total.without_segments:
        more = f" and {total.without_segments - 1:,} more" if total.without_segments > 1 else ""
        fails += f"; not counted, because no segment is in it: {escape_controls(total.empty)}{more}"
    if total.without_metadata:
        losing = count_of(total.without_metadata, "log directory")
        fails = f"; the metadata log is missing: {losing} can lose all topics{fails}"
    if not total.partitions:
        return f"no partition was read{fails}"
    if total.forgetting:
        fails = f"; {count_of(total.forgetting, 'partition')} would lose the state of producers{fails}"
    if total.emptied:
        fails = f"; {count_of(total.emptied, 'partition')} had records, and lost all before the start{fails}"
    if total.unknown:
        zeros = "only zeros in the log, and nothing shows whether it had records"
        fails = f"; {count_of(total.unknown, 'partition')} with {zeros}{fails}"
    if not total.lost_bytes and total.emptied + total.unknown == total.partitions:
        return fails.removeprefix("; ")
    if not total.lost_bytes:
        without = f", {total.without_records:,} of them without a record" if total.without_records else ""
        return f"no data would be lost in {count_of(total.partitions, 'partition')}{without}{fails}"
    return (
        f"{total.losing:,} of {count_of(total.partitions, 'partition')} would lose data: "
        f"{count_of(total.lost_bytes, 'byte')}, {count_of(total.lost_records, 'readable record')}{fails}"
    )
