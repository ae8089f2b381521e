"""Find the records of a chunk that contain given bytes: a search of the payloads leaves few records to examine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Protocol

from kseg.format.record.memory import ByteClasses, Needle, records_with
from kseg.format.segment.records_chunk import Chunk


class RecordSearch(Protocol):
    """A condition on the content of records, which is evaluated for a whole chunk."""

    def rows(self, chunk: Chunk) -> Sequence[int]:
        """Return the rows of the records that fulfil the condition, in their order."""

    def matched_fields(self, chunk: Chunk, i: int) -> Sequence[str]:
        """Return the names of the fields of record ``i`` that fulfil it."""

    def matches(self, chunk: Chunk, i: int) -> Iterator[tuple[str, str]]:
        """Yield the name of the field and the text of each match in record ``i``."""

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield start and end of each match in the text of a field."""


def rows_with(chunk: Chunk, needles: Iterable[Needle | ByteClasses]) -> list[int]:
    """Return the rows of records that can contain one of the needles, in their order.

    Other records don't contain any of them. A needle that is found can reach over the border between two fields: the
    caller examines the fields.
    """
    found: list[int] = []
    count = 0
    for needle in needles:
        count += 1
        for first, stop, payload, end in _searched_ranges(chunk):
            records_with(payload, end, needle, chunk.records, first, stop, found)
    return found if count == 1 else sorted(set(found))


def _searched_ranges(chunk: Chunk) -> Iterator[tuple[int, int, memoryview, int]]:
    """Yield first row, row after the last, buffer and its end: one range for consecutive batches of one buffer."""
    batches, payloads = chunk.batches, chunk.payloads
    first_record, record_total = batches.first_record, batches.record_total
    if not payloads:
        last = chunk.stop - 1
        yield 0, chunk.records.count, chunk.window.view, batches.at[last] + batches.size[last]
        return
    for compressed, group in groupby(range(chunk.first, chunk.stop), payloads.__contains__):
        filled = [row for row in group if record_total[row]]
        if compressed:
            for row in filled:
                first, payload = first_record[row], payloads[row]
                yield first, first + record_total[row], payload, len(payload)
        elif filled:
            last = filled[-1]
            stop = first_record[last] + record_total[last]
            yield first_record[filled[0]], stop, chunk.window.view, batches.at[last] + batches.size[last]


def by_batch(chunk: Chunk, rows: Sequence[int]) -> Iterator[tuple[int, list[int]]]:
    """Yield each batch that has some of these records, with the rows of these records."""
    batch = chunk.records.batch
    for row, found in groupby(rows, batch.__getitem__):
        yield row, list(found)


def rows_with_keys(chunk: Chunk, keys: Sequence[bytes | None]) -> list[int]:
    """Return the rows of the records with one of these keys, as ``rows_with_key`` does for one key."""
    found = [rows_with_key(chunk, key) for key in keys]
    return found[0] if len(found) == 1 else sorted({i for rows in found for i in rows})


def rows_with_key(chunk: Chunk, key: bytes | None) -> list[int]:
    """Return the rows of the records with exactly this key, None for null, in their order."""
    if key:
        found = rows_with(chunk, (Needle(key),))
        sizes = chunk.lists.key_size if found else []
        return [i for i in found if sizes[i] == len(key) and chunk.key(i) == key]
    size = -1 if key is None else 0
    return [i for i, key_size in enumerate(chunk.lists.key_size) if key_size == size]
