"""What a crash left of other work in a partition's folder, and how a broker tidies it before it loads the log.

Sources: ``LogLoader.removeTempFilesAndCollectSwapFiles`` and the passes of ``LogLoader.load`` over swap files, Kafka 4.3.
"""

from __future__ import annotations

from kseg.format.log_loader.log_segment import Limits, Segment
from kseg.format.log_loader.partition_files import AddStep, Files, offset_of, offset_or_none
from kseg.format.record.layout import INT64_MAX


def delete_unfinished(files: Files, tell: AddStep) -> None:
    """Delete what is about to go, and what was not finished. Raises RefusedError."""
    first_cleaned = min((offset_of(name) for name in files if name.endswith(".cleaned")), default=INT64_MAX)
    for name in sorted(files):
        if name.endswith(".deleted") and not name.endswith(".checkpoint.deleted"):
            delete(files, name, "it was about to be deleted", tell)
        elif name.endswith(".cleaned"):
            delete(files, name, "the cleaner did not finish it", tell)
        elif name.endswith(".swap") and offset_of(name) >= first_cleaned:
            delete(files, name, f"the split it is part of did not finish: there is a .cleaned at {first_cleaned}", tell)


def complete_swaps(files: Files, limits: Limits, tell: AddStep) -> None:
    """Give each .swap, which is complete, its name; what it covers goes before. Raises RefusedError, UnreadableError."""
    first, end = INT64_MAX, -INT64_MAX - 1
    for name in sorted(files):
        if name.endswith(".log.swap"):
            segment = Segment(files, offset_of(name), limits, ".swap")
            first, end = min(first, segment.base_offset), max(end, segment.next_offset())
    for name in sorted(files):
        offset = None if name.endswith(".swap") else offset_or_none(name)
        if offset is not None and first <= offset < end:
            delete(files, name, f"a .swap has the offsets {first} to {end - 1}", tell)
    for name in sorted(name for name in files if name.endswith(".swap")):
        tell("rename-swap", name, f"it becomes {name.removesuffix('.swap')}")
        files.rename(name, name.removesuffix(".swap"))


def delete(files: Files, name: str, why: str, tell: AddStep) -> None:
    """Delete one file, and report it."""
    tell("delete-segment" if name.endswith(".log") else "delete-file", name, why)
    del files[name]
