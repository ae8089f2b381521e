"""Damage is reported once and as its kind, and all data after it is read as if the damage was absent."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from kseg.commands.validate.validate import validate_segment
from kseg.findings import Finding
from kseg.format.record.layout import LOG_OVERHEAD
from kseg.format.segment.deep_reader import DeepIterator
from kseg.format.segment.segment_reader import SegmentReader
from kseg.format.storage.segment_files import SegmentFile
from kseg.format.storage.source import open_source
from kseg.format.writer.records_builder import PlainRecord, build_batch
from kseg.results import Settings
from tests.support import damage
from tests.support.damage import Place, entries, get, put

SEGMENTS = Path(__file__).parents[2] / "fixtures" / "segments"
FIRST = "00000000000000000000.log"
MIB = 1024 * 1024

Told = tuple[str, int | None, int | None]
Read = tuple[int, bytes | None, bytes | None]

#: One of each layout: plain and compressed, of every version.
FOLDERS = {
    "v0": "2.8.2-v0-none",
    "v0-gzip": "2.8.2-v0-gzip",
    "v1": "2.8.2-v1-none",
    "v1-gzip": "2.8.2-v1-gzip",
    "v2": "4.3.0-v2-none",
    "v2-lz4": "4.3.0-v2-lz4",
}


def segment(folder: str) -> bytes:
    return (SEGMENTS / folder / FIRST).read_bytes()


@dataclass(frozen=True)
class Outcome:
    """The results of validating and reading a damaged segment."""

    findings: list[Finding]
    records: list[Read]
    lost: int

    @property
    def reported(self) -> list[Told]:
        return [(finding.rule, finding.position, finding.end) for finding in self.findings]


class Workbench:
    """Write bytes as a segment and read it, with the checks that hold for any damage."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self, data: bytes, name: str = FIRST) -> Outcome:
        path = self.folder / name
        path.write_bytes(data)
        return self.read_file(path, len(data))

    def read_file(self, path: Path, size: int) -> Outcome:
        """Read a file that has this size."""
        result = validate_segment(SegmentFile(str(path)), Settings(max_per_rule=10**6))
        assert result.unread is None, result.unread
        findings = [verdict.finding for verdict in result.verdicts]
        assert result.summary.bytes == size
        assert result.summary.lost_bytes <= sum((f.end or 0) - (f.position or 0) for f in findings if f.end)
        return Outcome(findings, records_in(path), result.summary.lost_bytes)


def write_sparse(path: Path, *parts: bytes | int) -> None:
    """Write bytes, and a hole for each number of bytes."""
    with path.open("wb") as out:
        for part in parts:
            if isinstance(part, int):
                out.seek(part, os.SEEK_CUR)
            else:
                out.write(part)
        out.truncate()


def records_in(path: Path) -> list[Read]:
    found: list[Read] = []
    with SegmentReader(open_source(path)) as reader:
        opener = DeepIterator()
        for window in reader.windows():
            for chunk in opener.chunks(window):
                count = chunk.records.count
                found += [(chunk.records.offset[i], chunk.key(i), chunk.value(i)) for i in range(count)]
    return found


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    return Workbench(tmp_path)


@pytest.fixture(params=FOLDERS, ids=list(FOLDERS))
def sound(request: pytest.FixtureRequest) -> bytes:
    return segment(FOLDERS[request.param])


@pytest.fixture
def middle(sound: bytes) -> Place:
    return entries(sound)[len(entries(sound)) // 2]


@pytest.fixture
def following(sound: bytes, middle: Place) -> Place:
    return next(place for place in entries(sound) if place.at == middle.end)


def all_records(bench: Workbench, data: bytes) -> list[Read]:
    seen = bench.read(data)
    assert seen.reported == []
    return seen.records


def without(data: bytes, *gone: Place) -> bytes:
    for place in sorted(gone, key=lambda place: -place.at):
        data = damage.cut(data, place.at, place.end)
    return data


def records_without(bench: Workbench, data: bytes, *gone: Place) -> list[Read]:
    """Return the records of all other batches."""
    path = bench.folder / "others.log"
    path.write_bytes(without(data, *gone))
    return records_in(path)


@pytest.mark.parametrize(("zeros", "named"), [(511, False), (512, True)])
def test_a_run_of_zeros_is_named(bench: Workbench, zeros: int, named: bool) -> None:
    """A block of zeros in lost bytes points to the disk: the message says how many there are, and where."""
    batches = [build_batch([PlainRecord(n, None, damage.noise(2_000), 1)]) for n in range(3)]
    lost = b"\xff" * 100 + bytes(zeros) + b"\xff" * (len(batches[1]) - zeros - 100)
    seen = bench.read(batches[0] + lost + batches[2])
    (found,) = [one for one in seen.findings if one.rule == "lost-bytes"]
    text = f"{zeros} of them, from byte {len(batches[0]) + 100}, are zeros"
    assert (text in found.message) == named, found.message


# Tails


def test_plain_end(bench: Workbench, sound: bytes) -> None:
    """A segment that ends after a batch has no finding."""
    assert bench.read(sound).reported == []


@pytest.mark.parametrize("size", [12, 16, 17, 61, 4096, 70_000, 5 * MIB])
def test_zeros_at_the_end_are_preallocated_space(bench: Workbench, sound: bytes, size: int) -> None:
    """Preallocated zeros are not damage."""
    seen = bench.read(sound + bytes(size))
    assert seen.reported == [("zero-tail", len(sound), len(sound) + size)]
    assert seen.lost == 0


def test_nothing_but_zeros(bench: Workbench) -> None:
    """A segment that was preallocated and never written to."""
    assert bench.read(bytes(100_000)).reported == [("zero-tail", 0, 100_000)]


@pytest.mark.slow
def test_a_cut_tail_at_every_length(bench: Workbench, sound: bytes) -> None:
    """An interrupted copy at every length: the tail is reported, and all batches before it are read."""
    last = entries(sound)[-1]
    kept = records_without(bench, sound, last)
    for size in [*range(1, min(last.size, 100)), last.size - 1]:
        seen = bench.read(sound[: last.at + size])
        assert seen.reported == [("truncated-tail", last.at, last.at + size)], size
        assert seen.lost == size
        assert seen.records == kept


def test_a_first_entry_cut_at_every_length(bench: Workbench, sound: bytes) -> None:
    """The name shows that it is a segment, even if the bytes are too few to show it."""
    for size in range(1, min(entries(sound)[0].size, 100)):
        assert bench.read(sound[:size]).reported == [("truncated-tail", 0, size)], size


def test_a_torn_body_then_zeros(bench: Workbench, sound: bytes) -> None:
    """A crash while writing to a preallocated segment."""
    last = entries(sound)[-1]
    written = last.size - 12
    data = sound[: last.at + written] + bytes(4096)
    seen = bench.read(data)
    rules = [finding.rule for finding in seen.findings]
    assert rules == ["truncated-tail", "zero-tail"]
    torn, zeros = seen.findings
    assert (torn.position, torn.end, zeros.end) == (last.at, last.end, len(data))
    assert seen.lost == last.size
    assert seen.records == records_without(bench, sound, last)


@pytest.mark.parametrize("written", [11, 12, 16, 20])
def test_a_torn_header_then_zeros(bench: Workbench, sound: bytes, written: int) -> None:
    """If the size was written, the incomplete batch reaches as far as it claims, else as far as it was written."""
    last = entries(sound)[-1]
    data = sound[: last.at + written] + bytes(20_000)
    seen = bench.read(data)
    torn, zeros = seen.findings
    assert (torn.rule, zeros.rule) == ("truncated-tail", "zero-tail")
    assert torn.position == last.at
    assert torn.end == zeros.position
    assert zeros.end == len(data)
    assert last.at < int(torn.end or 0) <= last.end
    assert seen.lost == int(torn.end or 0) - last.at


@pytest.mark.slow
@pytest.mark.parametrize("size", [20, 300, 100_000, 6 * MIB])
def test_garbage_at_the_end(bench: Workbench, sound: bytes, size: int) -> None:
    """Random bytes at the end are reported as lost."""
    seen = bench.read(sound + damage.noise(size))
    assert seen.reported == [("lost-bytes", len(sound), len(sound) + size)]
    assert seen.lost == size
    assert seen.findings[0].offset is None


# Zeros and garbage in the middle


def test_a_hole_of_zeros(bench: Workbench, sound: bytes, middle: Place) -> None:
    """A sparse hole between batches: no offset is lost with it."""
    for size in (30, 64, 100, 4096, 5 * MIB):
        seen = bench.read(damage.insert(sound, middle.at, bytes(size)))
        assert seen.reported == [("lost-bytes", middle.at, middle.at + size)]
        assert str(seen.findings[0].facts["why"]).startswith("zeros") or size < 64
        assert seen.findings[0].offset is None
        assert seen.lost == size
        assert len(seen.records) == len(all_records(bench, sound))


def test_a_page_of_zeros_over_two_entries(bench: Workbench, sound: bytes, middle: Place, following: Place) -> None:
    """From the middle of one batch into the next one's header, as a page that was never written leaves it."""
    seen = bench.read(damage.zero(sound, middle.at + 30, following.at + 24))
    assert seen.lost == middle.size + following.size
    assert seen.records == records_without(bench, sound, middle, following)
    assert {finding.rule for finding in seen.findings} <= {"lost-bytes", "crc-mismatch"}


@pytest.mark.parametrize("size", [1, 5, 12, 61, 1000, 300_000])
def test_garbage_between_entries(bench: Workbench, sound: bytes, middle: Place, size: int) -> None:
    """Batches after random bytes are read."""
    seen = bench.read(damage.insert(sound, middle.at, damage.noise(size)))
    assert seen.reported == [("lost-bytes", middle.at, middle.at + size)]
    assert seen.findings[0].offset is None, "no offset is lost"
    assert seen.lost == size
    assert seen.records == all_records(bench, sound)


def test_garbage_before_the_first_entry(bench: Workbench, sound: bytes) -> None:
    """Batches after random bytes at the beginning are read."""
    seen = bench.read(damage.noise(100) + sound)
    assert seen.reported == [("lost-bytes", 0, 100)]
    assert seen.records == all_records(bench, sound)


def test_garbage_over_an_entry_and_into_the_next(
    bench: Workbench, sound: bytes, middle: Place, following: Place
) -> None:
    """The lost offsets are reported if the next batch has its first offset."""
    end = following.at + 20
    seen = bench.read(damage.splice(sound, middle.at, end, damage.noise(end - middle.at)))
    assert seen.reported == [("lost-bytes", middle.at, following.end)]
    assert seen.records == records_without(bench, sound, middle, following)
    wrapper = middle.magic < 2 and get(sound, middle.at, "attributes")
    if not wrapper:
        assert seen.findings[0].offset == get(sound, middle.at, "base_offset")
        assert seen.findings[0].last_offset == get(sound, following.end, "base_offset") - 1


# Sizes


def sizes(place: Place) -> list[int]:
    true = place.size - LOG_OVERHEAD
    small = [true - 1, true - 7, true + 1, true + 9, true + 61]
    return [*small, 49, 22, 14, 13, 1, 0, -1, -(2**31), 10**5, 200 * MIB, 2**31 - 1]


@pytest.mark.slow
def test_a_wrong_size_is_proved(bench: Workbench, sound: bytes, middle: Place) -> None:
    """The size is outside a v2 CRC: with the right size the CRC is valid, and no byte is lost."""
    whole = all_records(bench, sound)
    for place in (middle, entries(sound)[0], entries(sound)[-1]):
        for size in sizes(place):
            if size == place.size - LOG_OVERHEAD:
                continue
            seen = bench.read(put(sound, place.at, size=size))
            assert seen.reported == [("invalid-size", place.at, place.end)], size
            assert seen.findings[0].facts["size"] == size
            assert seen.findings[0].facts["proved_size"] == place.size - LOG_OVERHEAD
            assert seen.findings[0].last_offset is not None
            assert seen.lost == 0
            assert seen.records == whole


def test_a_size_that_includes_the_next_batch(bench: Workbench, sound: bytes, middle: Place, following: Place) -> None:
    """It ends where another batch begins, as a valid one would; the CRC is valid with the true size only."""
    seen = bench.read(put(sound, middle.at, size=middle.size + following.size - LOG_OVERHEAD))
    assert seen.reported == [("invalid-size", middle.at, middle.end)]
    assert seen.records == all_records(bench, sound)


@pytest.mark.parametrize(("first", "second"), [(3, 2**30), (-1, -1), (100, 100), (2**31 - 1, 0)])
def test_two_wrong_sizes_in_a_row(
    bench: Workbench, sound: bytes, middle: Place, following: Place, first: int, second: int
) -> None:
    """Each wrong size is corrected by its CRC."""
    seen = bench.read(put(put(sound, middle.at, size=first), following.at, size=second))
    assert seen.reported == [("invalid-size", middle.at, middle.end), ("invalid-size", following.at, following.end)]
    assert seen.records == all_records(bench, sound)


@pytest.mark.parametrize("by", [-3, 3, 500])
def test_a_wrong_size_before_preallocated_zeros(bench: Workbench, sound: bytes, by: int) -> None:
    """The search for the right size stops at the zeros."""
    last = entries(sound)[-1]
    seen = bench.read(put(sound, last.at, size=last.size - LOG_OVERHEAD + by) + bytes(4096))
    assert seen.reported == [("invalid-size", last.at, last.end), ("zero-tail", last.end, last.end + 4096)]
    assert seen.records == all_records(bench, sound)


@pytest.mark.parametrize("torn", [1, 11, 16, 20])
def test_a_wrong_size_before_a_torn_header(bench: Workbench, sound: bytes, torn: int) -> None:
    """The search for the right size stops at the cut header."""
    *_, place, last = entries(sound)
    seen = bench.read(put(sound[: last.at + torn], place.at, size=7))
    assert seen.reported == [("invalid-size", place.at, place.end), ("truncated-tail", last.at, last.at + torn)]
    assert seen.records == records_without(bench, sound, last)


def test_a_wrong_size_and_a_bad_crc(bench: Workbench, sound: bytes, middle: Place) -> None:
    """Two faults: bytes that can't be proved are lost, up to the next batch, and not more."""
    for size in (-1, 5, 10**5, 200 * MIB):
        broken = damage.flip(put(sound, middle.at, size=size), middle.end - 1)
        seen = bench.read(broken)
        assert seen.reported[-1] == ("lost-bytes", middle.at, middle.end), size
        assert {finding.rule for finding in seen.findings} <= {"invalid-size", "lost-bytes"}
        assert seen.lost == middle.size
        assert seen.records == records_without(bench, sound, middle)


# Magic


@pytest.mark.parametrize("magic", [0, 1, 2, 3, 7, 127, 128, 255])
def test_a_wrong_magic_is_proved(bench: Workbench, sound: bytes, middle: Place, magic: int) -> None:
    """The CRC shows that only the magic byte is wrong."""
    if magic == middle.magic:
        return
    seen = bench.read(damage.splice(sound, middle.at + 16, middle.at + 17, bytes([magic])))
    assert seen.reported == [("unknown-magic", middle.at, middle.end)]
    assert seen.findings[0].facts["magic"] == (magic if magic < 128 else magic - 256)
    assert seen.records == all_records(bench, sound)


def test_an_unknown_version(bench: Workbench) -> None:
    """A batch of a later version with the same framing: it is reported and skipped, and later batches are read."""
    sound = segment(FOLDERS["v2"])
    place = entries(sound)[2]
    broken = damage.flip(put(sound, place.at, magic=3), place.end - 1)
    seen = bench.read(broken)
    assert seen.reported == [("unknown-magic", place.at, place.end)]
    assert seen.lost == place.size
    assert seen.records == records_without(bench, sound, place)


# Offsets


@pytest.mark.parametrize("folder", ["v0", "v1", "v2", "v2-lz4"])
@pytest.mark.parametrize("bit", [1, 5, 30, 40, 62, 63])
def test_a_base_offset_flipped(bench: Workbench, folder: str, bit: int) -> None:
    """Outside of every CRC: the neighbours show that only this one is wrong, and the finding says so."""
    sound = segment(FOLDERS[folder])
    place = entries(sound)[len(entries(sound)) // 2]
    offset = get(sound, place.at, "base_offset")
    wrong = offset ^ (1 << bit if bit < 63 else -(1 << 63))
    seen = bench.read(put(sound, place.at, base_offset=wrong))
    assert seen.reported == [("non-monotonic-offset", place.at, place.end)]
    assert seen.findings[0].facts["offset"] == wrong
    assert "base offset" in seen.findings[0].facts["note"]


def test_a_wrong_offset_does_not_hide_batches_after_later_damage(bench: Workbench, sound: bytes) -> None:
    """The search after damage expects increasing offsets: one wrong offset before must not prevent all later matches."""
    places = entries(sound)
    wild, broken = places[1], places[len(places) // 2]
    data = put(sound, wild.at, base_offset=get(sound, wild.at, "base_offset") + (1 << 45))
    data = damage.splice(data, broken.at, broken.at + 30, damage.noise(30))
    values = [value for _, _, value in bench.read(data).records]
    assert values == [value for _, _, value in records_without(bench, sound, broken)]


# Content


def test_a_bad_entry_and_two_in_a_row(bench: Workbench, sound: bytes, middle: Place, following: Place) -> None:
    """Damaged batches don't cost their neighbours."""
    first, last = entries(sound)[0], entries(sound)[-1]
    for bad in ([first], [middle], [last], [middle, following], [first, middle, following, last]):
        data = sound
        for place in bad:
            data = damage.flip(data, place.end - 1)
        seen = bench.read(data)
        assert seen.reported == [("crc-mismatch", place.at, place.end) for place in bad]
        assert seen.lost == sum(place.size for place in bad)
        assert seen.records == records_without(bench, sound, *bad)


def test_every_entry_is_bad(bench: Workbench, sound: bytes) -> None:
    """A segment without a valid batch is read to its end."""
    data = sound
    for place in entries(sound):
        data = put(data, place.at, crc=get(data, place.at, "crc") ^ 1)
    seen = bench.read(data)
    assert seen.records == []
    assert seen.lost == len(sound)
    assert {finding.rule for finding in seen.findings} == {"crc-mismatch"}


def test_the_crc_itself_is_flipped(bench: Workbench, sound: bytes, middle: Place) -> None:
    """A wrong stored CRC costs this batch only."""
    at = middle.at + damage.FIELDS[middle.magic]["crc"][0]
    seen = bench.read(damage.flip(sound, at))
    assert seen.reported == [("crc-mismatch", middle.at, middle.end)]


# Batches inside a record's value: a mirrored log, a dead letter queue


def mirror(inner: bytes, *, offset: int, fill: int = 0) -> bytes:
    """Return a batch of three records; the second's value contains complete batches of another log."""
    like = segment(FOLDERS["v2"])
    value = damage.noise(fill) + inner
    body = b"".join(
        (damage.record(), damage.record(value=value, offset_delta=1), damage.record(value=b"last", offset_delta=2))
    )
    return damage.batch(like, body, 3, base_offset=offset, base_timestamp=1, max_timestamp=1)


def log_with(outer: bytes, behind: int = 4) -> tuple[bytes, Place]:
    """Return batches of offsets 0 to 12, the outer one from 13 on, and single-record ones after it."""
    sound = segment(FOLDERS["v2"])
    head = sound[: entries(sound)[1].end]
    singles = [
        damage.batch(sound, damage.record(value=b"%d" % i), 1, base_offset=16 + i, base_timestamp=1, max_timestamp=1)
        for i in range(behind)
    ]
    return head + outer + b"".join(singles), Place(len(head), len(head) + len(outer), 2)


INNERS = {
    "one batch": lambda: damage.move(segment(FOLDERS["v2"])[: entries(segment(FOLDERS["v2"]))[0].end], 0, 20),
    "a segment": lambda: segment(FOLDERS["v2"]),
    "a segment with greater offsets": lambda: damage.move(segment(FOLDERS["v2"]), 0, 1000),
    "a segment that goes on here": lambda: damage.move(segment(FOLDERS["v2"]), 0, 16),
    "two hundred batches": lambda: b"".join(
        damage.move(segment(FOLDERS["v2"])[475:742], 0, 10 + i) for i in range(200)
    ),
    "v1 messages": lambda: segment(FOLDERS["v1"]),
}


@pytest.mark.parametrize("inner", INNERS)
@pytest.mark.parametrize("size", [-1, 60, 100, 10**6, 2**30])
def test_batches_in_a_value_are_no_entries(bench: Workbench, inner: str, size: int) -> None:
    """The outer size is wrong: the search meets valid batches inside it, and must not return them."""
    data, outer = log_with(mirror(INNERS[inner](), offset=13))
    whole = bench.read(data)
    assert {finding.rule for finding in whole.findings} <= {"timestamp-unit"}
    seen = bench.read(put(data, outer.at, size=size))
    assert seen.reported[0] == ("invalid-size", outer.at, outer.end)
    assert seen.records == whole.records


@pytest.mark.parametrize("inner", ["one batch", "a segment", "a segment with greater offsets", "v1 messages"])
def test_batches_in_the_value_of_a_lost_entry(bench: Workbench, inner: str) -> None:
    """Size and CRC are wrong: without proof, the offsets and the later batches distinguish inner from outer batches."""
    data, outer = log_with(mirror(INNERS[inner](), offset=13, fill=100))
    whole = bench.read(data)
    seen = bench.read(damage.flip(put(data, outer.at, size=-5), outer.end - 1))
    assert seen.records == [record for record in whole.records if not 13 <= record[0] <= 15]
    assert seen.lost == outer.size


@pytest.mark.parametrize("inner", ["one batch", "a segment", "a segment with greater offsets", "v1 messages"])
def test_batches_in_the_value_of_an_entry_without_a_header(bench: Workbench, inner: str) -> None:
    """Inner batches are not returned as batches of this log."""
    data, outer = log_with(mirror(INNERS[inner](), offset=13, fill=100))
    whole = bench.read(data)
    seen = bench.read(damage.splice(data, outer.at, outer.at + 80, damage.noise(80)))
    assert seen.records == [record for record in whole.records if not 13 <= record[0] <= 15]
    assert seen.lost == outer.size


def test_more_damage_directly_after_damage(bench: Workbench) -> None:
    """A valid batch between two damaged places is read, though damage follows it again."""
    sound = segment(FOLDERS["v1"])
    places = entries(sound)
    data = sound
    for place in places[1::2]:
        data = damage.splice(data, place.at, place.at + 30, damage.noise(30, place.at % 251))
    seen = bench.read(data)
    assert seen.records == records_without(bench, sound, *places[1::2])


# Whole batches next to damage


def whole_after(data: bytes, *touched: Place) -> set[bytes]:
    return {data[place.at : place.end] for place in entries(data) if place not in touched}


def read_whole(bench: Workbench, data: bytes) -> set[bytes]:
    """Return the batches with a valid CRC that any reader gets."""
    path = bench.folder / FIRST
    path.write_bytes(data)
    found = set()
    with SegmentReader(open_source(path)) as reader:
        for window in reader.windows():
            batches = window.batches
            for row in range(batches.count):
                if batches.crc_state[row]:
                    found.add(bytes(window.view[batches.at[row] : batches.at[row] + batches.size[row]]))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("bit", [0, 3, 9, 17, 40, 62, 63])
def test_a_flipped_offset_after_overwritten_bytes(bench: Workbench, sound: bytes, bit: int) -> None:
    """The first batch after damage has a wrong base offset, which no CRC covers: the batches after it are read."""
    for broken, wild in pairwise(entries(sound)):
        data = damage.splice(sound, broken.at, broken.end, damage.noise(broken.size))
        data = damage.flip(data, wild.at + 7 - bit // 8, 1 << bit % 8)
        assert whole_after(sound, broken, wild) <= read_whole(bench, data)


@pytest.mark.slow
@pytest.mark.parametrize("gone", [1, 8, 12, 17, 61, 80])
def test_bytes_cut_from_a_batch(bench: Workbench, sound: bytes, gone: int) -> None:
    """The size of the batch then ends inside the next one, where some bytes may look like a header."""
    for place, after in list(pairwise(entries(sound)))[:12]:
        if place.size > gone:
            for begin in range(place.at + 1, place.end - gone, 13):
                data = damage.cut(sound, begin, begin + gone)
                # A run of zeros across a boundary can equally be missing bytes of the next batch.
                same = data[place.at : place.end] == sound[place.at : place.end]
                assert whole_after(sound, after if same else place) <= read_whole(bench, data), (place, begin)


def test_bytes_inserted_into_a_small_message(bench: Workbench) -> None:
    """Small messages with a good CRC are read up to the next damage, whatever offset the bytes there seem to have."""
    dice = random.Random(1)
    for folder in ("0.10.2.2-v1-none", "2.8.2-v0-none"):
        sound = segment(folder)
        first, *_, later = entries(sound)[2:-2]
        for _ in range(50):
            data = damage.splice(sound, later.at, later.at + 40, dice.randbytes(40))
            data = damage.insert(data, first.at + dice.randrange(1, first.size), dice.randbytes(500))
            after = next((place for place in entries(sound) if place.at == later.end), later)
            assert whole_after(sound, first, later, after) <= read_whole(bench, data)


def test_stale_copies_after_damage(bench: Workbench, sound: bytes) -> None:
    """A block of later batches over an earlier one: every original is read."""
    places = entries(sound)
    stale = sound[places[-3].at : places[-1].end]
    for place in places[1:-3]:
        data = damage.splice(sound, place.at + 3, place.end, damage.noise(20) + stale + damage.noise(20))
        assert whole_after(sound, place) <= read_whole(bench, data)


# Names


@pytest.mark.parametrize(("name", "rules"), [(0, []), (13, ["file-name-mismatch"]), (2**40, ["file-name-mismatch"])])
def test_the_name_against_the_contents(bench: Workbench, name: int, rules: list[str]) -> None:
    """A wrong file name is reported, and the batches are kept."""
    seen = bench.read(segment(FOLDERS["v2"]), f"{name:020}.log")
    assert [finding.rule for finding in seen.findings] == rules


def test_a_wrong_name_does_not_hide_batches_after_damage(bench: Workbench) -> None:
    """The search does not depend on the file name."""
    sound = segment(FOLDERS["v2"])
    first = entries(sound)[0]
    seen = bench.read(damage.splice(sound, 0, 80, damage.noise(80)), f"{10**9:020}.log")
    assert seen.records == records_without(bench, sound, first)


# Size and time

MEASURED = """
import json, resource, sys
from kseg.format.storage.segment_files import SegmentFile
from kseg.commands.validate.validate import validate_segment
from kseg.results import Settings
summary = validate_segment(SegmentFile(sys.argv[1]), Settings()).summary
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
print(json.dumps([peak, summary.lost_bytes, summary.records, dict(summary.rules)]))
"""


def measure(path: Path) -> tuple[int, int, int, dict[str, int]]:
    """Return (peak MiB, lost bytes, records, findings by rule) of a process that only validates the file."""
    done = subprocess.run([sys.executable, "-c", MEASURED, str(path)], capture_output=True, check=True, timeout=300)
    peak, lost, records, rules = json.loads(done.stdout)
    return peak, lost, records, rules


def test_a_hole_of_a_gibibyte(bench: Workbench) -> None:
    """Sparse, so it costs no disk: read in seconds, in the memory of a usual file."""
    sound = segment(FOLDERS["v2"])
    place = entries(sound)[2]
    path = bench.folder / FIRST
    path.write_bytes(sound)
    usual = measure(path)[0]
    path.write_bytes(sound[: place.at])
    os.truncate(path, 1024 * MIB)
    with path.open("ab") as file:
        file.write(sound[place.at :])
    peak, lost, records, rules = measure(path)
    assert (lost, records, rules) == (1024 * MIB - place.at, 44, {"lost-bytes": 1})
    assert peak < usual + 16


def test_a_wrong_size_costs_no_memory(bench: Workbench) -> None:
    """250 MiB claimed in a file of less than 14 kB, and in one where 250 MiB follow."""
    sound = segment(FOLDERS["v2"])
    place = entries(sound)[2]
    path = bench.folder / FIRST
    path.write_bytes(sound)
    usual = measure(path)[0]
    # Once with the CRC to prove the true size, once without.
    lie = put(sound, place.at, size=250 * MIB)
    for data, room in ((lie, 16), (damage.flip(lie, place.end - 1), 48)):
        for size in (len(sound), 300 * MIB):
            path.write_bytes(data)
            os.truncate(path, size)
            peak, lost, records, rules = measure(path)
            assert records == 44 if data is lie else records == 44 - 12
            assert lost == (0 if data is lie else place.size)
            assert peak < usual + room, (size, rules)


def test_traps_take_linear_time(bench: Workbench) -> None:
    """Headers that look real, each of which claims all following bytes: reading each claim would take quadratic time."""
    sound = segment(FOLDERS["v2"])
    place = entries(sound)[1]
    trap = put(sound[place.at : place.at + 61], 0, base_offset=14, size=150_000)
    data = damage.insert(sound, place.end, trap * 10_000)
    seen = bench.read(data)
    assert seen.lost == len(trap) * 10_000
    assert seen.records == all_records(bench, sound)


# Holes


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_a_hole_is_read_as_the_same_zeros_on_the_disk(bench: Workbench, sound: bytes, seed: int) -> None:
    """Holes are passed without reading: findings, records and lost bytes are those of stored zeros."""
    dice = random.Random(seed)
    parts: list[bytes | int] = []
    at = 0
    for _ in range(dice.randint(1, 3)):
        end = dice.choice([*(place.at for place in entries(sound)), dice.randrange(len(sound)), len(sound)])
        parts += [sound[at:end], dice.choice([dice.randrange(1, 3 << 16), dice.randrange(4 << 20, 6 << 20)])]
        at = max(at, end)
    parts.append(sound[at:] if dice.random() < 0.7 else b"")
    data = b"".join(bytes(part) if isinstance(part, int) else part for part in parts)
    path = bench.folder / "sparse" / FIRST
    path.parent.mkdir()
    stored = bench.read(data)
    (bench.folder / FIRST).unlink()  # megabytes, for each test that is kept
    write_sparse(path, *parts)
    sparse = Workbench(path.parent).read_file(path, len(data))
    assert (sparse.reported, sparse.lost) == (stored.reported, stored.lost)
    assert sparse.records == stored.records


def test_a_hole_of_terabytes_costs_nothing(bench: Workbench, sound: bytes) -> None:
    """The batches behind it are found, by one process and by several."""
    path, hole = bench.folder / FIRST, 15 << 40
    tail = sound
    for place in entries(sound):  # lower offsets could be those in a message set
        tail = put(tail, place.at, base_offset=get(sound, place.at, "base_offset") + 1_000_000)
    try:
        write_sparse(path, sound, hole, tail)
    except OSError as error:
        pytest.skip(f"the file system has no such files: {error.strerror}")
    seen = bench.read_file(path, 2 * len(sound) + hole)
    first, *_ = seen.findings
    assert (first.position, first.end) == (len(sound), len(sound) + hole)
    assert [one[1:] for one in seen.records] == 2 * [one[1:] for one in bench.read(sound).records]
