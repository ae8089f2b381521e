"""Outputs at URLs: an object gets its name when all its bytes are stored, and several objects get theirs together.

Object stores have no rename. The bytes are sent as parts of an upload that nobody can read, and the end of the upload
makes the object. A run that fails or is interrupted ends its uploads; after SIGKILL the store has unfinished uploads, which
its own rules remove, and no unfinished object.
"""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from kseg.errors import KsegError, UnreadableError, UsageError
from kseg.format.storage import interrupts, local_files, remote_files, remote_listing
from kseg.format.storage.naming import is_log

_BLOCK = 1 << 20
#: The name of the random mark that each upload to S3 has in the metadata of its object.
_MARK = "kseg-upload"


class Upload(io.RawIOBase):
    """A new object at a URL, open for writing. ``publish`` gives it its name, ``discard`` removes the sent bytes.

    With ``new`` an object that exists is never replaced: the store itself rejects it, if it can. Each method raises
    KsegError if the store fails.
    """

    def __init__(self, url: str, *, new: bool = False) -> None:
        self.url = url
        self._new = new
        self._begun = self._published = False
        with self._errors():
            self._filesystem, self._path = remote_files.filesystem_of(url)
            self._metadata: dict[str, str] = {}
            if "s3" in _protocols(self._filesystem):
                given = self._filesystem.s3_additional_kwargs.get("Metadata", {})
                self._metadata = {**given, _MARK: os.urandom(16).hex()}
            mode = "xb" if new and self._metadata else "wb"
            settings = {"Metadata": self._metadata} if self._metadata else {}
            self._file = self._filesystem.open(self._path, mode, autocommit=False, **settings)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn the exceptions of a store, of any class, into a KsegError that names the object."""
        try:
            yield
        except (KsegError, MemoryError):
            raise
        except NotImplementedError as error:
            raise UsageError(f"{self.url}: nothing can be written to {self.url.partition(':')[0]} URLs") from error
        except Exception as error:
            if self._new and _is_precondition(error):
                raise exists(self.url) from error
            raise KsegError(
                f"{self.url}: {remote_listing.reason(error, self.url)}; nothing was written there"
            ) from error

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        with self._errors():
            self._file.write(data)
        return memoryview(data).nbytes

    def finish(self) -> None:
        """Send the last bytes. The object has no name yet."""
        with self._errors():
            self._file.close()

    def publish(self) -> None:
        """Give the object its name, after ``finish``.

        A request whose answer was lost is repeated by the libraries, and the answer to the second one says that the name
        exists (412), or that the upload does not exist (404). So after each error the object itself shows if it was stored.
        """
        self._begun = True
        with self._errors():
            try:
                self._commit()
            except Exception as error:
                stored = self.is_stored()
                if stored is None and not _is_precondition(error):
                    why = remote_listing.reason(error, self.url)
                    raise KsegError(f"{self.url}: {why}; it is unknown whether it was written there") from error
                if not stored:
                    raise
                self._filesystem.invalidate_cache()
        self._published = True
        remote_files.forget(self.url.rpartition("/")[0])

    def _commit(self) -> None:
        if self._file.tell() or not self._metadata:
            self._file.commit()
            return
        # s3fs stores an empty object by another request, without the metadata and the condition.
        self._file.discard()
        bucket, key, _ = self._filesystem.split_path(self._path)
        condition = {"IfNoneMatch": "*"} if self._new else {}
        given = {"Bucket": bucket, "Key": key, "Body": b"", "Metadata": self._metadata}
        self._filesystem.call_s3("put_object", **given, **condition)

    def is_stored(self) -> bool | None:
        """Return whether the object at the URL is the one of this upload, None if the store does not show it.

        The mark is the proof: it is random, sent with the first request of an upload, and a store gives an object its
        metadata and all its bytes at once, with one PUT as with several parts. Size and ETag are none: another writer can
        have stored the same bytes, and the ETag of an encrypted object, or of one of several parts, is the store's secret.
        """
        if self._published or not self._begun:
            return self._published
        if not self._metadata:
            return None
        try:
            return bool(self._filesystem.metadata(self._path).get(_MARK) == self._metadata[_MARK])
        except FileNotFoundError:
            return False
        except Exception:
            return None

    def discard(self) -> None:
        """Remove the sent bytes. A store that fails now keeps an upload without a name."""
        with suppress(Exception):
            self._file.discard()
        self._file.closed = True

    def remove(self) -> None:
        """Remove the published object. Raises KsegError."""
        with self._errors():
            self._filesystem.rm_file(self._path)


def _protocols(filesystem: Any) -> Sequence[str]:
    names = filesystem.protocol
    return (names,) if isinstance(names, str) else tuple(names)


def _is_precondition(error: Exception) -> bool:
    """Return whether a store has rejected an object because its name exists (HTTP 412, as s3fs reports it)."""
    return isinstance(error, FileExistsError) or "PreconditionFailed" in str(error) or "pre-conditions" in str(error)


def exists(url: str) -> UsageError:
    """Return the error about an object that would have to be replaced."""
    return UsageError(f"{url} exists, and nothing shows who wrote it: give another name, or delete it first")


def check_absent(url: str) -> None:
    """Raise UsageError if there is an object at a URL, or one below it. Raises UnreadableError if the store fails."""
    remote_files.forget(url.rstrip("/").rpartition("/")[0])
    if local_files.exists(url):
        raise exists(url)


@contextmanager
def whole_object(url: str, *, new: bool = False) -> Iterator[Upload]:
    """Yield an object that gets its name if the block succeeds. Raises KsegError."""
    upload = Upload(url, new=new)
    try:
        yield upload
        upload.finish()
        with interrupts.delayed():
            upload.publish()
    except BaseException:
        upload.discard()
        raise


@contextmanager
def staged_result(url: str) -> Iterator[Path]:
    """Yield a local path for a result of several files; after the block all of them are objects at the URL, or none.

    The path has the name that the URL has, in a temporary folder. The files there at the end are stored: a file and those
    next to it, or a folder. Objects that exist are never replaced, with --force, either: an object store keeps no mark
    that kseg has written them. Raises UsageError and KsegError.
    """
    place, _, name = url.rstrip("/").rpartition("/")
    if not name or place.endswith("/"):
        raise UsageError(f"{url}: expected the URL of a folder or a file below a bucket")
    check_absent(url)
    with tempfile.TemporaryDirectory(prefix="kseg-") as folder:
        home = Path(os.path.realpath(folder))
        yield home / name
        files = sorted(path for path in home.rglob("*") if path.is_file())
        _store({path: f"{place}/{path.relative_to(home).as_posix()}" for path in files})


def _store(places: dict[Path, str]) -> None:
    """Upload files to their URLs: all of them, or none."""
    uploads: list[Upload] = []
    try:
        for path, url in places.items():
            check_absent(url)
            uploads.append(Upload(url, new=True))
            with path.open("rb") as file:
                while data := file.read(_BLOCK):
                    uploads[-1].write(data)
            uploads[-1].finish()
        with interrupts.delayed():
            # A log without its indexes is complete, so the logs are last: whoever lists meanwhile finds no partition.
            for upload in sorted(uploads, key=lambda one: is_log(one.url.rpartition("/")[2])):
                upload.publish()
    except BaseException as error:
        left = _undo(uploads)
        if left:
            raise KsegError(f"{error}; {', '.join(left)} could not be removed again: delete it") from error
        raise


def _undo(uploads: Sequence[Upload]) -> list[str]:
    """Remove the stored objects, and return the URLs that could not be removed.

    A store can complete an upload after the client has given up, until the upload is discarded.
    """
    left = []
    for upload in uploads:
        upload.discard()
        try:
            if upload.is_stored():
                upload.remove()
        except (KsegError, UnreadableError):
            left.append(upload.url)
    return left
