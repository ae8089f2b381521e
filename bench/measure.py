"""Run whole processes and read their wall time, processor time and peak memory from the kernel."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

#: A process that runs longer, in seconds, has failed.
TIME_LIMIT = 600.0


# A container's PYTHONUNBUFFERED slows printing, and its PYTHONDONTWRITEBYTECODE compiles every module at every start
# (0.07 s). Neither is part of a contender's speed.
_ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
if "PYTHONPATH" in os.environ:
    _ENVIRONMENT["PYTHONPATH"] = os.environ["PYTHONPATH"]


class BenchError(Exception):
    """A process failed, or its counts differ from the corpus. ``str(e)`` is one readable line."""


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


def run(command: Command) -> Run:
    """Run the command. Raises BenchError if its exit code is not one of ``codes``, or after TIME_LIMIT.

    A process inherits the peak of the process that started it (exec keeps ``signal->maxrss``). This process must
    therefore stay small: nothing in ``bench`` may hold a corpus in memory.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        begin = time.perf_counter()
        process = subprocess.Popen(
            command.argv,
            env={**_ENVIRONMENT, **command.env},
            stdin=subprocess.DEVNULL,
            stdout=out if command.output else subprocess.DEVNULL,
            stderr=err,
        )
        watchdog = threading.Timer(TIME_LIMIT, process.kill)
        watchdog.start()
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - begin
        watchdog.cancel()
        # wait4 has read the status, so Popen could not.
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode not in command.codes:
            err.seek(0)
            last = err.read()[-2000:].decode(errors="replace")
            raise BenchError(f"{command.name} ended with {process.returncode}: {' '.join(command.argv)}\n{last}")
        out.seek(0)
        done = Run(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, out.read().decode(errors="replace"))
    if not command.own_clock:
        return done
    return Run(done.counted()["seconds"], done.cpu, done.peak, done.output)


def alternate(commands: Sequence[Command], rounds: int, seconds: float) -> dict[str, list[Run]]:
    """Run each command ``rounds`` times, in turns, every second round in reverse, so that slow phases affect all.

    After ``seconds`` no further round starts.
    """
    begin = time.perf_counter()
    runs: dict[str, list[Run]] = {command.name: [] for command in commands}
    for number in range(rounds):
        if number and time.perf_counter() - begin > seconds:
            break
        for command in commands if number % 2 == 0 else reversed(commands):
            runs[command.name].append(run(command))
    return runs
