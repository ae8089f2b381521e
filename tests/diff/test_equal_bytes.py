"""Equal bytes are checked once for both replicas: the outcome is that of checking both."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from kseg.commands.diff.comparison import compare
from kseg.commands.diff.differences import Comparison, Difference
from kseg.commands.diff.replica import Replica
from kseg.errors import KsegError
from kseg.findings import Finding
from kseg.format.segment import segment_reader
from kseg.format.segment.segment_reader import SegmentReader
from kseg.format.writer.records_builder import PlainRecord, build_batch
from tests.support import damage, fuzzing

FINDINGS = Path(__file__).parents[2] / "fixtures" / "findings"


def outcome(a: Path, b: Path, shallow: bool = False) -> Any:
    """Return everything that a comparison reports."""
    findings: list[tuple[str, str, Finding]] = []
    found: list[Difference] = []
    result = Comparison()
    try:
        left = Replica(str(a), lambda file, finding: findings.append(("a", file, finding)))
        right = Replica(str(b), lambda file, finding: findings.append(("b", file, finding)))
        found += compare(left, right, result, shallow=shallow)
    except KsegError as error:
        return str(error)
    ends = [
        (one.batch_count, one.first_offset, one.last_offset, one.damage, one.lineage.entries) for one in (left, right)
    ]
    by_place = sorted(findings, key=lambda one: (one[:2], one[2].position or 0, one[2].rule))
    return found, asdict(result), ends, by_place


def both_ways(a: Path, b: Path, monkeypatch: pytest.MonkeyPatch, shallow: bool) -> tuple[Any, Any]:
    """Return the outcome as it is, and the outcome of checking the bytes of both replicas."""
    fast = outcome(a, b, shallow)
    with monkeypatch.context() as patch:
        patch.setattr(SegmentReader, "skip_equal", lambda self, other: False)
        return fast, outcome(a, b, shallow)


def segments(draw: random.Random) -> list[tuple[int, bytes]]:
    """Return the names and bytes of up to three segments."""
    found, offset = [], 0
    for _ in range(draw.randint(1, 3)):
        first, data = offset, b""
        for _ in range(draw.randint(1, 40)):
            count = draw.randint(1, 6)
            records = [PlainRecord(offset + i, b"k", draw.randbytes(draw.randint(0, 40)), 1_000) for i in range(count)]
            codec = draw.choice(["none", "none", "lz4"])
            data += build_batch(records, base_offset=offset, compression=codec)
            offset += count
        found.append((first, data))
    return found


DAMAGES: list[Callable[[bytes, random.Random], bytes]] = [
    lambda data, draw: damage.flip(data, draw.randrange(len(data))),
    lambda data, draw: data[: draw.randrange(len(data))],
    lambda data, draw: data + draw.randbytes(draw.randint(1, 100)),
    lambda data, draw: data + bytes(draw.randint(1, 9000)),
    lambda data, draw: data[: (at := draw.randrange(len(data)))] + draw.randbytes(30) + data[at:],
    lambda data, draw: damage.put(data, draw.choice(damage.entries(data)).at, base_offset=draw.randint(0, 200)),
    lambda data, draw: data[: (one := draw.choice(damage.entries(data))).at] + data[one.end :],
]


@pytest.mark.slow
@pytest.mark.fuzz
@pytest.mark.parametrize("seed", range(fuzzing.cases(60)))
def test_the_outcome_is_that_of_checking_both(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Damage in one replica, equal damage in both, other ends, in windows of any size."""
    draw = random.Random(seed)
    monkeypatch.setattr(segment_reader, "WINDOW_SIZE", draw.choice([1024, 3000, 4 * 1024 * 1024]))
    made = segments(draw)
    for name in "ab":
        (tmp_path / name).mkdir()
        for first, data in made:
            (tmp_path / name / f"{first:020}.log").write_bytes(data)
    for _ in range(draw.randint(0, 3)):
        first, _ = draw.choice(made)
        change, state = draw.choice(DAMAGES), draw.getrandbits(32)
        for name in draw.choice(["a", "b", "ab"]):
            path = tmp_path / name / f"{first:020}.log"
            data = path.read_bytes()
            if damage.entries(data):
                path.write_bytes(change(data, random.Random(state)))
    fast, slow = both_ways(tmp_path / "a", tmp_path / "b", monkeypatch, draw.choice([False, True]))
    assert fast == slow


def test_every_damaged_fixture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Damage that both replicas have is reported for both."""
    logs = sorted(FINDINGS.glob("*/*.log"))
    for log in logs:
        fast, slow = both_ways(log, log, monkeypatch, False)
        assert fast == slow, log
    assert len(logs) > 30


def test_equal_bytes_are_framed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The promise of speed: the second replica's batches are not framed as long as its bytes are equal."""
    framed: list[str] = []
    windows = SegmentReader.windows

    def counted(self: SegmentReader) -> Any:
        for window in windows(self):
            framed.append(Path(self.name).parent.name)
            yield window

    monkeypatch.setattr(SegmentReader, "windows", counted)
    data = b"".join(build_batch([PlainRecord(i, b"k", b"v", 1_000)], base_offset=i) for i in range(100))
    for name, end in (("a", b""), ("b", b"")):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{0:020}.log").write_bytes(data + end)
    assert outcome(tmp_path / "a", tmp_path / "b")[1]["counts"] == {}
    assert set(framed) == {"a"}
