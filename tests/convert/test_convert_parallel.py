"""Several processes write and report the same as one, for valid and damaged sources, and leave no files."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from contextlib import suppress
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from kseg.commands.convert import convert_ranges
from kseg.commands.convert.conversion import convert
from kseg.commands.convert.conversion_plan import ConversionPlan
from kseg.commands.convert.transcode import Conversion
from kseg.errors import KsegError
from kseg.findings import Finding
from kseg.format.segment import several_processes
from kseg.format.writer.records_builder import PlainRecord, build_message, build_wrapper
from tests.support.interrupted import PROGRAM, EndedRuns, digest, write_log
from tests.support.records import NOW

pytestmark = pytest.mark.slow

NAME = "00000000000000000000.log"
ENTRIES = 300


def entry(number: int, codec: str, magic: int = 1) -> bytes:
    records = [
        PlainRecord(10 * number + i, b"k%d" % i, bytes([number % 251]) * 100, NOW + (number ^ 5) if magic else -1)
        for i in range(4)
    ]
    if codec == "none":
        return b"".join(build_message(record, magic=magic) for record in records)
    return build_wrapper(records, magic=magic, compression=codec)


@pytest.fixture
def small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranges have megabytes; smaller ones let a small file have several."""
    monkeypatch.setattr(several_processes, "RANGE_SIZE", 6_000)
    monkeypatch.setattr(several_processes, "SEARCH_REACH", 6_000)


Outcome = tuple[list[bytes], list[Finding], Conversion | str]


def outcome(
    source: Path, folder: Path, jobs: int, direction: str, skip_damaged: bool, compression: str = "keep"
) -> Outcome:
    """Return the written files, the findings, and the summary or the error."""
    folder.mkdir()
    findings: list[Finding] = []
    plan = ConversionPlan.of(direction, skip_damaged=skip_damaged, lossy=True, compression=compression)
    done: list[int] = []
    summary: Conversion | str
    try:
        (summary,) = convert(
            str(source), str(folder / NAME), plan, lambda _, finding: findings.append(finding), done.append, jobs
        ).segments
        summary.target = ""
        assert sum(done) == source.stat().st_size
    except KsegError as error:
        summary = str(error)
    return [path.read_bytes() for path in sorted(folder.iterdir())], findings, summary


@pytest.mark.usefixtures("small_ranges")
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy"])
@pytest.mark.parametrize("fault", ["none", "flip", "everywhere", "cut", "disorder", "version", "undecodable", "zeros"])
def test_ranges_change_nothing(fault: str, codec: str, tmp_path: Path) -> None:
    """Ranges of a file give the bytes of one run."""
    entries = [entry(number, codec) for number in range(ENTRIES)]
    if fault == "flip":
        entries[150] = entries[150][:-1] + b"\0"
    elif fault == "everywhere":
        entries = [each[:-1] + b"\0" for each in entries]
    elif fault == "cut":
        entries[200] = entries[200][:-9]
    elif fault == "disorder":
        entries = entries[150:] + entries[:150]
    elif fault == "version":
        entries[140] = entry(140, codec, magic=0)
    elif fault == "undecodable":
        entries[160] = build_wrapper([PlainRecord(1600, None, b"v")], magic=1, compression="gzip").replace(
            b"\x1f", b"?"
        )
    source = tmp_path / "in.log"
    source.write_bytes(b"".join(entries))
    if fault == "zeros":
        # A split point where batches were: it is not the end of the file.
        data = bytearray(source.read_bytes())
        seam = several_processes.range_starts(str(source), len(data), 2)[2]
        ends = list(accumulate(map(len, entries)))
        begin = max(end for end in ends if end < seam - 2000)
        data[begin:seam] = bytes(seam - begin)
        source.write_bytes(data)
    assert len(several_processes.range_starts(str(source), source.stat().st_size, 2)) > 3
    for skip in (False, True):
        one, two = (outcome(source, tmp_path / f"{skip}-{jobs}", jobs, "v1-to-v2", skip) for jobs in (1, 2))
        assert one == two
        assert len(one[0]) == (3 if isinstance(one[2], Conversion) else 0)
        assert isinstance(one[2], Conversion) or fault != "none"
        assert isinstance(one[2], str) or skip or fault not in ("cut", "zeros")


@pytest.mark.usefixtures("small_ranges")
@pytest.mark.parametrize("direction", ["v1-to-v0", "any-to-v2"])
def test_ranges_add_up(direction: str, tmp_path: Path) -> None:
    """Losses and codecs of all ranges are in the summary."""
    source = tmp_path / "in.log"
    source.write_bytes(b"".join(entry(number, ("none", "lz4")[number // 150]) for number in range(ENTRIES)))
    one, two = (outcome(source, tmp_path / str(jobs), jobs, direction, False) for jobs in (1, 2))
    assert one == two
    assert isinstance(two[2], Conversion)
    assert two[2].records == 4 * ENTRIES
    assert two[2].codecs_before == {"none": 600, "lz4": 150}
    assert ("timestamps" in two[2].lost) is (direction == "v1-to-v0")


@pytest.mark.usefixtures("small_ranges")
@pytest.mark.parametrize("compression", ["none", "gzip", "lz4"])
def test_ranges_are_compressed_anew_alike(compression: str, tmp_path: Path) -> None:
    """Batches of the target's version are encoded again, or copied if they have the codec, in every range."""
    source = tmp_path / "in.log"
    source.write_bytes(b"".join(entry(number, ("none", "lz4")[number // 150]) for number in range(ENTRIES)))
    one, two = (outcome(source, tmp_path / str(jobs), jobs, "v1-to-v1", False, compression) for jobs in (1, 2))
    assert one == two
    assert isinstance(two[2], Conversion)
    assert (two[2].records, list(two[2].codecs_after)) == (4 * ENTRIES, [compression])
    assert two[2].copied == {"none": 600, "gzip": 0, "lz4": 150}[compression]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A partition of four segments."""
    source = tmp_path / "topic-0"
    source.mkdir()
    for n in range(4):
        part = b"".join(entry(number, "gzip") for number in range(75 * n, 75 * (n + 1)))
        (source / f"{750 * n:020}.log").write_bytes(part)
    return source


@pytest.mark.usefixtures("small_ranges")
@pytest.mark.parametrize("fault", [False, True])
def test_folders_change_nothing(fault: bool, folder: Path, tmp_path: Path) -> None:
    """Of two damaged segments the first is reported, whichever process was faster."""
    if fault:
        for name, size in ((f"{750:020}.log", 5000), (f"{2250:020}.log", 30)):
            (folder / name).write_bytes((folder / name).read_bytes()[:size])
    results = [folder_outcome(folder, tmp_path / str(jobs), jobs) for jobs in (1, 3)]
    assert results[0] == results[1]
    assert bool(results[0][2]) is not fault
    assert f"{750:020}.log" in results[0][0]


def folder_outcome(source: Path, beside: Path, jobs: int) -> tuple[str, list[str], dict[str, bytes]]:
    target = beside / "topic-0"
    beside.mkdir()
    findings: list[str] = []
    plan = ConversionPlan.of("v1-to-v2")
    try:
        result = convert(str(source), str(target), plan, lambda *reported: findings.append(str(reported)), jobs=jobs)
        said = str([(one.source, one.records) for one in result.segments])
    except KsegError as error:
        said = str(error)
        assert list(beside.iterdir()) == []
    return said, findings, {path.name: path.read_bytes() for path in target.glob("*")}


def processes_of(group: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, pgrp = stat.read_text().rpartition(") ")[2].split()[:3]
        except OSError:
            continue
        if int(pgrp) == group and state != "Z":
            found.append(int(stat.parent.name))
    return found


def contents(folder: Path, name: str) -> dict[str, bytes]:
    """Return the digests of a segment and its indexes, or of a partition folder."""
    inside = folder / name if (folder / name).is_dir() else folder
    return {path.name: digest(path) for path in inside.glob("0*")}


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")
@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGINT])
@pytest.mark.parametrize("what", ["segment", "folder"])
def test_ended_at_any_moment(what: str, ending: signal.Signals, tmp_path: Path) -> None:
    """After a kill the target is absent, the source unchanged, and no process remains."""
    source = tmp_path / "topic-0"
    source.mkdir()
    write_log(source / NAME, 40)
    if what == "folder":
        write_log(source / f"{10**6:020}.log", 40, offset=10**6)
    before = {path.name: digest(path) for path in source.iterdir()}
    out = tmp_path / "out"
    out.mkdir()
    given, target = (source / NAME, out / NAME) if what == "segment" else (source, out / "topic-0")
    (tmp_path / "whole").mkdir()
    convert(str(given), str(tmp_path / "whole" / target.name), ConversionPlan.of("v0-to-v2"), jobs=2)
    whole = contents(tmp_path / "whole", target.name)
    assert len(whole) == (3 if what == "segment" else 6)
    runs = EndedRuns([sys.executable, "-c", PROGRAM, "v0-to-v2", "--jobs", "2", given, target], ending)
    assert runs.whole() == 0
    shutil.rmtree(out)
    out.mkdir()
    while runs.ended < 4:
        process = runs.again()
        deadline = time.monotonic() + 300
        while processes_of(process.pid) and time.monotonic() < deadline:
            time.sleep(0.05)
        left = processes_of(process.pid)
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        assert left == []
        for path in [*out.iterdir()]:
            if path.name.startswith("."):
                assert ending == signal.SIGKILL
                assert path.name.endswith(".tmp")
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        # The process may have been killed after the rename; the indexes of a single segment follow the log.
        found = contents(out, target.name)
        assert found.items() <= whole.items()
        assert target.exists() is bool(found)
        shutil.rmtree(out)
        out.mkdir()
    assert {path.name: digest(path) for path in source.iterdir()} == before


CONVERT_RANGE = convert_ranges._convert_range


def replaced_after_the_first_range(part: Any) -> Any:
    """Convert a range in a worker. Later ranges are those of ``cleaned.log``, which has replaced the source."""
    folder = Path(part.source).parent
    if not part.start:
        done = CONVERT_RANGE(part)
        (folder / "first").touch()
        return done
    while not (folder / "first").exists():
        time.sleep(0.01)
    with suppress(FileNotFoundError):
        (folder / "cleaned.log").replace(part.source)
    return CONVERT_RANGE(part)


@pytest.mark.usefixtures("small_ranges")
def test_a_segment_that_is_replaced_meanwhile_is_not_mixed_with_its_successor(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A log cleaner's new file has the same name: the result is that of one of the two, and not of ranges of both."""
    source, cleaned = tmp_path / "in.log", tmp_path / "cleaned.log"
    source.write_bytes(b"".join(entry(number, "none") for number in range(ENTRIES)))
    # As large as the first one, so that ranges of both would fit together: entries are missing, and others were appended.
    cleaned.write_bytes(b"".join(entry(number, "none") for number in (*range(10), *range(60, ENTRIES + 50))))
    plan = ConversionPlan.of("v1-to-v2")
    for folder in ("cleaned", "out"):
        (tmp_path / folder).mkdir()
    convert(str(cleaned), str(tmp_path / "cleaned" / NAME), plan)
    monkeypatch.setattr(convert_ranges, "_convert_range", replaced_after_the_first_range)
    convert(str(source), str(tmp_path / "out" / NAME), plan, jobs=2)
    assert not cleaned.exists()
    assert (tmp_path / "out" / NAME).read_bytes() == (tmp_path / "cleaned" / NAME).read_bytes()
