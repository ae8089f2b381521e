"""Iterate over side files, and over requests and responses: files of Kafka that are not log segments."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from kseg.commands.dump import framed
from kseg.errors import UnreadableError, UsageError
from kseg.findings import Report, do_nothing
from kseg.format.sidefiles.registry import recognise
from kseg.format.storage.source import SegmentFile, open_source
from kseg.format.wire.framings import FRAMINGS
from kseg.text import unknown_name


def framed_rows(
    path: str | os.PathLike[str],
    framing: str,
    *,
    requests: str | os.PathLike[str] | None = None,
    report: Report = do_nothing,
    verify_crc: bool = True,
) -> Iterator[dict[str, Any]]:
    """Iterate over the rows of ``kseg dump --as FRAMING --deep``; keys, values and headers are ``bytes``.

    ``requests`` is the file with the requests that the responses in ``path`` answer. Raises UsageError for an unknown
    framing, UnreadableError and NotASegmentError.
    """
    if framing not in FRAMINGS:
        raise UsageError(unknown_name("framing", framing, FRAMINGS))
    requested = None if requests is None else os.fspath(requests)
    file = SegmentFile(os.fspath(path), framing=framing, requests=requested)
    return framed.framed_rows(file, report, deep=True, verify_crc=verify_crc)


def side_entries(path: str | os.PathLike[str], report: Report = do_nothing) -> Iterator[Any]:
    """Iterate over the entries of a side file: ``OffsetEntry``, ``ProducerState``, ``LeaderEpoch``, and others.

    The file's name decides how it is read. Raises UnreadableError if the name is not that of a side file, or if the file
    cannot be read.
    """
    name = os.fspath(path)
    known = recognise(name)
    if known is None:
        raise UnreadableError(f"{name}: the name is not that of an index, snapshot, checkpoint or metadata file")
    with open_source(name) as source:
        for _, entry in known.side.walk(source, known.base_offset, report):
            yield entry
