"""``kseg convert --spark``: one task per segment, into a staging folder next to DST; partitions are assembled at the end.

If a run is interrupted, the folder ``.DST.spark.tmp`` stays and the next run continues with it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from kseg.commands.convert.convert import EXCUSED, ConvertResult, convert_by
from kseg.commands.convert.parallel import BoundedFindings, Pair
from kseg.commands.convert.plan import ConversionPlan
from kseg.commands.convert.result import Conversion
from kseg.commands.convert.segment import Report, convert_segment
from kseg.findings import do_nothing
from kseg.format.storage.atomic_write import publish, whole_files, writing
from kseg.format.storage.naming import is_log
from kseg.format.storage.process_pool import Pool
from kseg.format.storage.source import find_segments, is_folder
from kseg.format.writer.targets import index_paths
from kseg.spark.jobs import manifest

if TYPE_CHECKING:
    from concurrent.futures import Future


def convert_through(pool: Pool, source: str, target: str, plan: ConversionPlan, report: Report) -> ConvertResult:
    """Convert like ``convert.convert``, in a pool; partitions appear once all segments are done."""
    staging = _Staging(pool, source, Path(os.path.abspath(target)), plan, report)
    try:
        result = convert_by(staging.add_result, source, target, plan, report)
    except EXCUSED:
        staging.remove()  # a retry would fail in the same way
        raise
    staging.remove()
    return result


class _Staging:
    """The staging folder next to the target, and the submitted conversions of all segments of the source."""

    def __init__(self, pool: Pool, source: str, goal: Path, plan: ConversionPlan, report: Report) -> None:
        self._pool = pool
        self._source = source
        self._folder = goal.with_name(f".{goal.name}.spark.tmp")
        self._plan = plan
        self._report = report
        self._futures: dict[str, Future[manifest.FinishedSegment]] = {}

    def add_result(self, pairs: Sequence[Pair]) -> Iterator[Conversion]:
        """Move converted segments to their targets, which are in a new folder."""
        if not self._futures:
            self._submit(pairs)
        done = [self._futures[source].result() for source, _ in pairs]  # all must succeed before the first is moved
        for (source, target), entry in zip(pairs, done, strict=True):
            manifest.check_same_target(self._folder, entry)
            targets = (target, *index_paths(target))
            with writing(target):
                moves = [(self._folder / name, path) for name, path in zip(entry.outputs, targets, strict=True)]
                publish(moves, replace=False)
            for finding in entry.findings:
                self._report(source, finding)
            conversion = Conversion.of_row(entry.result)
            conversion.target = str(target)
            yield conversion

    def _submit(self, first: Sequence[Pair]) -> None:
        """Submit the conversion of all segments, beginning with ``first``."""
        requested = {**asdict(replace(self._plan, force=False)), "source": os.path.abspath(self._source)}
        if not manifest.begin(self._folder, requested):
            shutil.rmtree(self._folder)
            manifest.begin(self._folder, requested)
        if is_folder(self._source):
            depth = os.path.relpath(first[0][0], self._source).count(os.sep)
            found = [file.path for file in find_segments(self._source)]
            names = {path: os.path.relpath(path, self._source) for path in found if is_log(Path(path).name)}
            names = {path: name for path, name in names.items() if name.count(os.sep) == depth}
        else:
            names = {source: target.name for source, target in first}
        for source, name in names.items():
            self._futures[source] = self._pool.submit(_convert, source, str(self._folder), name, self._plan)

    def remove(self) -> None:
        """Remove the staging folder."""
        with suppress(OSError):
            shutil.rmtree(self._folder)


def _convert(source: str, staging: str, within: str, plan: ConversionPlan) -> manifest.FinishedSegment:
    """Convert one segment into the staging folder, unless a previous run did. Raises as ``convert`` does."""
    folder = Path(staging)
    kept = folder / "entries" / f"{within}.json"
    if (done := manifest.finished_before(kept, source, folder)) is not None:
        return done
    stamp, findings = manifest.stamp_of(source), BoundedFindings()
    target = folder / "segments" / within
    target.parent.mkdir(parents=True, exist_ok=True)
    with whole_files(target, replace=True) as new:
        conversion = convert_segment(source, new / target.name, plan, findings, do_nothing)
    outputs = [str(path.relative_to(folder)) for path in (target, *index_paths(target))]
    return manifest.record_finished(kept, source, stamp, folder, outputs, conversion.as_row(), findings.kept)
