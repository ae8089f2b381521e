"""Schemas of a schema registry, over HTTP: Confluent's interface, which Karapace, Redpanda and Apicurio have, too.

Schemas of files: Avro (``.avsc``), Protobuf as text (``.proto``) or compiled, and JSON Schema.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import re
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, TypeVar
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from kseg.engine import optional
from kseg.errors import UnreadableError, UsageError
from kseg.extras.serialization.schema_set import (
    AVRO,
    JSON,
    PROTOBUF,
    Reference,
    RegistryError,
    Schema,
    one_line,
    schema_of,
)
from kseg.text import escape_controls, one_of, os_error_text

#: The environment variable with ``NAME:PASSWORD`` for the registry: a URL is visible in the list of processes.
AUTH_VARIABLE = "KSEG_REGISTRY_AUTH"
#: Seconds for a connection or for a silent one, and for a whole answer.
_TIMEOUT, _MOST_SECONDS = 10, 30
#: The bytes of an answer, and of a schema file.
_MOST_BYTES = 16 << 20
_MOST_ANSWERS = 10_000
#: The failures one after the other after which the registry is not asked again.
_MOST_FAILURES = 3
#: Seconds before a request is repeated that failed for this moment, or for one schema.
_PAUSES = (0.2, 1.0)
_PIECE = 64 * 1024


_Name = TypeVar("_Name", str, int)


def _trusting(ca_file: str | None) -> urllib.request.BaseHandler:
    """Return the handler of HTTPS that trusts the certificates of a file, or those of the system. Raises UsageError."""
    ssl = optional("ssl")  # a Python can be built without it
    if ssl is None:
        raise UsageError("--registry: https needs Python's module ssl, which is missing here")
    try:
        return urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=ca_file))
    except OSError as error:
        raise UsageError(f"--registry-ca {ca_file}: {error.strerror or error}") from None


class _AgainError(Exception):
    """A request that failed for this moment, or for one schema only: it is repeated. ``str(error)`` is the reason."""


class Registry:
    """A registry at a URL, which can have a path such as ``/contexts/.NAME``.

    Each answer is kept, also an error. After a failed connection the registry is not asked again, so that a run does not
    wait for each value; an error of the server can concern one schema only. ``ca_file`` has the certificates to trust
    instead of the system's. Raises UsageError for a wrong URL or file.
    """

    def __init__(self, url: str, ca_file: str | None = None) -> None:
        try:
            parts = urlsplit(url)
            _ = parts.port  # raises ValueError for one that is not a number
        except ValueError as error:
            raise UsageError(f"--registry: {error}") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            shown = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
            raise UsageError(f"--registry: expected http://HOST or https://HOST, got {shown!r}")
        host = parts.netloc.rpartition("@")[2]
        self._url = urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))
        user = f"{unquote(parts.username)}:{unquote(parts.password or '')}" if parts.username else ""
        user = user or os.environ.get(AUTH_VARIABLE, "")
        self._headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        if user:
            self._headers["Authorization"] = f"Basic {base64.b64encode(user.encode()).decode()}"
        trusted = [_trusting(ca_file)] if parts.scheme == "https" or ca_file else []
        self._opener = urllib.request.build_opener(_NoRedirects, *trusted)
        self._answers: dict[str, Any] = {}
        self._failed = ""
        self._failures = 0

    def by_id(self, number: int, subject: str) -> Schema | None:
        return self._schema(f"schemas/ids/{number}", id=number)

    def by_guid(self, guid: str) -> Schema | None:
        return self._schema(f"schemas/guids/{guid}", guid=guid)

    def by_subject(self, subject: str, version: int | None = None) -> Schema | None:
        name = "latest" if version is None else version
        return self._schema(f"subjects/{quote(subject, safe='')}/versions/{name}") if subject else None

    def versions(self, subject: str) -> Iterator[Schema]:
        place = f"subjects/{quote(subject, safe='')}/versions"
        for version in sorted(self._names(f"{place}?deleted=true", int)):
            schema = self._schema(f"{place}/{version}?deleted=true", subject=subject, version=version)
            if schema is not None:
                yield schema

    def all(self) -> Iterable[Schema]:
        return ()

    def registered(self) -> Iterator[Schema]:
        """Yield every version of every subject, also the soft-deleted ones. Raises RegistryError."""
        subjects = "subjects?deleted=true&subjectPrefix=:*:"
        if self._get(subjects) is None:
            raise RegistryError(f"registry {self._url}: HTTP 404 for /subjects: expected the URL of a registry")
        for subject in self._names(subjects, str):
            active = set(self._names(f"subjects/{quote(subject, safe='')}/versions", int))
            for schema in self.versions(subject):
                yield replace(schema, deleted="" if schema.version in active else "soft")

    def _names(self, path: str, kind: type[_Name]) -> list[_Name]:
        answer = self._get(path) or []
        if not isinstance(answer, list) or not all(type(one) is kind for one in answer):
            raise RegistryError(f"{self._url}/{path}: the answer is not a list of {kind.__name__}")
        return answer

    def _schema(self, path: str, **known: Any) -> Schema | None:
        answer = self._get(path)
        if answer is None:
            return None
        try:
            return schema_of({**known, **answer})
        except (ValueError, KeyError, TypeError) as error:
            raise RegistryError(f"{self._url}/{path}: the answer is not a schema: {one_line(error)}") from None

    def _get(self, path: str) -> Any:
        """Return the JSON of an answer, None if the registry does not know the thing. Raises RegistryError."""
        if self._failed:
            raise RegistryError(self._failed)
        if path not in self._answers:
            if len(self._answers) >= _MOST_ANSWERS:
                self._answers.clear()
            self._answers[path] = self._request(path)
        if isinstance(answer := self._answers[path], RegistryError):
            raise answer
        return answer

    def _request(self, path: str) -> Any:
        """Return what ``_answer`` returns, or an error that concerns this path only. Raises RegistryError."""
        reason = ""
        for pause in (0, *_PAUSES):
            time.sleep(pause)
            try:
                found = self._answer(path)
                self._failures = 0
                return found
            except _AgainError as error:
                reason = str(error)
        return self._failure_of_one(reason)

    def _answer(self, path: str) -> Any:
        """Return the JSON of an answer, None for a registry's HTTP 404.

        Raises _AgainError, and RegistryError for a failed connection.
        """
        request = urllib.request.Request(f"{self._url}/{path}", headers=self._headers)
        try:
            with self._opener.open(request, timeout=_TIMEOUT) as answer:
                return json.loads(_bounded(answer))
        except urllib.error.HTTPError as error:
            with error:
                known = error.code == http.client.NOT_FOUND and _is_of_registry(error)
            reason = f"HTTP {error.code} {error.reason}"
            if known:
                return None
            if error.code == http.client.NOT_FOUND:
                raise _AgainError(f"{reason}, which is not the answer of a registry") from None
            if error.code == http.client.TOO_MANY_REQUESTS or error.code >= http.client.INTERNAL_SERVER_ERROR:
                raise _AgainError(reason) from None
            if error.code < http.client.BAD_REQUEST:
                reason += ": redirects are not followed"
            raise self._failure(reason) from None
        except urllib.error.URLError as error:
            raise self._failure(getattr(error.reason, "strerror", None) or str(error.reason)) from None
        except TimeoutError:
            raise self._failure(f"no answer within {_TIMEOUT} s") from None
        except (http.client.IncompleteRead, ConnectionError):
            raise _AgainError("the connection ended before the end of the answer") from None
        except (ValueError, RecursionError):
            raise _AgainError("the answer is not JSON") from None
        except (OSError, http.client.HTTPException) as error:
            raise self._failure(str(error) or type(error).__name__) from None

    def _failure_of_one(self, reason: str) -> RegistryError:
        """Return an error that other schemas may not have, unless several had one before."""
        self._failures += 1
        error = self._failure(reason)
        if self._failures < _MOST_FAILURES:
            self._failed = ""
        return error

    def _failure(self, reason: str) -> RegistryError:
        self._failed = f"registry {self._url}: {escape_controls(reason)[:200]}"
        return RegistryError(self._failed)


def _is_of_registry(error: urllib.error.HTTPError) -> bool:
    """Return whether an error has the JSON of a registry: a proxy whose registry is away can answer HTTP 404, too."""
    try:
        found = json.loads(error.read(_PIECE))
    except (ValueError, RecursionError, OSError, http.client.HTTPException):
        return False
    return isinstance(found, dict) and "error_code" in found


def _bounded(answer: Any) -> bytes:
    """Return the bytes of an answer. Raises OSError for one that is too large or slow, and IncompleteRead if it is cut."""
    deadline = time.monotonic() + _MOST_SECONDS
    data, size = bytearray(), answer.length or 0  # None if only its end shows the size
    while piece := answer.read1(_PIECE):
        data += piece
        if len(data) > _MOST_BYTES:
            raise OSError(f"the answer is larger than {_MOST_BYTES:,} bytes")
        if time.monotonic() > deadline:
            raise OSError(f"the answer takes longer than {_MOST_SECONDS} s")
    if len(data) < size:  # read1 returns nothing at the end of the connection
        raise http.client.IncompleteRead(bytes(data), size - len(data))
    return bytes(data)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: the password would go to another host."""

    def redirect_request(self, *_: Any) -> None:
        return None


#: The types of schemas by the end of the file's name. An empty type is a set of Protobuf descriptors.
_TYPES = {
    ".avsc": AVRO,
    ".avro": AVRO,
    ".proto": PROTOBUF,
    ".json": JSON,
    ".desc": "",
    ".protoset": "",
    ".binpb": "",
    ".pb": "",
}
#: An import of a ``.proto`` file. Protobuf's own files come with protoc.
_IMPORT = re.compile(r'^\s*import\s+(?:public\s+|weak\s+)?"([^"\n]+)"\s*;', re.MULTILINE)
_UUID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_KNOWN_IMPORTS = "google/protobuf/"


def named_file(given: str, home: str = "") -> tuple[str, str]:
    """Return the name and the file of ``[NAME=]FILE``, "" without a name. A relative file is one in the folder ``home``.

    Names and files can have a ``=`` of their own: the name ends at the first one before a file that exists.
    """
    parts = given.split("=")
    splits = [("=".join(parts[:n]), "=".join(parts[n:])) for n in range(len(parts))]
    return next((one for one in splits if os.path.exists(os.path.join(home, one[1]))), splits[-1])


def schemas_of_file(given: str) -> Iterator[Schema]:
    """Yield the schema of ``FILE`` or ``NAME=FILE``, and after it the ``.proto`` files that it imports.

    ``NAME`` is a subject, an id or a UUID.

    Raises UnreadableError and UsageError.
    """
    name, path = named_file(given)
    if path != given and not name:
        raise UsageError(f"--schema-file: expected FILE, SUBJECT=FILE, ID=FILE or UUID=FILE, got {given!r}")
    ending = os.path.splitext(path)[1].lower()
    if ending not in _TYPES:
        raise UsageError(f"--schema-file {path}: expected a name that ends with {one_of(list(_TYPES))}")
    data = _read(path)
    number = int(name) if name.isascii() and name.isdigit() else None
    guid = name.lower() if _UUID.fullmatch(name.lower()) else None
    subject = name if name and number is None and guid is None else None
    kind = _TYPES[ending]
    if not kind:
        yield Schema(PROTOBUF, "", number, guid, subject, version=1, descriptors=data)
        return
    schema = Schema(kind, data.decode("utf-8", "replace"), number, guid, subject, version=1)
    if kind != PROTOBUF:
        yield schema
        return
    imported: dict[str, Schema] = {}
    yield _with_imports(schema, os.path.dirname(path), imported)
    yield from imported.values()


def _with_imports(schema: Schema, folder: str, imported: dict[str, Schema]) -> Schema:
    """Return the schema with references to the files that it imports; add these to ``imported``."""
    references = []
    for name in dict.fromkeys(_IMPORT.findall(schema.text)):
        path = os.path.join(folder, name)
        if name.startswith(_KNOWN_IMPORTS) or os.path.isabs(name) or not os.path.isfile(path):
            continue  # protoc has it, or reports it
        references.append(Reference(name, f"{folder}/{name}", 1))
        if name not in imported:
            other = Schema(PROTOBUF, "", subject=f"{folder}/{name}", version=1)
            imported[name] = other  # before its own imports, which can form a circle
            other = replace(other, text=_read(path).decode("utf-8", "replace"))
            imported[name] = _with_imports(other, folder, imported)
    return replace(schema, references=tuple(references))


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise UnreadableError(os_error_text(error)) from error
    if len(data) > _MOST_BYTES:
        raise UnreadableError(f"{path}: a schema file has at most {_MOST_BYTES:,} bytes")
    return data
