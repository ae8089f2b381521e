"""The output of a range of a segment, or of a small segment, in memory that worker processes share with their parent."""

from __future__ import annotations

import io
import mmap
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, cast

from kseg.commands.dump.request import DumpRequest
from kseg.commands.dump.rows import FileStart, Item, checks_of, row_count
from kseg.errors import KsegError, UsageError
from kseg.findings import Finding, is_noted
from kseg.format.checks.check_state import CheckState
from kseg.format.checks.run_checks import policy_for
from kseg.format.segment.buffers import borrowed
from kseg.format.segment.reader import SegmentReader
from kseg.format.storage.source import SegmentFile, open_split
from kseg.results import MAX_PER_RULE, Settings

#: Write items to a stream of text with a binary ``buffer``.
Write = Callable[[Iterable[Item], Any], None]

#: The memory for the output of all ranges, and the least and the most for one range.
ALL_OUTPUT = 256 * 1024 * 1024
MIN_OUTPUT, MAX_OUTPUT = 4 * 1024 * 1024, 16 * 1024 * 1024
#: ``kseg dump`` lacks options for findings.
SETTINGS = Settings()


@dataclass(frozen=True, slots=True)
class Range:
    """Bytes ``start`` to ``end`` of a file, or a whole file with ``end`` None.

    ``first``: it is the first range of the file. ``alone``: one process dumps the file.
    """

    file: SegmentFile
    start: int = 0
    end: int | None = None
    first: bool = True
    alone: bool = False


@dataclass(frozen=True, slots=True)
class Output:
    """The output of a range. ``size`` is in bytes in the memory of its slot.

    It is -1 if one process must dump the rest of the file.
    """

    size: int
    rows: int = 0
    shown: bool = False
    findings: Sequence[Finding] = ()
    error: KsegError | None = None
    history: CheckState | None = None


class _SlotFullError(Exception):
    """The output of a range does not fit into its memory."""


class _NotJoinedError(Exception):
    """A range has a finding that is reported: its place among other findings is known when one process reads the file."""


class _Slot(io.BufferedIOBase):
    """A binary output into a piece of memory."""

    def __init__(self, memory: memoryview) -> None:
        self._memory = memory
        self.used = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        size = len(data)
        if size > len(self._memory) - self.used:
            raise _SlotFullError
        self._memory[self.used : self.used + size] = data
        self.used += size
        return size


@dataclass(slots=True)
class _Counted:
    """Counts the rows of items that pass. They end with an error of reading."""

    items: Iterable[Item]
    rows: int = 0
    shown: bool = False
    error: KsegError | None = None

    def __iter__(self) -> Iterator[Item]:
        try:
            for item in self.items:
                self.rows += row_count(item)
                self.shown |= not isinstance(item, FileStart)
                yield item
        except UsageError:
            raise
        except KsegError as error:
            self.error = error


@dataclass(slots=True)
class _Notes:
    """Collects the findings that are reported, as many as are printed per rule and one more."""

    file: SegmentFile
    findings: list[Finding] = field(default_factory=list)

    def __call__(self, finding: Finding) -> None:
        known = sum(known.rule == finding.rule for known in self.findings)
        if known <= MAX_PER_RULE and is_noted(finding, policy_for(self.file, SETTINGS)):
            self.findings.append(finding)


# What forked workers have from this process: what to dump, how to write it, and where to.
_shared: tuple[DumpRequest, Write, list[memoryview]] | None = None


@contextmanager
def shared_output(request: DumpRequest, write: Write, count: int) -> Iterator[list[memoryview]]:
    """Share memory for the output of ``count`` ranges with workers that start in this block."""
    global _shared
    size = min(MAX_OUTPUT, max(MIN_OUTPUT, ALL_OUTPUT // count))
    memory = memoryview(mmap.mmap(-1, count * size))  # a page takes memory once it is used
    slots = [memory[n * size : (n + 1) * size] for n in range(count)]
    before, _shared = _shared, (request, write, slots)
    try:
        yield slots
    finally:
        _shared = before


def format_range(part: Range, slot: int) -> Output:
    """Write the lines of a range into a slot. Raises UsageError, as for a missing library."""
    assert _shared
    request, write, slots = _shared
    lines = _Slot(slots[slot])
    out: Any = io.TextIOWrapper(cast(Any, lines), "utf-8", errors="backslashreplace", newline="", write_through=True)
    try:
        if part.end is None:
            notes = _Notes(part.file)
            found = _Counted(request.items(part.file, notes))
            write(found, out)
            return Output(lines.used, found.rows, found.shown, notes.findings, found.error)
        return _of_range(part, part.end, request, lambda items: write(items, out), lines)
    except UsageError:
        raise
    except (_SlotFullError, _NotJoinedError, KsegError):
        return Output(-1)  # the process that dumps the rest of the file reports the error
    finally:
        out.detach()


def _of_range(
    part: Range, end: int, request: DumpRequest, write: Callable[[Iterable[Item]], None], lines: _Slot
) -> Output:
    path, policy = part.file.path, policy_for(part.file, SETTINGS)

    def report(finding: Finding) -> None:
        if is_noted(finding, policy):
            raise _NotJoinedError

    with (
        borrowed() as buffers,
        SegmentReader(
            open_split(path, part.start, end), report=report, verify_crc=request.verify_crc, buffers=buffers
        ) as reader,
    ):
        checks = checks_of(path, reader, report, deep=True)
        items = request.items_of_reader(reader, report, checks, buffers)
        found = _Counted(chain((FileStart(path, reader.name_offset),), items) if part.first else items)
        write(found)
        whole = not reader.damaged and reader.position == end and not found.error
        return Output(lines.used if whole else -1, found.rows, found.shown, history=checks.history)
