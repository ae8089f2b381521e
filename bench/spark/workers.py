"""Spark's processes as the kernel accounts for them: what the Python workers hold at most, and processor time."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

_PARENT = re.compile(r"^PPid:\s+(\d+)$", re.MULTILINE)
_PEAK = re.compile(r"^VmHWM:\s+(\d+) kB$", re.MULTILINE)
# proc(5), stat: utime, stime and those of children that have ended, counted behind the name in brackets.
_TIMES = slice(11, 15)
# proc(5), clear_refs: the peak is counted anew from what is held now.
_FORGET = "5"


def forget(spark: Any) -> None:
    """Count peaks from here on."""
    for status in _workers(spark):
        with suppress(OSError):
            status.with_name("clear_refs").write_text(_FORGET)


def peak(spark: Any) -> int:
    """Bytes of the largest worker at its largest, of those that live; 0 where there is none."""
    sizes = [0]
    for status in _workers(spark):
        with suppress(OSError):
            if found := _PEAK.search(status.read_text()):
                sizes.append(int(found[1]) * 1024)
    return max(sizes)


def cpu(spark: Any) -> float:
    """Seconds of processor time so far, of Java and its workers."""
    ticks = 0
    java = Path("/proc", str(spark.sparkContext._gateway.proc.pid), "status")
    for status in (java, *_workers(spark)):
        with suppress(OSError):
            fields = status.with_name("stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[_TIMES]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _workers(spark: Any) -> Iterator[Path]:
    """Status files of what the session's Java has started, and what that has."""
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
