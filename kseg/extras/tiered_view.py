"""The decoded view of the objects of Aiven's tiered storage plugin: files as Kafka's own reference stores them.

``<topic>-<topic id>/<partition>/`` has the objects, and its view the names of ``LocalTieredStorage``: segments, indexes,
producer snapshots and epochs. A chunk is read and decoded when a byte of it is needed; no file is written.
"""

from __future__ import annotations

import io
import os
import stat
from dataclasses import dataclass
from typing import Any

from kseg.errors import KsegError, UnreadableError, VanishedError
from kseg.extras.archive_formats import PositionedFile, Status
from kseg.extras.tiered_manifest import MOST_MANIFEST, Chunks, Cipher, Manifest, ManifestError, data_key, parse_manifest
from kseg.format.compress import codecs
from kseg.format.storage import file_access, local_files
from kseg.format.storage.naming import MANIFEST, is_remote_log, tiered_view

#: The byte that replaces those of a chunk that cannot be decoded: it begins neither a batch nor an index entry.
FILLER = b"\xff"
_ZSTD = 4
_LOG, _INDEXES = ".log", ".indexes"


# The chunks that were decoded last, the newest at the end, and the most bytes of them.
_recent: dict[tuple[str, int, int, int, bool], bytes] = {}
_RECENT_SIZE = 16 << 20
#: An object with less than this part of its bytes is not read: the filler for the rest would cost the time of gigabytes.
_LEAST_SHARE = 250


class DamagedObjectError(KsegError):
    """A chunk of an object cannot be decoded."""


@dataclass(frozen=True, slots=True)
class DecodedMember:
    """A file of a view: the ``chunks`` of the object at ``path``. ``fault`` says why it cannot be read, "" if it can."""

    path: str
    chunks: Chunks
    manifest: Manifest | None
    manifest_path: str
    fault: str = ""

    @property
    def status(self) -> Status:
        """The status of the object, with the size of the decoded file. Raises OSError and UnreadableError."""
        return self.status_from(local_files.status(self.path))

    def status_from(self, stored: Any) -> Status:
        """Return the status for that of the object."""
        return Status(stat.S_IFREG | 0o444, stored.st_ino, self.chunks.size, stored.st_mtime, stored.st_mtime_ns or 0)

    def open(self, *, strict: bool = False) -> DecodedFile:
        """Open the file. ``strict``: raise DamagedObjectError for a chunk that cannot be decoded, and warn of none.

        Raises UnreadableError.
        """
        if self.fault or self.manifest is None:
            raise UnreadableError(self.fault)
        return DecodedFile(self, cipher_of(self.manifest, self.manifest_path), strict=strict)


def cipher_of(manifest: Manifest, where: str) -> Cipher | None:
    """Return what decrypts the objects of a manifest, None if they are plain. Raises UnreadableError without the key."""
    if manifest.data_key is None:
        return None
    key_id, wrapped = manifest.data_key
    return Cipher(data_key(wrapped, key_id, where), manifest.aad)


class DecodedFile(PositionedFile):
    """A decoded file, opened for reading. Its reads raise OSError if the object cannot be read."""

    status: Status

    def __init__(self, member: DecodedMember, cipher: Cipher | None, *, strict: bool) -> None:
        super().__init__(member.chunks.size)
        self._object = local_files.open_file(member.path, named=False)
        stored = os.fstat(self._object.fileno()) if isinstance(self._object, io.FileIO) else self._object.status
        self._stored_size = stored.st_size
        if self._stored_size * _LEAST_SHARE < (expected := member.chunks.starts[-1]):
            self._object.close()
            raise UnreadableError(
                f"{member.path}: the object has {self._stored_size:,} of the {expected:,} bytes in its manifest"
            )
        self.status = member.status_from(stored)
        self._member = member
        self._cipher = cipher
        self._strict = strict
        #: How many chunks were read as filler.
        self.damaged = 0
        self._chunk, self._data = -1, b""

    def readinto(self, view: Any) -> int:
        if self._position >= self.size or not len(view):
            return 0
        chunk, at = divmod(self._position, self._member.chunks.chunk_size)
        if chunk != self._chunk:
            self._data, self._chunk = self._known(chunk), chunk
        count = min(len(view), len(self._data) - at)
        view[:count] = self._data[at : at + count]
        self._position += count
        return count

    def close(self) -> None:
        self._object.close()
        super().close()

    def _known(self, chunk: int) -> bytes:
        """Return the bytes of a chunk, perhaps those of an earlier read: a lookup opens a segment several times."""
        key = (
            self._member.path,
            self.status.st_mtime_ns,
            self._stored_size,
            self._member.chunks.starts[chunk],
            self._strict,
        )
        data = _recent.pop(key, None)
        if data is None:
            before = self.damaged
            data = self._decoded(chunk)
            if self.damaged > before:
                return data
            while _recent and sum(map(len, _recent.values())) + len(data) > _RECENT_SIZE:
                del _recent[next(iter(_recent))]
        _recent[key] = data
        return data

    def _decoded(self, chunk: int) -> bytes:
        """Return the bytes of a chunk, or filler. Raises OSError, and DamagedObjectError if ``strict``."""
        chunks = self._member.chunks
        size, start, end = chunks.size_of(chunk), chunks.starts[chunk], chunks.starts[chunk + 1]
        try:
            return self._decode(self._stored(start, end - start), size)
        except DamagedObjectError as error:
            line = f"{self._member.path}: the chunk at bytes {start:,} to {end:,} cannot be decoded: {error}"
            if self._strict:
                raise DamagedObjectError(line) from error
            self.damaged += 1
            begin = chunk * chunks.chunk_size
            file_access.current().warn(f"{line}: bytes {begin:,} to {begin + size:,} of the file are read as 0xff")
            return FILLER * size

    def _stored(self, start: int, size: int) -> bytes:
        """Read a range of the object. Raises OSError, and DamagedObjectError if the object ends in it."""
        if start + size > (end := self._stored_size):
            raise DamagedObjectError(f"the object has only {end:,} bytes")
        self._object.seek(start)
        data, read = bytearray(size), 0
        while read < size and (count := self._object.readinto(memoryview(data)[read:])):
            read += count
        if read < size:
            raise OSError(f"ended at byte {start + read} of {end}")
        return bytes(data)

    def _decode(self, data: bytes, size: int) -> bytes:
        if self._cipher is not None:
            plain = self._cipher.decrypt(data)
            if plain is None:
                raise DamagedObjectError("the AES-GCM tag does not match")
            data = plain
        if self._member.chunks.compressed:
            try:
                data = bytes(codecs.decompress(_ZSTD, data, limit=size))
            except codecs.CodecError as error:
                raise DamagedObjectError(str(error)) from error
        if len(data) != size:
            raise DamagedObjectError(f"expected {size:,} bytes, got {len(data):,}")
        return data


class TieredView:
    """The decoded files of a folder with objects of one partition, by name. It has the attributes of an ``Archive``."""

    damage = ""
    unfinished = None
    in_order = True

    def __init__(self, path: str) -> None:
        self.path = path
        self.files: dict[str, DecodedMember] = {}
        self.folders = {"": self.files}
        self.subfolders: dict[str, set[str]] = {"": set()}

    def find(self, name: str) -> DecodedMember | None:
        return self.files.get(name)


# Views by the path of the folder with the objects, with the state of the folder. Forked processes inherit them.
_views: dict[str, tuple[int, TieredView]] = {}


def view_at(folder: str) -> TieredView | None:
    """Return the view of a folder with objects, made again if the folder has changed; None for another path.

    Raises UnreadableError as ``present``.
    """
    if (state := _state_of(folder)) is None:
        return None
    known = _views.get(folder)
    if known is None or known[0] != state:
        names = sorted(local_files.names_in(folder))
        return _made(folder, names, state) if any(name.endswith(MANIFEST) for name in names) else None
    return known[1]


def present(folder: str, names: list[str]) -> tuple[str, list[str]]:
    """Return the view of a folder with manifests among its ``names``, and the sorted names of the view.

    Other folders are returned as they are. Segments without a manifest are reported as a warning. Raises UnreadableError if
    the key of encrypted objects is missing or wrong, and for a table of the plugin's Iceberg mode.
    """
    if puffin := next((name for name in names if name.endswith(".puffin")), None):
        raise UnreadableError(
            f"{folder}: {puffin} is of an Iceberg table: in its Iceberg mode Aiven's plugin keeps rows of a table, "
            "which kseg does not read as segments"
        )
    path = tiered_view(folder)
    if path is None:
        return folder, names
    return path, sorted(_made(folder, names, _state_of(folder) or 0).files)


def _state_of(folder: str) -> int | None:
    """Return the time of the last change of a folder, 0 for one in an archive or at a URL; None without a folder."""
    try:
        return local_files.status(folder).st_mtime_ns or 0
    except OSError:
        return 0 if local_files.is_folder(folder) else None


def _check(view: TieredView, folder: str, names: list[str]) -> None:
    """Raise UnreadableError if the first encrypted segment cannot be decrypted, and warn of logs without a manifest.

    One line instead of one per file.
    """
    for member in view.files.values():
        if member.manifest and member.manifest.data_key:
            cipher_of(member.manifest, member.manifest_path)
            break
    stems = {name.removesuffix(MANIFEST) for name in names if name.endswith(MANIFEST)}
    alone = [name for name in names if is_remote_log(name) and name.removesuffix(_LOG) not in stems]
    if alone:
        more = ", ..." * (len(alone) > 3)
        file_access.current().warn(f"{folder}: skipped logs without a manifest: {', '.join(alone[:3])}{more}")


def _made(folder: str, names: list[str], state: int) -> TieredView:
    view = TieredView(tiered_view(folder) or folder)
    present_names = set(names)
    for name in names:
        stem = name.removesuffix(MANIFEST)
        if stem != name and is_remote_log(stem + _LOG):
            _add_segment(view, folder, stem, present_names)
    _check(view, folder, names)
    _views[folder] = state, view
    return view


def _add_segment(view: TieredView, folder: str, stem: str, names: set[str]) -> None:
    """Add the files of a segment. If its manifest cannot be read, its log is a file that cannot be opened."""
    where, path = f"{folder}/{stem}{MANIFEST}", f"{folder}/{stem}{_LOG}"
    try:
        manifest = read_manifest(where)
    except VanishedError:
        return
    except UnreadableError as error:
        view.files[stem + _LOG] = DecodedMember(path, Chunks(0, 1, (0,)), None, where, str(error))
        return
    fault = "" if stem + _LOG in names else f"{path}: the object is missing, but its manifest exists"
    view.files[stem + _LOG] = DecodedMember(path, manifest.log, manifest, where, fault)
    path = f"{folder}/{stem}{_INDEXES}"
    fault = "" if stem + _INDEXES in names else f"{path}: the object is missing, but the manifest exists"
    for suffix, chunks in manifest.side_files.items():
        view.files[stem + suffix] = DecodedMember(path, chunks, manifest, where, fault)


def read_manifest(path: str) -> Manifest:
    """Return the manifest at a path or URL. Raises UnreadableError, and ManifestError if its content is another one."""
    try:
        size = local_files.status(path).st_size
    except FileNotFoundError as error:
        raise VanishedError(f"{path}: {error.strerror or error}") from error
    except OSError as error:
        raise UnreadableError(f"{path}: {error.strerror or error}") from error
    if size > MOST_MANIFEST:
        raise ManifestError(f"{path}: not a manifest of a segment: {size:,} bytes")
    return parse_manifest(local_files.read_file(path), path)
