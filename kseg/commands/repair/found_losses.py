"""Damaged batches of a replica that another replica has: they are no losses, also if records in them were removed.

A replica that lacks records inside a batch proves nothing about the same offsets of another one: it can have been compacted.
But if the damaged bytes begin as its batch, or are equal to it, both are the same batch: the base offset, and the stored CRC
or all bytes that the CRC covers. Other bytes can be of other batches that the cleaner has removed, so none may be left over.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kseg.commands.repair.damaged_replicas import DamagedReplica, ReplicaBatch
from kseg.commands.repair.repair_losses import LostOffsets, LostRange
from kseg.format.record.layout import ATTRIBUTES_AT, CRC_AT, LEGACY_CRC_AT, MAGIC_AT, SIZE_AT


def drop_found_losses(replicas: Sequence[DamagedReplica]) -> None:
    """Remove the losses of replicas whose batches are proved to be in another replica."""
    for replica in replicas:
        for other in replicas:
            if other is not replica and replica.losses:
                found = _found_in(other, replica)
                replica.losses = [loss for loss in replica.losses if loss not in found]


def _found_in(other: DamagedReplica, replica: DamagedReplica) -> list[LostRange]:
    """Return the losses of a replica whose batches another one has."""
    waiting = [_Comparison(replica, loss) for loss in replica.losses if not isinstance(loss, LostOffsets)]
    waiting.sort(key=lambda one: one.low, reverse=True)
    active: list[_Comparison] = []
    found = []
    for batch in other.batches() if waiting else ():
        while waiting and waiting[-1].low <= batch.last_offset:
            active.append(waiting.pop())
        for one in active:
            one.compare(batch)
        found += [one.loss for one in active if one.is_found]
        active = [one for one in active if not one.is_done]
        if not waiting and not active:
            break
    return found


class _Comparison:
    """Compares lost bytes of a replica with the batches of another one at their offsets, in order."""

    def __init__(self, replica: DamagedReplica, loss: LostRange) -> None:
        self.loss = loss
        self.low, self._high = replica.lost_offsets(loss)
        self._at = loss.position
        self._offset = int.from_bytes(_read(Path(loss.file), self._at, SIZE_AT))
        self.is_found = self.is_done = False

    def compare(self, batch: ReplicaBatch) -> None:
        """Compare the next batch: all bytes, or all offsets, of the loss must be those of equal batches."""
        offset = batch.last_offset if batch.wrapper else batch.base_offset
        if self._at == self.loss.position and offset < self._offset:
            return  # it is before the lost bytes, whose offsets need not be known
        lost = _read(Path(self.loss.file), self._at, min(batch.size, self.loss.end - self._at))
        is_same = _is_same(lost, _read(batch.path, batch.position, batch.size))
        self._at += batch.size
        has_all_offsets = self._high is not None and self._high <= batch.last_offset
        self.is_found = is_same and (self._at == self.loss.end or has_all_offsets)
        self.is_done = self.is_found or not is_same or self._at > self.loss.end


def _is_same(lost: bytes, valid: bytes) -> bool:
    """Return whether damaged bytes, of which the last ones can be missing, are those of a valid batch."""
    crc, covered = (CRC_AT, ATTRIBUTES_AT) if valid[MAGIC_AT] >= 2 else (LEGACY_CRC_AT, MAGIC_AT)
    has_crc = lost[crc : crc + 4] == valid[crc : crc + 4]
    return lost[:SIZE_AT] == valid[:SIZE_AT] and (has_crc or lost[covered:] == valid[covered:])


def _read(path: Path, position: int, size: int) -> bytes:
    with path.open("rb") as file:
        file.seek(position)
        return file.read(size)
