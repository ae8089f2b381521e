"""``kseg recovery``: options, exit codes. 1: the broker would lose data or producers, fail, or take a log dir offline."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from kseg.cli import common
from kseg.cli.messages import FAILED, FOUND, fail_after, note_output
from kseg.cli.typed_command import TableOptions, command
from kseg.commands.recovery import plans_of
from kseg.errors import KsegError, UsageError
from kseg.format.log_loader.plan import LogDirPlan, PartitionPlan
from kseg.format.log_loader.recovery_plan import BrokerStart
from kseg.format.storage.naming import is_url
from kseg.format.storage.segment_files import find_segments, size_of
from kseg.format.storage.source import STDIN
from kseg.report.formats import RECOVERY
from kseg.report.recovery_report import Plans, RecoveryTotal, summary_line


@dataclass(frozen=True, kw_only=True)
class RecoveryOptions(TableOptions):
    clean: bool | None
    index_interval: int
    index_bytes: int


@command(
    RecoveryOptions,
    results=RECOVERY,
    examples=(
        "kseg recovery /var/kafka-logs",
        "kseg recovery --unclean --verbose kafka-logs/orders-0",
        "kseg recovery --format html -o start.html kafka-logs",
    ),
)
def recovery(asked: RecoveryOptions) -> int:
    """Predict the start of a broker (Kafka 4) on a log directory or a partition folder.

    Lists the files that the broker would delete, truncate, rename and rebuild, and the bytes, records and offsets that
    would be lost. Changes nothing.

    Exit codes: 0 nothing would be lost, 1 data or the state of producers would be lost or the broker could not use the
    log directory, 2 the prediction failed.
    """
    paths = asked.paths
    for path in filter(is_url, paths):
        raise UsageError(f"{path}: recovery reads local log directories only: give a folder")
    if STDIN in paths:
        raise UsageError("recovery cannot read standard input: give a folder")
    common.check_outputs()
    total = RecoveryTotal()
    request = BrokerStart(asked.clean, index_interval=asked.index_interval, index_bytes=asked.index_bytes)
    sizes = _log_bytes(paths)

    def unread(why: str) -> None:
        fail_after(why)
        total.unread += 1

    def with_progress(plans: Plans) -> Iterator[LogDirPlan | PartitionPlan]:
        for made in plans:
            progress(sizes[os.path.normpath(made.folder)])
            yield made

    with asked.work(len(sizes), sizes.total()) as (out, each, progress):
        asked.write(RECOVERY, out, total.counted(with_progress(plans_of(paths, request, unread, each))), total)
    note_output(asked.output, summary_line(total))
    if total.unread or total.unseen:
        return FAILED
    return FOUND if total.harms else 0


def _log_bytes(paths: Iterable[str]) -> Counter[str]:
    """Return the bytes of segments per folder: the maximum that has to be read."""
    sizes: Counter[str] = Counter()
    for path in paths:
        with suppress(KsegError):
            for file in find_segments(path):
                sizes[os.path.normpath(os.path.dirname(file.path))] += size_of(file) or 0
    return sizes
