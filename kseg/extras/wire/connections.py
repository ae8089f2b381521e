"""One direction of a connection between a client and a broker: the rows of its frames, and the record sets in them.

    stream := (size int32, request)*  or  (size int32, response)*

One frame is held at a time. After damage, reading continues at the next request (``request_search``). Nothing in a response
says that it is one: after damage, responses are not found again. The request with the same correlation id gives its API.
"""

from __future__ import annotations

import base64
import struct
from collections import deque
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from typing import NamedTuple

from kseg.extras.wire import produce_verdict
from kseg.extras.wire.apis import (
    REQUEST_HEAD,
    RESPONSE_HEAD,
    Api,
    Message,
    displayed_value,
    read_response,
    record_sets,
    topic_names,
)
from kseg.extras.wire.request_search import MAX_FRAME, SIZE, RequestSearch
from kseg.extras.wire.set_validation import TopicSettings
from kseg.findings import Finding, Report, do_nothing
from kseg.format.segment.framed_files import BytesSource, Framing, ReadSettings, RecordSet, WirePart
from kseg.format.segment.input_buffer import InputBuffer
from kseg.format.storage.source import Source, open_source
from kseg.schema import BATCH_COLUMNS, RECORD_COLUMNS, Column
from kseg.text import count_of

#: The most bytes that are shown of a body that cannot be decoded; ``size`` is their number.
RAW_SHOWN = 1024 * 1024
_PRODUCE = 0
# A broker reads only a few requests of a connection at a time. A capture may contain several connections.
_AHEAD = 10_000
_ROOM = 256 * 1024
# The most topics whose names are kept. Few clusters have more.
_NAMES = 100_000

#: The columns of requests and responses, and of the records in them.
FRAME_COLUMNS = (
    Column("kind", "text", "request, response, batch or record", values=("request", "response")),
    Column("file", "text", "the path as it was given"),
    Column("position", "count", "first byte of the frame or the batch"),
    Column("size", "count", "size in bytes; of a frame, without the 4 bytes of the size field"),
    Column("api_key", "int?", "number of the API; null for a response without its request"),
    Column("api_name", "text?", "name of the API"),
    Column("api_version", "int?", "version of the API"),
    Column("correlation_id", "int", "the same for a request, its response and their records"),
    Column("client_id", "[text?]", "client id; of a request only"),
    Column("body", "json", "the decoded body; if it cannot be decoded, at most 1 MiB as base64"),
    Column("body_encoding", "[text]", "base64, or null", values=("base64",)),
    Column("frame", "[count]", "first byte of the frame that contains the records"),
    Column(
        "topic",
        "[text?]",
        "topic of the records; if only an id is known, the name from an earlier Metadata response, or null",
    ),
    Column("topic_id", "[text?]", "topic id of the records, in versions that have one"),
    Column("partition", "[int?]", "partition of the records"),
)


def _columns(others: tuple[Column, ...]) -> tuple[Column, ...]:
    known = {column.name for column in FRAME_COLUMNS}
    return (*FRAME_COLUMNS, *(column for column in others if column.name not in known))


class Frame(NamedTuple):
    """A frame at byte ``position`` of the file. ``data`` are its bytes after the size, valid until the next frame is read.

    ``message`` is its content, None for a response that is not read yet.
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


def _requests(source: Source, report: Report, reading: ReadSettings) -> Iterator[WirePart]:
    topic = TopicSettings.of(reading.topic) if reading.topic else None
    for frame in read_frames(source, report, REQUEST_HEAD):
        yield from _parts(source.name, "request", frame, report, {})
        if topic and (message := frame.message) and message.api and message.api.key == _PRODUCE and message.body:
            yield from produce_verdict.verdict_rows(source.name, frame.position, frame.data, message, topic)


def _responses(source: Source, report: Report, reading: ReadSettings) -> Iterator[WirePart]:
    names: dict[str, str] = {}
    unread = 0
    with closing(_SentRequests(reading.requests)) as requested:
        for frame in read_frames(source, report, RESPONSE_HEAD):
            (correlation_id,) = RESPONSE_HEAD.unpack_from(frame.data)
            api = requested.find(correlation_id)
            if reading.requests is None:
                unread += 1
            elif api is None:
                end = frame.position + SIZE.size + len(frame.data)
                report(Finding("unmatched-response", frame.position, end, facts={"correlation_id": correlation_id}))
            message = read_response(frame.data, api)
            if len(names) < _NAMES:
                names.update(topic_names(message))
            yield from _parts(source.name, "response", frame._replace(message=message), report, names)
    if unread:
        why = "responses do not name their requests: give the requests too (--as requests --as responses)"
        report(Finding("unread-bodies", facts={"frames": unread, "why": why}))


def _parts(file: str, kind: str, frame: Frame, report: Report, names: Mapping[str, str]) -> Iterator[WirePart]:
    """Yield the row of a frame, and the record sets in it.

    ``names`` are the topic names by topic id, as far as earlier frames contain them.
    """
    position, data, message = frame
    assert message
    begin, end = position + SIZE.size, position + SIZE.size + len(data)
    if message.fault:
        rule, facts = message.fault
        report(Finding(rule, position, end, facts=facts))
    body = message.body
    raw = base64.b64encode(data[message.body_at :][:RAW_SHOWN]).decode() if body is None else None
    api = message.api
    yield {
        "kind": kind,
        "file": file,
        "position": position,
        "size": len(data),
        "api_key": api.key if api else None,
        "api_name": api.name if api else None,
        "api_version": api.version if api else None,
        "correlation_id": message.correlation_id,
        **({"client_id": message.client_id} if kind == "request" else {}),
        "body": displayed_value(body) if raw is None else raw,
        **({} if raw is None else {"body_encoding": "base64"}),
    }
    for place, records in record_sets(body):
        where = {"topic": names.get(place.get("topic_id", "")), "topic_id": None, "partition": None, **place}
        name = f"{file}: {where['topic'] or where['topic_id']}-{where['partition']}"
        first = begin + records.at
        source = Source(name, BytesSource(data, begin), first + records.size, first)
        yield RecordSet(
            source, {"frame": position, "correlation_id": message.correlation_id, **where}, sent=kind == "request"
        )


class _SentRequests:
    """The requests of a stream of responses, read as far as the responses need them.

    Without a file of requests, it knows none.
    """

    def __init__(self, path: str | None) -> None:
        self._read = _heads(path)
        # The controller of 0.8 uses one id for several requests. Their responses come in the order of the requests.
        self._waiting: dict[int, deque[tuple[int, Api]]] = {}
        self._count = 0
        self._answered = 0

    def find(self, correlation_id: int) -> Api | None:
        """Return the API of the request with that id, or None if it is unknown. Raises UnreadableError."""
        waiting = self._waiting
        while correlation_id not in waiting and self._count < self._answered + _AHEAD:
            found = next(self._read, None)
            if found is None:
                break
            self._count += 1
            waiting.setdefault(found[0], deque()).append((self._count, found[1]))
        if correlation_id not in waiting:
            return None
        number, api = self._pop(correlation_id)
        self._answered = max(self._answered, number)
        # Some requests lack a response, such as a Produce with acks=0.
        while waiting and waiting[oldest := next(iter(waiting))][0][0] < self._answered - _AHEAD:
            self._pop(oldest)
        return api

    def _pop(self, correlation_id: int) -> tuple[int, Api]:
        """Remove and return the first request with that id. It must exist."""
        requested = self._waiting[correlation_id]
        found = requested.popleft()
        if not requested:
            del self._waiting[correlation_id]
        return found

    def close(self) -> None:
        self._read.close()


def _heads(path: str | None) -> Generator[tuple[int, Api], None, None]:
    if path is None:
        return
    with open_source(path) as source:
        for _, data, _ in read_frames(source, do_nothing, REQUEST_HEAD):
            key, version, correlation_id = REQUEST_HEAD.unpack_from(data)
            yield correlation_id, Api(key, version)


#: Requests of a client, and the responses to them.
_FIELDS = "kseg.extras.wire.frame_fields"
REQUESTS = Framing(_requests, _columns(RECORD_COLUMNS), _columns(BATCH_COLUMNS), f"{_FIELDS}:request_parts", SIZE.size)
RESPONSES = Framing(_responses, REQUESTS.columns, REQUESTS.shallow_columns, f"{_FIELDS}:response_parts", SIZE.size)
