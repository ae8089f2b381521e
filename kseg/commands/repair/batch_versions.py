"""The versions of one batch that replicas have: the log cleaner of each removes records by itself.

It keeps the base offset and the last offset of v2 batches. Of wrappers it changes both, so these are compared by their
records. So are single messages, of which another replica can have a set: in a damaged set, they are read by themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

from kseg.commands.repair.damaged_replicas import ReplicaBatch
from kseg.format.record.columns import BatchColumns
from kseg.format.record.equality import different_producer_fields
from kseg.format.segment.segment_chunks import chunks_of
from kseg.format.storage.source import open_range

#: The content of the records of a batch by offset: timestamp, key, value, headers.
_Records = dict[int, tuple[object, ...]]


def first_batch(heads: Sequence[ReplicaBatch | None]) -> tuple[int, ReplicaBatch]:
    """Return the next batch of the result, and the number of its replica: a version of the one with the lowest offsets.

    It is the version with the most deletions, and among these with the most records. Older records that a replica keeps need
    the deletion, and a record that the cleaner has removed elsewhere is overwritten by a later one, or by a deletion. Of
    equal versions, it is the one of the higher format: a converted replica stays converted, except where it is damaged.
    """
    known = [(n, head) for n, head in enumerate(heads) if head is not None]
    lowest = min((head for _, head in known), key=lambda head: head.base_offset)
    chosen, batch = next((n, head) for n, head in known if head.base_offset <= lowest.last_offset)
    for n, head in known:
        overlaps = n != chosen and head.base_offset <= batch.last_offset
        # A single message that is a deletion is no version of a set with other records.
        skipped = 0 if _has_offsets_of(head, batch) else 1
        is_version = overlaps and not head.is_same(batch) and agree(batch, head)
        if is_version and _rank(head)[skipped:] > _rank(batch)[skipped:]:
            chosen, batch = n, head
    return chosen, batch


def _rank(batch: ReplicaBatch) -> tuple[int, ...]:
    """Return the order of versions; the CRC decides between equal ones, so that the order of the replicas does not."""
    header, records = _content(batch)
    deletions = sum(value is None for _, _, value, _ in records.values())
    return deletions, len(records), header.magic[0], batch.crc


def agree(left: ReplicaBatch, right: ReplicaBatch) -> bool:
    """Return whether both can be versions of one batch: no record of one differs from that of the other at its offset."""
    (header, one), (other_header, other) = _content(left), _content(right)
    if min(header.magic[0], other_header.magic[0]) >= 2 and not _has_offsets_of(left, right):
        return False
    if different_producer_fields(header, 0, other_header, 0):
        return False
    # A replica can lack records only where the cleaner has removed them: fewer than offsets are left.
    return all(one[offset] == other[offset] for offset in one.keys() & other.keys())


def is_cleaned_version(cleaned: ReplicaBatch, batch: ReplicaBatch) -> bool:
    """Return whether ``cleaned`` is ``batch`` without some of its records."""
    if cleaned.records >= batch.records or not _has_offsets_of(cleaned, batch) or not agree(cleaned, batch):
        return False
    return _records(cleaned).keys() < _records(batch).keys()


def _has_offsets_of(left: ReplicaBatch, right: ReplicaBatch) -> bool:
    """Return whether both have the first and the last offset that the cleaner keeps."""
    return (left.wrapper and right.wrapper) or left[:2] == right[:2]


def ranges_without(batch: ReplicaBatch, other: ReplicaBatch) -> Iterator[tuple[int, int]]:
    """Yield the first and the last offset of adjacent records of a batch that another version of it lacks."""
    present = _records(other)
    run: list[int] = []
    for offset in sorted({*_records(batch), *present}):
        if offset not in present:
            run.append(offset)
        elif run:
            yield run[0], run[-1]
            run = []
    if run:
        yield run[0], run[-1]


@lru_cache(maxsize=8)  # the versions of one batch are compared more than once
def _content(batch: ReplicaBatch) -> tuple[BatchColumns, _Records]:
    """Return the header of a batch, as the only row, and its records."""
    header, found = BatchColumns(1), _Records()
    for chunk in chunks_of(open_range(str(batch.path), batch.position, batch.position + batch.size)):
        header = chunk.batches
        for i, (offset, timestamp) in enumerate(zip(chunk.lists.offset, chunk.lists.timestamp, strict=True)):
            found[offset] = timestamp, chunk.key(i), chunk.value(i), chunk.headers(i, None)
    return header, found


def _records(batch: ReplicaBatch) -> _Records:
    return _content(batch)[1]
