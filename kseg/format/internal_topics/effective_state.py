"""The effective state of a partition of an internal topic: the state that a broker has after loading it.

Coordinators keep the last value of each key until a tombstone. Offsets committed in a transaction take effect at its end,
unless a tombstone of their key comes before it. KRaft loads the newest snapshot and then the log after it, and has its own
transactions (KIP-868).
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from kseg.errors import UnreadableError
from kseg.findings import Finding, Report, do_nothing
from kseg.format.internal_topics.decode import DecodedRecord, SnapshotEnds, decode
from kseg.format.internal_topics.metadata_loading import lost_start, newest_sources, report_lost_segments
from kseg.format.internal_topics.state import (
    CLUSTER,
    OFFSET_COMMIT,
    REMOTE,
    Data,
    Item,
    LatestValues,
    Moment,
    RecordPlace,
    State,
    entity_of,
    place_of,
)
from kseg.format.messages.message_reader import jsonable
from kseg.format.record.layout import INT32_MAX
from kseg.format.record.memory import Needle
from kseg.format.segment.records_chunk import Chunk, record_finding
from kseg.format.segment.row_filter import RecordCondition, among_rows, rows_with
from kseg.format.segment.segment_chunks import chunks_of
from kseg.format.storage.naming import (
    CLUSTER_METADATA,
    CONSUMER_OFFSETS,
    REMOTE_LOG_METADATA,
    TRANSACTION_STATE,
    is_snapshot,
)
from kseg.format.storage.source import open_source

# The version at the start of a key.
_VERSION = 2


@dataclass(frozen=True, slots=True)
class Owner(RecordCondition):
    """A group or a transactional id, as the condition on its records: ``topic`` is that of its coordinator."""

    topic: str
    name: str

    @classmethod
    def of(cls, group: str | None, transactional_id: str | None) -> Owner | None:
        """Return the owner with one of these names, None if both are None."""
        if group is not None:
            return cls(CONSUMER_OFFSETS, group)
        return None if transactional_id is None else cls(TRANSACTION_STATE, transactional_id)

    @property
    def hash(self) -> int:
        """The number whose remainder by the number of partitions is its partition.

        Sources: ``GroupCoordinatorService.partitionFor``, ``TransactionStateManager.partitionFor``, ``Utils.abs``.
        """
        number = _java_hash(self.name)
        return 0 if number == -INT32_MAX - 1 else abs(number)

    def partition(self, partitions: int) -> int:
        """Return its partition in a topic of ``partitions`` partitions."""
        return self.hash % partitions

    def has_key(self, key: bytes | None) -> bool:
        """Return whether a key is that of a record of this owner: its first field is the name, in all versions."""
        return key is not None and key[_VERSION:].startswith(self._field)

    def rows(self, chunk: Chunk, among: Sequence[int]) -> Sequence[int]:
        found = among_rows(rows_with(chunk, (Needle(self._field),)), chunk, among)
        return [i for i in found if self.has_key(chunk.key(i))]

    def matches(self, chunk: Chunk, i: int) -> Iterator[tuple[str, str]]:
        yield "key", self.name

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


#: The fields of a key that name its owner: a group or a transactional id.
_OWNERS = ("group", "groupId", "transactionalId")
_EVENTS = {CLUSTER_METADATA: CLUSTER, REMOTE_LOG_METADATA: REMOTE}
_MARKERS = ("COMMIT", "ABORT")
_NO_PRODUCER = -1
_BEGIN, _END, _ABORT = "BeginTransaction", "EndTransaction", "AbortTransaction"


@dataclass(slots=True)
class Space:
    """The space used by the records of one entity and owner: bytes of keys and values, before compression.

    ``live_records`` and ``live_bytes`` count the latest values; the cleaner removes the others. They are None for topics
    that are not keyed.
    """

    entity: str
    owner: str | None
    records: int = 0
    bytes: int = 0
    tombstones: int = 0
    live_records: int | None = None
    live_bytes: int | None = None


class Write(NamedTuple):
    """A record and its place."""

    key: bytes | None
    value: bytes | None
    at: RecordPlace


class Effective:
    """Applies the records of one partition in offset order. ``items`` and ``spaces`` return the result.

    ``later`` has the keys of the records that were left out because they are later, each with its first offset. ``end`` are
    the offset after the last batch and its leader epoch. ``whole`` is False after an error: records can be missing.

    Sources: ``CoordinatorLoaderImpl``, ``GroupCoordinatorShard.replay``, ``OffsetMetadataManager.replay``.
    """

    def __init__(self, topic: str, owner: Owner | None = None) -> None:
        self.later: dict[bytes | None, int] = {}
        self.end = (0, -1)
        self.whole = True
        self._owner = owner
        self._events = _EVENTS.get(topic)
        self._topic = topic
        self._state = LatestValues(topic) if self._events is None else State()
        self._open: defaultdict[int, LatestValues] = defaultdict(lambda: LatestValues(topic))
        self._begun: list[Write] | None = None
        self._spaces: dict[tuple[str, str | None], Space] = {}

    @property
    def keyed(self) -> bool:
        """Whether the topic is compacted: its state has the latest value of each key."""
        return self._events is None

    def noting(self, report: Report) -> Report:
        """Return what passes findings on to ``report``, and notes errors in ``whole``."""

        def noted(finding: Finding) -> None:
            self.whole = self.whole and not finding.is_error
            report(finding)

        return noted

    def apply(self, chunk: Chunk, first_offset: int, at: Moment | None = None, report: Report = do_nothing) -> None:
        """Apply the records of a chunk whose offset is at least ``first_offset``, with ``at`` those until this moment.

        Report ``internal-record`` for each of them that Kafka cannot load.
        """
        batches, offsets = chunk.batches, chunk.lists.offset
        for row in range(chunk.first, chunk.stop):
            if batches.last_offset[row] >= first_offset:
                self.end = batches.last_offset[row] + 1, batches.partition_leader_epoch[row]
            if not batches.record_total[row]:
                continue
            producer = batches.producer_id[row] if batches.magic[row] >= 2 else _NO_PRODUCER
            for i in chunk.rows(row):
                if offsets[i] < first_offset:
                    continue
                control = chunk.control(i)
                if at is not None and at.is_before(offsets[i], chunk.lists.timestamp[i]):
                    if control is None:
                        self.later.setdefault(chunk.key(i), offsets[i])
                    continue
                if control is None:
                    if self._owner is None or self._owner.has_key(chunk.key(i)):
                        self._write(chunk, i, producer, report)
                elif control.type in _MARKERS and isinstance(self._state, LatestValues):
                    pending = self._open.pop(producer, None)
                    if pending is not None and control.type == "COMMIT":
                        self._state.commit(pending)

    def items(self) -> Iterator[Item]:
        """Yield the effective items, then as pending those of each open transaction."""
        yield from self._state
        begun = State()
        for write in self._begun or ():
            self._change(write, begun)
        yield from (replace(item, pending=True) for item in begun)
        for undecided in self._open.values():
            yield from (replace(item, pending=True) for item in undecided)

    def spaces(self) -> list[Space]:
        """Return the space used per entity and owner, the largest first."""
        if isinstance(self._state, LatestValues):
            for space in self._spaces.values():
                space.live_records = space.live_bytes = 0
            for entity, key, size in self._state.sizes():
                space = self._space(entity, owner_of(key))
                space.live_records = (space.live_records or 0) + 1
                space.live_bytes = (space.live_bytes or 0) + size
        return sorted(self._spaces.values(), key=lambda space: -space.bytes)

    def _write(self, chunk: Chunk, i: int, producer: int, report: Report) -> None:
        key, value = chunk.key(i), chunk.value(i)
        timestamp = chunk.lists.timestamp[i]
        size = len(key or b"") + len(value or b"")
        at = RecordPlace(chunk.lists.offset[i], None if timestamp < 0 else timestamp, size)
        decoded = decode(self._topic, key, value)
        if why := decoded.fault:
            report(record_finding("internal-record", chunk, i, topic=self._topic, why=why))
        self._count(decoded, at)
        write = Write(key, value, at)
        if isinstance(self._state, LatestValues):
            self._set(write, self._state, decoded, producer)
        elif self._events is CLUSTER:
            self._apply_kraft(write, self._state, decoded)
        else:
            self._change(write, self._state, decoded)

    def _set(self, write: Write, state: LatestValues, decoded: DecodedRecord, producer: int) -> None:
        """Set the value of a key, or remove the key.

        A commit of a producer is pending until its marker. A tombstone takes effect at once, also on the pending commits
        of all producers, and so do records of other types (``OffsetMetadataManager.replay``).
        """
        place, is_commit = place_of(decoded), (entity := entity_of(decoded.key)) == OFFSET_COMMIT
        if entity == "ShareSnapshot":
            state.remove(place_of(decoded, "ShareUpdate"))  # it has the older ones (ShareCoordinatorShard.replay)
        if write.value is None:
            for one in (state, *(self._open.values() if is_commit else ())):
                one.remove(place)
        elif is_commit and producer != _NO_PRODUCER:
            self._open[producer].put(place, write.key, write.value, write.at)
        else:
            state.put(place, write.key, write.value, write.at)

    def _apply_kraft(self, write: Write, state: State, decoded: DecodedRecord) -> None:
        name = decoded.value.name if decoded.value else None
        if name == _BEGIN:
            self._begun = []
        elif name in (_END, _ABORT):
            begun, self._begun = self._begun or [], None
            for one in begun if name == _END else ():
                self._change(one, state)
        elif self._begun is not None:
            self._begun.append(write)
        else:
            self._change(write, state, decoded)

    def _change(self, write: Write, state: State, decoded: DecodedRecord | None = None) -> None:
        value = (decoded or decode(self._topic, write.key, write.value)).value
        if value and value.data is not None and value.name is not None and self._events and value.name in self._events:
            self._events[value.name](state, jsonable(value.data), write.at)

    def _count(self, decoded: DecodedRecord, at: RecordPlace) -> None:
        key, value = decoded.key, decoded.value
        half = key if self._events is None else value
        space = self._space(entity_of(half), owner_of(key.data) if key and key.data else None)
        space.records += 1
        space.bytes += at.size
        space.tombstones += value is None

    def _space(self, entity: str, owner: str | None) -> Space:
        return self._spaces.setdefault((entity, owner), Space(entity, owner))


def owner_of(key: Data) -> str | None:
    """Return the group or transactional id in a key, None for a key of another kind."""
    return next((str(key[name]) for name in _OWNERS if name in key), None)


def topic_names(items: Iterable[Item]) -> dict[str, str]:
    """Return topic names by topic id, for the topics among the items."""
    return {item.key["topicId"]: item.data["name"] for item in items if item.entity == "topic"}


def effective(
    topic: str,
    paths: Sequence[str],
    report_of: Callable[[str], Report],
    owner: Owner | None = None,
    at: Moment | None = None,
) -> Effective:
    """Return the effective state of one partition; ``paths`` are its segments in offset order.

    ``report_of`` returns the report callback for a path. With ``owner`` only its records are read, with ``at`` only those
    until that moment. Records that are missing in a metadata log are reported. Raises UnreadableError, also if the log no
    longer has a metadata state of that moment, and NotASegmentError.
    """
    found = Effective(topic, owner)
    sources = list(newest_sources(paths, at))
    begin, start = (topic == CLUSTER_METADATA and lost_start(sources)) or (None, 0)
    if begin is not None and at is not None:
        raise UnreadableError(
            f"{begin}: the state at that time is not known: no snapshot from before it is left, and the log begins "
            f"at offset {start}"
        )
    previous = ""
    for path, first_offset in sources:
        report = found.noting(report_of(path))
        if path == begin:
            report(Finding("metadata-snapshot-missing", 0, facts={"offset": start}))
        elif topic == CLUSTER_METADATA and found.whole and not is_snapshot(path):
            report_lost_segments(path, max(found.end[0], first_offset), previous, report)
        previous = path
        ends = SnapshotEnds()
        # The records of a snapshot have offsets of their own.
        until = None if is_snapshot(path) else at
        source = open_source(path)
        size = source.size or 0
        for chunk in chunks_of(source, report):
            found.apply(chunk, first_offset, until, report)
            ends.append(chunk)
        if is_snapshot(path):
            ends.check(size, report)  # without its end it lacks a part of the state
    return found
