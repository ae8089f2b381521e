"""Count the schema ids in the keys and values of data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from kseg.findings import Report
from kseg.format.segment.deep_reader import DeepIterator
from kseg.format.segment.reader import SegmentReader
from kseg.format.segment.records_chunk import Chunk
from kseg.format.serialization.wire_format import ID_END, SchemaId, header_of, read_header_id, read_schema_id
from kseg.format.storage.source import open_source

#: The different ids that are counted for the keys or values of a topic. Random bytes have millions.
_MOST_IDS = 10_000
_INT64 = 8


@dataclass(slots=True)
class UsedIds:
    """The ids in the keys or values of a topic.

    ``others`` counts values without an id, except nulls; ``int64s`` those with an id and the size of an int64.
    """

    topic: str | None
    side: str
    ids: Counter[int | str] = field(default_factory=Counter)
    others: int = 0
    int64s: int = 0

    def add(self, found: SchemaId | None, size: int) -> None:
        """Count a value of ``size`` bytes, with the id that it begins with."""
        name = (found.number or found.guid) if found else None
        if name is None or (name not in self.ids and len(self.ids) >= _MOST_IDS):
            self.others += 1
        else:
            self.ids[name] += 1
            self.int64s += size == _INT64

    @property
    def mostly_ids(self) -> bool:
        """Return whether most values begin with an id and are not as long as an int64, which can begin in the same way."""
        return self.ids.total() - self.int64s > self.others + self.int64s


class IdCounter:
    """Counts the schema ids of records, by topic and side."""

    def __init__(self) -> None:
        self._used: dict[tuple[str | None, str], UsedIds] = {}

    def __iter__(self) -> Iterator[UsedIds]:
        return iter(self._used.values())

    def read(self, path: str, topic: str | None, report: Report) -> None:
        """Count the ids of a segment. Raises UnreadableError and NotASegmentError."""
        key, value = (self._used.setdefault((topic, side), UsedIds(topic, side)) for side in ("key", "value"))
        opener = DeepIterator(report)
        with SegmentReader(open_source(path), report=report) as reader:
            for window in reader.windows():
                for chunk in opener.chunks(window):
                    _count(chunk, key, value)


def _count(chunk: Chunk, key: UsedIds, value: UsedIds) -> None:
    lists = chunk.lists
    for row in range(chunk.first, chunk.stop):
        data = chunk.payload(row)
        for i in chunk.rows(row):
            if chunk.control(i) is not None:
                continue
            sides = ((key, lists.key_at[i], lists.key_size[i]), (value, lists.value_at[i], lists.value_size[i]))
            for used, at, size in sides:
                if size < 0:
                    continue
                stored = header_of(used.side, chunk.header_fields(i)) if lists.header_count[i] else None
                start = bytes(data[at : at + min(size, ID_END)])
                used.add(read_header_id(stored) if stored else read_schema_id(start), size)
