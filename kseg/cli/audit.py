"""``kseg audit``: options and exit codes. 1 is that something is wrong by the audit asked for."""

from __future__ import annotations

import click

from kseg.cli import common
from kseg.cli.messages import FOUND, note
from kseg.files.storage import find_segments, refuse_as_output
from kseg.output.formats import AUDIT_FORMATS, destination, writer

# Functions of ``spark.audits`` by their names here, and which of their rows are findings, in SQL.
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
@click.argument("name", metavar="NAME", type=click.Choice(list(_AUDITS)))
@common.paths
@click.option("--spark", metavar="MASTER", default="local[*]", show_default=True,
              help="local[*], spark://…, yarn. Executors must see the PATHs.")  # fmt: skip
@common.output_format(AUDIT_FORMATS)
@common.output
def audit(name: str, paths: tuple[str, ...], spark: str, format_name: str, output: str | None) -> int:
    """Ask a fleet of segments a question, by Spark.

    NAME is replicas (of a partition, in the PATHs of several brokers: where they diverge, and which is stale), gaps (and
    overlaps between segments), duplicates (of offsets and of producers' sequences), legacy (what is v0 or v1),
    top-producers and top-keys (by bytes), retention-pins (what deletion by time waits for). Exit codes: 1 is replicas
    that diverge or are damaged, overlaps, duplicates, timestamps in the future.
    """
    from kseg.cli.spark import spark_session

    files = [file.path for path in paths for file in find_segments(path)]
    refuse_as_output(output, [*paths, *files])
    with spark_session(spark, paths) as session:
        from kseg.spark import audits
        from kseg.spark.pool import told

        with told():
            table = getattr(audits, name.replace("-", "_"))(session, paths)
            table = table.selectExpr("*", f"({_AUDITS[name]}) as wrong")
            columns, found = table.columns[:-1], [row.asDict(recursive=True) for row in table.collect()]
    wrong = sum(bool(row.pop("wrong")) for row in found)
    with destination(output) as out:
        writer(AUDIT_FORMATS, format_name)(columns, found, out)
    if not found:
        note(f"{name}: nothing found")
    return FOUND if wrong else 0
