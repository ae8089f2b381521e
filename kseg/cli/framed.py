"""``kseg dump --as``: files that are not segments, read as the given kind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any

import click

from kseg.cli.messages import FAILED, note_output, until_reader_closes
from kseg.commands.dump.framed import dump_framed, framed_bytes
from kseg.commands.dump.row_filter import RowFilter
from kseg.commands.dump.rows import Item, first_rows
from kseg.errors import UsageError
from kseg.format.storage.source import SegmentFile
from kseg.format.wire.framings import framed_files, framing
from kseg.report.formats import DUMP, FRAMED, View, check_format, destination, write
from kseg.text import count_of

if TYPE_CHECKING:
    from kseg.cli.spark import SparkOutcome


def show_framed(
    paths: tuple[str, ...],
    shallow: bool | None,
    result: tuple[str | None, str],
    options: Mapping[str, Any],
    keep: RowFilter,
    outcome: SparkOutcome,
) -> int:
    """Dump files with the given framings. ``result`` is the output path and the format.

    Returns the exit code. Raises UsageError.
    """
    output, name = result
    for of_logs in ("spark", "follow", "effective", "decode"):
        if options[of_logs]:
            raise UsageError(f"--as cannot be combined with --{of_logs}")
    files = framed_files(paths, options["framings"])
    kinds = [framing(str(file.framing)) for file in files]
    own, *others = {kind.columns for kind in kinds}
    if others:
        raise UsageError("these kinds of --as have different rows: dump them separately")
    kind = FRAMED if own else DUMP
    check_format(kind, name)
    if own and keep != RowFilter():
        raise UsageError("--offsets and other filters support segments and message sets only")
    # Requests and responses are deep by default; a message set is shallow by default, like a segment.
    deep = bool(own) if shallow is None else not shallow
    if keep.keys and not deep:
        raise UsageError("--key selects records: add --deep")

    def show(file: SegmentFile) -> Iterator[Any]:
        outcome.begin(file)
        text, crcs = name == "text", not options["no_crc"]
        dumped: Iterator[Item] = (
            framed_bytes(file, outcome, verify_crc=crcs)
            if own and name == "hex"
            else dump_framed(file, outcome, keep, deep=deep, headings=text, verify_crc=crcs, check=True)
        )
        yield from outcome.attempt(dumped)

    with until_reader_closes(), destination(output, to_the_end=False) as out:
        view = View(deep=deep, encoding=options["encoding"], terminal=out.isatty())
        shown = outcome.counted(first_rows(chain.from_iterable(map(show, files)), options["limit"]))
        columns = [kinds[0].columns if deep else kinds[0].shallow_columns] if own else []
        write(kind, name, out, shown, *columns, view=view)
        if outcome.failed and not outcome.rows:
            raise click.exceptions.Exit(FAILED)  # inside the block, so that an older output file is kept
    note_output(output, count_of(outcome.written, "row"))
    return outcome.exit_code()
