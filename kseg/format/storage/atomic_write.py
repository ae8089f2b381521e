"""Atomic outputs: written to a temporary file in the target folder, fsynced, renamed, and the folder fsynced.

SIGKILL leaves a ``.NAME.….tmp`` next to the target, which brokers ignore, and nothing under the target name. Nothing else in
kseg creates files.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO

from kseg.errors import KsegError, UsageError
from kseg.format.storage import interrupts

SUFFIX = ".tmp"
_BUFFER = 1024 * 1024


class Staged:
    """A temporary file for ``target``: ``file`` is open for writing bytes at the temporary ``path``.

    Raises KsegError if it cannot be created. ``publish`` renames it; ``stage`` discards it otherwise.
    """

    def __init__(self, target: Path) -> None:
        if target.exists() and not (target.is_file() or target.is_dir()):
            raise UsageError(f"{target}: not a regular file")  # a rename would replace the device
        self.target = target
        try:
            handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=SUFFIX, dir=target.parent)
        except OSError as error:
            raise KsegError(f"{target}: {error.strerror or error}") from error
        self.path = Path(name)
        self.file: IO[bytes] = os.fdopen(handle, "wb", buffering=_BUFFER)

    def restart(self) -> None:
        """Discard the written bytes."""
        self.file.seek(0)
        self.file.truncate()

    def sync(self, modified_ns: int | None = None) -> None:
        """Fsync and close the file, with ``modified_ns`` as its modification time."""
        self.file.flush()
        os.chmod(self.path, 0o666 & ~_umask())
        if modified_ns is not None:
            os.utime(self.path, ns=(modified_ns, modified_ns))
        os.fsync(self.file.fileno())
        self.file.close()

    def publish(self, *, replace: bool) -> None:
        """Rename the synced file to its target. Without ``replace`` raises UsageError if the target exists by now."""
        if replace:
            os.replace(self.path, self.target)
            return
        try:
            # A rename would replace a file created since the first check.
            os.link(self.path, self.target)
        except FileExistsError:
            raise _exists(self.target) from None
        except OSError:
            # The file system does not support hard links.
            check_absent([self.target])
            os.rename(self.path, self.target)
        else:
            os.unlink(self.path)

    def discard(self) -> None:
        """Remove the temporary file."""
        with suppress(OSError):  # flushing the buffer can fail again on a full disk
            self.file.close()
        self.path.unlink(missing_ok=True)


def stage(stack: ExitStack, target: Path) -> Staged:
    """Return a temporary file for ``target``; the exit stack removes it unless it was published."""
    with interrupts.delayed():
        staged = Staged(target)
        stack.callback(staged.discard)
    return staged


def _stage_folder(stack: ExitStack, target: Path) -> Path:
    with interrupts.delayed():
        folder = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=SUFFIX, dir=target.parent))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
    return folder


@contextmanager
def writing(target: Path) -> Iterator[None]:
    """Turn an OSError (full disk, quota, failing disk) into a KsegError that names the target."""
    try:
        yield
    except OSError as error:
        if isinstance(error, FileNotFoundError) and not target.parent.is_dir():
            raise _no_parent(target) from error
        raise KsegError(f"{target}: {error.strerror or error}; nothing was written there") from error


@contextmanager
def whole_file(target: Path, *, replace: bool = True) -> Iterator[IO[bytes]]:
    """Yield a file that gets its name if the block succeeds. Raises KsegError."""
    with ExitStack() as stack, writing(target):
        staged = stage(stack, target)
        yield staged.file
        staged.sync()
        staged.publish(replace=replace)
        sync_folder(target.parent)


@contextmanager
def whole_folder(target: Path, *, replace: bool) -> Iterator[Path]:
    """Yield a folder that gets its name if the block succeeds. Raises KsegError.

    The caller must sync the files in it. With ``replace`` an older folder is moved aside and removed at the end.
    """
    with ExitStack() as stack:
        try:
            temporary = _stage_folder(stack, target)
        except FileNotFoundError as error:
            raise _no_parent(target) from error
        except OSError as error:
            raise KsegError(f"{target}: {error.strerror or error}") from error
        aside = temporary.with_name(temporary.name + ".old")
        try:
            yield temporary
            stack.enter_context(interrupts.delayed())  # a signal would leave the older folder aside
            with writing(target):
                os.chmod(temporary, 0o777 & ~_umask())
                sync_folder(temporary)
                if replace and os.path.lexists(target):
                    os.rename(target, aside)
                elif os.path.lexists(target):
                    raise _exists(target)
                os.rename(temporary, target)
                sync_folder(target.parent)
        except BaseException as error:
            if os.path.lexists(aside) and not os.path.lexists(target):
                os.rename(aside, target)
            if isinstance(error, KsegError):
                # The temporary name is unknown to the user and no longer exists.
                error.args = (str(error).replace(str(temporary), str(target)),)
            raise
        if os.path.lexists(aside):
            shutil.rmtree(aside) if aside.is_dir() and not aside.is_symlink() else aside.unlink()


def move_folders(moves: Sequence[tuple[Path, Path]], aside: Path, *, replace: bool) -> None:
    """Rename folders to their targets, all of them or none. Raises OSError, and UsageError for a target that exists.

    With ``replace`` older targets are kept in ``aside``, a new folder next to them, until all moves are done. When a
    rename fails, all older targets are restored. One that can't be restored stays in ``aside``.
    """
    if not replace:
        check_absent((target for _, target in moves), option="overwrite=True")  # called by write_segments only
    begun: list[tuple[Path, Path]] = []
    try:
        for folder, target in moves:
            begun.append((folder, target))
            if replace and os.path.lexists(target):
                aside.mkdir(exist_ok=True)
                os.rename(target, aside / target.name)
            os.rename(folder, target)
        for parent in {target.parent for _, target in moves}:
            sync_folder(parent)
    except BaseException:
        for folder, target in reversed(begun):
            with suppress(OSError):
                if os.path.lexists(target) and not os.path.lexists(folder):
                    os.rename(target, folder)
                if os.path.lexists(aside / target.name):
                    os.rename(aside / target.name, target)
        with suppress(OSError):
            aside.rmdir()
        raise
    shutil.rmtree(aside, ignore_errors=True)


@contextmanager
def scratch_folder(target: Path) -> Iterator[Path]:
    """Yield a temporary folder next to ``target``; it is removed when the block ends. Raises KsegError."""
    with ExitStack() as stack:
        with writing(target):
            folder = _stage_folder(stack, target)
        yield folder


def check_absent(targets: Iterable[Path], *, option: str = "--force") -> None:
    """Raise UsageError for the first target that exists. ``option`` is what replaces it."""
    for target in targets:
        if os.path.lexists(target):
            raise _exists(target, option)


def _exists(target: Path, option: str = "--force") -> UsageError:
    return UsageError(f"{target} exists: add {option} to replace it")


def _no_parent(target: Path) -> KsegError:
    return KsegError(f"{target}: the folder {target.parent} does not exist: create it first")


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
        os.fsync(handle)
    finally:
        os.close(handle)
