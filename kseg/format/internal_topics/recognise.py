"""Which segments hold records of Kafka's internal topics, and those records, decoded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kseg.format.segment.records_chunk import Chunk
from kseg.format.storage.source import topic_partition

if TYPE_CHECKING:
    from kseg.format.internal_topics.decode import Decoded

#: Have the folder's name say whether a segment's records are decoded, and as what.
BY_FOLDER = "auto"
_PREFIX = "__"


def internal_topic(path: str, decode_as: str | None = BY_FOLDER) -> str | None:
    """The internal topic as whose records a segment's are decoded: the one given, or that of its folder's name.

    None where they are not: for the topics of users, and where ``decode_as`` is None.
    """
    if decode_as == BY_FOLDER:
        decode_as, _ = topic_partition(path)
    if decode_as is None or not decode_as.startswith(_PREFIX):
        return None
    # Here, so that who reads topics of users does without.
    from kseg.format.internal_topics.decode import TOPICS

    return decode_as if decode_as in TOPICS else None


def decoded_record(topic: str, chunk: Chunk, i: int) -> Decoded | None:
    """Record ``i`` of the chunk; None where it is a control record, which is no topic's own."""
    if chunk.control(i) is not None:
        return None
    from kseg.format.internal_topics.decode import decode

    return decode(topic, chunk.key(i), chunk.value(i))
