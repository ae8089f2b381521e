"""A running ``kseg dump --follow``."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from queue import Queue
from threading import Thread


@contextmanager
def following(*arguments: object) -> Iterator[tuple[subprocess.Popen[bytes], Queue[bytes]]]:
    """Run the command, and yield its lines as they arrive; it is stopped at the end in any case."""
    command = [sys.executable, "-m", "kseg", "dump", "--follow", *map(str, arguments)]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    lines: Queue[bytes] = Queue()
    assert running.stdout is not None
    reader = Thread(target=lambda out: deque(map(lines.put, out), maxlen=0), args=(running.stdout,))
    reader.start()
    try:
        yield running, lines
    finally:
        running.kill()
        running.communicate()
        reader.join()


def offsets(lines: Queue[bytes], count: int) -> list[int]:
    return [json.loads(lines.get(timeout=300))["offset"] for _ in range(count)]
