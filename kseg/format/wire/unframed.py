"""Messages one after another with nothing that marks where the next begins, read on after damage.

After a length that is wrong the next message is where a CRC proves it. Each layout of such messages says how one is read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from kseg.findings import Finding, Report
from kseg.format.record.wide_message import Fault, NeedMoreBytes
from kseg.format.segment.input_buffer import MAX_UNKNOWN_STREAM, InputBuffer

#: Bytes of the buffer that messages are read from.
ROOM = 1024 * 1024
#: The next message behind a broken one is looked for in so many bytes at a time, with so many bytes of CRCs at most.
SEARCH_REACH = 1024 * 1024
_SEARCH_EFFORT = 16 * 1024 * 1024
_OVERLAP = 64 * 1024
# They would be empty messages whose CRC holds: so many in a row are preallocated, or never written.
_ZEROS = bytes(512)


class _Bounds(Protocol):
    @property
    def end(self) -> int: ...


M = TypeVar("M", bound=_Bounds)


@dataclass(frozen=True, slots=True)
class Layout(Generic[M]):
    """A layout of messages: the smallest one's bytes, how one is read, whether one is proved at a byte of a buffer.

    ``candidate`` matches, without taking any byte, wherever a message may begin.
    """

    overhead: int
    read: Callable[[bytes | bytearray, int, int], M | NeedMoreBytes | Fault]
    is_proved: Callable[[bytes | bytearray, int, int], bool]
    candidate: re.Pattern[bytes]


def walk(buffer: InputBuffer, layout: Layout[M], report: Report) -> Iterator[M]:
    """Yield each message in order with the tape at its first byte, also those whose CRC is wrong; report what is none."""
    while buffer.fill(layout.overhead) or buffer.available:
        if buffer.fill(len(_ZEROS)) and buffer.data.startswith(_ZEROS, buffer.start):
            _skip_zeros(buffer, layout, report)
            continue
        found = _next(buffer, layout)
        if isinstance(found, (NeedMoreBytes, Fault)):
            _skip_bytes(buffer, layout, found, report)
        else:
            yield found
            buffer.start = found.end


def _next(buffer: InputBuffer, layout: Layout[M]) -> M | NeedMoreBytes | Fault:
    """What stands at the tape's start, with as much at hand as that takes; Wanted is what the file doesn't have."""
    while True:
        found = layout.read(buffer.data, buffer.start, buffer.end)
        if not isinstance(found, NeedMoreBytes) or buffer.ends_before(found.bytes) or not buffer.fill(found.bytes):
            return found


def _skip_bytes(buffer: InputBuffer, layout: Layout[M], broken: NeedMoreBytes | Fault, report: Report) -> None:
    """Report what can't be read, and go on where the next message is proved, or nowhere."""
    began = buffer.position
    found = _seek(buffer, layout)
    lost = buffer.position - began
    place, facts = (began, began + lost), {"bytes": lost}
    if isinstance(broken, Fault):
        report(Finding("invalid-size", *place, facts={"size": broken.size, "why": broken.why, **facts}))
    elif found:
        report(Finding("lost-bytes", *place, facts={**facts, "why": "a message whose CRC holds is found behind them"}))
    elif not buffer.failed:
        why = f"{lost} bytes are left of the {broken.bytes} that it needs at least"
        report(Finding("truncated-tail", *place, facts={**facts, "why": why}))


def _skip_zeros(buffer: InputBuffer, layout: Layout[M], report: Report) -> None:
    began = buffer.position
    # As many are kept as a message's header has, which begins with zeros itself.
    while buffer.fill(layout.overhead + 1) and buffer.position - began < MAX_UNKNOWN_STREAM:
        rest = len(bytes(buffer.view[buffer.start : buffer.end]).lstrip(b"\0"))
        buffer.start = buffer.end - rest - layout.overhead
        if rest:
            _seek(buffer, layout)
            facts = {"bytes": buffer.position - began, "why": "zeros, and what follows them up to the next message"}
            report(Finding("lost-bytes", began, buffer.position, facts=facts))
            return
    buffer.discard_rest()
    end = buffer.position
    report(Finding("zero-tail", began, end, facts={"bytes": end - began, "note": buffer.describe_zeros(began, end)}))


def _seek(buffer: InputBuffer, layout: Layout[M]) -> bool:
    """Have the tape begin where the next message is proved, or at the file's end; whether one is."""
    while True:
        buffer.fill(SEARCH_REACH)
        behind = _next_proved(buffer, layout)
        if behind is not None:
            buffer.start = behind
            return True
        if buffer.available < SEARCH_REACH:
            buffer.discard_rest()
            return False
        buffer.start = buffer.end - _OVERLAP


def _next_proved(buffer: InputBuffer, layout: Layout[M]) -> int | None:
    """Where in the buffer the next message that is proved begins."""
    data, end, effort = buffer.data, buffer.end, _SEARCH_EFFORT
    for match in layout.candidate.finditer(data, buffer.start + 1, end):
        at = match.start()
        effort -= layout.overhead
        found = layout.read(data, at, end)
        effort -= 0 if isinstance(found, (NeedMoreBytes, Fault)) else found.end - at
        if layout.is_proved(data, at, end):
            return at
        if effort <= 0:
            break
    return None
