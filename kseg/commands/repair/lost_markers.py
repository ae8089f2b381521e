"""Find the transactions whose outcome a repair can have changed, because the marker that ended a part of them can be lost.

The next marker of a producer ends the transaction of its records (KIP-98). If an ABORT marker is lost, the records before it
end with the next marker, and consumers with read_committed get them once that is a COMMIT marker.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
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


class EndedTransactions:
    """The transactions that end in a log: producer id, first offset, offset of the marker, and whether it aborts."""

    def __init__(self) -> None:
        self._columns = array("q"), array("q"), array("q"), array("b")

    def add(self, producer_id: int, first: int, marker: int, aborted: bool) -> None:
        """Add the transaction that a marker ends."""
        for column, value in zip(self._columns, (producer_id, first, marker, aborted), strict=True):
            column.append(value)

    def uncertain(self, losses: Iterable[LostRange], indexes: Sequence[Path]) -> Iterator[str]:
        """Yield a line about each transaction with lost offsets between its first record and its marker.

        ``losses`` without offsets count for none. ``indexes`` are the transaction indexes of the source: they prove which
        transactions were aborted.
        """
        known = [one for one in losses if one.kind in _LOSSES]
        lasts = (INT64_MAX if one.last_offset is None else one.last_offset for one in known)
        ranges = sorted({(one.offset, last) for one, last in zip(known, lasts, strict=True) if one.offset is not None})
        if not ranges or not len(self._columns[0]):
            return
        ended = {(one.producer_id, one.first_offset): one for index in indexes for one in _entries(index)}
        for producer_id, first, marker, aborted in zip(*self._columns, strict=True):
            at = bisect_right(ranges, (marker, -1)) - 1
            if at < 0 or ranges[at][1] <= first:
                continue
            offsets = inclusive_range("offset", first, marker - 1)
            said = f"producer {producer_id}: the records of {offsets} are {'aborted' if aborted else 'committed'} now"
            proved = ended.get((producer_id, first))
            if proved and proved.last_offset != marker and not aborted:
                offsets = inclusive_range("offset", proved.first_offset, proved.last_offset)
                yield f"{said}, and the transaction index has {offsets} as aborted: read_committed consumers get them"
            else:
                lost = inclusive_range("offset", max(ranges[at][0], first), min(ranges[at][1], marker - 1))
                yield f"{said}: a marker that ended a part of them can be at the lost {lost}"


def _entries(index: Path) -> list[AbortedTxn]:
    with (
        suppress(KsegError),
        open_source(str(index), listed=True) as source,
    ):  # it only explains uncertain transactions
        return [entry for _, entry in walk_txn_index(source, 0)]
    return []
