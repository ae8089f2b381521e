"""Whether the log cleaner replaces the segments of a log at the moment."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterable

from kseg.errors import KsegError, VanishedError
from kseg.format.storage import local_files
from kseg.format.storage.naming import base_offset_of, is_log, is_url, logs_among
from kseg.format.storage.source import LATELY


def is_at_rest(folder: str, logs: Iterable[str]) -> bool:
    """Return whether a local folder has the segments ``logs``, and no log cleaner replaces some of them at the moment.

    It renames the old files (``.deleted``) before the new ones (``.swap``), so that for a moment none in use has
    their offsets (``LocalLog.replaceSegments``). An old ``.swap`` is that of a broker that has crashed. A URL is at rest.
    """
    if is_url(folder):
        return True
    try:
        names = local_files.names_in(folder)
    except VanishedError:
        return False
    if set(logs_among(names)) != {os.path.basename(path) for path in logs}:
        return False
    return not any(_was_renamed_lately(os.path.join(folder, name)) for name in names if name.endswith(".swap"))


def cleaned_before(folder: str) -> int:
    """Return the offset before which a log cleaner can have replaced segments of a folder, as its files there show.

    A cleaner replaces one group of segments after the other, never the newest segment, and enters the partition in its
    checkpoint after the last group (``Cleaner.doClean``, ``LogCleanerManager.doneCleaning``). The next group is in
    ``.cleaned``, then in ``.swap``. For a minute the old files (``.deleted``) are next to the segment in their place.
    """
    try:
        names = set(local_files.names_in(folder))
    except KsegError:
        return 0
    bases = sorted(base_offset_of(name) or 0 for name in names if is_log(name))
    begun = [base_offset_of(name) or 0 for name in names if name.endswith((".log.cleaned", ".log.swap"))]
    old = (name.removesuffix(".deleted") for name in names if name.endswith(".log.deleted"))
    replaced = [base_offset_of(name) or 0 for name in old if name in names or f"{name}.swap" in names]
    ends = (next((base for base in bases if base > one), 0) for one in replaced)
    return max([0, *begun, *ends])


def is_being_replaced(folder: str, name: str, names: Collection[str]) -> bool:
    """Return whether the log cleaner has a new file for a segment of a local folder that could not be opened.

    ``names`` are the files of the folder now: the new file has the name of the segment or a lower one, or gets it soon.
    """
    if is_url(folder):  # its listing can be an earlier one
        return False
    swaps = (one for one in names if one.endswith(".log.swap") and one.removesuffix(".swap") <= name)
    return name in names or any(_was_renamed_lately(os.path.join(folder, one)) for one in swaps)


def _was_renamed_lately(path: str) -> bool:
    # The cleaner gives its files the modification times of the old ones.
    try:
        return time.time() - os.stat(path).st_ctime < LATELY
    except NotADirectoryError:  # in an archive
        return False
    except OSError:  # it has its new name
        return True
