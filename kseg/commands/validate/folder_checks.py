"""Checks across the files of a folder and of a log directory.

The results of a log directory's checkpoints come last, because they list all its partitions.
"""

from __future__ import annotations

import os
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from kseg.commands.validate.metadata_log_checks import check_metadata_log
from kseg.commands.validate.partition_checks import AFTER_THE_END, PartitionChecks
from kseg.commands.validate.partition_side_files import is_being_deleted
from kseg.commands.validate.partition_state import Extent, end_of_lost, with_lost_end
from kseg.errors import KsegError, UnreadableError
from kseg.findings import RULES, Finding, Report, do_nothing, read_error
from kseg.format.checks.compaction_evidence import COMPACTED_TOPICS
from kseg.format.checks.offset_checks import gap_finding
from kseg.format.checks.run_checks import new_collector, policy_for
from kseg.format.log_loader.loaded_files import RefusedError
from kseg.format.log_loader.log_segment import DEFAULT_LIMITS, complete_swaps, delete_unfinished
from kseg.format.log_loader.partition_files import Files
from kseg.format.record.layout import INT64_MAX
from kseg.format.sidefiles.checkpoints import HARMLESS, checkpoint_offsets, walk_offset_checkpoint
from kseg.format.sidefiles.log_end import indexed_end
from kseg.format.sidefiles.registry import belongs_to_partition
from kseg.format.sidefiles.side_file_reading import positioned_entries_of
from kseg.format.storage import local_files
from kseg.format.storage.naming import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_STARTS,
    base_offset_of,
    is_in_use,
    is_snapshot,
    partition_of,
)
from kseg.format.storage.segment_files import SegmentFile, is_unfinished
from kseg.format.storage.source import is_metadata_log, local_size, topic_partition
from kseg.results import FileResult, Settings, Summary
from kseg.text import count_of

# Seconds: renaming a few files takes milliseconds.
_SWAPPING = 0.1
#: The indexes that a segment with batches has, by their suffixes.
_INDEXES = {".index": "an offset index", ".timeindex": "a time index"}


def check_folders(
    files: Sequence[SegmentFile], settings: Settings, results: Iterable[FileResult]
) -> Iterator[FileResult]:
    """Return the results in their order, with the findings of the checks across files added.

    ``results`` are those of ``files``, each segment's indexes after it. A partition folder with side files, but without a
    segment, has its own result: it is unread, because its side files alone don't show whether its log is sound.
    """
    yield from _FolderChecks(files, settings).apply(results)


class _FolderChecks:
    """The checks of all folders, one folder after the other."""

    def __init__(self, files: Sequence[SegmentFile], settings: Settings) -> None:
        self._files = {file.path: file for file in files}
        self._settings = settings
        self._pending_findings: dict[str, list[Finding]] = defaultdict(list)
        # Results of the current folder, from the first segment with missing offsets.
        self._waiting: list[tuple[SegmentFile, FileResult]] = []
        self._began = time.time()
        self._extents: dict[tuple[str, str, int], tuple[Extent, FileResult]] = {}
        self._newest: FileResult | None = None
        self._folder: str | None = None
        self._bases: list[int] = []  # of its segments, in order
        self._checks: PartitionChecks | None = None
        # The checks of the metadata log need all of its files.
        self._is_metadata = False
        # Offsets of partitions by the path of their checkpoint file, read once per log directory.
        self._checkpoints: dict[str, Mapping[tuple[str, int], int]] = {}
        self._unread_checkpoints: set[str] = set()
        # The names of a folder's files without the indexes of its segments, by folder.
        self._listed: dict[str, set[str]] = defaultdict(set)
        # The suffixes of the indexes that a folder's segments have, by folder.
        self._indexes: dict[str, set[str]] = defaultdict(set)
        # The suffixes that were reported as missing from the whole folder, by folder.
        self._reported_missing: dict[str, set[str]] = defaultdict(set)
        self._segments: Counter[str] = Counter()
        for file in files:
            if file.indexes is not None:
                folder, name = os.path.split(file.path)
                self._listed[folder].add(name)
                self._segments[folder] += base_offset_of(name) is not None
                self._indexes[folder].update(os.path.splitext(path)[1] for path in file.indexes)

    def apply(self, results: Iterable[FileResult]) -> Iterator[FileResult]:
        checkpoint_results: list[FileResult] = []
        for result in results:
            folder, name = os.path.split(result.file)
            file = self._files.get(result.file)
            if file is None:  # an index, after its segment
                yield from self._emit(SegmentFile(result.file), result)
                continue
            if file.indexes is None:
                self._check_zeros(file, result, {})
                yield from self._emit(file, result)
                continue
            if name in AFTER_THE_END:
                checkpoint_results.append(result)
                continue
            if folder != self._folder:
                yield from self._flush()
                self._begin_folder(folder)
            if self._checks:
                result = with_lost_end(result, self._bases)
                try:
                    self._check_among_others(file, result, self._checks)
                except UnreadableError as error:  # of this file or of another one of the folder
                    if result.unread is None:
                        self._record_finding(file.path)(read_error(file.path, error))
                    self._checks = None  # they lack something: each other file is still checked by itself
            yield from self._emit(file, replace(result, facts=None))
        yield from self._flush()
        self._begin_folder(None)
        for result in checkpoint_results:
            self._check_checkpoint(result.file)
            yield self._with_findings(self._files[result.file], result)
        # The metadata log says something of folders whose names come before its own.
        for path in list(self._pending_findings):
            yield self._with_findings(self._files[path], FileResult(path, (), Summary()))

    def _check_among_others(self, file: SegmentFile, result: FileResult, checks: PartitionChecks) -> None:
        """Check a file of a partition beside the others. Raises UnreadableError."""
        folder, name = os.path.split(result.file)
        if base_offset_of(name) is None:
            checks.side_files.check(name)
            return
        self._newest = result
        if file.active and not checks.extent:
            self._check_zeros(file, result, self._checkpoint_offsets(folder))
        grown = file.active and self._was_written_since(result)
        zeros, lost = "zero-tail" in result.found, end_of_lost(result)
        checks.add_segment(name, result.facts, grown=grown, zeros=zeros, end_of_lost=lost)
        self._check_indexes(file, result)
        if file.active and self._indexes[folder]:
            checks.side_files.check_missing(name, self._log_start(folder))

    def _check_zeros(self, file: SegmentFile, result: FileResult, known: Mapping[str, int]) -> None:
        """Report a segment of zeros without segments before it, unless its log directory knows that the log is empty.

        A running broker knows it, too: it has just preallocated the segment of a new partition.
        """
        counts = result.summary
        if file.framing or counts.batches or not counts.bytes or result.found != {"zero-tail"}:
            return
        log_dir = os.path.dirname(os.path.dirname(local_files.absolute(result.file)))
        base = base_offset_of(result.file) or 0
        if indexed_end(result.file, base) > base:
            return  # its indexes have entries for these zeros, with findings
        if known.get(HIGH_WATERMARKS, INT64_MAX) > base and not is_in_use(log_dir):
            facts = {"bytes": counts.bytes}
            self._record_finding(result.file)(Finding("zero-segment", 0, counts.bytes, facts=facts))

    def _emit(self, file: SegmentFile, result: FileResult) -> Iterator[FileResult]:
        """Yield the result with its findings, or keep it until the folder's last segment is read."""
        if self._waiting or self._is_metadata or (self._checks and self._checks.missing.has_gaps):
            self._waiting.append((file, result))
        else:
            yield self._with_findings(file, result)

    def _flush(self) -> Iterator[FileResult]:
        """Yield the results that waited for the folder's last segment."""
        lost = self._checks.missing.report() if self._checks else {}
        if self._is_metadata and self._folder is not None and self._settings.deep:
            given = [os.path.basename(file.path) for file, _ in self._waiting]
            log_dirs = dict.fromkeys(os.path.dirname(folder) for folder in self._listed)
            for path, finding in check_metadata_log(self._folder, given, list(log_dirs)):
                if path in self._files:
                    self._record_finding(path)(finding)
        for file, result in self._waiting:
            if self._checks and file.indexes is not None:
                result = self._explain_gaps(file, result, self._checks, lost.get(os.path.basename(file.path), set()))
            yield self._with_findings(file, result)
        self._waiting.clear()
        if self._folder is not None and (count := self._without_segments(self._folder)):
            why = f"{self._folder}: no segment found, but {count_of(count, 'side file')} of a partition"
            # The reports group the results by the folder of each.
            yield FileResult(os.path.join(self._folder, ""), (), Summary(unread=1), why, foreign=True)

    def _without_segments(self, folder: str) -> int:
        """Return the number of a partition's side files in a folder without a segment, otherwise 0."""
        names = self._listed.pop(folder, set())
        if any(map(_has_batches, names)) or is_being_deleted(folder):
            return 0
        try:  # a running broker may just have created the log, or deleted the partition
            if any(map(_has_batches, local_files.names_in(folder))):
                return 0
        except UnreadableError:
            return 0
        return sum(map(belongs_to_partition, names))

    def _explain_gaps(
        self, file: SegmentFile, result: FileResult, checks: PartitionChecks, lost: set[int]
    ) -> FileResult:
        """Return the result with the reason for each gap between batches.

        Gaps that begin at the offsets ``lost`` are left out: another finding reports them.
        """
        name, verdicts_left = os.path.basename(file.path), []
        for verdict in result.verdicts:
            finding = verdict.finding
            if finding.rule == "offset-gap" and finding.position is not None:
                first, last = finding.facts["first"], finding.facts["last"]
                if first in lost:
                    continue
                why = checks.missing.why(first, last, name)
                verdict = replace(verdict, finding=gap_finding(finding.rule, finding.position, first, last, why))
            verdicts_left.append(verdict)
        severity = policy_for(file, self._settings).severity(RULES["offset-gap"])
        result.summary.retract("offset-gap", severity, min(len(lost), result.summary.rules["offset-gap"]))
        left = sum(verdict.rule.name == "offset-gap" for verdict in verdicts_left)
        unlisted = {
            name: others
            for name, others in result.unlisted.items()
            if name != "offset-gap" or result.summary.rules[name] > left
        }
        return replace(result, verdicts=tuple(verdicts_left), unlisted=unlisted)

    def _with_findings(self, file: SegmentFile, result: FileResult) -> FileResult:
        found = self._pending_findings.pop(file.path, None)
        return new_collector(file, self._settings).extended(result, found) if found else result

    def _record_finding(self, path: str) -> Report:
        return lambda finding: self._pending_findings[path].append(finding)

    def _begin_folder(self, folder: str | None) -> None:
        if folder == self._folder:
            return
        if self._checks and self._folder is not None and (extent := self._checks.extent):
            partition = partition_of(os.path.basename(local_files.absolute(self._folder)))
            if partition and partition.state is None:
                log_dir = os.path.dirname(local_files.absolute(self._folder))
                if self._newest:
                    self._extents[log_dir, partition.topic, partition.partition] = extent, self._newest
        self._folder, self._checks, self._newest = folder, None, None
        self._is_metadata = folder is not None and is_metadata_log(folder)
        # Among the files of a folder that the end of an archive cuts, any can be absent: each is checked by itself.
        if folder is not None and not is_unfinished(folder):
            names = self._listed.get(folder, set())
            self._bases = sorted(base for base in map(base_offset_of, names) if base is not None)
            self._checks = PartitionChecks(
                folder,
                names,
                lambda name: self._record_finding(os.path.join(folder, name)),
                self._checkpoint_offsets(folder),
                compacted=self._settings.compacted or topic_partition(folder + "/x")[0] in COMPACTED_TOPICS,
                deep=self._settings.deep,
                began=self._began,
            )
            self._check_swaps(folder)

    def _log_start(self, folder: str) -> int | None:
        """Return a partition's log start offset by the log directory's checkpoint, which lists those that differ from 0.

        None without a checkpoint.
        """
        log_dir = os.path.dirname(local_files.absolute(folder))
        if not local_files.exists(os.path.join(log_dir, LOG_STARTS)):
            return None
        return self._checkpoint_offsets(folder).get(LOG_STARTS, 0)

    def _checkpoint_offsets(self, folder: str) -> dict[str, int]:
        """Return the partition's offsets in the log directory's checkpoints, by checkpoint name."""
        log_dir, name = os.path.split(local_files.absolute(folder))
        partition = partition_of(name)
        offsets_by_name = (
            (name, self._checkpoint(os.path.join(log_dir, name)))
            for name in (CLEANER_OFFSETS, LOG_STARTS, HIGH_WATERMARKS)
        )
        known = {
            name: offsets[partition[:2]] for name, offsets in offsets_by_name if partition and partition[:2] in offsets
        }
        if os.path.join(log_dir, LOG_STARTS) in self._unread_checkpoints:
            known[LOG_STARTS] = INT64_MAX  # any record can be below it
        return known

    def _checkpoint(self, path: str) -> Mapping[tuple[str, int], int]:
        if path not in self._checkpoints:
            self._checkpoints[path] = {}  # an error is reported for the checkpoint itself
            try:
                self._checkpoints[path] = checkpoint_offsets(path)
            except UnreadableError:
                self._unread_checkpoints.add(path)
            except KsegError:
                pass
        return self._checkpoints[path]

    def _check_indexes(self, file: SegmentFile, result: FileResult) -> None:
        """Report the missing indexes of a segment with batches. A .txnindex exists only after an abort."""
        folder, name = os.path.split(file.path)
        if not (result.summary.batches and name.endswith(".log")):
            return  # the indexes of deleted segments have other names
        # Kafka versions that wrote v0 wrote neither timestamps nor time indexes.
        timed = result.facts is None or result.facts.timed
        suffixes = list(_INDEXES)[: 1 + timed]
        index_names = {name.removesuffix(".log") + suffix: suffix for suffix in suffixes}
        present = {os.path.basename(path) for path in file.indexes or ()}
        created = (name for name in index_names if name not in present)  # since the folder was listed
        present |= {name for name in created if local_files.is_file(os.path.join(folder, name))}
        if file.active and base_offset_of(name) and result.summary.batches == 1:
            present.add(name.removesuffix(".log") + ".index")  # created with the second append to a rolled segment
        for index, suffix in index_names.items():
            # A segment with timestamps has at least the last entry. An offset index can have none.
            empty = suffix == ".timeindex" and local_size(os.path.join(folder, index)) == 0
            if suffix in self._indexes[folder] and (empty or index not in present) and local_files.is_file(file.path):
                facts = {"index": index, "what": "empty" if empty else "missing"}
                self._pending_findings[file.path].append(Finding("missing-index", 0, facts=facts))
        self._check_missing_indexes(file.path, folder, suffixes)

    def _check_missing_indexes(self, path: str, folder: str, suffixes: list[str]) -> None:
        """Report once the kinds of indexes that the whole folder lacks."""
        absent = [suffix for suffix in suffixes if suffix not in self._indexes[folder] | self._reported_missing[folder]]
        if absent:
            what = " or ".join(_INDEXES[suffix] for suffix in absent)
            facts = {"segments": self._segments[folder], "what": what}
            self._pending_findings[path].append(Finding("no-indexes", 0, facts=facts))
            self._reported_missing[folder].update(absent)

    def _check_swaps(self, folder: str) -> None:
        """Report the segments that a broker would replace at its start."""
        try:
            if not any(name.endswith(".swap") for name in local_files.names_in(folder)):
                return
            time.sleep(_SWAPPING)  # a running broker has finished the swap by then
            steps: list[tuple[str, str, str]] = []
            files = Files(folder)
            delete_unfinished(files, do_nothing)
            complete_swaps(files, DEFAULT_LIMITS, lambda *step: steps.append(step))
        except (KsegError, RefusedError, OSError):
            return
        for action, name, why in steps:
            if action == "delete-segment":
                self._pending_findings[os.path.join(folder, name)].append(
                    Finding("swap-pending", 0, facts={"why": why})
                )

    def _was_written_since(self, newest: FileResult) -> bool:
        """Return whether a broker has written to a log since its newest segment was read."""
        folder, name = os.path.split(newest.file)
        try:
            status = local_files.status(newest.file)
            # Writes to a preallocated segment don't change its size.
            written = status.st_size != newest.summary.bytes or status.st_mtime > self._began
            names = local_files.names_in(folder)
            return written or any(base_offset_of(other) is not None and other > name for other in names)
        except (OSError, UnreadableError):
            return True

    def _check_checkpoint(self, path: str) -> None:
        folder, name = os.path.split(local_files.absolute(path))
        if is_in_use(folder):
            return  # a broker writes it every few seconds: after a truncation it is out of date until the next write
        rule, what = AFTER_THE_END[name]
        if name == HIGH_WATERMARKS and not local_files.exists(os.path.join(folder, CLEAN_SHUTDOWN)):
            # The checkpoint is written every 5 s: after a truncation it is out of date until then.
            rule = "stale-high-watermark"
        try:
            entries = positioned_entries_of(path, walk_offset_checkpoint, HARMLESS)
        except (KsegError, ValueError):
            return  # reported for the checkpoint itself
        for at, (topic, partition, offset) in entries:
            extent, newest = self._extents.get((folder, topic, partition), (None, None))
            if not (extent and newest) or extent.end is None or offset <= extent.end:
                continue
            if not self._was_written_since(newest):
                facts = {"what": what, "offset": offset, "topic": topic, "partition": partition, "end": extent.end}
                self._pending_findings[path].append(Finding(rule, at, offset=offset, facts=facts))


def _has_batches(name: str) -> bool:
    return base_offset_of(name) is not None or is_snapshot(name)
