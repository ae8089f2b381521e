"""Change a log for the brokers of another cluster: ``kseg convert --for-another-cluster``.

A leader epoch higher than the topic's keeps followers from fetching the log. Producer ids are given out by each cluster
from 0 on: a new producer that gets an id of the log fails with "out of order sequence". A transaction that has not ended
has no coordinator there, and holds consumers that read committed for ever. So the leader epochs become 0, and unless the
producers are kept, only committed records remain, without producer ids, transactions and markers. Offsets stay.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field, replace

from kseg.format.record import layout
from kseg.format.record.columns import CRC_BAD, BatchColumns
from kseg.format.record.framing import batch_crc
from kseg.format.segment.transaction_events import has_transactions
from kseg.format.sidefiles.transaction_states import SegmentTransactions, TransactionLogs
from kseg.format.writer.records_builder import build_batch

#: The leader epoch of a new topic's first leader.
LEADER_EPOCH = layout.FIRST_LEADER_EPOCH

_EPOCH, _ATTRIBUTES, _CRC = struct.Struct(">i"), struct.Struct(">H"), struct.Struct(">I")
_NO_PRODUCER = struct.pack(">qhi", layout.NO_PRODUCER_ID, -1, layout.NO_SEQUENCE)


@dataclass(frozen=True, slots=True)
class AnotherCluster:
    """The data to remove from the batches of a segment.

    ``keep_producers`` keeps producer ids, sequences, transactions and markers; ``transactions`` are those of the segment.
    """

    keep_producers: bool = False
    logs: TransactionLogs = field(default_factory=TransactionLogs, compare=False)
    transactions: SegmentTransactions | None = field(default=None, compare=False)

    def of_segment(self, path: str) -> AnotherCluster:
        """Return it with the transactions of a segment, whose folder has its log."""
        return replace(self, transactions=self.logs.of(path, listed=True))

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
        if batches.magic[row] < 2 or not batches.attributes[row] & layout.TRANSACTIONAL:
            return None
        if batches.attributes[row] & layout.CONTROL:
            return "control-records"
        assert self.transactions
        state = self.transactions.state(batches, row)
        return None if state == layout.COMMITTED else f"{state}-records"

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
