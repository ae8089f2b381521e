"""``kseg dump --jobs``: whether several processes or threads dump, and their output."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TextIO

from kseg.cli.outcome import DumpOutcome
from kseg.commands.dump import dump_ranges
from kseg.commands.dump.dump_items import Item, from_position
from kseg.commands.dump.dump_ranges import Output
from kseg.commands.dump.request import DumpRequest
from kseg.format.storage.source import SegmentFile, local_size
from kseg.report.formats import View, binary

if TYPE_CHECKING:
    from kseg.cli.dump_command import DumpOptions

#: Writes rows to an output with a view.
WriteRows = Callable[[Iterable[Item], TextIO, View], None]

#: The formats that several processes write.
FORMATS = ("jsonl", "csv", "text", "template")
#: The format that another thread encodes: pyarrow leaves Python's lock to the thread that reads the records.
ENCODED = "parquet"
# Fewer bytes are not worth the import of a module and the measuring.
_FEW_BYTES = 8 * 1024 * 1024


def jobs_of(asked: DumpOptions) -> int:
    """Return how many processes or threads dump."""
    alone = asked.follow or asked.registry is not None or asked.function is not None
    limited = any(one is not None for one in (asked.limit, asked.last, asked.position))
    shared = asked.reads_records and asked.format_name in (*FORMATS, ENCODED)
    return asked.jobs if shared and not (alone or limited) else 1


def has_parts(files: Sequence[SegmentFile]) -> bool:
    """Return whether several processes could dump these files in less time than one."""
    return sum(local_size(file.path) or 0 for file in files) > _FEW_BYTES and dump_ranges.can_share_memory()


def write_parts(
    files: Sequence[SegmentFile],
    request: DumpRequest,
    write: WriteRows,
    result: tuple[TextIO, View],
    outcome: DumpOutcome,
    jobs: int,
) -> None:
    """Write the rows of segments with several processes. ``result`` is the output and the view of the rows."""
    out, view = result
    write((), out, view)  # the names of columns
    view = replace(view, continued=True)
    sink = binary(out)

    def write_on(rows: Iterable[Item], into: TextIO) -> None:
        write(rows, into, view)

    def show(output: Output, lines: memoryview) -> None:
        sink.write(lines)
        outcome.written += output.rows
        outcome.rows |= output.shown

    with dump_ranges.dumped_files(files, request, write_on, jobs) as (dump, by_file):
        for file, parts in by_file:
            outcome.begin(file)
            start = dump.show(parts, show)
            if start is not None:
                rows = outcome.attempt(request.items(file, outcome), listed=file.listed)
                write_on(outcome.counted(from_position(rows, start)), out)
