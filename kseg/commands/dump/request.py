"""Which rows of segments are dumped: the same for each file of a run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kseg.commands.dump.dump_items import Item, with_decoder
from kseg.commands.dump.dumped_rows import dump_reader, dump_segment
from kseg.findings import Report
from kseg.format.internal_topics.decode import internal_topic
from kseg.format.segment.row_filter import RowFilter
from kseg.format.sidefiles.transaction_states import TransactionLogs
from kseg.format.storage.segment_files import SegmentFile

if TYPE_CHECKING:
    from kseg.extras.serialization.record_decoder import RecordDecoder
    from kseg.format.checks.run_checks import SegmentChecks
    from kseg.format.segment.input_buffer import Buffers
    from kseg.format.segment.segment_reader import SegmentReader


@dataclass(frozen=True, slots=True)
class DumpRequest:
    """Which rows of segments are dumped. The fields but the last three are arguments of ``dump_segment``.

    ``decode_as`` is that of ``internal_topic``. ``decoder`` decodes keys and values. ``logs`` has the transactions.
    """

    deep: bool
    keep: RowFilter
    headings: bool = False
    verify_crc: bool = True
    damaged: bool = False
    decode_as: str | None = None
    decoder: RecordDecoder | None = None
    logs: TransactionLogs = field(default_factory=TransactionLogs)

    def items(self, file: SegmentFile, report: Report, start: int = 0, end: int | None = None) -> Iterator[Item]:
        """Yield the items of ``dump_segment`` with the checks of ``kseg validate``."""
        dumped = dump_segment(
            file.path,
            deep=self.deep,
            headings=self.headings,
            keep=self._keep_of(file),
            verify_crc=self.verify_crc,
            report=report,
            start=start,
            end=end,
            listed=file.listed,
            topic=internal_topic(file.path, self.decode_as),
            check=True,
            damaged=self.damaged and end is None,
        )
        return with_decoder(dumped, self.decoder)

    def counted_items(self, file: SegmentFile, start: int, end: int | None) -> Iterator[Item]:
        """Yield items with the same rows as ``items``, without messages and checks, to count them."""
        return dump_segment(
            file.path,
            deep=self.deep,
            keep=self._keep_of(file),
            verify_crc=self.verify_crc,
            start=start,
            end=end,
            listed=file.listed,
        )

    def items_of_reader(
        self, file: SegmentFile, reader: SegmentReader, report: Report, checks: SegmentChecks, buffers: Buffers
    ) -> Iterator[Item]:
        """Yield the items of ``dump_reader`` for a reader of a range of a segment."""
        dumped = dump_reader(
            reader.name,
            reader,
            report,
            self._keep_of(file),
            deep=self.deep,
            headings=self.headings,
            topic=internal_topic(reader.name, self.decode_as),
            checks=checks,
            buffers=buffers,
        )
        return with_decoder(dumped, self.decoder)

    def _keep_of(self, file: SegmentFile) -> RowFilter:
        """Return the filter of the rows of a segment."""
        return self.keep.of_segment(file.path, self.logs.of(file.path, listed=file.listed), self.decoder)
