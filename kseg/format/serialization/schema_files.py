"""Schemas of files: Avro (``.avsc``), Protobuf as text (``.proto``) or compiled, and JSON Schema."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import replace

from kseg.errors import UnreadableError, UsageError
from kseg.format.serialization.schemas import AVRO, JSON, PROTOBUF, Reference, Schema
from kseg.text import one_of, os_error_text

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
_MOST_BYTES = 16 << 20
#: An import of a ``.proto`` file. Protobuf's own files come with protoc.
_IMPORT = re.compile(r'^\s*import\s+(?:public\s+|weak\s+)?"([^"\n]+)"\s*;', re.MULTILINE)
_KNOWN_IMPORTS = "google/protobuf/"


def schemas_of_file(given: str) -> Iterator[Schema]:
    """Yield the schema of ``FILE``, ``SUBJECT=FILE`` or ``ID=FILE``, and after it the ``.proto`` files that it imports.

    Raises UnreadableError and UsageError.
    """
    name, separator, path = given.rpartition("=")
    if os.path.exists(given):
        name, separator, path = "", "", given
    if separator and not name:
        raise UsageError(f"--schema-file: expected FILE, SUBJECT=FILE or ID=FILE, got {given!r}")
    ending = os.path.splitext(path)[1].lower()
    if ending not in _TYPES:
        raise UsageError(f"--schema-file {path}: expected a name that ends with {one_of(list(_TYPES))}")
    data = _read(path)
    number = int(name) if name.isascii() and name.isdigit() else None
    subject = name if name and number is None else None
    kind = _TYPES[ending]
    if not kind:
        yield Schema(PROTOBUF, "", number, subject=subject, version=1, descriptors=data)
        return
    schema = Schema(kind, data.decode("utf-8", "replace"), number, subject=subject, version=1)
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
