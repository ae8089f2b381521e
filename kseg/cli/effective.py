"""``kseg dump --effective``: the selection of partitions, and the exit code."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

import click

from kseg.cli.messages import FAILED, note
from kseg.cli.owners import files_of
from kseg.errors import UsageError
from kseg.findings import Report
from kseg.format.internal_topics.coordinators import Owner
from kseg.format.internal_topics.effective import effective
from kseg.format.internal_topics.recognise import BY_FOLDER, internal_topic
from kseg.format.storage.source import STDIN, SegmentFile, find_segments, once_each, open_source, topic_partition
from kseg.format.storage.special_files import special_kind_at
from kseg.report.effective import Partition
from kseg.report.formats import EFFECTIVE, check_format, destination, write

if TYPE_CHECKING:
    from kseg.cli.spark import SparkOutcome

#: The options of ``kseg dump`` that can be combined with --effective: the others select or format records.
_ALLOWED = {
    "paths",
    "shallow",
    "format_name",
    "output",
    "decode",
    "effective",
    "max_rate",
    "group",
    "txn",
    "partitions",
}


def show_effective(
    paths: Sequence[str],
    result: tuple[str | None, str],
    decode_as: str | None,
    outcome: SparkOutcome,
    context: click.Context,
    owner: Owner | None = None,
) -> int:
    """Write the effective state of each partition of an internal topic; return the exit code.

    ``result`` is the output path and the format. With ``owner`` the state has only its records. Raises UsageError.
    """
    output, name = result
    _check_options(context)
    check_format(EFFECTIVE, name)
    files = once_each(chain.from_iterable(outcome.attempt(_readable(path)) for path in paths))
    if not files:
        return FAILED
    if owner is not None:
        files = files_of(owner, files, decode_as or BY_FOLDER, context.params["partitions"])
    folders: dict[str, list[SegmentFile]] = {}
    for file in files:  # files of one folder can be given in any order, mixed with others
        folders.setdefault(_folder(file), []).append(file)
    topics = {folder: internal_topic(found[0].path, decode_as or BY_FOLDER) for folder, found in folders.items()}
    if not any(topics.values()):
        raise UsageError("--effective needs folders of internal topics; for other folder names add --decode TOPIC")
    others = sum(topic is None for topic in topics.values())
    if others:
        note(f"skipped folders that do not belong to an internal topic: {others}")

    def partitions() -> Iterator[Partition]:
        for folder, topic in topics.items():
            if topic is not None:
                yield from outcome.attempt(_partition(folder, topic, folders[folder], outcome, owner))

    with destination(output) as out:
        write(EFFECTIVE, name, out, partitions())
    return outcome.exit_code()


def _check_options(context: click.Context) -> None:
    for parameter in context.command.params:
        given = context.get_parameter_source(parameter.name or "") is click.core.ParameterSource.COMMANDLINE
        if given and parameter.name not in _ALLOWED:
            raise UsageError(f"--effective cannot be combined with {parameter.opts[0]}: it reads whole partitions")


def _readable(path: str) -> Iterator[SegmentFile]:
    """Yield the segments of a path. Raises UnreadableError for a missing file, before its topic is examined."""
    for file in find_segments(path):
        if not file.listed and file.path != STDIN and special_kind_at(file.path) is None:
            open_source(file.path).close()
        yield file


def _folder(file: SegmentFile) -> str:
    return STDIN if file.path == STDIN else os.path.dirname(file.path) or "."


def _partition(
    folder: str, topic: str, files: Sequence[SegmentFile], outcome: SparkOutcome, owner: Owner | None
) -> Iterator[Partition]:
    def report_of(path: str) -> Report:
        outcome.file = path
        return outcome

    found = effective(topic, [file.path for file in files], report_of, owner)
    if owner is not None and not found.spaces():
        return  # another partition than the owner's
    outcome.rows = True
    yield Partition(folder, topic, topic_partition(files[0].path)[1], found)
