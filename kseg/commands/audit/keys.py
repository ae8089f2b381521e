"""The audit of the largest keys. It reads all records, in memory that does not depend on the number of keys."""

from __future__ import annotations

import heapq
import pickle
import tempfile
from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import IO, Any

from kseg.audit_table import TOP
from kseg.commands.audit.segments import windows
from kseg.format.record.layout import CONTROL
from kseg.format.segment.deep_reader import DeepIterator
from kseg.format.storage.source import SegmentFile, topic_partition
from kseg.schema import Row

#: The memory for keys, in bytes, after which their sums are written to a temporary file.
MOST_BYTES = 64 * 1024 * 1024
# A dict entry, a tuple and a list of three numbers.
_BYTES_PER_KEY = 300
_ROWS_PER_BLOCK = 1000
#: The temporary files after which they are merged into one: each is open.
MOST_RUNS = 64

# Topic and key. A null is sorted first.
_Key = tuple[str, bool, bytes]
_Sum = tuple[_Key, int, int, int]


def key_sums(file: SegmentFile) -> Iterator[_Sum]:
    """Yield each data record of a segment as (topic and key, bytes of key and value, 1, 1 for a tombstone)."""
    topic = topic_partition(file.path)[0] or ""
    opener = DeepIterator()
    for window in windows(file):
        for chunk in opener.chunks(window):
            lists = chunk.lists
            for row in range(chunk.first, chunk.stop):
                batches = chunk.batches
                if not batches.record_total[row] or (batches.magic[row] >= 2 and batches.attributes[row] & CONTROL):
                    continue
                payload = chunk.payload(row)
                for i in chunk.rows(row):
                    size, at, value = lists.key_size[i], lists.key_at[i], lists.value_size[i]
                    key = (topic, size >= 0, bytes(payload[at : at + size]) if size > 0 else b"")
                    yield key, max(size, 0) + max(value, 0), 1, value < 0


def top_keys(files: Iterable[Iterator[_Sum]], top: int = TOP) -> Iterator[Row]:
    """Yield the keys with the most bytes of keys and values, by topic."""
    runs: list[IO[bytes]] = []
    try:
        sums: dict[_Key, list[int]] = {}
        used = 0
        for of_file in files:
            for key, size, records, tombstones in of_file:
                one = sums.get(key)
                if one is None:
                    one = sums[key] = [0, 0, 0]
                    used += _BYTES_PER_KEY + len(key[2])
                one[0] += size
                one[1] += records
                one[2] += tombstones
                if used > MOST_BYTES:
                    runs.append(_write(_sorted(sums)))
                    sums, used = {}, 0
                if len(runs) == MOST_RUNS:
                    whole = _write(_added(heapq.merge(*map(_read, runs), key=itemgetter(0))))
                    for run in runs:
                        run.close()
                    runs[:] = [whole]
        merged = heapq.merge(_sorted(sums), *map(_read, runs), key=itemgetter(0))
        for (topic, present, key), *numbers in heapq.nsmallest(top, _added(merged), key=lambda one: (-one[1], one[0])):
            size, records, tombstones = numbers
            yield {
                "topic": topic or None,
                "key": key if present else None,
                "bytes": size,
                "records": records,
                "tombstones": tombstones,
            }
    finally:
        for run in runs:
            run.close()


def _sorted(sums: dict[_Key, list[int]]) -> Iterator[Any]:
    return ((key, *sums[key]) for key in sorted(sums))


def _write(found: Iterable[Any]) -> IO[bytes]:
    """Write sums, sorted by key, to a temporary file without a name, which ends with the process."""
    out = tempfile.TemporaryFile()  # noqa: SIM115
    block: list[Any] = []
    for one in found:
        block.append(one)
        if len(block) == _ROWS_PER_BLOCK:
            pickle.dump(block, out)
            block = []
    pickle.dump(block, out)
    pickle.dump(None, out)
    out.seek(0)
    return out


def _read(run: IO[bytes]) -> Iterator[Any]:
    while (block := pickle.load(run)) is not None:
        yield from block


def _added(merged: Iterable[Any]) -> Iterator[Any]:
    """Yield the sum of the sums of each key."""
    for key, parts in groupby(merged, key=itemgetter(0)):
        yield key, *map(sum, zip(*(part[1:] for part in parts), strict=True))
