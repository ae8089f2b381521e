"""SIGTERM and SIGHUP end every command as Ctrl-C does: no temporary file, one line on stderr, exit code 128 + N."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from kseg.errors import UsageError
from kseg.format.storage import interrupts
from kseg.format.writer.output_guards import PartitionFolder, each_partition
from tests.support.cli import MIXED, PLAIN, ROOT, invoke
from tests.support.interrupted import write_log
from tests.support.writer import Writer

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")]

FIRST = f"{0:020d}.log"
#: A long clean-up: says that it begins, and lasts a second.
SLOW_DISCARD = """
import sys, time
from kseg.format.storage import atomic_write
close = atomic_write.NewFile.__exit__
def slow(new, *error):
    print("begun", file=sys.stdout, flush=True)
    time.sleep(1)
    close(new, *error)
atomic_write.NewFile.__exit__ = slow
from kseg.cli.main import main
main()
"""
MESSAGES = {
    signal.SIGINT: "kseg: interrupted",
    signal.SIGTERM: "kseg: ended by SIGTERM",
    signal.SIGHUP: "kseg: ended by SIGHUP",
}


def started(*arguments: object, program: Sequence[str] = ("-m", "kseg"), nohup: bool = False) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*(["nohup"] if nohup else []), sys.executable, *program, *map(str, arguments)],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def wait_for_file(folder: Path, running: subprocess.Popen[str]) -> None:
    """Wait until the command has created a file in the folder."""
    deadline = time.monotonic() + 300
    while not list(folder.iterdir()):
        assert running.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    folder = tmp_path / "out"
    folder.mkdir()
    return folder


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A segment whose conversion takes seconds."""
    path = tmp_path_factory.mktemp("orders-0") / FIRST
    write_log(path, 24, value_size=100)
    return path


@pytest.mark.parametrize("number", MESSAGES)
@pytest.mark.parametrize(
    "command",
    [
        ("dump", "--deep", "--format", "jsonl", "--jobs", "1", "-o", "{out}/rows", "{log}"),
        ("dump", "--deep", "--format", "jsonl", "--jobs", "2", "-o", "{out}/rows", "{log}"),
        ("convert", "v0-to-v2", "--jobs", "1", "{log}", "{out}/" + FIRST),
        ("convert", "v0-to-v2", "--jobs", "2", "{log}", "{out}/" + FIRST),
        ("repair", "{log}", "{out}/" + FIRST),
    ],
    ids=lambda command: "-".join(command[:1] + command[5:6]),
)
def test_a_signal_leaves_no_temporary_file(
    command: tuple[str, ...], number: signal.Signals, log: Path, out: Path
) -> None:
    """systemd, cron, Kubernetes and timeout send SIGTERM, a closed terminal SIGHUP."""
    for _ in range(5):
        with started(*(word.format(log=log, out=out) for word in command)) as running:
            wait_for_file(out, running)
            sent = time.time()
            running.send_signal(number)
            _, err = running.communicate(timeout=300)
        if running.returncode or any(path.stat().st_ctime >= sent for path in out.iterdir()):
            break
        for path in out.iterdir():  # the command had ended before its signal: this process did not run for seconds
            path.unlink()
    assert (running.returncode, err.strip()) == (128 + number, MESSAGES[number])
    assert list(out.iterdir()) == []


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_does_not_stop_the_clean_up(second: signal.Signals, log: Path, out: Path) -> None:
    """timeout(1) sends SIGTERM twice: to the process, and to its group."""
    command = ("dump", "--deep", "--format", "jsonl", "-o", out / "rows", log)
    with started(*command, program=("-c", SLOW_DISCARD)) as running:
        wait_for_file(out, running)
        running.send_signal(signal.SIGTERM)
        assert running.stdout
        assert running.stdout.readline() == "begun\n"
        running.send_signal(second)
        _, err = running.communicate(timeout=300)
    assert (running.returncode, err) == (143, "kseg: ended by SIGTERM\n")
    assert list(out.iterdir()) == []


@pytest.mark.parametrize("number", MESSAGES)
@pytest.mark.parametrize("dropped", ["Ends()", "with suppress(KeyboardInterrupt): Ends.__del__(None)"])
def test_a_signal_whose_exception_is_dropped_is_not_lost(dropped: str, number: signal.Signals) -> None:
    """Python drops one in a destructor, as in the callbacks of an import's locks, and C code some: the command went on."""
    program = (
        "import signal, sys, time\n"
        "from contextlib import suppress\n"
        "from kseg.format.storage import interrupts\n"
        "class Ends:\n"
        "    def __del__(self): signal.raise_signal(int(sys.argv[1]))\n"
        "try:\n"
        "    with interrupts.raised():\n"
        f"        {dropped}\n"
        "        time.sleep(60)\n"
        "except interrupts.Interrupted as error: sys.exit(error.exit_code)\n"
    )
    running = started(int(number), program=("-c", program))
    assert running.communicate(timeout=30) == ("", "")
    assert running.returncode == 128 + number


def test_a_signal_that_was_handled_is_not_raised_again() -> None:
    """Ctrl-C is how a person ends --follow: what follows must not be ended by the same Ctrl-C."""
    with interrupts.raised():
        with suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        interrupts.settled()
        time.sleep(0.6)
    assert signal.getsignal(signal.SIGALRM) == signal.SIG_DFL


def test_nohup_stays_ignored(out: Path) -> None:
    """A command that was started with nohup ends with its work."""
    with started("dump", "--deep", "--max-rate", "4K", "-o", out / "rows", PLAIN, nohup=True) as running:
        wait_for_file(out, running)
        running.send_signal(signal.SIGHUP)
        running.communicate(timeout=300)
    assert running.returncode == 0
    assert [path.name for path in out.iterdir()] == ["rows"]


def test_sigterm_ends_follow_with_143(tmp_path: Path) -> None:
    """Ctrl-C is how a person ends --follow: exit code 0. A service manager sees that its signal came."""
    writer = Writer(tmp_path / "orders-3")
    writer.append(1)
    with started("dump", "--follow", "--format", "jsonl", writer.folder) as running:
        assert running.stdout
        line = running.stdout.readline()
        running.send_signal(signal.SIGTERM)
        rest, err = running.communicate(timeout=300)
    assert (running.returncode, err) == (143, "kseg: ended by SIGTERM\n")
    assert line
    assert rest == ""


def test_importing_kseg_sets_no_handler() -> None:
    """A program that uses the library keeps its own handlers, also in a process without any."""
    code = (
        "import signal\n"
        "numbers = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]\n"
        "before = [signal.getsignal(number) for number in numbers]\n"
        "import kseg, kseg.cli.main\n"
        f"assert kseg.validate({str(PLAIN)!r})\n"
        "assert [signal.getsignal(number) for number in numbers] == before\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, timeout=300)


def test_a_caller_of_the_command_line_keeps_its_handlers(tmp_path: Path) -> None:
    """Also a handler of the caller's own, and also when the command failed."""
    numbers = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
    mine = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        before = [signal.getsignal(number) for number in numbers]
        for path in (MIXED, tmp_path / "missing.log"):
            invoke("validate", path)
            assert [signal.getsignal(number) for number in numbers] == before
    finally:
        signal.signal(signal.SIGTERM, mine)


@pytest.mark.parametrize("module", ["kseg", "kseg.cli.main"])
def test_ctrl_c_while_modules_are_imported_leaves_no_traceback(module: str) -> None:
    """Before the command line handles signals, the process ends by the signal, which a shell reports as 130."""
    program = (
        "import os, signal, sys\n"
        "class Interrupting:\n"
        "    def find_spec(self, name, path, target=None):\n"
        f"        if name == {module!r}: os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupting())\n"
        "from kseg_script import main\n"
    )
    running = started(program=("-c", program))
    assert running.communicate(timeout=300) == ("", "")
    assert running.returncode == -signal.SIGINT


def test_a_signal_while_python_makes_a_class_is_no_internal_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python wraps an exception in ``__set_name__`` in a RuntimeError."""

    def interrupted(*_: object) -> None:
        raise RuntimeError("Error calling __set_name__") from interrupts.Interrupted(signal.SIGHUP)

    monkeypatch.setattr("kseg.cli.common.check_outputs", interrupted)
    done = invoke("stats", PLAIN)
    assert (done.exit_code, done.stderr) == (129, "kseg: ended by SIGHUP\n")


def test_a_signal_that_compiled_code_hides_is_no_internal_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """An import in a compiled module puts an ImportError in the place of the exception of a signal."""

    def hidden(*_: object) -> None:
        with suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        raise ImportError("cannot import name Definition")

    monkeypatch.setattr("kseg.cli.common.check_outputs", hidden)
    done = invoke("stats", PLAIN)
    assert (done.exit_code, done.stderr) == (130, "kseg: interrupted\n")


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("error", [UsageError("exists"), interrupts.Interrupted(signal.SIGTERM)], ids=["full", "ended"])
def test_the_message_says_which_partitions_are_complete(tmp_path: Path, error: BaseException, named: bool) -> None:
    """Partitions that have their names stay, also that of a signal right after it: the message must not say else."""
    source, target = tmp_path / "data", tmp_path / "out"
    for name in ("a-0", "b-0", "c-0"):
        (source / name).mkdir(parents=True)
        (source / name / FIRST).write_bytes(b"")

    def work(_: PartitionFolder, folder: Path) -> None:
        if folder.name == "b-0" and not named:
            raise error
        folder.mkdir()
        if folder.name == "b-0":
            raise error

    with pytest.raises(type(error), match=f"; {target} has {1 + named} of 3 partitions, complete$"):
        each_partition(PartitionFolder(source), target, work)
    assert sorted(path.name for path in target.iterdir()) == ["a-0", "b-0"][: 1 + named]
