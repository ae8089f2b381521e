"""Files and folders at URLs, by the file systems of fsspec: status, listing, reading.

Each file system has other exceptions (NoCredentialsError, EndpointConnectionError, …). Here they become an
UnreadableError, or an OSError while a file is read.
"""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kseg.errors import KsegError, UnreadableError, UsageError, VanishedError

# Schemes that Hadoop's tools know for one that fsspec knows.
_OTHER_SCHEMES = {"s3n": "s3", "wasb": "abfs", "wasbs": "abfss"}


class RemoteFile(io.RawIOBase):
    """An open file at a URL. ``status`` is its status when it was opened: that of a pipe if its size is unknown.

    A read that ends before the size raises OSError: the connection was lost, or the object was replaced.
    """

    def __init__(self, url: str, file: Any, size: int | None) -> None:
        self.status = _status(size)
        self._url = url
        self._file = file
        self._size = size

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, position: int, whence: int = io.SEEK_SET) -> int:
        found: int = self._file.seek(position, whence)
        return found

    def tell(self) -> int:
        found: int = self._file.tell()
        return found

    def readinto(self, view: Any) -> int:
        try:
            count: int = self._file.readinto(view) or 0
        except (OSError, MemoryError):
            raise
        except Exception as error:
            raise OSError(_reason(error, self._url)) from error
        if not count and len(view) and self._size is not None and self.tell() < self._size:
            raise OSError(f"ended at byte {self.tell()} of {self._size}")
        return count

    def close(self) -> None:
        self._file.close()
        super().close()


def open_file(url: str) -> RemoteFile:
    """Open a file. Raises VanishedError and UnreadableError."""
    with _connected(url) as (filesystem, path):
        filesystem.invalidate_cache()  # a segment grows, and files are replaced
        size = filesystem.size(path)
        return RemoteFile(url, filesystem.open(path, "rb"), size)


def walk(url: str) -> list[tuple[str, list[str]]] | None:
    """Return a folder and all folders below it, each with its sorted file names; None if the URL is not a folder."""
    folders: dict[str, list[str]] = {}
    with _connected(url) as (filesystem, path):
        filesystem.invalidate_cache()  # of an earlier listing in this process
        if "::" in url or not filesystem.isdir(path):
            return None
        for name in sorted(_files_below(filesystem, path)):
            folder, _, file = filesystem.unstrip_protocol(name).rpartition("/")
            folders.setdefault(folder, []).append(file)
    return list(folders.items())


def status(url: str) -> os.stat_result:
    """Return the status of a file or folder, without its times and inode. Raises OSError."""
    try:
        with _connected(url) as (filesystem, path):
            found = filesystem.info(path)
    except VanishedError as error:
        raise FileNotFoundError(str(error)) from error
    except UnreadableError as error:
        raise OSError(str(error)) from error
    return _status(found.get("size"), folder=found["type"] == "directory")


def kind_of(url: str) -> str | None:
    """Return "file" or "folder", None if there is neither. Raises UnreadableError."""
    try:
        with _connected(url) as (filesystem, path):
            return _kind(filesystem.info(path))
    except VanishedError:
        return None


def entries(url: str) -> list[tuple[str, str]]:
    """Return the name and the kind of each entry of a folder. Raises OSError."""
    try:
        with _connected(url) as (filesystem, path):
            found = filesystem.ls(path, detail=True)
    except UnreadableError as error:
        raise OSError(str(error)) from error
    return [(entry["name"].rstrip("/").rpartition("/")[2], _kind(entry)) for entry in found]


def matches(pattern: str) -> list[str]:
    """Return the files and folders that match a pattern with ``*``, ``?`` or ``[``. Raises UnreadableError."""
    with _connected(pattern) as (filesystem, path):
        filesystem.invalidate_cache()
        return sorted(map(filesystem.unstrip_protocol, filesystem.glob(path)))


def _kind(entry: Any) -> str:
    return "folder" if entry["type"] == "directory" else "file"


def _status(size: int | None, *, folder: bool = False) -> os.stat_result:
    kind = stat.S_IFDIR if folder else stat.S_IFIFO if size is None else stat.S_IFREG
    return os.stat_result((kind | 0o444, 0, 0, 0, 0, 0, size or 0, 0, 0, 0))


def _files_below(filesystem: Any, path: str) -> Iterator[str]:
    """Yield the files below a folder.

    Object stores list all files at once. The general ``find`` of fsspec leaves out the folders that it cannot list.
    """
    from fsspec.asyn import AsyncFileSystem  # may be missing

    kind = type(filesystem)
    if kind.find is not AsyncFileSystem.find or getattr(kind, "_find", None) not in (None, AsyncFileSystem._find):
        yield from filesystem.find(path)
        return
    for entry in filesystem.ls(path, detail=True):
        if entry["type"] != "directory":
            yield entry["name"]
        elif entry["name"].rstrip("/") != path.rstrip("/"):
            yield from _files_below(filesystem, entry["name"])


def _reason(error: Exception, url: str) -> str:
    """Return the reason of an error of a remote file system as one line, with class and cause if the text lacks them."""
    text = " ".join((getattr(error, "strerror", None) or str(error)).split())
    if text and text not in url:
        return text
    cause = error.__cause__ or error.__context__
    return ": ".join([type(error).__name__, *([" ".join(str(cause).split()) or type(cause).__name__] if cause else [])])


@contextmanager
def _connected(url: str) -> Iterator[tuple[Any, str]]:
    """Yield the file system of a URL and the path on it; turn its exceptions into UnreadableError."""
    try:
        import fsspec  # may be missing
    except ImportError as error:
        raise UsageError(f"{url}: URLs need fsspec: pip install fsspec") from error
    scheme = url.partition("://")[0]
    known = _OTHER_SCHEMES.get(scheme.lower(), scheme.lower())
    if "::" not in url and known != scheme:
        raise UsageError(f"{url}: unknown scheme {scheme}: use {known}://")
    try:
        yield fsspec.url_to_fs(url)
    except (KsegError, MemoryError):
        raise
    except FileNotFoundError as error:
        raise VanishedError(f"{url}: {_reason(error, url)}") from error
    except Exception as error:
        raise UnreadableError(f"{url}: {_reason(error, url)}") from error
