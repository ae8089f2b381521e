"""A terminal emulator around a command."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pyte

from tools.docs.terminal import blocks_until_end


def shown_lines(screen: pyte.Screen) -> list[str]:
    """Return the lines on the screen without empty ones."""
    return [line.rstrip() for line in screen.display if line.strip()]


def run_in_terminal(
    *arguments: str | Path, columns: int = 80, rows: int = 200, cwd: Path | None = None
) -> Iterator[pyte.Screen]:
    """Run kseg with stdout and stderr on a terminal, and yield the screen after each write to it."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    screen = pyte.Screen(columns, rows)
    stream = pyte.ByteStream(screen)
    environment = {**os.environ, "TERM": "xterm-256color"}
    command = [sys.executable, "-m", "kseg", *map(str, arguments)]
    process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=environment, cwd=cwd)
    for block in blocks_until_end(master, slave, process.wait):
        stream.feed(block)
        yield screen
