"""The commit of ``write_segments``: one that is killed in the middle is finished by the next run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

from kseg.spark.jobs import commit_journal

pytestmark = pytest.mark.spark
NAMES = ("orders-0", "orders-1", "orders-2")


def contents(target: Path) -> dict[str, str]:
    return {str(path.relative_to(target)): path.read_text() for path in target.rglob("*") if path.is_file()}


def killed_commit(target: Path, at: int) -> bool:
    """Replace two partitions and add one in a process that is killed at a call; return whether it was."""
    staging = target / ".run.spark.tmp"
    for name in NAMES:
        (staging / "task" / name).mkdir(parents=True)
        (staging / "task" / name / "0.log").write_text(f"new {name}")
    moves = [(staging / "task" / name, target / name) for name in NAMES]
    child = os.fork()
    if not child:
        left = at

        def killing(name: str) -> None:
            real = getattr(os, name)

            def call(*given: object, **named: object) -> object:
                nonlocal left
                left -= 1
                if left < 0:
                    os._exit(9)
                return real(*given, **named)

            setattr(os, name, call)

        for name in ("rename", "replace", "link", "unlink", "fsync", "rmdir"):
            killing(name)
        commit_journal.commit(target, staging, moves, replace=True, option="overwrite=True")
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9


def test_a_commit_that_is_killed_at_any_call_is_finished_or_never_began(tmp_path: Path) -> None:
    """Half of the partitions new and half old, or one missing, is a log that no run wrote."""
    states = []
    for at in range(60):
        target = tmp_path / str(at)
        for name in NAMES[:2]:
            (target / name).mkdir(parents=True)
            (target / name / "0.log").write_text(f"old {name}")
        before = contents(target)
        killed = killed_commit(target, at)
        finished = commit_journal.finish_interrupted(target)
        found = {name: text for name, text in contents(target).items() if not name.startswith(".")}
        new = {f"{name}/0.log": f"new {name}" for name in NAMES}
        assert found in (before, new), at
        assert finished is False or found == new
        if finished or not killed:
            assert not [path for path in target.iterdir() if path.name.startswith(".")]
            assert not commit_journal.finish_interrupted(target)
        states.append((killed, found == new))
        if not killed:
            break
    assert {(True, False), (True, True), (False, True)} == set(states)
