"""Output of ``kseg doctor``: the start of the broker, the loss and the next steps on one screen, or rows."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, TextIO

from kseg.commands.next_steps import PartitionSteps, in_order
from kseg.consequences import Consequence
from kseg.format.log_loader.start_harm import Harm
from kseg.format.storage.source import is_url
from kseg.report.partition_damage import Damage, DamagedPartitions
from kseg.report.recovery_report import RecoveryTotal
from kseg.report.tables import print_text, text_lines
from kseg.report.wording import summary_text
from kseg.results import Summary
from kseg.schema import Column, Row, RowKind, row_maker
from kseg.text import count_of, escape_controls, size_text

#: The most lines of commands on a screen.
_COMMANDS_SHOWN = 8


class DamagedFolder(NamedTuple):
    """A folder that needs attention: by its findings, by the predicted start, or by both."""

    folder: str
    consequence: Consequence
    damage: Damage | None
    harm: Harm | None


@dataclass
class Diagnosis:
    """The results for log directories, complete after the last file.

    ``space`` are the free bytes for copies and the bytes that repairs would write, None without a folder. ``leftovers`` are
    numbers of folders and files that no broker uses, by their kind. ``log_dirs`` are the paths of log directories.
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

    @cached_property
    def folders(self) -> Sequence[DamagedFolder]:
        """The folders that need attention, the worst first; last the log directories without a finding."""
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

    def attention(self) -> str:
        """Return the numbers of ``kseg validate``, and how many other folders only the predicted start harms."""
        harmed = sum(one.damage is None for one in self.folders)
        others = f"; without a finding, harmed by the start: {count_of(harmed, 'folder')}" if harmed else ""
        return self.damaged.answer() + others

    def partitions(self) -> Counter[Consequence]:
        """Return the numbers of partitions by consequence, as ``kseg validate`` does."""
        return self.damaged.counts()

    @property
    def found(self) -> bool:
        """Whether anything needs attention."""
        return bool(self.folders or self.hanging or self.recovery.harms or self.total.errors)


def answers(found: Diagnosis) -> Iterator[tuple[str, str]]:
    """Yield the answers as (subject, text)."""
    yield "start", _start(found)
    lost = found.recovery
    if lost.partitions or lost.log_dirs:
        what = f"{count_of(lost.lost_records, 'readable record')}, {count_of(lost.lost_bytes, 'byte')}"
        yield "loss", f"{what} in {lost.losing:,} of {count_of(lost.partitions, 'partition')}"
    yield "damage", found.attention()
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


def _start(found: Diagnosis) -> str:
    failing = [harm for harm in found.harms if harm.consequence is Consequence.STOPS_THE_BROKER]
    if failing:
        more = f", and {count_of(len(failing) - 1, 'other folder')}" if len(failing) > 1 else ""
        return f"no: {failing[0].place} stops it{more}"
    if found.recovery.unread or not (found.recovery.partitions or found.recovery.log_dirs):
        return "not predicted: give the log directories of the broker"
    if found.recovery.without_metadata:
        return "without topics: the metadata log is missing"
    lost = any(one.consequence >= Consequence.LOSES_BYTES for one in found.folders)
    return "yes, with a loss" if found.recovery.harms else f"yes, without a {'further ' if lost else ''}loss"


def write_table(found: Diagnosis, out: TextIO, *, detail: int = 0) -> None:
    """Write the answers, then the commands: of many, those for the worst partitions, with ``detail`` 1 all."""
    for subject, text in answers(found):
        print_text(out, f"{subject:13} {escape_controls(text)}", indent=14)
    if detail >= 0:
        _write_steps(found, out, whole=detail > 0)
    print_text(out, summary_text(found.total), indent=2)


def _write_steps(found: Diagnosis, out: TextIO, *, whole: bool) -> None:
    steps = [one for one in found.steps if one.commands]
    shown = steps if whole else _first(steps)
    if found.steps:
        out.write("\nnext steps\n")
    decisions = [(one.folder, text) for one in found.steps for text in one.decisions]
    _write_texts("before the start", decisions, out, whole=whole)
    for line in in_order(shown, all_of_them=len(shown) == len(steps) and not decisions):
        out.write(text_lines(out, f"  {escape_controls(line)}", 6, "" if line.startswith("#") else " \\"))
    if len(shown) < len(steps):
        more = count_of(len(steps) - len(shown), "more partition")
        print_text(out, f"  # before the start: {more}, -v lists all commands", indent=4)
    if any(one.replaced for one in shown):
        print_text(out, "  # or, with another replica in sync: only move the folder away, and start", indent=4)
    _write_texts("no command", [(one.folder, text) for one in found.steps for text in one.left], out, whole=whole)
    out.write("\n")


def _write_texts(head: str, texts: Sequence[tuple[str, str]], out: TextIO, *, whole: bool) -> None:
    """Write the tasks without a command, a line for each; unless ``whole`` only the first and the number of the others."""
    for folder, text in texts if whole else texts[:1]:
        print_text(out, f"  # {head}: {escape_controls(folder)}: {escape_controls(text)}", indent=4)
    if not whole and len(texts) > 1:
        print_text(out, f"  # {head}: {len(texts) - 1:,} more, -v lists them", indent=4)


def _first(steps: Sequence[PartitionSteps]) -> list[PartitionSteps]:
    """Return the first partitions whose commands fit on the screen, at least one."""
    shown: list[PartitionSteps] = []
    lines = 0
    for one in steps:
        lines += len(one.commands)
        if shown and lines > _COMMANDS_SHOWN:
            break
        shown.append(one)
    return shown


_ANSWER = (
    Column("kind", "text", "answer"),
    Column("subject", "text", "what the answer is about", "subject"),
    Column("text", "text", "the answer", "text"),
)
_STEP = (
    Column("kind", "text", "step"),
    Column("folder", "text", "the partition folder or log directory"),
    Column("commands", "texts", "lines for a shell, between the stop and the start of the broker"),
    Column("text", "text", "what a person has to do before the start"),
    Column("left", "texts", "findings that no command corrects, with the reasons"),
)
_SUMMARY = (
    Column("kind", "text", "summary"),
    Column(
        "needing_attention", "map", "partitions by their worst consequence", "attention",
        of=(Column("", "count", "partitions"),),
    ),
    Column("commands", "texts", "all commands in their order"),
)  # fmt: skip
ROW_KINDS = (
    RowKind("doctor", "Answers about log directories", _ANSWER),
    RowKind("doctor", "Next steps", _STEP, "a row per partition"),
    RowKind("doctor", "Summary of a diagnosis", _SUMMARY, "the last row"),
)


def rows(found: Diagnosis) -> Iterator[Row]:
    """Yield a row per answer, one per partition with something to do, and a summary."""
    answer, step, summary = map(row_maker, (_ANSWER, _STEP, _SUMMARY))
    for subject, text in answers(found):
        yield answer({"subject": subject, "text": text})
    for one in found.steps:
        yield step(one)
    counts = {kind.label: count for kind, count in found.partitions().items()}
    commands = in_order(found.steps, all_of_them=not any(one.text for one in found.steps))
    yield summary({"attention": counts, "commands": commands})
