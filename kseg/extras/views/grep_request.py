"""The search in each file of a run, in a form that worker processes receive, too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache

from kseg.commands.dump.dump_items import SegmentItem
from kseg.commands.dump.dumped_rows import DumpRequest
from kseg.commands.grep.matches import GrepQuery, RecordGrep
from kseg.commands.grep.text_patterns import MatchClock
from kseg.extras.serialization import record_decoder
from kseg.findings import Report
from kseg.format.segment.input_buffer import borrowed
from kseg.format.segment.segment_reader import SegmentReader
from kseg.format.storage.segment_files import SegmentFile
from kseg.format.storage.source import open_split, topic_partition


@lru_cache(maxsize=1)
def _decoder(settings: record_decoder.DecodeSettings) -> record_decoder.RecordDecoder | None:
    return record_decoder.record_decoder(settings)


@dataclass(frozen=True, slots=True)
class GrepRequest:
    """A query, how keys and values are decoded, and which rows are searched and shown: ``dump``.

    The query and the decoder are added to ``dump`` for each file: a decoder cannot be sent to another process. ``own`` is
    that of ``asking``.
    """

    query: GrepQuery
    decoding: record_decoder.DecodeSettings | None
    dump: DumpRequest
    own: record_decoder.RecordDecoder | None = field(default=None, compare=False)

    @property
    def decoder(self) -> record_decoder.RecordDecoder | None:
        """The decoder of keys and values, the same each time in a process; None without one."""
        return self.own or (_decoder(self.decoding) if self.decoding else None)

    def asking(self, unread: record_decoder.Unread) -> GrepRequest:
        """Return the request with another decoder for this process, which asks a registry again.

        ``unread`` is that of RecordDecoder.
        """
        return replace(self, own=record_decoder.record_decoder(self.decoding, unread=unread)) if self.decoding else self

    @property
    def has_neighbours(self) -> bool:
        return bool(self.dump.before or self.dump.after)

    def search_in(self, file: SegmentFile, clock: MatchClock) -> RecordGrep:
        return RecordGrep(self.query, self.decoder, topic_partition(file.path)[0], clock)

    def items(self, file: SegmentFile, search: RecordGrep, report: Report) -> Iterator[SegmentItem]:
        """Yield the items of a file: the records that match, and their neighbours."""
        return self._dump(search).items(file, report, check=False)

    @contextmanager
    def range_items(
        self, file: SegmentFile, start: int, end: int, search: RecordGrep, report: Report
    ) -> Iterator[tuple[SegmentReader, Iterator[SegmentItem]]]:
        """Yield a reader of the batches that begin in bytes ``start`` to ``end``, and the items of their matches."""
        source = open_split(file.path, start, end)
        with (
            borrowed() as buffers,
            SegmentReader(
                source, report=report, verify_crc=self.dump.verify_crc, buffers=buffers, reports_read_error=True
            ) as reader,
        ):
            alone = replace(self._dump(search), before=0, after=0)
            yield reader, alone.items_of_reader(file, reader, report, buffers=buffers)

    def _dump(self, search: RecordGrep) -> DumpRequest:
        """Return the dump of the records that match. Markers of transactions are not searched."""
        return replace(self.dump, keep=replace(self.dump.keep, control=False, search=search), decoder=self.decoder)
