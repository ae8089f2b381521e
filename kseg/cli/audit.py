"""``kseg audit``: options and exit codes. Exit code 1: the audit found a problem."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kseg.cli import common
from kseg.cli.common import check_output
from kseg.cli.messages import FOUND, note
from kseg.format.storage.source import find_segments
from kseg.lazy import lazy
from kseg.report.formats import AUDIT, destination, write

if TYPE_CHECKING:
    from kseg.cli import spark as spark_runs
    from kseg.spark import audits
    from kseg.spark.jobs import pool
else:
    # These import pyspark, which the checks of ``spark_session`` must precede.
    spark_runs = lazy("kseg.cli.spark")
    audits = lazy("kseg.spark.audits")
    pool = lazy("kseg.spark.jobs.pool")

# Audit -> SQL condition for the rows that are problems. The functions are in ``spark.audits``.
_AUDITS = {
    "replicas": "verdict not in ('identical', 'same', 'consistent')",
    "gaps": "kind = 'overlap'",
    "duplicates": "true",
    "legacy": "false",
    "top-producers": "false",
    "top-keys": "false",
    "retention-pins": "future",
}


@click.command()
@click.argument("name", metavar="NAME", type=common.Choice(list(_AUDITS)))
@common.paths
@click.option("--spark", metavar="MASTER", default="local[*]", show_default=True,
              help="Run on Spark: local[*], spark://… or yarn.")  # fmt: skip
@common.output_format(AUDIT)
@common.output
def audit(name: str, paths: tuple[str, ...], spark: str, format_name: str, output: str | None) -> int:
    """Run an audit over many segments with Spark.

    NAME is replicas (replicas of several brokers that diverge or are stale), gaps (gaps and overlaps between segments),
    duplicates (of offsets and producer sequences), legacy (v0 and v1 batches), top-producers or top-keys (by bytes), or
    retention-pins (batches that delay time retention).

    Exit code 1: replicas diverge or are damaged, segments overlap, offsets or sequences occur twice, or timestamps are in
    the future.
    """
    files = [file.path for path in paths for file in find_segments(path)]
    check_output(output, [*paths, *files])
    with spark_runs.spark_session(spark, paths) as session, pool.one_line_errors():
        table = getattr(audits, name.replace("-", "_"))(session, paths)
        table = table.selectExpr("*", f"({_AUDITS[name]}) as is_problem")
        columns, found = table.columns[:-1], [row.asDict(recursive=True) for row in table.collect()]
    problems = sum(bool(row.pop("is_problem")) for row in found)
    with destination(output) as out:
        write(AUDIT, format_name, out, columns, found)
    if not found:
        note(f"{name}: no rows found")
    return FOUND if problems else 0
