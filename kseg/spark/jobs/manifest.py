"""The record of a run's finished segments, stored next to its outputs: an interrupted run continues from it.

There is one entry per segment, written by the task after its outputs: the state of the source, the sizes of the outputs,
and the findings. An entry is valid as long as source and outputs are unchanged.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kseg.commands.validate import file_stamps
from kseg.errors import UsageError
from kseg.findings import Finding
from kseg.format.storage.atomic_write import whole_file, writing

_REQUESTED = "asked.json"


@dataclass(frozen=True, slots=True)
class FinishedSegment:
    """The result of one source: ``outputs`` with their sizes in bytes by name, ``result`` as JSON values."""

    source: str
    outputs: Mapping[str, int]
    result: Mapping[str, Any]
    findings: Sequence[Finding]


def begin(folder: Path, requested: Mapping[str, Any]) -> bool:
    """Create the folder for the entries of a run; return False if it has entries of a run with other parameters."""
    path = folder / _REQUESTED
    text = json.dumps(requested, sort_keys=True)
    if path.exists():
        return path.read_text(encoding="utf-8") == text
    with writing(folder):
        folder.mkdir(exist_ok=True)
    with whole_file(path) as out:
        out.write(text.encode())
    return True


def stamp_of(source: str) -> list[int] | None:
    """Return size and modification time of a source, to detect changes; None if it is not a local file.

    The same file can have another inode on another machine.
    """
    stamp = file_stamps.stamp_of(source)
    return None if stamp is None else list(stamp[:2])


def finished_before(path: Path, source: str, folder: Path) -> FinishedSegment | None:
    """Return the valid entry at ``path`` with outputs in ``folder``, otherwise None."""
    try:
        row = json.loads(path.read_bytes())
        held = all((folder / name).stat().st_size == size for name, size in row["outputs"].items())
    except (OSError, ValueError):
        return None
    if not held or row["stamp"] is None or row["stamp"] != stamp_of(source):
        return None
    return FinishedSegment(source, row["outputs"], row["result"], [Finding(**found) for found in row["findings"]])


def record_finished(
    path: Path, source: str, stamp: list[int] | None, folder: Path, outputs: Iterable[str], result: Mapping[str, Any],
    findings: Sequence[Finding],
) -> FinishedSegment:  # fmt: skip
    """Write an entry. ``stamp`` was taken before the source was read."""
    entry = FinishedSegment(source, {name: (folder / name).stat().st_size for name in outputs}, result, findings)
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as out:
        out.write(json.dumps({"stamp": stamp, **as_row(entry)}).encode())
    return entry


def as_row(entry: FinishedSegment) -> dict[str, Any]:
    """Return an entry as JSON values."""
    return {**asdict(entry), "outputs": dict(entry.outputs), "result": dict(entry.result)}


def check_same_target(folder: Path, entry: FinishedSegment) -> None:
    """Raise UsageError if the outputs of a task are not visible on this machine."""
    for name in entry.outputs:
        if not (folder / name).exists():
            raise UsageError(
                f"{folder}: executors wrote {name}, but it is not here: give a folder that all executors share"
            )
