"""Output of ``kseg stats`` as text: the total, and a table of levels."""

from __future__ import annotations

import base64
import heapq
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TextIO

from kseg.commands.stats import counted_file
from kseg.commands.stats.levels import Level
from kseg.report.row_formats import CellContent, Spool, content_text
from kseg.report.stats_rows import stats_row
from kseg.report.tables import PAGE_ROWS, TableColumn, bar_lines, cells_of, extent, print_cells, print_text
from kseg.report.tables import Row as CellRow
from kseg.report.wording import MOST_ROWS, Prose
from kseg.schema import Row
from kseg.text import count_of, duration, inclusive_range, iso_time

_EPOCHS_SHOWN = 20
#: Partitions of many: the rows of a segment each take three lines at 80 columns.
_PARTITIONS_SHOWN = 6
_APIS_SHOWN = 8
_DELAYS_SHOWN = 3


def write_table(levels: Iterable[Level], top: int, out: TextIO, *, detail: int = 0) -> None:
    """Write the total with the most important facts, and a row per partition, or per segment if there is a single partition.

    Damaged segments always have a row. With ``detail`` 1 each segment has one, with -1 there are none. The total comes
    first, so the rows are kept until the end.
    """
    spool = Spool[Entry]()
    extremes = Extremes()
    last: Level | None = None
    for level in levels:
        last = level
        row = stats_row(level, 0)
        extremes.add(row)
        # The sum of a single part would repeat its row.
        if detail >= 0 and (level.parts > 1 or level.level in ("segment", "partition")):
            weight = row["level"], bool(row["lost_bytes"] or row["unread"]), row["file_bytes"]
            style = "yellow" if row["legacy_segments"] else "" if row["level"] == "segment" else "bold"
            spool.add((_only_by_segment(row, level.parts), weight, (cells_of(COLUMNS, row), style)))
    # A few partitions of one segment each are often files that were given by name.
    few = extremes.partitions <= MOST_ROWS and extremes.segments <= extremes.partitions
    by_segment = detail > 0 or extremes.partitions < 2 or few
    if last is not None:
        total = stats_row(last, top)
        for name, text in (*outstanding(total, extremes), *details(total)):
            print_text(out, f"{name:12} {text}", indent=13)
    rows: Iterator[CellRow] = (cells for only, _, cells in spool.again() if only in (None, by_segment))
    if not detail and not by_segment and extremes.partitions > MOST_ROWS:
        rows = _largest(spool, extremes.partitions)
    while page := list(islice(rows, PAGE_ROWS)):
        print_cells(out, COLUMNS, page, title="" if len(page) < PAGE_ROWS else None, whole_rows=True)
    spool.close()
    if last is not None:
        print_text(out, _damage_text(stats_row(last, 0), extremes))


def _damage_text(row: Row, extremes: Extremes) -> str:
    """Return the answer at the end: whether bytes are lost, and where most of them."""
    partitions = f" of {count_of(extremes.partitions, 'partition')}" if extremes.partitions > 1 else ""
    unread = f"; {count_of(row['unread'], 'file')} unreadable" if row["unread"] else ""
    if not (row["segments"] or row["framed_files"]):
        return f"nothing was read{unread}"
    if not row["lost_bytes"]:
        return f"no lost bytes in {_files(row)}{partitions}{' that were read' if unread else ''}{unread}"
    worst = f"; the worst: {extremes.worst}" if extremes.damaged > 1 else ""
    lost = f"{count_of(row['lost_bytes'], 'byte')} lost in {extremes.damaged:,}"
    return f"{lost} of {_files(row)}{partitions}{unread}{worst}"


#: A row: where it is listed (see ``_only_by_segment``), its weight, and its cells.
Entry = tuple[bool | None, "Weight", CellRow]
#: The level of a row, whether it has damage, and the bytes of its files: rows with more come first.
Weight = tuple[str, bool, int]


def _largest(spool: Spool[Entry], partitions: int) -> Iterator[CellRow]:
    """Yield the damaged and the largest partitions, a row that names the number of others, and the sums."""
    damaged = sum(weight[:2] == ("partition", True) for _, weight, _ in spool.again())
    ranked = ((weight[1:], cells) for _, weight, cells in spool.again() if weight[0] == "partition")
    kept = heapq.nlargest(_PARTITIONS_SHOWN, ranked, key=lambda item: item[0])
    yield from (cells for _, cells in kept)
    if partitions > len(kept):
        left = damaged - sum(weight[0] for weight, _ in kept)
        others = f"{partitions - len(kept):,} others{f' ({left:,} damaged)' if left else ''}: -v lists them"
        yield [others, *[""] * (len(COLUMNS) - 1)], ""
    yield from (
        cells for only, weight, cells in spool.again() if only is None and weight[0] not in ("partition", "segment")
    )


def _only_by_segment(row: Row, parts: int) -> bool | None:
    """Return whether a row is listed only where each segment is (True), only where not (False), or always (None)."""
    if row["level"] == "segment":
        return None if row["lost_bytes"] or row["unread"] else True
    return None if parts > 1 else False


@dataclass(slots=True)
class Extremes:
    """Facts that are not in the total: the numbers of segments and partitions, the largest partition, the worst segment."""

    segments: int = 0
    damaged: int = 0
    partitions: int = 0
    largest_bytes: int = -1
    largest: str = ""
    worst_bytes: int = 0
    worst: str = ""

    def add(self, row: Row) -> None:
        self.segments += row["level"] == "segment"
        self.damaged += row["level"] == "segment" and row["lost_bytes"] > 0
        if row["level"] == "segment" and row["lost_bytes"] > self.worst_bytes:
            self.worst_bytes, self.worst = row["lost_bytes"], row["path"]
        if row["level"] == "partition":
            self.partitions += 1
            if row["file_bytes"] > self.largest_bytes:
                self.largest_bytes, self.largest = row["file_bytes"], row["path"]


def _path(row: Row) -> str:
    path = "total" if row["path"] is None else row["path"]
    return path if row["level"] == "segment" else f"{path} ({_files(row)})"


def _damage(row: Row) -> str:
    damage = row["lost_bytes"]  # those of batches with a wrong CRC included
    return "unreadable" if row["unread"] else count_of(damage, "byte") if damage else "-"


COLUMNS = (
    TableColumn("path", text="wrap", cell=_path),
    TableColumn("batches", right=True, priority=4, cell=lambda row: row["batches"]),
    TableColumn("records", right=True, priority=3, cell=lambda row: row["records"]),
    TableColumn("bytes", right=True, cell=lambda row: row["bytes"]),
    TableColumn("magic", priority=1, cell=lambda row: " ".join(f"v{magic}" for magic in row["magics"]) or "-"),
    TableColumn("compression", priority=5, cell=lambda row: " ".join(row["compressions"]) or "-"),
    TableColumn("offsets", right=True, priority=2, cell=lambda row: extent(row["first_offset"], row["last_offset"])),
    TableColumn("max_timestamp", priority=6, cell=lambda row: _time(row["max_timestamp"])),
    TableColumn("damage", right=True, cell=_damage),
)


def _files(row: Row) -> str:
    """Return the number of files: segments, or files that were read with ``--as``."""
    return count_of(row["framed_files"], "file") if row["framed_files"] else count_of(row["segments"], "segment")


def outstanding(row: Row, extremes: Extremes) -> Iterator[tuple[str, str]]:
    """Yield the size of all, and what an operator should look at."""
    segments = _files(row)
    partitions = f" in {count_of(extremes.partitions, 'partition')}" if extremes.partitions > 1 else ""
    yield "total", f"{segments}{partitions}, {_counts(row)}"
    if row["unread"]:
        yield "unreadable", count_of(row["unread"], "file")
    if row["lost_bytes"]:
        noun = "file" if row["framed_files"] else "segment"
        lost = f"{count_of(row['lost_bytes'], 'byte')} in {count_of(extremes.damaged, noun)}"
        yield "damage", Prose(f"{lost} cannot be read: `kseg validate` says why")
    if row["legacy_segments"]:
        yield "old versions", f"v0 or v1 in {row['legacy_segments']:,} of {segments}"
    if (row["max_timestamp"] or 0) > time.time() * 1000:
        yield "future", f"the newest timestamp is {iso_time(row['max_timestamp'])}: time retention waits for it"
    yield from _delays(row, _DELAYS_SHOWN if extremes.partitions <= MOST_ROWS else 1)
    for unit, count in row["odd_timestamps"].items():
        yield "wrong unit", f"{count_of(count, 'batch')} with timestamps that look like {unit}"
    if extremes.partitions > 1 and row["file_bytes"]:
        share = 100 * extremes.largest_bytes // row["file_bytes"]
        part = f"{share} %" if share else "less than 1 %"
        yield "largest", f"{extremes.largest}: {count_of(extremes.largest_bytes, 'byte')}, {part} of all"


def _delays(row: Row, most: int) -> Iterator[tuple[str, str]]:
    """Yield which batches delay the deletion of later segments, those of most bytes first."""
    delays = sorted(row["retention_delays"], key=lambda delay: -delay["held_bytes"])[:most]
    if delays:
        kept = count_of(row["held_segments"], "segment")
        yield "retention", f"{kept} kept longer: an earlier one has a later timestamp"
    for delay in delays:
        held = f"{count_of(delay['held_segments'], 'segment')}, {count_of(delay['held_bytes'], 'byte')}"
        longest = f"up to {duration(delay['longest_ms'])} longer"
        yield "", f"{iso_time(delay['timestamp'])} {_place(delay)}: {held}, {longest}"


def details(row: Row) -> Iterator[tuple[str, str]]:
    """Yield the total as (subject, text) lines."""
    yield from _frame_details(row)
    for magic, group in row["magics"].items():
        yield f"v{magic}", _counts(group)
    for name, group in row["compressions"].items():
        yield name, _counts(group) + (f", compressed {group['ratio']:.2f} times" if group["ratio"] else "")
    for name, sizes, unit in (("batch size", row["batch_size"], "bytes"), ("", row["records_per_batch"], "records")):
        if sizes["min"] is not None:
            yield name, f"{sizes['min']:,} to {sizes['max']:,} {unit}, mean {sizes['mean']:,}"
    yield from _time_details(row)
    yield from _hour_details(row)
    if row["batches"]:
        yield from _record_details(row)
    yield from _writer_details(row)


def _frame_details(row: Row) -> Iterator[tuple[str, str]]:
    for kind in ("request", "response"):
        of_kind = sorted((one for one in row["frames"] if one["kind"] == kind), key=lambda one: -one["bytes"])
        if of_kind:
            apis = [f"{one['api_name'] or 'unknown API'} {one['frames']:,}" for one in of_kind[:_APIS_SHOWN]]
            more = [f"{len(of_kind) - _APIS_SHOWN:,} other APIs"] if len(of_kind) > _APIS_SHOWN else []
            size = count_of(sum(one["bytes"] for one in of_kind), "byte")
            yield f"{kind}s", f"{sum(one['frames'] for one in of_kind):,}, {size}: {', '.join([*apis, *more])}"


def _time_details(row: Row) -> Iterator[tuple[str, str]]:
    if row["max_timestamp"] is not None:
        first = "" if row["min_timestamp"] is None else f"{_time(row['min_timestamp'])} to "
        place = row["max_timestamp_at"]
        if first or place is None:
            yield "timestamps", f"{first}{_time(row['max_timestamp'])}"
        if place is not None:
            yield "newest", f"{iso_time(row['max_timestamp'])} {_place(place)}: time retention uses it"
    if row["batches_without_timestamp"]:
        kept = "" if row["framed_files"] else ": time retention uses the time of the file"
        yield "no timestamp", f"{count_of(row['batches_without_timestamp'], 'batch')}{kept}"


def _record_details(row: Row) -> Iterator[tuple[str, str]]:
    if row["tombstones"] is None:
        yield "not counted", "keys, values, tombstones, ratios, smallest timestamp: add --deep"
        return
    yield "keys", f"{count_of(row['key_bytes'], 'byte')}, {row['null_keys']:,} null"
    values = f"{count_of(row['value_bytes'], 'byte')}, {row['null_values']:,} null"
    yield "values", f"{values}; {count_of(row['tombstones'], 'tombstone')}"
    if row["headers"]:
        yield "headers", f"{row['headers']:,}"
    if sizes := row["record_size"]:
        parts = ", ".join(f"{part[1:]} % up to {sizes[part]:,}" for part in sizes if part != "max")
        yield "record size", f"{parts}, the largest {sizes['max']:,} bytes of key and value"
    if row["keys"]:
        yield from _key_details(row["keys"])
    yield from _cost_details(row)


def _key_details(keys: Row) -> Iterator[tuple[str, str]]:
    least = "" if keys["exact"] else "at least "
    for number, one in enumerate(keys["top"]):
        key = "without a key" if one["key"] is None else f"key {key_text(one)}"
        size = f"about {count_of(one['disk_bytes'], 'byte')} on disk"
        yield "" if number else "keys on disk", f"{key}: {least}{count_of(one['records'], 'record')}, {size}"


def key_text(row: Row) -> str:
    """Return the first bytes of a key of the row ``keys.top``, as other tables show keys; ``null`` without a key."""
    text = row["key"]
    if text is None:
        return content_text(None)
    key = base64.b64decode(text) if "key_encoding" in row else text.encode()
    shown = content_text(CellContent(key[:_SHOWN_KEY_BYTES], len(key)))
    return f"{shown[:-1]} or more)" if len(key) == counted_file.KEY_BYTES else shown


_SHOWN_KEY_BYTES = 80
_HOUR = 3_600_000
_HOUR_COLUMNS = 60


def by_hour(row: Row, most: int) -> tuple[list[tuple[int, int]], int]:
    """Return (timestamp, bytes) in at most ``most`` slots of equal length, and the hours of a slot."""
    hours = {one["timestamp"] // _HOUR: one["bytes"] for one in row["by_hour"]}
    first, last = min(hours, default=0), max(hours, default=-1)
    step = max(-(-(last - first + 1) // most), 1)
    slots = dict.fromkeys(range(first, last + 1, step), 0) if hours else {}
    for hour, size in hours.items():
        slots[first + (hour - first) // step * step] += size
    return [(hour * _HOUR, size) for hour, size in slots.items()], step


def _hour_details(row: Row) -> Iterator[tuple[str, str]]:
    slots, step = by_hour(row, _HOUR_COLUMNS)
    if len(slots) > 1:
        (plot,) = bar_lines([size for _, size in slots])
        most = max(slots, key=lambda slot: slot[1])
        yield "by hour", f"│{plot}│"
        more = f"; most: {count_of(most[1], 'byte')} from {_hour(most[0])} on"
        last = max(one["timestamp"] for one in row["by_hour"])
        yield "", f"{_hour(slots[0][0])} to {_hour(last)}, {count_of(step, 'hour')} per column{more}"


def _hour(timestamp: int) -> str:
    return iso_time(timestamp)[:13] + "Z"


def _cost_details(row: Row) -> Iterator[tuple[str, str]]:
    """Yield the bytes besides keys and values by version, and the estimated sizes as v2 and with each codec."""
    costs = [f"v{magic} {group['overhead_per_record']:,}" for magic, group in row["magics"].items() if group["records"]]
    if costs:
        yield "overhead", f"{', '.join(costs)} bytes per record, besides key and value"
    packed = f"{counted_file.PACKED // 1024} KiB"
    if new := row["as_v2"]:
        saved = new["bytes"] - new["packed_bytes"]
        yield (
            "as v2",
            f"about {new['converted_bytes']:,} bytes, now {new['bytes']:,} decompressed; in batches of {packed} about "
            f"{new['packed_bytes']:,}: {abs(saved):,} {'less' if saved >= 0 else 'more'}",
        )
    if sizes := row["estimated_bytes"]:
        texts = [f"{name} {size:,}" for name, size in sizes.items() if name != "sampled_bytes"]
        yield (
            "estimate",
            f"{', '.join(texts)} bytes of records in batches of {packed}, from a sample of {sizes['sampled_bytes']:,}",
        )


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
        first, last = epoch["first_offset"], epoch["last_offset"]
        span = "offsets unknown" if first is None else inclusive_range("offset", first, last)
        yield "leader epoch", f"{epoch['partition_leader_epoch']}: {span}, {count_of(epoch['batches'], 'batch')}"


def _counts(group: Row) -> str:
    records = "records not counted" if group["records"] is None else count_of(group["records"], "record")
    return f"{count_of(group['batches'], 'batch')}, {records}, {count_of(group['bytes'], 'byte')}"


def _place(place: Row) -> str:
    producer = "" if place["producer_id"] is None else f", producer {place['producer_id']}"
    last = "unknown" if place["last_offset"] is None else place["last_offset"]
    return f"at byte {place['position']} of {place['file']}, last offset {last}{producer}"


def _time(timestamp: int | None) -> str:
    return "-" if timestamp is None else iso_time(timestamp)
