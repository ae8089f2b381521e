"""``kseg tier check``: the objects of a bucket compared with the metadata of the cluster. It deletes nothing.

Source: KIP-405; ``RemoteLogMetadataCache`` and ``RemoteLogLeaderEpochState`` decide which segment is read for an offset.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from typing import Any, NamedTuple

from kseg.commands.tier.remote_metadata import (
    COPY_FINISHED,
    COPY_STARTED,
    DELETE_STARTED,
    ClusterMetadata,
    KnownSegment,
    LocalLog,
    holes,
    read_cluster_metadata,
    read_local_logs,
    with_last_start,
)
from kseg.commands.tier.remote_segments import LOG, RemotePlace, RemoteSegment, epochs_within, remote_segments
from kseg.errors import UnreadableError
from kseg.extras.tiered_manifest import ManifestError
from kseg.extras.tiered_view import read_manifest
from kseg.findings import Finding
from kseg.format.sidefiles.checkpoints import REMOTE_LEADER_EPOCHS, walk_leader_epochs
from kseg.format.storage import local_files, remote_files
from kseg.format.storage.naming import MANIFEST, is_url
from kseg.format.storage.source import open_source
from kseg.text import count_of

#: Problem -> its meaning, the worst first.
PROBLEMS = {
    "lost-object": "the metadata says that the segment can be read, but its log or its manifest is missing",
    "hole": "offsets before the first local segment are in no readable segment of their leader epoch",
    "unreadable": "the content of the segment's manifest or of its epochs is damaged",
    "missing-file": "an index, the producer snapshot or the epochs of the segment are missing",
    "size-mismatch": "the object, its manifest or the metadata has another size",
    "offset-mismatch": "the object or its manifest has other offsets than the metadata",
    "epoch-mismatch": "the object has other leader epochs than the metadata",
    "stuck-copy": "an upload began more than a day ago and did not end",
    "stuck-delete": "a deletion began more than a day ago and did not end",
    "orphan": "objects older than a day, which the metadata does not have",
    "dead-topic": "objects of a topic id that the cluster no longer has",
}
#: The age from which an object without metadata, or an operation, is a problem.
DAY_MS = 24 * 3600 * 1000
_OF_REFERENCE = (".index", ".timeindex", ".snapshot", REMOTE_LEADER_EPOCHS)
_INDEXES = ".indexes"
#: Problems that missing records of the metadata can explain. Most of them name bytes to delete.
_UNPROVED = ("hole", "stuck-copy", "stuck-delete", "orphan")
#: The most lines about objects that cannot be read.
_MOST_UNREAD = 10


@dataclass(frozen=True, slots=True)
class TierProblem:
    """A problem of a segment, or of offsets of a partition. ``size`` are the bytes that a deletion would free, or 0."""

    problem: str
    topic: str
    place: RemotePlace
    segment_id: str | None
    first_offset: int | None
    last_offset: int | None
    size: int
    path: str | None
    message: str

    @property
    def partition(self) -> str:
        """The name of the partition."""
        return f"{self.topic}-{self.place.partition}"


class StoredObject(NamedTuple):
    """The objects of a segment: their bytes in all, those of the log, and the time of the last change if known."""

    segment: RemoteSegment
    size: int
    log_size: int | None
    changed_ms: float | None


@dataclass(slots=True)
class TierCheck:
    """The result: the ``problems``, the worst first, and sums. ``faults`` say why a problem can be wrong or missing."""

    problems: list[TierProblem] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    segments: int = 0
    stored: int = 0
    size: int = 0
    recent: int = 0

    @property
    def free(self) -> int:
        """The bytes that a deletion of orphans, stuck segments and dead topics would free."""
        return sum(one.size for one in self.problems)


def check_bucket(bucket: str, metadata: str, log_dirs: Sequence[str], now_ms: float) -> TierCheck:
    """Compare the objects of a bucket with the metadata in a folder, and with the local logs if any are given.

    Objects that cannot be read are ``faults``. Raises UnreadableError if the bucket cannot be listed, or has no segment
    although the metadata has some, and if the metadata cannot be read.
    """
    # A running broker uploads a segment before it deletes the local one, and it marks a segment before it deletes objects.
    # In this order its work is never reported as a loss.
    faults: list[str] = []
    logs = read_local_logs(log_dirs, faults)
    known = read_cluster_metadata(metadata)
    found = TierCheck(faults=faults + known.faults, segments=len(known.segments))
    dead = _DeadTopics(known, now_ms)
    missing, unread = dict(known.segments), dict[str, str]()
    for segment in remote_segments(bucket, decoded=False):
        stored = _stored(segment)
        found.stored += 1
        found.size += stored.size
        if dead.has(segment.place):
            dead.add(stored)
            continue  # under another topic id no broker finds it
        missing.pop(segment.segment_id, None)
        entry = known.segments.get(segment.segment_id)
        try:
            problems = list(_compared(entry, stored, now_ms) if entry else _orphans(stored, now_ms))
        except UnreadableError as error:
            unread[segment.segment_id] = str(error)
            continue
        found.problems += problems
        found.recent += not entry and not problems
    for entry in missing.values():
        if not dead.has(entry.place):
            found.problems += _without_objects(entry, now_ms)
    unread |= _found_again(bucket, found.problems, dead)
    if unread or any(one.segment_id in known.segments for one in found.problems):
        later = read_cluster_metadata(metadata)
        found.faults += [line for line in later.faults if line not in found.faults]
        gone = {name for name, entry in known.segments.items() if _has_changed(entry, later.segments)}
        found.problems = [one for one in found.problems if one.segment_id not in gone | unread.keys()]
        found.faults += _reasons(bucket, [reason for name, reason in unread.items() if name not in gone])
    if not found.stored and (lost := sum(one.problem == "lost-object" for one in found.problems)):
        raise UnreadableError(
            f"{bucket}: no segment of tiered storage found, but the metadata has {count_of(lost, 'segment')}: "
            "expected the bucket or the prefix of its objects"
        )
    dead.add_problems(found, now_ms)
    found.problems += _all_holes(known, logs)
    _keep_proved(found, known, metadata)
    order = {name: n for n, name in enumerate(PROBLEMS)}
    found.problems.sort(key=lambda one: (order[one.problem], one.topic, one.place, one.first_offset or 0))
    return found


def _keep_proved(found: TierCheck, known: ClusterMetadata, metadata: str) -> None:
    """Remove the problems of partitions whose metadata may lack records: a live segment would be an orphan."""
    proved = [one for one in found.problems if one.problem not in _UNPROVED or known.has_all_of(one.place)]
    unproved = Counter(one.problem for one in found.problems) - Counter(one.problem for one in proved)
    if unproved:
        kinds = ", ".join(f"{unproved[name]:,} {name}" for name in _UNPROVED if unproved[name])
        found.faults.append(f"{metadata}: records about them can be missing, so these are not reported: {kinds}")
    found.problems = proved


def _found_again(bucket: str, problems: Iterable[TierProblem], dead: _DeadTopics) -> dict[str, str]:
    """Return a reason for each segment with lost objects that another listing of the bucket has, by segment id."""
    lost = {one.segment_id for one in problems if one.problem == "lost-object"}
    return {
        one.segment_id: f"{one.path(LOG)}: a second listing has it, the first one did not: run again"
        for one in (remote_segments(bucket, decoded=False) if lost else ())
        if one.segment_id in lost and not _lost_files(one) and not dead.has(one.place)
    }


def _reasons(bucket: str, reasons: Sequence[str]) -> list[str]:
    """Return the first reasons, and a line about the others."""
    more = count_of(len(reasons) - _MOST_UNREAD, "more segment")
    return [*reasons[:_MOST_UNREAD], *[f"{bucket}: {more} cannot be read"] * (len(reasons) > _MOST_UNREAD)]


def _has_changed(known: KnownSegment, later: dict[str, KnownSegment]) -> bool:
    """Return whether the state of a segment has changed since: it is being deleted."""
    after = later.get(known.segment_id)
    return after is None or after.state != known.state


def _stored(segment: RemoteSegment) -> StoredObject:
    """Return sizes and time of the objects; an object that was deleted meanwhile counts 0 bytes. Raises UnreadableError."""
    total, log_size, changed = 0, None, None
    for suffix in segment.files:
        path = segment.path(suffix)
        if is_url(path):
            listed = remote_files.listed(path)
            size = (listed and listed.size) or 0
        else:
            try:
                status = local_files.status(path)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise UnreadableError(f"{path}: {error.strerror or error}") from error
            size = status.st_size
            changed = max(changed or 0.0, status.st_mtime * 1000)
        total += size
        log_size = size if suffix == LOG else log_size
    return StoredObject(segment, total, log_size, changed)


class _DeadTopics:
    """The partitions in the bucket whose topic id the cluster no longer has, and that it does not delete right now."""

    def __init__(self, known: ClusterMetadata, now_ms: float) -> None:
        self._topics = known.topics
        self._deleting = {place for place, since in known.deletions.items() if now_ms - since < DAY_MS}
        self._sums: dict[tuple[str, RemotePlace, str], tuple[int, int, StoredObject]] = {}

    def has(self, place: RemotePlace) -> bool:
        return self._topics is not None and place.topic_id not in self._topics

    def add(self, stored: StoredObject) -> None:
        key = stored.segment.topic, stored.segment.place, stored.segment.folder
        count, size, newest = self._sums.get(key, (0, 0, stored))
        newest = max(newest, stored, key=lambda one: one.segment.base)
        self._sums[key] = count + 1, size + stored.size, newest

    def add_problems(self, found: TierCheck, now_ms: float) -> None:
        """Add the dead topics. The metadata can be older than one with an object of the last day."""
        for (topic, place, folder), (count, size, newest) in self._sums.items():
            try:
                is_dead = _age_ms(newest, now_ms) >= DAY_MS
            except UnreadableError as error:
                found.faults.append(str(error))
                continue
            found.recent += 0 if is_dead or place in self._deleting else count
            if is_dead and place not in self._deleting:
                message = f"the cluster has no topic with the id {place.topic_id}: segments {count:,}"
                found.problems.append(TierProblem("dead-topic", topic, place, None, None, None, size, folder, message))


def _age_ms(stored: StoredObject, now_ms: float) -> float:
    """Return the age of objects; in a store that lists no times, that of the upload by the manifest; infinite if unknown.

    Raises UnreadableError.
    """
    changed_ms = stored.changed_ms
    if changed_ms is None and MANIFEST in stored.segment.files:
        with suppress(ManifestError):
            began = read_manifest(stored.segment.path(MANIFEST)).metadata.get("eventTimestampMs")
            changed_ms = max(0, min(began, 1 << 63)) if isinstance(began, int) else None
    return inf if changed_ms is None else now_ms - changed_ms


def _orphans(stored: StoredObject, now_ms: float) -> Iterator[TierProblem]:
    """Yield the problem of objects without metadata, unless they are recent. Raises UnreadableError."""
    segment, age_ms = stored.segment, _age_ms(stored, now_ms)
    if age_ms < DAY_MS:
        return
    age = "" if age_ms == inf else f", written {age_ms / DAY_MS:,.0f} days ago"
    yield TierProblem(
        "orphan", segment.topic, segment.place, segment.segment_id, segment.base, None, stored.size,
        f"{segment.folder}/{min(segment.files.values())}", f"the metadata has no such segment{age}",
    )  # fmt: skip


def _problem(kind: str, known: KnownSegment, message: str, path: str | None = None, size: int = 0) -> TierProblem:
    return TierProblem(kind, known.topic, known.place, known.segment_id, known.start, known.end, size, path, message)


def _without_objects(known: KnownSegment, now_ms: float) -> Iterator[TierProblem]:
    if known.state == COPY_FINISHED:
        yield _problem("lost-object", known, "none of its objects exists")
    else:
        yield from _stuck(known, now_ms, None, 0)


def _stuck(known: KnownSegment, now_ms: float, path: str | None, size: int) -> Iterator[TierProblem]:
    kind = {COPY_STARTED: "stuck-copy", DELETE_STARTED: "stuck-delete"}.get(known.state)
    age = (now_ms - known.changed_ms) / DAY_MS
    if kind and age >= 1:
        yield _problem(kind, known, f"{known.state} for {age:,.0f} days", path, size)


def _is_transformed(segment: RemoteSegment) -> bool:
    """Return whether the objects are those of Aiven's plugin."""
    return MANIFEST in segment.files or _INDEXES in segment.files


def _lost_files(segment: RemoteSegment) -> list[str]:
    """Return the suffixes of the missing objects without which the segment cannot be read."""
    needed = (LOG, MANIFEST) if _is_transformed(segment) else (LOG,)
    return [suffix for suffix in needed if suffix not in segment.files]


def _compared(known: KnownSegment, stored: StoredObject, now_ms: float) -> Iterator[TierProblem]:
    """Yield the differences of a segment and its objects. Raises UnreadableError."""
    segment = stored.segment
    path = f"{segment.folder}/{segment.files.get(LOG) or min(segment.files.values())}"
    if known.state != COPY_FINISHED:
        yield from _stuck(known, now_ms, path, stored.size)
        return
    if lost := _lost_files(segment):
        yield _problem("lost-object", known, f"its {' and '.join(lost)} is missing", path)
        return
    is_transformed = _is_transformed(segment)
    absent = [one for one in ((_INDEXES,) if is_transformed else _OF_REFERENCE) if one not in segment.files]
    if absent:
        yield _problem("missing-file", known, f"missing: {', '.join(absent)}", path)
    if segment.base != known.start:
        yield _problem("offset-mismatch", known, f"starts at {segment.base:,}, the metadata has {known.start:,}", path)
    try:
        yield from (_transformed if is_transformed else _plain)(known, stored, path)
    except ManifestError as error:
        yield _problem("unreadable", known, str(error), path)


def _transformed(known: KnownSegment, stored: StoredObject, path: str) -> Iterator[TierProblem]:
    """Yield the differences of a segment of Aiven's plugin and its manifest. Raises UnreadableError."""
    manifest = read_manifest(stored.segment.path(MANIFEST))
    if manifest.log.size != known.size:
        message = f"the manifest has {manifest.log.size:,} bytes, the metadata {known.size:,}"
        yield _problem("size-mismatch", known, message, path)
    if stored.log_size != manifest.log.starts[-1]:
        message = f"the object has {stored.log_size:,} bytes, the manifest {manifest.log.starts[-1]:,}"
        yield _problem("size-mismatch", known, message, path)
    end, epochs = _copied(manifest.metadata)
    if end not in (None, known.end):
        yield _problem("offset-mismatch", known, f"the manifest ends at {end:,}, the metadata at {known.end:,}", path)
    if epochs not in (None, sorted(known.epochs)):
        message = f"the manifest has {_epochs_text(epochs or ())}, the metadata {_epochs_text(known.epochs)}"
        yield _problem("epoch-mismatch", known, message, path)


def _copied(metadata: Mapping[str, Any]) -> tuple[int | None, list[tuple[int, int]] | None]:
    """Return the last offset and the leader epochs in a manifest's copy of the metadata, None for what it lacks.

    Raises ManifestError.
    """
    try:
        end, epochs = metadata.get("endOffset"), metadata.get("segmentLeaderEpochs")
        pairs = None if epochs is None else sorted((int(epoch), int(first)) for epoch, first in epochs.items())
        return None if end is None else int(end), pairs
    except (AttributeError, TypeError, ValueError) as error:
        raise ManifestError(f"its copy of the segment's metadata is damaged: {error}") from error


def _plain(known: KnownSegment, stored: StoredObject, path: str) -> Iterator[TierProblem]:
    """Yield the differences of a segment of Kafka's reference. Raises UnreadableError."""
    if stored.log_size != known.size:
        message = f"the object has {stored.log_size:,} bytes, the metadata {known.size:,}"
        yield _problem("size-mismatch", known, message, path)
    if REMOTE_LEADER_EPOCHS not in stored.segment.files:
        return
    faults: list[Finding] = []
    with open_source(stored.segment.path(REMOTE_LEADER_EPOCHS), listed=True) as source:
        lineage = [(entry.epoch, entry.start_offset) for _, entry in walk_leader_epochs(source, faults.append)]
    if faults:
        name = stored.segment.files[REMOTE_LEADER_EPOCHS]
        yield _problem("unreadable", known, f"{name} is damaged: {faults[0].rule}", path)
        return
    expected = epochs_within(lineage, known.start, known.end)
    if expected != sorted(known.epochs):
        message = f"the object has {_epochs_text(expected)}, the metadata {_epochs_text(known.epochs)}"
        yield _problem("epoch-mismatch", known, message, path)


def _epochs_text(epochs: Iterable[tuple[object, object]]) -> str:
    return ", ".join(f"epoch {epoch} from {first}" for epoch, first in epochs) or "no epoch"


def _all_holes(known: ClusterMetadata, logs: dict[str, list[LocalLog]]) -> Iterator[TierProblem]:
    """Yield the offsets that no segment in the tier has, each once, by partition."""
    by_place: dict[RemotePlace, list[KnownSegment]] = {}
    for one in known.segments.values():
        # The oldest segments are deleted up to the log start, whose checkpoint is a minute old.
        if one.state in (COPY_FINISHED, DELETE_STARTED) and (
            known.topics is None or one.place.topic_id in known.topics
        ):
            by_place.setdefault(one.place, []).append(one)
    named = {f"{segments[0].topic}-{place.partition}": place for place, segments in by_place.items()}
    ids = {name: topic_id for topic_id, name in (known.topics or {}).items()}
    tiered = known.tiered | {one.topic for one in known.segments.values()}
    for name in sorted(named.keys() | {name for name in logs if name.rpartition("-")[0] in tiered}):
        topic, _, number = name.rpartition("-")
        place = named.get(name) or RemotePlace(ids.get(topic, ""), int(number))
        seen = set()
        # A broker that was down while the topic was created again still has the former one.
        own = [log for log in logs.get(name, ()) if not place.topic_id or log.topic_id in (None, place.topic_id)]
        for log in with_last_start(own):
            for hole in holes(by_place.get(place, ()), log, known.deleted.get(place, ())):
                if hole not in seen:
                    seen.add(hole)
                    until = f"; {log.folder} begins at {log.local_start:,}" if log else ""
                    message = f"offsets {hole[0]:,} to {hole[1]:,} are in no readable segment{until}"
                    yield TierProblem("hole", topic, place, None, *hole, 0, log.folder if log else None, message)
