"""Checks of offsets: their order in the file, the range of the segment's indexes, and the file's name.

Compiled with the types of ``offset_checks.pxd``. The limits are those of Kafka's ``LogSegment``.
"""

from __future__ import annotations

from kseg.findings import Finding, Report
from kseg.format.checks.check_state import CheckSettings, CheckState, batch_finding
from kseg.format.record.columns import BatchColumns
from kseg.format.record.framing import clamped
from kseg.format.record.layout import CODEC_MASK, INT32_MAX, INT64_MAX
from kseg.format.record.offset_evidence import base_offset_proved_wrong

#: The possible reasons of an offset gap, if only its segment is known.
UNEXPLAINED_GAP = "compaction, markers, or loss"

# C constants when compiled.
CODEC = CODEC_MASK
REACH = INT32_MAX


def check_offsets(batches: BatchColumns, limits: CheckSettings, history: CheckState, report: Report) -> None:
    """``non-monotonic-offset`` and ``offset-gap``, against the entry right before; a break explains a gap."""
    history.misplaced = set()
    name = -1 if limits.name_offset is None else clamped(limits.name_offset)
    for row in range(batches.count):
        if not batches.selected[row]:
            continue
        wrapper = batches.magic[row] < 2 and batches.attributes[row] & CODEC
        last = batches.last_offset[row]
        first = last if batches.magic[row] < 2 else clamped(batches.base_offset[row])
        previous = history.last_offset
        if not history.begun:
            history.begun = True
            if (
                name >= 0
                and batches.position[row] == 0
                and base_offset_proved_wrong(batches, row, batches, row + 1, name - 1)
            ):
                report(misplaced_offset_finding(batches, row, name - 1, "the file's name and the next entry"))
                history.misplaced.add(batches.position[row])
                last += name - first
        elif first != previous + 1:
            if base_offset_proved_wrong(batches, row, batches, row + 1, previous):
                report(misplaced_offset_finding(batches, row, previous))
                history.misplaced.add(batches.position[row])
                last += previous + 1 - first
            elif first <= previous:
                report(batch_finding("non-monotonic-offset", batches, row, offset=first, previous=previous, note=""))
            elif not wrapper and first != history.highest_offset + 1 and batches.position[row] == history.end:
                report(_gap(batches.position[row], previous + 1, first - 1))
        history.last_offset = last
        if last > history.highest_offset:
            history.highest_offset = last
        # An entry that ends before it begins is a break, too.
        history.end = batches.position[row] + batches.size[row] if last >= first or batches.magic[row] < 2 else -1


def misplaced_offset_finding(
    batches: BatchColumns, row: int, previous: int, witness: str = "the entries around it"
) -> Finding:
    """``non-monotonic-offset`` of an entry whose base offset its neighbours prove to be ``expected``."""
    note = f"; {witness} leave it the place from {previous + 1} on, so its base offset is wrong"
    facts = {"offset": batches.base_offset[row], "previous": previous, "expected": previous + 1, "note": note}
    return batch_finding("non-monotonic-offset", batches, row, **facts)


def _gap(position: int, first: int, last: int) -> Finding:
    facts = {"first": first, "last": last, "why": UNEXPLAINED_GAP}
    return Finding("offset-gap", position=position, end=position, offset=first, last_offset=last, facts=facts)


def check_offset_range(batches: BatchColumns, limits: CheckSettings, history: CheckState, report: Report) -> None:
    """``invalid-offset-range`` of entries that end behind what the segment's indexes can hold."""
    base = history.base
    for row in range(batches.count):
        if not batches.selected[row]:
            continue
        if base < 0 and batches.position[row] in history.misplaced:
            continue
        if base < 0:
            base = history.base = indexed_base_offset(batches, row, limits.name_offset)
        if base < 0 or batches.last_offset[row] <= base + REACH:
            continue
        if batches.position[row] not in history.misplaced:
            report(offset_range_finding(batches, row, base + REACH + 1))


def indexed_base_offset(batches: BatchColumns, row: int, name: int | None) -> int:
    """What offsets count from in a segment that begins with that entry: its name, unless that can't be right."""
    first = clamped(batches.base_offset[row])
    return name if name is not None and name <= first and batches.last_offset[row] - name <= INT32_MAX else first


def offset_range_finding(batches: BatchColumns, row: int, ceiling: int) -> Finding:
    """``invalid-offset-range`` of an entry whose segment ends before offset ``ceiling``: its offsets are no witness."""
    begin, last = batches.position[row], batches.last_offset[row]
    delta = last - clamped(batches.base_offset[row]) if batches.magic[row] >= 2 else 0
    facts = {"delta": delta, "why": f"it ends at offset {last}, and its segment before {ceiling}"}
    return Finding("invalid-offset-range", begin, begin + batches.size[row], facts=facts)


def check_file_name(batches: BatchColumns, limits: CheckSettings, history: CheckState, report: Report) -> None:
    """``file-name-mismatch``: the first entry whose offsets the indexes of a segment of that name can't hold."""
    if limits.name_offset is None or history.misnamed:
        return
    name = limits.name_offset
    # Past the range of a name that fits the first entry it is the entry that is wrong: see check_reach.
    last = INT64_MAX if history.base == name else name + INT32_MAX
    for row in range(batches.count):
        if batches.base_offset[row] >= name and batches.last_offset[row] <= last:
            continue
        if not batches.selected[row] or batches.position[row] in history.misplaced:
            continue
        if batches.base_offset[row] < name:
            why = f"an entry begins before it at {batches.base_offset[row]}"
        else:
            why = f"an entry ends past its 32-bit range at {batches.last_offset[row]}"
        report(batch_finding("file-name-mismatch", batches, row, name=name, why=why))
        history.misnamed = True
        return


def wrapper_offsets_join(before: CheckState, after: CheckState) -> bool:
    """Return whether the first wrapper of the later part begins after the last batch of the earlier part."""
    return not 0 <= after.first_opened <= before.last_opened


def offset_ranges_join(before: CheckState, after: CheckState) -> bool:
    """Return whether the offsets of the later part are in the range of the earlier part's indexes."""
    return after.base == before.base or after.highest_offset - INT32_MAX <= before.base
