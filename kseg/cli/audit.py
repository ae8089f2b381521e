"""``kseg audit``: options and exit codes. Exit code 1: the audit found a problem."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from kseg.audit_table import AUDITS, Audit, rows_of
from kseg.cli import common
from kseg.cli import spark as spark_runs
from kseg.cli.messages import FAILED, FOUND, fail, note, note_output
from kseg.cli.parallel import parallel_map
from kseg.cli.progress import progress_bar
from kseg.format.storage.source import SegmentFile, find_segments, once_each, total_size
from kseg.lazy import imported
from kseg.report.formats import AUDIT, destination, write
from kseg.schema import Row
from kseg.spark import audits
from kseg.spark.jobs import pool
from kseg.text import count_of


@click.command()
@click.argument("name", metavar="NAME", type=common.Choice(list(AUDITS)))
@common.paths
@common.spark
@common.output_format(AUDIT)
@common.output
@common.jobs
@common.max_rate
def audit(name: str, paths: tuple[str, ...], spark: str | None, format_name: str, output: str | None, jobs: int) -> int:
    """Run an audit over many segments.

    NAME is replicas (replicas of several brokers that diverge or are stale), gaps (gaps and overlaps between segments),
    duplicates (of offsets and producer sequences), legacy (v0 and v1 batches), top-producers or top-keys (by bytes), or
    retention-pins (batches that delay time retention).

    Exit codes: 0 no problem, 1 replicas diverge or are damaged, segments overlap, offsets or sequences occur twice, or
    timestamps are in the future, 2 a file cannot be read.
    """
    common.check_outputs()
    files = once_each(file for path in paths for file in find_segments(path))
    failed = False
    problems = count = 0

    def unread(reason: str) -> None:
        nonlocal failed
        failed = bool(fail(reason))

    def counted(rows: Iterator[Row]) -> Iterator[Row]:
        nonlocal problems, count
        for row in rows:
            problems += AUDITS[name].problem(row)
            count += 1
            yield row

    found = _rows_on_spark(spark, name, paths, unread) if spark else _rows(AUDITS[name], files, jobs, unread)
    with found as rows, destination(output) as out:
        write(AUDIT, format_name, out, list(AUDITS[name].columns), counted(rows))
    note_output(output, count_of(count, "row"))
    if not count:
        note(f"{name}: no rows found")
    if failed:
        return FAILED
    return FOUND if problems else 0


@contextmanager
def _rows(audit: Audit, files: list[SegmentFile], jobs: int, unread: Callable[[str], None]) -> Iterator[Iterator[Row]]:
    parts: list[Any] = imported(audit.parts)(files)
    size = total_size(files)
    jobs = 1 if audit.streams else jobs
    with progress_bar(size) as progress, parallel_map(jobs, len(parts), size or 0, progress) as each:
        yield rows_of(audit, parts, each, unread)


@contextmanager
def _rows_on_spark(
    master: str, name: str, paths: tuple[str, ...], unread: Callable[[str], None]
) -> Iterator[Iterator[Row]]:
    with spark_runs.spark_session(master, paths) as session, pool.one_line_errors():
        table = audits.audit(session, name, paths, unread)
        yield (row.asDict(recursive=True) for row in table.collect())
