"""Output of ``kseg recovery``: rows or a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TextIO

from kseg.findings import attention_text
from kseg.format.log_loader import plan as start
from kseg.format.log_loader.plan import LogDirPlan, Lost, PartitionPlan, Step
from kseg.format.log_loader.start_harm import REMEDIES, Harm, harm_of, is_affected, is_harmful
from kseg.report.row_formats import RowSet, Spool
from kseg.report.tables import FOLDED, TableColumn, cell_rows, cells_of, print_cells, print_text
from kseg.report.wording import MOST_ROWS, common_text, fold, names_text
from kseg.schema import Column, Row, RowKind, row_maker
from kseg.text import count_of, inclusive_range, shortened

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
            self.forgetting += any(step.action == start.FORGET for step in plan.steps)
            self.emptied += any(step.action == start.EMPTIED for step in plan.steps)
            self.unknown += any(step.action == start.WITH_ZEROS for step in plan.steps)
            self.without_metadata += any(step.action == start.LOSE_METADATA for step in plan.steps)
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
    Column("action", "text", "action of the broker", values=tuple(start.ACTIONS)),
    Column("file", "text?", "the file; null for the folder"),
    Column("why", "text", "the reason"),
    Column("position", "count?", "byte from which on the file would be truncated"),
    Column("offset", "int?", "offset from which on"),
    *_LOST,
)
_FAILS = Column("fails", "bool", "whether the broker could not use it")
_PARTITION = RowKind("recovery", "Partitions after a start", "a row per partition").of(
    "partition",
    *_PLACE,
    Column("log_start", "int?", "start of the log then; null if the broker fails"),
    Column("log_end", "int?", "end of the log then"),
    *_LOST,
    _FAILS,
)
_LOG_DIR = RowKind("recovery", "Log directories at a start", "a row per log directory").of(
    "log_dir",
    _PLACE[0],
    Column("clean", "bool", "whether the last shutdown was clean"),
    Column("partitions", "count", "number of its partitions"),
    _FAILS,
)
_SUMMARY = RowKind("recovery", "Summary of a start", "the last row").of(
    "summary",
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
ROW_KINDS = (RowKind("recovery", "Steps of a broker's start").of(*_STEPS, *_STEP), _PARTITION, _LOG_DIR, _SUMMARY)


def rows(plans: Plans, total: RecoveryTotal) -> RowSet:
    """Return a row per step, one per plan, and a summary."""
    return RowSet.of(_PARTITION.columns, _rows(plans, total))


def _rows(plans: Plans, total: RecoveryTotal) -> Iterator[Row]:
    place, step, partition, log_dir = row_maker(_STEPS), row_maker(_STEP), _PARTITION.maker(), _LOG_DIR.maker()
    for plan in plans:
        yield from (place(plan) | step(one) for one in plan.steps)
        yield partition(plan) if isinstance(plan, PartitionPlan) else log_dir(plan)
    yield _SUMMARY.maker()(total)


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
        head = f"{plan.folder}: {headline(plan)}"
        if any(step.action != "nothing" for step in plan.steps):
            parts = step_parts(plan.steps, FOLDED if detail <= 0 else len(plan.steps) + 1)
            styled = cell_rows(STEP_COLUMNS, parts, lambda run: "red" if is_harmful(run[0]) else "")
            print_cells(out, STEP_COLUMNS, styled, title=head)
        else:
            print_text(out, head)
    spool.close()
    if many:
        print_text(out, f"-v lists the steps of the {count_of(len(harms), 'folder')}")
    if changed and detail <= 0:
        print_text(out, f"{count_of(changed, 'other folder')} would change without a loss: -v lists the steps")
    worst = f"; the worst: {harms[0].place}" if len(harms) > 1 else ""
    print_text(out, summary_line(total) + worst)


def _write_answer(harms: Sequence[Harm], out: TextIO, *, whole: bool) -> None:
    """Write the numbers of harmed partitions, the folders, many equal ones as one row, and what to do."""
    partitions = Counter(harm.consequence for harm in harms if not harm.is_log_dir)
    log_dirs = Counter(harm.consequence for harm in harms if harm.is_log_dir)
    harmed = attention_text(partitions, log_dirs, head="partitions that a start would harm")
    groups = answer_groups(harms, whole=whole)
    rows = [cells_of(ANSWER_COLUMNS, group) for group in groups]
    if len(groups) < len(harms):
        rows = [[*cells, shortened(would, _MOST_CHARACTERS)] for *cells, would in rows]
    title = f"{harmed}; `kseg doctor` also counts damage that a start does not see"
    print_cells(out, ANSWER_COLUMNS, [(cells, "red") for cells in rows], title=title)
    causes = frozenset[str]().union(*(harm.causes for harm in harms))
    if start.MARK_FORGOTTEN in causes:
        causes -= {"bytes"}  # those of the metadata log are the cause
    texts = [text for cause, text in REMEDIES.items() if cause in causes]
    if len(groups) < len(harms):
        texts[_MOST_REMEDIES:] = ["For the other folders, `kseg doctor DIR` says what."][: len(texts[_MOST_REMEDIES:])]
    for text in texts:
        print_text(out, f"What to do: {text}")
    out.write("\n")


def answer_groups(harms: Sequence[Harm], *, whole: bool = False) -> list[list[Harm]]:
    """Return ranked harms in groups that are a row each: those of many for which a start does the same are one."""
    return fold(harms, lambda harm: (harm.consequence, harm.is_log_dir, *harm.kinds), whole=whole, most=_MOST_HARMS)


#: The most folders that are a row each, and of more the length of the cell with the steps, and the remedies.
_MOST_HARMS = 6
_MOST_CHARACTERS = 70
_MOST_REMEDIES = 2


#: The columns of harmed folders: the sum of their losses, and the effect of a start on the first.
ANSWER_COLUMNS = (
    TableColumn("folder", text="wrap", least=18, cell=lambda group: names_text(harm.folder for harm in group)),
    TableColumn("consequence", cell=lambda group: common_text(harm.consequence.label for harm in group)),
    TableColumn("lost", text="wrap", least=13, cell=lambda group: _lost_of(group) or "-"),
    TableColumn("the broker would", text="wrap", least=20, cell=lambda group: (
        group[0].would + (" …" if any(harm.would != group[0].would for harm in group) else ""))),
)  # fmt: skip


def _lost_of(group: Sequence[Harm]) -> str:
    lost = _lost_text(sum((harm.lost for harm in group), start.NOTHING_LOST))
    if any(_lost_offsets(harm.lost) != _lost_offsets(group[0].lost) for harm in group):
        lost = lost.partition(", offset")[0]  # a range over several partitions says nothing
    return lost


def headline(plan: LogDirPlan | PartitionPlan) -> str:
    if isinstance(plan, LogDirPlan):
        stop = "clean" if plan.clean else "unclean"
        return f"{count_of(plan.partitions, 'partition')}, the last shutdown was {stop}"
    if plan.fails:
        return "the broker cannot load it"
    if any(step.action == start.MARK_STRAY for step in plan.steps):
        return f"becomes stray, and an empty log replaces it: {_lost_text(plan.lost)} out of use"
    if any(step.action == start.REJECT_ID for step in plan.steps):
        return f"stays offline: {_lost_text(plan.lost)} out of use"
    if any(step.action in start.STRAYS for step in plan.steps):
        return f"becomes stray: {_lost_text(plan.lost)} out of use"
    log = "" if plan.log_end is None else f"; then starts at offset {plan.log_start} and ends at {plan.log_end}"
    if plan.lost.bytes:
        return f"loses {_lost_text(plan.lost)}{log}"
    return f"loses {'its producers' if any(step.action == start.FORGET for step in plan.steps) else 'nothing'}{log}"


#: The columns of a step, or of several with one action: the place and the reason of the first.
STEP_COLUMNS = (
    TableColumn("action", cell=lambda run: run[0].action),
    TableColumn("file", text="wrap", least=23, cell=lambda run: _file_text(run)),
    TableColumn(
        "lost", text="wrap", least=13, cell=lambda run: _lost_text(sum((one.lost for one in run), start.NOTHING_LOST))
    ),
    TableColumn("why", text="wrap", least=18, cell=lambda run: run[0].why),
)


def step_parts(steps: Iterable[Step], folded: int = FOLDED) -> Iterator[list[Step]]:
    """Yield the steps of a folder as rows. Those without a loss, and from ``folded`` on others, are one row per action."""
    for (_, harmless), group in groupby(steps, key=lambda step: (step.action, not step.lost.bytes)):
        run = list(group)
        yield from [run] if harmless or len(run) >= folded else [[step] for step in run]


def _file_text(run: Sequence[Step]) -> str:
    """Return the file of the first step, and the byte and the offset from which on it changes its file."""
    step, more = run[0], len(run) - 1
    places = (("byte", step.position), ("offset", step.offset))
    known = ", ".join(f"{noun} {at}" for noun, at in places if at is not None)
    return (step.file or "") + (f" and {more:,} more" if more else f" from {known}" if known else "")


def _lost_text(lost: Lost) -> str:
    """Return the lost bytes, records and offsets; empty without a loss."""
    if not lost.bytes:
        return ""
    return f"{count_of(lost.bytes, 'byte')}, {count_of(lost.records, 'record')}{_lost_offsets(lost)}"


def _lost_offsets(lost: Lost) -> str:
    first, last = lost.first_offset, lost.last_offset
    return "" if first is None or last is None else f", {inclusive_range('offset', first, last)}"


def summary_line(total: RecoveryTotal) -> str:
    failing = {"log directory": total.failing_log_dirs, "partition": total.failing - total.failing_log_dirs}
    causes = " and ".join(count_of(count, noun) for noun, count in failing.items() if count)
    fails = f"; the broker would not start, or go offline, because of {causes}" if causes else ""
    fails += f"; {count_of(total.unread, 'path')} unreadable" if total.unread else ""
    if total.without_segments:
        more = f" and {total.without_segments - 1:,} more" if total.without_segments > 1 else ""
        fails += f"; not counted, because no segment is in it: {total.empty}{more}"
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
