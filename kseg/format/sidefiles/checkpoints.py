"""Checkpoint files: small texts with a version, a count, and one line per entry, which a broker keeps next to its logs.

    checkpoint := "0" count line*        -- one line each; a file may be empty
    line       := epoch startOffset      -- leader-epoch-checkpoint, of a partition (KIP-101)
                | topic partition offset -- of a log dir: recovery-point-, replication-, log-start-, cleaner-offset-

Sources: ``CheckpointFile``, ``LeaderEpochCheckpointFile``, ``OffsetCheckpointFile``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeVar

from kseg.errors import KsegError, VanishedError
from kseg.findings import Finding, Report, do_nothing
from kseg.format.record.layout import INT32_MAX, INT64_MAX
from kseg.format.sidefiles.side_file_reading import entries_of, lines
from kseg.format.storage import local_files
from kseg.format.storage.naming import LEADER_EPOCHS, partition_of
from kseg.format.storage.segment_files import path_in
from kseg.format.storage.source import Source

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


_Entry = TypeVar("_Entry", LeaderEpoch, CheckpointOffset)

_NUMBER = rb"\+?(\d{1,19})"
_INTEGER = re.compile(rb"[+-]?\d{1,10}")
_LEADER_EPOCH = re.compile(rb"%s\s+%s\s*" % (_NUMBER, _NUMBER))
_CHECKPOINT_OFFSET = re.compile(rb"(\S+)\s+%s\s+%s\s*" % (_NUMBER, _NUMBER))


def walk_leader_epochs(source: Source, report: Report = do_nothing) -> Iterator[tuple[int, LeaderEpoch]]:
    """Yield (byte, entry) of each line of a ``leader-epoch-checkpoint``."""
    before: LeaderEpoch | None = None
    for at, entry in _walk(source, _leader_epoch, "EPOCH OFFSET", report):
        if before and (entry.epoch <= before.epoch or entry.start_offset <= before.start_offset):
            facts = {**entry._asdict(), "previous": before.epoch, "previous_start": before.start_offset}
            report(Finding("epoch-not-increasing", at, offset=entry.start_offset, facts=facts))
        yield at, entry
        before = entry


def walk_offset_checkpoint(source: Source, report: Report = do_nothing) -> Iterator[tuple[int, CheckpointOffset]]:
    """Yield (byte, entry) of each line of an offset checkpoint of a log dir."""
    seen: set[tuple[str, int]] = set()
    for at, entry in _walk(source, _checkpoint_offset, "TOPIC PARTITION OFFSET", report):
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


def checkpoint_offsets(path: str) -> dict[tuple[str, int], int]:
    """Return the offsets of a checkpoint by topic and partition: none if it does not exist, or if a broker rejects it.

    Raises UnreadableError.
    """
    try:
        entries = entries_of(path, walk_offset_checkpoint, HARMLESS) if local_files.exists(path) else []
    except (VanishedError, ValueError):
        return {}
    return {entry[:2]: entry.offset for entry in entries}


def _leader_epoch(line: bytes) -> LeaderEpoch | None:
    match = _LEADER_EPOCH.fullmatch(line)
    epoch, start = (int(match[1]), int(match[2])) if match else (-1, -1)
    return LeaderEpoch(epoch, start) if 0 <= epoch <= INT32_MAX and 0 <= start <= INT64_MAX else None


def _checkpoint_offset(line: bytes) -> CheckpointOffset | None:
    match = _CHECKPOINT_OFFSET.fullmatch(line)
    if not match or int(match[2]) > INT32_MAX or int(match[3]) > INT64_MAX:
        return None
    try:
        return CheckpointOffset(match[1].decode(), int(match[2]), int(match[3]))
    except UnicodeDecodeError:
        return None


def _walk(
    source: Source, parse: Callable[[bytes], _Entry | None], expected: str, report: Report
) -> Iterator[tuple[int, _Entry]]:
    """Yield the lines that can be read. Report the other lines, and a count that differs from the number of lines."""
    head = _count(read := lines(source, report), report)
    if head is None:
        return
    count_at, wanted = head
    found = malformed = 0
    for at, line in read:
        entry = parse(line)
        if entry is None:
            malformed += 1
            _malformed(at, line, f"expected {expected}", report)
            continue
        found += 1
        yield at, entry
    if found != wanted and not malformed:
        report(Finding("checkpoint-count", count_at, facts={"count": wanted, "found": found}))


def _count(read: Iterator[tuple[int, bytes]], report: Report) -> tuple[int, int] | None:
    """Return the position and the value of the count, None if the entries can't be read."""
    first = next(read, None)
    if first is None:
        return None
    at, line = first
    if not _INTEGER.fullmatch(line) or int(line) != VERSION:
        _malformed(at, line, f"expected the version, {VERSION}", report)
        return None
    at, line = next(read, (0, b"0"))
    if not _INTEGER.fullmatch(line) or int(line) < 0:
        _malformed(at, line, "expected the number of entries", report)
        return None
    return at, int(line)


def _malformed(at: int, line: bytes, why: str, report: Report) -> None:
    facts = {"line": line[:80].decode("utf-8", "backslashreplace"), "why": why}
    report(Finding("checkpoint-malformed", at, at + len(line), facts=facts))


def stored_leader_epochs(folder: str | Path) -> list[LeaderEpoch] | None:
    """Return the entries of a partition's checkpoint; None without a checkpoint that a broker can read."""
    try:
        return entries_of(path_in(str(folder), LEADER_EPOCHS), walk_leader_epochs, HARMLESS)
    except (KsegError, ValueError):
        return None
