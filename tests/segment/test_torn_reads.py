"""A batch that is read while its bytes are written: the second reading counts."""

from __future__ import annotations

import io

import pytest

from kseg.findings import do_nothing
from kseg.format.record.layout import LOG_OVERHEAD
from kseg.format.segment.input_buffer import InputBuffer
from kseg.format.segment.resync_results import DamagedBatch, with_proved_size
from kseg.format.storage.source import Source
from kseg.format.writer.records_builder import PlainRecord, build_batch


@pytest.mark.parametrize(("wrong_by", "rules"), [(0, []), (1, ["invalid-size"])])
def test_a_size_that_the_crc_proves_is_a_finding_only_if_it_differs(wrong_by: int, rules: list[str]) -> None:
    """A size field that was not written yet when the batch was read first is a read race, not damage."""
    batch = build_batch([PlainRecord(0, b"k", b"v", 1)])
    buffer = InputBuffer(Source("x", io.BytesIO(batch), len(batch)), 1 << 16, do_nothing)
    buffer.fill(len(batch))
    size = len(batch) - LOG_OVERHEAD + wrong_by
    damaged = DamagedBatch(0, size, 2, likely=True, legal=True, most=1 << 20, offset=0, last_offset=0)
    result = with_proved_size(buffer, damaged, len(batch))
    assert [finding.rule for finding in result.findings] == rules
    assert (result.entry_size, result.resume) == (len(batch), len(batch))
