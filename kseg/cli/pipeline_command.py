"""``kseg pipeline``: options and exit codes. 1: damage was set aside. 2: the work failed. 3: ``fail_if`` is met."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec

import click

from kseg.cli import common, spark_session
from kseg.cli.messages import FOUND, fail, note
from kseg.cli.typed_command import DetailOptions, SparkOptions, command
from kseg.errors import UsageError
from kseg.extras.pipeline import pipeline_preview, pipeline_replay, pipeline_reports, pipeline_settings
from kseg.extras.pipeline.pipeline_run import FAILED, STAGES, Pipeline, RunOutcome, choose_engine
from kseg.extras.pipeline.pipeline_settings import AUTO
from kseg.format.storage.process_pool import Pool, process_pool
from kseg.report.formats import PIPELINE, destination
from kseg.spark.jobs import pool as spark_jobs
from kseg.text import PartitionOffsets, count_of

LAST_STAGE = list(STAGES)[-1]


@dataclass(frozen=True, kw_only=True)
class PipelineOptions(SparkOptions, DetailOptions):
    action: str
    config: str
    jobs: int
    stage: str
    replayed_topic: str | None
    offsets: PartitionOffsets | None
    dry_run: bool


@command(
    PipelineOptions,
    results=PIPELINE,
    arguments=(
        click.Argument(["action"], type=common.Choice(["plan", "run", "status", "verify", "replay"])),
        click.Argument(["config"], metavar="FILE", type=common.InputPath()),
    ),
    examples=(
        "kseg pipeline run night.toml",
        "kseg pipeline verify night.toml",
        "kseg pipeline replay night.toml --topic orders --offsets 0:100:250",
    ),
)
def pipeline(asked: PipelineOptions) -> int:
    """Load the new records of topics into tables of Parquet, Iceberg or Delta.

    plan previews a run. run lists the segments, checks those that are not loaded, sets damage aside, loads the
    rest, and writes reports; it continues a run that was ended. status shows the loaded and the missing offsets.
    verify compares the tables with the segments. replay loads offsets again that a table has, and replaces
    their rows in one commit. FILE is a configuration in TOML.

    Exit codes: 0 success, 1 damage was set aside or a table differs, 2 the work could not be done, 3 fail_if is met.
    """
    settings = pipeline_settings.read_settings(asked.config)
    if asked.stage != LAST_STAGE and asked.action != "run":
        raise UsageError(f"--stage is for run, not for {asked.action}")
    _check_replay(asked)
    sources = (path for path in settings.paths if not any(one in path for one in "*?["))
    common.check_outputs(*sources, written=filter(None, (place for _, place in settings.reports)))
    if asked.action == "run":
        return _run(asked, settings)
    work = _opened(settings)
    code = 0
    if asked.action == "replay":
        assert asked.replayed_topic is not None
        assert asked.offsets is not None
        workers = partial(_workers, asked, settings)
        done = pipeline_replay.replay(work, asked.replayed_topic, asked.offsets, workers, dry_run=asked.dry_run)
        found, lines, code = done.partitions, done.lines, FOUND if done.rejected or done.damaged else 0
    elif asked.action == "verify":
        with _workers(asked, settings, 0) as pool:
            found, lines = pipeline_preview.verify(work, pool)
    elif asked.action == "plan":
        found, lines = pipeline_preview.plan(work, asked.spark)
    else:
        found, lines = pipeline_preview.status(work)
    described = partial(pipeline_reports.run_of, settings, time.time(), asked.action)
    with destination(asked.output) as out:
        asked.write(PIPELINE, out, found, lines, run=described)
    if any(one.status == "failed" for one in found):
        return FAILED
    return FOUND if any(one.status == "different" for one in found) else code


def _check_replay(asked: PipelineOptions) -> None:
    """Raise UsageError unless the options of a replay are there, and only for a replay."""
    options = {"--topic": asked.replayed_topic, "--offsets": asked.offsets, "--dry-run": asked.dry_run or None}
    for name, value in options.items():
        if value is not None and asked.action != "replay":
            hint = ": plan previews a run" if name == "--dry-run" else ""
            raise UsageError(f"{name} is for replay, not for {asked.action}{hint}")
        if value is None and asked.action == "replay" and name != "--dry-run":
            raise UsageError(f"replay needs {name}: give --topic TOPIC and --offsets [P:]A:B")


@contextmanager
def _workers(asked: PipelineOptions, settings: pipeline_settings.PipelineSettings, size: int) -> Iterator[Pool | None]:
    """Yield what runs the calls that read ``size`` bytes: processes, the executors of Spark, or None for this process."""
    engine = choose_engine(settings, size, asked.spark)
    if engine.master and not asked.spark and find_spec("pyspark") is None:
        remedy = f"pip install 'kseg[spark]', or set pipeline.engine to \"{pipeline_settings.PROCESSES}\""
        raise UsageError(f"{settings.path}: {engine}, and pyspark is missing: {remedy}")
    if settings.engine == AUTO:
        note(str(engine))
    if engine.master:
        with spark_session.spark_session(asked, [*settings.paths, settings.state], engine.master) as spark:
            yield spark_jobs.SparkPool(spark)
    elif asked.jobs == 1:
        yield None
    else:
        with process_pool(asked.jobs) as pool:
            yield pool


def _opened(settings: pipeline_settings.PipelineSettings) -> Pipeline:
    """Return the pipeline, which is closed at the end of the command."""
    work = Pipeline(settings, note)
    click.get_current_context().call_on_close(work.close)
    return work


def _run(asked: PipelineOptions, settings: pipeline_settings.PipelineSettings) -> int:
    pipeline_reports.check_libraries(settings)
    work = _opened(settings)
    outcome = work.run(
        lambda one: pipeline_reports.write_reports(settings, one), partial(_workers, asked, settings), asked.stage
    )
    described = partial(pipeline_reports.run_of, settings, outcome.started)
    with destination(asked.output) as out:
        asked.write(PIPELINE, out, outcome.partitions, _lines(outcome), run=described)
    for line in outcome.failures:
        fail(line)
    return outcome.code


def _lines(outcome: RunOutcome) -> list[str]:
    if outcome.state == "LISTED":
        return [f"run {outcome.run}: ended after the state LISTED"]
    rows = ", ".join(f"{count_of(count, 'row')} of {topic}" for topic, count in outcome.rows.items() if count)
    lines = [f"run {outcome.run}: {rows or 'no rows'} loaded in {time.time() - outcome.started:.0f} s"]
    if outcome.state != "DONE":
        lines.append(f"ended after the state {outcome.state}: the next run continues")
    if outcome.damage:
        lines.append(f"{count_of(len(outcome.damage), 'damaged place')} set aside")
    if outcome.unneeded:
        spare = count_of(len(outcome.unneeded), "damaged segment")
        lines.append(f"{spare} not needed, as another replica has the rows, such as {outcome.unneeded[0]}")
    lines += pipeline_reports.timeless_lines(outcome.without_time)
    for table, count in outcome.rejected.items():
        lines.append(f"{count_of(count, 'record')} without a typed row: {table}")
    if outcome.fail_if:
        lines.append(f"nothing was loaded: {outcome.fail_if}")
    return lines
