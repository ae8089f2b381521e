"""Checks of the records in a segment's batches.

Compiled with the types of ``record_checks.pxd``. The facts in ``BatchColumns`` show whether a check needs to read the
records of a batch. To add a check, see ``run_checks``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kseg.findings import Report
from kseg.format.checks.batch_checks import CheckSettings, CheckState, batch_finding
from kseg.format.record import control_records
from kseg.format.record.columns import BatchColumns
from kseg.format.record.default_records import skip_headers
from kseg.format.record.framing import clamped
from kseg.format.record.layout import CODEC_MASK, CONTROL, LOG_APPEND_TIME, NO_TIMESTAMP, TRANSACTIONAL
from kseg.format.record.offset_evidence import shows_compaction
from kseg.format.segment.records_chunk import Chunk, record_finding
from kseg.text import count_of

#: The most findings of one rule about the records of one batch.
MAX_FINDINGS = 1000


def _limited(chunk: Chunk, found: list[int]) -> Iterator[tuple[int, dict[str, int]]]:
    """Yield the rows to report with facts for the finding; the last has the number of rows left out (``more``).

    These are MAX_FINDINGS rows of a batch, and one row for each later part of a large batch.
    """
    limit = 1 if chunk.resumed else MAX_FINDINGS
    more = len(found) - limit
    for n, i in enumerate(found[:limit], 1):
        yield i, {"more": more} if n == limit and more > 0 else {}


def check_record_offsets(chunk: Chunk, settings: CheckSettings, report: Report) -> None:
    """Report ``record-offset-mismatch`` in a batch, and ``last-offset-mismatch`` if its last record has a lower offset."""
    batches, offsets = chunk.batches, chunk.records.offset
    resumed = chunk.resumed
    for row in range(chunk.first, chunk.stop):
        total = batches.record_total[row]
        if not total:
            continue
        first = batches.first_record[row]
        last_record = batches.last_record_offset[row]
        last = batches.last_offset[row]
        if batches.disorder[row] >= 0:
            _report_disorder(chunk, row, report)
        if resumed:
            continue
        if batches.magic[row] < 2 or last < clamped(batches.base_offset[row]):
            continue  # the header contradicts itself, which is already reported
        if last_record > last:
            why = f"is above {last}, the last offset of its batch"
            index = batches.record_sum[row] - 1
            facts = {"index": index, "offset": last_record, "why": why}
            finding = record_finding("record-offset-mismatch", chunk, first)
            report(finding._replace(offset=last_record, last_offset=last_record, facts=facts))
        elif offsets[first] < clamped(batches.base_offset[row]):
            why = f"is below {batches.base_offset[row]}, the first offset of its batch"
            report(record_finding("record-offset-mismatch", chunk, first, why=why))
        elif last_record < last and batches.intact[row] and batches.disorder[row] < 0:
            report(batch_finding("last-offset-mismatch", batches, row, record=last_record, last=last))


def _report_disorder(chunk: Chunk, row: int, report: Report) -> None:
    offsets, rows, before = chunk.records.offset, chunk.rows(row), chunk.previous_offset
    found = [i for i in rows[1:] if offsets[i] <= offsets[i - 1]]
    if before is not None and offsets[rows[0]] <= before:
        found.insert(0, rows[0])
    for i, facts in _limited(chunk, found):
        why = f"is not above the previous offset {before if i == rows[0] else offsets[i - 1]}"
        report(record_finding("record-offset-mismatch", chunk, i, why=why, **facts))


def update_compaction_evidence(chunk: Chunk, state: CheckState) -> None:
    """Record in ``state`` whether a record lacks a key and whether a batch lacks records.

    The former contradicts compaction, the latter proves it.
    """
    batches, offsets = chunk.batches, chunk.records.offset
    for row in range(chunk.first, chunk.stop):
        total = batches.record_total[row]
        if not batches.selected[row]:
            continue
        if batches.magic[row] >= 2 and batches.intact[row] and shows_compaction(batches, row):
            state.thinned = True
        if not total:
            continue
        if batches.magic[row] >= 2:
            if batches.null_keys[row] and not batches.attributes[row] & CONTROL:
                state.keyless = True
            continue
        if batches.null_keys[row]:
            state.keyless = True
        if total > 1 and batches.intact[row]:
            first = batches.first_record[row]
            if clamped(offsets[first + total - 1]) - clamped(offsets[first]) >= total:
                state.thinned = True


def check_max_timestamps(chunk: Chunk, settings: CheckSettings, report: Report) -> None:
    """Report ``max-timestamp-mismatch`` for CreateTime batches.

    With LogAppendTime, all records have the timestamp of the header. A header below -1 is an ``invalid-timestamp``. A broker
    writes -1 if all records have a lower timestamp (``LogValidator``).
    """
    if chunk.resumed:
        return
    batches = chunk.batches
    for row in range(chunk.first, chunk.stop):
        stored = batches.max_timestamp[row]
        largest = max(batches.largest_timestamp[row], NO_TIMESTAMP)
        checked = batches.record_total[row] and stored >= -1 and batches.magic[row] and batches.intact[row]
        if largest != stored and checked and not batches.attributes[row] & LOG_APPEND_TIME:
            report(batch_finding("max-timestamp-mismatch", batches, row, stored=stored, actual=largest))


def check_negative_timestamps(chunk: Chunk, settings: CheckSettings, report: Report) -> None:
    """Report ``negative-timestamp`` for the first such record of a batch: a client sets those of all its records.

    A header with such a timestamp is an ``invalid-timestamp``.
    """
    batches, timestamps = chunk.batches, chunk.records.timestamp
    for row in range(chunk.first, chunk.stop):
        if not batches.record_total[row] or batches.max_timestamp[row] < NO_TIMESTAMP:
            continue
        first = batches.first_record[row]
        for i in range(first, first + batches.record_total[row]):
            if timestamps[i] < NO_TIMESTAMP:
                report(record_finding("negative-timestamp", chunk, i, timestamp=timestamps[i]))
                break


def check_oldest_timestamps(chunk: Chunk, settings: CheckSettings, report: Report) -> None:
    """Report ``past-timestamp`` of records with CreateTime (``LogValidator.validateTimestamp``)."""
    if settings.oldest is None:
        return
    batches, timestamps = chunk.batches, chunk.records.timestamp
    for row in range(chunk.first, chunk.stop):
        if batches.attributes[row] & LOG_APPEND_TIME and batches.magic[row]:
            continue
        old = [i for i in chunk.rows(row) if 0 <= timestamps[i] < settings.oldest]
        for i, facts in _limited(chunk, old):
            times = {"timestamp": timestamps[i], "limit": settings.now - settings.oldest}
            report(record_finding("past-timestamp", chunk, i, **times, **facts))


def check_keys(chunk: Chunk, settings: CheckSettings, report: Report) -> None:
    """Report ``null-key`` in a compacted topic."""
    if not settings.compacted:
        return
    batches, sizes = chunk.batches, chunk.records.key_size
    for row in range(chunk.first, chunk.stop):
        if batches.record_total[row] and batches.null_keys[row]:
            for i, facts in _limited(chunk, [i for i in chunk.rows(row) if sizes[i] < 0]):
                report(record_finding("null-key", chunk, i, **facts))


def check_record_attributes(chunk: Chunk, settings: CheckSettings, report: Report) -> None:
    """Report ``reserved-attribute-bits`` of v2 records, for which no bit is defined."""
    batches, attributes = chunk.batches, chunk.records.attributes
    for row in range(chunk.first, chunk.stop):
        if batches.record_total[row] and batches.magic[row] >= 2 and batches.attribute_bits[row]:
            for i, more in _limited(chunk, [i for i in chunk.rows(row) if attributes[i]]):
                facts = {"bits": attributes[i], "where": " in a record", **more}
                report(record_finding("reserved-attribute-bits", chunk, i, **facts))


def check_control_records(chunk: Chunk, settings: CheckSettings, report: Report) -> None:
    """Report ``malformed-control-record`` and ``unknown-control-record``.

    Each control record must be valid, and a transaction marker must be the only record of its batch.
    """
    batches, records, data = chunk.batches, chunk.records, chunk.window.data
    key_ats, key_sizes, value_ats, value_sizes = (
        records.key_at, records.key_size, records.value_at, records.value_size,
    )  # fmt: skip
    for row in range(chunk.first, chunk.stop):
        if batches.magic[row] < 2 or not batches.attributes[row] & CONTROL:
            continue
        i = batches.first_record[row]
        alone = batches.record_count[row] == batches.record_total[row] == 1 and not batches.attributes[row] & CODEC_MASK
        if (
            alone
            and batches.attributes[row] & TRANSACTIONAL
            and is_marker(data, key_ats[i], key_sizes[i], value_ats[i], value_sizes[i])
        ):
            continue
        found: dict[str, dict[int, str]] = {"malformed-control-record": {}, "unknown-control-record": {}}
        for i in chunk.rows(row):
            try:
                control = control_records.decode(*chunk.key_and_value(i))
            except control_records.MalformedControlRecord as error:
                found["malformed-control-record"][i] = str(error)
                continue
            if why := _marker_fault(batches, row, control.type):
                found["malformed-control-record"][i] = why
            if why := control_records.newer(control):
                found["unknown-control-record"][i] = why
        for rule, faults in found.items():
            for i, more in _limited(chunk, list(faults)):
                report(record_finding(rule, chunk, i, why=faults[i], **more))


def is_marker(data: Any, key_at: int, key_size: int, value_at: int, value_size: int) -> bool:
    """Return whether a record is a transaction marker as coordinators write it: ``control_records`` accepts more."""
    return (
        key_size == 4
        and value_size == 6
        and not data[key_at]  # version 0
        and not data[key_at + 1]
        and not data[key_at + 2]
        and data[key_at + 3] < 2  # ABORT or COMMIT
        and data[value_at] < 128
    )


def _marker_fault(batches: BatchColumns, row: int, kind: str) -> str:
    if kind in ("ABORT", "COMMIT"):
        if not batches.attributes[row] & TRANSACTIONAL:
            return f"a {kind} marker in a batch that is not transactional"
        if batches.record_count[row] != 1:
            return f"a {kind} marker in a batch of {count_of(batches.record_count[row], 'record')}"
    return ""


def check_header_keys(chunk: Chunk, settings: CheckSettings, report: Report) -> None:
    """Report ``invalid-header-key``: header keys are UTF-8 (KIP-82). The decoder has counted the records."""
    batches, counts, ats = chunk.batches, chunk.records.header_count, chunk.records.headers_at
    for row in range(chunk.first, chunk.stop):
        if batches.magic[row] < 2 or not batches.record_total[row] or not batches.invalid_keys[row]:
            continue
        payload = chunk.payload(row)
        found = [
            i for i in chunk.rows(row) if counts[i] and not skip_headers(payload, ats[i], len(payload), counts[i])[1]
        ]
        for i, facts in _limited(chunk, found):
            report(record_finding("invalid-header-key", chunk, i, **facts))
