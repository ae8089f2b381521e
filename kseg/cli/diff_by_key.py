"""``kseg diff --by-key``: compares the keys of two backups, partition by partition."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from kseg.cli.common import parallel_map
from kseg.cli.messages import FAILED, FOUND, fail_after, note_after, note_output
from kseg.cli.outcome import FindingNotes
from kseg.cli.progress import progress_bar
from kseg.commands.diff.key_differences import KeyComparison, compare_keys
from kseg.commands.diff.replica import files_of
from kseg.errors import KsegError, UsageError
from kseg.format.storage.replica_folders import partition_replicas
from kseg.format.storage.source import STDIN, is_url, local_size
from kseg.report.diff_keys_report import KeyDiffTotal, summary_line
from kseg.report.formats import KEY_DIFF, destination, write

if TYPE_CHECKING:
    from kseg.cli.diff_command import DiffOptions


def diff_by_key(paths: tuple[str, ...], asked: DiffOptions, *, log_dirs: bool) -> int:
    """Compare two partitions or log directories by key; return the exit code."""
    if len(paths) > 2:
        raise UsageError("--by-key compares two backups")
    for path in paths:
        if path == STDIN or is_url(path):
            raise UsageError(f"{path}: --by-key reads local files only")
    pairs, missing = _pairs(paths) if log_dirs else ([(paths[0], paths[1])], [])
    notes, total = FindingNotes(each=asked.verbose), KeyDiffTotal()
    failed = False

    def noted(found: Iterable[KeyComparison]) -> Iterator[KeyComparison]:
        nonlocal failed
        for one in found:
            for file, finding in one.findings:
                notes(file, finding)
            if one.unread:
                failed = bool(fail_after(one.unread))
            else:
                yield one

    size = sum(map(_size, pairs))
    with (
        destination(asked.output) as out,
        progress_bar(size) as progress,
        parallel_map(asked.jobs, len(pairs), size, progress) as each,
    ):
        found = total.counted(noted(each(partial(compare_keys, limit=asked.limit), pairs)))
        write(KEY_DIFF, asked.format, out, found, total, detail=asked.detail, columns=asked.columns)
    note_output(asked.output, summary_line(total))
    for folder in missing:
        note_after(f"only {folder} exists")
    if failed:
        return FAILED
    return FOUND if total.counts.total() or missing or notes.errors else 0


def _pairs(log_dirs: tuple[str, ...]) -> tuple[list[tuple[str, str]], list[str]]:
    """Return the partitions of both log directories, and the folders that only one has."""
    pairs, missing = [], []
    for one in partition_replicas(log_dirs):
        a, b = one.folders
        if a is not None and b is not None:
            pairs.append((a, b))
        else:
            missing += [folder for folder in one.folders if folder is not None]
    return pairs, missing


def _size(pair: tuple[str, str]) -> int:
    with suppress(KsegError):
        return sum(local_size(file.path) or 0 for path in pair for file in files_of(path))
    return 0
