"""Find the transactions whose outcome a repair can have changed, because the marker that ended a part of them can be lost.

The next marker of a producer ends the transaction of its records (KIP-98). If an ABORT marker is lost, the records before it
end with the next marker, and consumers with read_committed get them once that is a COMMIT marker.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from kseg.commands.repair.repair_losses import LostRange
from kseg.errors import KsegError
from kseg.format.record.layout import INT64_MAX
from kseg.format.sidefiles.index_walks import walk_txn_index
from kseg.format.sidefiles.indexes import AbortedTxn
from kseg.format.storage.source import open_source
from kseg.text import inclusive_range

#: The kinds of rows of a repair that say that offsets are not in the result.
_LOSSES = ("lost", "missing", "salvaged")


@dataclass(frozen=True, slots=True)
class UncertainTransaction:
    """A transaction of the result, from its first offset to its marker (``aborted`` or not), with lost offsets inside.

    ``proved`` is the aborted transaction that the source's index has there, None without one.
    """

    producer_id: int
    first_offset: int
    marker_offset: int
    aborted: bool
    lost: tuple[int, int]
    proved: AbortedTxn | None = None

    def __str__(self) -> str:
        """The transaction as a message says it."""
        offsets = inclusive_range("offset", self.first_offset, self.marker_offset - 1)
        outcome = "aborted" if self.aborted else "committed"
        said = f"producer {self.producer_id}: the records of {offsets} are {outcome} now"
        if self.proved and not self.aborted:
            ended = inclusive_range("offset", self.proved.first_offset, self.proved.last_offset)
            return f"{said}, and the transaction index has {ended} as aborted: read_committed consumers get them"
        lost = inclusive_range("offset", *self.lost)
        return f"{said}: a marker that ended a part of them can be at the lost {lost}"


class EndedTransactions:
    """The transactions that end in a log: producer id, first offset, offset of the marker, and whether it aborts."""

    def __init__(self) -> None:
        self._columns = array("q"), array("q"), array("q"), array("b")

    def add(self, producer_id: int, first: int, marker: int, aborted: bool) -> None:
        """Add the transaction that a marker ends."""
        for column, value in zip(self._columns, (producer_id, first, marker, aborted), strict=True):
            column.append(value)

    def uncertain(self, losses: Iterable[LostRange], indexes: Sequence[Path]) -> Iterator[UncertainTransaction]:
        """Yield the transactions with lost offsets between their first record and their marker.

        ``losses`` without offsets count for none. ``indexes`` are the transaction indexes of the source.
        """
        ranges = sorted({(one.offset, _last(one)) for one in losses if one.offset is not None and one.kind in _LOSSES})
        if not ranges or not len(self._columns[0]):
            return
        ended = {(one.producer_id, one.first_offset): one for index in indexes for one in _entries(index)}
        for producer_id, first, marker, aborted in zip(*self._columns, strict=True):
            at = bisect_right(ranges, (marker, -1)) - 1
            if at >= 0 and ranges[at][1] > first:
                lost = max(ranges[at][0], first), min(ranges[at][1], marker - 1)
                proved = ended.get((producer_id, first))
                proved = proved if proved and proved.last_offset != marker else None
                yield UncertainTransaction(producer_id, first, marker, bool(aborted), lost, proved)


def _last(loss: LostRange) -> int:
    return INT64_MAX if loss.last_offset is None else loss.last_offset


def _entries(index: Path) -> list[AbortedTxn]:
    with (
        suppress(KsegError),
        open_source(str(index), listed=True) as source,
    ):  # it only explains uncertain transactions
        return [entry for _, entry in walk_txn_index(source, 0)]
    return []
