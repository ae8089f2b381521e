"""The files that belong to a segment, and the check that an output file is not one of them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable

from kseg.errors import UsageError
from kseg.format.sidefiles.registry import segment_suffixes
from kseg.format.storage.naming import is_segment_stem
from kseg.format.storage.source import STDIN, is_url


def files_of_segment(path: str) -> tuple[str, ...]:
    """Return a path and, for a segment, the paths of its log and side files, existing or not."""
    suffixes = (".log", *segment_suffixes())
    stem, suffix = os.path.splitext(path)
    if suffix not in suffixes:
        stem = path if is_segment_stem(path) else ""
    return (path, *(stem + each for each in suffixes)) if stem else (path,)


def check_output(output: str | None, inputs: Iterable[str]) -> None:
    """Raise UsageError if the output is an input, a side file of an input, or in an input folder.

    Symbolic and hard links are resolved.
    """
    if output in (None, STDIN):
        return
    assert output is not None
    target = os.path.realpath(output)
    present = os.stat(output) if os.path.exists(output) else None
    for path in inputs:
        if path == STDIN or is_url(path):
            continue
        own = os.path.realpath(path)
        if target in files_of_segment(own) or (
            present and os.path.exists(path) and os.path.samestat(os.stat(path), present)
        ):
            raise UsageError(f"{output} is an input or a side file of one: inputs are never changed")
        if os.path.commonpath([own, target]) == own and (
            present is None or stat.S_IFMT(present.st_mode) in (stat.S_IFREG, stat.S_IFDIR)
        ):
            raise UsageError(f"{output} is in the input folder {path}: inputs are never changed")
