"""``kseg diff``: options and exit codes. 0: same content. 1: different. 2: the comparison failed."""

from __future__ import annotations

from collections import Counter
from typing import Any

import click

from kseg.cli import common
from kseg.cli.common import check_output
from kseg.cli.finding_notes import FindingNotes
from kseg.cli.messages import FOUND
from kseg.cli.progress import progress_bar
from kseg.commands.diff.diff import compare
from kseg.commands.diff.differences import SAME_CONTENT, Difference
from kseg.commands.diff.replica import Replica
from kseg.errors import UsageError
from kseg.format.storage.source import STDIN, local_size
from kseg.report.formats import DIFF, destination, writer

_ALLOWED = ("starts-later", "ends-earlier", "missing")


@click.command()
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@click.option("--deep/--shallow", default=True,
              help="Compare records, or only headers and CRCs. Default: deep.")  # fmt: skip
@common.output_format(DIFF)
@common.output
@click.option("--allow", multiple=True, type=common.Choice(_ALLOWED),
              help="Accept this difference.")  # fmt: skip
@click.option("--limit", type=click.IntRange(min=0), default=16, show_default=True, metavar="N",
              help="List at most N differences of each kind.")  # fmt: skip
def diff(a: str, b: str, deep: bool, format_name: str, output: str | None, limit: int, **options: Any) -> int:
    """Compare two replicas of a partition offline.

    A and B are partition folders or segments. Their records are compared by offset: segments and batches can differ. For
    diverged replicas it prints the first different offset, its leader epochs, the last common offset, and the offset to
    which a follower would truncate.

    Exit codes: 0 same content, 1 different content, 2 the comparison failed.
    """
    if a == b == STDIN:
        raise UsageError("standard input can be only one of the replicas")
    listed: Counter[str] = Counter()

    def write_difference(difference: Difference) -> None:
        listed[difference.kind] += 1
        if listed[difference.kind] <= limit:
            report.write_difference(difference)

    notes = FindingNotes()
    left, right = Replica(a, notes), Replica(b, notes)
    files = [file.path for file in (*left.files, *right.files)]
    check_output(output, [a, b, *files])
    sizes = [local_size(path) for path in files]
    known = None if None in sizes else sum(size or 0 for size in sizes)
    with destination(output) as out, progress_bar(known) as progress:
        report = writer(DIFF, format_name)(out)
        result = compare(left, right, write_difference, shallow=not deep, progress=progress)
        report.finish(result, left, right)
    expected = SAME_CONTENT | set(options["allow"])
    return 0 if set(result.counts) <= expected and not result.damage and result.verdict != "disjoint" else FOUND
