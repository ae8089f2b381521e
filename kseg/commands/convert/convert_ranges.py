"""Convert with several processes: one segment per process, or ranges of whole batches of a large segment.

Ranges are converted and compared in parallel into separate files, which are joined. If the source is damaged, or two ranges
don't fit, the segment is converted again as a whole. Output and findings are the same for any number of processes.
"""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from kseg.commands.convert.conversion_plan import ConversionPlan
from kseg.commands.convert.converted_segment import (
    Files,
    ReadBackCheck,
    Report,
    check_size,
    convert_segment,
    rewrite,
    transcribe,
)
from kseg.commands.convert.transcode import Conversion
from kseg.errors import KsegError
from kseg.findings import Finding
from kseg.format.checks.batch_checks import CheckState
from kseg.format.checks.run_checks import join_states
from kseg.format.segment import several_processes
from kseg.format.segment.several_processes import Job, Parts, parts_of_files
from kseg.format.storage.atomic_write import scratch_folder, writing
from kseg.format.storage.file_access import Progress
from kseg.format.storage.naming import base_offset_of
from kseg.format.storage.process_pool import add_progress
from kseg.format.storage.source import check_same, local_size, open_split, stamp_of
from kseg.results import BoundedFindings

#: The source and the target of a segment.
Pair = tuple[str, Path]


def convert_segments(
    pairs: Sequence[Pair], plan: ConversionPlan, report: Report, progress: Progress, jobs: int
) -> Iterator[Conversion]:
    """Convert segments with at most ``jobs`` processes; results and findings are in the order of the segments."""
    sizes = [local_size(source) or 0 for source, _ in pairs]
    if jobs < 2 or sum(sizes) < 2 * several_processes.RANGE_SIZE:
        for source, target in pairs:
            yield convert_segment(source, target, plan, report, progress)
    elif len(pairs) == 1:
        yield convert_segment(*pairs[0], plan, report, progress, partial(_fill, jobs))
    else:
        whole: Job[Pair, tuple[Pair, ConversionPlan], tuple[list[Finding], Conversion | KsegError]]
        whole = Job(lambda pair, *_: [(pair, plan)], _convert)
        with parts_of_files(pairs, sizes, min(jobs, len(pairs)), whole, progress) as by_pair:
            for (source, _), results in by_pair:
                for _, (findings, done) in results:
                    for finding in findings:
                        report(source, finding)
                    if isinstance(done, KsegError):
                        raise done
                    yield done


def _convert(part: tuple[Pair, ConversionPlan]) -> tuple[list[Finding], Conversion | KsegError]:
    findings = BoundedFindings()
    try:
        done: Conversion | KsegError = convert_segment(*part[0], part[1], findings, add_progress)
    except KsegError as error:
        done = error
    return findings.kept, done


# --- ranges ---


class _Range(NamedTuple):
    """Bytes ``start`` to ``end`` of ``source``, which a worker converts into the file at ``path``."""

    source: str
    target: Path
    plan: ConversionPlan
    start: int
    end: int
    path: Path


class _Converted(NamedTuple):
    conversion: Conversion
    findings: list[Finding]
    history: CheckState


def _fill(
    jobs: int, source: str, target: Path, files: Files, plan: ConversionPlan, report: Report, progress: Progress
) -> Conversion:
    """Convert like ``rewrite``. ``rebatch`` uses one process, because the batches would depend on the ranges."""
    stamp, size = stamp_of(source), local_size(source) or 0
    starts = [0] if plan.rebatch else several_processes.range_starts(source, size, jobs)
    if len(starts) > 1:
        done = 0

        def reported(count: int) -> None:
            nonlocal done
            done += count
            progress(count)

        bounds = pairwise([*starts, size])
        try:
            with scratch_folder(target) as folder:
                ranges = [_Range(source, target, plan, start, end, folder / str(start)) for start, end in bounds]
                job: Job[str, _Range, _Converted] = Job(lambda *_: ranges, _convert_range)
                with parts_of_files([source], [size], jobs, job, reported) as by_file:
                    ((tally, findings),) = [_joined(source, target, files, plan, parts) for _, parts in by_file]
            check_same(source, stamp)  # ranges of two files would be mixed
        except KsegError:
            progress(-done)
            for new in files:
                new.restart()
        else:
            for finding in findings:
                report(source, finding)
            return tally
    return rewrite(source, target, files, plan, report, progress)


def _joined(
    source: str, target: Path, files: Files, plan: ConversionPlan, parts: Parts[_Range, _Converted]
) -> tuple[Conversion, list[Finding]]:
    """Append the converted ranges to the log. Raises KsegError if one does not continue the one before it."""
    log, offsets, times = files
    tally, findings = Conversion(source, str(target)), []
    proof = ReadBackCheck(log.path, (offsets.file, times.file), tally, plan)
    lowest = (base_offset_of(source) or 0) - 1
    before: CheckState | None = None
    for part, done in parts:
        if before is not None and not join_states(before, done.history):
            raise KsegError(f"{source}: a later range does not continue an earlier one")
        before = done.history
        first = done.conversion.first_offset
        if first is not None:
            if first <= (lowest if tally.last_offset is None else tally.last_offset):
                raise KsegError(f"{source}: its offsets are not in order")
            tally.first_offset = first if tally.first_offset is None else tally.first_offset
            tally.last_offset = done.conversion.last_offset
        if tally.leader_epochs and tally.leader_epochs[-1][0] > 0 and done.conversion.epochless_bytes != 0:
            raise KsegError(f"{source}: a later range continues with the leader epochs of an earlier one")
        assert part
        with part.path.open("rb") as converted:
            shutil.copyfileobj(converted, log.file, 1 << 20)
        log.file.flush()
        part.path.unlink()
        tally.merge(done.conversion)
        findings += done.findings
        check_size(tally)
        proof.read_framing()
    proof.finish()
    return tally, findings


def _convert_range(part: _Range) -> _Converted:
    """Convert a range. Raises KsegError for damage, also if it is skipped, and for disorder."""
    findings = BoundedFindings()

    def sound(path: str, finding: Finding) -> None:
        if finding.is_error:
            raise KsegError(f"{path}: {finding.rule}")
        findings(path, finding)

    source = part.source
    tally = Conversion(source, str(part.target))
    proof = ReadBackCheck(part.path, (io.BytesIO(), io.BytesIO()), tally, part.plan)
    with writing(part.target), part.path.open("wb", buffering=1 << 20) as log:
        split = open_split(source, part.start, part.end)
        history = transcribe(split, log, proof, tally, part.plan, sound, add_progress)
    if history is None or tally.bytes_before != part.end - part.start:
        raise KsegError(f"{source}: no batch ends at byte {part.end}")
    if proof.first_offset is not None:
        tally.first_offset, tally.last_offset = proof.first_offset, proof.last_offset
    return _Converted(tally, findings.kept, history)
