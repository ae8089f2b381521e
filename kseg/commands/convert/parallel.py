"""Convert with several processes: one segment per process, or ranges of whole batches of a large segment.

Ranges are converted and compared in parallel into separate files, which are joined. If the source is damaged, or two ranges
don't fit, the segment is converted again as a whole. Output and findings are the same for any number of processes.
"""

from __future__ import annotations

import io
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from pathlib import Path

from kseg.commands.convert.plan import ConversionPlan
from kseg.commands.convert.result import Conversion
from kseg.commands.convert.segment import Files, ReadBackCheck, Report, check_size, convert_segment, rewrite, transcribe
from kseg.errors import KsegError
from kseg.findings import RULES, Finding, Severity
from kseg.format.checks.check_state import CheckState
from kseg.format.checks.table import join_states
from kseg.format.segment import split_points
from kseg.format.storage.atomic_write import scratch_folder, writing
from kseg.format.storage.file_access import Progress
from kseg.format.storage.naming import base_offset_of
from kseg.format.storage.process_pool import add_progress, map_ordered, process_pool
from kseg.format.storage.source import local_size, open_split
from kseg.results import MAX_PER_RULE

#: The source and the target of a segment.
Pair = tuple[str, Path]


def convert_segments(
    pairs: Sequence[Pair], plan: ConversionPlan, report: Report, progress: Progress, jobs: int
) -> Iterator[Conversion]:
    """Convert segments with at most ``jobs`` processes; results and findings are in the order of the segments."""
    sizes = [local_size(source) or 0 for source, _ in pairs]
    if jobs < 2 or sum(sizes) < 2 * split_points.RANGE_SIZE:
        for source, target in pairs:
            yield convert_segment(source, target, plan, report, progress)
    elif len(pairs) == 1:
        (source, target), ranges = pairs[0], _Ranges(jobs)
        yield convert_segment(source, target, plan, report, progress, ranges.fill)
    else:
        with process_pool(min(jobs, len(pairs)), progress) as pool:
            results = map_ordered(pool, _convert, *zip(*pairs, strict=True), repeat(plan))
            for (source, _), done in zip(pairs, results, strict=True):
                for finding in done.findings:
                    report(source, finding)
                yield done.tally()


class BoundedFindings:
    """Collects the findings of another process, at most MAX_PER_RULE per rule."""

    def __init__(self) -> None:
        self.kept: list[Finding] = []
        self._told: Counter[str] = Counter()

    def __call__(self, path: str, finding: Finding) -> None:
        self._told[finding.rule] += 1
        if self._told[finding.rule] <= MAX_PER_RULE:
            self.kept.append(finding)


@dataclass(slots=True)
class _SegmentResult:
    """The result of a segment in another process."""

    findings: list[Finding]
    conversion: Conversion | None = None
    error: KsegError | None = None

    def tally(self) -> Conversion:
        if self.conversion is None:
            raise self.error or KsegError("no result")
        return self.conversion


def _convert(source: str, target: Path, plan: ConversionPlan) -> _SegmentResult:
    findings = BoundedFindings()
    done = _SegmentResult(findings.kept)
    try:
        done.conversion = convert_segment(source, target, plan, findings, add_progress)
    except KsegError as error:
        done.error = error
    return done


# --- ranges ---


@dataclass(frozen=True, slots=True)
class _Part:
    """A converted range with its first and last offset, None without batches."""

    conversion: Conversion
    findings: list[Finding]
    first_offset: int | None
    last_offset: int
    history: CheckState


@dataclass(frozen=True, slots=True)
class _Ranges:
    """Converts a segment with several processes."""

    jobs: int

    def fill(
        self, source: str, target: Path, files: Files, plan: ConversionPlan, report: Report, progress: Progress
    ) -> Conversion:
        """Convert like ``rewrite``. ``rebatch`` uses one process, because the batches would depend on the ranges."""
        starts = [0] if plan.rebatch else split_points.range_starts(source, local_size(source) or 0, self.jobs)
        if len(starts) > 1:
            done = 0

            def reported(count: int) -> None:
                nonlocal done
                done += count
                progress(count)

            findings: list[Finding] = []
            try:
                bounds = [*starts, local_size(source) or 0]
                tally = self._join(source, bounds, target, files, plan, findings, reported)
            except KsegError:
                progress(-done)
                for new in files:
                    new.restart()
            else:
                for finding in findings:
                    report(source, finding)
                return tally
        return rewrite(source, target, files, plan, report, progress)

    def _join(
        self, source: str, bounds: list[int], target: Path, files: Files, plan: ConversionPlan, findings: list[Finding],
        progress: Progress,
    ) -> Conversion:  # fmt: skip
        log, offsets, times = files
        tally = Conversion(source, str(target))
        proof = ReadBackCheck(log.path, (offsets.file, times.file), tally, plan)
        last_offset = (base_offset_of(source) or 0) - 1
        before: CheckState | None = None
        with scratch_folder(target) as folder, process_pool(self.jobs, progress) as pool:
            paths = [folder / str(start) for start in bounds[:-1]]
            work = partial(_convert_range, source, target, plan)
            for path, part in zip(paths, map_ordered(pool, work, bounds, bounds[1:], paths), strict=True):
                before = _joined(source, before, part.history)
                if part.first_offset is not None:
                    if part.first_offset <= last_offset:
                        raise KsegError(f"{source}: its offsets are not in order")
                    last_offset = part.last_offset
                    tally.last_offset = last_offset
                    if tally.first_offset is None:
                        tally.first_offset = part.first_offset
                if tally.leader_epochs and tally.leader_epochs[-1][0] > 0 and part.conversion.epochless_bytes != 0:
                    raise KsegError(f"{source}: a later range continues with the leader epochs of an earlier one")
                with path.open("rb") as converted:
                    shutil.copyfileobj(converted, log.file, 1 << 20)
                log.file.flush()
                path.unlink()
                tally.merge(part.conversion)
                findings += part.findings
                check_size(tally)
                proof.read_framing()
        proof.finish()
        return tally


def _convert_range(source: str, target: Path, plan: ConversionPlan, start: int, end: int, path: Path) -> _Part:
    """Convert a range into the file at ``path``. Raises KsegError for damage, also if it is skipped, and for disorder."""
    findings = BoundedFindings()

    def sound(path: str, finding: Finding) -> None:
        if RULES[finding.rule].severity >= Severity.ERROR:
            raise KsegError(f"{path}: {finding.rule}")
        findings(path, finding)

    tally = Conversion(source, str(target))
    proof = ReadBackCheck(path, (io.BytesIO(), io.BytesIO()), tally, plan)
    with writing(target), path.open("wb", buffering=1 << 20) as log:
        history = transcribe(open_split(source, start, end), log, proof, tally, plan, sound, add_progress)
    if history is None or tally.bytes_before != end - start:
        raise KsegError(f"{source}: no batch ends at byte {end}")
    return _Part(tally, findings.kept, proof.first_offset, proof.last_offset, history)


def _joined(source: str, before: CheckState | None, after: CheckState) -> CheckState:
    """Join the states of the checks of two ranges. Raises KsegError if the later does not continue the earlier one."""
    if before is not None and not join_states(before, after):
        raise KsegError(f"{source}: a later range does not continue an earlier one")
    return after
