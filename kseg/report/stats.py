"""Output of ``kseg stats``: one row per level as JSON Lines, or a table of levels and the total as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import Any, TextIO

from kseg.commands.stats.levels import Level
from kseg.commands.stats.totals import OffsetRange, RetentionPin, Stats
from kseg.report.tables import TableColumn, print_cells, print_text
from kseg.schema import Row
from kseg.text import count_of, escape_controls, inclusive_range, iso_time

_TABLE_PAGE = 500
_EPOCHS_SHOWN = 20


def rows(levels: Iterable[Level], top: int) -> Iterator[Row]:
    """Yield a row per level, with its ``top`` producers."""
    return (stats_row(level, top) for level in levels)


def stats_row(level: Level, top: int) -> Row:
    """Return one level as a row, with its ``top`` producers. Values that need opened batches are null without --deep."""
    stats = level.stats
    sums = stats.sums
    return {
        "kind": "stats",
        "level": level.level,
        "path": level.path,
        "segments": sums["segments"],
        "legacy_segments": sums["legacy_segments"],
        "unread": sums["unread"],
        "file_bytes": sums["file_bytes"],
        "batches": stats.total("batches"),
        "bytes": stats.total("bytes"),
        "records": _records(stats.groups.values()),
        "damaged_batches": sums["damaged"],
        "damaged_bytes": sums["damaged_bytes"],
        "lost_bytes": sums["lost_bytes"],
        "first_offset": stats.offsets.smallest,
        "last_offset": stats.offsets.largest,
        "magics": {str(magic): _group_row(group) for magic, group in _by(stats, 0).items()},
        "compressions": {name: _codec_row(stats, group) for name, group in _by(stats, 1).items()},
        "batch_size": _range_row(stats.batch_size, stats.total("bytes"), stats.total("batches")),
        "records_per_batch": _range_row(
            stats.records_per_batch, stats.total("records"), stats.total("batches") - stats.total("unopened")
        ),
        "min_timestamp": stats.timestamps.smallest,
        "max_timestamp": stats.timestamps.largest,
        "max_timestamp_at": _pin_row(stats.pin),
        "batches_without_timestamp": sums["timeless"],
        "odd_timestamps": dict(stats.odd_timestamps),
        **{name: sums[name] if stats.deep else None for name in _DEEP},
        "transactional_batches": sums["transactional"],
        "control_batches": sums["control"],
        "control_records": dict(sorted(stats.control_types.items())) if stats.deep else None,
        "producers": _producers_row(stats, top),
        "leader_epochs": [_epoch_row(epoch, *span) for epoch, span in sorted(stats.leader_epochs.items())],
        "leader_epochs_left_out": stats.leader_epochs_dropped,
    }


_DEEP = ("null_keys", "null_values", "tombstones", "key_bytes", "value_bytes", "headers")


def _by(stats: Stats, part: int) -> dict[Any, Counter[str]]:
    """Return the sums of the groups by magic (part 0) or codec (part 1)."""
    found: dict[Any, Counter[str]] = {}
    for key, group in sorted(stats.groups.items()):
        found.setdefault(key[part], Counter()).update(group)
    return found


def _records(groups: Iterable[Counter[str]]) -> int | None:
    return None if any(group["unopened"] for group in groups) else sum(group["records"] for group in groups)


def _group_row(group: Counter[str]) -> Row:
    return {"batches": group["batches"], "bytes": group["bytes"], "records": _records([group])}


def _codec_row(stats: Stats, group: Counter[str]) -> Row:
    stored, inflated = (group["stored"], group["inflated"]) if stats.deep else (None, None)
    ratio = round(inflated / stored, 3) if stored and inflated is not None else None
    return {**_group_row(group), "stored_bytes": stored, "inflated_bytes": inflated, "ratio": ratio}


def _range_row(extent: OffsetRange, total: int, count: int) -> Row:
    return {"min": extent.smallest, "mean": round(total / count, 2) if count else None, "max": extent.largest}


def _pin_row(pin: RetentionPin | None) -> Row | None:
    if pin is None:
        return None
    return {
        "file": pin.file,
        "position": pin.position,
        "last_offset": pin.last_offset,
        "producer_id": None if pin.producer_id < 0 else pin.producer_id,
    }


def _producers_row(stats: Stats, top: int) -> Row:
    producers = stats.producers
    return {
        "ids": len(producers.by_id) if producers.exact else None,
        "batches": sum(sums[0] for sums in producers.by_id.values()) + producers.dropped[0],
        "bytes": sum(sums[1] for sums in producers.by_id.values()) + producers.dropped[1],
        "exact": producers.exact,
        "top": [_producer_row(producer_id, *sums) for producer_id, sums in producers.largest()[:top]],
    }


def _producer_row(producer_id: int, batches: int, size: int, records: int) -> Row:
    return {"producer_id": producer_id, "batches": batches, "records": records, "bytes": size}


def _epoch_row(epoch: int, batches: int, first: int, last: int) -> Row:
    return {"partition_leader_epoch": epoch, "first_offset": first, "last_offset": last, "batches": batches}


def write_table(levels: Iterable[Level], top: int, out: TextIO) -> None:
    last: Level | None = None
    shown: list[Level] = []
    for level in levels:
        last = level
        # The sum of a single part would repeat it.
        if level.level == "segment" or level.parts > 1:
            shown.append(level)
        if len(shown) == _TABLE_PAGE:
            _print_levels(shown, out)
            shown.clear()
    if shown:
        _print_levels(shown, out)
    if last is not None:
        _print_details(stats_row(last, top), out)


def _print_levels(levels: list[Level], out: TextIO) -> None:
    cells = []
    for level in levels:
        row = stats_row(level, 0)
        style = "yellow" if row["legacy_segments"] else "" if level.level == "segment" else "bold"
        cells.append(([*_cells(row)], style))
    print_cells(out, _COLUMNS, cells, whole_rows=True)


_COLUMNS = (
    TableColumn("path", text="wrap"),
    TableColumn("batches", right=True, priority=4),
    TableColumn("records", right=True, priority=3),
    TableColumn("bytes", right=True),
    TableColumn("magic", priority=1),
    TableColumn("compression", priority=5),
    TableColumn("offsets", right=True, priority=2),
    TableColumn("max_timestamp", priority=6),
    TableColumn("damage", right=True),
)


def _cells(row: Row) -> Iterator[str]:
    path = "total" if row["path"] is None else row["path"]
    yield escape_controls(path if row["level"] == "segment" else f"{path} ({count_of(row['segments'], 'segment')})")
    for name in ("batches", "records", "bytes"):
        yield _number(row[name])
    yield " ".join(f"v{magic}" for magic in row["magics"]) or "-"
    yield " ".join(row["compressions"]) or "-"
    first, last = row["first_offset"], row["last_offset"]
    yield "-" if last is None else f"{'?' if first is None else first}..{last}"
    yield _time(row["max_timestamp"])
    damage = row["lost_bytes"]  # those of batches with a wrong CRC included
    yield "unreadable" if row["unread"] else count_of(damage, "byte") if damage else "-"


def _print_details(row: Row, out: TextIO) -> None:
    for name, text in _details(row):
        print_text(out, f"{name:12} {escape_controls(text)}", indent=13)


def _details(row: Row) -> Iterator[tuple[str, str]]:
    """Yield the total as (subject, text) lines."""
    for magic, group in row["magics"].items():
        yield f"v{magic}", _counts(group)
    if row["legacy_segments"]:
        yield "", f"v0 or v1 in {row['legacy_segments']:,} of {count_of(row['segments'], 'segment')}"
    for name, group in row["compressions"].items():
        yield name, _counts(group) + (f", compressed {group['ratio']:.2f} times" if group["ratio"] else "")
    for name, extent, unit in (
        ("batch size", row["batch_size"], "bytes"),
        ("", row["records_per_batch"], "records"),
    ):
        if extent["min"] is not None:
            yield name, f"{extent['min']:,} to {extent['max']:,} {unit}, mean {extent['mean']:,}"
    yield from _time_details(row)
    if row["batches"]:
        yield from _record_details(row)
    yield from _writer_details(row)


def _time_details(row: Row) -> Iterator[tuple[str, str]]:
    if row["max_timestamp"] is not None:
        first = "" if row["min_timestamp"] is None else f"{_time(row['min_timestamp'])} to "
        yield "timestamps", f"{first}{_time(row['max_timestamp'])}"
        place = row["max_timestamp_at"]
        producer = "" if place["producer_id"] is None else f", producer {place['producer_id']}"
        ahead = " (in the future)" if row["max_timestamp"] > datetime.now(UTC).timestamp() * 1000 else ""
        yield (
            "newest",
            (
                f"{iso_time(row['max_timestamp'])}{ahead} at byte {place['position']} of {place['file']}, "
                f"last offset {place['last_offset']}{producer}: time retention uses it"
            ),
        )
    if row["batches_without_timestamp"]:
        yield (
            "no timestamp",
            f"{count_of(row['batches_without_timestamp'], 'batch')}: time retention uses the time of the file",
        )
    for unit, count in row["odd_timestamps"].items():
        yield "wrong unit", f"{count_of(count, 'batch')} with timestamps that look like {unit}"


def _record_details(row: Row) -> Iterator[tuple[str, str]]:
    if row["tombstones"] is None:
        yield "not counted", "keys, values, tombstones, ratios, smallest timestamp: add --deep"
        return
    yield "keys", f"{count_of(row['key_bytes'], 'byte')}, {row['null_keys']:,} null"
    yield (
        "values",
        f"{count_of(row['value_bytes'], 'byte')}, {row['null_values']:,} null; {count_of(row['tombstones'], 'tombstone')}",
    )
    if row["headers"]:
        yield "headers", f"{row['headers']:,}"


def _writer_details(row: Row) -> Iterator[tuple[str, str]]:
    if row["transactional_batches"] or row["control_batches"]:
        types = ", ".join(f"{count:,} {name}" for name, count in (row["control_records"] or {}).items())
        control = f"{row['control_batches']:,} control" + (f" ({types})" if types else "")
        yield "transactions", f"{count_of(row['transactional_batches'], 'transactional batch')}, {control}"
    producers = row["producers"]
    if producers["batches"]:
        ids = "too many ids to count" if producers["ids"] is None else count_of(producers["ids"], "id")
        yield "producers", f"{ids}, {count_of(producers['batches'], 'batch')}, {count_of(producers['bytes'], 'byte')}"
        for producer in producers["top"]:
            least = "" if producers["exact"] else "at least "
            yield "", f"producer {producer['producer_id']}: {least}{_counts(producer)}"
    epochs = row["leader_epochs"]
    if len(epochs) > _EPOCHS_SHOWN or row["leader_epochs_left_out"]:
        left_out = len(epochs) + row["leader_epochs_left_out"] - min(len(epochs), _EPOCHS_SHOWN)
        yield "epochs", f"{count_of(left_out, 'older epoch')} not shown"
    for epoch in islice(reversed(epochs), _EPOCHS_SHOWN):
        span = inclusive_range("offset", epoch["first_offset"], epoch["last_offset"])
        yield "leader epoch", f"{epoch['partition_leader_epoch']}: {span}, {count_of(epoch['batches'], 'batch')}"


def _counts(group: Row) -> str:
    records = "records not counted" if group["records"] is None else count_of(group["records"], "record")
    return f"{count_of(group['batches'], 'batch')}, {records}, {count_of(group['bytes'], 'byte')}"


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _time(timestamp: int | None) -> str:
    return "-" if timestamp is None else iso_time(timestamp)
