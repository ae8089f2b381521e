"""The small files that a broker reads while it loads a partition, and the faults in them that end or limit it.

Some faults end the process, others take only the log dir offline. Sources: ``CheckpointFile``,
``LeaderEpochCheckpointFile``, ``OffsetCheckpointFile``, ``PartitionMetadataReadBuffer`` and ``Uuid.fromString`` of Kafka
4.3. A malformed number of a checkpoint is a NumberFormatException, a wrong count an IOException. Only the IOException is
limited to the log dir. The leader epochs are a model of ``LeaderEpochFileCache``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from kseg.errors import NotASegmentError
from kseg.findings import Finding
from kseg.format.record.layout import INT32_MAX, INT64_MAX
from kseg.format.segment.segment_reader import SegmentReader
from kseg.format.sidefiles.checkpoints import CheckpointOffset, LeaderEpoch
from kseg.format.storage.naming import LEADER_EPOCHS, PARTITION_METADATA, snapshot_id
from kseg.format.storage.source import open_source
from kseg.text import count_of, excerpt


class RefusedError(Exception):
    """A fault that ends the broker. ``why`` is the reason in one line; ``file`` is a name, None for the current file."""

    def __init__(self, why: str, file: str | None = None) -> None:
        super().__init__(why)
        self.why = why
        self.file = file


class OfflineError(RefusedError):
    """A fault that takes the log dir offline. Without another log dir the broker ends."""


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
        raise OfflineError(f"expected version 0, found {excerpt(lines[0])}", name)
    if len(lines) == 1:
        return
    count = number(lines[1], INT32_MAX)
    if count is None:
        raise OfflineError(f"expected a count, found {excerpt(lines[1])}", name)
    if not 0 <= count <= _MAX_COUNT:
        raise RefusedError(f"expected a count, found {count}", name)
    for line in lines[2:]:
        fields = split(_SPACES, line)
        if len(fields) != size:
            raise OfflineError(f"the line {excerpt(line)} has {count_of(len(fields), 'field')}, expected {size}", name)
        yield entry(fields)
    if len(lines) - 2 != count:
        raise OfflineError(f"expected {count} entries, found {len(lines) - 2}", name)


def _parsed(text: str, largest: int, name: str) -> int:
    value = number(text, largest)
    if value is None:
        raise RefusedError(f"{excerpt(text)} is not a number that fits", name)
    return value


_SEPARATOR = re.compile(r":[ \t\n\x0b\f\r]+")
_METADATA_NUMBER = re.compile(r"[+-]?[0-9]{1,10}")
_UUID = re.compile(r"[A-Za-z0-9_-]{22}(==)?")
_ZERO = "A" * 22


def check_topic_id(data: bytes) -> None:
    """Raise OfflineError or RefusedError unless a broker can read a topic id from the file."""
    lines = text_lines(data, PARTITION_METADATA)
    version = _value(lines, 0)
    if not _METADATA_NUMBER.fullmatch(version) or not 0 <= int(version) <= INT32_MAX:
        raise OfflineError(f"its version is {excerpt(version)}", PARTITION_METADATA)
    topic_id = _value(lines, 1)
    if not _UUID.fullmatch(topic_id):
        raise RefusedError(f"its topic id is {excerpt(topic_id)}", PARTITION_METADATA)
    if topic_id.startswith(_ZERO):
        raise OfflineError("its topic id is zero", PARTITION_METADATA)


def check_kraft_snapshot(folder: str, snapshots: Iterable[str], log_start: int) -> None:
    """Raise RefusedError unless a broker can start from the newest snapshot of ``__cluster_metadata``.

    An incomplete last batch is not noticed. ``log_start`` is the first offset of the log.
    """
    newest = max(snapshots, default=None)
    end = (snapshot_id(newest) or (0, 0))[0] if newest else 0
    if log_start > end:  # KafkaRaftLog.recoverSnapshots
        raise RefusedError(f"the log begins at offset {log_start}, and no snapshot has the records before it")
    if newest is None:
        return
    found: list[Finding] = []
    try:
        with SegmentReader(open_source(os.path.join(folder, newest)), report=found.append) as reader:
            batches = sum(window.batches.count for window in reader.windows())
    except NotASegmentError as error:
        raise RefusedError("the snapshot of the metadata is damaged", newest) from error
    if not batches or any(finding.rule != "truncated-tail" for finding in found):
        why = found[0].message if found else "no batch is in it"
        raise RefusedError(f"the snapshot of the metadata is damaged: {why}", newest)


def _value(lines: list[str], number: int) -> str:
    """Return the part of a line after its colon."""
    if number >= len(lines):
        raise RefusedError(f"expected 2 lines, found {len(lines)}", PARTITION_METADATA)
    fields = split(_SEPARATOR, lines[number])
    if len(fields) != 2:
        raise OfflineError(f"the line {excerpt(lines[number])} is not a name and a value", PARTITION_METADATA)
    return fields[1]


class LeaderEpochCache:
    """Leader epochs in order. A checkpoint's entries are added one by one; a later line replaces contradictory earlier
    ones.

    ``log_end`` is the offset after the last record. Raises RefusedError for an epoch or an offset below 0.
    """

    def __init__(self, stored: Sequence[LeaderEpoch] = (), log_end: int = 0) -> None:
        self.entries: list[LeaderEpoch] = []
        self.log_end = log_end
        self._stored = stored
        for entry in stored:
            self._assign(entry)

    @property
    def changed(self) -> bool:
        """Whether the epochs differ from the stored ones."""
        return self.entries != list(self._stored)

    @property
    def latest(self) -> int:
        """The latest leader epoch, -1 without one."""
        return self.entries[-1].epoch if self.entries else -1

    @property
    def order(self) -> tuple[int, int]:
        """Replicas in the order in which they can lead: the latest leader epoch, then the log end (KIP-101)."""
        return self.latest, self.log_end

    def assign(self, epoch: int, start_offset: int) -> None:
        """Add the epoch of a recovered batch if it is later than all others. Raises RefusedError."""
        if epoch > self.latest:
            self._assign(LeaderEpoch(epoch, start_offset))

    def end_offset_for(self, epoch: int) -> tuple[int, int] | None:
        """Return the largest known epoch <= ``epoch`` and its end offset, or None, as OffsetsForLeaderEpoch does.

        An epoch before all known ones ends where the first of these begins (``LeaderEpochFileCache.endOffsetFor``).
        """
        known = [entry for entry in self.entries if entry.epoch <= epoch]
        later = [entry.start_offset for entry in self.entries if entry.epoch > epoch]
        if not self.entries:
            return None
        return known[-1].epoch if known else epoch, min(later, default=self.log_end)

    def truncate_from_end(self, log_start: int, log_end: int) -> None:
        """Remove epochs that begin at the log's end or after it. The last epoch before the log's start now begins
        there.
        """
        kept = [entry for entry in self.entries if entry.start_offset < log_end]
        below = [entry for entry in kept if entry.start_offset <= log_start]
        if below:
            kept[: len(below)] = [below[-1]._replace(start_offset=log_start)]
        self.entries = kept

    def _assign(self, entry: LeaderEpoch) -> None:
        entries = self.entries
        if entry.epoch < 0 or entry.start_offset < 0:
            raise RefusedError(f"leader epoch {entry.epoch} begins at offset {entry.start_offset}", LEADER_EPOCHS)
        if entries and entry.epoch == entries[-1].epoch and entry.start_offset >= entries[-1].start_offset:
            return
        while entries and (entries[-1].epoch >= entry.epoch or entries[-1].start_offset >= entry.start_offset):
            entries.pop()
        entries.append(entry)


def truncation_offset(follower: LeaderEpochCache, leader: LeaderEpochCache) -> int | None:
    """Return the offset to which ``follower`` would truncate its log under ``leader``.

    None if the leader epochs do not decide it, as in logs of v0 and v1: the follower then truncates to its high watermark.

    Sources: KIP-101, KIP-279, ``LeaderEpochFileCache.endOffsetFor``, ``AbstractFetcherThread.getOffsetTruncationState``.
    """
    while follower.entries:
        latest = follower.entries[-1].epoch
        found = leader.end_offset_for(latest)
        if found is None:
            return None
        epoch, end = found
        own = follower.end_offset_for(epoch)
        if own is None:
            return min(end, follower.log_end)
        own_epoch, own_end = own
        if own_epoch == epoch:
            return min(own_end, end, follower.log_end)
        # The follower does not know the epoch of the answer: it truncates to its own smaller epoch and asks again.
        shorter = LeaderEpochCache(follower.entries, min(own_end, follower.log_end))
        shorter.truncate_from_end(0, own_end)
        if len(shorter.entries) == len(follower.entries):
            return None
        follower = shorter
    return None
