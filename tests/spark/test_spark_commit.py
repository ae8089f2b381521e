"""The commit of ``write_segments``: one that is killed in the middle is finished by the next run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

from kseg.format.storage.atomic_write import publish
from kseg.spark.jobs import segment_sink

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
        segment_sink.give_names(target, staging, moves, replace=True, option="overwrite=True")
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
        finished = segment_sink.finish_interrupted(target)
        found = {name: text for name, text in contents(target).items() if not name.startswith(".")}
        new = {f"{name}/0.log": f"new {name}" for name in NAMES}
        assert found in (before, new), at
        assert finished is False or found == new
        if finished or not killed:
            assert not [path for path in target.iterdir() if path.name.startswith(".")]
            assert not segment_sink.finish_interrupted(target)
        states.append((killed, found == new))
        if not killed:
            break
    assert {(True, False), (True, True), (False, True)} == set(states)


def test_a_second_run_waits_for_a_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two runs that rename in one folder at once leave a log that no run wrote; a run that ends leaves no lock."""
    fcntl = pytest.importorskip("fcntl", reason="no locks of open files")
    refused = []

    def second_run() -> None:
        handle = os.open(tmp_path, os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            refused.append(True)
        finally:
            os.close(handle)

    def watched(*given: Any, **named: Any) -> None:
        second_run()
        publish(*given, **named)

    monkeypatch.setattr(segment_sink, "publish", watched)
    for number in range(2):
        (tmp_path / "staging" / f"orders-{number}").mkdir(parents=True)
        moves = [(tmp_path / "staging" / f"orders-{number}", tmp_path / f"orders-{number}")]
        segment_sink.give_names(tmp_path, tmp_path / "staging", moves, replace=False, option="")
    assert refused == [True, True]
    assert not segment_sink.finish_interrupted(tmp_path)
    second_run()
    assert refused == [True, True]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["orders-0", "orders-1"]
