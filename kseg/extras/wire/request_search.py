"""Whether bytes are a request, and where the next request begins after damaged or lost bytes.

A frame lacks a checksum, and the bytes of a record batch can look like the beginning of a request: with the zeros of its
base offset, the length of a batch looks like a Produce request of version 0. So these facts are weighed:

- The body ends where the frame ends, and the CRCs of its record batches are valid.
- A frame or the end of the file follows. Of a frame that lost bytes, the size leads into the next frame.
- The client id is text, or that of an earlier request. An empty one of a Produce request of version 0 says nothing.

- A request in a record is inside a batch. One after a batch that lost bytes leads to the end of the batch or further.

A frame that lost bytes takes the first bytes of the next one in their place. So the search begins in the frame, and finds
requests that reach over its end.
"""

from __future__ import annotations

import re
import struct
from typing import NamedTuple

from kseg.extras.wire.apis import CONTROLLED_SHUTDOWN, REQUEST_HEAD, Api, Message, read_request, record_sets
from kseg.extras.wire.leader_records import RejectedSetError
from kseg.extras.wire.sent_batches import BatchHeader, batches_of
from kseg.format.record.layout import BATCH_HEADER, LOG_OVERHEAD, RECORD_BATCH_OVERHEAD, V2_MIN_SIZE
from kseg.format.segment.input_buffer import InputBuffer
from kseg.format.segment.resync_search import STEP, ScanBudget

#: The largest accepted frame in bytes. The default of socket.request.max.bytes is 100 MiB.
MAX_FRAME = 256 * 1024 * 1024
#: The size of a frame, before its bytes.
SIZE = struct.Struct(">i")
# Size, API key, API version, correlation id, size of the client id.
_BEGINNING = struct.Struct(">ihhih")
# The same fields. All API keys are below 128, all versions below 64; the size is 8 or more.
_MAY_BEGIN = re.compile(
    rb"\x00(?<!\x00{3}[\x00-\x07]\x00)(?=[\x00-\x7f]\x00[\x00-\x3f].{4}(?:[\x00-\x7f].|\xff\xff))(?<=[\x00-\x10].{3}\x00)",
    re.DOTALL,
)
# A batch of version 2 as producers send it, with the base offset 0, and the leader epoch -1 or 0.
_SENT_BATCH = re.compile(rb"\0{8}(?=.{4}(?:\xff{4}|\0{4})\x02.{4}\0[\0-\x1f]\0.{37})", re.DOTALL)
_SHUTDOWN_SIZE = 12
_PRODUCE = 0
# In version 0, tokens follow it that are not requests (KIP-152).
_SASL_HANDSHAKE = Api(17, 0)
# Versions are numbered from 0, and no API has half as many.
_HIGHEST_VERSION = 63
# How many frames, of at most this size, are passed to find one that is known, or the end of the file.
_FRAMES_PASSED = 4
_LARGEST_PASSED = 1024 * 1024
# The longest client id that shows a request, in bytes.
_LONGEST_CLIENT = 255
# The most client ids that are kept. A capture may contain several connections.
_CLIENTS = 10_000

# The results of ``RequestSearch._follows``.
_NOTHING = 0
_LIKELY = 1
_SURELY = 2


class _Beginning(NamedTuple):
    """The first fields of bytes that may be a request.

    ``is_known`` is whether Kafka has the API key, ``is_named`` whether the client id shows that it is a request.
    """

    size: int
    key: int
    client: str | None
    is_known: bool
    is_named: bool


class RequestSearch:
    """Judges and finds requests in a buffer. Positions are those of the file: the buffer moves when it is filled."""

    def __init__(self, buffer: InputBuffer) -> None:
        self._buffer = buffer
        self._begin = buffer.position
        self._clients: set[str | None] = set()
        self._budget = ScanBudget()
        # Where the next request begins, if it begins in the frame that was judged last.
        self._found: int | None = None
        # Whether the client authenticates by tokens: these frames lack a header.
        self._sends_tokens = False
        # Where the last frame ends, if another one follows it.
        self._settled = -1
        # Up to where batches were looked for, and where the last of them ends by its size.
        self._batches_seen = 0
        self._batch_end = 0
        #: How many bytes of the accepted request the next request has, too: one of them lost bytes at its end or beginning.
        self.shared = 0

    def accepted(self, size: int) -> Message | None:
        """Return the request of ``size`` bytes at the buffer's start, None if these bytes are not one frame.

        They must be in the buffer. A request that cannot be decoded is accepted if its size is right.
        """
        began = self._buffer.position
        end = began + SIZE.size + size
        message, follows = self._read(began, size), self._follows(end)
        self.shared = 0
        if self._budget.allows(0, began) and not self._is_one_frame(message, began, end, follows):
            self._budget.spend(message.read_to)
            return None
        if message.body is not None:
            self._sends_tokens = message.api == _SASL_HANDSHAKE
            if len(self._clients) < _CLIENTS:
                self._clients.add(message.client_id)
        self._settled = end if follows or self._sends_tokens else -1
        return message

    def _is_one_frame(self, message: Message, began: int, end: int, follows: int) -> bool:
        beginning = self._beginning(began)
        decoded = message.body is not None and beginning is not None and (beginning.is_named or not message.fault)
        valid = self._has_valid_batches(began, message) if decoded else False
        if not decoded and not self._is_framed(began, end, follows):
            return False
        if follows and valid is not False and not message.fault:
            return True
        self._found = self._find(began + 1, end, reaching=end if decoded else 0)
        if self._found is None:
            return True
        if valid is False or message.fault or end - self._found >= SIZE.size:
            return False
        self.shared, self._found = end - self._found, None
        return True

    def may_begin(self, position: int) -> bool:
        """Return whether a request may begin at that position, as far as its first bytes are in the file."""
        if self._count(position, _BEGINNING.size) < _BEGINNING.size:
            return True
        beginning = self._beginning(position)
        return beginning is not None and beginning.is_known

    def next_request(self) -> int | None:
        """Return where the next request begins after the buffer's start, which is not one, or None."""
        found, self._found = self._found, None
        return self._find(self._buffer.position + 1) if found is None else found

    def _find(self, at: int, stop: int | None = None, reaching: int = 0) -> int | None:
        """Return the position of the first intact request from ``at`` to ``stop`` whose frames reach ``reaching``.

        Without ``stop`` the bytes before it leave the buffer.
        """
        self._batches_seen, self._batch_end = at, 0
        while (found := self._next_beginning(at, stop)) is not None:
            self._see_batches(found)
            if stop is None:
                self._buffer.skip_to(found)
            if self._is_intact(found, max(reaching, self._batch_end)):
                return found
            at = found + 1
        return None

    def _next_beginning(self, at: int, stop: int | None) -> int | None:
        """Return the next position where a request may begin by the bytes of its first fields."""
        buffer = self._buffer
        while True:
            end = buffer.shift + buffer.end
            last = end if stop is None else min(end, stop + _BEGINNING.size)
            found = _MAY_BEGIN.search(buffer.data, at + SIZE.size - buffer.shift, last - buffer.shift)
            if found:
                at = found.start() - SIZE.size + buffer.shift
                return at if stop is None or at < stop else None
            if stop is not None:
                return None
            at = max(at, end - RECORD_BATCH_OVERHEAD)
            self._see_batches(at)
            buffer.skip_to(at)
            buffer.fill(RECORD_BATCH_OVERHEAD + STEP)
            if buffer.shift + buffer.end == end:
                return None

    def _see_batches(self, position: int) -> None:
        """Move ``_batch_end`` to the end of the last batch that begins before that position."""
        self._count(position, RECORD_BATCH_OVERHEAD)
        shift = self._buffer.shift
        for found in _SENT_BATCH.finditer(
            self._buffer.data, self._batches_seen - shift, position - shift + RECORD_BATCH_OVERHEAD
        ):
            header = BatchHeader(*BATCH_HEADER.unpack_from(self._buffer.data, found.start()))
            if header.record_count == header.last_offset_delta + 1 and header.size >= V2_MIN_SIZE:
                self._batch_end = max(self._batch_end, shift + found.start() + LOG_OVERHEAD + header.size)
        self._batches_seen = max(self._batches_seen, position)

    def _is_intact(self, position: int, reaching: int) -> bool:
        """Return whether a request is at that position that can be decoded, and whose frames reach ``reaching``."""
        beginning = self._beginning(position)
        if beginning is None or not beginning.is_known or not (beginning.is_named or beginning.client == ""):
            return False
        end = position + SIZE.size + beginning.size
        if not self._budget.allows(0, position) or self._buffer.ends_before(end - self._buffer.position):
            return False
        is_buffered = end <= self._buffer.shift + self._buffer.end
        left = self._count(position, end - position)
        if not is_buffered:
            self._budget.spend(self._buffer.available)  # the buffer moved them to read more
        if left >= end - position and self._reaches(end, reaching):
            message = self._read(position, beginning.size)
            self._budget.spend(message.read_to)
            if message.body is not None and (beginning.is_named or self._has_valid_batches(position, message)):
                return not message.fault or (bool(beginning.client) and self._follows(end) != _NOTHING)
        return False

    def _reaches(self, end: int, reaching: int) -> bool:
        """Return whether requests that follow one another from ``end`` reach that position or the end of the file."""
        while end < reaching:
            left = self._count(end, _BEGINNING.size)
            if left < _BEGINNING.size:
                return left <= 0 or self._is_torn_beginning(end, left)
            beginning = self._beginning(end)
            if beginning is None or not (beginning.is_known and beginning.is_named):
                return False
            end += SIZE.size + beginning.size
        return True

    def _follows(self, position: int) -> int:
        """Return _SURELY, _LIKELY or _NOTHING: whether a frame, or the end of the file, is at that position.

        Frames of unknown APIs are passed.
        """
        at = position
        for _ in range(_FRAMES_PASSED):
            left = self._count(at, _BEGINNING.size)
            if self._buffer.failed:
                return _SURELY
            if left <= 0:
                return _LIKELY if at == position else _SURELY
            size = SIZE.unpack_from(self._buffer.data, at - self._buffer.shift)[0] if left >= SIZE.size else 0
            if left < _BEGINNING.size:
                return _LIKELY if self._is_torn_beginning(at, left) else _NOTHING
            beginning, whole = self._beginning(at), SIZE.size + size
            if beginning and beginning.is_known and beginning.is_named and beginning.client != "":
                return _SURELY
            if not REQUEST_HEAD.size <= size <= _LARGEST_PASSED or self._count(at, whole) < whole:
                return _NOTHING
            if not self._sends_tokens and not (beginning and beginning.is_named):
                return _NOTHING
            if beginning and beginning.is_known and beginning.is_named:
                return _SURELY if "" in self._clients else _LIKELY
            at += whole
        return _SURELY

    def _is_torn_beginning(self, position: int, left: int) -> bool:
        """Return whether the file's last ``left`` bytes, fewer than the first fields, may begin a request."""
        at = position - self._buffer.shift
        size, key, version, *_ = _BEGINNING.unpack(
            bytes(self._buffer.view[at : at + left]).ljust(_BEGINNING.size, b"\0")
        )
        return size <= MAX_FRAME and (left < SIZE.size or size >= REQUEST_HEAD.size) and _is_known(key, version)

    def _is_framed(self, began: int, end: int, follows: int) -> bool:
        """Return whether bytes that cannot be decoded are one frame.

        If no frame ends before them, their size may be the length of a field in a request.
        """
        beginning = self._beginning(began)
        if follows == _SURELY and (began == self._settled or (beginning is not None and beginning.is_named)):
            return True
        if beginning is not None and (beginning.is_known or beginning.is_named):
            return follows == _LIKELY and beginning.is_named
        return follows == _LIKELY and began in (self._begin, self._settled) and self._count(end, 1) <= 0

    def _beginning(self, position: int) -> _Beginning | None:
        """Return the first fields of a request that may begin at that position."""
        if self._count(position, _BEGINNING.size) < _BEGINNING.size:
            return None
        size, key, version, _, length = _BEGINNING.unpack_from(self._buffer.data, position - self._buffer.shift)
        if (key, version) == CONTROLLED_SHUTDOWN:
            return _Beginning(size, key, None, True, True) if size == _SHUTDOWN_SIZE else None
        if min(key, version) < 0 or not -1 <= length <= size + SIZE.size - _BEGINNING.size or size > MAX_FRAME:
            return None
        known = _is_known(key, version)
        if length < 0:
            return _Beginning(size, key, None, known, True)
        left = self._count(position, _BEGINNING.size + length) - _BEGINNING.size
        at = position - self._buffer.shift + _BEGINNING.size
        text = str(self._buffer.view[at : at + min(left, length)], "utf-8", "replace")
        readable = (
            length <= _LONGEST_CLIENT and text.isprintable() and "\ufffd" not in (text if left >= length else text[:-1])
        )
        # The offset 0 of a batch looks like a Produce request of version 0 with an empty client id.
        readable = readable and (text != "" or (known and (key, version) != (_PRODUCE, 0)))
        return _Beginning(size, key, text, known, text in self._clients or readable)

    def _has_valid_batches(self, position: int, message: Message) -> bool | None:
        """Return whether all bytes of the records are batches with valid CRCs, None without records."""
        begin = position + SIZE.size - self._buffer.shift
        sets = [self._buffer.view[begin + one.at : begin + one.at + one.size] for _, one in record_sets(message.body)]
        try:
            return all(_is_valid_set(data) for data in sets) if sets else None
        except RejectedSetError:
            return False

    def _read(self, position: int, size: int) -> Message:
        begin = position + SIZE.size - self._buffer.shift
        return read_request(self._buffer.view[begin : begin + size])

    def _count(self, position: int, wanted: int) -> int:
        """Read ``wanted`` bytes from that position on, and return how many are in the buffer, or more."""
        self._buffer.fill(position - self._buffer.position + wanted)
        return self._buffer.shift + self._buffer.end - position


def _is_known(key: int, version: int) -> bool:
    return Api(key, version).name is not None and version <= _HIGHEST_VERSION


def _is_valid_set(data: memoryview) -> bool:
    size = 0
    for batch in batches_of(data):
        stored, computed = batch.crcs
        if stored != computed:
            return False
        size += len(batch.data)
    return size == len(data)
