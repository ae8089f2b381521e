"""The audit of replicas: compare the folders of each partition in several log directories."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kseg.commands.diff.diff import compare, truncations
from kseg.commands.diff.replica import Replica
from kseg.errors import KsegError, UsageError
from kseg.findings import do_nothing
from kseg.format.storage.source import SegmentFile, topic_partition
from kseg.schema import Row

# Topic, partition, and the folders of two replicas.
_Pair = tuple[str, int, str, str]


def pairs(files: Sequence[SegmentFile]) -> list[_Pair]:
    """Return the first folder of each partition with each other one. Raises UsageError if there is only one of each."""
    folders: dict[tuple[str, int], dict[str, None]] = {}
    for file in files:
        topic, partition = topic_partition(file.path)
        if topic is not None and partition is not None:
            folders.setdefault((topic, partition), {})[file.path.rpartition("/")[0]] = None
    found = [
        (*place, first, other)
        for place, (first, *others) in sorted((place, list(found)) for place, found in folders.items())
        for other in others
    ]
    if not found:
        raise UsageError("no partition has two replicas here: give the log directories of two or more brokers")
    return found


def compare_pair(pair: _Pair) -> Row:
    """Compare two replicas as ``kseg diff`` does.

    ``first_offset`` is the first offset with different records, ``stale`` the side (a or b) with the older leader epoch
    at that offset, ``…_truncates_to`` the offset to which a side would truncate if the other led.
    """
    topic, partition, a, b = pair
    row: Row = {"topic": topic, "partition": partition, "a": a, "b": b}
    try:
        left, right = Replica(a, do_nothing), Replica(b, do_nothing)
        result = compare(left, right, do_nothing)
        truncates = truncations(left.summary(), right.summary())
    except KsegError as error:
        return row | {
            "verdict": "unread", "first_offset": None, "a_epoch": None, "b_epoch": None, "stale": None,
            "last_common_offset": None, "a_truncates_to": None, "b_truncates_to": None, "unread": str(error),
        }  # fmt: skip
    first = result.first_difference
    epochs = [place.leader_epoch if place else None for place in (first.a, first.b)] if first else [None, None]
    stale = None
    if epochs[0] is not None and epochs[1] is not None and epochs[0] != epochs[1]:
        stale = "a" if epochs[0] < epochs[1] else "b"
    return row | {
        "verdict": result.verdict, "first_offset": first.first_offset if first else None, "a_epoch": epochs[0],
        "b_epoch": epochs[1], "stale": stale, "last_common_offset": result.last_common_offset,
        "a_truncates_to": truncates["a"], "b_truncates_to": truncates["b"], "unread": None,
    }  # fmt: skip


def replicas(compared: Iterable[Row]) -> Iterable[Row]:
    """Return the outcomes as they are."""
    return compared
