"""Commands that run on beside a cluster: the memory and the descriptors of their processes are watched."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

#: What a command may have more of at the end than after its first minutes: in both cases the least of a minute, because
#: Spark's idle workers end and begin.
MORE_BYTES, MORE_DESCRIPTORS = 40 << 20, 30
_WINDOW = 60
#: Seconds that a command may take for its first row: Spark starts slowly on a busy machine.
_PATIENCE = 120
#: The descriptors that Spark's JVM keeps of each ended query with a source in Python: 4, also with one that is not kseg's.
KEPT_DESCRIPTORS = 4
#: What a stream says when the cluster has deleted, replaced or truncated what it was to read next; it is started again.
EXPECTED_ENDS = ("before it was read", "before they were read", "it was truncated", "meanwhile", "No such file")
#: What Spark's daemon writes when it closes a socket before its worker has ended; no row is lost.
HARMLESS = b"BrokenPipeError: [Errno 32] Broken pipe"
#: How the reason begins if a command has more memory or descriptors than it may have.
GROWN = "has more memory or descriptors"


class Watched:
    """A running command. Every second after the start, its memory and open descriptors are noted, with its children's.

    `seconds` is when its first figures are taken, with which the last ones are compared.
    """

    def __init__(self, name: str, command: list[str], seconds: int = 60) -> None:
        self.name = name
        self._seconds = seconds
        self._running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self._stderr = b""
        self._used: list[tuple[int, int]] = []
        self._done = threading.Event()
        self._threads = [threading.Thread(target=each) for each in (self._read, self._read_stderr, self._watch)]
        for thread in self._threads:
            thread.start()

    def end(self) -> tuple[str, str | None]:
        """End the command; return its figures, and what went wrong, None for nothing."""
        until = time.monotonic() + _PATIENCE
        while not self.has_begun() and self._running.poll() is None and time.monotonic() < until:
            time.sleep(1)
        self._done.set()
        code = self._running.poll()
        tracebacks = self._stderr.count(b"Traceback")  # the end can cut one off before its last line
        self._running.terminate()  # a job in the background ignores SIGINT
        for thread in self._threads:
            thread.join()
        self._running.wait()
        begin = min(self._seconds, len(self._used) - 1)
        first, last = _least(self._used[begin : begin + _WINDOW]), _least(self._used[-_WINDOW:])
        figures = (
            f"{self.name} had {self.figures()}, {first[0] >> 20} and {last[0] >> 20} MB, {first[1]} and {last[1]}"
            f" descriptors after {self._seconds // 60} min and at the end"
        )
        wrong = self.wrong()
        if code is not None:
            wrong = f"ended with exit code {code}"
        elif tracebacks > self._stderr.count(HARMLESS):
            wrong = "a traceback"
        elif last[0] > first[0] + MORE_BYTES or last[1] > first[1] + MORE_DESCRIPTORS + self.kept_descriptors():
            wrong = GROWN
        return figures, wrong and f"{wrong}\n{self._stderr[-2000:].decode(errors='replace')}"

    def take(self, line: bytes) -> None:
        """Take a line of its output."""

    def figures(self) -> str:
        """What it has done, for the report."""
        return ""

    def wrong(self) -> str | None:
        """What is wrong with its output, None for nothing."""
        return None

    def has_begun(self) -> bool:
        """Whether it has had a row."""
        return True

    def kept_descriptors(self) -> int:
        """The number of descriptors that are not its own leak."""
        return 0

    def _read(self) -> None:
        assert self._running.stdout is not None
        with self._running.stdout as lines:
            for line in lines:
                self.take(line)

    def _read_stderr(self) -> None:
        assert self._running.stderr is not None
        with self._running.stderr as lines:
            for line in lines:
                self._stderr = (self._stderr + line)[-100_000:]

    def _watch(self) -> None:
        while not self._done.wait(1):
            used = [(_memory(pid), _descriptors(pid)) for pid in _processes(self._running.pid)]
            self._used.append((sum(memory for memory, _ in used), sum(count for _, count in used)))


class Follower(Watched):
    """A `dump --follow` over log directories."""

    def __init__(self, log_dirs: list[Path]) -> None:
        self._rows = 0
        command = [sys.executable, "-m", "kseg", "dump", "--follow", "--format", "jsonl", *map(str, log_dirs)]
        super().__init__("dump --follow", command)

    def take(self, line: bytes) -> None:
        self._rows += 1

    def figures(self) -> str:
        return f"{self._rows:,} rows"

    def wrong(self) -> str | None:
        return None if self._rows else "no row"


class Stream(Watched):
    """A Spark stream over log directories (`tools.lab.soak_stream`), started again as often as it ends by a loss."""

    def __init__(self, checkpoint: Path, pattern: str) -> None:
        self._counts: Counter[str] = Counter()
        self._damage: list[str] = []
        self._others: list[str] = []
        command = [sys.executable, "-m", "tools.lab.soak_stream", str(checkpoint), pattern]
        super().__init__("a Spark stream", command, 300)

    def take(self, line: bytes) -> None:
        row = json.loads(line)
        error = row.pop("error", None)
        self._damage += row.pop("damage", [])
        self._counts.update(row)
        if error is not None and any(text in error for text in EXPECTED_ENDS):
            self._counts["ends"] += 1
        elif error is not None:
            self._others.append(error[-1500:])

    def figures(self) -> str:
        counts = self._counts
        return (
            f"{counts['rows']:,} rows in {counts['batches']:,} batches, {len(self._damage)} of damage,"
            f" {counts['ends']} new starts after deleted records"
        )

    def has_begun(self) -> bool:
        return self._counts["rows"] > 0

    def kept_descriptors(self) -> int:
        return KEPT_DESCRIPTORS * self._counts["ends"]

    def wrong(self) -> str | None:
        if self._damage:
            return "\n".join(["rows of damage", *self._damage[:20]])
        return self._others[0] if self._others else None if self._counts["rows"] else "no row"


def _least(used: list[tuple[int, int]]) -> tuple[int, int]:
    """Return the least memory and the least number of descriptors of some moments."""
    return min(memory for memory, _ in used), min(count for _, count in used)


def _processes(pid: int) -> Iterator[int]:
    yield pid
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                yield from _processes(int(child))


def _memory(pid: int) -> int:
    """Memory in use in bytes: 0 for a process that has ended."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def _descriptors(pid: int) -> int:
    with contextlib.suppress(OSError):
        return len(list(Path(f"/proc/{pid}/fd").iterdir()))
    return 0
