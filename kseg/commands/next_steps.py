"""What to do next in a damaged log directory: the commands of the remedies, with the names of its folders, in order.

The commands are those of ``kseg.remedies``, which were carried out on real brokers. Here they get their places, and those of
several findings become one repair.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple

from kseg import remedies as do
from kseg.findings import RULES, Consequence
from kseg.format.log_loader.log_dir_start import IN_ANOTHER
from kseg.format.log_loader.plan import FORGET, MARK_DAMAGED_ID, MARK_FORGOTTEN, MARK_STRAY, REJECT_ID
from kseg.format.log_loader.start_harm import DANGERS, NOT_OF_A_FILE, REMEDIES, Harm
from kseg.format.storage import local_files
from kseg.format.storage.log_dir_places import (
    argument,
    beside,
    has_segments,
    log_dir_of,
    other_partition,
    partition_at,
    unused_place,
)
from kseg.format.storage.naming import METADATA_FOLDER, PARTITION_METADATA, QUORUM_STATE, partition_of
from kseg.format.storage.segment_files import is_newest
from kseg.remedies import Action, Remedy

_NAME = re.compile(r"\b[A-Z][A-Z_]+\b")
_SEVERAL_REPLICAS = "another replica is in sync"
#: Names of new folders -> the suffix of the folder next to the log directory that has them.
_NEW = {"NEW": "repaired", "BACKUP": "backup"}
#: Rules of the end of a segment, whose remedy is for the newest segment.
_ENDS = ("truncated-tail", "zero-tail", "zero-segment")
_TORN = _ENDS[:2]
#: Rules about data that was lost before: a start loses nothing more, and only another replica has it.
_LOST_BEFORE = ("missing-batches", "segment-gap", "offset-gap", "orphaned-index")
_LOST_BEFORE_REPAIR = "# exit code 1 of repair and validate: what was lost before (missing-batches)"
#: Rules of batches that brokers and Java's consumer read without an error.
_READ_ON = ("truncated-wrapper",)
_SALVAGES = "--salvage-records"
#: The causes that commands correct: they copy the topic id of another partition.
_RESTORED_IDS = frozenset({MARK_STRAY, MARK_DAMAGED_ID, REJECT_ID})
_LOST_AND_FOUND = "lost+found"


@dataclass(frozen=True, slots=True)
class PartitionSteps:
    """What to do about one partition or log directory.

    ``commands`` are lines for a shell, without the stop and the start of the broker. ``decisions`` are for a person,
    before the start. ``left`` are the findings that no command corrects, with the reasons; they don't need one before
    the start. ``replaced``: another replica, if one is in sync, is better than the result of the repair. ``new_folders``
    are made before. ``left_out`` names records that can be read and that the repair leaves out.
    """

    folder: str
    commands: tuple[str, ...] = ()
    decisions: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    replaced: bool = False
    new_folders: tuple[str, ...] = ()
    left_out: str = ""

    @property
    def text(self) -> str:
        """The decisions as one text."""
        return "; ".join(one.rstrip(".") for one in self.decisions)


class FolderTask(NamedTuple):
    """One of the decisions of a folder, or one of its findings that no command corrects, with the reason."""

    folder: str
    text: str


def decisions_of(steps: Iterable[PartitionSteps]) -> list[FolderTask]:
    """Return the decisions before the start, first those about log directories: they concern all partitions in them."""
    found = [FolderTask(one.folder, text) for one in steps for text in one.decisions]
    return sorted(found, key=lambda one: partition_at(one.folder) is not None)


def left_of(steps: Iterable[PartitionSteps]) -> list[FolderTask]:
    """Return the findings that no command corrects."""
    return [FolderTask(one.folder, text) for one in steps for text in one.left]


class FoundRule(NamedTuple):
    """A rule with a finding in a file, and its consequence."""

    rule: str
    file: str
    consequence: Consequence


class TriedRepair(NamedTuple):
    """Why a repair fails, whether it changes anything, and by rule which records that can be read it leaves out."""

    failure: str = ""
    changes: bool = True
    left_out: Mapping[str, str] = MappingProxyType({})


#: Tries the repair of a folder. The second parameter: whether it keeps records of damaged batches.
TryRepair = Callable[[str, bool], TriedRepair]


def steps_of(
    folder: str,
    files: Mapping[tuple[str, str], Consequence],
    harm: Harm | None,
    try_repair: TryRepair,
    *,
    log_dirs: Collection[str] = (),
    forgets: bool = False,
) -> PartitionSteps:
    """Return what to do about a partition or a log directory: about its findings, and about its predicted start.

    ``files`` are pairs of a rule and a file with the consequences of the findings. ``harm`` is that of the start.
    ``log_dirs`` are the log directories whose start is predicted. ``forgets``: partitions become strays, because the
    metadata log has lost their records.
    """
    is_log_dir = folder in log_dirs
    if unused := unused_place(folder, log_dirs):
        return _unused_steps(folder, *unused, planned=unused[0] in log_dirs)
    # Within the folder that is moved, relative paths would lead elsewhere.
    named = is_log_dir or partition_of(os.path.basename(folder)) is not None
    place = folder if named else os.path.abspath(folder)
    worst_first = sorted(files.items(), key=lambda item: -item[1])
    found = [FoundRule(rule, os.path.join(place, os.path.basename(file)), kind) for (rule, file), kind in worst_first]
    steps = _steps_of(place, found, try_repair, harm)
    if os.path.basename(place) == METADATA_FOLDER:
        return _of_metadata_log(steps, found, forgets=forgets)
    if harm and not harm.causes.isdisjoint(_RESTORED_IDS) and not steps.commands:
        stray = _stray_steps(place)
        return replace(stray, decisions=(*steps.decisions, *stray.decisions), left=steps.left, replaced=steps.replaced)
    if harm and MARK_FORGOTTEN in harm.causes:
        return replace(steps, decisions=(REMEDIES[MARK_FORGOTTEN], *steps.decisions))
    return steps


def _of_metadata_log(steps: PartitionSteps, found: Sequence[FoundRule], *, forgets: bool) -> PartitionSteps:
    """Return the steps of a metadata log: its batches are not repaired, and those at its end can be incomplete."""
    votes = [one for one in found if os.path.basename(one.file) == QUORUM_STATE]
    torn = found and all(one in votes or (one.rule in _TORN and is_newest(one.file)) for one in found)
    swapped = any(line.startswith(do.SWAP) for line in steps.commands)
    if not (forgets or swapped or not (steps.commands or torn)):
        return steps
    texts = (f"{one.rule}: {RULES[one.rule].remedy_for(one.file).text}" for one in votes)
    return PartitionSteps(steps.folder, decisions=(do.METADATA_LOG.text, *texts))


def _steps_of(folder: str, found: Iterable[FoundRule], try_repair: TryRepair, harm: Harm | None) -> PartitionSteps:
    """Return what to do about findings, the worst first. What to do about the start is left out if commands correct it."""
    commands: dict[str, None] = {}
    decisions: dict[str, None] = {}
    left: dict[str, None] = {}
    replaced, new, corrected = False, set[str](), set[str]()
    for one in found:
        if one.rule == "stray-folder" and harm and not harm.causes.isdisjoint(_RESTORED_IDS):
            continue
        remedy = RULES[one.rule].remedy_for(one.file)
        replaced |= _SEVERAL_REPLICAS in [action.case for action in remedy.actions]
        action = _action_for(one, remedy)
        lines = None if action is None else [_filled(line, folder, one.file) for line in _lines(action)]
        if action is None or lines is None:
            texts = left if one.rule in _LOST_BEFORE or _is_harmless(one, remedy) else decisions
            texts[f"{one.rule}: {remedy.text}"] = None
        elif None in lines:
            decisions[f"{one.rule}: {remedy.text} `kseg rules {one.rule}` has the commands."] = None
        elif why := _why_useless(folder, one, action, [line for line in lines if line], try_repair):
            left[f"{one.rule}: {why}"] = None
        else:
            commands |= dict.fromkeys(
                line
                for command, line in zip(_lines(action), lines, strict=True)
                if line and (command.startswith("rm -f ") or not _is_done(command, folder, one.file))
            )
            new |= {suffix for name, suffix in _NEW.items() if any(name in line for line in action.commands)}
            corrected.add(_stem(one.file))
    todo = [*_merged(commands)]
    if harm is not None:
        causes = _left_causes(harm, todo, corrected)
        decisions = dict.fromkeys(_start_texts(harm, causes, alone=not decisions)) | decisions
    without_id = not local_files.is_file(os.path.join(folder, PARTITION_METADATA))
    if todo and partition_at(folder) and (without_id or (harm and not harm.causes.isdisjoint(_RESTORED_IDS))):
        stray = _stray_steps(folder)  # a repair cannot know the topic id
        todo += stray.commands
        decisions |= dict.fromkeys(stray.decisions)
    for name in harm.foreign if harm else ():
        if name == _LOST_AND_FOUND:
            decisions[
                f"{name} is of the file system, and stops the broker: make a folder below {folder}, move the partition "
                "folders and the other files of Kafka into it, and let log.dirs name it"
            ] = None
        else:
            new.add(_NEW["BACKUP"])
            todo.append(_moved_out(folder, name))
    made = tuple(beside(log_dir_of(folder), suffix) for suffix in sorted(new, reverse=True))
    salvages = any(line.startswith("kseg repair ") and _SALVAGES in line for line in todo)
    swaps = any(line.startswith(do.SWAP) for line in todo)
    lost = try_repair(folder, salvages).left_out.items() if swaps else ()
    left_out = "; ".join(f"{offsets} ({rule})" for rule, offsets in lost)
    return PartitionSteps(folder, tuple(todo), tuple(decisions), tuple(left), replaced, made, left_out)


def _moved_out(log_dir: str, name: str) -> str:
    """Return the command that moves a folder out of a log directory."""
    backup = os.path.join(beside(log_dir, _NEW["BACKUP"]), name)
    return f"mv {argument(os.path.join(log_dir, name))} {argument(backup)}"


def _unused_steps(folder: str, log_dir: str, name: str, *, planned: bool) -> PartitionSteps:
    """Return what to do about a folder in which a broker reads no partition. Repairs in place would only add folders.

    ``planned``: the steps of the log directory move the folder ``name`` out of it.
    """
    place = os.path.join(log_dir, name)
    if partition_of(name) is not None:
        return PartitionSteps(folder, left=(f"no broker reads it: it is in {place}",))
    after = (
        f"{place} is not a partition folder, and stops the broker: `kseg doctor` has the repair when it is moved out"
    )
    if planned:
        return PartitionSteps(folder, left=(after,))
    backup = beside(log_dir, _NEW["BACKUP"])
    return PartitionSteps(folder, (_moved_out(log_dir, name),), left=(after,), new_folders=(backup,))


_NOT_ITS_OWN = (
    "the log directories are those of several brokers, or one is a copy of the other. Give those of one broker at a time, "
    "and take out of log.dirs what is not its own: the broker would mount partitions of others"
)


def _stem(file: str) -> str:
    """Return the name that a segment and its indexes share, or the whole name of another file."""
    return os.path.splitext(os.path.basename(file))[0]


def _left_causes(harm: Harm, commands: Sequence[str], corrected: Container[str]) -> frozenset[str]:
    """Return the causes of a harm that commands leave. ``corrected`` are the stems of the files that have commands."""
    causes = harm.causes
    if any(line.startswith(do.SWAP) for line in commands):
        causes &= {*NOT_OF_A_FILE}
    elif harm.file and _stem(harm.file) in corrected:
        causes &= DANGERS.keys()
    return causes - {FORGET} if any(map(_is_unclean, commands)) else causes


def _start_texts(harm: Harm, causes: Set[str], *, alone: bool) -> list[str]:
    """Return what to do about the predicted start of a folder, besides what commands do.

    ``alone``: no finding of the folder has a text. Those texts say less than ``DANGERS`` and as much as the others.
    """
    texts = [text for cause, text in DANGERS.items() if cause in causes]
    if not (causes and alone) or harm.file in harm.foreign:
        return texts
    if harm.file in do.IN_LOG_DIRS:
        text = f"{harm.file}: {do.IN_LOG_DIRS[harm.file].text}"
        return [_NOT_ITS_OWN if IN_ANOTHER in harm.would else text]
    if "fails" in causes:
        return [*texts, f"no command of kseg corrects what makes the broker {harm.would}"]
    # Only bytes that nobody can read are no reason to wait; the topic id of a stray partition has commands.
    causes -= {*DANGERS, "bytes", MARK_FORGOTTEN, *_RESTORED_IDS}
    return texts + [text for cause, text in REMEDIES.items() if cause in causes]


def _action_for(one: FoundRule, remedy: Remedy) -> Action | None:
    """Return the action of a remedy that works without another replica, None if there is none."""
    if one.rule in _ENDS and not is_newest(one.file):
        return do.CORRECTED
    return next((action for action in remedy.actions if action.case != _SEVERAL_REPLICAS), None)


def _lines(action: Action) -> list[str]:
    """Return the commands of an action without the stop and the start of the broker."""
    return [line for line in action.commands if line not in (do.STOP, do.START)]


def _is_harmless(one: FoundRule, remedy: Remedy) -> bool:
    """Return whether a broker can start with a finding that no action on files corrects."""
    return not remedy.actions and one.consequence < Consequence.LOSES_RECORDS


def _why_useless(folder: str, one: FoundRule, action: Action, lines: Sequence[str], try_repair: TryRepair) -> str:
    """Return why the commands ``lines`` of an action would change nothing or do harm, "" if they help."""
    if not lines:
        return RULES[one.rule].remedy_for(one.file).text
    if all(_is_done(command, folder, one.file) for command in _lines(action)):
        return "the start corrects it"
    repair = next((line for line in lines if line.startswith("kseg repair ")), "")
    if not repair or "--indexes-only" in repair:
        return ""
    tried = try_repair(folder, _SALVAGES in repair)
    if tried.failure:
        return f"`kseg repair` fails: {tried.failure}"
    if not tried.changes and any(line.startswith(do.SWAP) for line in lines):
        return "`kseg repair` would change nothing: no byte shows the right value"
    lost = tried.left_out.get(one.rule, "") if one.rule in _READ_ON else ""
    return f"`kseg repair` would leave out {lost}, which brokers and consumers read" if lost else ""


def _is_done(command: str, folder: str, file: str) -> bool:
    """Return whether a command, before its names are filled in, deletes files that do not exist any more.

    A node recovers its metadata log also after a clean shutdown (``KafkaRaftLog.createLog``).
    """
    if os.path.basename(folder) == METADATA_FOLDER and _is_unclean(command):
        return True
    words = command.split()
    if words[0] != "rm":
        return False
    place, name = os.path.split(_filled(words[-1], folder, file, str) or "")
    return not fnmatch.filter(local_files.names_in(place), name)


def _merged(commands: Iterable[str]) -> Iterator[str]:
    """Yield the commands of several findings: if the folder is replaced, nothing else has to be corrected in it."""
    lines = [*commands]
    swap = next((line for line in lines if line.startswith(do.SWAP)), None)
    if swap is None:
        yield from lines
        return
    repairs = [line for line in lines if line.startswith("kseg repair ")]
    yield next((line for line in repairs if _SALVAGES in line), repairs[0])  # it keeps more
    yield swap


def _is_unclean(line: str) -> bool:
    """Return whether a command makes the broker read the logs at its start."""
    return line.startswith("rm -f ") and line.endswith(".kafka_cleanshutdown")


def _filled(command: str, folder: str, file: str, word: Callable[[str], str] = argument) -> str | None:
    """Return a command with its names filled in, each as ``word`` writes it; None if one is only known to a person."""
    name, log_dir = os.path.basename(os.path.normpath(folder)), log_dir_of(folder)
    partition = partition_at(folder)
    known = {
        "PARTITION": folder,
        "LOG_DIR": log_dir,
        **{word: os.path.join(beside(log_dir, suffix), name) for word, suffix in _NEW.items()},
        "FILE": file,
        "SEGMENT": os.path.splitext(file)[0],
    }
    if partition is not None:
        known |= {"TOPIC": partition[0], "NUMBER": str(partition[1])}
    if "OTHER_PARTITION" in command and (other := other_partition(folder)):
        known["OTHER_PARTITION"] = other
    words = set(_NAME.findall(command))
    if words - known.keys():
        return None
    return _NAME.sub(lambda match: word(known[match[0]]), command)


def _stray_steps(folder: str) -> PartitionSteps:
    """Return what to do about a partition folder without partition.metadata: another partition of its topic has the id."""
    (action,) = do.METADATA_FILES[PARTITION_METADATA].actions
    lines = [_filled(line, folder, os.path.join(folder, PARTITION_METADATA)) for line in _lines(action)]
    commands = tuple(line for line in lines if line is not None)
    return PartitionSteps(folder, commands, () if commands else ("restore partition.metadata with the topic id",))


def in_order(steps: Sequence[PartitionSteps], *, all_of_them: bool, explained: bool = True) -> list[str]:
    """Return the commands in their order: stop, make folders, repair and put in place, validate, start.

    Without ``all_of_them`` the start is left out: recovery would truncate the other partitions. ``explained``: with a
    sentence about exit code 1, which looks like a failure of the last command.
    """
    commands = dict.fromkeys(line for one in steps for line in one.commands)
    if not commands:
        return []
    swaps = [line for line in commands if line.startswith(do.SWAP)]
    unclean = [line for line in commands if _is_unclean(line)]
    # Without the result of a repair, recovery would truncate its batches.
    last = [line for line in unclean if not any(swap.endswith(f"&& {line}") for swap in swaps)]
    folders = dict.fromkeys(path for one in steps for path in one.new_folders)
    made = [" ".join(["mkdir", *map(argument, folders)])] if folders else []
    harmed = "".join(f", and what that of {one.folder} leaves out: {one.left_out}" for one in steps if one.left_out)
    known = [_LOST_BEFORE_REPAIR + harmed] if explained and swaps else []
    checked = [argument(one.folder) for one in steps if one.commands and has_segments(one.folder)]
    return [
        do.STOP,
        *made,
        *(line for line in commands if line not in unclean),
        *last,
        *known,
        *([" ".join(["kseg validate", *checked])] if checked else []),
        *([do.START] if all_of_them else []),
    ]
