"""``kseg dump --jobs``: real processes, their ends, and which options allow them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kseg.commands.dump import dump_ranges
from kseg.commands.dump.dumped_rows import DumpRequest
from kseg.format.segment.row_filter import RowFilter
from kseg.format.storage.process_pool import KILLED
from kseg.format.storage.segment_files import SegmentFile
from kseg.format.writer.records_builder import PlainRecord, build_batch
from tests.support.cli import kseg
from tests.support.processes import wait_for_end, workers_of

pytestmark = pytest.mark.skipif(not dump_ranges.can_share_memory(), reason="processes are not forked on this system")

#: Starts processes at once, for small files and ranges.
EAGER = """
from kseg.cli import dump_command
from kseg.commands.dump import dump_ranges
from kseg.commands.dump.dumped_rows import DumpRequest
from kseg.format.segment.row_filter import RowFilter
from kseg.format.segment import several_processes
from kseg.format.segment import several_processes
several_processes.RANGE_SIZE = 20_000
dump_command._FEW_BYTES = 0
several_processes.BEGIN_ALONE = False
dump_ranges.FIRST_RANGE, dump_ranges.LARGEST_RANGE = 20_000, 40_000
from kseg.cli.main import main
main()
"""
BATCHES = 2_000


@pytest.fixture(scope="module")
def segment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A segment of 2 MB: its rows are far more than a pipe holds."""
    path = tmp_path_factory.mktemp("orders-0") / "00000000000000000000.log"
    with path.open("wb") as log:
        for number in range(BATCHES):
            records = [
                PlainRecord(offset=4 * number + i, timestamp=1_700_000_000_000, key=b"k%d" % i, value=b"v" * 200)
                for i in range(4)
            ]
            log.write(build_batch(records, base_offset=4 * number))
    return path


def started(
    segment: Path, *options: str, command: tuple[str, ...] = ("dump", "--deep"), **settings: Any
) -> subprocess.Popen[bytes]:
    command = (sys.executable, "-c", EAGER, *command, "--jobs", "2", *options, str(segment))
    settings = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "bufsize": 0, **settings}
    return subprocess.Popen(command, **settings)


def first_rows(process: subprocess.Popen[bytes]) -> bytes:
    """Return the first rows. After that the output waits for its reader."""
    assert process.stdout
    out = b""
    while len(out) < 400_000:
        out += (part := process.stdout.read(100_000))
        assert part, process.stderr and process.stderr.read()
    return out


@pytest.mark.slow
@pytest.mark.parametrize("name", ["jsonl", "csv", "text"])
def test_processes_write_what_one_process_writes(segment: Path, name: str) -> None:
    """Worker processes write into shared memory: no row is lost, repeated or in another place."""
    options = ("--deep", "--format", name)
    done = started(segment, *options)
    out, err = done.communicate(timeout=300)
    assert (done.returncode, err) == (0, b"")
    assert out == kseg("dump", *options, "--jobs", "1", str(segment)).stdout.encode()


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc")
@pytest.mark.parametrize(
    ("ending", "code", "message"),
    [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "ended by SIGTERM"), (signal.SIGKILL, 2, KILLED)],
)
def test_no_process_is_left_over(segment: Path, ending: signal.Signals, code: int, message: str) -> None:
    """Ctrl-C, a service manager's SIGTERM and a killed worker end all processes, with one line on stderr.

    The output is a beginning of the rows: the reader of stdout is slow, so all processes wait.
    """
    process = started(segment, "--format", "jsonl")
    first, workers = first_rows(process), workers_of(process.pid)
    os.kill(workers[0] if ending == signal.SIGKILL else process.pid, ending)
    out, err = process.communicate(timeout=300)
    assert process.returncode == code
    assert err.decode().strip() == f"kseg: {message}"
    wait_for_end(workers)
    assert kseg("dump", "--deep", "--format", "jsonl", str(segment)).stdout.encode().startswith(first + out)


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc")
def test_a_reader_that_closes_the_pipe_ends_the_processes(segment: Path) -> None:
    """``| head`` is no error: the exit code is 0 and stderr is empty."""
    with started(segment, "--format", "jsonl") as process:
        first_rows(process)
        workers = workers_of(process.pid)
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(120) == 0
    wait_for_end(workers)


def test_a_full_disk_is_one_line(segment: Path) -> None:
    """The error names standard output, as with one process."""
    if not os.path.exists("/dev/full"):
        pytest.skip("needs /dev/full")
    with open("/dev/full", "wb") as full:
        process = started(segment, "--format", "jsonl", stdout=full)
        _, err = process.communicate(timeout=300)
    assert process.returncode == 2
    assert err == b"kseg: standard output: No space left on device\n"


def test_a_range_that_cannot_be_read_is_left_to_one_process(tmp_path: Path) -> None:
    """A broker can delete a segment meanwhile. Its other rows are not lost: one process reads the rest, or reports it."""
    request = DumpRequest(deep=True, keep=RowFilter())
    with dump_ranges.shared_output(request, lambda items, out: None, 1):
        part = dump_ranges.Range(SegmentFile(str(tmp_path / "deleted.log")), 100, 200)
        assert dump_ranges.format_range(part).size == -1


@pytest.mark.parametrize("jobs", [1, 2, 16, 64, 1024])
def test_memory_for_output_is_limited(jobs: int) -> None:
    """The memory does not grow with the number of processes, and each range has room for more than is expected of it."""
    count = min(2 * jobs, dump_ranges.MOST_WAITING) + 1
    with dump_ranges.shared_output(DumpRequest(deep=True, keep=RowFilter()), lambda items, out: None, count) as slots:
        assert sum(map(len, slots)) <= 270 << 20
        assert len(slots[0]) >= 4 << 20


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--shallow",), "--deep"),
        (("--deep", "--format", "table"), "needs --template or --format jsonl, csv, text or parquet"),
        (("--deep", "--format", "jsonl", "--limit", "0"), "--limit"),
        (("--deep", "--format", "jsonl", "--position", "0"), "--position"),
        (("--deep", "--format", "csv", "--follow"), "--follow"),
        (("--deep", "--format", "csv", "--as", "message-set"), "--as"),
    ],
)
def test_jobs_are_rejected_where_one_process_dumps(segment: Path, options: tuple[str, ...], reason: str) -> None:
    """An explicit --jobs is not ignored silently. --jobs 1 is always right."""
    done = kseg("dump", "--jobs", "2", *options, str(segment))
    assert done.returncode == 2
    assert done.stderr.startswith("kseg: --jobs ")
    assert reason in done.stderr
    if "--follow" not in options:
        assert kseg("dump", "--jobs", "1", *options, str(segment)).returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("command", [("dump", "--deep"), ("grep", "v")], ids=lambda command: command[0])
def test_a_segment_that_is_replaced_meanwhile_is_unread_and_not_damaged(
    segment: Path, command: tuple[str, ...], tmp_path: Path
) -> None:
    """A log cleaner's new file has batches at other positions: the ranges of the old one are no damage in it."""
    path = tmp_path / segment.name
    data = segment.read_bytes()
    path.write_bytes(data)
    process = started(path, "--format", "jsonl", command=command)
    first_rows(process)
    size = len(data) // BATCHES
    (tmp_path / "cleaned").write_bytes(b"".join(data[at : at + size] for at in range(size * 7, len(data), size * 2)))
    (tmp_path / "cleaned").replace(path)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 2, err
    assert f"{path}: replaced meanwhile: run again" in err.decode()
    assert b"damage" not in err
    assert b"finding" not in out
