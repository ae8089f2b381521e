"""The partition of an internal topic that has the records of a group or of a transactional id, and these records."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kseg.format.internal_topics.decode import CONSUMER_OFFSETS, TRANSACTION_STATE
from kseg.format.record.byte_search import Needle
from kseg.format.record.layout import INT32_MAX
from kseg.format.segment.record_search import rows_with
from kseg.format.segment.records_chunk import Chunk

# The version at the start of a key.
_VERSION = 2


@dataclass(frozen=True, slots=True)
class Owner:
    """A group or a transactional id: ``topic`` is the internal topic of its coordinator."""

    topic: str
    name: str

    @classmethod
    def of(cls, group: str | None, transactional_id: str | None) -> Owner | None:
        """Return the owner with one of these names, None if both are None."""
        if group is not None:
            return cls(CONSUMER_OFFSETS, group)
        return None if transactional_id is None else cls(TRANSACTION_STATE, transactional_id)

    def partition(self, partitions: int) -> int:
        """Return its partition in a topic of ``partitions`` partitions.

        Sources: ``GroupCoordinatorService.partitionFor``, ``TransactionStateManager.partitionFor``, ``Utils.abs``.
        """
        number = _java_hash(self.name)
        return (0 if number == -INT32_MAX - 1 else abs(number)) % partitions

    def has_key(self, key: bytes | None) -> bool:
        """Return whether a key is that of a record of this owner: its first field is the name, in all versions."""
        return key is not None and key[_VERSION:].startswith(self._field)

    # The methods of ``RecordSearch``.

    def rows(self, chunk: Chunk) -> Sequence[int]:
        return [i for i in rows_with(chunk, (Needle(self._field),)) if self.has_key(chunk.key(i))]

    def matched_fields(self, chunk: Chunk, i: int) -> Sequence[str]:
        return ("key",)

    def matches(self, chunk: Chunk, i: int) -> Iterator[tuple[str, str]]:
        yield "key", self.name

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        return iter(())

    @property
    def _field(self) -> bytes:
        name = self.name.encode("utf-8", "surrogateescape")
        return struct.pack(">H", len(name)) + name


def _java_hash(text: str) -> int:
    """Return ``String.hashCode`` of Java: over UTF-16 code units, as a signed int32."""
    number = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for (unit,) in struct.iter_unpack(">H", data):
        number = (31 * number + unit) & 0xFFFFFFFF
    return number - (1 << 32) if number > INT32_MAX else number
