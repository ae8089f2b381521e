"""Compare log directories: the replicas of each partition, matched by name and topic id."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from kseg.commands.diff.comparison import compare
from kseg.commands.diff.differences import SAME_CONTENT, Comparison, Difference
from kseg.commands.diff.lacking_records import ExportedRecords, ExportPlace, LackingOffsets, export_lacking
from kseg.commands.diff.replica import Replica, ReplicaSummary
from kseg.errors import KsegError
from kseg.findings import Finding
from kseg.format.sidefiles.metadata_files import stored_topic_id
from kseg.format.storage.log_dir_places import PartitionReplicas
from kseg.format.storage.process_pool import add_progress
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
