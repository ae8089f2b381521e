"""The commits, generations and members of one group over time, from the internal topics of its coordinator.

The cleaner keeps only the last record of a key. So the records before the last hole in the offsets are not counted: they
are the state at the start of the history.

Sources: ``OffsetMetadataManager.replay``, ``GroupMetadataManager.replay``, ``ShareCoordinatorShard.replay``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, NamedTuple, TypeVar

from kseg.commands.lag.committed_offsets import PartitionReplica, Place, commit_of
from kseg.errors import KsegError
from kseg.findings import Finding, Report
from kseg.format.internal_topics.decode import DecodedRecord, decode
from kseg.format.internal_topics.effective_state import Owner
from kseg.format.internal_topics.state import RecordPlace
from kseg.format.messages.message_reader import jsonable
from kseg.format.record.columns import CRC_BAD, BatchColumns
from kseg.format.record.layout import CONTROL, INT64_MAX
from kseg.format.segment.deep_reader import DeepIterator
from kseg.format.segment.records_chunk import Chunk, record_finding
from kseg.format.segment.segment_reader import SegmentReader, Window
from kseg.format.sidefiles.checkpoints import checkpoint_offset
from kseg.format.storage.naming import CLEANER_OFFSETS, SHARE_GROUP_STATE
from kseg.format.storage.process_pool import add_progress
from kseg.format.storage.source import local_size, open_source

#: The smallest slot of a history, in milliseconds.
MINUTE = 60_000
#: The most slots of all partitions together. Then slots are twice as wide.
MOST_CELLS = 200_000
_ENTITY = "GroupMetadata"
_PROTOCOLS = ("Consumer", "Share", "Streams")
# MemberState.STABLE.
_RECONCILED = 0

_NO_PRODUCER = -1

_Value = TypeVar("_Value")


class Timeline(Generic[_Value]):
    """The last value and a count in each slot of time that has any. ``width`` is that of a slot in milliseconds.

    ``before`` is the last value before the first slot. ``last_time`` is the latest time in epoch milliseconds, -1 for none.
    """

    def __init__(self, width: int = MINUTE) -> None:
        self.width = width
        self.slots: dict[int, tuple[int, _Value]] = {}
        self.before: _Value | None = None
        self.last_time = -1

    def add(self, time: int, value: _Value, count: int) -> bool:
        """Set the value of the slot of a time, and add to its count. Return whether the slot is new."""
        slot = time // self.width
        known = self.slots.get(slot)
        self.slots[slot] = (count + known[0] if known else count, value)
        self.last_time = max(self.last_time, time)
        return known is None

    def widen(self, width: int) -> None:
        """Merge slots into wider ones. ``width`` is a multiple of the width."""
        factor = width // self.width
        slots, self.slots, self.width = self.slots, {}, width
        for slot in sorted(slots):
            count, value = slots[slot]
            before = self.slots.get(slot // factor, (0,))[0]
            self.slots[slot // factor] = (before + count, value)

    def begin_at(self, first: int) -> None:
        """Remove the slots before ``first``; the last of their values is the one before."""
        removed = sorted(slot for slot in self.slots if slot < first)
        if removed:
            self.before = self.slots[removed[-1]][1]
            for slot in removed:
                del self.slots[slot]


@dataclass(frozen=True, slots=True)
class Committed:
    """A committed offset, None after its deletion. ``time`` is that of the commit in epoch milliseconds.

    In a share group it is the start offset, and ``delivered`` records after it need no delivery. ``consumed`` is the sum
    of the offsets by which the commits up to this one rose. ``expire_timestamp`` and ``topic_id`` are those of ``Commit``.
    """

    offset: int | None
    time: int
    delivered: int = 0
    consumed: int = 0
    expire_timestamp: int | None = None
    topic_id: str | None = None


@dataclass(frozen=True, slots=True)
class GroupState:
    """The generation (or epoch) of a group, the number of its members, and its state. A deleted group has no generation."""

    generation: int | None
    members: int
    state: str


@dataclass(slots=True)
class PartitionRead:
    """The folder of a partition that is read, its findings with their files, and why not all of it was read."""

    folder: str
    findings: list[tuple[str, Finding]] = field(default_factory=list)
    unread: str = ""

    def read(self, replica: PartitionReplica, look: Callable[[Window, DeepIterator, Report], None]) -> None:
        """Call ``look`` with each window of a replica's segments, what opens its records, and what reports its findings."""

        def report_of(path: str) -> Report:
            return lambda finding: self.findings.append((path, finding))

        try:
            for path in replica.segments:
                opener = DeepIterator(report_of(path))
                with SegmentReader(open_source(path), report=report_of(path)) as reader:
                    for window in reader.windows():
                        look(window, opener, report_of(path))
                add_progress(local_size(path) or 0)
        except KsegError as error:
            self.unread = str(error)


@dataclass(slots=True)
class GroupEvents(PartitionRead):
    """What one partition of an internal topic has of a group.

    ``states`` counts changes of the generation. ``complete_since`` is the time (epoch milliseconds) of the first record
    after which no record was removed, None without one. ``unknown`` counts records of types that Kafka 4.3 does not load.
    """

    width: int = MINUTE
    commits: dict[Place, Timeline[Committed]] = field(default_factory=dict)
    states: Timeline[GroupState] = field(default_factory=Timeline)
    protocol: str | None = None
    complete_since: int | None = None
    unknown: int = 0

    def __bool__(self) -> bool:
        return bool(self.commits or self.protocol)

    def timelines(self) -> Iterator[Timeline[Any]]:
        """Yield the timelines of commits, then that of states."""
        yield from self.commits.values()
        yield self.states

    def widen(self, width: int) -> None:
        """Merge the slots of all timelines into wider ones."""
        self.width = width
        for line in self.timelines():
            line.widen(width)


def read_group(
    replica: PartitionReplica, topic: str, group: str, until: int | None, topics: Mapping[str, str]
) -> GroupEvents:
    """Read what a partition of ``topic`` has of a group before ``until`` (epoch milliseconds).

    ``topics`` has the names of topics by id, for share groups.
    """
    events = GroupEvents(replica.folder)
    cleaned = checkpoint_offset(replica.folder, CLEANER_OFFSETS) or 0
    reading = _GroupReader(events, Owner(topic, group), INT64_MAX if until is None else until, topics)

    def look(window: Window, opener: DeepIterator, report: Report) -> None:
        reading.note_holes(window.batches, cleaned)
        for chunk in opener.chunks(window):
            reading.apply(chunk, report)

    events.read(replica, look)
    return events


class _PendingCommit(NamedTuple):
    """The last of several ``commits`` of a transaction for one partition. ``record`` is the offset of its record."""

    last: Committed
    record: int
    commits: int


class _GroupReader:
    """Applies the records of a group in the order of the log."""

    def __init__(self, events: GroupEvents, owner: Owner, until: int, topics: Mapping[str, str]) -> None:
        self._events = events
        self._owner = owner
        self._until = until
        self._topics = topics
        self._next: int | None = None
        self._time = -1
        self._cells = 0
        # By producer: the commits that wait for its marker.
        self._open: defaultdict[int, dict[Place, _PendingCommit]] = defaultdict(dict)
        # The offset of the record with the commit of a partition.
        self._records: dict[Place, int] = {}
        self._last: dict[Place, Committed] = {}
        self._generation: int | None = None
        self._group_epoch: int | None = None
        self._assignment = 0
        self._members: set[str] = set()
        self._current: dict[str, tuple[int, int]] = {}

    def note_holes(self, batches: BatchColumns, cleaned: int) -> None:
        """Begin the history again after each hole in the offsets, and after the offset up to which the cleaner was."""
        events = self._events
        for row in range(batches.count):
            if batches.crc_state[row] == CRC_BAD:
                continue
            base, last = batches.base_offset[row], batches.last_offset[row]
            is_sparse = batches.magic[row] >= 2 and batches.record_count[row] != last - base + 1
            if is_sparse or base < cleaned or (self._next is not None and base != self._next):
                events.complete_since = None
            if events.complete_since is None and not is_sparse and base >= cleaned:
                events.complete_since = batches.max_timestamp[row]
            self._next = last + 1

    def apply(self, chunk: Chunk, report: Report) -> None:
        """Apply the records of the group in a chunk. Report ``internal-record`` for each that Kafka cannot load."""
        batches, records = chunk.batches, chunk.records
        markers = [
            i
            for row in range(chunk.first, chunk.stop)
            if batches.magic[row] >= 2 and batches.attributes[row] & CONTROL
            for i in chunk.rows(row)
        ]
        for i in sorted((*self._owner.rows(chunk, range(records.count)), *markers)):
            row = records.batch[i]
            marker, time = chunk.control(i), self._time_of(chunk.lists.timestamp[i])
            if time >= self._until:
                continue
            producer = batches.producer_id[row] if batches.magic[row] >= 2 else _NO_PRODUCER
            if marker is None:
                decoded = decode(self._owner.topic, chunk.key(i), chunk.value(i))
                if why := decoded.fault:
                    report(record_finding("internal-record", chunk, i, topic=self._owner.topic, why=why))
                else:
                    self._apply(decoded, RecordPlace(chunk.lists.offset[i], time, 0), producer)
            elif marker.type in ("COMMIT", "ABORT"):
                ended = self._open.pop(producer, {})
                if marker.type == "COMMIT":
                    self._end(ended, time)

    def _apply(self, decoded: DecodedRecord, at: RecordPlace, producer: int) -> None:
        key, data, time = decoded.key, decoded.value.data if decoded.value else None, at.timestamp or 0
        if key is None or key.data is None or key.name is None:
            self._events.unknown += 1
        elif self._owner.topic == SHARE_GROUP_STATE:
            self._share(jsonable(key.data), data, time)
        elif "topic" in key.data:
            self._offset_commit(key.data, data, at, producer)
        elif key.name == _ENTITY:
            self._classic(data, time)
        else:
            self._new_protocol(key.name, key.data, data, time)

    def _offset_commit(self, key: dict[str, Any], data: dict[str, Any] | None, at: RecordPlace, producer: int) -> None:
        """Apply a commit. That of a producer waits for its marker; a tombstone removes those that wait, too."""
        place = key["topic"], key["partition"]
        if data is None:
            for pending in self._open.values():
                pending.pop(place, None)
            self._records.pop(place, None)
            self._commit(place, Committed(None, at.timestamp or 0), 0)
            return
        one = commit_of(key, data)
        found = Committed(one.offset, data["commitTimestamp"], 0, 0, one.expire_timestamp, one.topic_id)
        if producer == _NO_PRODUCER:
            self._records[place] = at.offset
            self._commit(place, found, 1)
        else:
            known = self._open[producer].get(place)
            self._open[producer][place] = _PendingCommit(found, at.offset, known.commits + 1 if known else 1)

    def _end(self, ended: Mapping[Place, _PendingCommit], time: int) -> None:
        """Apply the commits of a committed transaction, unless a later record has already set the offset."""
        for place, pending in ended.items():
            if self._records.get(place, -1) < pending.record:
                self._records[place] = pending.record
                self._commit(place, replace(pending.last, time=time), pending.commits)

    def _time_of(self, timestamp: int) -> int:
        """Return the time at which an event counts: not before an earlier one, if another clock is late."""
        self._time = max(self._time, timestamp)
        return self._time

    def _commit(self, place: Place, found: Committed, count: int) -> None:
        events, known = self._events, self._last.get(place)
        if known is not None:
            risen = 0 if found.offset is None or known.offset is None else max(found.offset - known.offset, 0)
            found = replace(found, consumed=known.consumed + risen)
        self._last[place] = found
        line = events.commits.setdefault(place, Timeline(events.width))
        self._cells += line.add(self._time_of(found.time), found, count)
        if self._cells > MOST_CELLS:
            events.widen(2 * events.width)
            self._cells = sum(len(line.slots) for line in events.timelines())

    def _share(self, key: dict[str, Any], data: dict[str, Any] | None, time: int) -> None:
        place = self._topics.get(key["topicId"], key["topicId"]), key["partition"]
        self._events.protocol = "share"
        known, offset = self._last.get(place), data["startOffset"] if data else -1
        if offset < 0:  # a snapshot without a start, or an update that does not change it
            offset = known.offset if data and known else None
        self._commit(place, Committed(offset, time, max(data.get("deliveryCompleteCount", 0), 0) if data else 0), 1)

    def _classic(self, data: dict[str, Any] | None, time: int) -> None:
        self._events.protocol = "classic"
        if data is None:
            self._set(GroupState(None, 0, "Dead"), time)
            return
        members = len(data["members"])
        self._set(GroupState(data["generation"], members, "Stable" if members else "Empty"), time)

    def _new_protocol(self, name: str, key: dict[str, Any], data: dict[str, Any] | None, time: int) -> None:
        protocol, _, change = name.partition("Group")
        if protocol not in _PROTOCOLS:
            return
        member = key.get("memberId", "")
        if change == "Metadata":
            self._group_epoch = data["epoch"] if data else None
        elif change == "TargetAssignmentMetadata":
            self._assignment = data["assignmentEpoch"] if data else 0
        elif change == "MemberMetadata" and data is not None:
            self._members.add(member)
        elif change == "CurrentMemberAssignment" and data is not None:
            self._current[member] = data["memberEpoch"], data.get("state", _RECONCILED)
        elif change in ("MemberMetadata", "CurrentMemberAssignment"):
            self._members -= {member} if change == "MemberMetadata" else set()
            self._current.pop(member, None)
        else:
            return
        self._events.protocol = protocol.lower()
        self._set(GroupState(self._group_epoch, len(self._members), self._state()), time)

    def _state(self) -> str:
        """Return the state of a group of a new protocol (``ConsumerGroup.maybeUpdateGroupState``, ``ShareGroup``)."""
        if self._group_epoch is None:
            return "Dead"
        if not self._members:
            return "Empty"
        if self._events.protocol == "share":
            return "Stable"
        if self._group_epoch > self._assignment:
            return "Assigning"
        current = (self._current.get(member) for member in self._members)
        return "Stable" if all(one == (self._assignment, _RECONCILED) for one in current) else "Reconciling"

    def _set(self, state: GroupState, time: int) -> None:
        changed = None not in (state.generation, self._generation) and state.generation != self._generation
        self._generation = state.generation
        self._cells += self._events.states.add(time, state, int(changed))
