"""Run whole processes and read their wall time, processor time and peak memory from the kernel."""

from __future__ import annotations

import json
import os
import platform
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

#: A process that runs longer, in seconds, has failed.
TIME_LIMIT = 600.0
_LAUNCHER = Path(__file__).parent / "programs" / "launch.py"

# A container's PYTHONUNBUFFERED slows printing, and its PYTHONDONTWRITEBYTECODE compiles every module at every start
# (0.07 s). Neither is part of a contender's speed.
_ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
if "PYTHONPATH" in os.environ:
    _ENVIRONMENT["PYTHONPATH"] = os.environ["PYTHONPATH"]


class BenchError(Exception):
    """A process failed, or its counts differ from the corpus. The first line of ``str(e)`` says why; more can follow."""


@dataclass(frozen=True, slots=True)
class Command:
    """A contender: the command line, and the name in the table.

    With ``own_clock`` the process prints ``seconds``, which count instead of the wall time: the comparison is about the
    loop, not the start. ``output`` False sends a large stdout to /dev/null. ``codes`` are the exit codes of success.
    """

    name: str
    argv: tuple[str, ...]
    env: dict[str, str] = field(default_factory=dict)
    own_clock: bool = False
    output: bool = True
    codes: tuple[int, ...] = (0,)


@dataclass(frozen=True, slots=True)
class Run:
    """One run. ``wall`` and ``cpu`` are seconds (``cpu`` of the process and its children), ``peak`` is in bytes.

    ``peak`` is the resident size of the largest process of the command, not a sum over its children.
    """

    wall: float
    cpu: float
    peak: int
    output: str

    def counted(self) -> dict[str, float]:
        """Return the JSON object that a program of ``bench.programs`` printed last; empty for other commands."""
        lines = self.output.splitlines()
        if not lines or not lines[-1].startswith("{"):
            return {}
        found: dict[str, float] = json.loads(lines[-1])
        return found


def launcher(result: str | Path) -> tuple[str, ...]:
    """Return what to put before a command line, so that the exit code, times and peak memory are written into a file.

    The peak is that of the command, however much memory this process uses.
    """
    return sys.executable, "-I", "-S", str(_LAUNCHER), str(result)


def run(command: Command) -> Run:
    """Run the command. Raises BenchError if its exit code is not one of ``codes``, or after TIME_LIMIT."""
    with tempfile.NamedTemporaryFile() as result, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(
            (*launcher(result.name), *command.argv),
            env={**_ENVIRONMENT, **command.env},
            stdin=subprocess.DEVNULL,
            stdout=out if command.output else subprocess.DEVNULL,
            stderr=err,
            start_new_session=True,
        )
        try:
            process.wait(TIME_LIMIT)
        except subprocess.TimeoutExpired:
            raise BenchError(f"{command.name} takes more than {TIME_LIMIT:.0f} s") from None
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        out.seek(0)
        err.seek(0)
        errors = err.read().decode(errors="replace").strip()
        if process.returncode:
            raise BenchError(f"{command.name} cannot be started: {errors[-2000:]}")
        done = json.load(result)
        if done["code"] not in command.codes:
            last = errors.rpartition("\n")[2]
            raise BenchError(
                f"{command.name} ended with {done['code']}: {last}\n{shlex.join(command.argv)}\n{errors[-2000:]}"
            )
        output = out.read().decode(errors="replace")
    once = Run(done["wall"], done["cpu"], done["peak"], output)
    return replace(once, wall=once.counted()["seconds"]) if command.own_clock else once


def alternate(
    commands: Sequence[Command], rounds: int, seconds: float, check: Callable[[Command, Run], None]
) -> tuple[dict[str, list[Run]], dict[str, str]]:
    """Run each command ``rounds`` times, in turns, every second round in reverse, so that slow phases affect all.

    After ``seconds`` no further round starts. ``check`` raises BenchError for a run that does not count. Returns the runs by
    name, and by name the errors of the commands that failed and are not among the runs.
    """
    begin = time.perf_counter()
    runs: dict[str, list[Run]] = {command.name: [] for command in commands}
    failed: dict[str, str] = {}
    for number in range(rounds):
        if number and time.perf_counter() - begin > seconds:
            break
        for command in commands if number % 2 == 0 else reversed(commands):
            if command.name in failed:
                continue
            try:
                done = run(command)
                check(command, done)
                runs[command.name].append(done)
            except BenchError as error:
                failed[command.name] = str(error)
                del runs[command.name]
    return runs, failed


def machine() -> str:
    """Return processor, cores, memory, system and Python as one line."""
    model = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    model = next((text.partition(":")[2].strip() for text in lines if text.startswith("model name")), model)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    system = f"{platform.system()} {platform.release().partition('-')[0]}"
    return f"{model}, {os.cpu_count()} cores, {memory:.0f} GiB, {system}, Python {platform.python_version()}"
