"""``kseg grep --jobs`` with real processes and their ends, and the time limit of expressions."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kseg.commands.grep.text_patterns import SECONDS, MatchClock, SlowPattern
from kseg.format.storage.process_pool import KILLED
from kseg.format.writer.records_builder import PlainRecord, build_batch
from tests.support.cli import kseg
from tests.support.processes import wait_for_end, workers_of

#: Starts processes for small files.
EAGER = """
from kseg.format.segment import several_processes
from kseg.format.segment import several_processes
several_processes.RANGE_SIZE = 20_000
several_processes.BEGIN_ALONE = False
"""
#: Limits the search of a text to a hundredth of the usual time.
IMPATIENT = """
import signal
from kseg.commands.grep import text_patterns
real = signal.setitimer
text_patterns.signal.setitimer = lambda which, *times: real(which, *(seconds / 100 for seconds in times))
"""
MAIN = """
from kseg.cli.main import main
main()
"""
pytestmark = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs the timer of POSIX")


@pytest.fixture(scope="module")
def segment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A segment of 400 KB, with one text that needs long for some expressions."""
    path = tmp_path_factory.mktemp("orders-0") / f"{0:020d}.log"
    with path.open("wb") as log:
        for number in range(400):
            value = b"a" * 60 + b"!" if number == 300 else b"v" * 200
            records = [PlainRecord(4 * number + i, b"k%d" % i, value, 1_700_000_000_000) for i in range(4)]
            log.write(build_batch(records, base_offset=4 * number))
    return path


def started(segment: Path, *options: str, impatient: bool = False) -> subprocess.Popen[str]:
    program = EAGER + IMPATIENT * impatient + MAIN
    command = (sys.executable, "-c", program, "grep", *options, str(segment))
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
@pytest.mark.parametrize("options", [("k3",), ("-c", "k3"), ("a{60}",), ("--format", "jsonl", "-m", "5", "k1")])
def test_processes_find_what_one_process_finds(segment: Path, options: tuple[str, ...]) -> None:
    """Workers only return places; nothing is lost or repeated."""
    out, err = started(segment, "--jobs", "2", *options).communicate(timeout=300)
    assert (out, err) == (kseg("grep", "--jobs", "1", *options, segment).stdout, "")
    assert out


@pytest.mark.slow
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_an_expression_that_does_not_end_is_one_line(segment: Path, jobs: str) -> None:
    """Python's matcher tries 2**60 ways. The message says how to avoid it; no process is left over."""
    with started(segment, "--jobs", jobs, "(a+)+$", impatient=True) as process:
        out, err = process.communicate(timeout=300)
    assert (process.returncode, out) == (2, "")
    assert err.startswith("kseg: the pattern has searched one text of 61 characters for ")
    assert len(err.splitlines()) == 1


def test_only_time_in_one_text_counts() -> None:
    """A search of many texts, or of a text with many matches, may take as long as it needs."""
    clock = MatchClock()
    for _ in range(50):
        clock.text = None
        clock.tick()
    for n in range(50):
        clock.text, clock.steps = "text", n
        clock.tick()
    for _ in range(SECONDS - 1):
        clock.tick()
    with pytest.raises(SlowPattern):
        clock.tick()


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc")
@pytest.mark.parametrize(
    ("ending", "code", "message"),
    [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "ended by SIGTERM"), (signal.SIGKILL, 2, KILLED)],
)
def test_no_process_is_left_over(segment: Path, ending: signal.Signals, code: int, message: str) -> None:
    """Ctrl-C, a service manager's SIGTERM and a killed worker end all processes, with one line on stderr."""
    slow = r"(?:v|v){18}x"
    with started(segment, "--jobs", "2", slow) as process:
        workers = workers_of(process.pid)
        time.sleep(0.2)
        os.kill(workers[0] if ending == signal.SIGKILL else process.pid, ending)
        out, err = process.communicate(timeout=300)
    assert (process.returncode, out) == (code, "")
    assert err.strip() == f"kseg: {message}"
    wait_for_end(workers)
