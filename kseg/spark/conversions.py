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

from kseg.files.folders import LOG_NAME
from kseg.files.safe_output import refuse_existing, sync_folder
from kseg.files.storage import find_segments, is_folder
from kseg.rewriting.conversion import Conversion
from kseg.rewriting.conversion_plan import Plan
from kseg.rewriting.convert import EXCUSED, Result, convert_by
from kseg.rewriting.rewrite import Report, convert_segment, index_paths
from kseg.rewriting.rewrite_jobs import KeptFindings, Pair
from kseg.spark import manifest
from kseg.validation.parallel import Pool
from kseg.validation.validate import no_progress

if TYPE_CHECKING:
    from concurrent.futures import Future


def convert_through(pool: Pool, source: str, target: str, plan: Plan, report: Report) -> Result:
    """Convert as ``kseg.rewriting.convert.convert`` does, with a pool; partitions appear once all segments are done."""
    staging = _Staging(pool, source, Path(os.path.abspath(target)), plan, report)
    try:
        result = convert_by(staging.take, source, target, plan, report)
    except EXCUSED:
        staging.remove()  # a retry would fail in the same way
        raise
    staging.remove()
    return result


class _Staging:
    """The staging folder next to the target, and the submitted conversions of all segments of the source."""

    def __init__(self, pool: Pool, source: str, goal: Path, plan: Plan, report: Report) -> None:
        self._pool = pool
        self._source = source
        self._folder = goal.with_name(f".{goal.name}.spark.tmp")
        self._plan = plan
        self._report = report
        self._futures: dict[str, Future[manifest.Entry]] = {}

    def take(self, pairs: Sequence[Pair]) -> Iterator[Conversion]:
        """Move converted segments to their targets. Called after the targets were checked."""
        if not self._plan.force:
            refuse_existing(path for _, target in pairs for path in (target, *index_paths(target)))
        if not self._futures:
            self._submit(pairs)
        done = [self._futures[source].result() for source, _ in pairs]  # all must succeed before the first is moved
        for (source, target), entry in zip(pairs, done, strict=True):
            manifest.refuse_elsewhere(self._folder, entry)
            for path in index_paths(target):
                path.unlink(missing_ok=True)  # an index of another log would be used
            for name, path in zip(entry.outputs, (target, *index_paths(target)), strict=True):
                os.replace(self._folder / name, path)
            sync_folder(target.parent)
            for finding in entry.findings:
                self._report(source, finding)
            conversion = Conversion.of_row(entry.result)
            conversion.target = str(target)
            yield conversion

    def _submit(self, first: Sequence[Pair]) -> None:
        """Submit the conversion of all segments, beginning with ``first``."""
        asked = {**asdict(replace(self._plan, force=False)), "source": os.path.abspath(self._source)}
        if not manifest.begin(self._folder, asked):
            shutil.rmtree(self._folder)
            manifest.begin(self._folder, asked)
        if is_folder(self._source):
            depth = os.path.relpath(first[0][0], self._source).count(os.sep)
            found = [file.path for file in find_segments(self._source)]
            names = {path: os.path.relpath(path, self._source) for path in found if LOG_NAME.fullmatch(Path(path).name)}
            names = {path: name for path, name in names.items() if name.count(os.sep) == depth}
        else:
            names = {source: target.name for source, target in first}
        for source, name in names.items():
            self._futures[source] = self._pool.submit(_convert, source, str(self._folder), name, self._plan)

    def remove(self) -> None:
        """Remove the staging folder."""
        with suppress(OSError):
            shutil.rmtree(self._folder)


def _convert(source: str, staging: str, within: str, plan: Plan) -> manifest.Entry:
    """Convert one segment into the staging folder, unless a previous run did. Raises as ``convert`` does."""
    folder = Path(staging)
    kept = folder / "entries" / f"{within}.json"
    if (done := manifest.recall(kept, source, folder)) is not None:
        return done
    stamp, findings = manifest.stamp_of(source), KeptFindings()
    target = folder / "segments" / within
    target.parent.mkdir(parents=True, exist_ok=True)
    conversion = convert_segment(source, target, replace(plan, force=True), findings, no_progress)
    outputs = [str(path.relative_to(folder)) for path in (target, *index_paths(target))]
    return manifest.note(kept, source, stamp, folder, outputs, conversion.as_row(), findings.kept)
