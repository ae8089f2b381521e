"""Side files of real brokers."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from kseg.findings import Finding
from kseg.format.sidefiles.registry import recognise
from kseg.format.storage.source import Source
from tests.support.fixtures import FOLDERS

REAL = sorted(path for folder in FOLDERS for path in folder.iterdir() if recognise(str(path)))


#: One of each kind, the smallest with entries: every byte of these is flipped.
SMALL = {
    known.side.kind: path
    for path in sorted(REAL, key=lambda path: -path.stat().st_size)
    if path.stat().st_size > 10 and (known := recognise(str(path)))
}


def walked(path: Path | str, data: bytes) -> tuple[list[tuple[int, Any]], list[Finding]]:
    """Return the entries of a file with that name, and its findings."""
    known = recognise(str(path))
    assert known
    found: list[Finding] = []
    return list(known.side.walk(source_of(data, str(path)), known.base_offset, found.append)), found


def source_of(data: bytes, name: str = "f") -> Source:
    """Return a source of these bytes."""
    return Source(name, io.BytesIO(data), len(data))
