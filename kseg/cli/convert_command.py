"""``kseg convert``: options, summary, exit codes. 1: damage was skipped. 2: a DST was not written."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import click

from kseg.cli import common
from kseg.cli import spark_session as spark_runs
from kseg.cli.messages import FAILED, FOUND, fail, guard_stdout, note
from kseg.cli.outcome import FindingNotes
from kseg.cli.progress import progress_bar
from kseg.commands.convert.conversion import convert as run
from kseg.commands.convert.converted_segment import ConversionPlan
from kseg.commands.convert.transcode import Conversion
from kseg.findings import Policy, Severity
from kseg.format.compress.codecs import CODECS
from kseg.format.record.layout import DEFAULT_MAX_MESSAGE_BYTES
from kseg.format.storage.source import find_segments, total_size
from kseg.report.formats import CONVERSION, destination, write
from kseg.spark.jobs import written_files
from kseg.text import count_of

#: The number of files listed by name that were not copied.
LISTED = 20

_CODEC_NAMES = [codec.name for codec in CODECS.values()]


@click.command()
@click.argument("direction", metavar="A-to-B")
@click.argument("source", metavar="SRC", type=common.InputPath())
@click.argument("target", metavar="DST", type=common.ResultPath())
@click.option("--compression", type=common.Choice(["keep", *_CODEC_NAMES]), default="keep",
              show_default=True, help="Compress all batches with this codec.")  # fmt: skip
@click.option("--rebatch", type=common.WholeNumber(min=1), metavar="BYTES",
              help="Pack records into batches of BYTES, before compression.")  # fmt: skip
@click.option("--lossy", is_flag=True, help="Allow an older version, and list the lost fields.")
@click.option("--skip-damaged", is_flag=True, help="Skip damaged batches. Exit code 1 if there are any.")
@click.option("--force", is_flag=True, help="Replace DST and its indexes.")
@common.jobs
@common.spark
@common.output_format(CONVERSION, "Set the format of the summary.")
@common.details("List every segment in the summary.", "Print only the totals.")
def convert(
    direction: str,
    source: str,
    target: str,
    jobs: int,
    spark: str | None,
    format_name: str,
    verbose: bool,
    quiet: bool,
    **options: Any,
) -> int:
    """Convert a segment, a partition folder or a log directory to another record version.

    A-to-B is any-to-v2, or a pair of v0, v1 and v2, such as v0-to-v2. Batches of version B are copied byte for byte,
    unless --compression names another codec. kseg reads the result back, compares it with SRC, and then writes DST and its
    indexes atomically.
    """
    detail = common.detail_of(verbose, quiet)
    notes, plan = FindingNotes(), ConversionPlan.of(direction, **options)
    # A v0 or v1 message is written without the codec that it claims: nothing is lost.
    notes.policy = Policy({"claimed-codec": Severity.WARNING})
    files = list(find_segments(source))
    with (
        progress_bar(total_size(files)) as progress,
        nullcontext() if spark is None else spark_runs.spark_pool(spark, files, progress) as pool,
    ):
        if pool is None:
            result = run(source, target, plan, notes, progress, jobs)
        else:
            result = written_files.convert_through(pool, source, target, plan, notes)
    with guard_stdout(), destination(None) as out:
        write(CONVERSION, format_name, out, result, detail=detail)
    if result.left_out:
        more = len(result.left_out) - LISTED
        note(f"not copied: {', '.join(result.left_out[:LISTED])}{f' and {more} more' if more > 0 else ''}")
    for conversion in result.segments:
        _note_size(conversion)
    for line in result.failed:
        fail(line)
    return FAILED if result.failed else FOUND if notes.errors else 0


def _note_size(conversion: Conversion) -> None:
    if conversion.largest_after > max(DEFAULT_MAX_MESSAGE_BYTES, conversion.largest_before):
        note(
            f"{conversion.target}: the largest batch now has {count_of(conversion.largest_after, 'byte')}: "
            "check max.message.bytes of the topic"
        )
