"""Find the segments of files, folders, URLs and archives: in which folder each is, and which of them is active."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby
from pathlib import Path

from kseg.errors import KsegError, UnreadableError, UsageError, VanishedError
from kseg.format.record.layout import INT64_MAX
from kseg.format.storage import file_access, file_type, local_files, remote_files, remote_listing, resting_logs
from kseg.format.storage.local_files import skip_special
from kseg.format.storage.naming import (
    MANIFEST,
    META_PROPERTIES,
    archive,
    base_offset_of,
    end_offsets,
    has_manifests,
    is_file_url,
    is_log,
    is_missing,
    is_remote_log,
    is_snapshot,
    is_url,
    leftover_of,
    logs_among,
    may_be_in_archive,
    partition_of,
    tiered_view,
)
from kseg.format.storage.source import STDIN, Stamp, local_size, open_source, stamp_of, stored_size
from kseg.text import count_of


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """A segment or a side file. ``active`` is the newest segment of its folder, which a broker may be writing.

    ``listed``: it was found in a folder; a broker may have deleted it since. A named file must exist.

    ``indexes`` are the index files to check with a segment, None if it is checked alone. For a side file it is () if the
    file is checked with its folder.

    ``framing`` is the kind of file given with --as (``framed_files.FRAMINGS``), None to use the name. For responses,
    ``requests`` is the file with their requests.

    ``size`` in bytes and ``stamp`` are those of the listing of an object, and of a file that was ``measured``; None if they
    are unknown, ``unread`` is the reason if it is an error. The offsets of a segment that is ``in_order`` are below
    ``end_offset``, the base offset of the next one in its folder; INT64_MAX for the last one.
    """

    path: str
    active: bool = False
    indexes: tuple[str, ...] | None = None
    listed: bool = False
    framing: str | None = None
    requests: str | None = None
    size: int | None = None
    stamp: Stamp = None
    unread: str | None = None
    end_offset: int = INT64_MAX

    @property
    def base_offset(self) -> int:
        """The offset in the file's name, 0 without one."""
        return base_offset_of(self.path) or 0

    @property
    def bytes(self) -> int:
        """The size in bytes; 0 if it is unknown."""
        return self.size or 0

    @property
    def stored(self) -> remote_listing.Stored | None:
        """Size and tag of an object as listed, None for a local file, and for a URL that was not listed."""
        if self.size is None or not is_url(self.path):
            return None
        return remote_listing.Stored(self.size, self.stamp and str(self.stamp[2]))


def without_unused(paths: Iterable[str]) -> list[str]:
    """Return the paths but log directories without a partition; all of them if no other path is left.

    A broker with several log directories has one after a disk was added.
    """
    given = list(paths)
    return [path for path in given if not is_unused(path)] or given


def is_unused(path: str) -> bool:
    """Return whether a path is a local log directory without a partition."""
    if path == STDIN or is_url(path):
        return False
    try:
        return local_files.exists(os.path.join(path, META_PROPERTIES)) and not any(
            kind == "folder" and partition_of(name) for name, kind in local_files.entries(path)
        )
    except UnreadableError:
        return False  # the command says so


def find_segments(path: str) -> Iterator[SegmentFile]:
    """Yield the segments of a path: the path itself, or the segments of a partition folder, log dir or any parent folder.

    Folders come by name, segments by offset. A folder that cannot be listed is yielded, too, and a file in place of those
    that an incomplete archive lacks: opening it fails with the reason. A transformed object of tiered storage is its decoded
    file. Raises UnreadableError if there are none.
    """
    unlisted: list[str] = []
    folders = folders_at(path, unlisted.append)
    if folders is None:
        yield SegmentFile(as_decoded(path))
        return
    file = None
    for file in chain((file for found in folders for file in segments_in(*found)), map(SegmentFile, unlisted)):
        yield file
    if file is None:
        raise UnreadableError(f"{path}: no segment found (a .log file named by 20 digits)")


def as_decoded(path: str) -> str:
    """Return the decoded file of a log that a plugin of tiered storage has transformed, and other paths as they are."""
    folder, _, name = path.rpartition("/")
    view = tiered_view(folder) if is_remote_log(name) else None
    return path_in(view, name) if view and local_files.is_file(path.removesuffix(".log") + MANIFEST) else path


def find_in_use(path: str) -> Iterator[SegmentFile]:
    """Yield the segments that ``find_segments`` finds but those of folders that clients cannot read.

    These are below ``path`` and have the suffix ``-delete``, ``-future`` or ``-stray``: records in them are not in their
    partition, or twice. They are skipped with a warning. Raises UnreadableError.
    """
    skipped: dict[str, None] = {}
    named, file = path.rstrip("/"), None
    for folder, files in groupby(find_segments(path), key=lambda file: file.path.rpartition("/")[0]):
        if folder != named and leftover_of(folder.rpartition("/")[2]):
            skipped[folder] = None
            continue
        for file in files:
            yield file
    warn_skipped(path, list(skipped), "not in use")
    if skipped and file is None:
        raise UnreadableError(f"{path}: no segment in use found")


def warn_skipped(path: str, folders: Sequence[str], why: str) -> None:
    """Warn that folders below a path were skipped, if there are any."""
    if folders:
        more = " and others" if len(folders) > 1 else ""
        file_access.current().warn(f"{path}: skipped {count_of(len(folders), 'folder')} {why}: {folders[0]}{more}")


def folders_at(
    path: str, unlisted: Callable[[str], object], *, decoded: bool = True
) -> Iterator[tuple[str, list[str]]] | None:
    """Return a folder or the folder of a URL, and all folders below it, with their files as ``walk_folders`` does.

    None if the path is not a folder.
    """
    if is_url(path):
        if not is_file_url(path):
            return remote_files.walk(path, unlisted, decoded=decoded)
        remote_files.forget(path.rpartition("/")[0])  # an earlier listing: the files next to it can be others now
        return None
    if not is_folder(path):
        return None
    return ((str(folder), names) for folder, names in walk_folders(path, unlisted, decoded=decoded))


def once_each(files: Iterable[SegmentFile]) -> list[SegmentFile]:
    """Return the files without duplicates: several paths can lead to one file.

    A named file that is also in a listed folder is returned with the folder. Symbolic links inside a folder are segments
    of their own: their names are their base offsets.
    """
    found = list(files)
    real_folders: dict[str, str] = {}

    def place_of(path: str) -> str:
        if path == STDIN or is_url(path):
            return path
        folder, name = os.path.split(path)
        if folder not in real_folders:
            real_folders[folder] = os.path.realpath(folder)
        return os.path.join(real_folders[folder], name)

    listed = {place_of(path) for file in found if file.listed for path in (file.path, *(file.indexes or ()))}
    kept: dict[str, SegmentFile] = {}
    for file in found:
        place = place_of(file.path)
        if not file.listed:
            real = place if file.path == STDIN or is_url(file.path) else os.path.realpath(place)
            if listed & {place, real}:
                continue
            place = real
        kept.setdefault(place, file)
    return list(kept.values())


def by_folder(
    paths: Sequence[str], find: Callable[[str], Iterator[SegmentFile]]
) -> Iterable[tuple[str, Iterable[SegmentFile]]]:
    """Return the files of paths by folder, each file once. Of one path, only the files of one folder are held."""
    if len(paths) == 1:
        return groupby(find(paths[0]), key=lambda file: os.path.dirname(file.path))
    found: dict[str, list[SegmentFile]] = {}
    for file in once_each(chain.from_iterable(map(find, paths))):
        found.setdefault(os.path.dirname(file.path), []).append(file)
    return found.items()


def check_exists(path: str) -> None:
    """Raise UnreadableError if a named path does not exist, or is not a folder and cannot be opened."""
    if not is_folder(path) and not (is_url(path) and local_files.is_folder(path)):
        open_source(path).close()


def is_folder(path: str) -> bool:
    """Return whether a path is a local folder, an archive, or a folder in one."""
    if path == STDIN:
        return file_type.unpacked(STDIN)[1]
    return not is_url(path) and local_files.is_folder(path)


def is_unfinished(folder: str) -> bool:
    """Return whether the end of an incomplete archive cuts a folder, so that any of its files can be missing."""
    return may_be_in_archive(folder) and not is_url(folder) and archive.is_unfinished(folder)


def check_complete(folder: str) -> None:
    """Raise UnreadableError if a folder is in an archive that is damaged or incomplete, so that files can be missing."""
    if may_be_in_archive(folder) and not is_url(folder):
        archive.check_complete(folder)


def walk_folders(
    path: str, unlisted: Callable[[str], object], *, decoded: bool = True
) -> Iterator[tuple[Path, list[str]]]:
    """Yield a folder and all folders below it in name order, each with its sorted file names.

    ``unlisted`` is called with each folder below it that cannot be listed. Raises UnreadableError for ``path`` itself.
    FIFOs, sockets and devices are skipped with a warning. Symbolic links are followed, as by a broker, but no folder is
    visited twice. Objects of tiered storage that a plugin transforms are those of their ``decoded`` view.
    """
    if not os.path.isdir(path) and may_be_in_archive(path):
        yield from (_presented(found, decoded) for found in archive.walk(path))
        return
    root = os.path.join(os.path.realpath(path), "")
    seen = {root}

    def is_new(folder: str) -> bool:
        real = os.path.join(os.path.realpath(folder), "")
        # Folders below the root are visited by their own names, which can follow; a folder above contains the root.
        if real in seen or (os.path.islink(folder) and (real.startswith(root) or root.startswith(real))):
            return False
        seen.add(real)
        return True

    def failed(error: OSError) -> None:
        if error.filename == path:
            raise UnreadableError(f"{path}: {error.strerror or error}") from error
        # A topic can be deleted meanwhile: its folders are renamed.
        if not isinstance(error, FileNotFoundError):
            unlisted(error.filename)

    for folder, folders, names in os.walk(path, onerror=failed, followlinks=True):
        folders[:] = [name for name in sorted(folders) if is_new(os.path.join(folder, name))]
        yield _presented((folder, skip_special(folder, sorted(names))), decoded)


def _presented(found: tuple[str, list[str]], decoded: bool) -> tuple[Path, list[str]]:
    """Return a folder and its files, or the decoded view of objects in it."""
    folder, names = archive.present(*found) if decoded and has_manifests(found[1]) else found
    return Path(folder), names


def log_dirs_in(path: str, marks: frozenset[str] = frozenset()) -> list[str]:
    """Return the log directories that a folder is or holds: folders with a partition's folder, or a file of ``marks``.

    A partition's folder has segments, or cannot be listed: a broker's folder can have such a name, too, as ``broker-1``.
    Raises UnreadableError if ``path`` cannot be listed.
    """
    found: set[str] = set()
    unlisted: list[str] = []
    for folder, names in walk_folders(path, unlisted.append):
        if not marks.isdisjoint(names):
            found.add(str(folder))
        elif partition_of(folder.name) and any(base_offset_of(name) is not None for name in names):
            found.add(str(folder.parent))
    found.update(os.path.dirname(folder) for folder in unlisted if partition_of(os.path.basename(folder)))
    return sorted(found)


def check_single_log_dir(path: str) -> None:
    """Raise UsageError if a folder holds log directories and is not one itself."""
    found = log_dirs_in(path)
    if found and str(Path(path)) not in found:
        more = f" and {len(found) - 1:,} more" if len(found) > 1 else ""
        raise UsageError(f"{path} holds log directories, {found[0]}{more}: give one log directory")


def size_of(file: SegmentFile) -> int | None:
    """Return the size of a local file in bytes, 0 if it was deleted, None for anything else."""
    size = local_size(file.path)
    return 0 if size is None and file.listed and not is_url(file.path) else size


def total_size(files: Iterable[SegmentFile]) -> int | None:
    """Return the total size of the files in bytes, None if it is unknown."""
    sizes = [size_of(file) for file in files]
    return None if None in sizes else sum(size or 0 for size in sizes)


def is_newest(path: str) -> bool:
    """Return whether a local segment is now the newest of its folder, the one that a broker writes to."""
    folder, name = os.path.split(path)
    if not is_log(name):
        return False  # nobody writes to a segment of remote storage, or one that is about to be deleted
    try:
        return not any(is_log(other) and other > name for other in local_files.names_in(folder))
    except UnreadableError:
        return False


def path_in(folder: str, name: str) -> str:
    """Return the path of a file in a folder, or its URL."""
    return f"{folder}/{name}" if is_url(folder) else str(Path(folder) / name)


def segments_in(folder: str, names: list[str]) -> Iterator[SegmentFile]:
    """Yield the segments and KRaft snapshots among the files of a folder, and the name in place of missing files."""
    remote = is_url(folder)
    logs = logs_among(names)
    for name in (*logs, *filter(is_snapshot, names), *filter(is_missing, names)):
        path = os.path.join(folder, name)
        active = is_log(name) and name == logs[-1]
        found = remote_files.listed(path) if remote else None
        yield SegmentFile(path, active, listed=True, size=found and found.size, stamp=found and found.stamp)


def measured(file: SegmentFile) -> SegmentFile:
    """Return a file with its size and stamp as they are now, or as an object was listed. Raises UnreadableError."""
    if file.stored:
        return file
    size = stored_size(file.path)
    stamp = None if size is None else stamp_of(file.path)
    return replace(file, size=stamp[0] if stamp else size, stamp=stamp)


def in_order(files: Iterable[SegmentFile]) -> list[SegmentFile]:
    """Return the segments of a folder by offset, each with its ``end_offset``. KRaft snapshots come last."""
    ordered = sorted(files, key=lambda file: (is_missing(file.path), is_snapshot(file.path), file.base_offset))
    ends = end_offsets([file.path for file in ordered])
    return [replace(file, end_offset=end or INT64_MAX) for file, end in zip(ordered, ends, strict=True)]


#: ``unless_deleted``, or a function that returns each error.
UnlessDeleted = Callable[[KsegError, SegmentFile | None], KsegError | None]


def unless_deleted(error: KsegError, file: SegmentFile | None) -> KsegError | None:
    """Return what to report of an error of opening a segment: None if a broker deleted it since it was listed.

    Such a segment is left out, and passed to ``deleted`` of the file access.
    Retention deletes the oldest segments of a log, and the deletion of a topic all. The log cleaner merges later ones into
    an older one, and a follower truncates the newest: who has read the older ones in their former state lacks records.
    """
    if not (file and file.listed and isinstance(error, VanishedError)):
        return error
    folder, name = os.path.split(file.path)
    try:
        names = local_files.names_in(folder)
        older = [other for other in names if is_log(name) and is_log(other) and other < name]
        replaced = is_log(name) and resting_logs.is_being_replaced(folder, name, names)
        if older and not replaced:
            open_source(path_in(folder, max(older)), listed=True).close()  # the listing of a URL can be an earlier one
        if older or replaced:
            return VanishedError(
                f"{file.path}: merged by the log cleaner or truncated since it was listed: run kseg again"
            )
    except VanishedError:
        pass
    except UnreadableError:
        return error
    file_access.current().deleted(file.path)
    return None
