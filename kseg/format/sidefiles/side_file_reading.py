"""Read side files in constant memory: entries of one size, lines of text, and small files at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from kseg.errors import UnreadableError
from kseg.findings import READ_ERROR, Finding, Report, read_error, unreadable
from kseg.format.segment.input_buffer import InputBuffer
from kseg.format.storage.java_text import LINE_END_BYTES
from kseg.format.storage.source import Source, open_source

_Entry = TypeVar("_Entry")

_BLOCK = 1 << 16
#: The least zeros at the end of a block after which more are skipped without reading.
_SKIPPED = 4096
#: The longest line that is read: a topic's name has at most 249 characters, the numbers after it 32.
MAX_LINE = 1024
#: The largest size of a JSON or properties file. Real files have less than 1 KiB, or one line per voter.
MAX_WHOLE = 1 << 20


def new_buffer(source: Source, report: Report) -> InputBuffer:
    """Return a buffer that reads a file in small blocks."""
    return InputBuffer(source, _BLOCK, report)


def with_read_error(path: str, runs: Iterator[_Entry], report: Report) -> Iterator[_Entry]:
    """Yield the runs of a side file next to a segment. An error of its first read is reported, as later ones are.

    Otherwise it would end the reading of the segment.
    """
    try:
        yield from runs
    except UnreadableError as error:
        report(read_error(path, error))


def blocks(buffer: InputBuffer, size: int) -> Iterator[tuple[int, memoryview]]:
    """Yield (byte, bytes) of runs of complete entries of ``size`` bytes. An incomplete last one stays in the buffer."""
    while buffer.fill(_BLOCK) or buffer.available >= size:
        first, at = buffer.start, buffer.position
        buffer.start += buffer.available - buffer.available % size
        yield at, buffer.view[first : buffer.start]


def fixed_runs(
    source: Source, size: int, report: Report, *, preallocated: bool = False
) -> Iterator[tuple[int, memoryview]]:
    """Yield (byte, bytes) of runs of entries of ``size`` bytes. Report an incomplete last entry as ``index-size``.

    A ``preallocated`` file may end in zeros, which are not entries. Zeros before other entries are entries.
    """
    buffer = new_buffer(source, report)
    zeros = 0
    for begin, block in blocks(buffer, size):
        # Only zeros at the end of a block may be preallocated: zeros before other entries are yielded.
        used = -(-len(bytes(block).rstrip(b"\0")) // size) * size if preallocated else len(block)
        while used and zeros:
            run = min(zeros, _BLOCK // size * size)
            yield begin - zeros, memoryview(bytes(run))
            zeros -= run
        if used:
            yield begin, block[:used]
        zeros += len(block) - used
        if preallocated and len(block) - used >= _SKIPPED:
            zeros += buffer.skip_zeros(size)
    if buffer.available and not buffer.failed:
        facts = {"bytes": buffer.available, "size": size}
        report(Finding("index-size", position=buffer.position, end=buffer.position + buffer.available, facts=facts))


def lines(source: Source, report: Report) -> Iterator[tuple[int, bytes]]:
    """Yield (byte, line) of each line without its end. A line longer than MAX_LINE is cut, and reading ends."""
    buffer = new_buffer(source, report)
    while buffer.fill(MAX_LINE + 2) or buffer.available:
        found = LINE_END_BYTES.search(buffer.data, buffer.start, buffer.end)
        end, following = found.span() if found else (buffer.end, buffer.end)
        if end - buffer.start > MAX_LINE:
            yield buffer.position, bytes(buffer.view[buffer.start : buffer.start + MAX_LINE])
            return
        yield buffer.position, bytes(buffer.view[buffer.start : end])
        buffer.start = following


def read_small_file(source: Source, report: Report) -> bytes | None:
    """Return all bytes of a small file, None if it has more than MAX_WHOLE."""
    buffer = new_buffer(source, report)
    buffer.fill(MAX_WHOLE + 1)
    return None if buffer.available > MAX_WHOLE else bytes(buffer.view[buffer.start : buffer.end])


#: Yields (byte, entry) of each entry of a source, and reports findings.
Walk = Callable[[Source, Report], Iterable[tuple[int, _Entry]]]


def entries_of(path: str, walk: Walk[_Entry], passes: tuple[str, ...] = ()) -> list[_Entry]:
    """Return the entries of a file that a broker reads completely or rejects. Raises ValueError if a broker rejects it.

    Findings of the rules ``passes`` don't make a broker reject it. Raises UnreadableError.
    """
    return [entry for _, entry in positioned_entries_of(path, walk, passes)]


def positioned_entries_of(path: str, walk: Walk[_Entry], passes: tuple[str, ...] = ()) -> list[tuple[int, _Entry]]:
    """Return (byte, entry) of each entry, with the rules of entries_of."""
    found: list[Finding] = []
    with open_source(path, listed=True) as source:
        entries = list(walk(source, found.append))
    for finding in found:
        if finding.rule == READ_ERROR:
            raise unreadable(path, finding)
        if finding.rule not in passes:
            raise ValueError(finding.message)
    return entries
