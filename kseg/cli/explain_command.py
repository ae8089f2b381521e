"""``kseg explain``: options and exit codes. 1: a quick check found an error. 2: a file could not be explained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TextIO

import click

from kseg.cli import common
from kseg.cli.messages import FAILED, FOUND, fail, until_reader_closes
from kseg.cli.typed_command import ReadOptions, command
from kseg.commands.explain import kinds_in, lesson_of
from kseg.errors import KsegError
from kseg.format.segment.framed_files import framed_files
from kseg.format.storage.segment_files import SegmentFile, as_decoded, is_folder
from kseg.report.formats import FOLDER, LESSON, View, destination, write


@dataclass(frozen=True, kw_only=True)
class ExplainOptions(ReadOptions):
    framings: tuple[str, ...]


@command(
    ExplainOptions,
    examples=(
        "kseg explain orders-0/00000000000000000000.log",
        "kseg explain orders-0/leader-epoch-checkpoint",
        "kseg explain --as requests stream.bin",
    ),
)
def explain(asked: ExplainOptions) -> int:
    """Explain files, each on one page: versions, fields at their bytes with their KIPs, and faults.

    A PATH is a segment, an index, a snapshot, a checkpoint, a KRaft snapshot, or with --as requests, responses or messages.
    The first batch or entry of each kind is shown field by field. Of a folder, the kinds of its files are listed.
    """
    common.check_outputs()
    given = [SegmentFile(as_decoded(path)) for path in asked.paths]
    files = framed_files(asked.paths, asked.framings) if asked.framings else given
    codes: list[int] = []
    with until_reader_closes(), destination(asked.output, to_the_end=False) as out:
        for file in files:
            try:
                codes.append(_explain(file, out))
                out.write("\n" if file is not files[-1] else "")
            except KsegError as error:
                codes.append(fail(str(error)))
        if {*codes} == {FAILED}:
            raise click.exceptions.Exit(FAILED)  # inside the block, so that an older output file is kept
    return max(codes, default=0)  # empty if the reader of a pipe exited early


def _explain(file: SegmentFile, out: TextIO) -> int:
    """Write the page of a file or a folder, and return its exit code. Raises KsegError."""
    view = View(terminal=out.isatty())
    if not file.framing and is_folder(file.path):
        write(FOLDER, "text", out, file.path, list(kinds_in(file.path)), view=view)
        return 0
    lesson = lesson_of(file)
    write(LESSON, "text", out, lesson, view=view)
    if lesson.result and lesson.result.read_error:
        return fail(lesson.result.read_error)
    return FOUND if lesson.result and lesson.result.summary.errors else 0
