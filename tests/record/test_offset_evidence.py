"""What one flipped bit does to a base offset is distinguished from a batch that was moved."""

from __future__ import annotations

import pytest

from kseg.format.record.offset_evidence import out_of_reach


@pytest.mark.parametrize("expected", [0, 5, 2**33, 2**62])
def test_one_bit_is_out_of_reach_if_it_moves_a_batch_farther_than_a_segment_reaches(expected: int) -> None:
    """The offsets of a segment are within 2^31 of each other, at any height: another batch of it can have a nearer one."""
    for bit in range(62):
        stored = expected ^ 1 << bit
        assert out_of_reach(stored, expected) == (bit >= 31), bit
        assert not out_of_reach(stored ^ 1 << (bit + 1) % 62, expected), bit
