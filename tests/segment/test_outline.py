"""The outline of a segment is that of its batches, whatever the size of the segment and the number of processes."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

import kseg
from kseg.commands.validate.validate import validate_segment
from kseg.commands.validate.validate_ranges import validate_files
from kseg.format.segment import several_processes
from kseg.format.segment.outline import Outline, OutlineCounter, joined
from kseg.format.segment.segment_reader import SegmentReader
from kseg.format.storage.segment_files import SegmentFile
from kseg.format.storage.source import Source, open_source, open_split
from kseg.format.writer.records_builder import PlainRecord, build_batch
from kseg.results import Settings
from tests.support.fixtures import SEGMENTS

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
MOST_BUCKETS = 96


def outline_of(source: Source) -> Outline:
    counter = OutlineCounter()
    with SegmentReader(source) as reader:
        for window in reader.windows():
            counter.update(window.batches, set())
    return counter.outline()


@pytest.fixture(scope="module")
def segment(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[tuple[int, int, int]]]:
    """Return a segment of all codecs and many producers, and (size, number, codec) of each of its batches."""
    dice = Random(7)
    written, batches = [], []
    for number in range(700):
        value = dice.randbytes(dice.choice((10, 100, 5000)))
        codec = number * len(CODECS) // 700
        record = PlainRecord(offset=2 * number, timestamp=1_700_000_000_000 + number, key=b"k", value=value)
        data = build_batch(
            [record], compression=CODECS[codec], producer_id=number % 40, producer_epoch=0, base_sequence=number
        )
        written.append(data)
        batches.append((len(data), number, codec))
    path = tmp_path_factory.mktemp("outline") / "00000000000000000000.log"
    path.write_bytes(b"".join(written))
    return path, batches


def test_an_outline_sums_the_batches_up(segment: tuple[Path, list[tuple[int, int, int]]]) -> None:
    """Each column is compared with the batches that touch its bucket."""
    path, batches = segment
    found = outline_of(open_source(str(path)))
    assert 48 <= len(found.codecs) <= MOST_BUCKETS
    touching: list[list[tuple[int, int, int]]] = [[] for _ in found.codecs]
    weights: list[Counter[int]] = [Counter() for _ in found.codecs]
    position = 0
    for size, number, codec in batches:
        for bucket in range(position // found.width, (position + size - 1) // found.width + 1):
            touching[bucket].append((size, number, codec))
            begin, end = max(position, bucket * found.width), min(position + size, (bucket + 1) * found.width)
            weights[bucket][codec] += end - begin
        position += size
    assert list(found.largest) == [max(size for size, _, _ in inside) for inside in touching]
    assert list(found.times) == [1_700_000_000_000 + max(number for _, number, _ in inside) for inside in touching]
    assert list(found.first) == [2 * min(number for _, number, _ in inside) for inside in touching]
    assert list(found.last) == [2 * max(number for _, number, _ in inside) for inside in touching]
    assert list(found.codec_bytes) == [max(weight.values()) for weight in weights]
    assert all(weight[codec] == max(weight.values()) for codec, weight in zip(found.codecs, weights, strict=True))
    assert sum(found.bytes_by_codec) == path.stat().st_size
    assert sum(found.sizes) == len(batches)
    produced: Counter[int] = Counter()
    for size, number, _ in batches:
        produced[number % 40] += size
    assert dict(found.producers) == dict(produced.most_common(20))


def test_the_outlines_of_ranges_join_to_that_of_the_segment(segment: tuple[Path, list[tuple[int, int, int]]]) -> None:
    """A large segment is read by several processes. Only producers beyond the named ones can differ."""
    path, batches = segment
    whole = outline_of(open_source(str(path)))
    ends = [0]
    for size, _, _ in batches:
        ends.append(ends[-1] + size)
    for cuts in ([0, 350, 700], [0, 1, 2, 700], [0, 100, 699, 700]):
        parts = [outline_of(open_split(str(path), ends[first], ends[last])) for first, last in pairwise(cuts)]
        together = joined(parts)
        for name in ("width", "largest", "records", "times", "first", "last", "sizes", "bytes_by_codec", "codecs"):
            assert getattr(together, name) == getattr(whole, name), (cuts, name)


def test_validation_has_outlines_only_on_request(
    segment: tuple[Path, list[tuple[int, int, int]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counting for plots takes time that other reports must not pay. One process and several return the same."""
    path, batches = segment
    assert validate_segment(str(path)).outline is None
    monkeypatch.setattr(several_processes, "RANGE_SIZE", 100_000)
    monkeypatch.setattr(several_processes, "SEARCH_REACH", 80_000)
    monkeypatch.setattr(several_processes, "BEGIN_ALONE", False)
    file, settings = SegmentFile(str(path)), Settings(outline=True)
    (one,) = validate_files([file], settings, 1)
    (two,) = validate_files([file], settings, 2)
    assert one.outline is not None
    assert two.outline is not None
    assert sum(one.outline.sizes) == len(batches)
    assert list(one.outline.largest) == list(two.outline.largest)
    assert list(one.outline.codecs) == list(two.outline.codecs)


@pytest.mark.parametrize("name", ["2.8.2-v0v1v2-mixed", "0.8.2.2-v0-gzip", "0.10.2.2-v1-gzip-segments"])
def test_all_versions_have_outlines(name: str) -> None:
    """v0 and v1 messages have neither producers nor, in v0, timestamps."""
    for path in (SEGMENTS / name).glob("*.log"):
        with kseg.open_segment(str(path)) as segment:
            batches = list(segment.batches())
        found = outline_of(open_source(str(path)))
        assert sum(found.sizes) == len(batches)
        assert max(found.times) == max(-1 if batch.max_timestamp is None else batch.max_timestamp for batch in batches)
        assert max(found.last) == max(batch.last_offset for batch in batches)


def test_an_empty_segment_has_an_empty_outline(tmp_path: Path) -> None:
    """The active segment of an idle partition."""
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(b"")
    assert list(outline_of(open_source(str(path))).codecs) == []
