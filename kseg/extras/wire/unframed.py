"""Read messages that follow each other without boundaries, also after damage.

After a wrong length, the next message is where a valid CRC proves one. A ``MessageLayout`` describes one kind of message.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from kseg.findings import Finding, Report
from kseg.format.record.wide_message import Fault, NeedMoreBytes
from kseg.format.segment.input_buffer import MAX_UNKNOWN_STREAM, InputBuffer
from kseg.text import count_of

#: The size of the read buffer in bytes.
ROOM = 1024 * 1024
#: The bytes in which the next message is searched at a time, and the most bytes of CRCs to compute.
SEARCH_REACH = 1024 * 1024
_SEARCH_EFFORT = 16 * 1024 * 1024
_OVERLAP = 64 * 1024
# Zeros would be empty messages with a valid CRC. This many zeros are preallocated or were never written.
_ZEROS = bytes(512)


class _Bounds(Protocol):
    @property
    def end(self) -> int: ...


M = TypeVar("M", bound=_Bounds)


@dataclass(frozen=True, slots=True)
class MessageLayout(Generic[M]):
    """A layout of messages: the smallest size in bytes, and functions that read a message and that prove one by its CRC.

    ``candidate`` matches, without consuming bytes, wherever a message may begin.
    """

    overhead: int
    read: Callable[[bytes | bytearray, int, int], M | NeedMoreBytes | Fault]
    is_proved: Callable[[bytes | bytearray, int, int], bool]
    candidate: re.Pattern[bytes]


def walk(buffer: InputBuffer, layout: MessageLayout[M], report: Report) -> Iterator[M]:
    """Yield each message in order, also those with a wrong CRC; the buffer then begins with the message.

    Reports the bytes that are not messages.
    """
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


def _next(buffer: InputBuffer, layout: MessageLayout[M]) -> M | NeedMoreBytes | Fault:
    """Return the message at the start of the buffer, after reading as many bytes as it needs.

    Returns NeedMoreBytes if the file ends within it.
    """
    while True:
        found = layout.read(buffer.data, buffer.start, buffer.end)
        if not isinstance(found, NeedMoreBytes) or buffer.ends_before(found.bytes) or not buffer.fill(found.bytes):
            return found


def _skip_bytes(buffer: InputBuffer, layout: MessageLayout[M], fault: NeedMoreBytes | Fault, report: Report) -> None:
    """Report bytes that cannot be read, and continue at the next proved message, if there is one."""
    began = buffer.position
    found = _seek(buffer, layout)
    lost = buffer.position - began
    place, facts = (began, began + lost), {"bytes": lost}
    if isinstance(fault, Fault):
        report(Finding("invalid-size", *place, facts={"size": fault.size, "why": fault.why, **facts}))
    elif found:
        report(Finding("lost-bytes", *place, facts={**facts, "why": "a message with a correct CRC follows them"}))
    elif not buffer.failed:
        why = f"expected at least {count_of(fault.bytes, 'byte')}, found {lost:,}"
        report(Finding("truncated-tail", *place, facts={**facts, "why": why}))


def _skip_zeros(buffer: InputBuffer, layout: MessageLayout[M], report: Report) -> None:
    began = buffer.position
    # As many zeros are kept as a header begins with.
    while buffer.fill(layout.overhead + 1) and buffer.position - began < MAX_UNKNOWN_STREAM:
        rest = len(bytes(buffer.view[buffer.start : buffer.end]).lstrip(b"\0"))
        buffer.start = buffer.end - rest - layout.overhead
        if rest:
            _seek(buffer, layout)
            facts = {"bytes": buffer.position - began, "why": "zeros, and bytes after them up to the next message"}
            report(Finding("lost-bytes", began, buffer.position, facts=facts))
            return
    buffer.discard_rest()
    end = buffer.position
    report(Finding("zero-tail", began, end, facts={"bytes": end - began, "note": buffer.describe_zeros(began, end)}))


def _seek(buffer: InputBuffer, layout: MessageLayout[M]) -> bool:
    """Move the start of the buffer to the next proved message and return True, or to the file's end and return False."""
    while True:
        buffer.fill(SEARCH_REACH)
        next_start = _next_proved(buffer, layout)
        if next_start is not None:
            buffer.start = next_start
            return True
        if buffer.available < SEARCH_REACH:
            buffer.discard_rest()
            return False
        buffer.start = buffer.end - _OVERLAP


def _next_proved(buffer: InputBuffer, layout: MessageLayout[M]) -> int | None:
    """Return the position in the buffer where the next proved message begins."""
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
