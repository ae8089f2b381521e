"""The kinds of files in a folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

from kseg.errors import UnreadableError
from kseg.findings import do_nothing
from kseg.format.record.field_facts import FILES
from kseg.format.sidefiles.registry import recognise
from kseg.format.storage.naming import base_offset_of, is_snapshot
from kseg.format.storage.source import check_complete, walk_folders


class FileKind(NamedTuple):
    """A kind of file: its title, its purpose (empty if it is unknown), the number of ``files``, and the path of the
    first."""

    title: str
    purpose: str
    files: int
    example: str


def kinds_in(path: str) -> Iterator[FileKind]:
    """Yield the kinds of files in a folder and all folders below it, segments first.

    Raises UnreadableError if a folder cannot be listed or without any file.
    """
    found: dict[tuple[str, str], list[str]] = {}
    counts: dict[tuple[str, str], int] = {}
    for folder, names in walk_folders(path, do_nothing):
        for name in names:
            kind = _kind_of(name)
            counts[kind] = counts.get(kind, 0) + 1
            found.setdefault(kind, [os.path.join(folder, name)])
    check_complete(path)
    if not counts:
        raise UnreadableError(f"{path}: the folder has no file")
    for kind in sorted(counts, key=lambda kind: (kind != _SEGMENT, kind == _OTHER, -counts[kind])):
        yield FileKind(*kind, counts[kind], found[kind][0])


_SEGMENT = ("log segment", "the batches of records, in the order of their offsets")
_SNAPSHOT = ("KRaft snapshot", "the state of the cluster's metadata up to an offset (KIP-630)")
_OTHER = ("file of another kind", "")


def _kind_of(name: str) -> tuple[str, str]:
    if base_offset_of(name) is not None:
        return _SEGMENT
    if is_snapshot(name) or name == "bootstrap.checkpoint":
        return _SNAPSHOT
    known = recognise(name)
    return (known.side.title, FILES[known.side.kind].purpose) if known else _OTHER
