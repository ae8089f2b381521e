"""Check the side files of a partition against its segments: producer snapshots, leader epochs, indexes without a segment."""

from __future__ import annotations

import os
from functools import cached_property

from kseg.commands.validate.partition_state import PartitionState
from kseg.commands.validate.segment_facts import EpochRun, LastBatch
from kseg.errors import KsegError, UnreadableError
from kseg.findings import Finding, Report
from kseg.format.log_loader.producers import stray_snapshots
from kseg.format.sidefiles.checkpoints import REMOTE_LEADER_EPOCHS, LeaderEpoch, walk_leader_epochs
from kseg.format.sidefiles.producer_snapshot import ENTRY, HEADER, ProducerState, walk_snapshot
from kseg.format.sidefiles.side_file_reading import entries_of, positioned_entries_of
from kseg.format.storage import local_files
from kseg.format.storage.naming import (
    CLEAN_SHUTDOWN,
    LEADER_EPOCHS,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    is_in_use,
    is_index,
    partition_of,
    producer_snapshot_offset,
    snapshot_id,
)


class PartitionSideFiles:
    """The checks of the side files of a partition. ``began`` and ``compacted`` are those of ``PartitionChecks``."""

    def __init__(self, state: PartitionState, began: float, *, compacted: bool) -> None:
        self._state = state
        self._log_start = state.compaction.log_start
        self._compacted = compacted
        # When the first segment was read, as in os.stat: files written later may describe another state of the log.
        self._began = began
        self._snapshots = {offset for name in state.names if (offset := producer_snapshot_offset(name)) is not None}
        self._checked_snapshots: set[int] = set()

    def check_snapshot_at_end(self, base: int) -> None:
        """Check the producer snapshot of the segment that comes next, if the segments so far end at its base offset."""
        if base in self._snapshots and self._state.end == base:
            self.check_snapshot(f"{base:020}.snapshot", base, exact=True)
            self._checked_snapshots.add(base)

    def check(self, name: str) -> None:
        """Check a side file that is not the index of an existing segment."""
        if is_being_deleted(self._state.folder):
            return  # the broker has emptied its checkpoint, and deletes the rest
        if name == LEADER_EPOCHS:
            self._check_epochs(name)
        elif (offset := producer_snapshot_offset(name)) is not None:
            self._check_position(offset, name)
        elif is_index(name):
            self._check_orphan(name)

    def check_missing(self, newest: str, log_start: int | None) -> None:
        """Report state that a broker would forget at its start: producers without a snapshot, epochs without an entry.

        ``newest`` is the last segment, ``log_start`` the partition's log start offset, None if unknown. A running broker
        has both in memory. Without a clean shutdown it reads the producers from the log.
        """
        log_dir = os.path.dirname(local_files.absolute(self._state.folder))
        if is_in_use(log_dir) or is_being_deleted(self._state.folder):
            return
        clean = local_files.exists(os.path.join(log_dir, CLEAN_SHUTDOWN))
        producers = len(self._state.producers.all())
        # Outside of a log dir a single segment is that of a partition that never rolled, copied from a running broker.
        copied = not any(local_files.exists(os.path.join(log_dir, name)) for name in (META_PROPERTIES, RECOVERY_POINTS))
        if copied and not any(
            local_files.exists(self._state.path(name)) for name in (PARTITION_METADATA, LEADER_EPOCHS)
        ):
            return  # only segments and indexes were copied
        kept = self._kept_snapshots or self._snapshots_now()
        if producers and not kept and (clean or (copied and len(self._state.bases) > 1)):
            facts = {"producers": producers, "open": len(self._state.open)}
            self._state.report_for(newest)(Finding("producers-without-snapshot", 0, facts=facts))
        self._check_missing_epochs(newest, log_start if clean else None)

    def _snapshots_now(self) -> bool:
        """Return whether the folder has a snapshot by now: a broker writes one at its clean shutdown."""
        try:
            return any(producer_snapshot_offset(name) is not None for name in local_files.names_in(self._state.folder))
        except UnreadableError:  # deleted meanwhile
            return True

    def _check_missing_epochs(self, newest: str, log_start: int | None) -> None:
        path = self._state.path(LEADER_EPOCHS)
        exists = local_files.exists(path)
        try:
            entries: list[LeaderEpoch] = entries_of(path, walk_leader_epochs) if exists else []
        except (KsegError, ValueError):
            return  # reported for the checkpoint itself
        if entries and log_start is None:
            return  # a broker removes the epochs below the log start
        begin = entries[0].start_offset if entries else self._state.end
        lacking: list[EpochRun] = []
        for run in reversed(self._state.epochs_in_order):
            # A broker clears the checkpoint when it appends v0 or v1 batches, which leave offsets without an epoch.
            if entries and run[2] >= entries[0].start_offset:
                continue
            if begin is None or run[2] + 1 != begin or run[0] < 0 or begin <= max(log_start or 0, self._log_start):
                break
            lacking.append(run)
            begin = run[1]
        if lacking:
            facts = {
                "epochs": len(lacking), "first": lacking[-1][1], "last": lacking[0][2],
                "what": "the checkpoint lacks entries" if exists else "leader-epoch-checkpoint does not exist",
            }  # fmt: skip
            report = self._state.report_for(LEADER_EPOCHS if exists else newest)
            report(Finding("missing-epochs", 0, offset=lacking[-1][1], last_offset=lacking[0][2], facts=facts))

    def _check_orphan(self, name: str) -> None:
        log = f"{name[:20]}.log"
        if not self._state.bases and is_being_deleted(self._state.folder):
            return
        # A running broker may just have deleted or created the segment.
        if local_files.exists(self._state.path(name)) and not local_files.exists(self._state.path(log)):
            self._state.report_for(name)(Finding("orphaned-index", 0, offset=int(name[:20]), facts={"log": log}))

    def _check_position(self, offset: int, name: str) -> None:
        end, known_end = self._state.end, self._state.known_end
        if not self._state.bases or not local_files.exists(self._state.path(name)):
            return
        if (
            known_end is not None
        ):  # a metadata log can end before its newest snapshot, which has the records between them
            known_end = max(known_end, *(found[0] for other in self._state.names if (found := snapshot_id(other))), 0)
        facts = {"offset": offset, "end": known_end}
        if known_end is not None and offset > known_end:
            self._state.report_for(name)(Finding("snapshot-behind-log", 0, offset=offset, facts=facts))
        elif offset not in self._kept_snapshots:
            self._state.report_for(name)(Finding("stray-snapshot", 0, offset=offset, facts=facts))
        elif offset not in self._checked_snapshots and end is not None:
            self.check_snapshot(name, offset, exact=offset == end)

    @cached_property
    def _kept_snapshots(self) -> set[int]:
        """The offsets of the producer snapshots that a broker keeps after loading all segments."""
        return set(self._snapshots) - set(stray_snapshots(self._snapshots, self._state.bases))

    def check_remote(self, log: str) -> None:
        """Check the producer snapshot and the epochs of a remote segment, the last one so far.

        Both are those of the end of the segment (``RemoteLogManager.copyLogSegment``).
        """
        stem = log.removesuffix(".log")
        if self._state.end is not None and stem + ".snapshot" in self._state.names:
            self.check_snapshot(stem + ".snapshot", self._state.end, exact=True)
        if stem + REMOTE_LEADER_EPOCHS in self._state.names:
            self._check_epochs(stem + REMOTE_LEADER_EPOCHS)

    def check_snapshot(self, name: str, offset: int, *, exact: bool) -> None:
        """Compare a producer snapshot with the segments so far. ``exact``: they end at the snapshot's offset."""
        try:
            read = positioned_entries_of(self._state.path(name), walk_snapshot)
        except (KsegError, ValueError):
            return  # reported for the snapshot itself
        report = self._state.report_for(name)
        reported = set()
        for position, state in read:
            reported.add(state.producer_id)
            if why := self._snapshot_contradiction(state, offset, exact=exact):
                self._report_producer(report, position, state.producer_id, offset, why)
        for producer_id, first in self._state.open.items() if exact and not self._state.crowded else ():
            # A producer expires, but not with an open transaction. A broker that loads the producers anew reads the log
            # from the log start on, and forgets a transaction that began below it.
            if producer_id not in reported and first >= self._log_start:
                self._report_producer(
                    report,
                    HEADER.size,
                    producer_id,
                    offset,
                    f"missing, although its transaction is open since offset {first}",
                )

    def _report_producer(self, report: Report, position: int, producer_id: int, offset: int, why: str) -> None:
        reported = {"producer_id": producer_id, "why": why}
        report(Finding("snapshot-mismatch", position, position + ENTRY.size, offset, None, reported))

    def _snapshot_contradiction(self, producer: ProducerState, offset: int, *, exact: bool) -> str | None:
        log = self._state
        first_offset = log.bases[0] if log.bases else 0
        first = producer.current_txn_first_offset
        if producer.last_offset >= offset or (first is not None and first >= offset):
            return f"the snapshot has offset {max(producer.last_offset, first or 0)}, but covers only offsets below {offset}"
        if producer.last_offset < 0 <= producer.last_sequence:  # Kafka writes both of a batch, or neither
            return f"the snapshot has sequence {producer.last_sequence}, but no last offset"
        # A transaction from before the log can be open, but not after a later marker of its producer.
        known = first is not None and (first >= first_offset or log.markers.get(producer.producer_id) is not None)
        # Records of the transaction, or markers, can be gone.
        incomplete = log.holes or log.crowded or log.compaction.thinned or self._compacted
        begun = log.open.get(producer.producer_id)
        if exact and known and begun is None:
            return None if incomplete else f"the snapshot has an open transaction from offset {first}, the log does not"
        if exact and begun is not None and begun >= self._log_start and not incomplete:
            if first is None:
                return f"the snapshot has no open transaction, but the log has one from offset {begun}"
            if first_offset <= first != begun:
                return f"the snapshot has an open transaction from offset {first}, but it begins at {begun} in the log"
        why = self._batch_contradiction(producer, offset) if producer.last_offset >= 0 else None
        return why or (None if incomplete else self._coordinator_contradiction(producer, offset))

    def _coordinator_contradiction(self, producer: ProducerState, offset: int) -> str | None:
        """Return how the last marker of a producer contradicts its coordinator epoch in a snapshot, or None.

        A leader rejects markers of a lower epoch (``ProducerAppendInfo.checkCoordinatorEpoch``). A producer that had
        expired begins without a coordinator epoch.
        """
        marker, last = self._state.markers.get(producer.producer_id), self._state.producers.get(producer.producer_id)
        ended = self._state.coordinators.get(producer.producer_id)
        begins = producer.coordinator_epoch < 0 and last is not None and marker is not None and last[2] > marker
        if ended is None or ended[0] != marker or marker >= offset or begins:
            return None
        stored, found = producer.coordinator_epoch, ended[1]
        return None if stored == found else f"coordinator epoch: {stored} in the snapshot, {found} in the log"

    def _batch_contradiction(self, producer: ProducerState, offset: int) -> str | None:
        """Return how the last batch of a producer in a snapshot contradicts the log, or None."""
        log = self._state
        known: LastBatch | None = log.producers.get(producer.producer_id)
        if (known is None or known[2] < producer.last_offset) and not self._is_lacking(producer, offset, known):
            return None
        if known is None:
            return f"last offset: {producer.last_offset} in the snapshot, the log has another batch there"
        epoch, sequence, last, delta = known
        if last >= offset:
            return None
        stored = {
            "last offset": (producer.last_offset, last),
            "last sequence": (producer.last_sequence, sequence),
            "epoch": (producer.producer_epoch, epoch),
        }
        # Kafka 0.11 and 1.0 subtract the sequences instead of the offsets.
        if sequence >= delta:
            stored["offset delta"] = producer.offset_delta, delta
        wrong = ((name, *both) for name, both in stored.items() if both[0] != both[1])
        return next(
            (f"{name}: {snapshot} in the snapshot, {found} in the log" for name, snapshot, found in wrong), None
        )

    def _is_lacking(self, producer: ProducerState, offset: int, known: LastBatch | None) -> bool:
        """Return whether the log has other batches at the last offset of a producer."""
        log = self._state
        if log.holes or log.compaction.thinned or log.crowded or log.markers.forgot:
            return False
        # Kafka 0.11 has a marker as the last batch. One after the snapshot's offset can hide an earlier one.
        marker = log.markers.get(producer.producer_id)
        if producer.offset_delta == 0 and marker is not None and (marker == producer.last_offset or marker >= offset):
            return False
        if known is not None:
            return True
        uncertain = log.producers.forgot or log.compaction.gaps or log.compaction.unopened
        return not uncertain and log.bases[0] <= producer.last_offset

    def _check_epochs(self, name: str) -> None:
        try:
            entries = positioned_entries_of(self._state.path(name), walk_leader_epochs)
            if local_files.status(self._state.path(name)).st_mtime > self._began:
                return  # a broker truncated the log, or deleted its oldest segments, while they were read
        except (KsegError, ValueError, OSError):
            return  # reported for the checkpoint itself
        report = self._state.report_for(name)
        end = self._state.known_end
        for at, entry in entries:
            if end is not None and entry.start_offset > end:
                why = f"it starts at offset {entry.start_offset}, but the log ends at {end}"
                _report_epoch(report, at, entry.epoch, entry.start_offset, why)
                return
        for run in self._state.epochs_in_order:
            contradiction = _epoch_contradiction([entry for _, entry in entries], run)
            if contradiction and run[2] >= self._log_start:
                at = next((at for at, entry in entries if entry.epoch == run[0]), 0)
                _report_epoch(report, at, run[0], run[1], contradiction)
                return


def is_being_deleted(folder: str) -> bool:
    """Return whether a broker deletes the partition of this folder (``-delete``): its files vanish one by one."""
    partition = partition_of(os.path.basename(local_files.absolute(folder)))
    return partition is not None and partition.state == "-delete"


def _report_epoch(report: Report, at: int, epoch: int, offset: int, why: str) -> None:
    report(Finding("epoch-mismatch", at, offset=offset, facts={"epoch": epoch, "why": why}))


def _epoch_contradiction(entries: list[LeaderEpoch], run: EpochRun) -> str | None:
    """Return how the checkpoint contradicts the batches of one epoch, or None.

    Batches before the first entry are not checked: a broker removes entries below the log start, and clears the
    checkpoint when it appends v0 or v1 batches. Without entries it contradicts nothing, as if it did not exist.
    """
    epoch, first, last = run
    if epoch < 0 or not entries or last < entries[0].start_offset:
        return None
    at = next((at for at, entry in enumerate(entries) if entry.epoch == epoch), None)
    if at is None:
        return f"it has batches from offset {first}, but no entry"
    if at and first < entries[at].start_offset:
        return f"it starts at offset {entries[at].start_offset}, but has batches from offset {first}"
    if at + 1 < len(entries) and last >= entries[at + 1].start_offset:
        return f"it ends before offset {entries[at + 1].start_offset}, but has batches up to offset {last}"
    return None
