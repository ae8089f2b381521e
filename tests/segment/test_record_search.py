"""The search of whole chunks, compared with a look at every record."""

from __future__ import annotations

from pathlib import Path

import pytest

from kseg.format.record.memory import Needle
from kseg.format.segment.deep_reader import DeepIterator
from kseg.format.segment.records_chunk import Chunk
from kseg.format.segment.row_filter import by_batch, rows_with, rows_with_key
from kseg.format.segment.segment_reader import SegmentReader
from kseg.format.storage.source import open_source
from tests.support.damaged_cases import damaged, written
from tests.support.fuzzing import cases


def fields(chunk: Chunk, i: int) -> list[bytes]:
    """Return key, value, header keys and header values of a record that are not null."""
    found = [chunk.key(i), chunk.value(i)]
    for key, value in chunk.header_fields(i):
        found += [bytes(key), None if value is None else bytes(value)]
    return [field for field in found if field is not None]


@pytest.mark.slow
def test_no_record_is_missed(tmp_path: Path) -> None:
    """Every record with the bytes in a field is found, in any version and codec and after damage; keys exactly."""
    compared = 0
    for seed in range(cases(60)):
        path = written(tmp_path / str(seed), damaged(seed))
        with SegmentReader(open_source(str(path)), verify_crc=seed % 2 == 0, by_name=True) as reader:
            opener = DeepIterator()
            for window in reader.windows():
                for chunk in opener.chunks(window):
                    rows = range(chunk.records.count)
                    keys = [chunk.key(i) for i in rows]
                    for key in {None, b"", *keys[:1], *keys[-1:]}:
                        assert rows_with_key(chunk, key) == [i for i in rows if keys[i] == key]
                    for text in (b"1", b"va", b"ab", b"k1", *filter(None, keys[:1])):
                        found = rows_with(chunk, [Needle(text)])
                        assert found == sorted(set(found))
                        assert set(found) >= {i for i in rows if any(text in field for field in fields(chunk, i))}
                        assert [i for _, group in by_batch(chunk, found) for i in group] == found
                        assert all(set(group) <= set(chunk.rows(row)) for row, group in by_batch(chunk, found))
                        compared += len(found)
    assert compared > 500
