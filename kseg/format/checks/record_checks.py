"""Checks of the records in a segment's entries.

What opening an entry noted of its records (``kernel.BatchColumns``) decides whether they are looked at one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from kseg.findings import Finding, Report
from kseg.format.checks.check_state import CheckSettings, CheckState, batch_finding
from kseg.format.record.columns import BatchColumns
from kseg.format.record.default_records import header_field
from kseg.format.record.framing import clamped
from kseg.format.record.layout import CODEC_MASK, CONTROL, LOG_APPEND_TIME, TRANSACTIONAL
from kseg.format.record.memory import is_ascii
from kseg.format.segment.records_chunk import Chunk

#: Findings of one rule about the records of one batch that are reported one by one.
MAX_FINDINGS = 1000

# C globals when compiled (see the .pxd).
CODEC = CODEC_MASK
CONTROL_BIT = CONTROL
APPEND_TIME = LOG_APPEND_TIME


def record_finding(rule: str, chunk: Chunk, i: int, **facts: Any) -> Finding:
    """A finding about one record; ``index`` counts from its entry's first."""
    row = chunk.records.batch[i]
    offset = chunk.records.offset[i]
    return Finding(
        rule,
        position=chunk.batches.position[row],
        end=chunk.batches.position[row] + chunk.batches.size[row],
        offset=offset,
        last_offset=offset,
        facts={"index": chunk.index + i - chunk.batches.first_record[row], "offset": offset, **facts},
    )


def _largest(chunk: Chunk, found: list[int]) -> Iterator[tuple[int, dict[str, int]]]:
    """Yield the rows to report, with facts for the finding: the last of them says how many ``more`` there are.

    These are MAX_FINDINGS rows of a batch. From the second part of a large batch on it is one row per part.
    """
    limit = 1 if chunk.resumed else MAX_FINDINGS
    more = len(found) - limit
    for n, i in enumerate(found[:limit], 1):
        yield i, {"more": more} if n == limit and more > 0 else {}


def check_record_offsets(chunk: Chunk, limits: CheckSettings, report: Report) -> None:
    """``record-offset-mismatch`` inside an entry; ``last-offset-mismatch`` where its last record ends early."""
    batches, offsets = chunk.batches, chunk.records.offset
    for row in range(chunk.first, chunk.stop):
        total = batches.record_total[row]
        if not total:
            continue
        first = batches.first_record[row]
        last_record = batches.last_record_offset[row]
        last = batches.last_offset[row]
        if batches.disorder[row] >= 0:
            _report_disorder(chunk, row, report)
        if chunk.resumed:
            continue
        if batches.magic[row] < 2 or last < clamped(batches.base_offset[row]):
            continue  # the header contradicts itself, and that has been told
        if last_record > last:
            why = f"is past its batch's last, {last}"
            index = batches.record_sum[row] - 1
            facts = {"index": index, "offset": last_record, "why": why}
            finding = record_finding("record-offset-mismatch", chunk, first)
            report(replace(finding, offset=last_record, last_offset=last_record, facts=facts))
        elif offsets[first] < clamped(batches.base_offset[row]):
            why = f"is before its batch's first, {batches.base_offset[row]}"
            report(record_finding("record-offset-mismatch", chunk, first, why=why))
        elif last_record < last and batches.intact[row] and batches.disorder[row] < 0:
            report(batch_finding("last-offset-mismatch", batches, row, record=last_record, last=last))


def _report_disorder(chunk: Chunk, row: int, report: Report) -> None:
    offsets = chunk.records.offset
    found = [i for i in chunk.rows(row)[1:] if offsets[i] <= offsets[i - 1]]
    for i, facts in _largest(chunk, found):
        why = f"does not follow {offsets[i - 1]}"
        report(record_finding("record-offset-mismatch", chunk, i, why=why, **facts))


def check_wrapper_order(chunk: Chunk, history: CheckState, report: Report) -> None:
    """``non-monotonic-offset`` of wrappers that begin before the entry in front of them ends: their headers don't say."""
    batches = chunk.batches
    for row in range(chunk.first, chunk.stop):
        if not batches.selected[row] or chunk.resumed:
            continue
        previous, last = history.last_opened, batches.last_offset[row]
        history.last_opened = last
        if batches.magic[row] >= 2 or not batches.attributes[row] & CODEC:
            continue
        if not batches.record_total[row] or not batches.intact[row]:
            continue
        first = batches.first_record_offset[row]
        if previous < 0:
            history.first_opened = first
        elif first <= previous < last:
            note = ", of the first message in it"
            report(batch_finding("non-monotonic-offset", batches, row, offset=first, previous=previous, note=note))


def note_compaction(chunk: Chunk, history: CheckState) -> None:
    """Note in ``history`` what contradicts compaction (a record without a key) and what proves it (holes in a wrapper)."""
    batches, offsets = chunk.batches, chunk.records.offset
    for row in range(chunk.first, chunk.stop):
        total = batches.record_total[row]
        if not total or not batches.selected[row]:
            continue
        if batches.magic[row] >= 2:
            if batches.null_keys[row] and not batches.attributes[row] & CONTROL_BIT:
                history.keyless = True
            continue
        if batches.null_keys[row]:
            history.keyless = True
        if total > 1 and batches.intact[row]:
            first = batches.first_record[row]
            if offsets[first + total - 1] - offsets[first] >= total:
                history.thinned = True


def check_max_timestamps(chunk: Chunk, limits: CheckSettings, report: Report) -> None:
    """``max-timestamp-mismatch`` of CreateTime entries: with LogAppendTime the header's is every record's."""
    batches = chunk.batches
    for row in range(chunk.first, chunk.stop):
        stored = batches.max_timestamp[row]
        largest = batches.largest_timestamp[row]
        if (
            chunk.resumed
            or not batches.record_total[row]
            or largest == stored
            or not batches.magic[row]
            or not batches.intact[row]
        ):
            continue
        if not batches.attributes[row] & APPEND_TIME:
            report(batch_finding("max-timestamp-mismatch", batches, row, stored=stored, actual=largest))


def check_keys(chunk: Chunk, limits: CheckSettings, report: Report) -> None:
    """``null-key`` in a compacted topic."""
    if not limits.compacted:
        return
    batches, sizes = chunk.batches, chunk.records.key_size
    for row in range(chunk.first, chunk.stop):
        if batches.record_total[row] and batches.null_keys[row]:
            for i, facts in _largest(chunk, [i for i in chunk.rows(row) if sizes[i] < 0]):
                report(record_finding("null-key", chunk, i, **facts))


def check_record_attributes(chunk: Chunk, limits: CheckSettings, report: Report) -> None:
    """``reserved-attribute-bits`` of v2 records, which use none."""
    batches, attributes = chunk.batches, chunk.records.attributes
    for row in range(chunk.first, chunk.stop):
        if batches.record_total[row] and batches.magic[row] >= 2 and batches.attribute_bits[row]:
            for i, more in _largest(chunk, [i for i in chunk.rows(row) if attributes[i]]):
                facts = {"bits": attributes[i], "where": " on a record", **more}
                report(record_finding("reserved-attribute-bits", chunk, i, **facts))


def check_control_records(chunk: Chunk, limits: CheckSettings, report: Report) -> None:
    """``malformed-control-record``: each control record decodes, and a transaction marker stands alone."""
    batches = chunk.batches
    known: dict[tuple[bytes | None, bytes | None], tuple[str, str]] = {}
    for row in range(chunk.first, chunk.stop):
        if batches.magic[row] < 2 or not batches.attributes[row] & CONTROL_BIT:
            continue
        wrong: dict[int, str] = {}
        for i in chunk.rows(row):
            stored = chunk.key(i), chunk.value(i)
            # A coordinator writes the same few bytes over and over: decoding them each time took half the time.
            if stored not in known:
                known[stored] = _control_type(*stored)
                if len(known) > MAX_FINDINGS:
                    known = {stored: known[stored]}
            kind, why = known[stored]
            why = why or _marker_fault(batches, row, kind)
            if why:
                wrong[i] = why
        for i, more in _largest(chunk, list(wrong)):
            report(record_finding("malformed-control-record", chunk, i, why=wrong[i], **more))


def _control_type(key: bytes | None, value: bytes | None) -> tuple[str, str]:
    """The type of a control record and what is wrong with it, one of them empty."""
    from kseg.format.record import control_records

    try:
        return control_records.decode(key, value).type, ""
    except control_records.MalformedControlRecord as error:
        return "", str(error)


def _marker_fault(batches: BatchColumns, row: int, kind: str) -> str:
    if kind in ("ABORT", "COMMIT"):
        if not batches.attributes[row] & TRANSACTIONAL:
            return f"a {kind} marker in a batch that is not transactional"
        if batches.record_count[row] != 1:
            return f"a {kind} marker in a batch of {batches.record_count[row]} records"
    return ""


def check_header_keys(chunk: Chunk, limits: CheckSettings, report: Report) -> None:
    """``invalid-header-key``: header keys are UTF-8 (KIP-82)."""
    batches, counts, ats = chunk.batches, chunk.records.header_count, chunk.records.headers_at
    for row in range(chunk.first, chunk.stop):
        total = batches.record_total[row]
        if batches.magic[row] < 2 or not total or not batches.header_total[row]:
            continue
        first = batches.first_record[row]
        payload = chunk.payload(row)
        undecodable = []
        for i in range(first, first + total):
            if counts[i] and not has_ascii_keys(payload, ats[i], counts[i]) and _has_undecodable_key(chunk, i):
                undecodable.append(i)
        for i, facts in _largest(chunk, undecodable):
            report(record_finding("invalid-header-key", chunk, i, **facts))


def has_ascii_keys(data: Any, at: int, count: int) -> bool:
    """Whether the keys of so many headers at ``data[at]`` are ASCII: as objects those of a record take 10 us to decode."""
    for _ in range(count):
        # Splitting walked them before: sizes and ends hold.
        size, at = header_field(data, at, len(data))
        if not is_ascii(data, at, size):
            return False
        size, at = header_field(data, at + size, len(data))
        if size > 0:
            at += size
    return True


def _has_undecodable_key(chunk: Chunk, i: int) -> bool:
    for key in chunk.header_keys(i):
        try:
            str(key, "utf-8")
        except UnicodeDecodeError:
            return True
    return False
