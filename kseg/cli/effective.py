"""``kseg dump --effective``: which partitions, and the exit code."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from kseg.cli.messages import note, while_read
from kseg.errors import UsageError
from kseg.files.storage import SegmentFile, topic_partition
from kseg.findings import Report
from kseg.internal.effective import effective
from kseg.log.internal import internal_topic
from kseg.output.effective import Partition
from kseg.output.formats import EFFECTIVE_FORMATS, destination, writer

if TYPE_CHECKING:
    from kseg.cli.spark import Met


def show_effective(
    files: Sequence[SegmentFile], result: tuple[str | None, str], decode_as: str | None, met: Met
) -> int:
    """Write what each partition of an internal topic among the files comes to; returns the exit code.

    ``result`` is a path and a format. Raises UsageError.
    """
    output, name = result
    if name not in EFFECTIVE_FORMATS:
        raise UsageError(f"--effective takes --format {' or '.join(EFFECTIVE_FORMATS)}")
    folders = {
        folder: list(of_folder) for folder, of_folder in groupby(files, key=lambda file: os.path.dirname(file.path))
    }
    topics = {folder: internal_topic(found[0].path, decode_as) for folder, found in folders.items()}
    if not any(topics.values()):
        raise UsageError("--effective is for folders of internal topics; others can be named by --decode TOPIC")
    others = sum(topic is None for topic in topics.values())
    if others:
        note(f"passed over, of no internal topic: {others} folders")

    def partitions() -> Iterator[Partition]:
        for folder, topic in topics.items():
            if topic is not None:
                yield from met.attempt(_partition(folder, topic, folders[folder], met))

    with while_read(), destination(output, to_the_end=False) as out:
        writer(EFFECTIVE_FORMATS, name)(partitions(), out)
    return met.exit_code()


def _partition(folder: str, topic: str, files: Sequence[SegmentFile], met: Met) -> Iterator[Partition]:
    def report_of(path: str) -> Report:
        met.file = path
        return met

    found = effective(topic, [file.path for file in files], report_of)
    met.rows = True
    yield Partition(folder or ".", topic, topic_partition(files[0].path)[1], found)
