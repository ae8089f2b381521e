"""Whether the log cleaner replaces the segments of a log at the moment."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterable

from kseg.errors import KsegError, VanishedError
from kseg.format.storage import local_files
from kseg.format.storage.naming import is_url, logs_among
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


def is_being_cleaned(folder: str) -> bool:
    """Return whether a folder has files of a log cleaner: new segments, or old ones next to the segment in their place.

    A cleaner replaces one group of segments after the other, and enters the partition in its checkpoint after the last
    (``Cleaner.doClean``, ``LogCleanerManager.doneCleaning``). A truncation and retention replace none.
    """
    try:
        names = set(local_files.names_in(folder))
    except KsegError:
        return False
    new = any(name.endswith((".log.cleaned", ".log.swap")) for name in names)
    return new or any(name.endswith(".log.deleted") and name.removesuffix(".deleted") in names for name in names)


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
