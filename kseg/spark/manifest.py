"""What a fleet's run has done so far, kept beside its outputs: a run that was interrupted goes on from there.

An entry a segment, written by the task once the outputs have their names: what the source was, how large the outputs
are, what was found. It holds as long as both are as they were.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kseg.errors import UsageError
from kseg.files.safe_output import whole_file, writing
from kseg.findings import Finding

_ASKED = "asked.json"


@dataclass(frozen=True, slots=True)
class Entry:
    """What became of one source: ``outputs`` by name with their bytes, ``result`` as the work has it, in plain JSON."""

    source: str
    outputs: Mapping[str, int]
    result: Mapping[str, Any]
    findings: Sequence[Finding]


def begin(folder: Path, asked: Mapping[str, Any]) -> bool:
    """Have a folder for the entries of a run; False where it has those of a run that was asked for something else."""
    path = folder / _ASKED
    text = json.dumps(asked, sort_keys=True)
    if path.exists():
        return path.read_text(encoding="utf-8") == text
    with writing(folder):
        folder.mkdir(exist_ok=True)
    with whole_file(path) as out:
        out.write(text.encode())
    return True


def stamp_of(source: str) -> list[int] | None:
    """What tells whether a source is still the same: size and modification time; None of what is no local file."""
    try:
        status = os.stat(source)
    except OSError:
        return None
    return [status.st_size, status.st_mtime_ns]


def recall(path: Path, source: str, folder: Path) -> Entry | None:
    """The entry at ``path``, whose outputs are in ``folder``; None where there is none that holds."""
    try:
        row = json.loads(path.read_bytes())
        held = all((folder / name).stat().st_size == size for name, size in row["outputs"].items())
    except (OSError, ValueError):
        return None
    if not held or row["stamp"] is None or row["stamp"] != stamp_of(source):
        return None
    return Entry(source, row["outputs"], row["result"], [Finding(**found) for found in row["findings"]])


def note(
    path: Path, source: str, stamp: list[int] | None, folder: Path, outputs: Iterable[str], result: Mapping[str, Any],
    findings: Sequence[Finding],
) -> Entry:  # fmt: skip
    """Write an entry; ``stamp`` was taken before the source was read."""
    entry = Entry(source, {name: (folder / name).stat().st_size for name in outputs}, result, findings)
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as out:
        out.write(json.dumps({"stamp": stamp, **as_row(entry)}).encode())
    return entry


def as_row(entry: Entry) -> dict[str, Any]:
    """An entry in plain JSON."""
    return {**asdict(entry), "outputs": dict(entry.outputs), "result": dict(entry.result)}


def refuse_elsewhere(folder: Path, entry: Entry) -> None:
    """Raises UsageError where what a task has written is not to be seen here."""
    for name in entry.outputs:
        if not (folder / name).exists():
            raise UsageError(
                f"{folder}: executors wrote {name}, and it is not here: it must be a folder that all share"
            )
