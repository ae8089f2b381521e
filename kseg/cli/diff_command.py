"""``kseg diff``: options and exit codes. 0: same content. 1: different. 2: the comparison failed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from pathlib import Path

import click

from kseg.cli import common
from kseg.cli.messages import FAILED, FOUND, fail_after, note, note_after, note_output, progress_bar
from kseg.cli.outcome import FindingNotes
from kseg.cli.typed_command import TableOptions, command
from kseg.commands.diff.comparison import compare
from kseg.commands.diff.differences import SAME_CONTENT, Comparison
from kseg.commands.diff.key_differences import KeyComparison, compare_keys
from kseg.commands.diff.metadata_copies import differences, read_copy
from kseg.commands.diff.replica import Replica, files_of
from kseg.commands.diff.replica_pairs import (
    UNREAD,
    ExportedRecords,
    ExportPlace,
    LackingOffsets,
    PairOutcome,
    compare_replicas,
    export_lacking,
)
from kseg.errors import KsegError, UsageError
from kseg.format.sidefiles.metadata_files import topic_id_of
from kseg.format.storage.local_files import check_no_url_folder
from kseg.format.storage.log_dir_places import (
    PartitionReplicas,
    is_log_dir,
    partition_named,
    partition_replicas,
    replicas_of_one,
)
from kseg.format.storage.naming import is_in_use, is_url
from kseg.format.storage.segment_files import SegmentFile, check_exists
from kseg.format.storage.source import STDIN, is_metadata_log, local_size
from kseg.format.writer.output_guards import folder_of_results
from kseg.report.diff_keys_report import KeyDiffTotal
from kseg.report.diff_keys_report import summary_line as key_summary_line
from kseg.report.diff_log_dirs import LogDirDiffTotal, summary_line
from kseg.report.diff_metadata_report import answer as metadata_answer
from kseg.report.diff_report import answer, outcome_row
from kseg.report.formats import DIFF, KEY_DIFF, LOG_DIR_DIFF, METADATA_DIFF, destination
from kseg.text import count_of


@dataclass(frozen=True, kw_only=True)
class DiffOptions(TableOptions):
    deep: bool
    by_key: bool
    allow: tuple[str, ...]
    export_to: str | None
    limit: int


@command(
    DiffOptions,
    results=DIFF,
    arguments=(click.Argument(["paths"], metavar="A B [C]...", nargs=-1, required=True, type=common.InputPath()),),
    examples=(
        "kseg diff broker1/orders-0 broker2/orders-0",
        "kseg diff --export lost old-leader/orders-0 new-leader/orders-0",
        "kseg diff controller1/__cluster_metadata-0 controller2/__cluster_metadata-0",
    ),
)
def diff(asked: DiffOptions) -> int:
    """Compare two replicas of a partition, or two or more log directories, offline.

    A and B are partition folders or segments. Their records are compared by offset: segments and batches can differ. For
    diverged replicas it prints the first different offset, its leader epochs, the last common offset, and the offset to
    which a follower would truncate.

    For log directories, and for more than two folders of one partition, it compares each partition over all that have it,
    and lists the partitions that only one has.

    --export writes the records of A that B lacks, such as those that an unclean election lost, as segments.

    Folders __cluster_metadata-0 are compared by what they say of topics, brokers and configurations: which copy is newest,
    and which one a controller can load.

    --by-key compares two backups of compacted topics, A the older: keys that changed, appeared or were deleted.

    Exit codes: 0 same content, 1 different content, 2 the comparison failed.
    """
    paths = asked.paths
    if len(paths) < 2:
        raise UsageError(f"expected two replicas or log directories, got one: {paths[0]}")
    if asked.by_key and len(paths) > 2:
        raise UsageError(f"--by-key compares two backups, got {len(paths)}")
    if paths.count(STDIN) > 1:
        raise UsageError("standard input can be only one of the replicas")
    for path in paths:
        check_no_url_folder(path)
        check_exists(path)
    for a, b in dict.fromkeys(combinations(paths, 2)):
        if STDIN not in (a, b) and os.path.realpath(a) == os.path.realpath(b):
            note(f"{a} and {b} are the same files: they are compared with themselves")
    for path in paths:
        folder = os.path.abspath(path if os.path.isdir(path) else os.path.dirname(path))
        if path != STDIN and (is_in_use(folder) or is_in_use(os.path.dirname(folder))):
            note(f"{path}: a broker runs there: what it writes meanwhile can be a difference at the end")
    common.check_outputs()
    metadata = all(os.path.isdir(path) and is_metadata_log(path) for path in paths)
    export = _export(asked, paths, metadata=metadata)
    if metadata:
        if asked.allow or asked.by_key or not asked.deep:
            raise UsageError("metadata logs are compared by what they say, without --allow, --by-key and --shallow")
        return _diff_metadata(paths, asked)
    log_dirs = [path for path in paths if is_log_dir(path)]
    if asked.by_key and len(log_dirs) in (0, len(paths)):
        return diff_by_key(paths, asked, log_dirs=bool(log_dirs))
    if not log_dirs and (len(paths) > 2 or _are_of_two_topics(paths)):
        return _diff_several(
            [os.path.dirname(os.path.abspath(path)) for path in paths], [replicas_of_one(paths)], asked, export
        )
    if not log_dirs:
        return _diff_replicas(paths[0], paths[1], asked, export)
    if len(log_dirs) < len(paths):
        raise UsageError(f"{log_dirs[0]} is a log directory or has no segments: give two partitions or log directories")
    return _diff_several(log_dirs, partition_replicas(log_dirs), asked, export)


def _are_of_two_topics(paths: Sequence[str]) -> bool:
    """Return whether folders of one TOPIC-PARTITION have different topic ids: their contents are then not compared."""
    names = {partition_named(path) for path in paths}
    return names != {None} and len(names) == 1 and len({topic_id_of(path) for path in paths} - {None}) > 1


def _export(asked: DiffOptions, paths: Sequence[str], *, metadata: bool) -> ExportPlace | None:
    """Return where records are exported, if that is asked for. Raises UsageError if it cannot be done."""
    if asked.export_to is None:
        return None
    if metadata or len(paths) > 2 or asked.by_key or not asked.deep or STDIN in paths:
        raise UsageError(
            "--export needs two replicas or log directories, no metadata logs, without --by-key and --shallow"
        )
    if os.path.lexists(asked.export_to):
        raise UsageError(f"{asked.export_to} exists: give a folder that does not")
    return ExportPlace(asked.export_to, asked.allow)


def _note_exported(exported: Sequence[ExportedRecords], folder: str, unread: int = 0) -> None:
    """Say what was exported, in one line for all partitions; ``unread`` partitions could not be compared or written."""
    written = [one for one in exported if one.batches]
    if unread:
        note(f"{folder} is not complete: {count_of(unread, 'partition')} could not be compared or written")
    elif not written:
        note(f"{folder} is not written: B lacks no readable record of A")
    if not written:
        return
    records = count_of(sum(one.records for one in written), "record")
    batches = count_of(sum(one.batches for one in written), "batch")
    files = written[0].file if len(written) == 1 else f"{count_of(len(written), 'partition')} in {folder}"
    note(f"{files}: {records} of A that B lacks, in {batches}")


def _diff_replicas(a: str, b: str, asked: DiffOptions, export: ExportPlace | None) -> int:
    lacking, result = LackingOffsets(asked.allow), Comparison()
    notes = FindingNotes(each=asked.verbose)
    left, right = Replica(a, notes), Replica(b, notes)
    files = [*left.files, *right.files]
    notes.weigh(files)
    sizes = [local_size(file.path) for file in files]
    known = None if None in sizes else sum(size or 0 for size in sizes)
    with destination(asked.output) as out, progress_bar(known) as progress:
        found = compare(left, right, result, shallow=not asked.deep, progress=progress)
        asked.write(DIFF, out, lacking.listed(found, asked.limit), result, left, right)
    note_output(asked.output, answer(outcome_row(result, left.summary(), right.summary()), result))
    if export is not None:
        folder = export.folder_of(*(partition_named(a) or (None, None)))
        with folder_of_results(Path(export.folder), write=True):
            _note_exported([export_lacking(a, lacking, folder)], export.folder)
    return 0 if result.accepted(SAME_CONTENT | set(asked.allow)) else FOUND


def _diff_metadata(paths: Sequence[str], asked: DiffOptions) -> int:
    copies = [read_copy(path) for path in paths]
    found = [one for copy in copies[1:] for one in differences(copies[0], copy)]
    with destination(asked.output) as out:
        asked.write(METADATA_DIFF, out, copies, found)
    note_output(asked.output, metadata_answer(copies, found))
    return FOUND if found or not all(copy.whole for copy in copies) else 0


def _diff_several(
    log_dirs: list[str], partitions: Sequence[PartitionReplicas], asked: DiffOptions, export: ExportPlace | None = None
) -> int:
    files = _files(folder for one in partitions for folder in _compared(one))
    notes, total = FindingNotes(each=asked.verbose), LogDirDiffTotal(log_dirs)
    notes.weigh(files)
    different = False
    exported: list[ExportedRecords] = []

    def noted(outcomes: list[PairOutcome]) -> list[PairOutcome]:
        nonlocal different
        # A folder that is compared twice has its findings twice.
        found = {(file, *finding[:4]): finding for outcome in outcomes for file, finding in outcome.findings}
        for (file, *_), finding in found.items():
            notes(file, finding)
        for reason in dict.fromkeys(outcome.reason for outcome in outcomes if outcome.verdict == UNREAD):
            fail_after(reason)
        exported.extend(outcome.exported for outcome in outcomes if outcome.exported)
        different |= not all(outcome.accepted(asked.allow) for outcome in outcomes)
        return outcomes

    with (
        folder_of_results(Path(export.folder), write=True) if export else nullcontext(),
        asked.work(len(partitions), _size(files)) as (out, each, _),
    ):
        outcomes = each(partial(compare_replicas, limit=asked.limit, shallow=not asked.deep, export=export), partitions)
        asked.write(LOG_DIR_DIFF, out, total.counted(map(noted, outcomes)), total)
    note_output(asked.output, summary_line(total))
    if export is not None:
        _note_exported(exported, export.folder, total.verdicts[UNREAD])
    if total.verdicts[UNREAD]:
        return FAILED
    return FOUND if different else 0


def _compared(replicas: PartitionReplicas) -> list[str]:
    """Return the folders that are read if the replicas are equal: the first one again with each other one."""
    first, *others = [folder for folder in replicas.folders if folder is not None]
    return [folder for other in others for folder in (first, other)]


def _files(paths: Iterable[str]) -> list[SegmentFile]:
    """Return the segments that will be read, without those of folders that cannot be listed."""
    found: list[SegmentFile] = []
    for path in paths:
        with suppress(KsegError):
            found += files_of(path)
    return found


def _size(files: Iterable[SegmentFile]) -> int:
    return sum(local_size(file.path) or 0 for file in files)


def diff_by_key(paths: tuple[str, ...], asked: DiffOptions, *, log_dirs: bool) -> int:
    """Compare two partitions or log directories by key; return the exit code."""
    for path in paths:
        if path == STDIN or is_url(path):
            raise UsageError(f"{path}: --by-key reads local files only")
    pairs, missing = _pairs(paths) if log_dirs else ([(paths[0], paths[1])], [])
    notes, total = FindingNotes(each=asked.verbose), KeyDiffTotal()
    files = _files(path for pair in pairs for path in pair)
    notes.weigh(files)

    def noted(found: Iterable[KeyComparison]) -> Iterator[KeyComparison]:
        for one in found:
            notes.add(one)
            if not one.unread:
                yield one

    with asked.work(len(pairs), _size(files)) as (out, each, _):
        found = total.counted(noted(each(partial(compare_keys, limit=asked.limit), pairs)))
        asked.write(KEY_DIFF, out, found, total)
    note_output(asked.output, key_summary_line(total))
    for folder in missing:
        note_after(f"only {folder} exists")
    return notes.exit_code(total.counts.total() or missing)


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
