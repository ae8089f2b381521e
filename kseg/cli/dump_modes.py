"""The modes of ``kseg dump`` that show no rows of segments.

``--as``: files that are not segments, read as the given kind. ``--effective``: the partitions of internal topics.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from kseg.cli.messages import FAILED, note, note_after, note_output
from kseg.cli.record_options import files_of
from kseg.commands.dump.dump_items import Item, first_rows
from kseg.commands.dump.dumped_rows import DumpRequest
from kseg.commands.dump.framed_dump import dump_framed, framed_bytes
from kseg.errors import UsageError
from kseg.format.internal_topics.effective_state import Owner, effective
from kseg.format.internal_topics.state import Moment
from kseg.format.segment.framed_files import framed_files, framing
from kseg.format.segment.row_filter import RowFilter
from kseg.format.storage.local_files import special_kind_at
from kseg.format.storage.segment_files import SegmentFile, find_segments
from kseg.format.storage.source import BY_FOLDER, STDIN, internal_topic, open_source, topic_partition
from kseg.report.effective_report import EffectivePartition
from kseg.report.formats import DUMP, EFFECTIVE, FRAMED, View, check_format, destination, write
from kseg.report.wording import grouped
from kseg.text import count_of

if TYPE_CHECKING:
    from kseg.cli.dump_command import DumpOptions
    from kseg.cli.outcome import DumpOutcome


def show_framed(asked: DumpOptions, outcome: DumpOutcome) -> int:
    """Dump files with the framings of the command line. Returns the exit code. Raises UsageError."""
    name, keep = asked.format, asked.keep
    files = framed_files(asked.paths, asked.framings)
    kinds = [framing(str(file.framing)) for file in files]
    own, *others = {kind.columns for kind in kinds}
    if others:
        raise UsageError("these kinds of --as have different rows: dump them separately")
    kind = FRAMED if own else DUMP
    check_format(kind, name)
    if own and keep != RowFilter():
        raise UsageError("--offsets and other filters support segments and message sets only")
    # Requests and responses are deep by default; a message set is shallow by default, like a segment.
    deep = bool(own) or keep.selects_records if asked.deep is None else asked.deep
    request = DumpRequest(deep, keep, headings=name == "text", verify_crc=not asked.no_crc)

    def show(file: SegmentFile) -> Iterator[Item]:
        report = outcome.begin(file)
        dumped: Iterator[Item] = (
            framed_bytes(file, report, verify_crc=request.verify_crc)
            if own and name == "hex"
            else dump_framed(file, report, request, check=True)
        )
        yield from outcome.attempt(dumped)

    with outcome.output(asked.output) as out:
        view = View(deep=deep, encoding=asked.encoding, terminal=out.isatty())
        shown = outcome.counted(first_rows(chain.from_iterable(map(show, files)), asked.limit))
        columns = [kinds[0].columns if deep else kinds[0].shallow_columns] if own else []
        write(kind, name, out, shown, *columns, view=view)
    note_output(asked.output, count_of(outcome.written, "row"))
    return outcome.exit_code()


def show_effective(asked: DumpOptions, outcome: DumpOutcome) -> int:
    """Write the effective state of each partition of an internal topic; return the exit code. Raises UsageError.

    With a group or a transactional id the state has only its records, with ``--at`` only those until that moment.
    """
    owner, decode_as = asked.owner, asked.decode or BY_FOLDER
    check_format(EFFECTIVE, asked.format)
    files = outcome.segments(asked.paths, _readable)
    if not files:
        return FAILED
    if owner is not None:
        files = files_of(owner, files, decode_as, asked.partitions)
    folders = grouped(files, _folder)  # files of one folder can be given in any order, mixed with others
    topics = {folder: internal_topic(found[0].path, decode_as) for folder, found in folders.items()}
    if not any(topics.values()):
        raise UsageError("--effective needs folders of internal topics; for other folder names add --decode TOPIC")
    others = sum(topic is None for topic in topics.values())
    if others:
        note(f"skipped folders that do not belong to an internal topic: {others}")

    def partitions() -> Iterator[EffectivePartition]:
        for folder, topic in topics.items():
            if topic is not None:
                yield from outcome.attempt(_partition(folder, topic, folders[folder], outcome, owner, asked.at))

    with destination(asked.output) as out:
        write(EFFECTIVE, asked.format, out, partitions())
    return outcome.exit_code()


def _readable(path: str) -> Iterator[SegmentFile]:
    """Yield the segments of a path. Raises UnreadableError for a missing file, before its topic is examined."""
    for file in find_segments(path):
        if not file.listed and file.path != STDIN and special_kind_at(file.path) is None:
            open_source(file.path).close()
        yield file


def _folder(file: SegmentFile) -> str:
    return STDIN if file.path == STDIN else os.path.dirname(file.path) or "."


def _partition(
    folder: str, topic: str, files: Sequence[SegmentFile], outcome: DumpOutcome, owner: Owner | None, at: Moment | None
) -> Iterator[EffectivePartition]:
    found = effective(topic, [file.path for file in files], lambda path: partial(outcome, path), owner, at)
    if owner is not None and not found.spaces():
        return  # another partition than the owner's
    outcome.rows = True
    if at is not None and found.keyed and found.later:
        note_after(
            f"{folder}: {count_of(len(found.later), 'key')} with later records: the cleaner can have removed the values "
            "that they had at that time"
        )
    yield EffectivePartition(folder, topic, topic_partition(files[0].path)[1], found)
