"""``kseg stats`` of one file: its batches or frames, and the cost of each record version.

The cost of a version is the bytes besides keys and values, the size as v2, and the size with each codec.

Sizes as v2 and with codecs are estimates: the first from mean sizes, the second from a sample.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby

from kseg.commands.stats import counting
from kseg.commands.stats.counting import FAR, Counts
from kseg.commands.stats.totals import (
    GROUP_SUMS,
    SCALAR_SUMS,
    CountedOffsets,
    LargestSums,
    RetentionPin,
    Stats,
    bound_epochs,
)
from kseg.errors import KsegError, NotASegmentError
from kseg.findings import Finding, Report, Severity, do_nothing
from kseg.format.checks.run_checks import ClaimedOffsets, new_collector
from kseg.format.compress import codecs
from kseg.format.compress.codecs import codec_name
from kseg.format.record import layout
from kseg.format.record.columns import CRC_BAD
from kseg.format.record.layout import CODEC_MASK, CONTROL
from kseg.format.segment.deep_reader import DeepIterator
from kseg.format.segment.framed_files import LOSING, ReadSettings, RecordSet, framing
from kseg.format.segment.records_chunk import Chunk
from kseg.format.segment.segment_reader import SegmentReader, Window
from kseg.format.storage.file_access import Progress
from kseg.format.storage.segment_files import SegmentFile, unless_deleted
from kseg.format.storage.source import Source, open_source
from kseg.results import FileResult, FindingCollector, Settings, Summary
from kseg.schema import Row

#: The default of batch.size in producers: records are packed into batches of this size, in bytes.
PACKED = 16 * 1024
#: The pieces of PACKED bytes that are compressed per file with each codec, at most one of each chunk.
MAX_PIECES = 8
_SAMPLED = "sampled"


def add_sample(chunk: Chunk, sample: Counter[str]) -> None:
    """Compress a piece of the chunk's records with each codec; count its bytes before and after in ``sample``."""
    if sample[_SAMPLED] >= MAX_PIECES * PACKED:
        return
    piece = b""
    for row in range(chunk.first, chunk.stop):
        piece += bytes(_payload(chunk, row)[: PACKED - len(piece)])
        if len(piece) >= PACKED:
            break
    if piece:
        sample[_SAMPLED] += len(piece)
        for codec in codecs.CODECS.values():
            if codec.id:
                sample[codec.name] += len(codecs.compress(codec.id, piece))


def _payload(chunk: Chunk, row: int) -> memoryview:
    """Return the decompressed records of a batch; of a message without compression, its key and value."""
    if row in chunk.payloads:
        return chunk.payloads[row]
    batches = chunk.batches
    at, end, magic = batches.at[row], batches.at[row] + batches.size[row], batches.magic[row]
    begin = layout.RECORD_BATCH_OVERHEAD if magic >= 2 else layout.V1_KEY_AT if magic else layout.V0_KEY_AT
    return chunk.window.view[at + begin : end]


def version_rows(stats: Stats) -> dict[str, Row]:
    """Return by version the bytes of keys and values, and all others after decompression, in all and per record.

    A version with a batch that could not be opened has none.
    """
    rows: dict[str, Row] = {}
    for magic, group in by_magic(stats).items():
        if group["unopened"]:  # what its bytes are is not known
            continue
        content = stats.contents[magic]
        other = _expanded(group) - content
        per_record = round(other / group["records"], 2) if group["records"] else None
        rows[str(magic)] = {"content_bytes": content, "overhead_bytes": other, "overhead_per_record": per_record}
    return rows


def by_magic(stats: Stats) -> dict[int, Counter[str]]:
    """Return the sums of the groups by version."""
    found: dict[int, Counter[str]] = {}
    for (magic, _), group in sorted(stats.groups.items()):
        found.setdefault(magic, Counter()).update(group)
    return found


def _expanded(group: Counter[str]) -> int:
    return group["bytes"] - group["stored"] + group["inflated"]


def as_v2(stats: Stats) -> Row | None:
    """Return the estimated size of all v0 and v1 messages as v2, None without such messages.

    ``bytes`` is their size today after decompression, ``converted_bytes`` that with a batch for each message or compressed
    message set, as ``kseg convert`` writes them, and ``packed_bytes`` that in batches of PACKED bytes (``--rebatch``).
    """
    groups = {magic: group for magic, group in by_magic(stats).items() if magic < 2 and group["records"]}
    if not groups or any(group["unopened"] for group in groups.values()):
        return None
    content = sum(stats.contents[magic] for magic in groups)
    records = sum(group["records"] for group in groups.values())
    size = content / records + _record_overhead(content / records)
    payload = round(records * size)
    batches = sum(group["batches"] for group in groups.values())
    # In a larger batch the offset delta of a record needs more bytes.
    packed = payload + records * (_varint_size(min(records, PACKED / size) / 2) - 1)
    return {
        "bytes": sum(_expanded(group) for group in groups.values()),
        "converted_bytes": payload + layout.RECORD_BATCH_OVERHEAD * batches,
        "packed_bytes": packed + layout.RECORD_BATCH_OVERHEAD * math.ceil(packed / PACKED),
    }


def _record_overhead(content: float) -> int:
    """Return the bytes of a v2 record besides its key and value, for a record of the mean size."""
    # attributes, timestamp delta, offset delta, key length, value length, number of headers
    inner = 5 + _varint_size(content)
    return inner + _varint_size(content + inner)


def _varint_size(value: float) -> int:
    return max(1, math.ceil((int(value) * 2).bit_length() / 7))


def codec_rows(stats: Stats) -> Row | None:
    """Return the estimated bytes of all records with each codec, in batches of PACKED bytes; None without a sample."""
    sampled = stats.sample[_SAMPLED]
    if not sampled:
        return None
    # The sample has the lengths of key and value, as a v2 record has; those of plain v0 and v1 messages are in the header.
    lengths = 8 * sum(
        group["batches"] for (magic, codec), group in stats.groups.items() if magic < 2 and codec == "none"
    )
    inflated = stats.total("inflated") + lengths
    estimates = {name: round(inflated * size / sampled) for name, size in stats.sample.items() if name != _SAMPLED}
    return {"sampled_bytes": sampled, "none": inflated, **estimates}


@dataclass(frozen=True, slots=True)
class SegmentStats:
    """The counts of one file, and the findings (``result``); counts are empty if the file can't be read."""

    stats: Stats
    result: FileResult


def segment_stats(file: SegmentFile, settings: Settings, progress: Progress = do_nothing) -> SegmentStats:
    """Count one segment. An unreadable file is a result, never an exception."""
    policy = settings.policy.with_defaults({"offset-gap": Severity.WARNING})  # an offset that only a header claims
    tally = new_collector(file, replace(settings, policy=policy))
    stats = Stats(settings.deep, partitions=1, keys=LargestSums() if settings.keys else None)
    try:
        source = open_source(file.path, listed=file.listed)
        if file.framing:
            with source:
                _count_framed(source, file, stats, tally, settings, progress)
        else:
            with SegmentReader(source, report=tally, verify_crc=settings.verify_crc) as reader:
                _count(reader, stats, file.path, tally, progress)
    except KsegError as error:
        if not (reported := unless_deleted(error, file)):
            return SegmentStats(stats, FileResult(file.path, (), Summary(), vanished=True))
        stats.sums["unread"] = 1
        tally.fail(reported)
    return SegmentStats(stats, tally.result())


def _count(reader: SegmentReader, stats: Stats, path: str, tally: FindingCollector, progress: Progress) -> None:
    counts = _new_counts(stats)
    done = 0
    for _ in _counted_windows(reader, stats, counts, tally, ClaimedOffsets(path, tally)):
        progress(reader.position - done)
        done = reader.position
    progress(reader.position - done)
    stats.sums.update(segments=1, file_bytes=reader.position, lost_bytes=reader.lost_bytes)
    _add_sums(counts, stats, path)


def _new_counts(stats: Stats) -> Counts:
    counts = Counts()
    stats.producers.by_id, stats.leader_epochs = counts.producers, counts.leader_epochs
    stats.hours.by_id = counts.hours
    return counts


def _counted_windows(
    reader: SegmentReader, stats: Stats, counts: Counts, report: Report, offsets: ClaimedOffsets | None = None
) -> Iterator[Window]:
    """Yield the windows of a segment or a record set after their batches were counted. ``offsets`` is of a segment."""
    opener = DeepIterator(report)
    for window in reader.windows():
        claimed: set[int] = offsets.update(window.batches) if offsets else set()
        if stats.deep:
            for chunk in opener.chunks(window):
                _count_chunk(chunk, claimed, counts, stats)
        else:
            counting.count_batches(window.batches, 0, window.batches.count, False, claimed, counts)
        stats.producers.bound()
        stats.hours.bound()
        stats.leader_epochs_dropped += bound_epochs(counts.leader_epochs)
        yield window


def _count_framed(
    source: Source, file: SegmentFile, stats: Stats, tally: FindingCollector, settings: Settings, progress: Progress
) -> None:
    """Count the frames or messages of a file that is not a log, and the batches of the record sets in it.

    Offsets are those of one log, so only a record set that is the whole file has them. No file is kept by time.
    """
    kind, counts = framing(str(file.framing)), _new_counts(stats)
    done = lost = added = 0
    one_log = False

    def report(finding: Finding) -> None:
        nonlocal lost
        lost += (finding.end or 0) - (finding.position or 0) if finding.rule in LOSING else 0
        tally(finding)

    for part in kind.walk(source, report, ReadSettings(settings.verify_crc, file.requests)):
        if isinstance(part, RecordSet):
            added, one_log = part.added, not part.place
            lost += _count_set(part, stats, counts, tally, settings)
        elif part["kind"] == "record":
            _count_message(part, stats)
        else:
            stats.add_frames(part["kind"], part["api_name"] or "", 1, part["size"] + kind.size_field)
        progress(source.position - done)
        done = source.position
    source.check_not_empty()
    progress(source.position - done)
    stats.sums.update(framed_files=1, file_bytes=source.position, lost_bytes=lost)
    _add_sums(counts, stats, file.path)
    stats.pin = None
    if not one_log:
        stats.offsets, stats.leader_epochs, stats.leader_epochs_dropped = CountedOffsets(), {}, 0
    _remove_added(stats, added)


def _count_set(part: RecordSet, stats: Stats, counts: Counts, tally: FindingCollector, settings: Settings) -> int:
    """Count a record set; return its lost bytes."""
    if part.place.get("crc_valid") is False:
        stats.sums.update(damaged=1, damaged_bytes=part.place["size"])
        return 0  # the framing has reported it
    report = part.report_for(tally)
    reader = SegmentReader(part.source, report=report, verify_crc=settings.verify_crc)
    try:
        for _ in _counted_windows(reader, stats, counts, report):
            pass
    except NotASegmentError:
        if not part.place:
            raise
        report(part.without_batches)
        return (part.source.size or 0) - part.source.start
    return part.lost_bytes(reader.lost_bytes - report.partial)


def _count_message(row: Row, stats: Stats) -> None:
    """Count a message that is not a batch of Kafka: its row has everything."""
    if row["crc_valid"] is False:
        stats.sums.update(damaged=1, damaged_bytes=row["size"])
        return
    magic = max(min(row["magic"], 2), 0)
    group = stats.groups.setdefault((magic, row["compression"]), Counter())
    group.update(batches=1, records=1, bytes=row["size"])
    stats.batch_size.add(CountedOffsets(row["size"], row["size"]))
    stats.records_per_batch.add(CountedOffsets(1, 1))
    sizes = {name: -1 if row[name] is None else len(row[name]) for name in ("key", "value")}
    stats.contents[magic] += max(sizes["key"], 0) + max(sizes["value"], 0)
    stats.sums.update(
        null_keys=sizes["key"] < 0,
        null_values=sizes["value"] < 0,
        tombstones=sizes["value"] < 0 <= sizes["key"],
        key_bytes=max(sizes["key"], 0),
        value_bytes=max(sizes["value"], 0),
    )


def _remove_added(stats: Stats, added: int) -> None:
    """Subtract the ``added`` bytes of each batch that the file does not contain from the sizes."""
    if added:
        for group in stats.groups.values():
            group["bytes"] -= added * group["batches"]
        sizes = (stats.batch_size.smallest, stats.batch_size.largest)
        stats.batch_size = CountedOffsets(*(None if size is None else size - added for size in sizes))


def _count_chunk(chunk: Chunk, claimed: set[int], counts: Counts, stats: Stats) -> None:
    batches = chunk.batches
    if not chunk.resumed:
        counting.count_batches(batches, chunk.first, chunk.stop, True, claimed, counts)
        for row, payload in chunk.payloads.items():
            if batches.attributes[row] & CODEC_MASK:
                size = len(payload) if chunk.payload_size is None else chunk.payload_size
                counting.count_payload(batches, row, size, counts)
    for magic, rows in groupby(range(chunk.first, chunk.stop), key=lambda row: min(batches.magic[row], 2)):
        first, *_, last = (*rows,) * 2
        before = counts.key_bytes + counts.value_bytes
        counting.count_records(batches, chunk.records, first, last + 1, counts)
        stats.contents[magic] += counts.key_bytes + counts.value_bytes - before
    if stats.keys is not None:
        _count_keys(chunk, stats.keys)
    add_sample(chunk, stats.sample)
    for row in counting.control_record_rows(batches, chunk.first, chunk.stop):
        for i in chunk.rows(row):
            marker = chunk.control(i)
            if marker:
                stats.control_types[marker.type] += 1


#: The bytes of a key that identify it: longer keys with the same beginning are counted as one.
KEY_BYTES = 1024
#: The bytes of a record besides its key and value, about.
_RECORD_OVERHEAD = 8


def _count_keys(chunk: Chunk, keys: LargestSums) -> None:
    """Add the records of a chunk by key: to each its share of the stored bytes of its batch."""
    batches, columns = chunk.batches, chunk.lists
    for row in range(chunk.first, chunk.stop):
        if batches.crc_state[row] == CRC_BAD or (batches.magic[row] >= 2 and batches.attributes[row] & CONTROL):
            continue
        contents = [
            max(columns.key_size[i], 0) + max(columns.value_size[i], 0) + _RECORD_OVERHEAD for i in chunk.rows(row)
        ]
        # Of a large batch, a chunk has only a part of the records.
        share = batches.size[row] / max(chunk.payload_size or sum(contents), 1)
        payload = chunk.payload(row)
        for i, content in zip(chunk.rows(row), contents, strict=True):
            at, size = columns.key_at[i], columns.key_size[i]
            key = None if size < 0 else bytes(payload[at : at + min(size, KEY_BYTES)])
            keys.add_one(key, 0, round(content * share), 1)
        keys.bound()


def _add_sums(counts: Counts, stats: Stats, path: str) -> None:
    """Convert the sums of the loops to ``Stats``."""
    for group in range(counting.GROUPS):
        if counts.batches[group]:
            magic, codec = divmod(group, counting.CODECS)
            sums = Counter({name: getattr(counts, name)[group] for name in GROUP_SUMS})
            stats.groups[magic, codec_name(codec)] = sums
    stats.sums.update({name: getattr(counts, name) for name in SCALAR_SUMS})
    stats.sums["legacy_segments"] = int(any(magic < 2 for magic, _ in stats.groups))
    stats.batch_size.add(_range(counts.smallest_batch, counts.largest_batch))
    stats.records_per_batch.add(_range(counts.fewest_records, counts.most_records))
    stats.offsets = _range(counts.first_offset if counts.first_offset >= 0 else FAR, counts.last_offset)
    stats.timestamps = _range(counts.smallest_timestamp, counts.largest_timestamp)
    stats.odd_timestamps.update(counts.odd_timestamps)
    stats.sizes.update({bucket: count for bucket, count in enumerate(counts.sizes) if count})
    stats.largest_record = counts.largest_record
    if counts.pin_position >= 0:
        stats.pin = RetentionPin(
            counts.largest_timestamp, path, counts.pin_position, counts.pin_offset, counts.pin_producer
        )


def _range(smallest: int, largest: int) -> CountedOffsets:
    return CountedOffsets(None if smallest == FAR else smallest, None if largest < 0 else largest)
