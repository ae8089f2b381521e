"""Run whole processes and take their time, processor time and peak memory from the kernel's own accounts."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

#: Seconds after which a process is taken for stuck.
TIME_LIMIT = 600.0


# PYTHONUNBUFFERED and PYTHONDONTWRITEBYTECODE of a container would be measured along: the first slows what prints, the
# second compiles every module at every start (0.07 s). Where a package is found is nobody's speed.
_ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
if "PYTHONPATH" in os.environ:
    _ENVIRONMENT["PYTHONPATH"] = os.environ["PYTHONPATH"]


class BenchError(Exception):
    """A process failed, or counted something else than its corpus holds. `str(e)` is for a person."""


@dataclass(frozen=True, slots=True)
class Command:
    """A contender: what is run, and under which name it stands in the table.

    With ``own_clock`` the process prints ``seconds``, and these count: what is compared is the loop, not the start.
    ``output`` False sends stdout to /dev/null, where it is large and of no interest.
    """

    name: str
    argv: tuple[str, ...]
    env: dict[str, str] = field(default_factory=dict)
    own_clock: bool = False
    output: bool = True


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
        """The JSON object that a program of ``bench.programs`` printed last; empty for all others."""
        lines = self.output.splitlines()
        if not lines or not lines[-1].startswith("{"):
            return {}
        found: dict[str, float] = json.loads(lines[-1])
        return found


def run(command: Command) -> Run:
    """Run it to its end. Raises BenchError when it does not exit with 0 or runs past TIME_LIMIT.

    The kernel hands a process's peak down from the one that started it (exec keeps ``signal->maxrss``), so what runs
    here must stay small: nothing in ``bench`` may hold a corpus in memory.
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
        # wait4 took the status: without this, Popen would look for a process that is gone.
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            err.seek(0)
            last = err.read()[-2000:].decode(errors="replace")
            raise BenchError(f"{command.name} ended with {process.returncode}: {' '.join(command.argv)}\n{last}")
        out.seek(0)
        done = Run(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, out.read().decode(errors="replace"))
    if not command.own_clock:
        return done
    return Run(done.counted()["seconds"], done.cpu, done.peak, done.output)


def alternate(commands: Sequence[Command], rounds: int, seconds: float) -> dict[str, list[Run]]:
    """``rounds`` runs of each, taking turns, every second round backwards, so that a slow minute hits all alike.

    No round but the first begins after ``seconds``.
    """
    begin = time.perf_counter()
    runs: dict[str, list[Run]] = {command.name: [] for command in commands}
    for number in range(rounds):
        if number and time.perf_counter() - begin > seconds:
            break
        for command in commands if number % 2 == 0 else reversed(commands):
            runs[command.name].append(run(command))
    return runs
