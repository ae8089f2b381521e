"""Output of ``kseg doctor``: the start of the broker, the loss and the next steps on one screen, or rows."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, TextIO

from kseg.commands.next_steps import FolderTask, PartitionSteps, decisions_of, in_order, left_of
from kseg.findings import Consequence
from kseg.format.log_loader.plan import LEAVE_UNSERVED
from kseg.format.log_loader.start_harm import Harm
from kseg.format.storage.naming import METADATA_FOLDER, is_url
from kseg.report.partition_damage import Damage, DamagedPartitions
from kseg.report.recovery_report import RecoveryTotal
from kseg.report.tables import text_lines
from kseg.report.wording import summary_text
from kseg.results import Summary
from kseg.schema import Column, Row, RowKind
from kseg.text import count_of, shell_word, shortened, size_text

#: The lines of a screen, and the most partitions whose commands are tried on it.
_SCREEN = 24
_MOST_STEPS = 8
#: The length of the first sentence of a task if its reasons do not fit.
_MOST_CHARACTERS = 120


class DamagedFolder(NamedTuple):
    """A folder that needs attention: by its findings, by the predicted start, or by both."""

    folder: str
    consequence: Consequence
    damage: Damage | None
    harm: Harm | None


@dataclass
class Diagnosis:
    """The results for log directories, complete after the last file.

    ``space`` are the free bytes for copies and the bytes that repairs would write, None without a repair. ``leftovers`` are
    numbers of folders and files that no broker uses, by their kind. ``log_dirs`` are the paths of log directories.
    ``folder`` is that of the first path, if it is a file. ``brokers`` is the number of brokers that the paths are of.
    """

    total: Summary
    damaged: DamagedPartitions = field(default_factory=DamagedPartitions)
    recovery: RecoveryTotal = field(default_factory=RecoveryTotal)
    harms: list[Harm] = field(default_factory=list)
    hanging: Counter[str] = field(default_factory=Counter)
    metadata: str = ""
    space: tuple[int, int] | None = None
    leftovers: Counter[str] = field(default_factory=Counter)
    log_dirs: set[str] = field(default_factory=set)
    steps: list[PartitionSteps] = field(default_factory=list)
    folder: str = ""
    brokers: int = 0

    @cached_property
    def folders(self) -> Sequence[DamagedFolder]:
        """The folders that need attention, the worst first; last the log directories without damage."""
        damages = {
            path if is_url(path) else os.path.normpath(path): one for path, one in self.damaged.by_folder.items()
        }
        harms = {os.path.normpath(harm.folder): harm for harm in self.harms}
        found = []
        for folder in damages.keys() | harms.keys():
            damage, harm = damages.get(folder), harms.get(folder)
            found.append(DamagedFolder(folder, max(one.consequence for one in (damage, harm) if one), damage, harm))
        return sorted(found, key=lambda one: (self._is_only_harmed(one), -one.consequence, one.folder))

    def _is_only_harmed(self, one: DamagedFolder) -> bool:
        """Return whether it is a log directory that only the predicted start harms."""
        return one.damage is None and one.folder in self.log_dirs

    @property
    def found(self) -> bool:
        """Whether anything needs attention."""
        return bool(self.folders or self.hanging or self.recovery.harms or self.total.errors)


def answers(found: Diagnosis) -> Iterator[tuple[str, str]]:
    """Yield the answers as (subject, text)."""
    yield "start", _start(found)
    if loss := "; ".join(_losses(found)):
        yield "loss", loss
    if found.total.files + found.total.side_files > found.total.unread:
        harmed = sum(
            one.damage is None for one in found.folders
        )  # they can have findings that are only for information
        others = f"; harmed only by the start: {count_of(harmed, 'folder')}" if harmed else ""
        yield "damage", found.damaged.answer() + others
    if found.hanging:
        partitions = count_of(len(found.hanging), "partition")
        yield "transactions", f"{found.hanging.total():,} hanging in {partitions}: `kseg transactions` lists them"
    if found.metadata:
        yield "metadata", found.metadata
    if found.space:
        free, needed = found.space
        enough = "which are free" if free > needed else f"only {size_text(free)} are free"
        yield "space", f"repairs write {size_text(needed)}, {enough}"
    if found.leftovers:
        yield "leftovers", ", ".join(count_of(count, kind) for kind, count in sorted(found.leftovers.items()))


def _losses(found: Diagnosis) -> Iterator[str]:
    """Yield the records that the repairs of the next steps leave out, and those that a start loses without them."""
    harmed = [one for one in found.steps if one.left_out]
    if harmed:
        more = f", and of {count_of(len(harmed) - 1, 'other partition')}" if len(harmed) > 1 else ""
        yield f"the repairs leave out {harmed[0].left_out} of {harmed[0].folder}{more}"
    lost = found.recovery
    if lost.partitions:
        what = f"{count_of(lost.lost_records, 'readable record')}, {count_of(lost.lost_bytes, 'byte')}"
        start = "a start without them loses " if harmed else ""
        yield f"{start}{what} in {lost.losing:,} of {count_of(lost.partitions, 'partition')}"


def _failing(found: Diagnosis) -> list[Harm]:
    return [harm for harm in found.harms if harm.consequence is Consequence.STOPS_THE_BROKER]


def _start(found: Diagnosis) -> str:
    failing = _failing(found)
    if failing and (offline := _offline(found, failing)):
        return f"yes, without {', '.join(sorted(offline))}: {failing[0].place} takes it offline"
    if failing and all(harm.failures == {LEAVE_UNSERVED} for harm in failing):
        return f"yes, but it serves few or no partitions, because of {failing[0].place}"
    if failing:
        more = f", and {count_of(len(failing) - 1, 'other folder')}" if len(failing) > 1 else ""
        return f"no: {failing[0].place} stops it{more}"
    if found.recovery.unread:
        return f"not predicted: {count_of(found.recovery.unread, 'path')} unreadable"
    if not (found.recovery.partitions or found.recovery.log_dirs):
        what = (
            f"write kseg doctor {shell_word(found.folder)}"
            if found.folder
            else "give the log directories of the broker"
        )
        return f"not predicted: {what}"
    if found.recovery.without_metadata:
        return "without topics: the metadata log is missing"
    lost = any(one.consequence >= Consequence.LOSES_BYTES for one in found.folders)
    return "yes, with a loss" if found.recovery.harms else f"yes, without a {'further ' if lost else ''}loss"


def _offline(found: Diagnosis, failing: Sequence[Harm]) -> set[str]:
    """Return the log directories without which the broker starts, empty if it does not start.

    It starts as long as another log directory is left, and the one with the metadata log (``LogManager``).
    """
    offline = {os.path.normpath(harm.folder if harm.is_log_dir else os.path.dirname(harm.folder)) for harm in failing}
    left = found.log_dirs - offline
    needed = any(os.path.exists(os.path.join(log_dir, METADATA_FOLDER)) for log_dir in offline)
    starts = found.brokers == 1 and left and not needed and all(harm.failures == {"offline"} for harm in failing)
    return offline if starts else set()


def write_table(found: Diagnosis, out: TextIO, *, detail: int = 0) -> None:
    """Write the answers, then the commands: those that fit on a screen, the worst first; with ``detail`` 1 all."""
    head = "".join(text_lines(out, f"{subject:13} {text}", 14) for subject, text in answers(found))
    # The first line has the file if the broker does not start.
    worst = f"; {found.damaged.worst()}" if found.damaged.worst() and not _failing(found) else ""
    end = text_lines(out, summary_text(found.total) + worst, 2)
    if not found.steps or detail < 0:
        out.write(head + "\n" * (detail >= 0) + end)
        return
    todo = [one for one in found.steps if one.commands]
    if detail > 0:
        every = len(decisions_of(found.steps)) + len(left_of(found.steps))
        out.write(head + _steps_text(found, todo, out, most=every) + end)
        return
    # With the reasons of the first task if there is room, otherwise without the explanation, or with fewer partitions.
    every, most_steps = len(todo), min(len(todo), _MOST_STEPS)
    choices = [(1, every), (0, every), *((-1, count) for count in range(most_steps, 1, -1)), (-1, 1)]
    for most, count in choices:
        text = head + _steps_text(found, todo[:count], out, most=most) + end
        if text.count("\n") <= _SCREEN:
            break
    out.write(text)


def _steps_text(found: Diagnosis, shown: Sequence[PartitionSteps], out: TextIO, *, most: int) -> str:
    """Return the tasks and the commands of the partitions ``shown``, in their order; ``most`` tasks have their reasons.

    The first task is that of the place that stops the broker. With ``most`` -1 the commands are not explained.
    """
    todo = sum(bool(one.commands) for one in found.steps)
    stopping = [harm.place for harm in _failing(found)[:1]]
    decisions = sorted(decisions_of(found.steps), key=lambda task: task[0] not in stopping)
    parts = ["\nnext steps\n", _tasks_text("before the start", decisions, out, most)]
    complete = len(shown) == todo and not decisions
    for line in in_order(shown, all_of_them=complete, explained=most >= 0):
        parts.append(text_lines(out, f"  {line}", 6, "" if line.startswith("#") else " \\"))
    if len(shown) < todo:
        more = count_of(todo - len(shown), "more partition")
        parts.append(text_lines(out, f"  # before the start: {more}, -v lists all commands", 4))
    if any(one.replaced for one in shown):
        parts.append(text_lines(out, "  # or, with another replica in sync: only move the folder away, and start", 4))
    parts.append(_tasks_text("no command", left_of(found.steps), out, most))
    return "".join(parts) + "\n"


def _tasks_text(head: str, tasks: Sequence[FolderTask], out: TextIO, most: int) -> str:
    """Return the tasks without a command, a line for each; of more than ``most`` the first, and their number."""
    if not tasks:
        return ""
    if len(tasks) <= most:
        texts = [f"{folder}: {text}" for folder, text in tasks]
    else:
        folder, text = tasks[0]
        others = f", and {len(tasks) - 1:,} more" if len(tasks) > 1 else ""
        texts = [f"{folder}: {shortened(re.split('[.:] ', text)[0], _MOST_CHARACTERS)}{others}: -v says more"]
    return "".join(text_lines(out, f"  # {head}: {text}", 4) for text in texts)


_ANSWER = RowKind("doctor", "Answers about log directories").of(
    "answer",
    Column("subject", "text", "what the answer is about"),
    Column("text", "text", "the answer"),
)
_STEP = RowKind("doctor", "Next steps", "a row per partition").of(
    "step",
    Column("folder", "text", "the partition folder or log directory"),
    Column("commands", "texts", "lines for a shell, between the stop and the start of the broker"),
    Column("text", "text", "what a person has to do before the start"),
    Column("left", "texts", "findings that no command corrects, with the reasons"),
)
_SUMMARY = RowKind("doctor", "Summary of a diagnosis", "the last row").of(
    "summary",
    Column(
        "needing_attention", "map", "partitions by their worst consequence", "attention",
        of=(Column("", "count", "partitions"),),
    ),
    Column("commands", "texts", "all commands in their order"),
)  # fmt: skip
ROW_KINDS = (_ANSWER, _STEP, _SUMMARY)


def rows(found: Diagnosis) -> Iterator[Row]:
    """Yield a row per answer, one per partition with something to do, and a summary."""
    yield from _ANSWER.rows({"subject": subject, "text": text} for subject, text in answers(found))
    yield from _STEP.rows(found.steps)
    counts = {kind.label: count for kind, count in found.damaged.counts().items()}
    commands = in_order(found.steps, all_of_them=not any(one.text for one in found.steps))
    yield from _SUMMARY.rows([{"attention": counts, "commands": commands}])
