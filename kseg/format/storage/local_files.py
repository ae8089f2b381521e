"""Look at files and folders on disk and in archives: status, existence, names."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from kseg.format.storage import archive  # few runs read archives
from kseg.format.storage.naming import may_be_in_archive

if TYPE_CHECKING:
    from kseg.format.storage import archive_index


def status(path: str | os.PathLike[str]) -> os.stat_result | archive_index.Status:
    """Return the status of a file or folder, symbolic links followed, or of a member of an archive. Raises OSError."""
    try:
        return os.stat(path)
    except OSError:
        member = archive.open_member(os.fspath(path)) if may_be_in_archive(os.fspath(path)) else None
        if member is None:
            raise
        return member.status


def exists(path: str | os.PathLike[str]) -> bool:
    """Return whether a file or folder exists."""
    return os.path.exists(path) or is_file(path) or is_folder(path)


def is_file(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is a file on disk or in an archive."""
    if os.path.isfile(path):
        return True
    name = os.fspath(path)
    return may_be_in_archive(name) and not os.path.exists(name) and archive.open_member(name) is not None


def is_folder(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is a folder on disk, an archive, or a folder in one."""
    if os.path.isdir(path):
        return True
    name = os.fspath(path)
    return may_be_in_archive(name) and archive.is_folder(name)


def names_in(folder: str | os.PathLike[str]) -> list[str]:
    """Return the names of the files and folders in a folder. Raises OSError."""
    name = os.fspath(folder) or "."
    if os.path.isdir(name) or not is_folder(name):
        return os.listdir(name)
    return archive.names_in(name)


def entries(folder: str) -> list[tuple[str, str]]:
    """Return the name and the kind of each entry of a folder: "file", "folder" or "other". Raises OSError."""
    if os.path.isdir(folder) or not is_folder(folder):
        with os.scandir(folder) as found:
            kinds = [(one.name, "file" if one.is_file() else "folder" if one.is_dir() else "other") for one in found]
        return kinds
    return [(name, "folder" if is_folder(f"{folder}/{name}") else "file") for name in archive.names_in(folder)]
