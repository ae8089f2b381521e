"""``kseg dump --spark``: one output file per segment, written by the task that reads it, in Spark's folder layout.

    DIR/topic=orders/partition=3/00000000000000119872-5f1c09aa.parquet

The part after the dash is a hash of the source path: it distinguishes replicas of a segment.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from kseg.commands.convert.parallel import BoundedFindings
from kseg.commands.dump.row_filter import RowFilter
from kseg.commands.dump.rows import BatchItem, Item, RecordsItem, SegmentItem, dump_segment
from kseg.errors import UsageError
from kseg.format.internal_topics.recognise import internal_topic
from kseg.format.storage.atomic_write import SUFFIX, whole_file, writing
from kseg.format.storage.source import topic_partition
from kseg.report.formats import DUMP, View, destination, write
from kseg.spark.jobs import manifest
from kseg.text import to_json

#: Format -> suffix of the output file.
SUFFIXES = {"jsonl": ".jsonl", "csv": ".csv", "text": ".txt", "hex": ".hex", "parquet": ".parquet"}
#: Columns that are in the folder names; readers add them.
IN_NAMES = ("topic", "partition")

_NOWHERE = "__HIVE_DEFAULT_PARTITION__"
_KEPT = "_kseg"  # Spark and pyarrow skip names that begin with an underscore


@dataclass(frozen=True, slots=True)
class Export:
    """The parameters of an export. ``decode_as`` is the argument of ``internal_topic``."""

    folder: str
    format: str
    deep: bool
    encoding: str
    keep: RowFilter
    verify_crc: bool
    decode_as: str | None

    @property
    def requested(self) -> dict[str, Any]:
        """Return all parameters except the folder."""
        return {name: value for name, value in asdict(self).items() if name != "folder"}


def begin(export: Export) -> None:
    """Prepare the folder. Raises UsageError if it contains anything but a run of the same export."""
    folder = Path(export.folder)
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file: --spark writes a folder")
    if folder.is_dir() and not (folder / _KEPT).is_dir() and any(folder.iterdir()):
        raise UsageError(f"{folder} contains other files: give a new folder")
    with writing(folder):
        folder.mkdir(exist_ok=True)
    if not manifest.begin(folder / _KEPT, export.requested):
        raise UsageError(f"{folder} contains an export with other options: give a new folder, or delete it")
    for left in folder.rglob(f".*{SUFFIX}"):
        left.unlink()  # left by a killed task


def export_segment(source: str, export: Export) -> manifest.FinishedSegment:
    """Write the rows of one segment, unless a previous run did. Raises KsegError; then no file is written."""
    folder, name = Path(export.folder), output_name(source, SUFFIXES[export.format])
    kept = folder / _KEPT / f"{name}.json"
    if (done := manifest.finished_before(kept, source, folder)) is not None:
        return done
    stamp, findings, rows = manifest.stamp_of(source), BoundedFindings(), 0

    def counted(items: Iterator[Item]) -> Iterator[Item]:
        nonlocal rows
        for item in items:
            rows += (
                len(item.kept) if isinstance(item, RecordsItem) else isinstance(item, BatchItem) and not item.heading
            )
            yield item

    topic = internal_topic(source, export.decode_as)
    view = View(export.deep, export.encoding, decoded=topic is not None, without=IN_NAMES)
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    dumped: Iterator[SegmentItem] = dump_segment(
        source,
        deep=export.deep,
        headings=export.format in ("text", "hex"),
        damaged=export.format == "hex",
        keep=export.keep,
        verify_crc=export.verify_crc,
        report=partial(findings, source),
        topic=topic,
        check=True,
    )
    with destination(str(folder / name)) as out:
        write(DUMP, export.format, out, counted(dumped), view=view)
    return manifest.record_finished(kept, source, stamp, folder, [name], {"rows": rows}, findings.kept)


def output_name(source: str, suffix: str) -> str:
    """Return the path of a segment's output file, relative to the folder."""
    topic, partition = topic_partition(source)
    place = os.path.abspath(source) if os.path.exists(source) else source
    digest = hashlib.sha256(os.fsencode(place)).hexdigest()[:8]
    names = (_NOWHERE if value is None else value for value in (topic, partition))
    folders = (f"{column}={value}" for column, value in zip(IN_NAMES, names, strict=True))
    return "/".join((*folders, f"{Path(source).name.split('.')[0]}-{digest}{suffix}"))


def finish(export: Export, entries: Iterable[manifest.FinishedSegment]) -> None:
    """Write the list of outputs in the order of the sources: ``_kseg/manifest.jsonl``."""
    with whole_file(Path(export.folder) / _KEPT / "manifest.jsonl") as out:
        for entry in entries:
            out.write(to_json(manifest.as_row(entry)).encode() + b"\n")
