"""Storage whose calls fail: local files and folders, and a file system of fsspec."""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import fsspec
from fsspec import AbstractFileSystem
from fsspec.implementations.memory import MemoryFileSystem

_FileIO = io.FileIO
#: The bytes of a read at most: a small file has several reads, too.
_READ = 2500
#: What a call can do instead of its work: errors of the operating system, and of object stores a lost connection without
#: an error, and an error of the client's own.
KINDS = ("EIO", "EACCES", "ETIMEDOUT", "short", "client")


_CREATED = datetime(2026, 1, 1, tzinfo=UTC)


class ClientError(Exception):
    """An error of the library of an object store, which is no OSError."""


class Faults:
    """Counts the calls of the storage, and lets those with the numbers ``failing`` fail as ``kind`` says."""

    def __init__(self, root: str, kind: str = "EIO", failing: range = range(0)) -> None:
        self.calls = 0
        self._root = root
        self._kind = kind
        self._failing = failing

    def call(self, path: object, work: Callable[[], Any], *, short: Any = None) -> Any:
        """Do the work of a call on a path, or fail. ``short`` is the result of a read at the end of a file."""
        if not (isinstance(path, (str, os.PathLike)) and os.fspath(path).startswith(self._root)):
            return work()
        number, self.calls = self.calls, self.calls + 1
        if number not in self._failing:
            return work()
        if self._kind == "short" and short is not None:
            return short
        if self._kind == "client":
            raise ClientError("503 Slow Down")
        number = getattr(errno, self._kind, errno.EIO)
        raise OSError(number, os.strerror(number), os.fspath(path))


@contextmanager
def local_faults(root: Path, kind: str = "EIO", failing: range = range(0)) -> Iterator[Faults]:
    """Let calls on files below a folder fail: status, listing, open, and each read."""
    faults = Faults(str(root), kind, failing)
    originals = {name: getattr(os, name) for name in ("stat", "scandir", "listdir", "open")}

    def failing_call(name: str) -> Callable[..., Any]:
        def call(path: Any = ".", *given: Any, **named: Any) -> Any:
            return faults.call(path, lambda: originals[name](path, *given, **named))

        return call

    class File(_FileIO):
        """A file whose reads fail."""

        def __init__(self, file: Any, *given: Any) -> None:
            super().__init__(file, *given)
            self.path = os.readlink(f"/proc/self/fd/{self.fileno()}")

        def readinto(self, view: Any) -> Any:
            return faults.call(self.path, lambda: _FileIO.readinto(self, view[:_READ]))

        def readall(self) -> Any:
            return faults.call(self.path, lambda: _FileIO.readall(self))

    with ExitStack() as stack:
        for name in originals:
            stack.enter_context(patch.object(os, name, failing_call(name)))
        stack.enter_context(patch.object(io, "FileIO", File))
        yield faults


class _FailingFileSystem(MemoryFileSystem):  # type: ignore[misc]
    """Files in memory at ``faulty://``; each call can fail."""

    protocol = "faulty"
    cachable = False
    faults = Faults("/")

    #: The only file whose calls can fail, "" for all.
    only = ""

    find = AbstractFileSystem.find

    def of(self, path: str) -> str:
        """Return the place that ``faults`` know."""
        return "/" if path.endswith(self.only) else ""

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        return "/" + str(path).removeprefix("faulty://").strip("/")

    def ls(self, path: str, detail: bool = True, **named: Any) -> Any:
        return self.faults.call(
            "" if self.only else "/", lambda: super(_FailingFileSystem, self).ls(path, detail, **named)
        )

    def info(self, path: str, **named: Any) -> Any:
        return self.faults.call(self.of(path), lambda: super(_FailingFileSystem, self).info(path, **named))

    def _open(self, path: str, mode: str = "rb", **named: Any) -> Any:
        opened = self.faults.call(self.of(path), lambda: super(_FailingFileSystem, self)._open(path, mode, **named))
        return _RemoteFile(opened.getvalue(), self, self.of(path)) if mode == "rb" else opened


class _RemoteFile(io.BytesIO):
    def __init__(self, data: bytes, filesystem: _FailingFileSystem, place: str) -> None:
        super().__init__(data)
        self._filesystem = filesystem
        self._place = place

    def read(self, size: int | None = -1) -> Any:
        left = len(self.getbuffer()) if size is None or size < 0 else size
        read = b""
        while left:
            read_part = partial(io.BytesIO.read, self, min(left, _READ))
            data = self._filesystem.faults.call(self._place, read_part, short=b"")
            read, left = read + data, left - len(data) if data else 0
        return read


@contextmanager
def remote_faults(folder: Path, kind: str = "EIO", failing: range = range(0), only: str = "") -> Iterator[Faults]:
    """Serve a log directory at ``faulty:///logs``, and let calls fail: all, or those on files of the name ``only``."""
    fsspec.register_implementation("faulty", _FailingFileSystem, clobber=True)
    store = _FailingFileSystem()
    _FailingFileSystem.faults = Faults("/")
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            name = f"/logs/{path.relative_to(folder)}"
            store.pipe(name, path.read_bytes())
            store.store[name].created = store.store[name].modified = _CREATED  # the tag of an object is its time
    _FailingFileSystem.faults, _FailingFileSystem.only = Faults("/", kind, failing), only
    try:
        yield _FailingFileSystem.faults
    finally:
        _FailingFileSystem.only = ""
        store.store.clear()
