"""``kseg recovery``: options, exit codes. 1 is that something would be lost, or not be taken by the broker at all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from kseg.cli import common
from kseg.cli.messages import FAILED, FOUND, fail
from kseg.errors import KsegError
from kseg.output.formats import PLAN_FORMATS, destination, writer

if TYPE_CHECKING:
    from kseg.restart.plan import LogDirPlan, PartitionPlan


@click.command()
@common.paths
@click.option(
    "--clean/--unclean", default=None, help="What the last stop counts as, whatever .kafka_cleanshutdown says."
)
@click.option("--index-interval", type=click.IntRange(min=0), default=4096, show_default=True, metavar="BYTES",
              help="The topics' index.interval.bytes.")  # fmt: skip
@common.output_format(PLAN_FORMATS)
@common.output
def recovery(
    paths: tuple[str, ...], clean: bool | None, index_interval: int, format_name: str, output: str | None
) -> int:
    """Tell what a broker (Kafka 4) started now would do to a log dir or a partition folder.

    What it would delete, cut, rename and build anew, going by .kafka_cleanshutdown, the checkpoints, and the files
    as they stand; and the bytes, records and offsets lost by it. Nothing is changed. Exit codes: 0 nothing would be
    lost, 1 something would, or the broker would not start or take the log dir offline, 2 it could not be done.
    """
    from kseg.files.storage import refuse_as_output
    from kseg.output.recovery import Total
    from kseg.restart.dirs import Asked, plan

    refuse_as_output(output, paths)
    total = Total()

    def plans() -> Iterator[LogDirPlan | PartitionPlan]:
        for path in paths:
            try:
                yield from plan(path, Asked(clean, index_interval))
            except KsegError as error:
                fail(str(error))
                total.unread += 1

    with destination(output) as out:
        writer(PLAN_FORMATS, format_name)(total.counted(plans()), total, out)
    if total.unread:
        return FAILED
    return FOUND if total.lost_bytes or total.failing else 0
