"""The frames of one direction of a connection, each after its size, and what follows damaged ones.

    stream := (size int32, request)*  or  (size int32, response)*

One frame is held at a time. After damage, reading continues at the next request (``request_search``). Nothing in a
response says that it is one: after damage, responses are not found again.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from kseg.extras.wire.apis import REQUEST_HEAD, Message
from kseg.extras.wire.request_search import MAX_FRAME, SIZE, RequestSearch
from kseg.findings import Finding, Report
from kseg.format.segment.input_buffer import InputBuffer
from kseg.format.storage.source import Source
from kseg.text import count_of

_ROOM = 256 * 1024


class Frame(NamedTuple):
    """A frame at byte ``position`` of the file. ``data`` are its bytes after the size, valid until the next frame is read.

    ``message`` is the content of a request, None for a response.
    """

    position: int
    data: memoryview
    message: Message | None


def read_frames(source: Source, report: Report, head: struct.Struct) -> Iterator[Frame]:
    """Yield the frames, which have at least ``head`` bytes."""
    buffer = InputBuffer(source, _ROOM, report)
    search = RequestSearch(buffer) if head is REQUEST_HEAD else None
    while buffer.fill(SIZE.size) or buffer.available:
        size = SIZE.unpack_from(buffer.data, buffer.start)[0] if buffer.available >= SIZE.size else None
        complete = size is not None and head.size <= size <= MAX_FRAME and _is_complete(buffer, SIZE.size + size)
        message = search.accepted(size) if search and complete and size else None
        if complete and size and (message or not search):
            begin = buffer.start + SIZE.size
            yield Frame(buffer.position, buffer.view[begin : begin + size], message)
            buffer.start += SIZE.size + size
            if search and search.shared:
                report(_frame_size(buffer.position, 0, size, _overlap(search.shared)))
                buffer.start -= search.shared
        elif not buffer.failed:
            report(_skip_bytes(source, buffer, search, head, size, complete))
        else:
            buffer.start = buffer.end


def _is_complete(buffer: InputBuffer, frame_size: int) -> bool:
    return not buffer.ends_before(frame_size) and buffer.fill(frame_size)


def _skip_bytes(
    source: Source,
    buffer: InputBuffer,
    search: RequestSearch | None,
    head: struct.Struct,
    size: int | None,
    complete: bool,
) -> Finding:
    """Continue at the next request, or at the end of the file, and return the finding for the bytes before."""
    began, buffered = buffer.position, buffer.available
    begins = search is None or search.may_begin(began)
    next_start = search.next_request() if search else None
    if next_start is None:
        buffer.discard_rest()
    else:
        buffer.skip_to(next_start)
    lost = buffer.position - began
    if size is None or (next_start is None and begins and not complete and head.size <= size <= MAX_FRAME):
        why = f"expected {f'at least {SIZE.size}' if size is None else SIZE.size + size} bytes, found {lost}"
        return Finding("frame-cut", began, began + lost, facts={"bytes": lost, "why": why})
    left = lost if next_start is None else buffered if source.size is None else source.size - began
    if size > MAX_FRAME:
        why = f"expected at most {MAX_FRAME}"
    elif size < head.size:
        why = f"expected at least {head.size}"
    elif not complete:
        why = f"only {count_of(left - SIZE.size, 'byte')} of the file are left"
    elif lost < SIZE.size + size:
        why = _overlap(SIZE.size + size - lost)
    else:
        why = "these bytes are not a request"
    return _frame_size(began, lost, size, why)


def _frame_size(position: int, lost: int, size: int, why: str) -> Finding:
    return Finding("frame-size", position, position + lost, facts={"size": size, "why": why, "bytes": lost})


def _overlap(count: int) -> str:
    return f"the next request begins {count_of(count, 'byte')} before the end of this frame"
