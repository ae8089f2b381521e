"""Convert decoded batches of any version to batches of one version, and count conversions and losses.

To v2 like Kafka's cleaner: a compressed wrapper becomes one batch, and so does a single message, unless ``rebatch`` packs
them again. To v0 and v1 like brokers for old consumers (``RecordsUtil.downConvert``), with a count of the losses.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from kseg.commands.convert import conversion_plan
from kseg.commands.convert.conversion_plan import ConversionPlan
from kseg.errors import KsegError, UsageError
from kseg.format.compress.codecs import CODECS, codec_name, compress
from kseg.format.record import encoder, layout
from kseg.format.record.columns import CRC_BAD, BatchColumns
from kseg.format.record.framing import batch_crc
from kseg.format.record.layout import CODEC_MASK, LOG_APPEND_TIME
from kseg.format.segment.records_chunk import Chunk
from kseg.format.writer import rewritten_rows
from kseg.format.writer.batch_runs import BatchRun, payload_of, runs_of
from kseg.format.writer.records_builder import BatchPacker, OutputBuffer, wrap


@dataclass(slots=True)
class Loss:
    """Data that the target's version can't contain: the number, the first and the last offset."""

    count: int
    first_offset: int
    last_offset: int


@dataclass(slots=True)
class Conversion:
    """The result of one segment. Sizes are in bytes; counts are batches unless their name says otherwise.

    ``copied`` batches already had the target's version, ``skipped`` ones are damaged; ``lost_bytes`` are the bytes of
    skipped batches and of data that is not a batch. ``codecs_before`` and ``codecs_after`` count batches by codec.
    ``lost`` is by kind, see ``LOSSES``. ``leader_epochs`` are [epoch, first offset, last offset] of the written batches.
    The batches before byte ``epochless_bytes`` of the target have no epoch in the source; None if no batch has one.
    ``transactional`` is whether a written batch belongs to a transaction. ``first_offset`` and ``last_offset`` are those of
    the converted batches, None without batches.
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
    leader_epochs: list[list[int]] = field(default_factory=list)
    epochless_bytes: int | None = None
    transactional: bool = False
    first_offset: int | None = None
    last_offset: int | None = None

    def count_loss(self, kind: str, count: int, first_offset: int, last_offset: int) -> None:
        """Count a loss of one of LOSSES."""
        if not count:
            return
        loss = self.lost.setdefault(kind, Loss(0, first_offset, last_offset))
        loss.count += count
        loss.last_offset = last_offset

    def merge(self, other: Conversion) -> None:
        """Add the result of the next range of the same segment."""
        if self.epochless_bytes is None and other.epochless_bytes is not None:
            self.epochless_bytes = self.bytes_after + other.epochless_bytes
        for each in fields(self):
            if each.name in ("epochless_bytes", "transactional", "first_offset", "last_offset"):
                continue
            mine, more = getattr(self, each.name), getattr(other, each.name)
            if each.name.startswith("largest_"):
                setattr(self, each.name, max(mine, more))
            elif isinstance(mine, (int, Counter)):
                setattr(self, each.name, mine + more)
        for kind, loss in other.lost.items():
            self.count_loss(kind, loss.count, loss.first_offset, loss.last_offset)

    def as_row(self) -> dict[str, Any]:
        """Return the result as one flat object for JSON."""
        row = {each.name: getattr(self, each.name) for each in fields(self)}
        return {**row, "lost": {kind: asdict(loss) for kind, loss in self.lost.items()}}

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> Conversion:
        """Return the result of a row that ``as_row`` returned."""
        codecs = {name: Counter(row[name]) for name in ("codecs_before", "codecs_after")}
        return cls(**{**row, **codecs, "lost": {kind: Loss(**loss) for kind, loss in row["lost"].items()}})


#: The data that a conversion can lose, most of it one to a lower version: the counted noun, and words after it.
LOSSES = {
    "wrapper-keys": ("key", " of compressed message sets"),
    "headers": ("record header", ""),
    "timestamps": ("record", " with a timestamp"),
    "control-records": ("control record", ""),
    "aborted-records": ("record", " of aborted transactions"),
    "open-records": ("record", " of transactions that do not end in the log"),
    "unknown-records": ("record", " of transactions whose end is lost"),
    "deleted-records": ("record", " before the log start"),
    "transactions": ("transactional batch", " (consumers will see aborted records)"),
    "sequences": ("batch", " of idempotent producers"),
    "leader-epochs": ("batch", " with a leader epoch"),
    "delete-horizons": ("batch", " with a delete horizon"),
    "empty-batches": ("empty batch", ", kept by compaction"),
}
#: Kinds of losses counted in records; the others are counted in batches.
COUNTED_BY_RECORD = ("headers", "control-records")

_SIZE, _ATTRIBUTES, _CRC = struct.Struct(">i"), struct.Struct(">H"), struct.Struct(">I")


def _add(codecs: Counter[str], counts: list[int]) -> None:
    for codec, count in enumerate(counts):
        if count:
            codecs[codec_name(codec)] += count


def _with_codec(entry: memoryview, payload: memoryview, codec: int) -> memoryview:
    """Return the v2 batch with ``payload`` as its compressed records, the codec in its header, and a new CRC."""
    body = compress(codec, payload) if codec else payload
    out = bytearray(entry[: layout.RECORD_BATCH_OVERHEAD]) + body
    (attributes,) = _ATTRIBUTES.unpack_from(out, layout.ATTRIBUTES_AT)
    _SIZE.pack_into(out, layout.SIZE_AT, len(out) - layout.LOG_OVERHEAD)
    _ATTRIBUTES.pack_into(out, layout.ATTRIBUTES_AT, attributes & ~CODEC_MASK | codec)
    view = memoryview(out)
    _CRC.pack_into(out, layout.CRC_AT, batch_crc(view, 0, len(out), 2))
    return view


class WrongVersionError(KsegError):
    """A batch has a version that the conversion does not accept."""


class Transcoder:
    """Writes decoded batches as the plan for their segment says."""

    def __init__(self, plan: ConversionPlan, write: Callable[[memoryview], None], tally: Conversion) -> None:
        self._plan = plan
        self._target = plan.target
        self._codec = plan.codec
        self._write = write
        self._tally = tally
        self._buffer = OutputBuffer()
        self._packer = BatchPacker(plan.rebatch, self._count_written)

    def convert_chunk(self, chunk: Chunk) -> None:
        """Write the batches of the chunk. Raises WrongVersionError, KsegError, and OSError from writing."""
        rules = self._plan.another_cluster
        parted = rules is not None and rules.holds_log_start(chunk)
        for run in runs_of(chunk, self._target, copies=not (self._must_repack or parted)):
            counts = [0] * 8
            if self._is_unchanged(run):
                run = run._replace(kind=rewritten_rows.COPY)
            if chunk.resumed:  # a batch is copied or dropped with its first part
                if run.kind in (rewritten_rows.PACKED, rewritten_rows.PLAIN):
                    self._convert(run)
                continue
            largest = rewritten_rows.count_codecs(chunk.batches, run.row, run.stop, counts)
            self._tally.entries_before += run.stop - run.row
            self._tally.largest_before = max(self._tally.largest_before, largest)
            if run.kind == rewritten_rows.SKIP:
                self._skip(run)
                continue
            _add(self._tally.codecs_before, counts)
            if run.kind == rewritten_rows.LEFT_OUT:
                self._leave_out(run)
            elif run.kind != rewritten_rows.COPY:
                self._check_version(run)
                self._convert(run)
            elif self._codec is None or self._must_repack:
                self._copy(run, counts, largest)
            else:
                self._recompress(run, self._codec)

    @property
    def _must_repack(self) -> bool:
        """Return whether v0 and v1 messages of the target's version are encoded again, to change their codec."""
        return self._codec is not None and self._target < 2

    def _is_unchanged(self, run: BatchRun) -> bool:
        """Return whether messages already have the version and the codec of the target."""
        return (
            self._must_repack
            and run.kind in (rewritten_rows.PLAIN, rewritten_rows.PACKED)
            and run.magic == self._target
            and run.chunk.batches.attributes[run.row] & CODEC_MASK == self._codec
        )

    def _convert(self, run: BatchRun) -> None:
        codec = run.chunk.batches.attributes[run.row] & CODEC_MASK if self._codec is None else self._codec
        if run.kind == rewritten_rows.PACKED and run.magic < 2 and not run.chunk.resumed:
            self._count_wrapper_keys(run)
        if run.kind == rewritten_rows.DROP:
            for row in range(run.row, run.stop):
                self._count_losses(run.chunk.batches, row)
        elif self._target >= 2:
            self._to_batches(run, codec)
        else:
            self._to_messages(run, codec)

    def finish(self) -> None:
        """Write the records that are still being packed."""
        self._packer.flush()

    def _check_version(self, run: BatchRun) -> None:
        if run.magic not in self._plan.sources and run.magic != self._target:
            position = run.chunk.batches.position[run.row]
            why = self._plan.why_rejected(run.magic)
            raise WrongVersionError(f"{self._tally.source}: the batch at byte {position} is {why}")

    def _count_written(self, entry: memoryview, codec: int) -> None:
        """Count one batch of the target's version."""
        self._write(entry)
        self._count(1, codec, len(entry))

    def _count(self, entries: int, codec: int, largest: int) -> None:
        self._tally.entries_after += entries
        self._tally.codecs_after[codec_name(codec)] += entries
        self._tally.largest_after = max(self._tally.largest_after, largest)

    def _skip(self, run: BatchRun) -> None:
        batches = run.chunk.batches
        self._tally.skipped += run.stop - run.row
        for row in range(run.row, run.stop):
            # The reader counts batches with a wrong CRC.
            self._tally.lost_bytes += batches.size[row] if batches.crc_state[row] != CRC_BAD else 0

    def _leave_out(self, run: BatchRun) -> None:
        """Write a batch without records in place of each that another cluster must not have, and count it."""
        batches, rules = run.chunk.batches, self._plan.another_cluster
        for row in range(run.row, run.stop):
            # The offset of a wrapper of early librdkafka is 0, whatever its messages have.
            last = (batches.last_offset if batches.magic[row] >= 2 else batches.last_record_offset)[row]
            first = rewritten_rows.first_offset(batches, row)
            if rules and (kind := rules.removal_of(batches, row)):
                self._tally.count_loss(kind, max(0, batches.record_count[row]), first, last)
            self._packer.flush()
            self._count_written(memoryview(conversion_plan.empty_batch(first, last)), 0)

    def _rewritten(self, run: BatchRun) -> tuple[memoryview, int]:
        """Return the bytes of a run as another cluster can have them, and how many batches are unchanged."""
        rules, batches = self._plan.another_cluster, run.chunk.batches
        if rules is None:
            return run.stored, run.stop - run.row
        written, start, changed = memoryview(bytearray(run.stored)), batches.at[run.row], 0
        for row in range(run.row, run.stop):
            at = batches.at[row] - start
            changed += rules.rewrite(written[at : at + batches.size[row]])
            if not rules.keep_producers and batches.base_sequence[row] >= 0:
                self._tally.count_loss("sequences", 1, batches.base_offset[row], batches.last_offset[row])
        return written, run.stop - run.row - changed

    def _copy(self, run: BatchRun, counts: list[int], largest: int) -> None:
        self._packer.flush()
        self._append_epochs(run)
        written, unchanged = self._rewritten(run)
        self._write(written)
        tally = self._tally
        tally.copied += unchanged
        tally.entries_after += run.stop - run.row
        tally.records += run.end - run.i if run.chunk.payload_size is None else run.chunk.batches.record_sum[run.row]
        tally.largest_after = max(tally.largest_after, largest)
        _add(tally.codecs_after, counts)

    def _recompress(self, run: BatchRun, codec: int) -> None:
        """Write v2 batches with that codec and otherwise unchanged; control and empty batches stay uncompressed."""
        self._packer.flush()
        self._append_epochs(run)
        chunk, batches = run.chunk, run.chunk.batches
        for row in range(run.row, run.stop):
            attributes = batches.attributes[row]
            entry, unchanged = self._rewritten(run._replace(row=row, stop=row + 1))
            if attributes & CODEC_MASK == codec or attributes & layout.CONTROL or not batches.record_count[row]:
                self._tally.copied += unchanged
                self._count_written(entry, attributes & CODEC_MASK)
            else:
                payload = chunk.payloads.get(row, entry[layout.RECORD_BATCH_OVERHEAD :])
                if chunk.payload_size not in (None, len(payload)):
                    where = f"{self._tally.source}: the batch at byte {batches.position[row]}"
                    raise KsegError(f"{where} has {chunk.payload_size} bytes of records, too many to compress again")
                self._count_written(_with_codec(entry, payload, codec), codec)
        self._tally.records += run.end - run.i if chunk.payload_size is None else batches.record_sum[run.row]

    def _append_epochs(self, run: BatchRun) -> None:
        """Make later batches have at least the leader epoch of the copied ones."""
        batches = run.chunk.batches
        highest = max(batches.partition_leader_epoch[row] for row in range(run.row, run.stop))
        if self._target < 2 or highest < 0 or self._plan.another_cluster:
            return
        self._packer.leader_epoch = max(self._packer.leader_epoch, highest)
        if self._tally.epochless_bytes is None:
            self._tally.epochless_bytes = self._tally.bytes_after

    def _to_batches(self, run: BatchRun, codec: int) -> None:
        self._tally.records += run.end - run.i
        rules = self._plan.another_cluster
        if rules and rules.holds_log_start(run.chunk):
            self._packer.flush()
            for entry, own_codec in rules.part_of(run, codec, self._tally.count_loss):
                self._count_written(entry, own_codec)
            return
        records, batches = run.chunk.records, run.chunk.batches
        data = payload_of(run.chunk, run.row)
        append_time = batches.attributes[run.row] & LOG_APPEND_TIME if run.magic else 0
        if run.kind == rewritten_rows.PACKED:
            self._packer.add_entry(data, records, run.i, run.end, codec, append_time)
        elif self._plan.rebatch or codec:
            self._packer.add_messages(data, records, run.i, run.end, batches, codec)
        else:
            out = self._buffer.reserve(run.room)
            end, largest = encoder.encode_single_batches(
                data, records, run.i, run.end, batches, self._packer.leader_epoch, out, 0
            )
            self._write(self._buffer.view[:end])
            self._count(run.end - run.i, codec, largest)

    def _to_messages(self, run: BatchRun, codec: int) -> None:
        if run.magic < 2 and run.kind == rewritten_rows.PLAIN:
            step = 1 if codec else max(run.end - run.i, 1)  # each message of a codec is a wrapper of its own
            for i in range(run.i, run.end, step):
                self._message_set(run, run.row + i - run.i, i, i + step, codec)
            return
        batches = run.chunk.batches
        for row in range(run.row, run.stop):
            first, total = batches.first_record[row], batches.record_total[row]
            if run.magic >= 2 and not run.chunk.resumed:
                self._count_losses(batches, row)
            if total:
                self._message_set(run, row, first, first + total, codec)

    def _message_set(self, run: BatchRun, row: int, first: int, stop: int, codec: int) -> None:
        """Return the records ``first`` to ``stop`` as messages, in one compressed wrapper if there is a codec."""
        if (known := CODECS.get(codec)) is not None and known.first_magic > self._target:
            where = f"{self._tally.source}: the batch at byte {run.chunk.batches.position[row]}"
            raise UsageError(
                f"{where} is compressed with {known.name}, which v{self._target} does not have: choose a --compression"
            )
        chunk, target = run.chunk, self._target
        records, batches = chunk.records, chunk.batches
        if not target:
            timed = rewritten_rows.count_timed(records, first, stop)
            self._tally.count_loss("timestamps", timed, records.offset[first], records.offset[stop - 1])
        attributes = batches.attributes[row] & LOG_APPEND_TIME if batches.magic[row] and target else 0
        out = self._buffer.reserve(run.room)
        shift = records.offset[first] if codec and target else 0
        end = encoder.encode_messages(payload_of(chunk, row), records, first, stop, target, shift, attributes, out, 0)
        self._tally.records += stop - first
        if not codec:
            self._write(self._buffer.view[:end])
            self._count(stop - first, codec, end if stop - first == 1 else 0)
            return
        timestamp = encoder.largest_timestamp(records, first, stop) if target else layout.NO_TIMESTAMP
        if attributes:  # that of each of its records
            timestamp = records.timestamp[first]
        offset = records.offset[stop - 1]
        wrapper = wrap(self._buffer.view[:end], target, codec, attributes, offset, timestamp)
        self._count_written(memoryview(wrapper), codec)

    def _count_wrapper_keys(self, run: BatchRun) -> None:
        """Count the keys of the outer messages: their messages have keys of their own, and nothing else holds these."""
        batches, key_at = run.chunk.batches, layout.V1_KEY_AT if run.magic else layout.V0_KEY_AT
        for row in range(run.row, run.stop):
            at = batches.at[row] + key_at
            size = int.from_bytes(run.chunk.window.view[at : at + 4], "big", signed=True)
            if size >= 0 and row in run.chunk.payloads:
                last = batches.last_offset[row]
                self._tally.count_loss("wrapper-keys", 1, last, last)

    def _count_losses(self, batches: BatchColumns, row: int) -> None:
        first, last, attributes = batches.base_offset[row], batches.last_offset[row], batches.attributes[row]
        control = attributes & layout.CONTROL
        for kind, count in (
            ("headers", batches.header_total[row]),
            ("transactions", attributes & layout.TRANSACTIONAL and not control),
            ("sequences", batches.producer_id[row] >= 0 and batches.base_sequence[row] >= 0),
            ("leader-epochs", batches.partition_leader_epoch[row] >= 0),
            ("delete-horizons", attributes & layout.DELETE_HORIZON),
            ("control-records", batches.record_count[row] if control else 0),
            ("empty-batches", not batches.record_count[row]),
        ):
            self._tally.count_loss(kind, count if kind in COUNTED_BY_RECORD else int(bool(count)), first, last)
