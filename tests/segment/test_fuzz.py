"""No byte is trusted: for any file, reading ends, and damage is findings, never an exception."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kseg.errors import NotASegmentError
from kseg.findings import Finding
from kseg.format.checks.batch_checks import CheckSettings, CheckState
from kseg.format.checks.run_checks import BATCH_CHECKS, RECORD_CHECKS
from kseg.format.segment.deep_reader import DeepIterator
from kseg.format.segment.records_chunk import record_batch
from kseg.format.segment.segment_reader import SegmentReader
from kseg.format.storage.source import Source
from tests.support import damage
from tests.support.fuzzing import cases

SEGMENTS = Path(__file__).parents[2] / "fixtures" / "segments"
FIRST = "00000000000000000000.log"
NOW = 1_800_000_000_000
#: The decompression limit of this test: a flipped bit may request more than a test should use.
LIMIT = 1 << 20

# Every byte of these is flipped: the smallest of each version and codec, and special ones.
SMALL = (
    "0.9.0.1-v0-gzip-compacted",
    "2.8.2-v0-none-compacted",
    "2.8.2-v0-snappy-compacted",
    "0.10.2.2-v1-gzip-segments",
    "2.8.2-v1-lz4-compacted",
    "2.8.2-v1-none-compacted",
    "1.1.1-v2-snappy-compacted",
    "4.3.0-v2-lz4-compacted",
    "4.3.0-v2-none-transactions",
    "4.3.0-v2-none-compacted-transactions",
)
# Of these only every n-th byte, another one in each run of the loop over all fixtures.
LARGE = sorted(path.parent.name for path in SEGMENTS.glob(f"*/{FIRST}") if path.parent.name not in SMALL)
BYTES_OF_LARGE = 60


def sound(folder: str) -> bytes:
    return (SEGMENTS / folder / FIRST).read_bytes()


def read(data: bytes, *, verify_crc: bool = True) -> list[Finding]:
    """Read, open and check a whole file as validate and a deep dump do, with the checks that hold for any input."""
    found: list[Finding] = []
    end = 0
    try:
        reader = SegmentReader(Source(FIRST, io.BytesIO(data), len(data)), report=found.append, verify_crc=verify_crc)
        opener = DeepIterator(found.append, limit=LIMIT)
        limits, history = CheckSettings(now=NOW, compacted=True, name_offset=0, deep=True), CheckState()
        for window in reader.windows():
            batches = window.batches
            for row in range(batches.count):
                batch = record_batch(batches, row)
                assert batch.position >= end, "entries don't overlap"
                end = batch.position + batch.size
                assert end <= len(data)
            for chunk in opener.chunks(window):
                for record_check in RECORD_CHECKS:
                    record_check.run(chunk, limits, found.append)
                for i in range(chunk.records.count):
                    chunk.record(i)
            for check in BATCH_CHECKS:
                check.run(batches, limits, history, found.append)
        assert reader.position == len(data)
        assert 0 <= reader.lost_bytes <= len(data)
    except NotASegmentError:
        assert not end
    for finding in found:
        assert finding.message
        assert 0 <= (finding.position or 0) <= (len(data) if finding.end is None else finding.end) <= len(data)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("folder", SMALL)
def test_every_byte_flipped(folder: str) -> None:
    """Each flipped byte ends in findings or valid rows."""
    data = sound(folder)
    before = {finding.rule for finding in read(data)}
    for position in range(len(data)):
        found = read(damage.flip(data, position))
        # A flip in bytes that a CRC covers must be found; a base offset or a leader epoch can still look valid.
        if not _outside_crc(data, position):
            assert {finding.rule for finding in found} - before, position


def _outside_crc(data: bytes, position: int) -> bool:
    (place,) = [place for place in damage.entries(data) if place.at <= position < place.end]
    at = position - place.at
    return at < 8 or (place.magic == 2 and 12 <= at < 16)


@pytest.mark.slow
@pytest.mark.parametrize("folder", SMALL)
def test_every_bit_of_the_headers_flipped(folder: str) -> None:
    """Each flipped bit of a header ends in findings or valid rows."""
    data = sound(folder)
    for place in damage.entries(data)[:2]:
        for position in range(place.at, min(place.at + 64, place.end)):
            for bit in range(7):
                read(damage.flip(data, position, 1 << bit))


@pytest.mark.slow
@pytest.mark.parametrize("folder", SMALL)
def test_every_byte_flipped_with_a_valid_crc(folder: str) -> None:
    """Most of the code is there: varints, lengths, counts, codecs."""
    data = sound(folder)
    for place in damage.entries(data):
        crc = damage.FIELDS[place.magic]["crc"][0]
        begin = crc + 4 if place.magic == 2 else 17  # a flipped magic is another version's business
        for position in range(place.at + begin, place.end):
            read(damage.fix_crc(damage.flip(data, position), place.at))


@pytest.mark.slow
@pytest.mark.parametrize("folder", SMALL)
def test_every_length_cut(folder: str) -> None:
    """A file that is cut anywhere is read up to the cut."""
    data = sound(folder)
    ends = {place.end for place in damage.entries(data)}
    for size in range(len(data)):
        rules = {finding.rule for finding in read(data[:size])}
        assert ("truncated-tail" in rules) == (size not in ends and size > 0), size


@pytest.mark.slow
@pytest.mark.parametrize("folder", LARGE)
def test_bytes_of_the_others_flipped(folder: str) -> None:
    """Flipped bytes in the other fixtures end in findings."""
    data = sound(folder)
    step = max(1, len(data) // BYTES_OF_LARGE)
    for position in range(step // 2, len(data), step):
        read(damage.flip(data, position))


@pytest.mark.parametrize("folder", SMALL)
def test_without_checking_crcs(folder: str) -> None:
    """As a consumer with check.crcs=false: the decoders get the damage directly."""
    data = sound(folder)
    for position in range(0, len(data), 3):
        read(damage.flip(data, position), verify_crc=False)


FUZZ = settings(max_examples=cases(150), suppress_health_check=[HealthCheck.too_slow])

SOURCES = st.sampled_from([*SMALL, "2.8.2-v0v1v2-mixed", "2.8.2-v2v1v0v2-downgraded", "4.3.0-v2-none-headers"])

Mutation = Callable[[bytes], bytes]


@st.composite
def mutations(draw: st.DrawFn) -> Mutation:
    """One act of damage at a random place, scaled to the bytes there."""
    where, how_long = draw(st.floats(0, 1)), draw(st.integers(1, 200))
    kind = draw(st.sampled_from(["flip", "cut", "insert", "zero", "copy", "shrink", "field"]))
    piece = draw(st.binary(min_size=1, max_size=60))
    field = draw(st.sampled_from([*damage.FIELDS[2], "key_size", "timestamp"]))
    value = draw(st.sampled_from([0, 1, -1, 2**7 - 1, 2**15 - 1, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63)]))

    def apply(data: bytes) -> bytes:
        if not data:
            return piece
        begin = min(int(where * len(data)), len(data) - 1)
        end = min(begin + how_long, len(data))
        if kind == "flip":
            return damage.flip(data, begin, piece[0] or 1)
        if kind == "cut":
            return damage.cut(data, begin, end)
        if kind == "insert":
            return damage.insert(data, begin, piece)
        if kind == "zero":
            return damage.zero(data, begin, end)
        if kind == "copy":
            return damage.insert(data, end, data[begin:end])
        if kind == "shrink":
            return data[:begin]
        return _field(data, begin, field, value)

    return apply


def _field(data: bytes, near: int, field: str, value: int) -> bytes:
    """Set a header field of the batch near a place to an extreme, with a valid CRC, if a batch is there."""
    places = [place for place in damage.entries(data) if place.at <= near]
    if not places or field not in damage.FIELDS[places[-1].magic] or field in ("size", "magic"):
        return data
    bits = 8 * {"q": 8, "i": 4, "I": 4, "h": 2, "H": 2, "B": 1}[damage.FIELDS[places[-1].magic][field][1]]
    unsigned = value & ((1 << bits) - 1)
    signed = unsigned - (1 << bits) if unsigned >> (bits - 1) else unsigned
    code = damage.FIELDS[places[-1].magic][field][1]
    return damage.alter(data, places[-1].at, **{field: unsigned if code.isupper() else signed})


@FUZZ
@given(SOURCES, st.lists(mutations(), min_size=1, max_size=6))
def test_several_mutations(folder: str, damages: list[Mutation]) -> None:
    """Several acts of damage end in findings."""
    data = sound(folder)
    for apply in damages:
        data = apply(data)
    read(data)


@FUZZ
@given(SOURCES, SOURCES, st.floats(0, 1), st.floats(0, 1))
def test_two_files_spliced(first: str, second: str, cut: float, resume: float) -> None:
    """A disk that confuses the blocks of files leaves such a file."""
    head, tail = sound(first), sound(second)
    read(head[: int(cut * len(head))] + tail[int(resume * len(tail)) :])


@FUZZ
@given(st.binary(max_size=3000))
def test_random_bytes(data: bytes) -> None:
    """Random files end in findings or NotASegmentError."""
    read(data)


@FUZZ
@given(st.lists(st.sampled_from([b"\0", b"\x01", b"\x02", b"\xff", bytes(7), bytes(64), b"\0\0\0\x31"]), max_size=400))
def test_bytes_that_look_like_headers(pieces: list[bytes]) -> None:
    """Random headers must not make reading slow or endless."""
    read(b"".join(pieces))


@FUZZ
@given(SOURCES, st.binary(min_size=1, max_size=200), st.data())
def test_payloads_replaced_with_a_valid_crc(folder: str, payload: bytes, choose: st.DataObject) -> None:
    """Decoders get hostile payloads directly."""
    data = sound(folder)
    place = choose.draw(st.sampled_from(damage.entries(data)))
    read(damage.with_payload(data, place, payload))
