"""``kseg convert``: options, summary, exit codes. 1: damage was skipped. 2: a DST was not written."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import click

from kseg.cli import common
from kseg.cli import spark_session as spark_runs
from kseg.cli.messages import FAILED, FOUND, fail, guard_stdout, note, progress_bar
from kseg.cli.outcome import FindingNotes
from kseg.cli.typed_command import DetailOptions, SparkOptions, command
from kseg.commands.convert import conversion_plan
from kseg.commands.convert.conversion import convert as run
from kseg.commands.convert.conversion_plan import ConversionPlan
from kseg.commands.convert.transcode import LOSSES, Conversion
from kseg.findings import SERVED, Policy, Severity
from kseg.format.record.layout import DEFAULT_MAX_MESSAGE_BYTES
from kseg.format.storage.segment_files import find_segments, total_size
from kseg.report.formats import CONVERSION, destination
from kseg.spark.jobs import written_files
from kseg.text import count_of, shell_command

#: The number of files listed by name that were not copied.
LISTED = 20


@dataclass(frozen=True, kw_only=True)
class ConvertOptions(SparkOptions, DetailOptions):
    direction: str
    source: str
    target: str
    compression: str
    rebatch: int | None
    lossy: bool
    for_another_cluster: bool
    keep_producers: bool
    skip_damaged: bool
    force: bool
    jobs: int

    @property
    def plan(self) -> ConversionPlan:
        return ConversionPlan.of(
            self.direction,
            compression=self.compression,
            rebatch=self.rebatch,
            lossy=self.lossy,
            skip_damaged=self.skip_damaged,
            force=self.force,
            for_another_cluster=self.for_another_cluster,
            keep_producers=self.keep_producers,
        )


@command(
    ConvertOptions,
    results=CONVERSION,
    arguments=(
        click.Argument(["direction"], metavar="A-to-B", type=common.Parsed(str, lambda: conversion_plan.DIRECTIONS)),
        click.Argument(["source"], metavar="SRC", type=common.InputPath()),
        click.Argument(["target"], metavar="DST", type=common.ResultPath()),
    ),
    examples=(
        "kseg convert v0-to-v2 old/orders-0 new/orders-0",
        "kseg convert any-to-v2 --compression zstd kafka-logs converted",
        "kseg convert any-to-v2 --for-another-cluster kafka-logs/orders-0 new/orders-0",
    ),
)
def convert(asked: ConvertOptions) -> int:
    """Convert a segment, a partition folder or a log directory to another record version.

    A-to-B is any-to-v2, or a pair of v0, v1 and v2, such as v0-to-v2. Batches of version B are copied byte for byte,
    unless --compression names another codec. --for-another-cluster removes what brokers of another cluster cannot serve:
    leader epochs, producers, and records that were not committed or were deleted. kseg reads the result back, compares
    it with SRC, and then writes DST and its indexes atomically; of a log directory, one partition after the other.
    """
    notes, plan, source, target = FindingNotes(), asked.plan, asked.source, asked.target
    # These batches are converted: a v0 or v1 message is written without the codec that it claims. Nothing is lost.
    notes.policy = Policy(dict.fromkeys({"claimed-codec", *SERVED}, Severity.WARNING))
    files = list(find_segments(source))
    with (
        progress_bar(total_size(files)) as progress,
        nullcontext() if asked.spark is None else spark_runs.spark_pool(asked, files, progress) as pool,
    ):
        if pool is None:
            result = run(source, target, plan, notes, progress, asked.jobs)
        else:
            result = written_files.convert_through(pool, source, target, plan, notes)
    with guard_stdout(), destination(None) as out:
        asked.write(CONVERSION, out, result)
    if result.left_out:
        more = len(result.left_out) - LISTED
        note(f"not copied: {', '.join(result.left_out[:LISTED])}{f' and {more} more' if more > 0 else ''}")
    for conversion in result.segments:
        _note_size(conversion)
    _note_markers(result.segments, source)
    if plan.target < 2:
        _note_gaps(result.segments, result.ends, target)
        if result.unkept_end:
            _note_end(result.segments[0], *result.unkept_end)
    for line in dict.fromkeys(result.failed):  # partitions of one log directory can have one cause
        fail(line)
    if result.failed:
        fail(f"{count_of(len(result.failed), 'partition')} not written")
    return FAILED if result.failed else FOUND if notes.errors else 0


def _note_markers(segments: Sequence[Conversion], source: str) -> None:
    """Say that skipped batches can have had markers, without which aborted records count as committed."""
    lossy = {os.path.dirname(one.source) for one in segments if one.skipped or one.lost_bytes}
    if any(one.transactional and os.path.dirname(one.source) in lossy for one in segments):
        note(
            "a skipped batch can have had the marker of a transaction: "
            f"`kseg repair {source} NEW` names the transactions whose outcome that changes"
        )


def _note_gaps(segments: Sequence[Conversion], ends: Sequence[str], target: str) -> None:
    """Say that validate reports the offsets of batches without records, which older versions lack."""
    kinds = {kind: LOSSES[kind][0] for kind in ("control-records", "empty-batches")}
    counts = {noun: sum(one.lost[kind].count for one in segments if kind in one.lost) for kind, noun in kinds.items()}
    gone = " and ".join(count_of(count, noun) for noun, count in counts.items() if count)
    if gone or ends:
        gone = gone or f"records that the cleaner removed at the end, before {ends[0]}"
        known = shell_command(["kseg", "validate", "--write-baseline", "FILE", target])
        note(
            f"no batch has the offsets of {gone} now, so `kseg validate` reports those before "
            f"other batches or segments as missing: `{known}` writes them to FILE as known, and `--baseline FILE` ignores "
            "them"
        )


def _note_end(conversion: Conversion, end: int, source_end: int) -> None:
    """Say that a segment alone ends before its source. Of a folder, an empty segment keeps the end."""
    note(
        f"{conversion.target} ends at offset {end}, its source at {source_end}: a broker gives the offsets between them "
        "again. The result of a partition's folder keeps its end"
    )


def _note_size(conversion: Conversion) -> None:
    if conversion.largest_after > max(DEFAULT_MAX_MESSAGE_BYTES, conversion.largest_before):
        note(
            f"{conversion.target}: the largest batch now has {count_of(conversion.largest_after, 'byte')}: "
            "check max.message.bytes of the topic"
        )
