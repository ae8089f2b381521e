"""``kseg dump --effective``: which partitions, and the exit code."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

import click

from kseg.cli.messages import FAILED, note
from kseg.errors import UsageError
from kseg.files.special import special_kind_of
from kseg.files.storage import STDIN, SegmentFile, find_segments, open_source, refuse_as_output, topic_partition
from kseg.findings import Report
from kseg.internal.effective import effective
from kseg.log.internal import BY_FOLDER, internal_topic
from kseg.output.effective import Partition
from kseg.output.formats import EFFECTIVE_FORMATS, destination, writer

if TYPE_CHECKING:
    from kseg.cli.spark import Met

#: The options of ``kseg dump`` that go with it: all others choose from records, or show them otherwise.
_ALLOWED = {"paths", "shallow", "format_name", "output", "decode", "effective", "max_rate"}


def show_effective(
    paths: Sequence[str], result: tuple[str | None, str], decode_as: str | None, met: Met, context: click.Context
) -> int:
    """Write what each partition of an internal topic among the paths comes to; returns the exit code.

    ``result`` is a path and a format. Raises UsageError.
    """
    output, name = result
    _refuse_others(context)
    if name not in EFFECTIVE_FORMATS:
        raise UsageError(f"--effective takes --format {' or '.join(EFFECTIVE_FORMATS)}")
    files = list(chain.from_iterable(met.attempt(_readable(path)) for path in paths))
    refuse_as_output(output, [*paths, *(file.path for file in files)])
    if not files:
        return FAILED
    folders: dict[str, list[SegmentFile]] = {}
    for file in files:  # a folder's may be named in any order, with others' between them
        folders.setdefault(_folder(file), []).append(file)
    topics = {folder: internal_topic(found[0].path, decode_as or BY_FOLDER) for folder, found in folders.items()}
    if not any(topics.values()):
        raise UsageError("--effective is for folders of internal topics; others can be named by --decode TOPIC")
    others = sum(topic is None for topic in topics.values())
    if others:
        note(f"passed over, of no internal topic: {others} folders")

    def partitions() -> Iterator[Partition]:
        for folder, topic in topics.items():
            if topic is not None:
                yield from met.attempt(_partition(folder, topic, folders[folder], met))

    with destination(output) as out:
        writer(EFFECTIVE_FORMATS, name)(partitions(), out)
    return met.exit_code()


def _refuse_others(context: click.Context) -> None:
    for parameter in context.command.params:
        given = context.get_parameter_source(parameter.name or "") is click.core.ParameterSource.COMMANDLINE
        if given and parameter.name not in _ALLOWED:
            raise UsageError(f"--effective is of whole partitions, decoded: {parameter.opts[0]} doesn't go with it")


def _readable(path: str) -> Iterator[SegmentFile]:
    """The segments of a path. Raises UnreadableError: a file that isn't there is of no topic, but that's not the news."""
    for file in find_segments(path):
        if not file.listed and file.path != STDIN and special_kind_of(file.path) is None:
            open_source(file.path).close()
        yield file


def _folder(file: SegmentFile) -> str:
    return STDIN if file.path == STDIN else os.path.dirname(file.path) or "."


def _partition(folder: str, topic: str, files: Sequence[SegmentFile], met: Met) -> Iterator[Partition]:
    def report_of(path: str) -> Report:
        met.file = path
        return met

    found = effective(topic, [file.path for file in files], report_of)
    met.rows = True
    yield Partition(folder, topic, topic_partition(files[0].path)[1], found)
