"""One direction of a connection between a client and a broker: frames, each with its size before it.

    stream := (size int32, request)*  or  (size int32, response)*

One frame is held at a time. What a response answers is told by the request of the same correlation id.
"""

from __future__ import annotations

import base64
import struct
from collections import deque
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing

from kseg.files.storage import Source, open_source
from kseg.findings import Finding, Report, ignore
from kseg.frames.apis import (
    REQUEST_HEAD,
    RESPONSE_HEAD,
    Api,
    Message,
    read_request,
    read_response,
    record_sets,
    shown,
    topic_names,
)
from kseg.frames.parts import BytesAsFile, Framing, Part, Reading, RecordSet
from kseg.log.rows import BATCH_COLUMNS, RECORD_COLUMNS, Column, Row
from kseg.log.tape import Tape

#: Larger frames are taken for a size that lies; socket.request.max.bytes is 100 MiB by default.
MAX_FRAME = 256 * 1024 * 1024
#: Of a body that can't be decoded, the bytes that are shown; ``size`` tells how many there are.
RAW_SHOWN = 1024 * 1024
_SIZE = struct.Struct(">i")
_ROOM = 256 * 1024
#: How far the next frame is looked for behind one that can't be.
SEARCH_REACH = 1024 * 1024
# No broker takes more requests of a connection than some; a capture may hold several connections.
_AHEAD = 10_000
# Topics whose names are kept: no cluster has many more.
_NAMES = 100_000

#: Of a request or a response, and of what is in it.
FRAME_COLUMNS = (
    Column("kind", "text", "request, response, batch or record"),
    Column("file", "text", "the path as it was given"),
    Column("position", "int", "first byte of the frame, or of the entry"),
    Column("size", "int", "bytes, without the four that tell them; of an entry all"),
    Column("api_key", "int", "the API; null for a response whose request isn't there"),
    Column("api_name", "text", "its name"),
    Column("api_version", "int", "its version"),
    Column("correlation_id", "int", "a response has its request's, records their frame's"),
    Column("client_id", "text", "of a request"),
    Column("body", "object", "decoded; where that can't be done in base64, a MiB of it at most"),
    Column("body_encoding", "text", "base64, or null"),
    Column("frame", "int", "first byte of the frame that the records are in"),
    Column("topic", "text", "theirs; by an id only if a Metadata response told it before, else null"),
    Column("topic_id", "text", "theirs, in versions that have one"),
    Column("partition", "int", "theirs"),
)


def _columns(others: tuple[Column, ...]) -> tuple[Column, ...]:
    known = {column.name for column in FRAME_COLUMNS}
    return (*FRAME_COLUMNS, *(column for column in others if column.name not in known))


def _requests(source: Source, report: Report, reading: Reading) -> Iterator[Part]:
    for position, data in _frames(source, report, REQUEST_HEAD):
        message = read_request(data)
        row = {"client_id": message.client_id}
        yield from _parts(source.name, "request", row, position, data, message, report, {})


def _responses(source: Source, report: Report, reading: Reading) -> Iterator[Part]:
    asked = _Asked(reading.requests)
    names: dict[str, str] = {}
    unread = 0
    with closing(asked):
        for position, data in _frames(source, report, RESPONSE_HEAD):
            (correlation_id,) = RESPONSE_HEAD.unpack_from(data)
            api = asked.find(correlation_id)
            if reading.requests is None:
                unread += 1
            elif api is None:
                facts = {"correlation_id": correlation_id}
                report(Finding("unmatched-response", position, position + _SIZE.size + len(data), facts=facts))
            message = read_response(data, api)
            if len(names) < _NAMES:
                names.update(topic_names(message))
            yield from _parts(source.name, "response", {}, position, data, message, report, names)
    if unread:
        why = "only requests say what they answer; give these, too (--as requests --as responses)"
        report(Finding("unread-bodies", facts={"frames": unread, "why": why}))


def _parts(
    file: str,
    kind: str,
    own: Row,
    position: int,
    data: memoryview,
    message: Message,
    report: Report,
    names: Mapping[str, str],
) -> Iterator[Part]:
    """The row of a frame, and the record sets in it; ``names`` are those of topics by their ids, as far as told before."""
    begin, end = position + _SIZE.size, position + _SIZE.size + len(data)
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
        **own,
        "body": shown(body) if raw is None else raw,
        **({} if raw is None else {"body_encoding": "base64"}),
    }
    for place, records in record_sets(body):
        where = {"topic": names.get(place.get("topic_id", "")), "topic_id": None, "partition": None, **place}
        name = f"{file}: {where['topic'] or where['topic_id']}-{where['partition']}"
        first = begin + records.at
        source = Source(name, BytesAsFile(data, begin), first + records.size, first)
        yield RecordSet(
            source, {"frame": position, "correlation_id": message.correlation_id, **where}, sent=kind == "request"
        )


def _frames(source: Source, report: Report, head: struct.Struct) -> Iterator[tuple[int, memoryview]]:
    """Each frame's first byte, and its bytes behind its size, at least ``head``; valid until the next is asked for."""
    tape = Tape(source, _ROOM, report)
    while tape.fill(_SIZE.size) or tape.available:
        size = _SIZE.unpack_from(tape.data, tape.start)[0] if tape.available >= _SIZE.size else 0
        whole = _SIZE.size + size
        legal = head.size <= size <= MAX_FRAME
        if legal and not tape.lacks(whole) and tape.fill(whole):
            begin = tape.start + _SIZE.size
            yield tape.position, tape.view[begin : begin + size]
            tape.start += whole
        elif not tape.failed:
            _pass_over(tape, head, size if tape.available >= _SIZE.size else None, report)
        else:
            tape.start = tape.end


def _pass_over(tape: Tape, head: struct.Struct, size: int | None, report: Report) -> None:
    """Say what can't be a frame, and go on where the next begins, or nowhere."""
    began = tape.position
    tape.fill(SEARCH_REACH)
    behind = _next_frame(tape, head)
    left = tape.available
    if behind is not None:
        tape.start = behind
    lost = tape.use_up() if behind is None else tape.position - began
    if size is None or (behind is None and head.size <= size <= MAX_FRAME):
        why = f"{left} bytes of {'its size' if size is None else _SIZE.size + size}"
        report(Finding("frame-cut", began, began + lost, facts={"bytes": lost, "why": why}))
        return
    why = f"the file has {left - _SIZE.size} bytes for it" if size >= head.size else f"a frame has at least {head.size}"
    why = f"a frame has at most {MAX_FRAME}" if size > MAX_FRAME else why
    report(Finding("frame-size", began, began + lost, facts={"size": size, "why": why, "bytes": lost}))


def _next_frame(tape: Tape, head: struct.Struct) -> int | None:
    """Where in the buffer a frame begins behind which another does, or the file ends.

    Only requests tell enough of themselves.
    """
    if head is not REQUEST_HEAD:
        return None
    for at in range(tape.start + 1, tape.end - _SIZE.size - head.size + 1):
        end = _request_end(tape, at)
        if end is not None and (end == tape.end or _request_end(tape, end) is not None):
            return at
    return None


def _request_end(tape: Tape, at: int) -> int | None:
    """The byte behind a request that may begin at that place of the buffer, by its size and its API."""
    if at + _SIZE.size + REQUEST_HEAD.size > tape.end or tape.data[at + _SIZE.size]:
        return None  # no API has a key above 255: most places end here
    size, (key, version, _) = *_SIZE.unpack_from(tape.data, at), REQUEST_HEAD.unpack_from(tape.data, at + _SIZE.size)
    end: int = at + _SIZE.size + size
    if not REQUEST_HEAD.size + 2 <= size <= tape.end - at - _SIZE.size or not Api(key, version).definition("Request"):
        return None
    (client_id_size,) = struct.unpack_from(">h", tape.data, at + _SIZE.size + REQUEST_HEAD.size)
    return end if -1 <= client_id_size <= size - REQUEST_HEAD.size - 2 else None


class _Asked:
    """The requests of a stream of responses, read as far as these have come; nothing is known without a file."""

    def __init__(self, path: str | None) -> None:
        self._read = _heads(path)
        # The controller of 0.8 numbers all that it sends at a time alike: answers come in the order of requests.
        self._waiting: dict[int, deque[tuple[int, Api]]] = {}
        self._count = 0
        self._answered = 0

    def find(self, correlation_id: int) -> Api | None:
        """What was asked under that id. Raises UnreadableError."""
        waiting = self._waiting
        while correlation_id not in waiting and self._count < self._answered + _AHEAD:
            found = next(self._read, None)
            if found is None:
                break
            self._count += 1
            waiting.setdefault(found[0], deque()).append((self._count, found[1]))
        if correlation_id not in waiting:
            return None
        number, api = self._take(correlation_id)
        self._answered = max(self._answered, number)
        # Not every request is answered: a Produce with acks=0 is not.
        while waiting and waiting[oldest := next(iter(waiting))][0][0] < self._answered - _AHEAD:
            self._take(oldest)
        return api

    def _take(self, correlation_id: int) -> tuple[int, Api]:
        """The first that waits under that id; one does."""
        asked = self._waiting[correlation_id]
        found = asked.popleft()
        if not asked:
            del self._waiting[correlation_id]
        return found

    def close(self) -> None:
        """Leave the file of requests."""
        self._read.close()


def _heads(path: str | None) -> Generator[tuple[int, Api], None, None]:
    if path is None:
        return
    with open_source(path) as source:
        for _, data in _frames(source, ignore, REQUEST_HEAD):
            key, version, correlation_id = REQUEST_HEAD.unpack_from(data)
            yield correlation_id, Api(key, version)


#: What a client sends, and what it is answered.
REQUESTS = Framing(_requests, _columns(RECORD_COLUMNS), _columns(BATCH_COLUMNS))
RESPONSES = Framing(_responses, REQUESTS.columns, REQUESTS.shallow_columns)
