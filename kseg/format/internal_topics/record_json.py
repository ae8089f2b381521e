"""The column ``decoded`` of records of internal topics as JSON, written directly from their bytes where that is possible."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

from kseg.format.internal_topics import decode, json_text
from kseg.format.internal_topics.json_text import JsonProgram, JsonText, parts_of
from kseg.format.messages.definitions import RECORDS, definition
from kseg.format.record.layout import CONTROL
from kseg.format.segment.records_chunk import Chunk

#: Values whose members' data are decoded, too: they are left to ``decode``.
_NESTED = "GroupMetadata"


class _Kind(NamedTuple):
    """A type of records: the program of its keys, and its name."""

    key: JsonProgram
    name: str


class RecordJson:
    """Writes records of one topic that has keys with a type. ``text`` has the JSON of the last written record."""

    def __init__(self, topic: str) -> None:
        self._kinds = _kinds(topic)
        self.text = JsonText()

    def write(self, chunk: Chunk, i: int, row: int) -> bool:
        """Write record ``i`` of batch ``row``; return False if ``decode`` must decode it, or for a control record.

        A record that is written has a valid key, and a valid value or null.
        """
        lists, text = chunk.lists, self.text
        payload = chunk.payload(row)
        key_at, key_size, value_at, value_size = (
            lists.key_at[i], lists.key_size[i], lists.value_at[i], lists.value_size[i],
        )  # fmt: skip
        is_control = chunk.batches.magic[row] >= 2 and chunk.batches.attributes[row] & CONTROL
        if key_size < 2 or is_control:
            return False
        kind = self._kinds.get(payload[key_at] << 8 | payload[key_at + 1])
        text.at = 0
        if kind is None or not text.write(kind.key, payload, key_at + 2, key_at + key_size):
            return False
        if value_size < 0:
            return text.write(_TOMBSTONE, payload, 0, 0)
        if value_size < 2:
            return False
        program = _value(kind.name, payload[value_at] << 8 | payload[value_at + 1])
        return program is not None and text.write(program, payload, value_at + 2, value_at + value_size)


_TOMBSTONE = JsonProgram([], "null}")


@cache
def record_json(topic: str) -> RecordJson | None:
    """Return the writer of a topic's records, None if the engine is not compiled or the records have no typed keys."""
    return RecordJson(topic) if json_text.COMPILED and topic in decode.KEYED else None


@cache
def _kinds(topic: str) -> Mapping[int, _Kind]:
    found = {}
    for number, name in decode.record_types(topic).items():
        known = definition(RECORDS, f"{name}Key", 0)
        parts = parts_of(known, 0) if known else None
        if parts is not None:
            prefix = f'{{"key":{{"type":{number},"name":"{name}","data":'
            found[number] = _Kind(JsonProgram(parts, prefix, '},"value":'), name)
    return found


@cache
def _value(name: str, version: int) -> JsonProgram | None:
    known = definition(RECORDS, f"{name}Value", version) if name != _NESTED else None
    parts = parts_of(known, version) if known else None
    return JsonProgram(parts, f'{{"version":{version},"data":', "}}") if parts is not None else None
