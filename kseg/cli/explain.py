"""``kseg explain``: options and exit codes. 1: the quick check found an error. 2: the file could not be explained."""

from __future__ import annotations

import click

from kseg.cli import common
from kseg.cli.messages import FOUND, until_reader_closes
from kseg.commands.explain.folder import kinds_in
from kseg.commands.explain.lesson import lesson_of
from kseg.format.storage.source import SegmentFile, check_exists, is_folder
from kseg.format.wire.framings import FRAMINGS, framed_files
from kseg.report.formats import FOLDER, LESSON, View, destination, write


@click.command()
@click.argument("path", metavar="FILE", type=common.InputPath())
@click.option("--as", "framing", type=common.Choice(list(FRAMINGS)), help="Read FILE as this kind of file.")
@common.output
@common.max_rate
def explain(path: str, framing: str | None, output: str | None) -> int:
    """Explain a file on one page: its versions, its fields at their bytes with their KIPs, and its faults.

    FILE is a segment, an index, a snapshot, a checkpoint, a KRaft snapshot, or with --as requests, responses or messages.
    The first batch or entry of each kind is shown field by field. Of a folder, the kinds of its files are listed.
    """
    common.check_outputs()
    if framing is None and is_folder(path):
        kinds = list(kinds_in(path))
        with until_reader_closes(), destination(output, to_the_end=False) as out:
            write(FOLDER, "text", out, path, kinds, view=View(terminal=out.isatty()))
        return 0
    file = framed_files((path,), (framing,))[0] if framing else SegmentFile(path)
    check_exists(path)
    lesson = lesson_of(file)
    with until_reader_closes(), destination(output, to_the_end=False) as out:
        write(LESSON, "text", out, lesson, view=View(terminal=out.isatty()))
    return FOUND if lesson.result and lesson.result.summary.errors else 0
