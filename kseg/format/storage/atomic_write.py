"""Atomic outputs: written next to the target under a hidden name, fsynced, and published under their own names.

``publish`` gives files and folders their names: all of them, or none. No other function in kseg renames or replaces files.
SIGKILL leaves hidden files next to the target, ``.NAME.….tmp`` (new) and ``.NAME.….old`` (replaced), but no unfinished file
under the name of a target.
"""

from __future__ import annotations

import errno
import hashlib
import io
import os
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from kseg.errors import KsegError, UsageError
from kseg.format.storage import interrupts

SUFFIX = ".tmp"
_OLD = ".old"
# The bytes of a name in a file system, and those that a hidden name adds to it.
_LONGEST_NAME = 255
_ADDED = len("..") + 12 + len(_OLD)
# The extended attribute of a log that kseg wrote: its size and modification time. A broker changes both.
_RESULT = "user.kseg.result"
_BUFFER = 1024 * 1024
# A file system that cannot sync a folder, such as some of FUSE.
_NO_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS)


_unsynced = False


@contextmanager
def without_sync() -> Iterator[None]:
    """Do not fsync what this process writes in the block: copies that are read once and removed."""
    global _unsynced
    before, _unsynced = _unsynced, True
    try:
        yield
    finally:
        _unsynced = before


def sync(handle: int) -> None:
    """Fsync an open file or folder, unless the block has ``without_sync``. Raises OSError."""
    if not _unsynced:
        os.fsync(handle)


class _TemporaryFile(io.FileIO):
    """A file without a name, whose errors would be taken for those of an input, or of standard output."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            raise KsegError(f"temporary folder {tempfile.gettempdir()}: {error.strerror or error}") from error


def temporary_file() -> IO[bytes]:
    """Return a new file for reading and writing, without a name. Writing raises KsegError, which names its folder."""
    with tempfile.TemporaryFile() as file:
        return io.BufferedRandom(_TemporaryFile(os.dup(file.fileno()), "w+b"))


class NewFile:
    """A new file that is synced before it is published: ``file`` is open for writing bytes at ``path``. Raises OSError."""

    def __init__(self, path: Path, handle: int | None = None) -> None:
        self.path = path
        self.file: IO[bytes] = path.open("xb", _BUFFER) if handle is None else os.fdopen(handle, "wb", _BUFFER)

    def restart(self) -> None:
        """Discard the written bytes."""
        self.file.seek(0)
        self.file.truncate()

    def sync(self, modified_ns: int | None = None) -> None:
        """Fsync and close the file, with ``modified_ns`` as its modification time."""
        self.file.flush()
        if modified_ns is not None:
            os.utime(self.path, ns=(modified_ns, modified_ns))
        sync(self.file.fileno())
        self.file.close()

    def __enter__(self) -> NewFile:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):  # flushing the buffer can fail again on a full disk
            self.file.close()


@contextmanager
def writing(target: Path) -> Iterator[None]:
    """Turn an OSError (full disk, quota, failing disk) into a KsegError that names the target."""
    try:
        yield
    except BrokenPipeError:
        raise  # of a reader of the output, such as head
    except OSError as error:
        if isinstance(error, FileNotFoundError) and not target.parent.is_dir():
            raise KsegError(f"{target}: the folder {target.parent} does not exist: create it first") from error
        raise KsegError(f"{target}: {error.strerror or error}; nothing was written there") from error


@contextmanager
def whole_file(target: Path, *, replace: bool = True) -> Iterator[IO[bytes]]:
    """Yield a file that gets its name if the block succeeds. A replaced file keeps its permissions. Raises KsegError."""
    if target.exists() and not (target.is_file() or target.is_dir()):
        raise UsageError(f"{target}: not a regular file")  # a rename would replace the device
    with ExitStack() as stack, writing(target):
        with interrupts.delayed():
            handle, name = tempfile.mkstemp(prefix=hidden_prefix(target), suffix=SUFFIX, dir=target.parent)
            stack.callback(Path(name).unlink, missing_ok=True)
            new = stack.enter_context(NewFile(Path(name), handle))
        yield new.file
        os.chmod(name, stat.S_IMODE(target.stat().st_mode) if target.is_file() else 0o666 & ~_umask())
        new.sync()
        publish([(new.path, target)], replace=replace)


@contextmanager
def whole_files(
    target: Path, *, replace: bool, obsolete: Iterable[Path] = (), owned_as: Path | None = None
) -> Iterator[Path]:
    """Yield a folder for the file ``target`` and files that belong to it; all get their names if the block succeeds.

    They are published in the folder of ``target``, which is the first. The caller must sync them. ``replace`` and
    ``obsolete`` are those of ``publish``, ``owned_as`` is that of ``whole_folder``. Raises KsegError.
    """
    with _staging_folder(target, target.parent) as folder:
        yield folder
        mark_results(folder)
        with writing(target):
            for name in os.listdir(folder):
                _give_owner(folder / name, owned_as)
            names = sorted(os.listdir(folder), key=lambda name: (name != target.name, name))
            publish([(folder / name, target.parent / name) for name in names], replace=replace, obsolete=obsolete)


@contextmanager
def whole_folder(target: Path, *, replace: bool, owned_as: Path | None = None) -> Iterator[Path]:
    """Yield a folder that gets its name if the block succeeds. The caller must sync the files in it. Raises KsegError.

    If root writes it, it belongs to the owner of ``owned_as``: a broker that runs as another user has to write in it.
    """
    with _staging_folder(target, target) as folder:
        yield folder
        with writing(target):
            os.chmod(folder, 0o777 & ~_umask())
            mark_results(folder)
            for path in (folder, *folder.rglob("*")):
                _give_owner(path, owned_as)
            sync_folder(folder)
            publish([(folder, target)], replace=replace)


def _give_owner(path: Path, source: Path | None) -> None:
    if source is not None and hasattr(os, "geteuid") and os.geteuid() == 0 and source.exists():
        status = source.stat()
        os.chown(path, status.st_uid, status.st_gid)


@contextmanager
def scratch_folder(target: Path) -> Iterator[Path]:
    """Yield a temporary folder next to ``target``; it is removed when the block ends. Raises KsegError."""
    with ExitStack() as stack:
        with writing(target), interrupts.delayed():
            folder = Path(tempfile.mkdtemp(prefix=hidden_prefix(target), suffix=SUFFIX, dir=target.parent))
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
        yield folder


@contextmanager
def _staging_folder(target: Path, shown: Path) -> Iterator[Path]:
    """Yield a scratch folder. Errors name ``shown`` in its place, because it is unknown to the user and is removed."""
    with scratch_folder(target) as folder:
        try:
            with writing(target):
                yield folder
        except KsegError as error:
            error.args = (str(error).replace(str(folder), str(shown)),)
            raise


def publish(
    moves: Sequence[tuple[Path, Path]],
    *,
    replace: bool,
    obsolete: Iterable[Path] = (),
    option: str = "--force",
) -> None:
    """Rename synced files and folders to their targets in this order: all of them, or none. Signals wait for the end.

    With ``replace``, older targets and the ``obsolete`` files, which the new ones make wrong, are kept under hidden names
    until all renames are done. If one fails, they are restored. Without it, a target that exists raises UsageError with
    the ``option`` that replaces it. Raises OSError if nothing has changed, and KsegError if an older file could not be
    restored, or if the targets are published but their folder could not be synced.
    """
    with interrupts.delayed():
        renames = _Renames()
        try:
            for path in obsolete if replace else ():
                if os.path.lexists(path):
                    renames.set_aside(path)
            for new, target in moves:
                if os.path.lexists(target):
                    if not replace:
                        raise _exists(target, option)
                    renames.replace(new, target)
                else:
                    renames.place(new, target, option)
        except BaseException as error:
            renames.undo(error)
            raise
        for folder in sorted({target.parent for _, target in moves}):
            try:
                sync_folder(folder)
            except OSError as error:
                names = ", ".join(str(target) for _, target in moves if target.parent == folder)
                kept = f"; what it replaced is in {', '.join(map(str, renames.old))}" if renames.old else ""
                raise KsegError(
                    f"{names}: written completely, but the folder {folder} could not be synced to disk: "
                    f"{error.strerror or error}: after a power failure it can be missing{kept}"
                ) from error
        renames.remove_old()


class _Renames:
    """The renames of one ``publish``. ``old`` are the hidden names of the replaced files."""

    def __init__(self) -> None:
        self.old: list[Path] = []
        self._undo: list[tuple[Path, Path]] = []

    def set_aside(self, path: Path) -> None:
        """Rename a file or folder to a hidden name next to it."""
        old = _hidden_name(path)
        os.rename(path, old)
        self.old.append(old)
        self._undo.append((old, path))

    def replace(self, new: Path, target: Path) -> None:
        """Rename a file or folder to a target that exists. A file is there at any moment: the older or the new one.

        Raises OSError if a file would replace a folder.
        """
        if target.is_dir() and not new.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(target))
        old = _hidden_name(target)
        if target.is_file() and not target.is_symlink():
            with suppress(OSError):  # the file system does not support hard links
                os.link(target, old)
        if not os.path.lexists(old):
            self.set_aside(target)
            self.place(new, target, "")
            return
        self.old.append(old)
        self._undo.append((old, target))
        os.replace(new, target)

    def place(self, new: Path, target: Path, option: str) -> None:
        """Rename a file or folder to a target that does not exist. Raises UsageError if it exists by now."""
        if new.is_dir():
            os.rename(new, target)
            self._undo.append((target, new))
            return
        try:
            # A rename would replace a file created since the first check.
            os.link(new, target)
        except FileExistsError:
            raise _exists(target, option) from None
        except OSError:
            # The file system does not support hard links.
            check_absent([target], option=option)
            os.rename(new, target)
        self._undo.append((target, new))
        with suppress(OSError):
            os.unlink(new)

    def undo(self, cause: BaseException) -> None:
        """Undo the renames, the last one first. Raises KsegError for files that could not be restored."""
        kept = [str(cause)]
        for now, before in reversed(self._undo):
            try:
                os.replace(now, before)
                if os.path.lexists(now):  # two names of one file: a rename has no effect
                    os.unlink(now)
            except OSError as error:
                kept.append(f"{before}: could not be restored: {error.strerror or error}: it is in {now}")
        if len(kept) > 1:
            raise KsegError("; ".join(kept)) from cause

    def remove_old(self) -> None:
        """Remove the replaced files."""
        for old in self.old:
            if old.is_dir() and not old.is_symlink():
                shutil.rmtree(old, ignore_errors=True)
            else:
                with suppress(OSError):
                    old.unlink()


def hidden_prefix(target: Path) -> str:
    """Return ``.NAME.``, the beginning of all hidden names next to a target. A hash shortens a long name."""
    name = os.fsencode(target.name)
    if len(name) + _ADDED > _LONGEST_NAME:
        digest = hashlib.sha256(name).hexdigest()[:16].encode()
        name = name[: _LONGEST_NAME - _ADDED - len(digest) - 1].decode(errors="ignore").encode() + b"." + digest
    return f".{os.fsdecode(name)}."


def _hidden_name(path: Path) -> Path:
    """Return a free name next to a path for its present file."""
    return path.with_name(f"{hidden_prefix(path)}{os.urandom(6).hex()}{_OLD}")


def mark_results(folder: Path) -> None:
    """Mark the logs in a folder of new files as written by kseg, so that ``--force`` can distinguish them from a broker's.

    A file system without extended attributes takes no mark: nothing there counts as an earlier result.
    """
    for log in folder.glob("*.log"):
        with suppress(OSError, AttributeError):  # macOS and Windows: os lacks the function
            os.setxattr(log, _RESULT, _state_of(log))


def is_result(log: Path) -> bool:
    """Return whether kseg wrote a log and nothing has changed it since."""
    try:
        return os.getxattr(log, _RESULT) == _state_of(log)
    except (OSError, AttributeError):
        return False


def _state_of(log: Path) -> bytes:
    status = log.stat()
    return f"{status.st_size}:{status.st_mtime_ns}".encode()


def check_absent(targets: Iterable[Path], *, option: str = "--force") -> None:
    """Raise UsageError for the first target that exists. ``option`` is what replaces it."""
    for target in targets:
        if os.path.lexists(target):
            raise _exists(target, option)


def _exists(target: Path, option: str) -> UsageError:
    return UsageError(f"{target} exists: add {option} to replace it")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def sync_folder(folder: Path) -> None:
    """Write the folder's entries to disk. A folder that cannot be opened is skipped: Windows opens none."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except PermissionError:
        return
    try:
        sync(handle)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise
    finally:
        os.close(handle)
