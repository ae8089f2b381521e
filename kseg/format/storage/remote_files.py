"""Files and folders at URLs, by the file systems of fsspec: status, listing, reading.

Each file system has other exceptions (NoCredentialsError, EndpointConnectionError, …). Here they become an
UnreadableError, or an OSError while a file is read.
"""

from __future__ import annotations

import errno
import io
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from kseg.engine import without_pip
from kseg.errors import KsegError, UnreadableError, UsageError, VanishedError
from kseg.format.storage.naming import OF_LOG_DIRS, archive, has_manifests, tiered_parts
from kseg.format.storage.remote_listing import (
    CHECKS,
    S3_ROUNDS,
    Entries,
    ListedFolders,
    Stored,
    entries_of,
    folders_below,
    is_absence,
    is_folder,
    is_object_store,
    names_matching,
    reason,
    stored_of,
    with_attempts,
)

if TYPE_CHECKING:
    from kseg.extras.tiered_view import DecodedFile, DecodedMember

# Schemes that Hadoop's tools know for one that fsspec knows.
_OTHER_SCHEMES = {"s3n": "s3", "wasb": "abfs", "wasbs": "abfss"}


#: The bytes of one request when a file is read from front to back: a request takes as long as the transfer of megabytes.
BLOCK = 8 * 1024 * 1024
#: The least bytes of a request elsewhere.
LEAST_BLOCK = 16 * 1024
#: The most files of at most LEAST_BLOCK bytes that are kept: several checks read the side files of a partition.
_MOST_KEPT = 256


_S3 = ("s3", "s3a")


class RemoteFile(io.RawIOBase):
    """An open file at a URL. ``status`` is its status when it was opened: that of a pipe if its size is unknown.

    The first request has the bytes of the read. While the file is read on, each has twice the bytes of the one before, at
    most BLOCK and not after ``read_until``. One block is kept. An answer of another size raises OSError: the connection was
    lost, the object was replaced, or a proxy answered with a page of its own. A small file of which the version is known
    by its ``tag`` is read once.
    """

    def __init__(self, url: str, file: Any, size: int | None, tag: str | None = None) -> None:
        small = tag is not None and size is not None and size <= LEAST_BLOCK
        self._version = (url, size, tag) if small else None
        self.status = _status(size)
        self._url = url
        self._file = file
        self._size = self._until = size
        self._position = 0
        self._block = memoryview(b"")
        # The position of the block, and of its end: none before the first read.
        self._begin = self._end = -1

    def read_until(self, end: int | None) -> int | None:
        """Request no bytes after ``end`` that are not read (None: the end of the file). Returns the size of the file."""
        self._until = self._size if end is None else end
        return self._size

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, position: int, whence: int = io.SEEK_SET) -> int:
        if self._size is None:
            self._position = self._file.seek(position, whence)
        else:
            self._position = position + (0, self._position, self._size)[whence]
        return self._position

    def tell(self) -> int:
        return self._position

    def readinto(self, view: Any) -> int:
        wanted = len(view) if self._size is None else min(len(view), self._size - self._position)
        if wanted <= 0:
            return 0
        if not self._begin <= self._position < self._end:
            self._fetch(wanted)
        at = self._position - self._begin
        count = min(wanted, len(self._block) - at)
        view[:count] = self._block[at : at + count]
        self._position += count
        return count

    def readall(self) -> bytes:
        """Return all bytes from the position on, in one request if the size is known. Raises OSError."""
        if self._size is None:
            return super().readall() or b""
        data, read = bytearray(self._size - self._position), 0
        while count := self.readinto(memoryview(data)[read:]):
            read += count
        return bytes(data)

    def _fetch(self, wanted: int) -> None:
        """Read the block at the current position, or all of a small file. Raises OSError."""
        begin = self._position
        if self._version is not None:
            if (kept := _kept.get(self._version)) is not None:
                self._block, self._begin, self._end = kept, 0, len(kept)
                return
            begin, wanted = 0, self._size or 0
        least = min(2 * len(self._block), BLOCK) if self._position == self._end else LEAST_BLOCK
        try:
            if self._size is not None:
                wanted = max(wanted, min(least, (self._until or 0) - begin))
                self._file.seek(begin)
            data = self._file.read(wanted)
            if self._size is not None and 0 < len(data) < wanted:
                self._file.read(wanted - len(data))  # an error of this one is the reason
        except MemoryError:
            raise
        except Exception as error:
            if isinstance(error, OSError) and str(error):
                raise
            raise OSError(reason(error, self._url)) from error
        if not data and self._size is not None:
            raise OSError(f"ended at byte {begin} of {self._size}")
        if self._size is not None and len(data) != wanted:  # a proxy's page, or the whole object
            raise OSError(f"the answer has {len(data)} bytes instead of {wanted} from byte {begin} on")
        self._block, self._begin, self._end = memoryview(data), begin, begin + len(data)
        if self._version is not None:
            if len(_kept) >= _MOST_KEPT:
                _kept.clear()
            _kept[self._version] = self._block

    def close(self) -> None:
        self._file.close()
        super().close()


_folders = ListedFolders()
#: The small files that were read, by URL, size and tag.
_kept: dict[tuple[str, int | None, str | None], memoryview] = {}
#: Objects that are known without the other ones of their folder: those of a task's plan, and of a log directory its own
#: files, None for one that it lacks.
_objects: dict[str, Stored | None] = {}


def remember(url: str, stored: Stored) -> None:
    """Use the size and the tag that a plan has for an object, without another request."""
    _objects[url] = stored


def forget(url: str = "") -> None:
    """Forget all facts about a folder and everything below it, or about all stores: they are asked again."""
    below = url and f"{url.rstrip('/')}/"
    _folders.forget(below)
    _kept.clear()  # the tag of some stores is a time
    for name in [name for name in _objects if f"{name}/".startswith(below)]:
        del _objects[name]


def listed(url: str) -> Stored | None:
    """Return the known facts about an object without a request, None for others and for local files."""
    if not (_folders or _objects):
        return None
    folder, _, name = url.rstrip("/").rpartition("/")
    return _objects.get(url) or (_folders.get(folder) or {}).get(name)


def _is_known(url: str) -> bool:
    """Return whether it is known if there is an object, or the folder of its URL was listed.

    A log directory lacks most of its own files in a backup: they are asked together.
    """
    folder, _, name = url.rstrip("/").rpartition("/")
    if folder not in _folders and url not in _objects and name in OF_LOG_DIRS and not _is_chained(url):
        with _connected(folder) as (filesystem, path):
            if is_object_store(filesystem):
                filesystem.invalidate_cache(path)
                found = entries_of(filesystem, path)
                _objects.update({f"{folder}/{name}": found.get(name) for name in OF_LOG_DIRS})
    return folder in _folders or url in _objects


def stored_at(url: str, *, again: bool = False) -> Stored:
    """Return size and tag of a file: those of the listing, unless ``again``. Raises VanishedError and UnreadableError."""
    if (member := _decoded(url)) is not None:
        return Stored(member.chunks.size, stored_at(member.path, again=again).tag)
    if why := _folders.failed.get(url):
        raise UnreadableError(f"{url}: {why}")
    known = not again and _is_known(url)
    found = listed(url) if known else None
    if found is None:
        if known:
            raise VanishedError(f"{url}: {os.strerror(errno.ENOENT)}")
        with _connected(url) as (filesystem, path):
            filesystem.invalidate_cache()  # a segment grows, and files are replaced
            info = filesystem.info(path)
            if is_folder(info):
                raise UnreadableError(f"{url}: {os.strerror(errno.EISDIR)}")
            found = _objects[url] = stored_of(info)
    return found


def open_file(url: str, *, again: bool = True) -> RemoteFile | DecodedFile:
    """Open a file as ``stored_at`` finds it. Raises VanishedError and UnreadableError."""
    if (member := _decoded(url)) is not None:
        return member.open()
    size, tag = stored_at(url, again=again)
    with _connected(url) as (filesystem, path):
        if tag is None or _is_chained(url) or url.startswith("http"):
            return RemoteFile(url, filesystem.open(path, "rb"), size)
        file = filesystem.open(path, "rb", cache_type="none", size=size)
        # s3fs: the reads of one file are of one version of the object. Older versions have only req_kw.
        name = next((name for name in ("read_kw", "req_kw") if hasattr(file, name)), None)
        if name is not None:
            file.details = {"name": path, "size": size, "ETag": tag, "type": "file"}
            setattr(file, name, {**getattr(file, name), "IfMatch": tag})
            file.version_id = path.partition("?versionId=")[2] or None
        return RemoteFile(url, file, size, tag)


def walk(
    url: str, unlisted: Callable[[str], object], *, decoded: bool = True
) -> Iterator[tuple[str, list[str]]] | None:
    """Return a folder and all folders below it, each with its sorted file names; None if the URL is not a folder.

    The listing is complete but for folders below with which ``unlisted`` is called: opening one fails with the reason. It
    is kept: later calls about these files and folders need no request. With ``decoded``, a folder with objects that a
    plugin transforms is their decoded view.
    """
    forget(url)
    for name in OF_LOG_DIRS:
        _objects.pop(f"{url.rstrip('/').rpartition('/')[0]}/{name}", None)
    found = set()
    try:
        with _connected(url) as (filesystem, path):
            filesystem.invalidate_cache()  # of an earlier listing in this process
            # The name of a file has a suffix. To list one that is not a folder is to list all objects next to it.
            at_once = is_object_store(filesystem) and "." not in path.rpartition("/")[2]
            # Not isdir, for which a folder whose store fails is none.
            if _is_chained(url) or not (at_once or is_folder(filesystem.info(path))):
                return None
            for below, entries in folders_below(filesystem, path):
                folder = filesystem.unstrip_protocol(below).rstrip("/")
                if isinstance(entries, OSError):
                    _folders.failed[folder] = reason(entries, folder)
                    unlisted(folder)
                    continue
                _folders[folder] = {**_folders[folder], **entries} if folder in found else entries
                found.add(folder)
            if at_once and not any(_folders[folder] for folder in found) and not is_folder(filesystem.info(path)):
                forget(url)
                return None
    except VanishedError:
        return None
    return _walked(_folders.each(sorted(found, key=lambda folder: f"{folder}/")), decoded=decoded)


def _walked(found: Iterable[tuple[str, Entries]], *, decoded: bool) -> Iterator[tuple[str, list[str]]]:
    for folder, entries in found:
        names = [name for name, stored in entries.items() if stored]
        if decoded and has_manifests(names):
            folder, names = archive.present(folder, names)
            _folders[folder] = {name: stored_at(f"{folder}/{name}") for name in names}
        if names:
            yield folder, names


def _decoded(url: str) -> DecodedMember | None:
    """Return the file of a decoded view of objects that a URL is, None for other URLs."""
    return cast("DecodedMember | None", archive.member_at(url)) if tiered_parts(url) else None


def status(url: str) -> os.stat_result:
    """Return the status of a file or folder, without its times and inode. Raises OSError."""
    try:
        if kind_of(url) != "folder":
            return _status(stored_at(url).size)
    except VanishedError as error:
        raise FileNotFoundError(str(error)) from error
    except UnreadableError as error:
        raise OSError(str(error)) from error
    return _status(None, folder=True)


def kind_of(url: str) -> str | None:
    """Return "file" or "folder", None if there is neither. Raises UnreadableError."""
    if listed(url):
        return "file"
    folder, _, name = url.rstrip("/").rpartition("/")
    if f"{folder}/{name}" in _folders:
        return "folder"
    if _is_known(url):
        return "file" if listed(url) else "folder" if name in (_folders.get(folder) or {}) else None
    try:
        with _connected(url) as (filesystem, path):
            return _kind(filesystem.info(path))
    except VanishedError:
        return None


def entries(url: str) -> list[tuple[str, str]]:
    """Return the name and the kind of each entry of a folder. Raises VanishedError and UnreadableError."""
    if (known := _folders.get(url.rstrip("/"))) is not None:
        return [(name, "file" if stored else "folder") for name, stored in known.items()]
    if why := _folders.failed.get(url.rstrip("/")):
        raise UnreadableError(f"{url}: {why}")
    with _connected(url) as (filesystem, path):
        found = filesystem.ls(path, detail=True)
    return [(entry["name"].rstrip("/").rpartition("/")[2], _kind(entry)) for entry in found]


def matches(pattern: str) -> list[str]:
    """Return the files and folders that match a pattern with ``*``, ``?`` or ``[``. Raises UnreadableError."""
    with _connected(pattern) as (filesystem, path):
        filesystem.invalidate_cache()
        try:
            return sorted(map(filesystem.unstrip_protocol, names_matching(filesystem, path)))
        except FileNotFoundError:
            return []


def _kind(entry: Any) -> str:
    return "folder" if is_folder(entry) else "file"


def _status(size: int | None, *, folder: bool = False) -> os.stat_result:
    kind = stat.S_IFDIR if folder else stat.S_IFIFO if size is None else stat.S_IFREG
    return os.stat_result((kind | 0o444, 0, 0, 0, 0, 0, size or 0, 0, 0, 0))


def _is_chained(url: str) -> bool:
    """Return whether a URL is that of a file in a file, such as ``zip://NAME::s3://KEY``; S3's keys can have ``::``."""
    return "::" in url and not url.startswith(tuple(f"{scheme}://" for scheme in _S3))


def filesystem_of(url: str) -> tuple[Any, str]:
    """Return the file system of a URL and the path on it. Raises the errors of the file system, and UsageError."""
    try:
        import fsspec  # may be missing
    except ImportError as error:
        has = "'kseg[s3]', which has s3fs and fsspec" if url.startswith("s3") else "'kseg[remote]', which has fsspec"
        raise UsageError(without_pip(f"{url}: URLs need fsspec: pip install {has}")) from error
    scheme = url.partition("://")[0]
    known = _OTHER_SCHEMES.get(scheme.lower(), scheme.lower())
    if not _is_chained(url) and known != scheme:
        raise UsageError(f"{url}: unknown scheme {scheme}: use {known}://")
    if known not in _S3:
        found: tuple[Any, str] = fsspec.url_to_fs(url)
        return found
    kind = fsspec.get_filesystem_class(known)  # its error names s3fs
    settings = {"config_kwargs": with_attempts(fsspec.config.conf.get(known, {})), **kind._get_kwargs_from_urls(url)}
    filesystem, path = fsspec.filesystem(known, **settings), kind._strip_protocol(url)
    filesystem.retries = min(filesystem.retries, S3_ROUNDS)
    if filesystem.session is None:
        from aiobotocore.session import AioSession  # a dependency of s3fs

        filesystem.session = AioSession(**filesystem.kwargs)
        for event, check in CHECKS.items():
            filesystem.session.register(f"{event}.s3.ListObjectsV2", check)
    return filesystem, path


@contextmanager
def _connected(url: str) -> Iterator[tuple[Any, str]]:
    """Yield the file system of a URL and the path on it; turn its exceptions into UnreadableError."""
    try:
        yield filesystem_of(url)
    except (KsegError, MemoryError):
        raise
    except Exception as error:
        kind = VanishedError if is_absence(error, url) else UnreadableError
        raise kind(f"{url}: {reason(error, url)}") from error
