"""Rows of ``kseg stats``: one per segment, partition, log directory and total."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from kseg.commands.stats import counted_file
from kseg.commands.stats.counting import HOUR, largest_in
from kseg.commands.stats.levels import Level
from kseg.commands.stats.totals import CountedOffsets, RetentionDelay, Stats
from kseg.format.segment.records_chunk import ENCODERS
from kseg.report.row_formats import RowSet
from kseg.schema import Column, Row, RowKind


def _deep_sum(name: str, level: Level) -> int | None:
    return level.stats.sums[name] if level.stats.deep else None


#: The percentiles of sizes.
_PERCENTILES = (50, 90, 99)
_LEVELS = ("segment", "partition", "log_dir", "total")
_COUNTED = (
    Column("batches", "count", "number of batches"),
    Column("bytes", "count", "their bytes"),
    Column("records", "count?", "their records; null if a batch could not be opened"),
)
_RANGE = (
    Column("min", "int?", "the smallest"),
    Column("mean", "float?", "the mean"),
    Column("max", "int?", "the largest"),
)
_PIN = (
    Column("file", "text", "the segment"),
    Column("position", "count", "first byte of the batch"),
    Column("last_offset", "int?", "last offset of the batch", lambda pin: _from_zero(pin.last_offset)),
    Column("producer_id", "int?", "producer of the batch", lambda pin: _from_zero(pin.producer_id)),
)


def _of_pin(column: Column) -> Callable[[RetentionDelay], Any]:
    value = column.of_item()
    return lambda delay: value(delay.pin)


FIELDS = RowKind("stats", "Statistics", "a row per segment, partition, log directory and total").of(
    "stats",
    Column("level", "text", "segment is also a file that is read with `--as`", values=_LEVELS),
    Column("path", "text?", "null for the total"),
    Column("segments", "count", "number of segments", "stats.sums.segments"),
    Column("legacy_segments", "count", "segments with v0 or v1", "stats.sums.legacy_segments"),
    Column("unread", "count", "files that could not be read", "stats.sums.unread"),
    Column("file_bytes", "count", "bytes of the files", "stats.sums.file_bytes"),
    Column("batches", "count", "number of batches", lambda level: level.stats.total("batches")),
    Column("bytes", "count", "bytes of the batches", lambda level: level.stats.total("bytes")),
    Column("records", "count?", "null if a batch could not be opened", lambda level: _records(level.stats.groups.values())),
    Column("damaged_batches", "count", "batches with a wrong CRC", "stats.sums.damaged"),
    Column("damaged_bytes", "count", "bytes of damaged batches", "stats.sums.damaged_bytes"),
    Column("lost_bytes", "count", "bytes that no reader can use", "stats.sums.lost_bytes"),
    Column("first_offset", "int?", "of one partition only", "stats.offsets.smallest"),
    Column("last_offset", "int?", "of one partition only", "stats.offsets.largest"),
    Column(
        "magics", "map", "counts by record version", lambda level: _magic_rows(level.stats),
        of=(
            *_COUNTED,
            Column("content_bytes", "[int]", "bytes of keys and values; with `--deep`"),
            Column("overhead_bytes", "[int]", "all other bytes, decompressed; with `--deep`"),
            Column("overhead_per_record", "[float?]", "these bytes per record; with `--deep`"),
        ),
    ),
    Column(
        "compressions", "map", "counts by codec", lambda level: _codec_rows(level.stats),
        of=(
            *_COUNTED,
            Column("stored_bytes", "count?", "compressed bytes; with `--deep`"),
            Column("inflated_bytes", "count?", "bytes after decompression; with `--deep`"),
            Column("ratio", "float?", "inflated_bytes by stored_bytes"),
        ),
    ),
    Column(
        "as_v2", "object?", "estimated size of v0 and v1 messages as v2; with `--deep`",
        lambda level: counted_file.as_v2(level.stats) if level.stats.deep else None,
        of=(
            Column("bytes", "int", "size today, decompressed"),
            Column("converted_bytes", "int", "with a batch for each message, as `kseg convert` writes them"),
            Column("packed_bytes", "int", "in large batches (`--rebatch`)"),
        ),
    ),
    Column(
        "estimated_bytes", "map?", "estimated bytes of all records by codec, from sampled_bytes; with `--deep`",
        lambda level: counted_file.codec_rows(level.stats) if level.stats.deep else None, of=(Column("", "count", "bytes"),),
    ),
    Column(
        "batch_size", "object", "bytes of a batch", lambda level: _range_row(
            level.stats.batch_size, level.stats.total("bytes"), level.stats.total("batches")), of=_RANGE,
    ),
    Column(
        "records_per_batch", "object", "records of a batch", lambda level: _range_row(level.stats.records_per_batch,
            level.stats.total("records"), level.stats.total("batches") - level.stats.total("unopened")), of=_RANGE,
    ),
    Column("min_timestamp", "ms?", "with `--deep`", "stats.timestamps.smallest"),
    Column("max_timestamp", "ms?", "largest timestamp of a batch", "stats.timestamps.largest"),
    Column(
        "max_timestamp_at", "object?", "the first batch with it, which delays time retention", "stats.pin",
        of=_PIN,
    ),
    Column(
        "retention_delays", "objects", "batches that keep later segments with smaller timestamps", "stats.delays",
        of=(
            Column("timestamp", "ms", "its timestamp", "pin.timestamp"),
            *(column._replace(value=_of_pin(column)) for column in _PIN),
            Column("held_segments", "count", "the later segments", "segments"),
            Column("held_bytes", "count", "their bytes", "bytes"),
            Column("longest_ms", "count", "how much longer one of them is kept, in milliseconds", "longest"),
        ),
    ),
    Column("held_segments", "count", "segments that are kept longer", "stats.sums.held_segments"),
    Column("batches_without_timestamp", "count", "batches without a timestamp", "stats.sums.timeless"),
    Column(
        "odd_timestamps", "map", "batches with timestamps that look like another unit", "stats.odd_timestamps",
        of=(Column("", "count", "batches"),),
    ),
    *(
        Column(name, "count?", f"{meaning}; with `--deep`", partial(_deep_sum, name))
        for name, meaning in {
            "null_keys": "records without a key",
            "null_values": "records without a value",
            "tombstones": "records with a key and without a value",
            "key_bytes": "bytes of keys",
            "value_bytes": "bytes of values",
            "headers": "number of record headers",
        }.items()
    ),
    Column(
        "record_size", "object?", "bytes of key and value of a record; with `--deep`", lambda level: _sizes_row(level.stats),
        of=(
            *(Column(f"p{part}", "count", f"{part} % of the records have at most this size, 1/8 too high at most")
              for part in _PERCENTILES),
            Column("max", "count", "the largest"),
        ),
    ),
    Column(
        "by_hour", "objects", "batches by the hour of their largest timestamp", lambda level: _hour_rows(level.stats),
        of=(Column("timestamp", "ms", "start of the hour"), *_COUNTED),
    ),
    Column("hours_exact", "bool", "whether all hours are listed: of very many the largest are", "stats.hours.exact"),
    Column(
        "keys", "object?", "estimated bytes on disk by key; with `--top-keys`", lambda level: None,  # depends on ``top``
        of=(
            Column("exact", "bool", "whether each key has all of its records; if not, its sums are lower bounds"),
            Column(
                "top", "objects", "the largest keys",
                of=(
                    Column("key", "text?", "the key, of a long one the first 1,024 bytes; null for records without a key"),
                    Column("key_encoding", "[text]", "base64, where the key is not UTF-8"),
                    Column("records", "count", "their number"),
                    Column("disk_bytes", "count", "their share of the stored bytes of the batches, by size: an estimate"),
                ),
            ),
        ),
    ),
    Column("transactional_batches", "count", "data batches of transactions", "stats.sums.transactional"),
    Column("control_batches", "count", "batches with control records", "stats.sums.control"),
    Column(
        "control_records", "map?", "control records by type; with `--deep`",
        lambda level: dict(sorted(level.stats.control_types.items())) if level.stats.deep else None,
        of=(Column("", "count", "control records"),),
    ),
    Column(
        "producers", "object", "batches with a producer id", lambda level: None,  # depends on ``top``
        of=(
            Column("ids", "count?", "number of producers; null if they are too many to count"),
            Column("batches", "count", "number of batches"),
            Column("bytes", "count", "their bytes"),
            Column("exact", "bool", "whether each producer has all of its batches"),
            Column(
                "top", "objects", "the largest producers",
                of=(
                    Column("producer_id", "int", "the producer"),
                    Column("batches", "count", "number of batches"),
                    Column("records", "count", "their records"),
                    Column("bytes", "count", "their bytes"),
                ),
            ),
        ),
    ),
    Column(
        "leader_epochs", "objects", "the newest leader epochs; of one partition only",
        lambda level: [
            {"epoch": epoch, "batches": batches, "first": first, "last": None if first < 0 else last}
            for epoch, (batches, first, last) in sorted(level.stats.leader_epochs.items())
        ],
        of=(
            Column("partition_leader_epoch", "int", "the leader epoch", "epoch"),
            Column("first_offset", "int?", "its first offset; null if unknown", lambda one: _from_zero(one["first"])),
            Column("last_offset", "int?", "its last offset", "last"),
            Column("batches", "count", "number of batches"),
        ),
    ),
    Column("leader_epochs_left_out", "count", "older leader epochs, which are not listed", "stats.leader_epochs_dropped"),
    Column("framed_files", "count", "files that were read with `--as`", "stats.sums.framed_files"),
    Column(
        "frames", "objects", "requests and responses by API",
        lambda level: [
            {"kind": kind, "api_name": api or None, "frames": frames, "bytes": size}
            for (kind, api), (frames, size) in sorted(level.stats.frames.items())
        ],
        of=(
            Column("kind", "text", "kind of the frames", "kind", values=("request", "response")),
            Column("api_name", "text?", "name of the API; null if it is unknown"),
            Column("frames", "count", "number of frames"),
            Column("bytes", "count", "their bytes, with the size fields"),
        ),
    ),
)  # fmt: skip
ROW_KINDS = (FIELDS,)


def rows(levels: Iterable[Level], top: int) -> RowSet:
    """Return a row per level, with its ``top`` producers."""
    return RowSet.of(FIELDS.columns, (stats_row(level, top) for level in levels))


def stats_row(level: Level, top: int) -> Row:
    """Return one level as a row, with its ``top`` producers. Values that need opened batches are null without --deep."""
    return _row(level) | {"producers": _producers_row(level.stats, top), "keys": _keys_row(level.stats, top)}


_row = FIELDS.maker()


def _magic_rows(stats: Stats) -> Row:
    costs = counted_file.version_rows(stats) if stats.deep else {}
    groups = {str(magic): group for magic, group in counted_file.by_magic(stats).items()}
    return {magic: _group_row(group) | costs.get(magic, {}) for magic, group in groups.items()}


def _records(groups: Iterable[Counter[str]]) -> int | None:
    return None if any(group["unopened"] for group in groups) else sum(group["records"] for group in groups)


def _group_row(group: Counter[str]) -> Row:
    return {"batches": group["batches"], "bytes": group["bytes"], "records": _records([group])}


def _codec_rows(stats: Stats) -> Row:
    found: dict[str, Counter[str]] = {}
    for (_, codec), group in sorted(stats.groups.items()):
        found.setdefault(codec, Counter()).update(group)
    sizes = {
        codec: (group["stored"], group["inflated"]) if stats.deep else (None, None) for codec, group in found.items()
    }
    return {
        codec: {
            **_group_row(group), "stored_bytes": stored, "inflated_bytes": inflated,
            "ratio": round(inflated / stored, 3) if stored and inflated is not None else None,
        }
        for (codec, group), (stored, inflated) in zip(found.items(), sizes.values(), strict=True)
    }  # fmt: skip


def _range_row(extent: CountedOffsets, total: int, count: int) -> Row:
    return {"min": extent.smallest, "mean": round(total / count, 2) if count else None, "max": extent.largest}


def _from_zero(number: int) -> int | None:
    return None if number < 0 else number


def _producers_row(stats: Stats, top: int) -> Row:
    producers = stats.producers
    return {
        "ids": len(producers.by_id) if producers.exact else None,
        "batches": sum(sums[0] for sums in producers.by_id.values()) + producers.dropped[0],
        "bytes": sum(sums[1] for sums in producers.by_id.values()) + producers.dropped[1],
        "exact": producers.exact,
        "top": [
            {"producer_id": producer_id, "batches": batches, "records": records, "bytes": size}
            for producer_id, (batches, size, records) in producers.largest()[:top]
        ],
    }


def _keys_row(stats: Stats, top: int) -> Row | None:
    if stats.keys is None:
        return None
    return {
        "exact": stats.keys.exact,
        "top": [
            {**_key_fields(key), "records": records, "disk_bytes": size}
            for key, (_, size, records) in stats.keys.largest()[:top]
        ],
    }


def _key_fields(key: bytes | None) -> Row:
    text, encoding = (None, None) if key is None else ENCODERS["auto"](key)
    return {"key": text, **({"key_encoding": encoding} if encoding else {})}


def _sizes_row(stats: Stats) -> Row | None:
    total = sum(stats.sizes.values())
    if not total:
        return None
    row: Row = {}
    below, percentiles = 0, [*_PERCENTILES]
    for bucket, count in sorted(stats.sizes.items()):
        below += count
        while percentiles and below * 100 >= percentiles[0] * total:
            row[f"p{percentiles.pop(0)}"] = min(largest_in(bucket), stats.largest_record)
    return row | {"max": stats.largest_record}


def _hour_rows(stats: Stats) -> list[Row]:
    # A batch of v0 or v1 can have an unknown number of records.
    known = _records(stats.groups.values()) is not None
    return [
        {"timestamp": hour * HOUR, "batches": batches, "bytes": size, "records": records if known else None}
        for hour, (batches, size, records) in sorted(stats.hours.by_id.items())
    ]
