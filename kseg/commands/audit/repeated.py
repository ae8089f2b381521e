"""The audit of repeated batches: offsets that a folder has twice, and sequences that a producer wrote twice."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from kseg.commands.audit.segments import columns, each_file, windows
from kseg.errors import VanishedError
from kseg.format.internal_topics.decode import CONSUMER_OFFSETS
from kseg.format.record.layout import CODEC_MASK, CONTROL
from kseg.format.storage.source import SegmentFile, topic_partition
from kseg.schema import Row

# Producer id, epoch and first sequence of a batch.
_Sequence = tuple[int, int, int]
_FIELDS = (
    "position", "magic", "attributes", "base_offset", "last_offset", "producer_id", "producer_epoch", "base_sequence",
)  # fmt: skip


def each_folder(files: Sequence[SegmentFile]) -> list[tuple[SegmentFile, ...]]:
    """Return the segments of each folder in offset order."""
    found = groupby(each_file(files), key=lambda file: os.path.dirname(file.path))
    return [tuple(of_folder) for _, of_folder in found]


def repeated_batches(files: Sequence[SegmentFile]) -> list[Row]:
    """Return batches that repeat offsets of their folder (``offset``) or sequences of their producer (``sequence``).

    ``earlier_offset`` is the last offset of the previous batches, or of the first batch with that sequence. Sequences
    restart after 2,147,483,647 records of one producer. A group coordinator writes the offset commits of a producer, each
    from sequence 0 (AppendOrigin.COORDINATOR): they repeat no batch.
    """
    found: list[Row] = []
    suspects: dict[_Sequence, list[Row]] = {}
    largest: dict[tuple[int, int], int] = {}
    ended: set[int] = set()
    end: int | None = None
    for file, (position, magic, attributes, base, last, producer, epoch, sequence) in _batches(files):
        first = last if magic < 2 and attributes & CODEC_MASK else base
        row: Row = {
            "kind": "offset", "topic": None, "partition": None, "file": file.path, "position": position,
            "first_offset": first, "last_offset": last, "producer_id": producer if magic >= 2 else None,
            "producer_epoch": epoch if magic >= 2 else None, "base_sequence": sequence if magic >= 2 else None,
        }  # fmt: skip
        if end is not None and first <= end:
            found.append({**row, "earlier_offset": end})
        end = last if end is None else max(end, last)
        if magic < 2 or producer < 0:
            continue
        if attributes & CONTROL:
            ended.add(producer)
            continue
        if sequence < 0 or (not sequence and topic_partition(file.path)[0] == CONSUMER_OFFSETS):
            continue
        # Without the topic's name, a marker before it is the sign of such a batch, as in the check of sequences.
        begins_again = not sequence and producer in ended
        ended.discard(producer)
        # As long as the sequences of a producer increase, none is repeated.
        if sequence <= largest.get((producer, epoch), -1) and not begins_again:
            suspects.setdefault((producer, epoch, sequence), []).append({**row, "kind": "sequence"})
        else:
            largest[producer, epoch] = sequence
    found += _with_first_batches(files, suspects)
    for row in found:
        row["topic"], row["partition"] = topic_partition(row["file"])
    return found


def _with_first_batches(files: Sequence[SegmentFile], suspects: dict[_Sequence, list[Row]]) -> Iterator[Row]:
    """Yield the suspects that are not the first batch with their sequence. Reads the folder again to find the first."""
    if not suspects:
        return
    seen: set[_Sequence] = set()
    for _, (_, magic, attributes, _, last, *sequence) in _batches(files):
        key: _Sequence = tuple(sequence)  # type: ignore[assignment]
        if magic < 2 or attributes & CONTROL or key not in suspects or key in seen:
            continue
        seen.add(key)
        yield from ({**row, "earlier_offset": last} for row in suspects[key] if row["last_offset"] != last)


def _batches(files: Iterable[SegmentFile]) -> Iterator[tuple[SegmentFile, tuple[int, ...]]]:
    for file in files:
        try:
            for window in windows(file):
                for batch in columns(window, *_FIELDS):
                    yield file, batch
        except VanishedError:
            if not file.listed:
                raise


def duplicates(folders: Iterable[list[Row]]) -> list[Row]:
    """Return the repeated batches of all folders."""
    found = [row for of_folder in folders for row in of_folder]
    return sorted(found, key=lambda row: (row["file"], row["position"], row["kind"]))
