"""Write Kafka's messages as JSON directly from their bytes, without an object per field.

Compiled with the types of ``json_text.pxd``. A definition becomes a program: a list of steps, each with two arguments.
The text is that of ``to_json(jsonable(reader.read(…)))``. Some contents have no steps: tagged fields, numbers with a
fraction, and texts other than ASCII or with escapes. The caller reads such a message with ``message_reader``, and so a
message that is not valid.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from functools import cache
from typing import Any

from kseg.format.messages.definitions import Definition, MessageField
from kseg.format.record.columns import RecordColumns
from kseg.format.record.memory import put_number

COMPILED = not __file__.endswith(".py")

#: The steps. The arguments of TEXT are a range of the program's text, those of NUMBER the size and whether it has a sign.
#: The arguments of STRING, BYTES and ITEMS are the size of the length (0: a varint) and whether null is allowed. The
#: second argument of ITEMS, and of STRUCTURE (which can be null), has the step after the content in its higher bits.
TEXT, NUMBER, BOOL, UUID, STRING, BYTES, ITEMS, STRUCTURE, TAGS = range(9)

#: The most bytes of a message's JSON. A longer one is left to the reader.
CAPACITY = 256 * 1024

_NUMBERS = {"int8": (1, 1), "int16": (2, 1), "uint16": (2, 0), "int32": (4, 1), "uint32": (4, 0), "int64": (8, 1)}
_SIZED = {"string": (STRING, 2), "bytes": (BYTES, 4)}
_DIGITS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_URL_SAFE = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
_NULL, _TRUE, _FALSE, _BRACKETS, _COMMA = b"null", b"true", b"false", b"[]", b","
# The room for a number, a UUID, or null.
_SHORT = 24

# A constant text, or a step with its arguments and its content.
_Part = str | tuple[int, int, int, "list[_Part]"]


class JsonProgram:
    """The steps that write one version of a message, between the texts ``prefix`` and ``suffix``."""

    def __init__(self, parts: list[_Part], prefix: str = "", suffix: str = "") -> None:
        self.words: list[int] = []
        self.pieces = ""
        self._append([prefix, *parts, suffix])
        self.steps = array("q", self.words)
        self.count = len(self.words) // 3
        self.text = self.pieces.encode()

    def _append(self, parts: list[_Part]) -> None:
        pending = ""
        for part in [*parts, ""]:
            if isinstance(part, str) and part:
                pending += part
                continue
            if pending:
                self.words += (TEXT, len(self.pieces), len(pending))
                self.pieces, pending = self.pieces + pending, ""
            if part:
                step, first, second, content = part
                place = len(self.words)
                self.words += (step, first, second)
                self._append(content)
                if content:
                    self.words[place + 2] = second + 2 * (len(self.words) // 3)


#: By type of a record: the program of its key, that of a tombstone, and those of the versions of its value.
Kinds = dict[int, tuple[JsonProgram, JsonProgram, dict[int, JsonProgram]]]


@cache
def parts_of(definition: Definition, version: int) -> list[_Part] | None:
    """Return the parts of a program for a version of a message, None if it has a field that has no step."""
    try:
        return list(_structure(definition.fields, version, version in definition.flexible))
    except KeyError:
        return None


def _structure(fields: tuple[MessageField, ...], version: int, flexible: bool) -> Iterator[_Part]:
    present = [field for field in fields if version in field.versions and version not in field.tagged]
    yield "{"
    for n, field in enumerate(present):
        yield f'{"," * bool(n)}"{field.name}":'
        yield from _field(field, version, flexible)
    yield "}"
    if flexible:
        yield TAGS, 0, 0, []


def _field(field: MessageField, version: int, message_flexible: bool) -> Iterator[_Part]:
    flexible = message_flexible if field.flexible is None else version in field.flexible
    nullable = version in field.nullable
    item = field.type.removeprefix("[]")
    content: list[_Part]
    if item in _NUMBERS:
        content = [(NUMBER, *_NUMBERS[item], [])]
    elif item in ("bool", "uuid"):
        content = [(BOOL if item == "bool" else UUID, 0, 0, [])]
    elif item in _SIZED:
        step, size = _SIZED[item]
        content = [(step, 0 if flexible else size, int(nullable and item == field.type), [])]
    elif field.fields:
        content = list(_structure(field.fields, version, flexible))
        if nullable and item == field.type:
            content = [(STRUCTURE, 1, 1, content)]
    else:
        raise KeyError(item)
    if item == field.type:
        yield from content
    else:
        yield ITEMS, 0 if flexible else 4, int(nullable), content


class JsonText:
    """A buffer with the JSON of a record's messages: ``out[:at]``."""

    def __init__(self) -> None:
        self.out = bytearray(CAPACITY)
        self.at = 0
        self.position = 0

    def json(self) -> bytes:
        """Return the JSON in the buffer."""
        return bytes(memoryview(self.out)[: self.at])

    def first_unwritten(self, kinds: Kinds, data: Any, records: RecordColumns, first: int, stop: int) -> int:
        """Return the first row from ``first`` to ``stop`` (exclusive) that ``write_record`` cannot write, or ``stop``."""
        while first < stop and self.write_record(kinds, data, records, first):
            first += 1
        return first

    def write_record(self, kinds: Kinds, data: Any, records: RecordColumns, i: int) -> bool:
        """Write record ``i``, whose fields are in ``data``; return False if the reader must read it."""
        at, size = records.key_at[i], records.key_size[i]
        self.at = 0
        if size < 2:
            return False
        programs = kinds.get(data[at] << 8 | data[at + 1])
        if programs is None:
            return False
        key, tombstone, values = programs
        if not self.write(key, data, at + 2, at + size):
            return False
        at, size = records.value_at[i], records.value_size[i]
        if size < 0:
            return self.write(tombstone, data, 0, 0)
        value = values.get(data[at] << 8 | data[at + 1]) if size >= 2 else None
        return value is not None and self.write(value, data, at + 2, at + size)

    def write(self, program: JsonProgram, data: Any, first: int, end: int) -> bool:
        """Append the message in ``data[first:end]``; return False if the reader must read it. Raises IndexError."""
        if first < 0 or end > len(data):
            raise IndexError(f"bytes {first} to {end} are not within {len(data)}")
        self.position = first
        return self.run(program, data, end, 0, program.count) and self.position == end

    def run(self, program: JsonProgram, data: Any, end: int, step: int, stop: int) -> bool:
        """Write from ``step`` to ``stop`` (exclusive)."""
        while step < stop:
            kind, first, second = program.steps[3 * step], program.steps[3 * step + 1], program.steps[3 * step + 2]
            step += 1
            if kind == TEXT:
                if not self.put(program.text, first, second):
                    return False
            elif kind == NUMBER:
                if not self.put_number(self.number(data, end, first, second)):
                    return False
            elif kind in (STRING, BYTES):
                if not self.put_sized(data, end, kind, self.length(data, end, first, second)):
                    return False
            elif kind == ITEMS:
                if not self.put_items(program, data, end, step, second // 2, self.length(data, end, first, second & 1)):
                    return False
                step = second // 2
            elif kind == STRUCTURE:
                if self.number(data, end, 1, 1) < 0:
                    if not self.put(_NULL, 0, 4):
                        return False
                    step = second // 2
            elif kind == TAGS:
                if self.number(data, end, 1, 0):
                    return False
            elif not self.put_fixed(data, end, kind):
                return False
        return self.position <= end

    def number(self, data: Any, end: int, size: int, signed: int) -> int:
        """Return the next integer, big endian; 0 after the end, with the position after the end."""
        self.position += size
        if self.position > end:
            self.position = end + 1
            return 0
        value = 0
        for n in range(self.position - size, self.position):
            value = value << 8 | data[n]
        half = 128
        half = half << 8 * (size - 1)
        if signed and size < 8 and value >= half:
            value -= half + half
        # Compiled, eight bytes already have their sign.
        return value if COMPILED or size < 8 or not value >> 63 else value - (1 << 64)

    def length(self, data: Any, end: int, size: int, nullable: int) -> int:
        """Return the next length, -1 for null and -2 if it is not valid."""
        value = 0
        if size:
            value = self.number(data, end, size, 1)
        else:
            for n in range(5):
                byte = self.number(data, end, 1, 0)
                value |= (byte & 127) << 7 * n
                if byte < 128:
                    break
            else:
                return -2
            value -= 1
        if value < 0:
            return -1 if nullable else -2
        return value if value <= end - self.position else -2

    def put(self, text: Any, first: int, size: int) -> bool:
        """Append bytes; return False without enough room."""
        if size > CAPACITY - self.at:
            return False
        for n in range(size):
            self.out[self.at + n] = text[first + n]
        self.at += size
        return True

    def put_number(self, value: int) -> bool:
        """Append an int64 in decimal; return False without enough room."""
        if self.at > CAPACITY - _SHORT:
            return False
        self.at = put_number(self.out, self.at, value)
        return True

    def put_sized(self, data: Any, end: int, kind: int, size: int) -> bool:
        """Append a string, or bytes in base64, of ``size`` bytes (see ``length``); return False if it cannot be."""
        if size < 0:
            return size == -1 and self.put(_NULL, 0, 4)
        at = self.position
        self.position += size
        if kind == BYTES:
            return self.put_base64(data, at, size, _DIGITS, True)
        if size > CAPACITY - self.at - 2:
            return False
        self.out[self.at] = 34  # a quote
        for n in range(size):
            byte = data[at + n]
            if byte < 32 or byte > 126 or byte == 34 or byte == 92:
                return False
            self.out[self.at + 1 + n] = byte
        self.out[self.at + 1 + size] = 34
        self.at += size + 2
        return True

    def put_fixed(self, data: Any, end: int, kind: int) -> bool:
        """Append a Boolean value or a UUID; return False without enough room."""
        if kind == BOOL:
            return self.put(_TRUE, 0, 4) if self.number(data, end, 1, 0) else self.put(_FALSE, 0, 5)
        at = self.position
        self.position += 16
        return self.position <= end and self.put_base64(data, at, 16, _URL_SAFE, False)

    def put_items(self, program: JsonProgram, data: Any, end: int, step: int, stop: int, count: int) -> bool:
        """Append an array of ``count`` items (see ``length``), each by the steps from ``step`` to ``stop``."""
        if count < 0:
            return count == -1 and self.put(_NULL, 0, 4)
        if not self.put(_BRACKETS, 0, 1):
            return False
        for n in range(count):
            if n and not self.put(_COMMA, 0, 1):
                return False
            # Without a room for the shortest item, the buffer ends the loop.
            if not self.run(program, data, end, step, stop) or self.position > end:
                return False
        return self.put(_BRACKETS, 1, 1)

    def put_base64(self, data: Any, at: int, size: int, digits: Any, padded: bool) -> bool:
        """Append ``size`` bytes in base64 (RFC 4648), in quotes; return False without enough room."""
        if size > (CAPACITY - self.at - _SHORT) // 4 * 3:
            return False
        to = self.at
        self.out[to] = 34  # a quote
        to += 1
        end = at + size
        while at < end:
            left = end - at
            bits = data[at] << 16
            if left > 1:
                bits |= data[at + 1] << 8
            if left > 2:
                bits |= data[at + 2]
            self.out[to] = digits[bits >> 18]
            self.out[to + 1] = digits[bits >> 12 & 63]
            to += 2
            if left > 1 or padded:
                self.out[to] = digits[bits >> 6 & 63] if left > 1 else 61  # an equals sign
                to += 1
            if left > 2 or padded:
                self.out[to] = digits[bits & 63] if left > 2 else 61
                to += 1
            at += 3
        self.out[to] = 34
        self.at = to + 1
        return True
