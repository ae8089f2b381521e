"""Faults at every step of publishing a result: the older result or the new one is there, whole.

Each case counts the calls that change folders or sync files, then repeats the work with a fault at each of them.
"""

from __future__ import annotations

import errno
import mmap
import os
import resource
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kseg.commands.convert.conversion import convert
from kseg.commands.convert.conversion_plan import ConversionPlan
from kseg.commands.repair.repair import repair
from kseg.commands.repair.repaired_segment import RepairPlan
from kseg.errors import KsegError
from kseg.format.storage import atomic_write, interrupts
from kseg.format.storage.interrupts import Interrupted
from tests.support.cli import SEGMENTS, kseg
from tests.support.interrupted import write_log

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals and forks of POSIX")

FOLDER = SEGMENTS / "4.3.0-v2-none-transactions"
NAME = "00000000000000000017"
LOG = FOLDER / f"{NAME}.log"
SMALL = SEGMENTS / "4.3.0-v2-none-idempotent"
_STEPS = ("replace", "rename", "link", "fsync", "unlink", "mkdir", "rmdir")
_Files = dict[str, bytes]


@dataclass(frozen=True, slots=True)
class Case:
    """Work that replaces the target below a folder, and the older result, by relative name."""

    work: Callable[[Path], object]
    older: _Files


def _report(folder: Path) -> None:
    with atomic_write.whole_file(folder / "out.txt") as out:
        out.write(b"new")


def _spark(folder: Path) -> None:
    """Publish two partitions as the Spark writer does."""
    with atomic_write.scratch_folder(folder / "t") as staging, atomic_write.writing(folder):
        moves = []
        for name in ("t-0", "t-1"):
            (staging / name).mkdir()
            (staging / name / LOG.name).write_bytes(b"new")
            moves.append((staging / name, folder / name))
        atomic_write.publish(moves, replace=True)


_SINGLE = {NAME + suffix: b"old" for suffix in (".log", ".index", ".timeindex", ".txnindex")}
_V2, _FORCED = ConversionPlan.of("any-to-v2", force=True), RepairPlan(force=True)
CASES = {
    "convert": Case(lambda folder: convert(str(LOG), str(folder / LOG.name), _V2), _SINGLE),
    "repair": Case(lambda folder: repair(str(LOG), str(folder / LOG.name), _FORCED), _SINGLE),
    "convert-new": Case(lambda folder: convert(str(LOG), str(folder / LOG.name), ConversionPlan.of("any-to-v2")), {}),
    "repair-new": Case(lambda folder: repair(str(LOG), str(folder / LOG.name), RepairPlan()), {}),
    "convert-folder": Case(lambda folder: convert(str(SMALL), str(folder / "t-0"), _V2), {"t-0/" + LOG.name: b"old"}),
    "repair-folder": Case(lambda folder: repair(str(SMALL), str(folder / "t-0"), _FORCED), {"t-0/" + LOG.name: b"old"}),
    "report": Case(_report, {"out.txt": b"old"}),
    "spark": Case(_spark, {f"t-{n}/{LOG.name}": b"old" for n in range(2)}),
}


def _files(folder: Path) -> _Files:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def _prepared(case: Case, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, data in case.older.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(data)
        atomic_write.mark_results((folder / name).parent)


@contextmanager
def _steps(each: Callable[[int, Callable[[], Any]], Any], steps: tuple[str, ...] = _STEPS) -> Iterator[list[str]]:
    """Call ``each`` with the number of a call of the os functions and what does it. Yields the names of the calls."""
    called: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        for step in steps:
            real = getattr(os, step)

            def call(*args: Any, real: Callable[..., Any] = real, step: str = step, **named: Any) -> Any:
                called.append(step)
                return each(len(called) - 1, lambda: real(*args, **named))

            patch.setattr(os, step, call)
        yield called


def _new_result(case: Case, folder: Path, steps: tuple[str, ...] = _STEPS) -> tuple[_Files, int]:
    """Do the work; return the new files, and the number of steps."""
    _prepared(case, folder)
    with _steps(lambda _, do: do(), steps) as called:
        case.work(folder)
    return _files(folder), len(called)


@pytest.fixture(autouse=True)
def _handlers_kept() -> Iterator[None]:
    before = interrupts.handlers()
    yield
    interrupts.restore(before)


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("name", CASES)
def test_a_signal_at_any_step(name: str, after: bool, tmp_path: Path) -> None:
    """SIGTERM and Ctrl-C leave the older result or the new one, and no hidden file."""
    case, folder = CASES[name], tmp_path / "out"
    new, count = _new_result(case, folder)
    assert new != case.older
    seen = set()
    for at in range(count):
        number = (signal.SIGTERM, signal.SIGINT)[at % 2]

        def step(n: int, do: Callable[[], Any], at: int = at, number: int = number) -> Any:
            if n == at and not after:
                signal.raise_signal(number)
            try:
                return do()
            finally:
                if n == at and after:
                    signal.raise_signal(number)

        _prepared(case, folder)
        with pytest.raises(Interrupted), interrupts.raised(), _steps(step):
            case.work(folder)
        left = _files(folder)
        assert left in (case.older, new), at
        seen.add(left == new)
    assert seen == {False, True}


@pytest.mark.parametrize("name", CASES)
def test_a_full_disk_at_any_step(name: str, tmp_path: Path) -> None:
    """The older result stays, unless the folder itself could not be synced at the very end."""
    case, folder = CASES[name], tmp_path / "out"
    steps = ("replace", "rename", "fsync", "mkdir")
    new, count = _new_result(case, folder, steps)
    assert count >= 3
    for at in range(count):

        def step(n: int, do: Callable[[], Any], at: int = at) -> Any:
            if n == at:
                raise OSError(errno.ENOSPC, "No space left on device")
            return do()

        _prepared(case, folder)
        with pytest.raises(KsegError, match="No space left on device") as raised, _steps(step, steps):
            case.work(folder)
        left = _files(folder)
        named = {path: data for path, data in left.items() if not path.startswith(".")}
        if "nothing was written" in str(raised.value):
            assert left == case.older, at
        else:
            assert "written completely" in str(raised.value)
            assert named == new, at


@pytest.mark.slow
@pytest.mark.parametrize("room", ["half", "log"])
@pytest.mark.parametrize("kind", ["file", "folder"])
@pytest.mark.parametrize("verb", ["convert", "repair"])
def test_out_of_space(verb: str, kind: str, room: str, small_disk: Callable[[int], Path], tmp_path: Path) -> None:
    """A disk with space for half of the log, or for the log without its indexes, is empty again; the source is unchanged."""
    source = tmp_path / "t-0"
    source.mkdir()
    write_log(source / LOG.name, 2, offset=int(NAME))
    before, path = _files(source), source if kind == "folder" else source / LOG.name

    def work(folder: Path) -> None:
        if verb == "convert":
            convert(str(path), str(folder / path.name), ConversionPlan.of("v0-to-v2"))
        else:
            repair(str(path), str(folder / path.name), RepairPlan())

    (tmp_path / "whole").mkdir()
    work(tmp_path / "whole")
    size = sum(len(data) for name, data in _files(tmp_path / "whole").items() if name.endswith(".log"))
    disk = small_disk(-(-size // mmap.PAGESIZE) * mmap.PAGESIZE if room == "log" else size // 2)
    with pytest.raises(KsegError, match="No space left on device; nothing was written there"):
        work(disk)
    assert (list(disk.iterdir()), _files(source)) == ([], before)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_kill_at_any_step(name: str, tmp_path: Path) -> None:
    """No file under a final name is empty or unfinished, no new index is next to an older log, and a later run works."""
    case, folder = CASES[name], tmp_path / "out"
    new, count = _new_result(case, folder)
    for at in range(count):

        def step(n: int, do: Callable[[], Any], at: int = at) -> Any:
            if n == at:
                os.kill(os.getpid(), signal.SIGKILL)
            return do()

        _prepared(case, folder)
        if not (child := os.fork()):
            with _steps(step):
                case.work(folder)
            os._exit(0)
        assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
        left = _files(folder)
        named = {path: data for path, data in left.items() if not path.startswith(".")}
        assert all(data in (case.older.get(path), new.get(path)) for path, data in named.items()), at
        if "folder" in name or name == "spark":
            whole = {path.split("/")[0] for path in (*case.older, *new)}
            for top in whole - {path.split("/")[0] for path in named}:
                # Between the two renames the older folder has a hidden name.
                assert any(path.startswith(f".{top}.") and ".old/" in path for path in left)
        else:
            first = next(path for path in new if path.endswith((".log", ".txt")))
            assert first in named or not case.older
            if named.get(first) != new[first]:
                assert all(data == b"old" for data in named.values()), at
        if case.older or not named:  # what it began without --force is not replaced without it
            case.work(folder)
            assert {path: data for path, data in _files(folder).items() if not path.startswith(".")} == new, at


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in CASES if name != "spark"])
def test_a_limit_of_the_file_size(name: str, tmp_path: Path) -> None:
    """A write fails at any size: the older result stays."""
    case, folder = CASES[name], tmp_path / "out"
    new, _ = _new_result(case, folder)
    sizes = {len(data) for data in new.values() if data}
    for limit in sorted({0, *(size - 1 for size in sizes if size > 1)}):
        if limit >= max(sizes):
            continue
        _prepared(case, folder)
        if not (child := os.fork()):
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
            try:
                case.work(folder)
            except KsegError as error:
                os._exit(7 if "File too large; nothing was written" in str(error) else 8)
            os._exit(9)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7, limit
        assert _files(folder) == case.older, limit


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to another user")
def test_what_root_writes_belongs_to_the_owner_of_the_source(tmp_path: Path) -> None:
    """A broker that runs as another user writes in the folder that root has repaired for it."""
    source = tmp_path / "orders-0"
    shutil.copytree(SEGMENTS / "4.3.0-v2-none", source)
    os.chown(source, 4711, 4712)
    for target in ("repaired", "converted"):
        command = ("repair",) if target == "repaired" else ("convert", "any-to-v2")
        assert kseg(*command, source, tmp_path / target).returncode == 0
        written = [tmp_path / target, *(tmp_path / target).iterdir()]
        assert {(path.stat().st_uid, path.stat().st_gid) for path in written} == {(4711, 4712)}
    log = source / f"{0:020}.log"
    os.chown(log, 4711, 4712)
    assert kseg("repair", log, tmp_path / "alone.log").returncode == 0
    assert (tmp_path / "alone.log").stat().st_uid == 4711
