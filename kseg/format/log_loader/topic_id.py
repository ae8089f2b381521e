"""Read ``partition.metadata`` as a broker does: some faults end the process, others take only the log dir offline.

Source: ``PartitionMetadataReadBuffer`` and ``Uuid.fromString`` of Kafka 4.3.
"""

from __future__ import annotations

import re

from kseg.format.log_loader.checkpoints import split, text_lines
from kseg.format.log_loader.refusals import OfflineError, RefusedError
from kseg.format.record.layout import INT32_MAX

TOPIC_ID = "partition.metadata"
_SEPARATOR = re.compile(r":[ \t\n\x0b\f\r]+")
_NUMBER = re.compile(r"[+-]?[0-9]{1,10}")
_UUID = re.compile(r"[A-Za-z0-9_-]{22}(==)?")
_ZERO = "A" * 22


def check_topic_id(data: bytes) -> None:
    """Raise OfflineError or RefusedError unless a broker can read a topic id from the file."""
    lines = text_lines(data, TOPIC_ID)
    version = _value(lines, 0)
    if not _NUMBER.fullmatch(version) or not 0 <= int(version) <= INT32_MAX:
        raise OfflineError(f"its version is {version[:80]!r}", TOPIC_ID)
    topic_id = _value(lines, 1)
    if not _UUID.fullmatch(topic_id):
        raise RefusedError(f"its topic id is {topic_id[:80]!r}", TOPIC_ID)
    if topic_id.startswith(_ZERO):
        raise OfflineError("its topic id is zero", TOPIC_ID)


def _value(lines: list[str], number: int) -> str:
    """Return the part of a line after its colon."""
    if number >= len(lines):
        raise RefusedError(f"expected 2 lines, found {len(lines)}", TOPIC_ID)
    fields = split(_SEPARATOR, lines[number])
    if len(fields) != 2:
        raise OfflineError(f"the line {lines[number][:80]!r} is not a name and a value", TOPIC_ID)
    return fields[1]
