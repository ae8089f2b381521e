"""``kseg dump --as``: the rows of files that are no log, and those of the record sets in them."""

from __future__ import annotations

from collections.abc import Iterator

from kseg.dumping.dump import Beginning, Entry, Filter, Framed, Item, Run, dump_reader
from kseg.errors import NotASegmentError
from kseg.files.storage import SegmentFile, open_source
from kseg.findings import Report
from kseg.frames.framings import framing
from kseg.frames.parts import Reading, RecordSet
from kseg.log.rows import BATCH_COLUMNS, PRODUCER_COLUMNS, Row, as_it_is, batch_row, record_row
from kseg.log.segment import SegmentReader
from kseg.validation.record_set_checks import RecordSetChecks


def dump_framed(
    file: SegmentFile,
    report: Report,
    keep: Filter,
    *,
    deep: bool,
    headings: bool,
    verify_crc: bool,
    check: bool = False,
) -> Iterator[Item]:
    """The rows of one file, by its framing, a Beginning first. Raises UnreadableError and NotASegmentError.

    Record sets of a place of their own are rows that say so; those without are as a segment's. ``check`` is that of
    ``dump_segment``.
    """
    assert file.framing
    with open_source(file.path) as source:
        yield Beginning(file.path, None)
        for part in framing(file.framing).walk(source, report, Reading(verify_crc, file.requests)):
            if not isinstance(part, RecordSet):
                yield Framed(file.path, part if deep or part["kind"] != "record" else _as_entry(part))
                continue
            judged = part.judge(report)
            reader = SegmentReader(part.source, report=judged, verify_crc=verify_crc)
            try:
                rows = dump_reader(
                    file.path,
                    reader,
                    judged,
                    keep,
                    deep=deep,
                    headings=headings,
                    check=check,
                    record_set=RecordSetChecks(sent=part.sent),
                )
                for item in rows:
                    yield from _placed(item, part)
            except NotASegmentError:
                if not part.place:
                    raise
                judged(part.not_one_entry)


def framed_rows(file: SegmentFile, report: Report, *, deep: bool, verify_crc: bool) -> Iterator[Row]:
    """The rows of one file, by its framing, with their bytes as they are. Raises as ``dump_framed``."""
    for item in dump_framed(file, report, Filter(), deep=deep, headings=False, verify_crc=verify_crc):
        if isinstance(item, Framed):
            yield {"topic": None, "partition": None, **item.row}  # not what the file's folder is called
        elif isinstance(item, Entry):
            yield batch_row(item.file, item.batch)
        elif isinstance(item, Run):
            batch = item.batch
            own = {column.name: getattr(batch, column.name) for column in PRODUCER_COLUMNS}
            yield from ({**record_row(item.file, record, as_it_is), **own} for record in item.records())


def _placed(item: Entry | Run, part: RecordSet) -> Iterator[Item]:
    if not part.place:
        yield item
    elif isinstance(item, Entry):
        yield Framed(item.file, part.placed(batch_row(item.file, item.batch)))
    else:
        for record in item.records():
            yield Framed(item.file, part.placed(record_row(item.file, record, as_it_is)))


def _as_entry(message: Row) -> Row:
    """A record that is an entry, without what is in it."""
    return {**{column.name: message.get(column.name) for column in BATCH_COLUMNS}, "kind": "batch"}
