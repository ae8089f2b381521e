"""Read checkpoints as a broker does: some faults end the process, others take only the log dir offline.

Sources: ``CheckpointFile``, ``LeaderEpochCheckpointFile`` and ``OffsetCheckpointFile`` of Kafka 4.3. A malformed number
is a NumberFormatException, a wrong count an IOException. Only the IOException is limited to the log dir.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TypeVar

from kseg.format.log_loader.refusals import OfflineError, RefusedError
from kseg.format.record.layout import INT32_MAX, INT64_MAX
from kseg.format.sidefiles.checkpoints import LEADER_EPOCHS, CheckpointOffset, LeaderEpoch
from kseg.text import count_of

#: The largest text that is read; the checkpoint of a log dir with 200,000 partitions has 10 MB.
MAX_TEXT = 64 << 20
#: A list of more entries needs more memory than Kafka's start script gives the JVM.
_MAX_COUNT = 200_000_000
_NUMBER = re.compile(r"[+-]?[0-9]+")
# Java's "\\s+" knows no other white space.
_SPACES = re.compile(r"[ \t\n\x0b\f\r]+")
_LINE_END = re.compile(r"\r\n|\r|\n")

_Entry = TypeVar("_Entry")


def read_epochs(data: bytes) -> list[LeaderEpoch]:
    """Return the entries of a ``leader-epoch-checkpoint``. Raises OfflineError, RefusedError."""

    def entry(fields: list[str]) -> LeaderEpoch:
        return LeaderEpoch(_parsed(fields[0], INT32_MAX, LEADER_EPOCHS), _parsed(fields[1], INT64_MAX, LEADER_EPOCHS))

    return list(_entries(data, LEADER_EPOCHS, 2, entry))


def read_offsets(data: bytes, name: str) -> list[CheckpointOffset]:
    """Return the entries of one of a log dir's checkpoints. Raises OfflineError, RefusedError."""

    def entry(fields: list[str]) -> CheckpointOffset:
        partition, offset = _parsed(fields[1], INT32_MAX, name), _parsed(fields[2], INT64_MAX, name)
        return CheckpointOffset(fields[0], partition, offset)

    return list(_entries(data, name, 3, entry))


def text_lines(data: bytes, name: str) -> list[str]:
    """Return the lines of a small file of UTF-8 text. Raises OfflineError."""
    if len(data) > MAX_TEXT:
        raise OfflineError(f"the file has more than {MAX_TEXT:,} bytes", name)
    try:
        lines = _LINE_END.split(data.decode())
    except UnicodeDecodeError as error:
        raise OfflineError(f"the file is not UTF-8 at byte {error.start}", name) from error
    return lines if lines[-1] else lines[:-1]


def split(pattern: re.Pattern[str], line: str) -> list[str]:
    """Split like Java's ``Pattern.split``: empty fields at the end are left out."""
    fields = pattern.split(line)
    while len(fields) > 1 and not fields[-1]:
        fields.pop()
    return fields


def number(text: str, largest: int) -> int | None:
    """Parse like ``Integer.parseInt`` or ``Long.parseLong``; None if these throw."""
    value = int(text) if len(text) < 1000 and _NUMBER.fullmatch(text) else None
    return value if value is not None and -largest - 1 <= value <= largest else None


def _entries(data: bytes, name: str, size: int, entry: Callable[[list[str]], _Entry]) -> Iterator[_Entry]:
    lines = text_lines(data, name)
    if not lines:
        return
    if number(lines[0], INT32_MAX) != 0:
        raise OfflineError(f"expected version 0, found {lines[0][:80]!r}", name)
    if len(lines) == 1:
        return
    count = number(lines[1], INT32_MAX)
    if count is None:
        raise OfflineError(f"expected a count, found {lines[1][:80]!r}", name)
    if not 0 <= count <= _MAX_COUNT:
        raise RefusedError(f"expected a count, found {count}", name)
    for line in lines[2:]:
        fields = split(_SPACES, line)
        if len(fields) != size:
            raise OfflineError(f"the line {line[:80]!r} has {count_of(len(fields), 'field')}, expected {size}", name)
        yield entry(fields)
    if len(lines) - 2 != count:
        raise OfflineError(f"expected {count} entries, found {len(lines) - 2}", name)


def _parsed(text: str, largest: int, name: str) -> int:
    value = number(text, largest)
    if value is None:
        raise RefusedError(f"{text[:80]!r} is not a number that fits", name)
    return value
