"""``kseg transactions``: options, exit codes. 1 is that a transaction hangs, or that damage was met."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from itertools import groupby

import click

from kseg.cli import common
from kseg.cli.messages import FAILED, FOUND, Notes, fail
from kseg.errors import KsegError
from kseg.files.storage import SegmentFile, find_segments, refuse_as_output
from kseg.output.formats import TRANSACTION_FORMATS, destination, writer
from kseg.output.transactions import Total
from kseg.transactions.history import PartitionState, Transaction, transactions_of

_STATES = click.Choice(["hanging", "open", "aborted", "committed"])


@click.command()
@common.paths
@click.option("--state", "states", multiple=True, type=_STATES, default=("hanging", "open", "aborted"), show_default=True,
              help="Transactions that are listed; all are counted.")  # fmt: skip
@click.option("--max-age", type=click.IntRange(min=0), default=900, show_default=True, metavar="SECONDS",
              help="Open for longer is hanging: the cluster's transaction.max.timeout.ms.")  # fmt: skip
@common.output_format(TRANSACTION_FORMATS)
@common.output
def transactions(
    paths: tuple[str, ...], states: tuple[str, ...], max_age: int, format_name: str, output: str | None
) -> int:
    """List transactions by partition: how they ended, which are open or hang, and what holds the last stable offset.

    By the markers in the log and, for what began before its first segment, by the producer snapshot there. A hanging
    one comes with the command that aborts it. Exit codes: 0 none hangs, 1 one does, or damage was met, 2 it could not
    be done.
    """
    failed = False
    notes = Notes()
    total = Total()
    now = time.time_ns() // 1_000_000
    files: list[SegmentFile] = []
    for path in paths:
        try:
            files += find_segments(path)
        except KsegError as error:
            failed = bool(fail(str(error)))
    refuse_as_output(output, [*paths, *(file.path for file in files)])

    def unread(why: str) -> None:
        nonlocal failed
        failed = bool(fail(why))

    def items() -> Iterator[Transaction | PartitionState]:
        for folder, of_partition in groupby(files, key=lambda file: os.path.dirname(file.path)):
            yield from transactions_of(folder or ".", of_partition, now, max_age * 1000, notes, unread)

    with destination(output) as out:
        writer(TRANSACTION_FORMATS, format_name)(total.counted(items()), total, out, states, now)
    if failed:
        return FAILED
    return FOUND if total.states["hanging"] or notes.errors else 0
