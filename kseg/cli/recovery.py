"""``kseg recovery``: options, exit codes. 1 is that something would be lost, or not be taken by the broker at all."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

import click

from kseg.cli import common
from kseg.cli.messages import FAILED, FOUND, fail
from kseg.cli.progress import shown
from kseg.errors import KsegError, UsageError
from kseg.files.processes import process_pool
from kseg.files.storage import find_segments, is_url, refuse_as_output, size_of
from kseg.output.formats import PLAN_FORMATS, destination, writer
from kseg.output.recovery import Total
from kseg.restart.dirs import Asked, Each, plan
from kseg.restart.plan import LogDirPlan, PartitionPlan
from kseg.validation.parallel import RANGE_SIZE, cores


@click.command()
@common.paths
@click.option(
    "--clean/--unclean", default=None, help="What the last stop counts as, whatever .kafka_cleanshutdown says."
)
@click.option("--index-interval", type=click.IntRange(min=0), default=4096, show_default=True, metavar="BYTES",
              help="The topics' index.interval.bytes.")  # fmt: skip
@common.output_format(PLAN_FORMATS)
@common.output
@common.jobs
@common.max_rate
def recovery(
    paths: tuple[str, ...],
    clean: bool | None,
    index_interval: int,
    format_name: str,
    output: str | None,
    jobs: int | None,
) -> int:
    """Tell what a broker (Kafka 4) started now would do to a log dir or a partition folder.

    What it would delete, cut, rename and build anew, going by .kafka_cleanshutdown, the checkpoints, and the files
    as they stand; and the bytes, records and offsets lost by it. Nothing is changed. Exit codes: 0 nothing would be
    lost, 1 something would, or the broker would not start or take the log dir offline, 2 it could not be done.
    """
    for path in filter(is_url, paths):
        raise UsageError(f"{path}: a broker starts on local disks, and so does recovery: give a folder")
    refuse_as_output(output, paths)
    total = Total()
    sizes = _log_bytes(paths)

    def plans() -> Iterator[LogDirPlan | PartitionPlan]:
        for path in paths:
            try:
                for made in plan(path, Asked(clean, index_interval), each):
                    progress(sizes[os.path.normpath(made.folder)])
                    yield made
            except KsegError as error:
                fail(str(error))
                total.unread += 1

    with (
        destination(output) as out,
        shown(sum(sizes.values())) as progress,
        _partitions_by(jobs or cores(), sizes) as each,
    ):
        writer(PLAN_FORMATS, format_name)(total.counted(plans()), total, out)
    if total.unread:
        return FAILED
    return FOUND if total.lost_bytes or total.failing else 0


def _log_bytes(paths: Iterable[str]) -> Counter[str]:
    """The bytes of segments by their folders: what is to be read at most."""
    sizes: Counter[str] = Counter()
    for path in paths:
        with suppress(KsegError):
            for file in find_segments(path):
                sizes[os.path.normpath(os.path.dirname(file.path))] += size_of(file) or 0
    return sizes


@contextmanager
def _partitions_by(jobs: int, sizes: Counter[str]) -> Iterator[Each]:
    """``map``, or that of a pool where there are partitions enough for processes to save more than they cost."""
    if jobs == 1 or len(sizes) < 2 or sizes.total() < 2 * RANGE_SIZE:
        yield map
        return
    with process_pool(jobs) as executor:
        yield executor.map
