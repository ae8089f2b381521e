"""The values at the ends of the ranges that checks allow: the last valid one is no finding, the next one is."""

from __future__ import annotations

from pathlib import Path

import pytest

import kseg
from kseg.format.checks.batch_checks import MICROSECONDS, NANOSECONDS, SECONDS, CheckState, unit_of
from kseg.format.checks.offset_checks import offset_ranges_join, wrapper_offsets_join
from kseg.results import Settings
from tests.support import damage
from tests.support.cli import PLAIN


def rules(folder: Path, data: bytes, *, shallow: bool = False) -> set[str]:
    path = folder / f"{0:020}.log"
    path.write_bytes(data)
    return {one.finding.rule for one in kseg.validate(path, settings=Settings(deep=not shallow)).findings}


@pytest.mark.parametrize("attributes", [0, 1, 0x80])
def test_no_bit_of_a_records_attributes_is_defined(tmp_path: Path, attributes: int) -> None:
    """Only the record is wrong: its batch has no such bit."""
    record = damage.record()
    changed = record[:1] + bytes([attributes]) + record[2:]
    found = rules(tmp_path, damage.batch(PLAIN.read_bytes(), changed, 1, base_offset=0))
    assert ("reserved-attribute-bits" in found) == (attributes != 0)


@pytest.mark.parametrize(("count", "wrong"), [(0, False), (-1, True), (1, False)])
def test_a_batch_without_records_is_valid_by_its_header(tmp_path: Path, count: int, wrong: bool) -> None:
    """The cleaner keeps the header of a batch without records; no batch has fewer than none."""
    payload = damage.record() * max(count, 0)
    data = damage.batch(PLAIN.read_bytes(), payload, 1, base_offset=0, record_count=count, last_offset_delta=0)
    assert ("record-count-mismatch" in rules(tmp_path, data, shallow=True)) == wrong


def test_units_of_timestamps_begin_and_end_where_they_say() -> None:
    """Milliseconds before and after each range are a date that someone may have meant."""
    begin, end = SECONDS
    cases = {
        begin - 1: "", begin: "seconds", end - 1: "seconds", end: "", MICROSECONDS - 1: "", MICROSECONDS: "microseconds",
        NANOSECONDS - 1: "microseconds", NANOSECONDS: "nanoseconds",
    }  # fmt: skip
    assert {timestamp: unit_of(timestamp) for timestamp in cases} == cases


def test_parts_of_a_file_join_at_their_bounds() -> None:
    """Parts that several processes checked are one file only where one process would have found nothing between them."""

    def state(**values: int) -> CheckState:
        made = CheckState()
        for name, value in values.items():
            setattr(made, name, value)
        return made

    wrappers = {(5, 5): False, (5, 6): True, (5, -1): True, (0, 0): False, (-1, 0): True, (7, 6): False}
    for (last, first), joined in wrappers.items():
        assert wrapper_offsets_join(state(last_opened=last), state(first_opened=first)) == joined, (last, first)
    most = 2**31 - 1
    ranges = {(0, 0, most + 1): True, (0, 9, most): True, (0, 9, most + 1): False, (9, 0, most + 9): True}
    for (base, other, highest), joined in ranges.items():
        assert offset_ranges_join(state(base=base), state(base=other, highest_offset=highest)) == joined, (base, other)
