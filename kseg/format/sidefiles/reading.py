"""Reading files beside the log in constant memory: entries of one size, lines of text, and small files whole."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from typing import TypeVar

from kseg.findings import Finding, Report, Severity, Verdict
from kseg.format.segment.input_buffer import InputBuffer
from kseg.format.storage.source import Source, open_source

_Entry = TypeVar("_Entry")

_BLOCK = 1 << 16
#: The longest line that is looked at: a topic's name has at most 249 characters, the numbers behind it 32.
MAX_LINE = 1024
#: What a file of JSON or properties may have; real ones stay below a kilobyte, or have a line for each voter.
MAX_WHOLE = 1 << 20


def new_buffer(source: Source, report: Report) -> InputBuffer:
    """A tape for a file that is read in small blocks."""
    return InputBuffer(source, _BLOCK, report)


def blocks(buffer: InputBuffer, size: int) -> Iterator[tuple[int, memoryview]]:
    """(byte, bytes) of runs of whole entries of ``size``; what is left over at the end stays in the tape."""
    while buffer.fill(_BLOCK) or buffer.available >= size:
        stop = buffer.start + buffer.available - buffer.available % size
        yield buffer.position, buffer.view[buffer.start : stop]
        buffer.start = stop


def fixed_entries(
    source: Source, layout: struct.Struct, report: Report, *, preallocated: bool = False
) -> Iterator[tuple[int, tuple[int, ...]]]:
    """(byte, fields) of each entry; else as fixed_runs."""
    for begin, run in fixed_runs(source, layout.size, report, preallocated=preallocated):
        yield from zip(count(begin, layout.size), layout.iter_unpack(run), strict=False)


def fixed_runs(
    source: Source, size: int, report: Report, *, preallocated: bool = False
) -> Iterator[tuple[int, memoryview]]:
    """(byte, bytes) of runs of entries of ``size``; what is left over behind the last is reported as ``index-size``.

    A ``preallocated`` file may end in zeros, which are no entries. Zeros that others follow are.
    """
    buffer = new_buffer(source, report)
    zeros = 0
    for begin, block in blocks(buffer, size):
        # Only at a block's end need zeros be told from entries: what others follow is yielded in any case.
        used = -(-len(bytes(block).rstrip(b"\0")) // size) * size if preallocated else len(block)
        while used and zeros:
            run = min(zeros, _BLOCK // size * size)
            yield begin - zeros, memoryview(bytes(run))
            zeros -= run
        if used:
            yield begin, block[:used]
        zeros += len(block) - used
    if buffer.available and not buffer.failed:
        facts = {"bytes": buffer.available, "size": size}
        report(Finding("index-size", position=buffer.position, end=buffer.position + buffer.available, facts=facts))


def lines(source: Source, report: Report) -> Iterator[tuple[int, bytes]]:
    """(byte, line) of each line, without what ends it: \\n, or \\r\\n. One longer than MAX_LINE is cut, and the last."""
    buffer = new_buffer(source, report)
    while buffer.fill(MAX_LINE + 2) or buffer.available:
        end = buffer.data.find(b"\n", buffer.start, buffer.end)
        if end < 0 or end - buffer.start > MAX_LINE:
            if buffer.available > MAX_LINE:
                yield buffer.position, bytes(buffer.view[buffer.start : buffer.start + MAX_LINE])
                return
            end = buffer.end
        yield buffer.position, bytes(buffer.view[buffer.start : end]).removesuffix(b"\r")
        buffer.start = min(end + 1, buffer.end)


def read_small_file(source: Source, report: Report, limit: int = MAX_WHOLE) -> bytes | None:
    """All bytes of a small file; None where there are more than ``limit``."""
    buffer = new_buffer(source, report)
    buffer.fill(limit + 1)
    return None if buffer.available > limit else bytes(buffer.view[buffer.start : buffer.end])


#: From a source and a report to (byte, entry) of each entry.
Walk = Callable[[Source, Report], Iterable[tuple[int, _Entry]]]


def entries_of(path: str, walk: Walk[_Entry], passes: tuple[str, ...] = ()) -> list[_Entry]:
    """The entries of a file that a broker reads whole or not at all. Raises ValueError with why it would not.

    Findings of the rules ``passes`` don't hinder a broker. Raises UnreadableError.
    """
    return [entry for _, entry in positioned_entries_of(path, walk, passes)]


def positioned_entries_of(path: str, walk: Walk[_Entry], passes: tuple[str, ...] = ()) -> list[tuple[int, _Entry]]:
    """As entries_of, each with the byte where it begins."""
    found: list[Finding] = []
    with open_source(path, listed=True) as source:
        entries = list(walk(source, found.append))
    for finding in found:
        if finding.rule not in passes:
            raise ValueError(Verdict(path, Severity.ERROR, finding).message)
    return entries
