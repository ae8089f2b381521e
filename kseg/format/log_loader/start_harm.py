"""The harm of a predicted start: which folders lose data or keep a broker from starting, why, and what to do."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from itertools import groupby
from typing import NamedTuple

from kseg import remedies as do
from kseg.findings import Consequence
from kseg.format.log_loader.plan import (
    EMPTIED,
    FAILURES,
    FORGET,
    LEAVE_UNSERVED,
    LOSE_METADATA,
    MARK_DAMAGED_ID,
    MARK_FORGOTTEN,
    MARK_STRAY,
    MARK_UNPLACED,
    NOT_A_PARTITION,
    REJECT_ID,
    STRAYS,
    WITH_ZEROS,
    LogDirPlan,
    Lost,
    PartitionPlan,
    Step,
)
from kseg.text import escape_controls

#: The remedy for each kind of loss and failure.
REMEDIES: Mapping[str, str] = {
    "fails": "Correct what keeps the broker from starting. `kseg doctor DIR` prints the commands for its files, in order, "
    "and names the files that no command corrects.",
    LOSE_METADATA: "Do not start the broker before you know where its metadata log is. Give all its log directories, also "
    "that of metadata.log.dir. If the log is lost, restore __cluster_metadata-0 from a backup or another controller. "
    "Without one, `kseg adopt` makes a cluster of the log directories of all brokers.",
    "records": "Before you start the broker, copy the folders, or save their valid batches: `kseg doctor DIR` has the "
    "commands. If another broker leads the partition, this one fetches the lost records from it after the start.",
    "bytes": "Nothing for folders that lose 0 records: only bytes that nobody can read are lost.",
    MARK_UNPLACED: f"{do.UNPLACED}: the folder stays under its new name.",
    MARK_FORGOTTEN: "Restore the metadata log from a backup before you start the broker, or make a new cluster with "
    "`kseg adopt`. The topics were not deleted: it has lost their records.",
    MARK_DAMAGED_ID: "Restore partition.metadata with the id of the topic before you start the broker.",
    REJECT_ID: "Restore partition.metadata with the id of the topic of the folder's name before you start the broker.",
    MARK_STRAY: "Restore partition.metadata with the topic id before you start the broker, or move the folder away.",
    FORGET: "Delete .kafka_cleanshutdown before you start the broker: it then reads the producers from the log. Otherwise "
    "consumers that read committed get records of open transactions, also of those that are aborted later.",
    EMPTIED: "Do not start the broker as a leader with this folder: replicas would truncate their logs to it. If another "
    "replica is in sync, move the folder out of the log directory, and the broker fetches the partition from the leader.",
    WITH_ZEROS: "Nothing if segments are preallocated (log.preallocate) and the partition was never written to. Otherwise "
    "its records are lost: if another replica has them, move the folder out of the log directory before the broker starts.",
    "unchecked": "After a clean shutdown the broker does not check its segments. `kseg recovery --unclean PATH` predicts "
    "its start without .kafka_cleanshutdown.",
}
#: Causes of harm that are not in a finding, and that commands for the files of a folder do not remove.
NOT_OF_A_FILE = (LOSE_METADATA, EMPTIED)
#: Causes of harm -> the warning before the start, whatever else is found in the folder.
DANGERS: Mapping[str, str] = {
    **{cause: REMEDIES[cause] for cause in (*NOT_OF_A_FILE, FORGET)},
    "records": "Copy the folder before the start, which truncates records that can be read. If another broker leads the "
    "partition, this one fetches them from it.",
}
_FAILING = {
    "offline": "take the log directory offline",
    LEAVE_UNSERVED: "leave partitions unserved",
    "refuse": "stop at its start",
}
# Actions that lose more than bytes of the log, or that show what it has lost.
_LOST_BEFORE = (FORGET, LOSE_METADATA, EMPTIED, WITH_ZEROS)
_NUMBER = re.compile(r"\d+")


class Harm(NamedTuple):
    """The effect of a start on a folder: its consequence, the file of the first harmful step, and the cells.

    ``kinds`` are the first action and its reason without numbers, which equal folders share. ``foreign`` are the names of
    its folders that are not of Kafka, ``failures`` the actions of FAILURES among the steps.
    """

    consequence: Consequence
    folder: str
    file: str
    lost: Lost
    would: str
    causes: frozenset[str]
    kinds: tuple[str, ...]
    is_log_dir: bool
    foreign: tuple[str, ...] = ()
    failures: frozenset[str] = frozenset()

    @property
    def rank(self) -> tuple[int, int, str]:
        """Worst first."""
        return -self.consequence, -self.lost.bytes, self.folder

    @property
    def place(self) -> str:
        """The folder, and the file of the first harmful step."""
        return escape_controls(os.path.join(self.folder, self.file) if self.file else self.folder)


def harm_of(plan: LogDirPlan | PartitionPlan) -> Harm:
    """Return the effect of a start on a folder that loses data or fails, with the steps that cause it."""
    # A folder can be moved away: what else stops the broker is worse.
    harmful = sorted(filter(is_harmful, plan.steps), key=lambda step: step.why == NOT_A_PARTITION)
    steps: list[str] = []
    for action, group in groupby(harmful, key=lambda step: step.action):
        first, *others = group
        at = "" if first.position is None else f" at byte {first.position}"
        more = f" and {len(others):,} more" if others else ""
        why = f": {first.why}" if first.why and not steps else ""
        fails, cause = _FAILING.get(action), first.file or ""
        verb = fails or action.replace("-", " ")
        steps.append(f"{verb}{' because of' if fails and cause else ''}{f' {cause}' if cause else ''}{at}{more}{why}")
    worst = next((step for step in harmful if step.action in FAILURES), harmful[0])
    foreign = tuple(step.file or "" for step in harmful if step.why == NOT_A_PARTITION)
    return Harm(
        _consequence(plan), plan.folder, worst.file or "", plan.lost, "; ".join(steps), frozenset(causes_of(plan)),
        tuple(_NUMBER.sub("", f"{step.action}: {step.why}") for step in harmful[:1]), isinstance(plan, LogDirPlan),
        foreign, frozenset(step.action for step in harmful if step.action in FAILURES),
    )  # fmt: skip


def _consequence(plan: LogDirPlan | PartitionPlan) -> Consequence:
    if plan.fails:
        return Consequence.STOPS_THE_BROKER
    lost = plan.lost
    if lost.records or any(step.action in (LOSE_METADATA, EMPTIED) for step in plan.steps):
        return Consequence.LOSES_RECORDS
    return Consequence.LOSES_BYTES if lost.bytes else Consequence.NEEDS_ATTENTION


def is_affected(plan: LogDirPlan | PartitionPlan) -> bool:
    """Return whether a folder would lose anything, or keep the broker from using it."""
    return any(map(is_harmful, plan.steps))


def is_harmful(step: Step) -> bool:
    """Return whether a step loses data, or keeps the broker from using a folder."""
    return step.lost.bytes > 0 or step.action in (*_LOST_BEFORE, *FAILURES)


def causes_of(plan: LogDirPlan | PartitionPlan) -> set[str]:
    """Return the keys of REMEDIES that apply to a plan."""
    causes = {"fails"} if plan.fails else set()
    for step in plan.steps:
        if step.action in _LOST_BEFORE or (step.lost.bytes and step.action in STRAYS):
            causes.add(step.action)
        elif step.lost.bytes and step.action in ("hide-records", "keep-tail"):
            causes.add("unchecked")
        elif step.lost.bytes:
            causes.add("records" if step.lost.records else "bytes")
    return causes - {"bytes"} if plan.lost.records else causes
