"""The jobs of ``convert --spark`` and ``dump --spark``, and the record of finished segments that continues a run.

``kseg convert --spark``: one task per segment, into a staging folder next to DST; partitions are assembled at the end.

If a run is interrupted, the folder ``.DST.spark.tmp`` stays and the next run continues with it.

``kseg dump --spark``: one output file per segment, written by the task that reads it, in Spark's folder layout.

    DIR/topic=orders/partition=3/00000000000000119872-5f1c09aa.parquet

The part after the dash is a hash of the source path: it distinguishes replicas of a segment.

The record of a run's finished segments is next to its outputs: an interrupted run continues from it.

There is one entry per segment, written by the task after its outputs: the state of the source, the sizes of the outputs,
and the findings. An entry is valid as long as source and outputs are unchanged.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kseg.commands.convert.conversion import EXCUSED, ConvertResult, convert_by
from kseg.commands.convert.conversion_plan import ConversionPlan
from kseg.commands.convert.convert_ranges import Pair
from kseg.commands.convert.converted_segment import Report, convert_segment
from kseg.commands.convert.transcode import Conversion
from kseg.commands.dump.dump_items import BatchItem, Item, RecordsItem
from kseg.commands.dump.dumped_rows import DumpRequest
from kseg.errors import UsageError
from kseg.findings import Finding, do_nothing, fail_on_read_error
from kseg.format.storage.atomic_write import SUFFIX, hidden_prefix, publish, whole_file, whole_files, writing
from kseg.format.storage.naming import is_log, is_url
from kseg.format.storage.process_pool import Pool
from kseg.format.storage.segment_files import SegmentFile, find_segments, is_folder
from kseg.format.storage.source import internal_topic, stamp_of, topic_partition
from kseg.format.writer.output_guards import index_paths
from kseg.report.formats import DUMP, View, destination, write
from kseg.results import BoundedFindings
from kseg.text import to_json

if TYPE_CHECKING:
    from concurrent.futures import Future


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
    text = json.dumps(requested, sort_keys=True, default=repr)  # keys are bytes
    if path.exists():
        return path.read_text(encoding="utf-8") == text
    with writing(folder):
        folder.mkdir(exist_ok=True)
    with whole_file(path) as out:
        out.write(text.encode())
    return True


def stamp_without_inode(source: str) -> list[int | str] | None:
    """Return size and modification time of a source, or size and tag of an object, to detect changes; None if unknown.

    The same file can have another inode on another machine.
    """
    stamp = stamp_of(source)
    return stamp and [stamp[0], stamp[2] if is_url(source) else stamp[1]]


def finished_before(path: Path, source: str, folder: Path) -> FinishedSegment | None:
    """Return the valid entry at ``path`` with outputs in ``folder``, otherwise None."""
    try:
        row = json.loads(path.read_bytes())
        held = all((folder / name).stat().st_size == size for name, size in row["outputs"].items())
    except (OSError, ValueError):
        return None
    if not held or row["stamp"] is None or row["stamp"] != stamp_without_inode(source):
        return None
    return FinishedSegment(source, row["outputs"], row["result"], [Finding(**found) for found in row["findings"]])


def record_finished(
    path: Path, source: str, stamp: list[int | str] | None, folder: Path, outputs: Iterable[str], result: Mapping[str, Any],
    findings: Sequence[Finding],
) -> FinishedSegment:  # fmt: skip
    """Write an entry. ``stamp`` was taken before the source was read."""
    entry = FinishedSegment(source, {name: (folder / name).stat().st_size for name in outputs}, result, findings)
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as out:
        out.write(json.dumps({"stamp": stamp, **as_row(entry)}).encode())
    return entry


def as_row(entry: FinishedSegment) -> dict[str, Any]:
    return {**asdict(entry), "outputs": dict(entry.outputs), "result": dict(entry.result)}


def check_same_target(folder: Path, entry: FinishedSegment) -> None:
    """Raise UsageError if the outputs of a task are not visible on this machine."""
    for name in entry.outputs:
        if not (folder / name).exists():
            raise UsageError(
                f"{folder}: executors wrote {name}, but it is not here: give a folder that all executors share"
            )


def convert_through(pool: Pool, source: str, target: str, plan: ConversionPlan, report: Report) -> ConvertResult:
    """Convert like ``conversion.convert``, in a pool; partitions appear once all segments are done."""
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
        self._folder = goal.with_name(f"{hidden_prefix(goal)}spark{SUFFIX}")
        self._plan = plan
        self._report = report
        self._futures: dict[str, Future[FinishedSegment]] = {}

    def add_result(self, pairs: Sequence[Pair]) -> Iterator[Conversion]:
        """Move the converted segments of a partition to their targets, which are in a new folder."""
        if not self._futures:
            self._submit(pairs)
        done = [self._futures[source].result() for source, _ in pairs]  # all must succeed before the first is moved
        for (source, target), entry in zip(pairs, done, strict=True):
            check_same_target(self._folder, entry)
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
        if not begin(self._folder, requested):
            shutil.rmtree(self._folder)
            begin(self._folder, requested)
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
        with suppress(OSError):
            shutil.rmtree(self._folder)


def _convert(source: str, staging: str, within: str, plan: ConversionPlan) -> FinishedSegment:
    """Convert one segment into the staging folder, unless a previous run did. Raises as ``convert`` does."""
    folder = Path(staging)
    kept = folder / "entries" / f"{within}.json"
    if (done := finished_before(kept, source, folder)) is not None:
        return done
    stamp, findings = stamp_without_inode(source), BoundedFindings()
    target = folder / "segments" / within
    target.parent.mkdir(parents=True, exist_ok=True)
    with whole_files(target, replace=True) as new:
        conversion = convert_segment(source, new / target.name, plan, findings, do_nothing)
    outputs = [str(path.relative_to(folder)) for path in (target, *index_paths(target))]
    return record_finished(kept, source, stamp, folder, outputs, conversion.as_row(), findings.kept)


#: Format -> suffix of the output file.
SUFFIXES = {"jsonl": ".jsonl", "csv": ".csv", "text": ".txt", "hex": ".hex", "parquet": ".parquet"}
#: Columns that are in the folder names; readers add them.
IN_NAMES = ("topic", "partition")

_NOWHERE = "__HIVE_DEFAULT_PARTITION__"
_KEPT = "_kseg"  # Spark and pyarrow skip names that begin with an underscore


@dataclass(frozen=True, slots=True)
class Export:
    """The parameters of an export: a folder, and the request for each segment."""

    folder: str
    format: str
    encoding: str
    request: DumpRequest

    @property
    def requested(self) -> dict[str, Any]:
        """Return the parameters that decide the rows: without the folder and the markers of the logs."""
        given = asdict(self)
        del given["folder"], given["request"]["logs"]
        return given


def begin_export(export: Export) -> None:
    """Prepare the folder. Raises UsageError if it contains anything but a run of the same export."""
    folder = Path(export.folder)
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file: --spark writes a folder")
    if folder.is_dir() and not (folder / _KEPT).is_dir() and any(folder.iterdir()):
        raise UsageError(f"{folder} contains other files: give a new folder")
    with writing(folder):
        folder.mkdir(exist_ok=True)
    if not begin(folder / _KEPT, export.requested):
        raise UsageError(f"{folder} contains an export with other options: give a new folder, or delete it")
    for left in folder.rglob(f".*{SUFFIX}"):
        left.unlink()  # left by a killed task


def export_segment(source: str, export: Export) -> FinishedSegment:
    """Write the rows of one segment, unless a previous run did. Raises KsegError; then no file is written."""
    folder, name = Path(export.folder), output_name(source, SUFFIXES[export.format])
    kept = folder / _KEPT / f"{name}.json"
    if (done := finished_before(kept, source, folder)) is not None:
        return done
    stamp, findings, rows = stamp_without_inode(source), BoundedFindings(), 0

    def counted(items: Iterator[Item]) -> Iterator[Item]:
        nonlocal rows
        for item in items:
            rows += (
                len(item.kept) if isinstance(item, RecordsItem) else isinstance(item, BatchItem) and not item.heading
            )
            yield item

    def report(finding: Finding) -> None:
        fail_on_read_error(source)(finding)  # the file would be finished without its rows
        findings(source, finding)

    decoded = internal_topic(source, export.request.decode_as) is not None
    view = View(export.request.deep, export.encoding, decoded=decoded, without=IN_NAMES)
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    dumped = export.request.items(SegmentFile(source), report)
    with destination(str(folder / name)) as out:
        write(DUMP, export.format, out, counted(dumped), view=view)
    return record_finished(kept, source, stamp, folder, [name], {"rows": rows}, findings.kept)


def output_name(source: str, suffix: str) -> str:
    """Return the path of a segment's output file, relative to the folder."""
    topic, partition = topic_partition(source)
    place = os.path.abspath(source) if os.path.exists(source) else source
    digest = hashlib.sha256(os.fsencode(place)).hexdigest()[:8]
    names = (_NOWHERE if value is None else value for value in (topic, partition))
    folders = (f"{column}={value}" for column, value in zip(IN_NAMES, names, strict=True))
    return "/".join((*folders, f"{Path(source).name.split('.')[0]}-{digest}{suffix}"))


def finish(export: Export, entries: Iterable[FinishedSegment]) -> None:
    """Write the list of outputs in the order of the sources: ``_kseg/manifest.jsonl``."""
    with whole_file(Path(export.folder) / _KEPT / "manifest.jsonl") as out:
        for entry in entries:
            out.write(to_json(as_row(entry)).encode() + b"\n")
