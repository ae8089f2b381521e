"""Build the transaction indexes of converted segments from their batches, as a broker does when it recovers a log.

After a clean shutdown a broker trusts these files: without an entry, consumers that read committed get aborted records.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

from kseg.commands.convert.parallel import Pair
from kseg.commands.convert.result import Conversion
from kseg.format.record.columns import BatchColumns
from kseg.format.segment.reader import SegmentReader
from kseg.format.segment.transaction_events import Event, log_events
from kseg.format.sidefiles.index_reader import walk_txn_index
from kseg.format.sidefiles.txn_index import MAX_OPEN, AbortedTransactions, AbortedTxn
from kseg.format.storage.atomic_write import NewFile, writing
from kseg.format.storage.source import open_source
from kseg.format.storage.special_files import read_file
from kseg.format.writer.targets import txn_index_path


def write_txn_indexes(pairs: Sequence[Pair], segments: Sequence[Conversion]) -> None:
    """Write the transaction index of each converted segment in which a transaction was aborted.

    ``pairs`` are the sources and the written logs of a partition, or of one segment, in the order of their offsets.
    The written logs are read again: transactions can begin in another segment, which another process has converted.
    Raises KsegError.
    """
    if not any(segment.transactional for segment in segments):
        return
    own = txn_index_path(Path(pairs[0][0]))
    begin = segments[0].first_offset or 0
    txns = _open_before(own, begin, pairs[0][1])
    for (_, log), segment in zip(pairs, segments, strict=True):
        if segment.transactional:
            entries: Iterator[AbortedTxn] = chain.from_iterable(txns.update(*window) for window in _windows(log))
            if segment is segments[0]:
                entries = _with_stable_offsets(entries, own, begin)
            _write(txn_index_path(log), entries)


def _write(path: Path, entries: Iterator[AbortedTxn]) -> None:
    """Write an index. A broker creates the file with the first entry, so an index without entries is not written."""
    first = next(entries, None)
    if first is None:
        return
    with writing(path), NewFile(path) as new:
        for txn in chain((first,), entries):
            new.file.write(txn.pack())
        new.sync()


def _open_before(index: Path, begin: int, log: Path) -> AbortedTransactions:
    """Return the transactions that were open before ``begin``, the first offset of the log, as its side files have them.

    ``index`` is the source's transaction index. The producer snapshot is next to it. Both can be missing.
    """
    txns = AbortedTransactions()
    snapshot = index.with_suffix(".snapshot")
    if snapshot.is_file():
        txns.add_open(read_file(str(snapshot)))
    begun: dict[int, AbortedTxn] = {}
    for txn in _stored(index):
        if 0 <= txn.first_offset < begin <= txn.last_offset and len(begun) < MAX_OPEN:
            begun.setdefault(txn.producer_id, txn)
    for txn in _confirmed(begun, log) if begun else ():
        if txn.producer_id not in txns.open:
            txns.begin(txn.producer_id, txn.first_offset)
    return txns


def _stored(index: Path) -> Iterator[AbortedTxn]:
    """Yield the entries of the source's index, right or wrong; none if it does not exist."""
    if index.is_file():
        with open_source(str(index)) as source:
            for _, txn in walk_txn_index(source, 0):
                yield txn


def _confirmed(begun: dict[int, AbortedTxn], log: Path) -> Iterator[AbortedTxn]:
    """Yield the entries whose marker the log has. ``begun`` has one that began before the log by producer."""
    for batches, events in _windows(log):
        for row, at, marker in events:
            # Only the first marker of a producer can end a transaction that began earlier.
            txn = begun.pop(batches.producer_id[row], None) if marker else None
            if txn and marker and marker.type == "ABORT" and txn.last_offset == at:
                yield txn


def _with_stable_offsets(entries: Iterator[AbortedTxn], index: Path, begin: int) -> Iterator[AbortedTxn]:
    """Yield the entries with the last stable offsets of the source's index that are before ``begin``.

    A transaction that is open throughout a segment is not in it. A broker ends its search for aborted transactions at an
    entry with a last stable offset after the fetched records (``TransactionIndex.collectAbortedTxns``).
    """
    stored = _stored(index)
    known = next(stored, None)
    for txn in entries:
        while known and known.last_offset < txn.last_offset:
            known = next(stored, None)
        if known and known[:3] == txn[:3] and 0 <= known.last_stable_offset < begin:
            txn = txn._replace(last_stable_offset=min(txn.last_stable_offset, known.last_stable_offset))
        yield txn


def _windows(log: Path) -> Iterator[tuple[BatchColumns, Iterator[Event]]]:
    """Yield the batches of each window of a written log, and their events of transactions. Its CRCs were read back."""
    with SegmentReader(open_source(str(log)), verify_crc=False) as reader:
        yield from log_events(reader)
