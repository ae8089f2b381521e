"""Checkpoint files: small texts with a version, a count, and one line per entry, which a broker keeps next to its logs.

    checkpoint := "0" count line*        -- one line each; a file may be empty
    line       := epoch startOffset      -- leader-epoch-checkpoint, of a partition (KIP-101)
                | topic partition offset -- of a log dir: recovery-point-, replication-, log-start-, cleaner-offset-

Sources: ``CheckpointFile``, ``LeaderEpochCheckpointFile``, ``OffsetCheckpointFile``.
"""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from kseg.errors import UnreadableError, VanishedError
from kseg.findings import STARTS, Finding, Report, do_nothing
from kseg.format.record.layout import INT32_MAX, INT64_MAX
from kseg.format.sidefiles.side_file_reading import entries_of, lines
from kseg.format.storage import java_text, local_files
from kseg.format.storage.local_files import SpecialFileError
from kseg.format.storage.naming import CLEANER_OFFSETS, LEADER_EPOCHS, LOG_STARTS, RECOVERY_POINTS, partition_of
from kseg.format.storage.segment_files import path_in
from kseg.format.storage.source import Source, Stamp, stamp_of
from kseg.text import count_of, excerpt

#: The suffix of the epochs of a remote segment (LocalTieredStorage).
REMOTE_LEADER_EPOCHS = ".leader_epoch_checkpoint"
VERSION = 0

#: The most partitions that are remembered to find duplicates. No log dir has as many.
MAX_PARTITIONS = 200_000
#: Findings despite which a broker reads the checkpoint: of contradictory entries it uses the last one.
HARMLESS = ("epoch-not-increasing", "checkpoint-duplicate")


class LeaderEpoch(NamedTuple):
    """A leader epoch, and the first offset that its leader wrote or could have written."""

    epoch: int
    start_offset: int


class CheckpointOffset(NamedTuple):
    """An offset of a partition. The file's name says which offset: the recovery point, high watermark, ..."""

    topic: str
    partition: int
    offset: int


#: A list of more entries needs more memory than Kafka's start script gives the JVM.
_MAX_COUNT = 200_000_000
#: The largest file that is read at once; one with 200,000 partitions has 10 MB.
MAX_TEXT = 64 << 20
#: Checkpoints despite which a broker starts if their reader throws a RuntimeException: ``LogManager`` takes two for empty,
#: and the third one ends only the log cleaner.
_STARTS_WITHOUT = (RECOVERY_POINTS, LOG_STARTS, CLEANER_OFFSETS)

_Entry = TypeVar("_Entry", LeaderEpoch, CheckpointOffset)


class _Form(NamedTuple, Generic[_Entry]):
    """The form of a line: the names of its fields, and the constructor of an entry, which raises FileFault."""

    fields: str
    entry: Callable[[list[str]], _Entry]


class _Fault(NamedTuple):
    """A line at which Kafka's reader throws if no line before it is one, with the rule and the facts of the finding."""

    at: int
    end: int | None
    fault: java_text.FileFault
    rule: str
    facts: dict[str, Any]


def walk_leader_epochs(source: Source, report: Report = do_nothing) -> Iterator[tuple[int, LeaderEpoch]]:
    """Yield (byte, entry) of each line of a ``leader-epoch-checkpoint``."""
    before: LeaderEpoch | None = None
    for at, entry in _walk(source, _LEADER_EPOCH, report):
        if min(entry) < 0:
            _report_negative(at, entry, report, starts=False)
            continue
        if before and (entry.epoch <= before.epoch or entry.start_offset <= before.start_offset):
            facts = {**entry._asdict(), "previous": before.epoch, "previous_start": before.start_offset}
            report(Finding("epoch-not-increasing", at, offset=entry.start_offset, facts=facts))
        yield at, entry
        before = entry


def walk_offset_checkpoint(source: Source, report: Report = do_nothing) -> Iterator[tuple[int, CheckpointOffset]]:
    """Yield (byte, entry) of each line of an offset checkpoint of a log dir."""
    seen: set[tuple[str, int]] = set()
    for at, entry in _walk(source, _OFFSET, report):
        if min(entry.partition, entry.offset) < 0:
            _report_negative(at, entry, report, starts=True)
            continue
        if entry[:2] in seen:
            report(Finding("checkpoint-duplicate", at, offset=entry.offset, facts=entry._asdict()))
        elif len(seen) < MAX_PARTITIONS:
            seen.add(entry[:2])
        yield at, entry


def checkpoint_offset(folder: str, name: str) -> int | None:
    """Return the offset of a partition in a checkpoint of its log directory.

    Args:
        folder: The path of the partition's folder.
        name: The file name of the checkpoint, such as ``log-start-offset-checkpoint``.

    Returns:
        None if the checkpoint does not exist, does not list the partition, or is one that a broker rejects.

    Raises:
        UnreadableError: The checkpoint exists, and cannot be read.
    """
    log_dir, folder_name = os.path.split(local_files.absolute(folder))
    partition = partition_of(folder_name)
    return None if partition is None else checkpoint_offsets(os.path.join(log_dir, name)).get(partition[:2])


def checkpoint_offsets(path: str) -> Mapping[tuple[str, int], int]:
    """Return the offsets of a checkpoint by topic and partition: none if it does not exist, or if a broker rejects it.

    The last ones are kept, as long as the file is the same: it is asked for each partition, and has a line for each.

    Raises UnreadableError.
    """
    stamp = stamp_of(path)
    return _read_offsets(path) if stamp is None else _offsets_of_version(path, stamp)


@lru_cache(maxsize=16)
def _offsets_of_version(path: str, stamp: Stamp) -> Mapping[tuple[str, int], int]:
    return _read_offsets(path)


def _read_offsets(path: str) -> Mapping[tuple[str, int], int]:
    try:
        entries = entries_of(path, walk_offset_checkpoint, HARMLESS)
    except (VanishedError, ValueError):
        return {}
    return {entry[:2]: entry.offset for entry in entries}


def read_leader_epochs(data: bytes) -> list[LeaderEpoch]:
    """Return the entries as a broker reads them. Raises the FileFault of its reader."""
    return _whole(data, _LEADER_EPOCH)


def read_checkpoint_offsets(data: bytes) -> list[CheckpointOffset]:
    """Return the entries as a broker reads them. Raises the FileFault of its reader."""
    return _whole(data, _OFFSET)


def _whole(data: bytes, form: _Form[_Entry]) -> list[_Entry]:
    if len(data) > MAX_TEXT:
        raise java_text.FileFault(f"the file has more than {MAX_TEXT:,} bytes")
    java_text.decoded(data)  # Kafka's reader decodes a block before it looks at its lines
    entries = []
    for one in _read(java_text.lines_of(data), form):
        if isinstance(one, _Fault):
            raise one.fault
        entries.append(one[1])
    return entries


def _walk(source: Source, form: _Form[_Entry], report: Report) -> Iterator[tuple[int, _Entry]]:
    """Yield the lines that can be read. Report the other lines, and a count that differs from the number of lines."""
    name, first = os.path.basename(source.name), None
    for one in _read(lines(source, report), form):
        if not isinstance(one, _Fault):
            yield one
            continue
        first = first or one.fault
        starts = isinstance(first, java_text.UncheckedFault) and name in _STARTS_WITHOUT
        starts = starts and (name == CLEANER_OFFSETS or not isinstance(first, java_text.MemoryFault))
        report(Finding(one.rule, one.at, one.end, facts=one.facts | ({STARTS: True} if starts else {})))


def _read(read: Iterable[tuple[int, bytes]], form: _Form[_Entry]) -> Iterator[tuple[int, _Entry] | _Fault]:
    """Yield (byte, entry) and faults in the order of ``CheckpointReadBuffer.read``, which ends at the first fault."""
    count_at = wanted = found = 0
    faults = False
    for row, (at, line) in enumerate(read):
        entry = None
        try:
            text = java_text.decoded(line)
            if row == 0:
                _check_version(text)
            elif row == 1:
                count_at, wanted = at, _count(text)
            else:
                entry = form.entry(_fields(text, len(form.fields.split())))
        except java_text.FileFault as fault:
            faults = True
            expected = ("the version, 0", "the number of entries", form.fields)[min(row, 2)]
            facts = {"line": line[:80].decode("utf-8", "backslashreplace"), "why": f"expected {expected}"}
            yield _Fault(at, at + len(line), fault, "checkpoint-malformed", facts)
            if row < 2 and not isinstance(fault, java_text.MemoryFault):
                return
        if entry is not None:
            found += 1
            yield at, entry
    if found != wanted and not faults:
        wrong = java_text.FileFault(f"expected {wanted} entries, found {found}")
        yield _Fault(count_at, None, wrong, "checkpoint-count", {"count": wanted, "found": found})


def _check_version(text: str) -> None:
    if java_text.number(text, INT32_MAX) != VERSION:
        raise java_text.FileFault(f"expected version {VERSION}, found {excerpt(text)}")


def _count(text: str) -> int:
    count = java_text.number(text, INT32_MAX)
    if count is None:
        raise java_text.FileFault(f"expected a count, found {excerpt(text)}")
    if count < 0:
        raise java_text.UncheckedFault(f"expected a count, found {count}")
    if count > _MAX_COUNT:
        raise java_text.MemoryFault(f"it announces {count:,} entries, more than a broker has memory for")
    return count


def _fields(text: str, size: int) -> list[str]:
    fields = java_text.split(java_text.WHITE_SPACE, text)
    if len(fields) != size:
        raise java_text.FileFault(f"the line {excerpt(text)} has {count_of(len(fields), 'field')}, expected {size}")
    return fields


def _parsed(text: str, largest: int) -> int:
    value = java_text.number(text, largest)
    if value is None:
        raise java_text.UncheckedFault(f"{excerpt(text)} is not a number that fits")
    return value


_LEADER_EPOCH = _Form(
    "EPOCH OFFSET", lambda fields: LeaderEpoch(_parsed(fields[0], INT32_MAX), _parsed(fields[1], INT64_MAX))
)
_OFFSET = _Form(
    "TOPIC PARTITION OFFSET",
    lambda fields: CheckpointOffset(fields[0], _parsed(fields[1], INT32_MAX), _parsed(fields[2], INT64_MAX)),
)


def _report_negative(at: int, entry: LeaderEpoch | CheckpointOffset, report: Report, *, starts: bool) -> None:
    """Report a number below 0, which Kafka's reader accepts."""
    facts = {"line": " ".join(map(str, entry)), "why": "a number is below 0"}
    report(Finding("checkpoint-malformed", at, facts=facts | ({STARTS: True} if starts else {})))


def stored_leader_epochs(folder: str | Path) -> list[LeaderEpoch] | None:
    """Return the entries of a partition's checkpoint; None without one, or if a broker rejects it.

    Raises UnreadableError: the checkpoint exists, and cannot be read.
    """
    try:
        return entries_of(path_in(str(folder), LEADER_EPOCHS), walk_leader_epochs, HARMLESS)
    except (VanishedError, SpecialFileError, ValueError):  # special files are skipped, with a warning of the listing
        return None


def known_leader_epochs(folder: str | Path) -> list[LeaderEpoch]:
    """Return the entries that can be read, for a check of batches: the file itself is checked elsewhere."""
    with suppress(UnreadableError):
        return stored_leader_epochs(folder) or []
    return []


def epochs_of(entries: Sequence[LeaderEpoch], start: int, end: int) -> set[int]:
    """Return the leader epochs that offsets ``start`` to ``end`` (exclusive) have by a partition's checkpoint."""
    starts = [entry.start_offset for entry in entries]
    first = max(bisect_right(starts, start) - 1, 0)
    return {entry.epoch for entry in entries[first : bisect_left(starts, end)]}
