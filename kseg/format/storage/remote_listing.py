"""The facts that a store has about its folders and objects: asked once, many folders at a time, kept in little memory.

And what its errors and answers mean, and how often S3 is asked again.
"""

from __future__ import annotations

import errno
import marshal
import os
import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from functools import lru_cache, partial
from glob import has_magic
from typing import Any, NamedTuple

from kseg.format.storage import file_access

#: Requests for listings at a time: a store answers each after 30 to 100 ms, with at most 1,000 objects.
AT_ONCE = 16


#: The attempts of botocore for a request, and how often s3fs begins them again. Its read timeout is 15 seconds, and with
#: the numbers of both libraries, five, an error of a server that never answers takes seven minutes.
S3_ATTEMPTS = 4
S3_ROUNDS = 2


class Stored(NamedTuple):
    """An object as its store lists it: the size in bytes, and a tag that changes with the content. None if unknown."""

    size: int | None
    tag: str | None = None

    @property
    def stamp(self) -> tuple[int, int, str] | None:
        """The stamp of the object (``source.Stamp``), None without a tag."""
        return None if self.size is None or self.tag is None else (self.size, 0, self.tag)


#: The properties of an object that change with its content, by the names of the file systems, the best first.
_TAGS = ("ETag", "generation", "etag", "md5Hash", "mtime", "LastModified", "last_modified", "created")


def stored_of(info: Mapping[str, Any]) -> Stored:
    """Return size and tag of an object from its properties."""
    tag = next((info[name] for name in _TAGS if info.get(name)), None)
    return Stored(info.get("size"), None if tag is None else str(tag))


def is_folder(info: Mapping[str, Any]) -> bool:
    """Return whether properties are those of a folder."""
    return bool(info["type"] == "directory")


#: The objects of a folder by name, in order; None for a folder in it.
Entries = Mapping[str, Stored | None]


class ListedFolders:
    """Folders that were listed completely, by URL. An object takes about 35 bytes: a bucket can have millions.

    ``failed`` has the reason for each folder that could not be listed.
    """

    def __init__(self) -> None:
        self._packed: dict[str, bytes] = {}
        self.failed: dict[str, str] = {}

    def __contains__(self, folder: str) -> bool:
        return folder in self._packed

    def __bool__(self) -> bool:
        return bool(self._packed)

    def __getitem__(self, folder: str) -> Entries:
        return _unpacked(self._packed[folder])

    def __setitem__(self, folder: str, entries: Entries) -> None:
        rows = [(name, stored and tuple(stored)) for name, stored in entries.items()]
        self.failed.pop(folder, None)
        self._packed[folder] = zlib.compress(marshal.dumps(rows), 1)

    def get(self, folder: str) -> Entries | None:
        """Return the entries of a folder, None if it was not listed."""
        return self[folder] if folder in self._packed else None

    def each(self, folders: Sequence[str]) -> Iterator[tuple[str, Entries]]:
        """Return the entries of folders as they are known now, also if they are forgotten meanwhile."""
        packed = [self._packed[folder] for folder in folders]
        return ((folder, _unpacked(entries)) for folder, entries in zip(folders, packed, strict=True))

    def forget(self, below: str) -> None:
        """Forget the folders whose URLs, with a slash, begin with ``below``."""
        for known in (self._packed, self.failed):
            for folder in [folder for folder in known if f"{folder}/".startswith(below)]:
                del known[folder]


@lru_cache(maxsize=16)
def _unpacked(packed: bytes) -> Entries:
    return {name: stored and Stored(*stored) for name, stored in marshal.loads(zlib.decompress(packed))}


def is_object_store(filesystem: Any) -> bool:
    """Return whether a folder is a prefix of names: its listing costs as much as a look-up, which asks twice."""
    return bool(getattr(filesystem, "async_impl", False)) and "http" not in filesystem.protocol


def entries_of(filesystem: Any, path: str) -> Entries:
    """Return the entries of one folder; none if it does not exist. Raises the errors of the file system."""
    try:
        return next(_by_folder(path, _entries(filesystem, path)))[1]
    except FileNotFoundError:
        return {}


def folders_below(filesystem: Any, path: str) -> Iterator[tuple[str, Entries | OSError]]:
    """Yield a folder and all folders below it, each with its entries. Raises the errors of the file system.

    A folder below it has an error instead if the store answers with one: rights can be those of a prefix. A connection that
    fails is an error of all. A folder that was deleted since the folder above was listed has no entries, and is reported as
    a warning.
    The file system keeps no listing. Its own search for all files would return all of them at once, a kilobyte for each.
    """
    waiting = deque([path])
    # Others, such as that of FTP, have one connection.
    threads = AT_ONCE if getattr(filesystem, "async_impl", False) else 1
    with ThreadPoolExecutor(threads) as pool:
        while waiting:
            some = [waiting.popleft() for _ in range(min(threads, len(waiting)))]
            for folder, found in zip(some, pool.map(partial(_listed_or_error, filesystem, path), some), strict=True):
                if isinstance(found, OSError):
                    yield folder, found
                    continue
                if found is None:
                    file_access.current().warn(f"skipped {folder}: it was deleted during the listing")
                    found = []
                waiting += [info["name"] for info in found if is_folder(info)]
                yield from _by_folder(folder, found)
            filesystem.invalidate_cache()


def names_matching(filesystem: Any, pattern: str) -> list[str]:
    """Return the files and folders that a pattern matches. Raises the errors of the file system.

    The file system's own search takes a folder whose listing fails for an empty one. With ``**`` it asks for all objects at
    once, which cannot fail in part.
    """
    if "**" in pattern:
        return list(filesystem.glob(pattern))
    parts = pattern.split("/")
    fixed = next((at for at, part in enumerate(parts) if has_magic(part)), len(parts) - 1)
    root = "/".join(parts[:fixed])
    found = [root]
    for at, part in enumerate(parts[fixed:], fixed + 1):
        entries = [info for folder in found for info in _listed(filesystem, root, folder) or ()]
        found = [
            info["name"].rstrip("/")
            for info in entries
            if (at == len(parts) or is_folder(info)) and fnmatchcase(info["name"].rstrip("/").rpartition("/")[2], part)
        ]
    return found


def _listed_or_error(filesystem: Any, root: str, folder: str) -> list[Any] | OSError | None:
    """Return what ``_listed`` returns, or the error of a folder below the root that is not one of the connection."""
    try:
        return _listed(filesystem, root, folder)
    except OSError as error:
        if folder == root or isinstance(error, (ConnectionError, TimeoutError)):
            raise
        return error


def _listed(filesystem: Any, root: str, folder: str) -> list[Any] | None:
    """Return the properties of the entries of a folder, None if it was deleted since the folder above was listed.

    A folder of an object store has at least one object. If the folder above still has it, or cannot be found either, the
    answer is that of a proxy, or of a store that fails: raises OSError.
    """
    try:
        return _entries(filesystem, folder)
    except FileNotFoundError:
        if folder == root:
            raise
    try:
        return _entries(filesystem, folder) if _is_named(filesystem, folder) else None
    except FileNotFoundError as error:
        raise OSError(f"{folder}: the folder above lists it, but it was not found") from error


def _entries(filesystem: Any, folder: str) -> list[Any]:
    """Return the properties of the entries of a folder. Raises the errors of the file system.

    An object ``a/b/`` is listed as a folder, as consoles of stores make them: one with the folder's own name, or a folder
    with an empty name, as in ``a/b//c``, which only a search finds.
    """
    found = list(filesystem.ls(folder, detail=True))
    if _has_folder(found, folder):
        found = list(filesystem.find(folder, detail=True).values())
    return [info for info in found if is_folder(info) or info["name"].rstrip("/") != folder.rstrip("/")]


def _is_named(filesystem: Any, folder: str) -> bool:
    """Return whether the folder above now has a folder. Raises the errors of the file system."""
    parent = folder.rstrip("/").rpartition("/")[0]
    filesystem.invalidate_cache(parent)
    return _has_folder(filesystem.ls(parent, detail=True), folder)


def _has_folder(found: Iterable[Mapping[str, Any]], folder: str) -> bool:
    return any(is_folder(info) and info["name"].rstrip("/") == folder.rstrip("/") for info in found)


def _by_folder(listed: str, found: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, Entries]]:
    """Yield the entries by folder: the index page of an HTTP server can have links to files further below."""
    folders: dict[str, dict[str, Stored | None]] = {listed.rstrip("/"): {}}
    for info in found:
        folder, _, name = info["name"].rstrip("/").rpartition("/")
        if not is_folder(info):
            folders.setdefault(folder, {})[name] = stored_of(info)
        else:  # also an empty object ``a/b/`` if there is an object ``a/b``
            folders.setdefault(folder, {}).setdefault(name, None)
    for folder, entries in folders.items():
        yield folder, dict(sorted(entries.items()))


#: The errors of a library's own code: their texts, such as the name of a key, are for its authors.
_OF_CODE = (LookupError, TypeError, AttributeError, AssertionError, NameError)


def text_of(error: BaseException) -> str:
    """Return the text of an error, with its class if there is none, or if it is one of a library's own code."""
    name, text = type(error).__name__, str(error)
    return f"{name}: {text}" if text and isinstance(error, _OF_CODE) else text or name


def reason(error: BaseException, url: str) -> str:
    """Return the reason of an error of a remote file system as one line, with class and cause if the text lacks them."""
    text = " ".join((getattr(error, "strerror", None) or str(error)).split())
    cause = error.__cause__ or error.__context__
    if isinstance(error, _OF_CODE):  # the handling of another error has failed, or that of an answer
        library = type(error).__name__ + (f": {text}" if text else "")
        return (
            reason(cause, url)
            if isinstance(cause, Exception)
            else f"the library that asks the store failed ({library})"
        )
    if text and text not in url:
        region = _region(error)
        return f"{text.rstrip('.')} {region}" if region else text
    if any("Timeout" in kind.__name__ for kind in type(error).__mro__):
        return "the server did not answer in time"
    if cause is None and isinstance(error, FileNotFoundError):
        return os.strerror(errno.ENOENT)
    why = [" ".join(str(cause).split()) or type(cause).__name__] if cause else []
    return ": ".join(why if isinstance(error, FileNotFoundError) else [type(error).__name__, *why])


def _region(error: BaseException) -> str:
    """Return the end of a sentence about S3's answer that a bucket is in another region, empty for other errors."""
    answer = getattr(error.__cause__ or error, "response", None)
    facts = answer.get("ResponseMetadata", {}) if isinstance(answer, dict) else {}
    region = facts.get("HTTPHeaders", {}).get("x-amz-bucket-region")
    moved = region and facts.get("HTTPStatusCode") in (301, 307, 400)
    return f"(the bucket is in the region {region}: set AWS_DEFAULT_REGION)" if moved else ""


def is_absence(error: Exception, url: str) -> bool:
    """Return whether a store has answered that a file does not exist.

    fsspec's HTTP file system raises FileNotFoundError for each request that fails, also if no server answers.
    """
    if not isinstance(error, FileNotFoundError) or error.__cause__ is None:
        return isinstance(error, FileNotFoundError)
    of_http = url.rpartition("::")[2].startswith("http")
    return not of_http or getattr(error.__cause__, "status", None) in (404, 410)


def with_attempts(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return botocore's settings with S3_ATTEMPTS, unless the user has set a number of attempts."""
    given: dict[str, Any] = settings.get("config_kwargs", {})
    names = ("AWS_MAX_ATTEMPTS", "AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_CONFIG_FILE")
    if "retries" in given or _sets_attempts(*map(os.environ.get, names)):
        return given
    # A machine without a free moment needs more than the five seconds of s3fs for a connection.
    return {"connect_timeout": 20, **given, "retries": {"total_max_attempts": S3_ATTEMPTS}}


@lru_cache(maxsize=1)
def _sets_attempts(*_: str | None) -> bool:
    """Return whether the environment or the profile of AWS sets a number of attempts. This reads configuration files."""
    from botocore.session import get_session  # a dependency of s3fs

    return get_session().get_config_variable("max_attempts") is not None


def check_listing(response_dict: Mapping[str, Any], **_: Any) -> None:
    """Raise an error, after which s3fs asks again, for an answer that is no listing: botocore reads it as an empty one."""
    if response_dict["status_code"] == 200 and b"ListBucketResult" not in response_dict["body"]:
        from botocore.parsers import ResponseParserError  # a dependency of s3fs

        raise ResponseParserError("the answer to a listing is not one of S3: a proxy can have sent it")


def note_listing(params: Mapping[str, Any], context: dict[str, Any], **_: Any) -> None:
    """Keep the token of a request for a part of a listing, for ``check_part``."""
    context["kseg-token"] = params.get("ContinuationToken")


def check_part(http_response: Any, parsed: Mapping[str, Any], context: Mapping[str, Any], **_: Any) -> None:
    """Raise an error for an answer after which s3fs would list without end, or take the listing for one of nothing."""
    from botocore.parsers import ResponseParserError  # a dependency of s3fs

    token = context.get("kseg-token")
    if http_response.status_code == 404 and token:
        raise ResponseParserError("the store did not find a later part of the listing")
    following = parsed.get("NextContinuationToken")
    if parsed.get("IsTruncated") and following in (None, token):
        same = "the same token for the next part again" if following else "no token for the next part"
        raise ResponseParserError(f"the listing is not complete: the store gave {same}")


#: The functions that check the parts of a listing, by the events of botocore.
CHECKS = {"before-parameter-build": note_listing, "before-parse": check_listing, "after-call": check_part}
