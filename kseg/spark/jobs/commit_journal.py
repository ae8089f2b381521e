"""The journal of a commit that gives several folders their names: a run that is killed in it is finished by the next one.

When a commit begins, all new folders are complete and synced. So an interrupted commit is always finished, never undone.
"""

from __future__ import annotations

import glob
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from kseg.format.storage.atomic_write import SUFFIX, hidden_prefix, publish, sync_folder, whole_file, writing

#: The name of the journal in the folder of the results. Its suffix is that of unfinished files.
NAME = f".kseg-commit{SUFFIX}"
Moves = Sequence[tuple[Path, Path]]


def commit(target: Path, staging: Path, moves: Moves, *, replace: bool, option: str) -> None:
    """Rename synced folders in ``staging`` to their names in ``target`` as ``publish`` does, under a journal.

    A second run waits. The staging folder is removed at the end. Raises UsageError and OSError, and then no folder has a new
    name.
    """
    journal = target / NAME
    rows = [[str(path.relative_to(target)) for path in move] for move in moves]
    with _alone(target):
        with whole_file(journal) as out:
            out.write(json.dumps({"staging": staging.name, "moves": rows}).encode())
        try:
            publish(moves, replace=replace, option=option)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
            journal.unlink(missing_ok=True)


@contextmanager
def _alone(target: Path) -> Iterator[None]:
    """Wait until no other run on this machine gives its results their names in a folder, and keep others out.

    The lock is that of the open folder: it leaves no file, and ends with the process.
    """
    try:
        import fcntl  # Windows has no such module
    except ImportError:
        yield
        return
    handle = os.open(target, os.O_RDONLY)
    try:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def finish_interrupted(target: Path) -> bool:
    """Finish a commit that was killed, and return whether there was one. Raises KsegError if that fails."""
    journal = target / NAME
    if not target.is_dir():
        return False
    with writing(target), _alone(target):
        try:
            found = json.loads(journal.read_bytes())
        except FileNotFoundError:
            return False
        moves = [(target / new, target / name) for new, name in found["moves"]]
        publish([move for move in moves if os.path.lexists(move[0])], replace=True)
        for _, path in moves:
            for old in target.glob(f"{glob.escape(hidden_prefix(path))}*.old"):
                shutil.rmtree(old)
        shutil.rmtree(target / found["staging"], ignore_errors=True)
        for left in (journal, *target.glob(f".{NAME}.*{SUFFIX}")):
            left.unlink()
        sync_folder(target)
    return True
