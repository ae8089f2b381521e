"""Compare log directories: the replicas of each partition, matched by name and topic id.

``kseg diff --export`` writes the records of one replica that another lacks as a segment. After an unclean election the new
leader lacks the end of the old one, or has other records there. A batch that the other replica lacks as a whole is copied
byte for byte. One of which it has some records is written with the others only, as a cleaner would.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from kseg.commands.diff.comparison import compare
from kseg.commands.diff.differences import SAME_CONTENT, Comparison, Difference
from kseg.commands.diff.replica import Replica, ReplicaSummary
from kseg.errors import KsegError
from kseg.findings import Finding, do_nothing
from kseg.format.segment.records_chunk import Record
from kseg.format.sidefiles.metadata_files import stored_topic_id
from kseg.format.storage.atomic_write import whole_file
from kseg.format.storage.log_dir_places import PartitionReplicas
from kseg.format.storage.process_pool import add_progress
from kseg.format.writer.output_guards import folder_of_results
from kseg.format.writer.records_builder import repack
from kseg.results import BoundedFindings

#: Verdicts of partitions that were not compared, the worst last.
MISSING_IN_A, MISSING_IN_B, MISSING_ELSEWHERE = "missing-in-a", "missing-in-b", "missing-elsewhere"
OTHER_TOPIC, UNREAD = "other-topic-id", "unread"
NOT_COMPARED = (MISSING_ELSEWHERE, MISSING_IN_A, MISSING_IN_B, OTHER_TOPIC, UNREAD)
#: The difference that --allow accepts for partitions of one log directory only.
MISSING_PARTITION = "missing-partition"


@dataclass(frozen=True, slots=True)
class PartitionPair:
    """Two folders of a partition. One is None if the partition has only one. Topic and partition are None if the name of a
    segment's folder does not have them.
    """

    topic: str | None
    partition: int | None
    a: str | None
    b: str | None


@dataclass(frozen=True, slots=True)
class PairOutcome:
    """The outcome for a pair. ``comparison``, ``a`` and ``b`` are None if the replicas were not compared.

    ``differences`` are the first ones of each kind; ``findings`` are those of the segments, with the file. ``reason``
    says why the replicas were not compared. ``exported`` is what was written of A.
    """

    pair: PartitionPair
    verdict: str
    reason: str = ""
    comparison: Comparison | None = None
    a: ReplicaSummary | None = None
    b: ReplicaSummary | None = None
    differences: Sequence[Difference] = ()
    findings: Sequence[tuple[str, Finding]] = ()
    exported: ExportedRecords | None = None

    def accepted(self, allowed: Collection[str]) -> bool:
        """Return whether the replicas have the same content, apart from the ``allowed`` differences."""
        if self.comparison is None:
            return self.verdict.startswith("missing-") and MISSING_PARTITION in allowed
        return self.comparison.accepted(SAME_CONTENT | set(allowed))


def compare_replicas(
    replicas: PartitionReplicas, limit: int, shallow: bool, export: ExportPlace | None = None
) -> list[PairOutcome]:
    """Compare the replicas of a partition. ``limit`` is the number of differences of each kind that are returned.

    Each replica is compared with the first one, and where the content differs with the others that differ from it: so the
    outcomes show which replicas agree.
    """
    topic, partition, folders = replicas.topic, replicas.partition, replicas.folders
    present = [folder for folder in folders if folder is not None]
    if len(present) == 1:
        a, b = folders if len(folders) == 2 else (present[0], None)
        verdict = MISSING_ELSEWHERE if len(folders) > 2 else MISSING_IN_A if a is None else MISSING_IN_B
        pair = PartitionPair(topic, partition, a, b)
        exported = None
        if export is not None and a is not None:
            everything = LackingOffsets()
            everything.add_all()
            try:
                exported = export_lacking(a, everything, export.folder_of(topic, partition))
            except KsegError as error:
                return [PairOutcome(pair, UNREAD, str(error))]
        return [PairOutcome(pair, verdict, f"only {present[0]} exists", exported=exported)]
    outcomes, different = [], present[:1]
    for folder in present[1:]:
        for known in different:
            outcomes.append(compare_pair(PartitionPair(topic, partition, known, folder), limit, shallow, export))
            if outcomes[-1].accepted(()):
                break
        else:
            different.append(folder)
    return outcomes


def compare_pair(pair: PartitionPair, limit: int, shallow: bool, export: ExportPlace | None = None) -> PairOutcome:
    """Compare the folders or segments of a pair. ``limit`` is the number of differences of each kind that are returned.

    With ``export``, the records of A that B lacks are written.
    """
    assert pair.a is not None
    assert pair.b is not None
    collected, result = BoundedFindings(), Comparison()
    lacking = LackingOffsets(export.accepted if export else ())
    try:
        first, second = stored_topic_id(pair.a), stored_topic_id(pair.b)
        if first and second and first != second:
            return PairOutcome(pair, OTHER_TOPIC, f"the topic ids are {first} and {second}")
        a, b = Replica(pair.a, collected), Replica(pair.b, collected)
        differences = [*lacking.listed(compare(a, b, result, shallow=shallow, progress=add_progress), limit)]
        exported = None
        if export is not None:
            exported = export_lacking(pair.a, lacking, export.folder_of(pair.topic, pair.partition))
    except KsegError as error:
        return PairOutcome(pair, UNREAD, str(error), findings=collected.placed)
    return PairOutcome(
        pair, result.verdict, "", result, a.summary(), b.summary(), differences, collected.placed, exported
    )  # fmt: skip


#: Differences in which one replica has records that the other lacks, or other records.
_LACKING = ("missing", "ends-earlier", "starts-later", "damaged", "content")
_LARGEST_OFFSET = 2**63 - 1


@dataclass(slots=True)
class LackingOffsets:
    """The offsets of the records that replica B lacks of A: the first and last ones of ranges, in their order.

    ``accepted`` are kinds of differences that do not count.
    """

    accepted: tuple[str, ...] = ()
    first: array[int] = field(default_factory=lambda: array("q"))
    last: array[int] = field(default_factory=lambda: array("q"))

    def add(self, difference: Difference) -> None:
        """Add the offsets of a difference, if A has records there."""
        if difference.kind in _LACKING and difference.lacking != "a" and difference.kind not in self.accepted:
            self.first.append(difference.first_offset)
            self.last.append(difference.last_offset)

    def add_all(self) -> None:
        """Add all offsets: there is no replica B."""
        self.first.append(0)
        self.last.append(_LARGEST_OFFSET)

    def listed(self, differences: Iterable[Difference], limit: int) -> Iterator[Difference]:
        """Add each difference, and yield the first ``limit`` of each kind."""
        seen: Counter[str] = Counter()
        for one in differences:
            self.add(one)
            seen[one.kind] += 1
            if seen[one.kind] <= limit:
                yield one

    def meets(self, first: int, last: int) -> bool:
        """Return whether some of the offsets from ``first`` to ``last`` belong to a range."""
        n = bisect_left(self.last, first)
        return n < len(self.first) and self.first[n] <= last

    def covers(self, first: int, last: int) -> bool:
        """Return whether all offsets from ``first`` to ``last`` belong to one range."""
        n = bisect_left(self.last, first)
        return n < len(self.first) and self.first[n] <= first and last <= self.last[n]


@dataclass(frozen=True, slots=True)
class ExportPlace:
    """Where the records of A that B lacks are written, in a folder per partition, and the differences that do not count."""

    folder: str
    accepted: tuple[str, ...]

    def folder_of(self, topic: str | None, partition: int | None) -> Path:
        """Return the folder for a partition. Without a name it is the folder of all."""
        return Path(self.folder) if topic is None else Path(self.folder, f"{topic}-{partition}")


@dataclass(slots=True)
class ExportedRecords:
    """What was written to ``file``; without batches there is no file."""

    file: str
    batches: int = 0
    records: int = 0


def export_lacking(path: str, lacking: LackingOffsets, folder: Path) -> ExportedRecords:
    """Write the batches of the replica ``path`` with the records that are lacking to a new segment in ``folder``.

    The segment is made only if there is such a record, and its folder, in one that exists. Its name is its first offset. It
    is written atomically. Raises KsegError.
    """
    with closing(_lacking_batches(path, lacking)) as batches:
        first = next(batches, None)
        if first is None:
            return ExportedRecords("")
        # The offset of a v0 or v1 wrapper is that of its last record.
        base_offset = min(lacking.first[0], int.from_bytes(first[0][:8], "big"))
        target = folder / f"{base_offset:020}.log"
        done = ExportedRecords(str(target))
        with folder_of_results(folder, write=True), whole_file(target, replace=False) as out:
            for data, records in chain([first], batches):
                out.write(data)
                done.batches += 1
                done.records += records
    return done


def _lacking_batches(path: str, lacking: LackingOffsets) -> Generator[tuple[memoryview | bytes, int], None, None]:
    """Yield the bytes and the number of records of each batch of the result."""
    replica = Replica(path, do_nothing)
    with closing(replica):
        while replica.more():
            if not lacking.meets(replica.low, replica.high):
                replica.advance()
                continue
            assert replica.window is not None
            batches, row = replica.batches, replica.row
            data = replica.window.view[batches.at[row] : batches.at[row] + batches.size[row]]
            if batches.magic[row] >= 2 and lacking.covers(replica.low, replica.high):
                yield data, batches.record_count[row]
                replica.advance()
                continue
            kept, count = _opened(replica, lacking)
            if len(kept) == count:
                yield data, count
            elif kept:
                yield repack(batches, row, kept).data, len(kept)
            replica.advance()


def _opened(replica: Replica, lacking: LackingOffsets) -> tuple[list[Record], int]:
    """Open the current batch; return its records that are lacking, and the number of all."""
    kept: list[Record] = []
    count = 0
    replica.open()
    while True:
        assert replica.chunk is not None
        for i in range(replica.i, replica.end):
            count += 1
            if lacking.meets(replica.records.offset[i], replica.records.offset[i]):
                kept.append(replica.chunk.record(i, None))
        replica.i = replica.end
        if not replica.next_part():
            return kept, count
