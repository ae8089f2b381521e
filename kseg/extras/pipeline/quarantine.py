"""The quarantine: the damage in its list, which is that of offsets which no replica gives to the load, and its copies.

With copies of damaged segments, what a run has set aside remains there when the source deletes it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kseg.errors import VanishedError
from kseg.extras.pipeline.checked_segments import CheckedSegment
from kseg.extras.pipeline.pipeline_state import new_file
from kseg.extras.pipeline.source_replicas import check_unchanged
from kseg.findings import without_ranges
from kseg.format.storage import local_files, remote_files
from kseg.format.storage.segment_files import path_in

_CHUNK = 8 * 1024 * 1024
#: Offsets ``first`` to ``end`` (exclusive).
OffsetRange = tuple[int, int]


def is_new(found: Mapping[str, Any], first: int) -> bool:
    """Return whether a damaged place can hold offsets from ``first`` on."""
    last = found.get("last_offset") if found.get("last_offset") is not None else found.get("offset")
    return last is None or last >= first


def listed_damage(
    checked: CheckedSegment,
    first: int,
    read: Sequence[OffsetRange],
    lost: Iterable[OffsetRange],
) -> list[Mapping[str, Any]]:
    """Return the findings of a segment for the quarantine list.

    They can hold offsets from ``first`` on that are ``lost`` (no replica has them), or are ``read`` from this segment.
    """
    until = checked.file.end_offset
    new = sorted((found for found in checked.damage if is_new(found, first)), key=_position)
    held = _held(checked, new)
    near = [one for one in lost if one[0] < until and checked.base_offset < one[1]]
    lacking = list(checked.holes)
    if new and _position(new[-1]) >= checked.valid_end:
        lacking.append((checked.next_offset, until))
    for one in near:
        # Damaged headers can claim other offsets: then no finding has these.
        if _meet(lacking, [one]) and not any(spans is None or _meet(spans, [one]) for spans in held):
            return new
    wanted = [*read, *near]  # of a batch that is read, records can be lost
    return [one for one, spans in zip(new, held, strict=True) if spans is None or _meet(spans, wanted)]


def unnamed(lost: Iterable[OffsetRange], listed: Iterable[CheckedSegment]) -> list[OffsetRange]:
    """Return those of the ``lost`` offsets that no listed finding names. One without offsets can have all of its segment."""
    named: list[OffsetRange] = []
    for checked in listed:
        for found in checked.damage:
            first, last = found.get("offset"), found.get("last_offset")
            if first is None:
                named.append((checked.base_offset, checked.file.end_offset if last is None else last + 1))
            elif last is not None:
                named.append((first, last + 1))
    return [left for one in lost for left in without_ranges(*one, named)]


def _position(found: Mapping[str, Any]) -> int:
    return found.get("position") or 0


def _meet(spans: Iterable[OffsetRange], others: Sequence[OffsetRange]) -> bool:
    return any(first < stop and start < end for first, end in spans for start, stop in others)


def _held(checked: CheckedSegment, findings: Sequence[Mapping[str, Any]]) -> list[Sequence[OffsetRange] | None]:
    """Return the offsets that each damaged place can hold, in the order of positions; None if they are unknown.

    Places after the last valid batch have offsets from ``next_offset`` on. Others without a first offset are in one of the
    holes: in the one with the last offset if their header has it, as that of a v0 or v1 wrapper.
    """
    holes = checked.holes or None
    held: list[Sequence[OffsetRange] | None] = []
    following = checked.file.end_offset
    for found in reversed(findings):
        first, last = found.get("offset"), found.get("last_offset")
        at_end = _position(found) >= checked.valid_end
        if first is None and at_end:
            held.append([(checked.next_offset, following)])
        elif first is None:
            own = [one for one in holes or () if last is not None and one[0] <= last < one[1]]
            held.append((own or holes) if found.get("position") is not None else None)
        else:
            first = max(first, checked.next_offset) if at_end else first
            held.append([(first, max(first, first if last is None else last) + 1)])
            following = first if at_end else following
    return held[::-1]


def copy_segment(checked: CheckedSegment, folder: str, number: int) -> tuple[str, str]:
    """Copy a segment and its indexes into a folder of the quarantine, and return the paths of the segment and of the copy.

    ``number``: that of its replica of the partition, from 1; each replica has a folder.

    A copy that exists is replaced: a run that was killed copies again. Raises KsegError if the segment cannot be read, or is
    not the one that was checked.
    """
    listed = checked.file
    name = os.path.basename(os.path.dirname(listed.path))
    target = path_in(folder, name if number == 1 else f"replica-{number}/{name}")
    if listed.stored:
        remote_files.remember(listed.path, listed.stored)
    _copy(listed.path, target)
    check_unchanged(checked)
    for path in listed.indexes or ():
        try:
            _copy(path, target)
        except VanishedError:
            continue  # a broker rebuilds it
    return listed.path, path_in(target, os.path.basename(listed.path))


def _copy(path: str, folder: str) -> None:
    with (
        local_files.open_file(path, named=False) as found,
        new_file(path_in(folder, os.path.basename(path))) as out,
    ):
        shutil.copyfileobj(found, out, _CHUNK)
