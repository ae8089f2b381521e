"""Load the metadata of a cluster as a node does: the newest snapshot, and the log after it up to damage."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from kseg.errors import NotASegmentError
from kseg.findings import Finding, Report
from kseg.format.internal_topics.cluster_image import ClusterImage
from kseg.format.internal_topics.decode import DecodedRecord, decoded_record
from kseg.format.internal_topics.metadata_replay import MetadataReplay, NotReplayableError, ReplayFault
from kseg.format.internal_topics.state import Moment
from kseg.format.record.control_records import ControlRecord
from kseg.format.segment.segment_chunks import chunks_of
from kseg.format.storage import local_files
from kseg.format.storage.naming import BOOTSTRAP, CLUSTER_METADATA, base_offset_of, is_log, is_snapshot, snapshot_id
from kseg.format.storage.segment_files import path_in
from kseg.format.storage.source import open_source

_TAILS = ("truncated-tail", "zero-tail")


class _Damaged(Exception):
    """The rest of a log cannot be read."""


def _stop_at_damage(path: str, finding: Finding) -> None:
    """Raise _Damaged where a node stops.

    A node reads a snapshot until its last whole batch, and does not notice that the rest is missing. In
    ``bootstrap.checkpoint`` zeros are batches without a size. A metadata log is not preallocated: zeros took the place of
    batches.
    """
    unnoticed = _TAILS if is_snapshot(path) else _TAILS[:1] if _is_bootstrap(path) else ()
    is_damage = finding.rule in ("zero-tail", "zero-segment") or finding.is_error
    if is_damage and finding.rule not in unnoticed:
        raise _Damaged


class Replayed(NamedTuple):
    """The first record that cannot be replayed, and the state at the end of the log or before damage.

    ``image`` is None after a fault, and without the beginning of the log: it would lack topics.
    """

    fault: ReplayFault | None
    image: ClusterImage | None


def replayed(paths: Iterable[str]) -> Replayed:
    """Return what a node has that loads a metadata log: its state, or the record that ends it.

    ``paths`` are the snapshots and segments of one folder. The newest snapshot is loaded, then the log after it. Records
    after damage are not looked at: no node loads them. ``bootstrap.checkpoint`` alone is a snapshot, too. Raises
    UnreadableError and NotASegmentError.
    """
    replay = MetadataReplay()
    sources = list(newest_sources(sorted(paths)))
    if not sources or lost_start(sources):
        return Replayed(None, None)
    in_snapshot, end = False, 0
    try:
        for path, first_offset in sources:
            in_snapshot = is_snapshot(path) or _is_bootstrap(path)
            replay.cut = replay.cut or in_snapshot
            for batch, offset, decoded in _records(path):
                if not in_snapshot:
                    # A node does not notice that a segment is missing.
                    replay.cut, end = replay.cut or offset > max(end, first_offset), offset + 1
                if isinstance(decoded, ControlRecord):
                    replay.apply_control(decoded)
                    replay.cut = replay.cut and decoded.type != "SNAPSHOT_FOOTER"
                    continue
                if offset < first_offset:
                    continue
                replay.empty = False
                try:
                    replay.apply(decoded.value, offset, in_snapshot=in_snapshot)
                except NotReplayableError as error:
                    name = decoded.value.name if decoded.value else None
                    who = frozenset(replay.controllers)
                    fault = ReplayFault(path, *batch, offset, name or "record", error.why, error.brokers, who)
                    return Replayed(fault, None)
    except (_Damaged, NotASegmentError) as error:
        if in_snapshot and isinstance(error, NotASegmentError):
            raise
        replay.damaged = True
    return Replayed(None, replay)


def _is_bootstrap(path: str) -> bool:
    return os.path.basename(path) == BOOTSTRAP


def names_topics(path: str) -> bool:
    """Return whether a snapshot, such as ``bootstrap.checkpoint``, has a topic before any damage. Raises UnreadableError."""
    try:
        return any(
            isinstance(decoded, DecodedRecord) and decoded.value is not None and decoded.value.name == "Topic"
            for _, _, decoded in _records(path)
        )
    except (_Damaged, NotASegmentError):
        return False


def _records(path: str) -> Iterator[tuple[tuple[int, int], int, DecodedRecord | ControlRecord]]:
    """Yield the bytes of its batch (begin and end), the offset and the content of each record."""
    # BatchFileReader computes no CRC.
    for chunk in chunks_of(open_source(path), partial(_stop_at_damage, path), verify_crc=not _is_bootstrap(path)):
        batches = chunk.batches
        for row in range(chunk.first, chunk.stop):
            for i in chunk.rows(row) if batches.record_total[row] else ():
                if decoded := decoded_record(CLUSTER_METADATA, chunk, i) or chunk.control(i):
                    begin = batches.position[row]
                    yield (begin, begin + batches.size[row]), chunk.lists.offset[i], decoded


def report_lost_segments(path: str, end: int, previous: str, report: Report) -> None:
    """Report that no segment has the offsets between ``end`` and a segment of a metadata log."""
    start = base_offset_of(path) or 0
    if start > end:
        facts = {
            "first": end,
            "last": start - 1,
            "other": os.path.basename(previous),
            "why": "a metadata log has no gaps",
        }
        report(Finding("segment-gap", 0, 0, end, start - 1, facts))


def state_files(folder: str) -> list[str]:
    """Return the paths of the segments and snapshots in the folder of a metadata log, by name. Raises UnreadableError."""
    names = local_files.names_in(folder)
    return [path_in(folder, name) for name in sorted(names) if is_log(name) or is_snapshot(name)]


def newest_sources(paths: Sequence[str], at: Moment | None = None) -> Iterator[tuple[str, int]]:
    """Yield the newest snapshot of a metadata log until ``at``, then the segments, each with the first offset to apply.

    Raises UnreadableError for a snapshot that cannot be read.
    """
    snapshots = sorted((path for path in paths if is_snapshot(path)), key=os.path.basename)
    segments = [path for path in paths if not is_snapshot(path)]
    newest = next((path for path in reversed(snapshots) if at is None or not _is_after(path, at)), None)
    end = 0
    if newest is not None:
        yield newest, 0
        end = _end_of(newest)
    for path in segments:
        yield path, end


def lost_start(sources: Iterable[tuple[str, int]]) -> tuple[str, int] | None:
    """Return the first segment of a metadata log and its offset if no snapshot has the records before it, else None.

    ``sources`` are those of ``newest_sources``.
    """
    path, end = next((source for source in sources if not is_snapshot(source[0])), ("", 0))
    start = base_offset_of(path) or 0
    return (path, start) if start > end else None


def _end_of(snapshot: str) -> int:
    """Return the offset before which the records of a snapshot are."""
    found = snapshot_id(os.path.basename(snapshot))
    return found[0] if found else 0


def _is_after(snapshot: str, at: Moment) -> bool:
    """Return whether a snapshot has records later than ``at``, or may have them: its header has their last timestamp."""
    if at.offset is not None:
        return _end_of(snapshot) > at.offset + 1
    for chunk in chunks_of(open_source(snapshot)):
        header = chunk.control(0)
        last = header.fields.get("last_contained_log_timestamp") if header else None
        return not isinstance(last, int) or at.is_before(0, last)
    return True
