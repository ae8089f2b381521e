"""``kseg pipeline``: options and exit codes. 1: damage was set aside. 2: the work failed. 3: ``fail_if`` is met."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import click

from kseg.cli import common, spark_session
from kseg.cli.messages import FOUND, fail, note
from kseg.cli.typed_command import DetailOptions, SparkOptions, command
from kseg.extras.pipeline import pipeline_preview, pipeline_reports, pipeline_settings, pipeline_verify
from kseg.extras.pipeline.pipeline_run import Pipeline, RunOutcome
from kseg.format.storage.process_pool import Pool, process_pool
from kseg.report.formats import PIPELINE, destination, write
from kseg.spark.jobs import pool as spark_jobs
from kseg.text import count_of


@dataclass(frozen=True, kw_only=True)
class PipelineOptions(SparkOptions, DetailOptions):
    """The command line of ``kseg pipeline``."""

    action: str
    config: str
    output: str | None
    jobs: int


@command(
    PipelineOptions,
    results=PIPELINE,
    arguments=(
        click.Argument(["action"], type=common.Choice(["plan", "run", "status", "verify"])),
        click.Argument(["config"], metavar="FILE", type=common.InputPath()),
    ),
    examples=(
        "kseg pipeline plan night.toml",
        "kseg pipeline run night.toml",
        "kseg pipeline verify night.toml",
    ),
)
def pipeline(asked: PipelineOptions) -> int:
    """Load the new records of topics into tables of Parquet, Iceberg or Delta.

    plan previews a run. run lists the segments, checks those that are not loaded, sets damage aside, loads the
    rest, and writes reports; it continues a run that was ended. status shows the loaded and the missing offsets.
    verify compares the tables with the segments. FILE is a configuration in TOML.

    Exit codes: 0 success, 1 damage was set aside or a table differs, 2 the work could not be done, 3 fail_if is met.
    """
    settings = pipeline_settings.read_settings(asked.config)
    common.check_outputs(*(path for path in settings.paths if not any(one in path for one in "*?[")))
    if asked.action == "run":
        return _run(asked, settings)
    work = Pipeline(settings, note)
    if asked.action == "verify":
        with _workers(asked, settings) as pool:
            found, lines = pipeline_verify.verify(work, pool)
    else:
        found, lines = (pipeline_preview.plan if asked.action == "plan" else pipeline_preview.status)(work)
    with destination(asked.output) as out:
        write(PIPELINE, asked.format, out, found, lines, detail=asked.detail)
    return FOUND if any(one.status == "different" for one in found) else 0


@contextmanager
def _workers(asked: PipelineOptions, settings: pipeline_settings.PipelineSettings) -> Iterator[Pool | None]:
    """Yield what runs the calls that check and load: processes, the executors of Spark, or None for this process."""
    master = asked.spark or settings.spark
    if master:
        with spark_session.spark_session(asked, [*settings.paths, settings.state], master) as spark:
            yield spark_jobs.SparkPool(spark)
    elif asked.jobs == 1:
        yield None
    else:
        with process_pool(asked.jobs) as pool:
            yield pool


def _run(asked: PipelineOptions, settings: pipeline_settings.PipelineSettings) -> int:
    work = Pipeline(settings, note)
    with _workers(asked, settings) as pool:
        outcome = work.run(lambda one: pipeline_reports.write_reports(settings, one), pool)
    with destination(asked.output) as out:
        write(PIPELINE, asked.format, out, outcome.partitions, _lines(outcome), detail=asked.detail)
    for line in outcome.failures:
        fail(line)
    return outcome.code


def _lines(outcome: RunOutcome) -> list[str]:
    rows = ", ".join(f"{count_of(count, 'row')} of {topic}" for topic, count in outcome.rows.items() if count)
    lines = [f"run {outcome.run}: {rows or 'no rows'} loaded in {time.time() - outcome.started:.0f} s"]
    if outcome.damage:
        lines.append(f"{count_of(len(outcome.damage), 'damaged place')} set aside")
    for table, count in outcome.rejected.items():
        lines.append(f"{count_of(count, 'record')} without a typed row: {table}")
    if outcome.fail_if:
        lines.append(f"nothing was loaded: {outcome.fail_if}")
    return lines
