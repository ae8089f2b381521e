"""Conversions and repairs that are killed, interrupted or out of disk space."""

from __future__ import annotations

import errno
import hashlib
import os
import random
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kseg.format.writer.records_builder import PlainRecord, build_message

PROGRAM = """
import sys
from kseg.cli.main import main
from kseg.cli.convert_command import convert
main.add_command(convert)
main(["convert", *sys.argv[1:]])
"""


def write_log(path: Path, megabytes: float, value_size: int = 4000, offset: int = 0) -> None:
    random_bytes = random.Random(1).randbytes(value_size)
    with path.open("wb") as out:
        while out.tell() < megabytes * 1024 * 1024:
            out.write(build_message(PlainRecord(offset, b"%d" % offset, random_bytes), magic=0))
            offset += 1


def digest(path: Path) -> bytes:
    return hashlib.sha256(path.read_bytes()).digest()


class EndedRuns:
    """Runs of a command that a signal ends at random moments.

    The moments lie within the quickest whole run so far: if the machine pauses, a run is not ended, and the next one is.
    """

    def __init__(self, command: Sequence[str | Path], ending: signal.Signals = signal.SIGKILL) -> None:
        self._command, self._ending = command, ending
        self._dice, self._seconds, self._left = random.Random(7), float("inf"), 100
        self.ended = 0

    def whole(self) -> int:
        """Run the command to its end, and return its exit code."""
        return self._run(None).returncode

    def again(self) -> subprocess.Popen[bytes]:
        """Run the command in a session of its own until a random moment, and return its process."""
        self._left -= 1
        assert self._left, "the runs end before the signal"
        return self._run(self._dice.uniform(self._seconds / 8, self._seconds))

    def _run(self, seconds: float | None) -> subprocess.Popen[bytes]:
        quiet, began = subprocess.DEVNULL, time.monotonic()
        process = subprocess.Popen(self._command, stdout=quiet, stderr=quiet, start_new_session=True)
        try:
            process.wait(seconds)
            self._seconds = min(self._seconds, time.monotonic() - began)
        except subprocess.TimeoutExpired:
            process.send_signal(self._ending)
            self.ended += process.wait() in (-self._ending, 128 + self._ending)
        return process


class FailingFile:
    """A local file whose reads fail from byte ``fails_at`` on."""

    def __init__(self, raw: Any, fails_at: int) -> None:
        self.raw = raw
        self.fails_at = fails_at

    def seek(self, position: int) -> int:
        found: int = self.raw.seek(position)
        return found

    def read(self, size: int) -> bytes:
        room = self.fails_at - self.raw.tell()
        if room <= 0:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        data: bytes = self.raw.read(min(size, room))
        return data

    def close(self) -> None:
        self.raw.close()


def failing_disk(fails_at: int, good_openings: int) -> None:
    """Serve local files as failing:// URLs, whose reads fail after a number of successful openings."""
    fsspec = pytest.importorskip("fsspec")
    left = good_openings

    class FailingDisk(fsspec.get_filesystem_class("file")):  # type: ignore[misc]
        protocol = "failing"
        cachable = False

        def _open(self, path: str, mode: str = "rb", block_size: int | None = None, **options: Any) -> Any:
            nonlocal left
            left -= 1
            raw = open(path, "rb", buffering=0)  # noqa: SIM115
            return raw if left >= 0 else FailingFile(raw, fails_at)

    fsspec.register_implementation("failing", FailingDisk, clobber=True)
