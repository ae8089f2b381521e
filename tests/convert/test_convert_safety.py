"""Killed, out of space, unreadable: the source is unchanged, and no unfinished file has the final name."""

from __future__ import annotations

import mmap
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kseg.commands.convert.conversion import convert
from kseg.commands.convert.conversion_plan import ConversionPlan
from kseg.commands.validate.validate import validate_segment
from kseg.errors import KsegError, UnreadableError
from kseg.findings import RULES, SERVED, Finding, Severity
from kseg.format.storage.segment_files import SegmentFile
from kseg.format.writer.output_guards import DamagedError, index_paths
from kseg.results import Settings
from tests.support.damage import entries
from tests.support.interrupted import PROGRAM, EndedRuns, digest, failing_disk, write_log

NAME = "00000000000000000000.log"
MAX_RSS = """
import resource
from kseg.commands.convert.conversion_plan import ConversionPlan
from kseg.commands.convert.conversion import convert
import sys
convert(sys.argv[1], sys.argv[2], ConversionPlan.of("v0-to-v2"))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def start(*args: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


@pytest.mark.slow
@pytest.mark.parametrize("forced", [False, True])
def test_killed_at_any_moment(forced: bool, tmp_path: Path) -> None:
    """The target is absent (with --force: the old one) or complete, and a later run works."""
    source, target = tmp_path / "in.log", tmp_path / "out" / NAME
    target.parent.mkdir()
    write_log(source, 6)
    before = digest(source)
    runs = EndedRuns([sys.executable, "-c", PROGRAM, "v0-to-v2", *(["--force"] if forced else []), source, target])
    assert runs.whole() == 0
    whole = digest(target)
    for path in target.parent.iterdir():
        path.unlink()
    while runs.ended < 6:
        if forced:
            target.write_bytes(b"old")
        runs.again()
        if target.exists() and not (forced and target.read_bytes() == b"old"):
            assert digest(target) == whole
        elif forced:
            assert target.read_bytes() == b"old"
        for index in index_paths(target):
            assert not index.exists() or target.exists()
        for path in target.parent.iterdir():
            # A broker must ignore all remaining files.
            assert path.name.startswith(".") is path.name.endswith(".tmp")
            if not path.name.startswith("."):
                path.unlink()
    assert digest(source) == before
    convert(str(source), str(target), ConversionPlan.of("v0-to-v2"))


@pytest.mark.slow
def test_interrupted_it_cleans_up(tmp_path: Path) -> None:
    """Ctrl-C leaves no temporary file."""
    source, target = tmp_path / "in.log", tmp_path / "out" / NAME
    target.parent.mkdir()
    write_log(source, 48, value_size=300)
    process = start("v0-to-v2", source, target)
    deadline = time.monotonic() + 300
    while not list(target.parent.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate()
    assert (process.returncode, list(target.parent.iterdir())) == (130, [])
    assert b"interrupted" in told


@pytest.mark.parametrize("room", ["log", "half"])
def test_out_of_space(room: str, small_disk: Callable[[int], Path], tmp_path: Path) -> None:
    """The disk has space for half of the log, or for the log without its indexes."""
    source = tmp_path / "in.log"
    write_log(source, 2)
    before = digest(source)
    convert(str(source), str(tmp_path / NAME), ConversionPlan.of("v0-to-v2"))
    size = (tmp_path / NAME).stat().st_size
    disk = small_disk(-(-size // mmap.PAGESIZE) * mmap.PAGESIZE if room == "log" else size // 2)
    process = start("v0-to-v2", source, disk / NAME)
    _, told = process.communicate()
    assert process.returncode == 2
    assert b"No space left on device" in told
    assert b"Traceback" not in told
    assert list(disk.iterdir()) == []
    assert digest(source) == before


def test_file_size_limit(tmp_path: Path) -> None:
    """Another way to run out of space: a quota, or ulimit -f."""
    source = tmp_path / "in.log"
    write_log(source, 2)

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1024 * 1024, 1024 * 1024))

    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "v0-to-v2", source, tmp_path / NAME],
        preexec_fn=limit, capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert b"File too large; nothing was written there" in done.stderr
    assert list(tmp_path.iterdir()) == [source]


@pytest.mark.parametrize("good_openings", [0, 1])
@pytest.mark.parametrize("fails_at", [0, 100_000])
def test_a_failing_disk(fails_at: int, good_openings: int, tmp_path: Path) -> None:
    """Reads fail while converting or verifying; --skip-damaged must not skip bytes that may be readable later."""
    failing_disk(fails_at, good_openings)
    source, target = tmp_path / "in.log", tmp_path / NAME
    write_log(source, 1)
    with pytest.raises(UnreadableError, match="Input/output error"):
        convert(f"failing://{source}", str(target), ConversionPlan.of("v0-to-v2", skip_damaged=True, rebatch=10_000))
    assert list(tmp_path.iterdir()) == [source]


def test_a_url_is_converted(tmp_path: Path) -> None:
    """A remote segment is converted like a local one."""
    pytest.importorskip("fsspec")
    source, target = tmp_path / "in.log", tmp_path / NAME
    write_log(source, 0.1)
    convert(source.as_uri(), str(target), ConversionPlan.of("v0-to-v2"))
    assert validate_segment(SegmentFile(str(target)), Settings()).summary.errors == 0


def test_a_target_in_no_folder(tmp_path: Path) -> None:
    """A missing parent folder is one clear line."""
    source = tmp_path / "in.log"
    write_log(source, 0.01)
    with pytest.raises(KsegError, match="does not exist: create it first"):
        convert(str(source), str(tmp_path / "absent" / NAME), ConversionPlan.of("v0-to-v2"))


@pytest.mark.slow
def test_memory_does_not_grow_with_the_segment(tmp_path: Path) -> None:
    """Memory is constant for segments of any size."""
    peaks = []
    for megabytes in (16, 96):
        source = tmp_path / f"{megabytes}.log"
        write_log(source, megabytes, value_size=16_000)
        done = subprocess.run(
            [sys.executable, "-c", MAX_RSS, source, tmp_path / f"out-{megabytes}.log"],
            capture_output=True, check=True, text=True,
        )  # fmt: skip
        peaks.append(int(done.stdout) / 1024)
    assert peaks[1] - peaks[0] < 8


FIXTURES = Path(__file__).parents[2] / "fixtures"


def test_a_source_that_validate_calls_damaged_is_refused(tmp_path: Path) -> None:
    """The target is not written; with ``skip_damaged`` an error is reported, or the conversion fails, too."""
    damaged = 0
    for log in sorted((FIXTURES / "findings").glob("*/*.log")):
        found = validate_segment(SegmentFile(str(log)), Settings()).verdicts
        if not any(verdict.severity >= Severity.ERROR and verdict.rule.name not in SERVED for verdict in found):
            continue
        damaged += 1
        target = tmp_path / log.parent.name / log.name
        target.parent.mkdir(exist_ok=True)
        with pytest.raises(KsegError):
            convert(str(log), str(target), ConversionPlan.of("any-to-v2"))
        assert list(target.parent.iterdir()) == [], log
        reported: list[str] = []

        def keep(path: str, finding: Finding, reported: list[str] = reported) -> None:
            reported.append(finding.rule)

        try:
            convert(str(log), str(target), ConversionPlan.of("any-to-v2", skip_damaged=True), keep)
        except KsegError:
            continue
        assert any(RULES[rule].severity >= Severity.ERROR for rule in reported), log
    assert damaged > 20


def test_overlapping_segments_are_not_converted(tmp_path: Path) -> None:
    """The copy of a segment under another name, or a last batch with a wrong offset, as ``validate`` finds in a folder."""
    sound = FIXTURES / "segments" / "4.3.0-v2-none-segments"
    folder = tmp_path / "t-0"
    folder.mkdir()
    for name in ("00000000000000000000.log", "00000000000000000024.log"):
        (folder / name).write_bytes((sound / name).read_bytes())
    data = bytearray((sound / NAME).read_bytes())
    last = entries(bytes(data))[-1].at
    data[last + 6] ^= 1
    (folder / NAME).write_bytes(data)
    with pytest.raises(DamagedError, match="segment-overlap"):
        convert(str(folder), str(tmp_path / "out-0"), ConversionPlan.of("any-to-v2"))
    assert not (tmp_path / "out-0").exists()
    reported: list[str] = []
    skipping = ConversionPlan.of("any-to-v2", skip_damaged=True)
    convert(str(folder), str(tmp_path / "out-0"), skipping, lambda _, one: reported.append(one.rule))
    assert {"segment-overlap", "non-monotonic-offset"} & set(reported)  # the next segment disproves the offset
