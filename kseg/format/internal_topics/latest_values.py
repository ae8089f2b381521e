"""The latest value of each key of a coordinator's topic."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from struct import Struct

from kseg.format.internal_topics.decode import Decoded, DecodedPart, decode
from kseg.format.internal_topics.state import Data, Item, RecordPlace
from kseg.format.messages.reader import jsonable

# Offset, timestamp (-1 for none) and size of the key (-1 for null), before key and value.
_HEAD = Struct("<qqi")
_DIGEST_SIZE = 16


class LatestValues:
    """Items by key, in the order of their creation.

    A topic can have millions of keys, so keys and values are kept as the log has them, and decoded when items are read.
    """

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._records: dict[bytes, bytes] = {}

    def apply(self, decoded: Decoded, key: bytes | None, value: bytes | None, at: RecordPlace) -> None:
        """Set the value of a key unless a later record has already set it. A null value removes the key.

        The order matters because values of a transaction are applied at its commit. ``decoded`` is the decoded record.
        """
        # Versions of a key differ in their bytes. The fields of a key are in the order of its definition.
        place = repr((entity_of(decoded.key), _shown(decoded.key))).encode("utf-8", "surrogatepass")
        digest = blake2b(place, digest_size=_DIGEST_SIZE).digest()
        if value is None:
            self._records.pop(digest, None)
            return
        known = self._records.get(digest)
        if known is None or _HEAD.unpack_from(known)[0] <= at.offset:
            timestamp = -1 if at.timestamp is None else at.timestamp
            head = _HEAD.pack(at.offset, timestamp, -1 if key is None else len(key))
            self._records[digest] = b"".join((head, key or b"", value))

    def __iter__(self) -> Iterator[Item]:
        for record in self._records.values():
            offset, timestamp, _ = _HEAD.unpack_from(record)
            key, value = _key_and_value(record)
            decoded = decode(self._topic, key, value)
            at = RecordPlace(offset, None if timestamp < 0 else timestamp, len(record) - _HEAD.size)
            yield Item(entity_of(decoded.key), _shown(decoded.key), _shown(decoded.value), at)

    def sizes(self) -> Iterator[tuple[str, Data, int]]:
        """Yield the entity, the key, and the bytes of key and value of each item, without decoding its value."""
        for record in self._records.values():
            key = decode(self._topic, _key_and_value(record)[0], None).key
            yield entity_of(key), _shown(key), len(record) - _HEAD.size


def _key_and_value(record: bytes) -> tuple[bytes | None, bytes]:
    key_size = _HEAD.unpack_from(record)[2]
    end = _HEAD.size + max(0, key_size)
    return None if key_size < 0 else record[_HEAD.size : end], record[end:]


def entity_of(part: DecodedPart | None) -> str:
    """Return the kind of the item that a key or a value describes."""
    if part is None or part.type is None:
        return "unreadable"
    return part.name or f"type {part.type}"


def _shown(part: DecodedPart | None) -> Data:
    if part is None:
        return {}
    return part.as_dict() if part.data is None else jsonable(part.data)
