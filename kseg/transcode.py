"""From opened entries of any version to entries of one version: what ``kseg convert`` writes.

To v2 as Kafka's cleaner does it: a wrapper becomes one batch, a message a batch of its own (FORMATS: converting to
v2), unless they are packed anew. To v0 and v1 as brokers did it for old consumers (``RecordsUtil.downConvert``), but
what gets lost is counted.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from kseg import encoder, log_format
from kseg.batch_packer import BatchPacker, Buffer
from kseg.compression import CODECS, codec_name
from kseg.deep_iteration import Chunk, DeepIterator
from kseg.errors import KsegError, UsageError
from kseg.findings import Finding, Report
from kseg.kernel import CRC_BAD, BatchColumns
from kseg.log_format import CODEC_MASK, LOG_APPEND_TIME
from kseg.records_builder import wrap
from kseg.segment import SegmentReader


@dataclass(slots=True)
class Loss:
    """What the target's version can't hold: how many there were, from the first such offset to the last."""

    count: int
    first_offset: int
    last_offset: int


@dataclass(slots=True)
class Conversion:
    """What became of one segment. Sizes are bytes, counts without a word are of entries.

    ``copied`` were of the target's version already, ``skipped`` damaged; ``lost_bytes`` are theirs, and those that
    are no entry at all. ``codecs_before`` and ``codecs_after`` count entries by codec. ``lost`` is by kind, see ``LOSSES``.
    """

    source: str
    target: str
    entries_before: int = 0
    entries_after: int = 0
    copied: int = 0
    skipped: int = 0
    records: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    lost_bytes: int = 0
    largest_before: int = 0
    largest_after: int = 0
    codecs_before: Counter[str] = field(default_factory=Counter)
    codecs_after: Counter[str] = field(default_factory=Counter)
    lost: dict[str, Loss] = field(default_factory=dict)

    def lose(self, kind: str, count: int, first_offset: int, last_offset: int) -> None:
        """Count a loss of one of LOSSES."""
        if not count:
            return
        loss = self.lost.setdefault(kind, Loss(0, first_offset, last_offset))
        loss.count += count
        loss.last_offset = last_offset

    def as_row(self) -> dict[str, Any]:
        """One flat object, fit for JSON."""
        row = {each.name: getattr(self, each.name) for each in fields(self)}
        return {**row, "lost": {kind: asdict(loss) for kind, loss in self.lost.items()}}


#: What a down-conversion can lose, and what is counted of it.
LOSSES = {
    "headers": "records with headers",
    "timestamps": "records with a timestamp",
    "control-records": "control records",
    "transactions": "transactional batches; aborted ones are visible from now on",
    "sequences": "batches of idempotent producers",
    "leader-epochs": "batches with a leader epoch",
    "delete-horizons": "batches with a delete horizon",
    "empty-batches": "empty batches, kept by compaction",
}


class WrongVersionError(KsegError):
    """An entry of a version that the conversion does not take."""


def sound_chunks(reader: SegmentReader, report: Report) -> Iterator[Chunk]:
    """The opened entries of a segment; those that are damaged or out of order are marked not intact."""
    opener = DeepIterator(report)
    last_offset = -1
    faults: list[tuple[str, int, int, int]] = []
    for window in reader.windows():
        for chunk in opener.chunks(window):
            batches = chunk.batches
            last_offset = encoder.judge_offsets(batches, chunk.records, chunk.first, chunk.stop, last_offset, faults)
            for fault in faults:
                report(_order_finding(batches, *fault))
            faults.clear()
            yield chunk


def _out_of_order(offset: int, previous: int) -> dict[str, Any]:
    note = "; the next entry goes on from there, so this base offset is wrong" if offset > previous else ""
    return {"offset": offset, "previous": previous, "note": note}


_ORDER_FACTS: dict[str, Callable[[int, int], dict[str, Any]]] = {
    "non-monotonic-offset": _out_of_order,
    "invalid-offset-range": lambda offset, delta: {"delta": delta, "why": "no entry can span that"},
    "record-offset-mismatch": lambda offset, index: {"index": index, "offset": offset, "why": "is out of order"},
}


def _order_finding(batches: BatchColumns, rule: str, row: int, offset: int, detail: int) -> Finding:
    facts = _ORDER_FACTS[rule](offset, detail)
    position = batches.position[row]
    return Finding(rule, position=position, end=position + batches.size[row], offset=offset, facts=facts)


def payload_of(chunk: Chunk, row: int) -> Any:
    """What the record columns of entry ``row`` point into, as the bytes or bytearray it is: their slices are fast."""
    view = chunk.payload(row)
    whole = view.obj
    return whole if isinstance(whole, (bytes, bytearray)) and len(whole) == len(view) else view


@dataclass(frozen=True, slots=True)
class _Run:
    """Entries ``row`` to ``stop`` of one kind and version, their records ``i`` to ``end``; ends are exclusive."""

    chunk: Chunk
    kind: int
    row: int
    stop: int
    i: int
    end: int

    @property
    def magic(self) -> int:
        return self.chunk.batches.magic[self.row]

    @property
    def room(self) -> int:
        """The most bytes that the records can take in any version."""
        size = len(self.chunk.payload(self.row)) if self.kind == encoder.PACKED else self.stored_size
        return size + (self.end - self.i + 1) * encoder.ROOM_PER_RECORD

    @property
    def stored_size(self) -> int:
        return self._behind - self.chunk.batches.at[self.row]

    @property
    def stored(self) -> memoryview:
        """The entries' bytes: within a window they stand one behind the other."""
        return self.chunk.window.view[self.chunk.batches.at[self.row] : self._behind]

    @property
    def _behind(self) -> int:
        return self.chunk.batches.at[self.stop - 1] + self.chunk.batches.size[self.stop - 1]


def runs_of(chunk: Chunk, target: int, *, copies: bool) -> Iterator[_Run]:
    """The chunk's entries in runs that are treated alike; see ``encoder.kind_of``."""
    row, i = chunk.first, 0
    while row < chunk.stop:
        kind, stop = encoder.run_from(chunk.batches, row, chunk.stop, target, copies)
        end = bisect_left(chunk.records.batch, stop, i, chunk.records.count)
        yield _Run(chunk, kind, row, stop, i, end)
        row, i = stop, end


class Transcoder:
    """Takes opened entries and writes them as entries of version ``target``.

    ``sources`` are the versions it takes, ``codec`` the codec to write (None keeps each entry's own), ``rebatch`` the
    bytes before compression to pack v2 batches to (None keeps the entries' bounds).
    """

    def __init__(
        self,
        sources: frozenset[int],
        target: int,
        codec: int | None,
        rebatch: int | None,
        write: Callable[[memoryview], None],
        tally: Conversion,
    ) -> None:
        self._sources = sources
        self._target = target
        self._codec = codec
        self._rebatch = rebatch
        self._write = write
        self._tally = tally
        self._buffer = Buffer()
        self._packer = BatchPacker(rebatch, self._wrote)

    def take(self, chunk: Chunk) -> None:
        """Write the chunk's entries. Raises WrongVersionError, KsegError, and OSError as writing does."""
        tally = self._tally
        for run in runs_of(chunk, self._target, copies=True):
            tally.entries_before += run.stop - run.row
            tally.largest_before = max(tally.largest_before, *chunk.batches.size[run.row : run.stop], 0)
            codec = chunk.batches.attributes[run.row] & CODEC_MASK
            if run.kind == encoder.COPY:
                self._copy(run)
            elif run.kind == encoder.SKIP:
                self._skip(run)
            else:
                self._check_version(run)
                tally.codecs_before[codec_name(codec)] += run.stop - run.row
                if run.kind == encoder.DROP:
                    self._drop(run)
                elif self._target >= 2:
                    self._to_batches(run, codec if self._codec is None else self._codec)
                else:
                    self._to_messages(run, codec if self._codec is None else self._codec)

    def finish(self) -> None:
        """Write what is still being packed."""
        self._packer.flush()

    def _check_version(self, run: _Run) -> None:
        if run.magic not in self._sources:
            position = run.chunk.batches.position[run.row]
            taken = ", ".join(f"v{magic}" for magic in sorted({*self._sources, self._target}))
            where = f"{self._tally.source}: the entry at byte {position}"
            raise WrongVersionError(f"{where} is v{run.magic}; this conversion takes {taken}")

    def _wrote(self, entry: memoryview, codec: int) -> None:
        """One entry of the target's version is ready."""
        self._write(entry)
        self._count(1, codec, len(entry))

    def _count(self, entries: int, codec: int, largest: int) -> None:
        tally = self._tally
        tally.entries_after += entries
        tally.codecs_after[codec_name(codec)] += entries
        tally.largest_after = max(tally.largest_after, largest)

    def _skip(self, run: _Run) -> None:
        batches = run.chunk.batches
        for row in range(run.row, run.stop):
            self._tally.skipped += 1
            # The reader counts those whose CRC is bad.
            self._tally.lost_bytes += batches.size[row] if batches.crc_state[row] != CRC_BAD else 0

    def _copy(self, run: _Run) -> None:
        self._packer.flush()
        self._write(run.stored)
        batches, tally = run.chunk.batches, self._tally
        tally.copied += run.stop - run.row
        tally.records += run.end - run.i
        for row in range(run.row, run.stop):
            codec = batches.attributes[row] & CODEC_MASK
            tally.codecs_before[codec_name(codec)] += 1
            self._count(1, codec, batches.size[row])

    # --- to v2 ---

    def _to_batches(self, run: _Run, codec: int) -> None:
        self._tally.records += run.end - run.i
        records, batches = run.chunk.records, run.chunk.batches
        data = payload_of(run.chunk, run.row)
        append_time = batches.attributes[run.row] & LOG_APPEND_TIME if run.magic else 0
        if run.kind == encoder.PACKED:
            self._packer.add_entry(data, records, run.i, run.end, codec, append_time)
        elif self._rebatch or codec:
            self._packer.add_messages(data, records, run.i, run.end, batches, codec)
        else:
            out = self._buffer.reserve(run.room)
            end = encoder.encode_single_batches(data, records, run.i, run.end, batches, out, self._buffer.view, 0)
            self._write(self._buffer.view[:end])
            self._count(run.end - run.i, codec, self._largest_single(run))

    def _largest_single(self, run: _Run) -> int:
        sizes = run.chunk.batches.size[run.row : run.stop]
        records = run.chunk.records
        i = run.i + sizes.index(max(sizes))
        body = 4  # attributes, both deltas and the header count
        for size in (records.key_size[i], records.value_size[i]):
            body += encoder.varint_size(size) + max(size, 0)
        return log_format.RECORD_BATCH_OVERHEAD + encoder.varint_size(body) + body

    # --- to v0 and v1 ---

    def _to_messages(self, run: _Run, codec: int) -> None:
        if run.magic < 2 and run.kind == encoder.PLAIN:
            if codec:
                for i in range(run.i, run.end):
                    self._message_set(run, run.row + i - run.i, i, i + 1, codec)
            else:
                self._message_set(run, run.row, run.i, run.end, codec)
            return
        i = run.i
        for row in range(run.row, run.stop):
            end = bisect_left(run.chunk.records.batch, row + 1, i, run.end)
            if run.magic >= 2:
                self._count_losses(run.chunk, row, i, end)
            if end > i:
                self._message_set(run, row, i, end, codec)
            i = end

    def _message_set(self, run: _Run, row: int, first: int, stop: int, codec: int) -> None:
        """Records ``first`` to ``stop`` as messages, compressed into one wrapper if there is a codec."""
        known = CODECS.get(codec)
        if known is not None and known.first_magic > self._target:
            where = f"{self._tally.source}: the entry at byte {run.chunk.batches.position[row]}"
            raise UsageError(f"{where} is {known.name}, which v{self._target} can't hold: choose a --compression")
        chunk, target = run.chunk, self._target
        records, batches = chunk.records, chunk.batches
        if not target:
            timed = stop - first - records.timestamp[first:stop].count(log_format.NO_TIMESTAMP)
            self._tally.lose("timestamps", timed, records.offset[first], records.offset[stop - 1])
        attributes = batches.attributes[row] & LOG_APPEND_TIME if batches.magic[row] and target else 0
        out = self._buffer.reserve(run.room)
        shift = records.offset[first] if codec and target else 0
        end = encoder.encode_messages(
            payload_of(chunk, row), records, first, stop, target, shift, attributes, out, self._buffer.view, 0
        )
        self._tally.records += stop - first
        if not codec:
            self._write(self._buffer.view[:end])
            self._count(stop - first, codec, end if stop - first == 1 else 0)
            return
        timestamp = max(records.timestamp[first:stop]) if target else log_format.NO_TIMESTAMP
        offset = records.offset[stop - 1]
        self._wrote(memoryview(wrap(self._buffer.view[:end], target, codec, attributes, offset, timestamp)), codec)

    def _drop(self, run: _Run) -> None:
        batches = run.chunk.batches
        for row in range(run.row, run.stop):
            first, last = batches.base_offset[row], batches.last_offset[row]
            self._tally.lose("control-records", batches.record_count[row], first, last)
            self._count_batch_losses(batches, row)

    def _count_losses(self, chunk: Chunk, row: int, first: int, stop: int) -> None:
        with_headers = stop - first - chunk.records.header_count[first:stop].count(0)
        if with_headers:
            offsets = chunk.records.offset
            self._tally.lose("headers", with_headers, offsets[first], offsets[stop - 1])
        self._count_batch_losses(chunk.batches, row)

    def _count_batch_losses(self, batches: BatchColumns, row: int) -> None:
        first, last, attributes = batches.base_offset[row], batches.last_offset[row], batches.attributes[row]
        for kind, there in (
            ("transactions", attributes & log_format.TRANSACTIONAL and not attributes & log_format.CONTROL),
            ("sequences", batches.producer_id[row] >= 0 and batches.base_sequence[row] >= 0),
            ("leader-epochs", batches.partition_leader_epoch[row] >= 0),
            ("delete-horizons", attributes & log_format.DELETE_HORIZON),
            ("empty-batches", not batches.record_count[row]),
        ):
            self._tally.lose(kind, 1 if there else 0, first, last)
