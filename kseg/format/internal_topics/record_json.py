"""The column ``decoded`` of records of internal topics as JSON, written directly from their bytes where that is possible."""

from __future__ import annotations

from functools import cache

from kseg.format.internal_topics import decode, json_text
from kseg.format.internal_topics.json_text import JsonProgram, JsonText, Kinds, parts_of
from kseg.format.messages.definitions import RECORDS, definition
from kseg.format.record.layout import CONTROL
from kseg.format.segment.records_chunk import Chunk

#: Values whose members' data are decoded, too: they are left to ``decode``.
_NESTED = "GroupMetadata"
_VERSIONS = range(32)


class RecordJson:
    """Writes records of a topic whose keys have a type. ``text`` has the JSON of the last written record."""

    def __init__(self, topic: str) -> None:
        self._kinds = _kinds(topic)
        self.text = JsonText()

    def write(self, chunk: Chunk, i: int, row: int) -> bool:
        """Write data record ``i`` of batch ``row``; return False if ``decode`` must decode it.

        A record that is written has a valid key, and a valid value or null.
        """
        return self.text.write_record(self._kinds, chunk.payload(row), chunk.records, i)

    def first_unwritten(self, chunk: Chunk, row: int, first: int, stop: int) -> int:
        """Return the first record of batch ``row``, from ``first`` on, that ``decode`` must decode, or ``stop``."""
        if chunk.batches.magic[row] >= 2 and chunk.batches.attributes[row] & CONTROL:
            return first
        return self.text.first_unwritten(self._kinds, chunk.payload(row), chunk.records, first, stop)


@cache
def record_json(topic: str) -> RecordJson | None:
    """Return the writer of a topic's records, None if the engine is not compiled or the records have no typed keys."""
    return RecordJson(topic) if json_text.COMPILED and topic in decode.KEYED else None


@cache
def _kinds(topic: str) -> Kinds:
    found: Kinds = {}
    for number, name in decode.record_types(topic).items():
        key = _program(f"{name}Key", 0, f'{{"key":{{"type":{number},"name":"{name}","data":', '},"value":')
        if key is None:
            continue
        values = {
            version: program
            for version in (_VERSIONS if name != _NESTED else ())
            if (program := _program(f"{name}Value", version, f'{{"version":{version},"data":', "}}"))
        }
        found[number] = key, JsonProgram([], "null}"), values
    return found


def _program(name: str, version: int, prefix: str, suffix: str) -> JsonProgram | None:
    known = definition(RECORDS, name, version)
    parts = parts_of(known, version) if known else None
    return JsonProgram(parts, prefix, suffix) if parts is not None else None
