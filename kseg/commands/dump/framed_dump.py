"""``kseg dump --as``: the rows of files other than logs, and of the record sets in them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kseg.commands.dump.dump_items import (
    BatchItem,
    DamagedBytes,
    FileStart,
    Item,
    RecordsItem,
    SegmentItem,
    WireRow,
    damaged_bytes,
)
from kseg.commands.dump.dumped_rows import DumpRequest, checks_of
from kseg.errors import NotASegmentError
from kseg.findings import Finding, Report
from kseg.format.checks.record_set_checks import RecordSetChecks
from kseg.format.segment.framed_files import ReadSettings, RecordSet, framing
from kseg.format.segment.records_chunk import batch_row, record_row, unchanged
from kseg.format.segment.segment_reader import SegmentReader
from kseg.format.storage.segment_files import SegmentFile
from kseg.format.storage.source import local_size, open_source
from kseg.schema import BATCH_COLUMNS, TRANSACTIONAL, Row


def dump_framed(file: SegmentFile, report: Report, request: DumpRequest, *, check: bool = False) -> Iterator[Item]:
    """Yield the rows of one file by its framing, a FileStart first. Raises UnreadableError and NotASegmentError.

    Rows of record sets with a place have the columns of the place; others are like a segment's rows. ``check`` is that of
    ``DumpRequest.items``.
    """
    assert file.framing
    deep, verify_crc = request.deep, request.verify_crc
    with open_source(file.path) as source:
        yield FileStart(file.path, None)
        for part in framing(file.framing).walk(source, report, ReadSettings(verify_crc, file.requests)):
            if not isinstance(part, RecordSet):
                yield WireRow(file.path, part if deep or part["kind"] != "record" else _as_batch_item(part))
                continue
            judged = part.report_for(report)
            reader = SegmentReader(part.source, report=judged, verify_crc=verify_crc)
            record_set = RecordSetChecks(sent=part.sent)
            checks = checks_of(file.path, reader, judged, deep=deep, record_set=record_set) if check else None
            try:
                for item in request.items_of_reader(file, reader, judged, checks=checks):
                    yield from _placed(item, part)
            except NotASegmentError:
                if not part.place:
                    raise
                judged(part.without_batches)
        source.check_not_empty()


def framed_bytes(
    file: SegmentFile, report: Report, *, verify_crc: bool
) -> Iterator[FileStart | WireRow | DamagedBytes]:
    """Yield the frames or messages of one file, and between them the bytes that are not one.

    Records in frames are read for their findings only. Raises the errors of ``dump_framed``.
    """
    found: list[Finding] = []
    end = 0

    def collected(finding: Finding) -> None:
        found.append(finding)
        report(finding)

    name = str(file.framing)
    kind = framing(name)
    for item in dump_framed(file, collected, DumpRequest(True, verify_crc=verify_crc), check=True):
        if isinstance(item, FileStart):
            yield item
        elif isinstance(item, WireRow) and item.row.get("frame") is None and not _is_inside(item.row, end):
            position, size = item.row["position"], item.row["size"]
            yield from damaged_bytes(file.path, end, position, found, name)
            end = position + size + kind.size_field
            yield replace(item, framing=name)
    yield from damaged_bytes(file.path, end, local_size(file.path) or end, found, name)


def _is_inside(row: Row, end: int) -> bool:
    """Return whether a row is of a message inside the one that ends at ``end``. Frames can share bytes."""
    return bool(row["kind"] == "record" and row["position"] < end)


def framed_rows(file: SegmentFile, report: Report, *, deep: bool, verify_crc: bool) -> Iterator[Row]:
    """Yield the rows of one file by its framing, with raw bytes. Raises the errors of ``dump_framed``."""
    for item in dump_framed(file, report, DumpRequest(deep, verify_crc=verify_crc)):
        if isinstance(item, WireRow):
            yield {"topic": None, "partition": None, **item.row}  # not those of the folder's name
        elif isinstance(item, BatchItem):
            yield batch_row(item.file, item.batch)
        elif isinstance(item, RecordsItem):
            batch = item.batch
            own = {TRANSACTIONAL.name: batch.transactional}
            yield from ({**record_row(item.file, record, unchanged), **own} for record in item.records())


def _placed(item: SegmentItem, part: RecordSet) -> Iterator[Item]:
    if not part.place:
        yield item
    elif isinstance(item, BatchItem):
        yield WireRow(item.file, part.placed_row(batch_row(item.file, item.batch)))
    elif isinstance(item, RecordsItem):
        for record in item.records():
            yield WireRow(item.file, part.placed_row(record_row(item.file, record, unchanged)))


def _as_batch_item(message: Row) -> Row:
    """Return the row of a batch for a single message, without its record columns."""
    return {**{column.name: message.get(column.name) for column in BATCH_COLUMNS}, "kind": "batch"}
