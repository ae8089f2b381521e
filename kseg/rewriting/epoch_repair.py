"""Leader epochs in disorder, which no CRC covers: the odd ones become -1, "unknown", in what a repair writes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import IO

from kseg.format.kernel import BatchColumns
from kseg.format.log_format import NO_PARTITION_LEADER_EPOCH, PARTITION_LEADER_EPOCH_AT
from kseg.rewriting.losses import Mended, Salvaged, Tell


@dataclass(frozen=True, slots=True)
class _Place:
    """An entry with a leader epoch: what to say if that is odd, and its byte in the result."""

    what: Mended
    written: int


class LeaderEpochs:
    """Takes the entries of one segment as they are written, and puts right those that go back, or that all behind them
    would go back from. ``out`` None: only look.
    """

    def __init__(self, out: IO[bytes] | None, tally: Salvaged, tell: Tell) -> None:
        self._out = out
        self._tally = tally
        self._tell = tell
        # The last two tell an odd one from one that those behind an odd one seem to go back from.
        self._before = self._last = NO_PARTITION_LEADER_EPOCH
        self._place: _Place | None = None

    def take(self, batches: BatchColumns, row: int, stop: int, written: int) -> None:
        """Entries ``row`` to ``stop``, which have been written at byte ``written`` of the result, one behind the other."""
        shift = written - batches.position[row]
        for each in range(row, stop):
            epoch = batches.partition_leader_epoch[each]
            if batches.magic[each] < 2 or epoch < 0:
                continue
            begin = batches.position[each]
            what = Mended(
                self._tally.source, begin, begin + batches.size[each], batches.base_offset[each],
                batches.last_offset[each], "leader-epoch-regression", f"leader epoch {epoch} is now -1",
            )  # fmt: skip
            odd = self._next(epoch, _Place(what, begin + shift))
            if odd is not None:
                self._put_right(odd)

    def _next(self, epoch: int, place: _Place) -> _Place | None:
        """Take the next entry's epoch; returns the entry whose epoch is odd, this or the last, if one is."""
        odd = None
        if epoch < self._last:
            if epoch < self._before:
                return place
            odd = self._place
        else:
            self._before = self._last
        self._last, self._place = epoch, place
        return odd

    def _put_right(self, odd: _Place) -> None:
        if self._out is not None:
            self._out.seek(odd.written + PARTITION_LEADER_EPOCH_AT)
            self._out.write(NO_PARTITION_LEADER_EPOCH.to_bytes(4, "big", signed=True))
            self._out.seek(self._tally.bytes_after)
        self._tally.mended += 1
        self._tell(odd.what)
