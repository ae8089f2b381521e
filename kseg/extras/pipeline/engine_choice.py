"""Choose what runs the calls of a pipeline: processes of this machine, or the executors of Spark."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kseg.extras.pipeline.lake_table import TableState
from kseg.extras.pipeline.offset_plan import needed
from kseg.extras.pipeline.pipeline_settings import AUTO, PipelineSettings
from kseg.extras.pipeline.source_listing import ListedSegment, SourceReplica
from kseg.text import size_text


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """The engine of a run: a ``master`` of Spark, None for processes; and the ``reason`` for people."""

    master: str | None
    reason: str

    def __str__(self) -> str:
        return f"engine: {f'Spark, {self.master}' if self.master else 'processes of this machine'}: {self.reason}"


def choose_engine(settings: PipelineSettings, size: int, asked: str | None = None) -> EngineChoice:
    """Return the engine for a run that reads ``size`` bytes. ``asked`` is the master of the command line."""
    if asked:
        return EngineChoice(asked, "asked for by --spark")
    if settings.engine != AUTO:
        return EngineChoice(settings.spark, f"engine = {settings.engine}")
    limit = f"pipeline.spark_above = {size_text(settings.spark_above)}"
    if size > settings.spark_above:
        return EngineChoice(settings.spark, f"{size_text(size)} to read is more than {limit}")
    return EngineChoice(None, f"{size_text(size)} to read is at most {limit}")


def wanted_segments(
    topic: str, partitions: Iterable[tuple[int, tuple[SourceReplica, ...]]], state: TableState
) -> list[ListedSegment]:
    """Return the segments of a topic that can hold offsets which its table lacks."""
    found: list[ListedSegment] = []
    for partition, replicas in partitions:
        found += needed(replicas, state.offsets.get(f"{topic}-{partition}"))
    return found
