"""The settings of a conversion, which combinations are rejected, and what ``--for-another-cluster`` changes.

A leader epoch higher than the topic's keeps followers from fetching the log. Producer ids are given out by each cluster
from 0 on: a new producer that gets an id of the log fails with "out of order sequence". A transaction that has not ended
has no coordinator there, and holds consumers that read committed for ever. So the leader epochs become 0, and unless the
producers are kept, only committed records remain, without producer ids, transactions and markers. Offsets stay.

The new brokers do not know the log start of the old ones, and would serve the records before it, which were deleted.
"""

from __future__ import annotations

import os
import struct
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise, takewhile
from pathlib import Path
from typing import TYPE_CHECKING

from kseg.errors import UsageError
from kseg.format.compress.codecs import CODECS
from kseg.format.record import layout
from kseg.format.record.columns import CRC_BAD, BatchColumns
from kseg.format.record.framing import batch_crc
from kseg.format.segment.transaction_events import has_transactions
from kseg.format.sidefiles import transaction_states  # few conversions are for another cluster
from kseg.format.sidefiles.indexes import INDEX_INTERVAL_BYTES
from kseg.format.storage.local_files import absolute
from kseg.format.storage.naming import (
    CLUSTER_METADATA,
    REMOTE_LOG_METADATA,
    SHARE_GROUP_STATE,
    TRANSACTION_STATE,
    base_offset_of,
    leftover_of,
)
from kseg.format.storage.source import topic_partition
from kseg.format.writer import rewritten_rows
from kseg.format.writer.batch_runs import BatchRun, payload_of
from kseg.format.writer.records_builder import BatchPacker, build_batch, codec_id
from kseg.text import unknown_name

if TYPE_CHECKING:
    from kseg.format.segment.records_chunk import Chunk
    from kseg.format.sidefiles.transaction_states import SegmentTransactions, TransactionLogs

#: The leader epoch of a new topic's first leader.
LEADER_EPOCH = layout.FIRST_LEADER_EPOCH

#: The topics whose records have producer ids and topic ids of their cluster. In another one they fence its producers.
OF_ITS_CLUSTER = frozenset({CLUSTER_METADATA, TRANSACTION_STATE, SHARE_GROUP_STATE, REMOTE_LOG_METADATA})

#: Counts a loss: its kind, the number of records, the first and the last offset.
CountLoss = Callable[[str, int, int, int], None]

_EPOCH, _ATTRIBUTES, _CRC = struct.Struct(">i"), struct.Struct(">H"), struct.Struct(">I")
_PRODUCER = struct.Struct(">qhi")
_NO_PRODUCER = _PRODUCER.pack(layout.NO_PRODUCER_ID, -1, layout.NO_SEQUENCE)


def is_of_its_cluster(path: str) -> bool:
    """Return whether a partition's folder, or a file in it, is one that no other cluster can have."""
    return not OF_ITS_CLUSTER.isdisjoint({topic_partition(path)[0], topic_partition(f"{path}/x")[0]})


@dataclass(frozen=True, slots=True)
class AnotherCluster:
    """The data to remove from the batches of a segment.

    ``keep_producers`` keeps producer ids, sequences, transactions and markers; ``transactions`` are those of the segment,
    ``log_start`` is the first offset of its log that was not deleted.
    """

    keep_producers: bool = False
    logs: TransactionLogs = field(default_factory=lambda: transaction_states.TransactionLogs(), compare=False)
    transactions: SegmentTransactions | None = field(default=None, compare=False)
    log_start: int = 0

    def of_segment(self, path: str) -> AnotherCluster:
        """Return it with the transactions and the log start of a segment, whose folder has its log.

        The checkpoint has no log starts of ``-delete`` and ``-stray`` folders, but may have that of a new topic of the name.
        Raises UnreadableError if the checkpoint cannot be read.
        """
        transactions = self.logs.of(path, listed=True)
        unused = leftover_of(os.path.basename(os.path.dirname(absolute(path)))) in ("delete", "stray")
        return replace(self, transactions=transactions, log_start=0 if unused else transactions.log_start)

    def served(self, folder: Path, names: list[str]) -> list[str]:
        """Return the segments of a partition without those whose records are all before the log start.

        Raises UnreadableError like ``of_segment``.
        """
        log_start = self.of_segment(str(folder / names[0])).log_start
        ends = (base_offset_of(name) or 0 for name in names[1:])
        return names[sum(1 for _ in takewhile(lambda end: end <= log_start, ends)) :]

    def leave_out(self, batches: BatchColumns) -> None:
        """Deselect the markers and the batches that were not committed."""
        if self.keep_producers or not has_transactions(batches):
            return
        for row in range(batches.count):
            if batches.crc_state[row] != CRC_BAD and self.removal_of(batches, row):
                batches.selected[row] = 0

    def removal_of(self, batches: BatchColumns, row: int) -> str | None:
        """Return the kind of loss (``LOSSES``) if a batch of a transaction is removed, None if it is kept.

        Raises KsegError if a segment that has the marker cannot be read.
        """
        if self.keep_producers or batches.magic[row] < 2 or not batches.attributes[row] & layout.TRANSACTIONAL:
            return None
        if batches.attributes[row] & layout.CONTROL:
            return "control-records"
        assert self.transactions
        state = self.transactions.state(batches, row)
        return None if state == layout.COMMITTED else f"{state}-records"

    def without_deleted(self, chunks: Iterator[Chunk], count_loss: CountLoss) -> Iterator[Chunk]:
        """Yield the chunks without the records before the log start, and count these.

        Batches without others are deselected. The batch that holds the log start gets a chunk of its own.
        """
        for chunk in chunks:
            row = self._remove_deleted(chunk, count_loss) if self.log_start else None
            bounds = [chunk.first, chunk.stop] if row is None else [chunk.first, row, row + 1, chunk.stop]
            for chunk.first, chunk.stop in pairwise(bounds):
                if chunk.first < chunk.stop:
                    yield chunk

    def _remove_deleted(self, chunk: Chunk, count_loss: CountLoss) -> int | None:
        """Remove the records before the log start from the columns; return the row of the batch that holds it."""
        batches, offset = chunk.batches, chunk.records.offset
        for row in range(chunk.first, chunk.stop):
            if batches.crc_state[row] == CRC_BAD or not (batches.intact[row] and batches.selected[row]):
                continue
            if not batches.record_sum[row] or (batches.magic[row] >= 2 and batches.attributes[row] & layout.CONTROL):
                continue  # no client gets markers, and those of kept producers stay
            first, last = batches.first_record_offset[row], batches.last_record_offset[row]
            if first >= self.log_start:
                return None
            if last < self.log_start:
                batches.selected[row] = 0
                count_loss("deleted-records", batches.record_sum[row], first, last)
                continue
            begin, total = batches.first_record[row], batches.record_total[row]
            kept = bisect_left(offset, self.log_start, begin, begin + total)
            if kept > begin:
                count_loss("deleted-records", kept - begin, offset[begin], offset[kept - 1])
            batches.first_record[row], batches.record_total[row] = kept, begin + total - kept
            return row
        return None

    def holds_log_start(self, chunk: Chunk) -> bool:
        """Return whether a chunk of ``without_deleted`` has only the batch with records before and after the log start."""
        batches, row = chunk.batches, chunk.first
        return (
            chunk.stop - row == 1
            and batches.record_sum[row] > 0
            and batches.first_record_offset[row] < self.log_start <= batches.last_record_offset[row]
        )

    def part_of(self, run: BatchRun, codec: int, count_loss: CountLoss) -> Iterator[tuple[memoryview, int]]:
        """Yield the batches, and their codecs, that replace the batch that holds the log start, or a part of a large one.

        Offsets without a record get batches without records, as those of removed batches do.
        """
        chunk, batches, records, row = run.chunk, run.chunk.batches, run.chunk.records, run.row
        if run.i == run.end:
            return
        begin, before = rewritten_rows.first_offset(batches, row), chunk.previous_offset
        if before is not None and before >= self.log_start:
            begin = before + 1
        elif run.magic >= 2 and batches.base_sequence[row] >= 0 and not self.keep_producers:
            count_loss("sequences", 1, begin, batches.last_offset[row])
        if begin < records.offset[run.i]:
            yield memoryview(empty_batch(begin, records.offset[run.i] - 1)), 0
        written: list[memoryview] = []
        append_time = batches.attributes[row] & layout.LOG_APPEND_TIME if run.magic else 0
        packer = BatchPacker(None, lambda batch, _: written.append(batch))
        packer.add_entry(payload_of(chunk, row), records, run.i, run.end, codec, append_time)
        for batch in written:
            if self.keep_producers and run.magic >= 2:
                self._set_producer(batch, chunk, run.i)
            yield batch, codec
        end = records.offset[run.end - 1] + 1
        if not chunk.unfinished and end <= batches.last_offset[row]:
            yield memoryview(empty_batch(end, batches.last_offset[row])), 0

    @staticmethod
    def _set_producer(batch: memoryview, chunk: Chunk, i: int) -> None:
        """Give a batch that begins with record ``i`` the producer and the transaction of the record's batch."""
        batches, row = chunk.batches, chunk.first
        producer = batches.producer_id[row], batches.producer_epoch[row], chunk.sequence(i, row)
        batch[layout.PRODUCER_ID_AT : layout.PRODUCER_ID_AT + _PRODUCER.size] = _PRODUCER.pack(*producer)
        (attributes,) = _ATTRIBUTES.unpack_from(batch, layout.ATTRIBUTES_AT)
        attributes |= batches.attributes[row] & layout.TRANSACTIONAL
        _ATTRIBUTES.pack_into(batch, layout.ATTRIBUTES_AT, attributes)
        _CRC.pack_into(batch, layout.CRC_AT, batch_crc(batch, 0, len(batch), 2))

    def rewrite(self, batch: memoryview) -> bool:
        """Change the header of a v2 batch in place, with its CRC if that covers the change. Return whether it changed."""
        epoch_at, producer_at = layout.PARTITION_LEADER_EPOCH_AT, layout.PRODUCER_ID_AT
        before = bytes(batch[: layout.RECORD_BATCH_OVERHEAD])
        _EPOCH.pack_into(batch, epoch_at, LEADER_EPOCH)
        if not self.keep_producers:
            (attributes,) = _ATTRIBUTES.unpack_from(batch, layout.ATTRIBUTES_AT)
            _ATTRIBUTES.pack_into(batch, layout.ATTRIBUTES_AT, attributes & ~layout.TRANSACTIONAL)
            batch[producer_at : producer_at + len(_NO_PRODUCER)] = _NO_PRODUCER
            if bytes(batch[layout.ATTRIBUTES_AT : layout.RECORD_BATCH_OVERHEAD]) != before[layout.ATTRIBUTES_AT :]:
                _CRC.pack_into(batch, layout.CRC_AT, batch_crc(batch, 0, len(batch), 2))
        return bytes(batch[: layout.RECORD_BATCH_OVERHEAD]) != before


def empty_batch(first_offset: int, last_offset: int) -> bytes:
    """Return a batch without records, as the cleaner keeps one: its offsets do not seem lost, and the log's end stays."""
    return build_batch([], base_offset=first_offset, last_offset=last_offset, partition_leader_epoch=LEADER_EPOCH)


#: The conversions: versions accepted and version written. A conversion of a version to itself can change the codec.
DIRECTIONS = {
    **{f"v{a}-to-v{b}": (frozenset({a}), b) for a in range(3) for b in range(3)},
    "any-to-v2": (frozenset({0, 1}), 2),
}

#: The largest batch size in bytes for ``rebatch``, far above usual values of max.message.bytes.
MAX_REBATCH = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ConversionPlan:
    """A conversion. ``codec`` None keeps each batch's codec. ``rebatch`` (bytes before compression) None keeps batches.

    ``another_cluster`` removes the data that another cluster must not have, None for the same cluster.
    """

    direction: str
    codec: int | None = None
    rebatch: int | None = None
    skip_damaged: bool = False
    force: bool = False
    another_cluster: AnotherCluster | None = None
    index_interval: int = INDEX_INTERVAL_BYTES

    @classmethod
    def of(
        cls,
        direction: str,
        *,
        compression: str = "keep",
        rebatch: int | None = None,
        lossy: bool = False,
        skip_damaged: bool = False,
        force: bool = False,
        for_another_cluster: bool = False,
        keep_producers: bool = False,
    ) -> ConversionPlan:
        """Return the plan for the command line's values. Raises UsageError for values that contradict each other."""
        if direction not in DIRECTIONS:
            raise UsageError(unknown_name("conversion", direction, DIRECTIONS))
        sources, target = DIRECTIONS[direction]
        if sources == {target} and compression == "keep" and not for_another_cluster:
            raise UsageError(f"{direction} only changes the codec: add --compression")
        if for_another_cluster and target < 2:
            raise UsageError(
                "--for-another-cluster needs v2 as the target: older versions have no producers and epochs"
            )
        if target < max(sources) and not lossy:
            raise UsageError(
                f"{direction} loses fields that v{target} does not have: add --lossy to allow and list that"
            )
        codec = None if compression == "keep" else codec_id(compression)
        if codec is not None and CODECS[codec].first_magic > target:
            raise UsageError(f"v{target} does not have {compression} (KIP-110): choose another --compression")
        if rebatch is not None and target < 2:
            raise UsageError("--rebatch needs v2 as the target: only v2 batches are packed")
        if rebatch is not None and rebatch > MAX_REBATCH:
            raise UsageError(
                f"--rebatch: expected at most {MAX_REBATCH:,} bytes, because each batch is built in memory"
            )
        another_cluster = AnotherCluster(keep_producers) if for_another_cluster else None
        return cls(direction, codec, rebatch, skip_damaged, force, another_cluster)

    def of_segment(self, path: str) -> ConversionPlan:
        """Return the plan for a segment."""
        if self.another_cluster is None:
            return self
        return replace(self, another_cluster=self.another_cluster.of_segment(path))

    @property
    def sources(self) -> frozenset[int]:
        """Return the versions that are converted; batches of the target's version are copied."""
        return DIRECTIONS[self.direction][0]

    @property
    def target(self) -> int:
        return DIRECTIONS[self.direction][1]

    @property
    def downwards(self) -> bool:
        return self.target < max(self.sources)

    def why_rejected(self, magic: int) -> str:
        """Return why the conversion rejects a batch of version ``magic``, and which ones accept it."""
        target, taken = self.target, ", ".join(f"v{one}" for one in sorted({*self.sources, self.target}))
        if target >= 2:
            advice = "any-to-v2"
        else:  # a conversion of a version to itself accepts no other one
            own = target in self.sources
            advice = f"v{magic}-to-v{target}" if own else f"any-to-v2, and v2-to-v{target} on its result"
        return f"v{magic}, but this conversion accepts only {taken}: use {advice}"
