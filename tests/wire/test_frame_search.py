"""Captures that lost bytes: each whole request is found, and no bytes of another one are taken for a request."""

from __future__ import annotations

import struct
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from kseg.extras.wire import connections, request_search
from kseg.extras.wire.apis import REQUEST_HEAD
from kseg.extras.wire.connections import read_frames
from kseg.findings import Finding
from kseg.format.segment.framed_files import BytesSource
from kseg.format.storage.source import Source
from kseg.format.writer.records_builder import PlainRecord, build_batch
from tests.support.captures import capture
from tests.support.fuzzing import cases


class Pipe(BytesSource):
    """A source that returns few bytes per call."""

    def readinto(self, view: memoryview) -> int:
        return super().readinto(view[:37])


def frames_of(data: bytes, source: Source | None = None) -> tuple[dict[int, bytes], list[Finding]]:
    """Return the frames by their positions, with their sizes, and the findings."""
    findings: list[Finding] = []
    source = source or Source("a", BytesSource(memoryview(data), 0), len(data))
    found = {
        frame.position: data[frame.position : frame.position + 4] + bytes(frame.data)
        for frame in read_frames(source, findings.append, REQUEST_HEAD)
    }
    return found, findings


STREAMS = Path(__file__).parents[2] / "fixtures" / "streams"
WAYS = ("start", "end", "byte", "byte", "bytes", "start and end")


class Damaged(NamedTuple):
    """A damaged capture: the positions of whole requests, those of requests whose size and head are left, and how."""

    data: bytes
    whole: dict[int, bytes]
    begun: set[int]
    how: str


def damaged(noise: Random, requests: list[bytes], ways: tuple[str, ...] = WAYS) -> Damaged:
    """Return the capture with a start in a frame, a cut at the end, or lost bytes."""
    ends = [sum(map(len, requests[: n + 1])) for n in range(len(requests))]
    lost: set[int] = set()
    how = noise.choice(ways)
    if how.startswith("start"):
        lost.update(range(noise.randrange(1, ends[0])))
    if how.endswith("end"):
        lost.update(range(noise.randrange(ends[-2] + 1, ends[-1]), ends[-1]))
    if how.startswith("byte"):
        at = noise.randrange(ends[-1])
        lost.update(range(at, at + (1 if how == "byte" else noise.randrange(2, 400))))
    if how == "places":
        lost.update(noise.randrange(ends[-1]) for _ in range(3))
    data, whole, begun = bytearray(), {}, set()
    for request, end in zip(requests, ends, strict=True):
        begin = end - len(request)
        missing = sorted(at - begin for at in lost if begin <= at < end)
        left = bytes(byte for at, byte in enumerate(request, begin) if at not in lost)
        if not missing:
            whole[len(data)] = request
        # The last bytes of the request before can be in place of lost bytes of the size.
        for shared in range(_SIZE):
            rest = data[len(data) - shared :] + left
            if missing and (len(data) >= shared and rest[:_SIZE] == request[:_SIZE]):
                begun.add(len(data) - shared)
        data += left
    return Damaged(bytes(data), whole, begun, how)


_SIZE = 4


def check(seed: int, noise: Random, requests: list[bytes]) -> None:
    case = damaged(noise, requests, (*WAYS, "places"))
    found, findings = frames_of(case.data)
    assert found.items() >= case.whole.items(), (seed, case.how)
    assert found.keys() <= case.whole.keys() | case.begun, (seed, case.how)
    covered = {at for position, frame in found.items() for at in range(position, position + len(frame))}
    named = {at for one in findings for at in range(one.position or 0, one.end or 0)}
    assert set(range(len(case.data))) - covered == named, (seed, case.how)


@pytest.mark.fuzz
@pytest.mark.parametrize("clients", [("producer-1",), ("rdkafka", "0", None), ("",)], ids=str)
def test_whole_requests_are_found_and_none_is_invented(clients: tuple[str | None, ...]) -> None:
    """Whatever bytes a capture lost; and exactly the bytes that are in no request are those of the findings."""
    for seed in range(cases(300)):
        noise = Random(seed)
        check(seed, noise, capture(noise, noise.randint(2, 6), clients))


@pytest.mark.fuzz
def test_requests_of_real_clients_are_found() -> None:
    """The same of what clients of 0.8 to 4.3 sent, several connections in one capture."""
    sent = [list(frames_of(path.read_bytes())[0].values()) for path in sorted(STREAMS.glob("*/*.requests"))]
    for seed in range(cases(300)):
        noise = Random(seed)
        check(seed, noise, noise.choice(sent) + noise.choice(sent))


@pytest.mark.fuzz
def test_windows_and_short_reads_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The buffer moves and grows during the search; the size of a pipe is not known."""
    known = []
    for seed in range(cases(200)):
        noise = Random(seed)
        case = damaged(noise, capture(noise, noise.randint(2, 6), ("producer-1",)), (*WAYS, "places"))
        known.append((case.data, *frames_of(case.data)))
    monkeypatch.setattr(connections, "_ROOM", 64)
    monkeypatch.setattr(request_search, "STEP", 50)
    for data, frames, findings in known:
        for size in (len(data), None):
            found, reported = frames_of(data, Source("a", Pipe(memoryview(data), 0), size))
            assert found == frames
            assert [(one.position, one.end) for one in reported] == [(one.position, one.end) for one in findings]


@pytest.mark.parametrize("cut", [False, True], ids=["lost bytes", "cut"])
def test_requests_in_records_are_not_those_of_the_connection(cut: bool) -> None:
    """A topic can hold captured requests: if the request that contains them is damaged, they are not shown."""
    kept = (STREAMS / "4.3.0-java" / "03.requests").read_bytes()
    records = build_batch([PlainRecord(0, b"k", kept, 0), PlainRecord(1, b"k", b"v" * 40, 0)])
    body = struct.pack(">hhii", -1, -1, 1000, 1) + b"\0\1t" + struct.pack(">iii", 1, 0, len(records)) + records
    head = struct.pack(">hhih", 0, 3, 7, 10) + b"producer-1"
    sent = struct.pack(">i", len(head + body)) + head + body
    data = sent + (sent[:-9] if cut else sent[:100] + sent[101:] + sent)
    found, findings = frames_of(data)
    assert list(found) == ([0] if cut else [0, 2 * len(sent) - 1])
    assert [(one.position, one.end) for one in findings] == [(len(sent), len(data) - (0 if cut else len(sent)))]
