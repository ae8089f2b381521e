"""Recognise segments of internal topics, and decode their records."""

from __future__ import annotations

from kseg.format.internal_topics import decode
from kseg.format.segment.records_chunk import Chunk
from kseg.format.storage.source import topic_partition

#: Recognise the internal topic by the name of the folder.
BY_FOLDER = "auto"
_PREFIX = "__"


def internal_topic(path: str, decode_as: str | None = BY_FOLDER) -> str | None:
    """Return the internal topic whose decoder reads the segment: ``decode_as``, or the topic in the folder's name.

    Returns None if the records are not decoded: for other topics, and if ``decode_as`` is None.
    """
    if decode_as == BY_FOLDER:
        decode_as, _ = topic_partition(path)
    if decode_as is None or not decode_as.startswith(_PREFIX):
        return None
    return decode_as if decode_as in decode.TOPICS else None


def decoded_record(topic: str, chunk: Chunk, i: int) -> decode.Decoded | None:
    """Return record ``i`` of the chunk, decoded. Control records belong to no topic: for them, return None."""
    if chunk.control(i) is not None:
        return None
    return decode.decode(topic, chunk.key(i), chunk.value(i))
