"""What to do next in a damaged log directory: the commands of the remedies, with the names of its folders, in order.

The commands are those of ``kseg.remedies``, which were carried out on real brokers. Here they get their places, and those of
several findings become one repair.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from kseg import remedies as do
from kseg.findings import RULES
from kseg.format.storage.naming import is_log, partition_of
from kseg.remedies import Action

_NAME = re.compile(r"\b[A-Z][A-Z_]+\b")
_SEVERAL_REPLICAS = "another replica is in sync"
#: Names of new folders -> the suffix of the folder next to the log directory that has them.
_NEW = {"NEW": "repaired", "BACKUP": "backup"}
#: Rules of the end of a segment, whose remedy is for the newest segment.
_ENDS = ("truncated-tail", "zero-tail", "zero-segment")
#: The remedy of a partition folder without partition.metadata, which no finding of a file can have.
STRAY = "partition.metadata"


@dataclass(frozen=True, slots=True)
class PartitionSteps:
    """What to do about one partition.

    ``commands`` are lines for a shell, without the stop and the start of the broker; none if a person has to decide: then
    ``text`` says what to do. ``replaced``: another replica, if one is in sync, is better than the result of the repair.
    ``new_folders`` are made before.
    """

    folder: str
    commands: tuple[str, ...] = ()
    text: str = ""
    replaced: bool = False
    new_folders: tuple[str, ...] = ()


def _beside(log_dir: str, suffix: str) -> str:
    """Return the path of a new folder next to a log directory: a broker refuses unknown folders in it."""
    if os.path.basename(os.path.normpath(log_dir)) in (".", ".."):
        log_dir = os.path.join(log_dir, "..", os.path.basename(os.path.abspath(log_dir)))
    return _free(f"{os.path.normpath(log_dir)}.{suffix}")


def _argument(path: str) -> str:
    """Return a path as a word of a command: quoted, and never an option."""
    return shlex.quote(f"./{path}" if path.startswith("-") else path)


def _free(path: str) -> str:
    number, free = 1, path
    while os.path.lexists(free):
        number += 1
        free = f"{path}-{number}"
    return free


def steps_of(folder: str, found: Iterable[tuple[str, str]]) -> PartitionSteps:
    """Return what to do about the findings of a partition or a log directory.

    ``found`` are pairs of a rule's name and the path of its file, the worst first.
    """
    commands: dict[str, None] = {}
    texts: dict[str, None] = {}
    replaced, new = False, set()
    for rule, file in found:
        remedy = RULES[rule].remedy_for(file)
        action = do.CORRECTED if rule in _ENDS and not _is_newest(file) else _chosen(remedy.actions)
        if action is None:
            texts[f"{rule}: {remedy.text}"] = None
            continue
        replaced |= _SEVERAL_REPLICAS in [one.case for one in remedy.actions]
        filled = [_filled(line, folder, file) for line in action.commands if line not in (do.STOP, do.START)]
        if None in filled:
            texts[f"`kseg rules {rule}` has the commands"] = None
        else:
            commands |= dict.fromkeys(line for line in filled if line and not _is_done(line))
            new |= {suffix for name, suffix in _NEW.items() if any(name in line for line in action.commands)}
    lines = tuple(_merged(commands))
    if lines and not os.path.isfile(os.path.join(folder, STRAY)):
        lines += stray_steps(folder).commands  # a repair cannot know the topic id
    made = tuple(_beside(_log_dir_of(folder), suffix) for suffix in sorted(new, reverse=True))
    return PartitionSteps(folder, lines, " ".join(texts) if not lines else "", replaced, made)


def _is_newest(file: str) -> bool:
    """Return whether a segment is the newest of its folder: only there recovery after a kill loses nothing else."""
    names = [name for name in os.listdir(os.path.dirname(file) or ".") if is_log(name)]
    return os.path.basename(file) == max(names, default="")


def _is_done(line: str) -> bool:
    """Return whether a command deletes a file that does not exist any more."""
    words = shlex.split(line)
    return words[0] == "rm" and len(words) == 2 and "*" not in words[1] and not os.path.lexists(words[1])


def _log_dir_of(folder: str) -> str:
    log_dir, name = os.path.split(os.path.normpath(folder))
    return folder if partition_of(name) is None else log_dir or "."


def _chosen(actions: Sequence[Action]) -> Action | None:
    """Return the action that works without another replica, if there is one."""
    return next((one for one in actions if one.case != _SEVERAL_REPLICAS), actions[0] if actions else None)


def _merged(commands: Iterable[str]) -> Iterator[str]:
    """Yield the commands of several findings: if the folder is replaced, nothing else has to be corrected in it."""
    lines = [*commands]
    moves = [line for line in lines if line.startswith("mv ")]
    if not moves:
        yield from lines
        return
    repairs = [line for line in lines if line.startswith("kseg repair ")]
    yield next((line for line in repairs if "--salvage-records" in line), repairs[0])  # it keeps more
    yield from moves
    yield from filter(_is_unclean, lines)


def _is_unclean(line: str) -> bool:
    """Return whether a command makes the broker read the logs at its start."""
    return line.startswith("rm -f ") and line.endswith(".kafka_cleanshutdown")


def _filled(command: str, folder: str, file: str) -> str | None:
    """Return a command with its names filled in; None if one is only known to a person."""
    name, log_dir = os.path.basename(os.path.normpath(folder)), _log_dir_of(folder)
    partition = partition_of(name)
    known = {
        "PARTITION": folder,
        "LOG_DIR": log_dir,
        **{word: os.path.join(_beside(log_dir, suffix), name) for word, suffix in _NEW.items()},
        "FILE": file,
        "SEGMENT": os.path.splitext(file)[0],
    }
    if partition is not None:
        known |= {"TOPIC": partition[0], "NUMBER": str(partition[1])}
    if "OTHER_PARTITION" in command and (other := _other_partition(folder)):
        known["OTHER_PARTITION"] = other
    words = set(_NAME.findall(command))
    if words - known.keys():
        return None
    return _NAME.sub(lambda match: _argument(known[match[0]]), command)


def stray_steps(folder: str) -> PartitionSteps:
    """Return what to do about a partition folder without partition.metadata: another partition of its topic has the id."""
    (action,) = do.METADATA_FILES[STRAY].actions
    lines = [_filled(line, folder, os.path.join(folder, STRAY)) for line in action.commands if line[0] != "#"]
    commands = tuple(line for line in lines if line is not None)
    return PartitionSteps(folder, commands, "" if commands else "restore partition.metadata with the topic id")


def _other_partition(folder: str) -> str | None:
    """Return another partition folder of the topic in the same log directory that has partition.metadata."""
    log_dir, name = os.path.split(os.path.normpath(folder))
    topic = name.rpartition("-")[0]
    try:
        names = sorted(os.listdir(log_dir or "."))
    except OSError:
        return None
    beside = (os.path.join(log_dir, one) for one in names if one != name and one.rpartition("-")[0] == topic)
    return next((one for one in beside if os.path.isfile(os.path.join(one, STRAY))), None)


def in_order(steps: Sequence[PartitionSteps], *, all_of_them: bool) -> list[str]:
    """Return the commands in their order: stop, make folders, repair and put in place, validate, start.

    Without ``all_of_them`` there is no start: recovery would truncate the other partitions.
    """
    commands = dict.fromkeys(line for one in steps for line in one.commands)
    if not commands:
        return []
    last = [line for line in commands if _is_unclean(line)]
    folders = dict.fromkeys(path for one in steps for path in one.new_folders)
    made = [" ".join(["mkdir", *map(_argument, folders)])] if folders else []
    checked = " ".join(["kseg validate", *(_argument(one.folder) for one in steps if one.commands)])
    return [
        do.STOP,
        *made,
        *(line for line in commands if line not in last),
        *last,
        checked,
        *([do.START] if all_of_them else []),
    ]
