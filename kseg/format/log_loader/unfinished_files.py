"""The files of interrupted operations in a partition's folder, which a broker deletes or completes before loading the
log.

Sources: ``LogLoader.removeTempFilesAndCollectSwapFiles`` and the passes of ``LogLoader.load`` over swap files, Kafka
4.3.
"""

from __future__ import annotations

from kseg.format.log_loader.log_segment import Limits, Segment
from kseg.format.log_loader.partition_files import AddStep, Files, offset_of, offset_or_none
from kseg.format.record.layout import INT64_MAX
from kseg.text import inclusive_range


def delete_unfinished(files: Files, add_step: AddStep) -> None:
    """Delete files that are marked for deletion and files of unfinished operations. Raises RefusedError."""
    first_cleaned = min((offset_of(name) for name in files if name.endswith(".cleaned")), default=INT64_MAX)
    for name in sorted(files):
        if name.endswith(".deleted") and not name.endswith(".checkpoint.deleted"):
            delete(files, name, "a deletion did not finish", add_step)
        elif name.endswith(".cleaned"):
            delete(files, name, "the cleaner did not finish", add_step)
        elif name.endswith(".swap") and offset_of(name) >= first_cleaned:
            delete(
                files,
                name,
                f"the split of a segment did not finish: a .cleaned file of offset {first_cleaned} exists",
                add_step,
            )


def complete_swaps(files: Files, limits: Limits, add_step: AddStep) -> None:
    """Give each complete .swap file its name, after the files that it replaces are deleted. Raises RefusedError,
    UnreadableError.
    """
    first, end = INT64_MAX, -INT64_MAX - 1
    for name in sorted(files):
        if name.endswith(".log.swap"):
            segment = Segment(files, offset_of(name), limits, ".swap")
            first, end = min(first, segment.base_offset), max(end, segment.next_offset())
    for name in sorted(files):
        offset = None if name.endswith(".swap") else offset_or_none(name)
        if offset is not None and first <= offset < end:
            delete(files, name, f"a .swap file has {inclusive_range('offset', first, end - 1)}", add_step)
    for name in sorted(name for name in files if name.endswith(".swap")):
        add_step("rename-swap", name, f"renamed to {name.removesuffix('.swap')}")
        files.rename(name, name.removesuffix(".swap"))


def delete(files: Files, name: str, why: str, add_step: AddStep) -> None:
    """Delete one file, and report it."""
    add_step("delete-segment" if name.endswith(".log") else "delete-file", name, why)
    del files[name]
