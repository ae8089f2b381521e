"""Peak memory of Spark's Python workers, and processor time of all its processes, from the kernel."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

_PARENT = re.compile(r"^PPid:\s+(\d+)$", re.MULTILINE)
_PEAK = re.compile(r"^VmHWM:\s+(\d+) kB$", re.MULTILINE)
# proc(5), stat: utime, stime and those of ended children, counted after the name in parentheses.
_TIMES = slice(11, 15)
# proc(5), clear_refs: reset the peak to the current memory.
_FORGET = "5"


def forget(spark: Any) -> None:
    """Reset the peaks of the workers."""
    for status in _workers(spark):
        with suppress(OSError):
            status.with_name("clear_refs").write_text(_FORGET)


def peak(spark: Any) -> int:
    """Return the largest peak of a live worker in bytes; 0 without workers."""
    sizes = [0]
    for status in _workers(spark):
        with suppress(OSError):
            if found := _PEAK.search(status.read_text()):
                sizes.append(int(found[1]) * 1024)
    return max(sizes)


def cpu(spark: Any) -> float:
    """Return the processor time of Java and its workers so far, in seconds."""
    ticks = 0
    java = Path("/proc", str(spark.sparkContext._gateway.proc.pid), "status")
    for status in (java, *_workers(spark)):
        with suppress(OSError):
            fields = status.with_name("stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[_TIMES]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _workers(spark: Any) -> Iterator[Path]:
    """Return the /proc folders of the processes that the session's Java has started, directly or indirectly."""
    children: dict[int, list[int]] = {}
    for status in Path("/proc").glob("[0-9]*/status"):
        with suppress(OSError):
            if found := _PARENT.search(status.read_text()):
                children.setdefault(int(found[1]), []).append(int(status.parent.name))
    waiting = children.get(spark.sparkContext._gateway.proc.pid, [])
    while waiting:
        process = waiting.pop()
        yield Path("/proc", str(process), "status")
        waiting += children.get(process, [])
