"""Runs that continue from a state file find the same as full runs, and read all files again that may have changed."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import Result

from kseg.commands.validate.result_store import ResultStore, open_state_file
from kseg.commands.validate.validate_ranges import validate_files
from kseg.errors import KsegError
from kseg.findings import Policy, Severity
from kseg.format.segment import several_processes
from kseg.format.sidefiles.registry import find_files
from kseg.format.storage.file_access import parse_rate
from kseg.format.writer.records_builder import PlainRecord, build_batch
from kseg.results import Settings
from tests.support.cli import invoke
from tools.make_findings import settings_of

FIXTURES = Path(__file__).parents[2] / "fixtures"
LONG_AGO = 1_700_000_000


def age(folder: Path) -> None:
    """Make a file look older: a result for a file written in the same clock tick is not kept."""
    for path in folder.rglob("*"):
        if path.is_file():
            os.utime(path, (LONG_AGO, LONG_AGO))


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Return every damaged and many valid files, among them segments with open transactions and their indexes."""
    folder = tmp_path / "logs"
    for source in (path.parent for path in sorted((FIXTURES / "findings").glob("*/ORIGIN"))):
        if "framing" not in settings_of(source):  # files that are not logs are without state
            shutil.copytree(source, folder / "findings" / source.name)
    for source in sorted((FIXTURES / "segments").glob("4.3.0-*")):
        shutil.copytree(source, folder / "segments" / source.name)
    age(folder)
    return folder


def sweep(logs: Path, *options: str) -> Result:
    return invoke("validate", "--format", "jsonl", *options, logs)


@pytest.mark.slow
def test_a_run_from_the_state_finds_the_same_as_a_full_run(logs: Path, tmp_path: Path) -> None:
    """Findings, counts and the exit code are equal;

    only the newest segments, and time-dependent results, are read again.
    """
    state = str(tmp_path / "state")
    whole, first, second = sweep(logs), sweep(logs, "--cache", state), sweep(logs, "--cache", state)
    assert whole.exit_code == 2  # a segment of zeros alone is undetermined
    assert (first.stdout, first.exit_code) == (whole.stdout, 2)
    assert (second.stdout, second.exit_code) == (whole.stdout, 2)
    assert "kseg: 0 of " in first.stderr
    assert "kseg: 0 of " not in second.stderr
    assert "their results are from" in second.stderr


def test_results_are_the_same_objects_again(logs: Path, tmp_path: Path) -> None:
    """Also the facts about neighbours, which the checks across files use."""
    settings = Settings(max_per_rule=1)  # the range of the others is stored, too
    segment = sorted((logs / "segments").glob("*/*.log"))[0]
    segment.write_bytes(segment.read_bytes() * 4)
    age(logs)
    files = [replace(file, active=False) for file in find_files(str(logs), lambda name: None)]
    runs = []
    for _ in range(2):
        state = ResultStore(tmp_path / "state", settings)
        runs.append(list(validate_files(files, settings, state=state)))
        state.save()
    assert runs[0] == runs[1]
    assert any(result.unlisted for result in runs[1])
    assert sum(bool(result.facts and result.facts.producers) for result in runs[1])
    assert len(files) - 5 < state.reused < len(files)  # a timestamp of the future is in the past tomorrow


def partition(folder: Path, segments: int = 3) -> list[Path]:
    folder.mkdir()
    paths = []
    for number in range(segments):
        paths.append(folder / f"{number:020}.log")
        record = PlainRecord(offset=number, timestamp=LONG_AGO * 1000, key=b"k", value=b"v" * 2000)
        paths[-1].write_bytes(build_batch([record], base_offset=number))
    age(folder)
    return paths


def reused(logs: Path, state: Path, *options: str) -> int:
    (line,) = [
        line for line in sweep(logs, "--cache", str(state), *options).stderr.splitlines() if "results are from" in line
    ]
    return int(line.split()[1])


def test_changed_files_are_read_again(tmp_path: Path) -> None:
    """A time, a size, an inode, a new index, other settings; and the newest segment always."""
    logs, state = tmp_path / "t-0", tmp_path / "state"
    first, *_ = partition(logs)
    assert [reused(logs, state) for _ in range(2)] == [0, 2]
    os.utime(first, (LONG_AGO, LONG_AGO + 1))
    assert [reused(logs, state) for _ in range(2)] == [1, 2]
    copy = first.with_suffix(".swap")
    shutil.copy2(first, copy)
    copy.replace(first)
    assert [reused(logs, state) for _ in range(2)] == [1, 2]
    first.with_suffix(".txnindex").touch()
    os.utime(first.with_suffix(".txnindex"), (LONG_AGO, LONG_AGO))
    assert [reused(logs, state) for _ in range(2)] == [1, 2]
    assert [reused(logs, state, "--shallow") for _ in range(2)] == [0, 2]
    assert Settings(policy=Policy({"offset-gap": Severity.ERROR})) != Settings()
    assert [reused(logs, state, "--rule", "offset-gap=error") for _ in range(2)] == [0, 2]


def test_results_for_files_written_just_now_are_not_kept(tmp_path: Path) -> None:
    """The next write could leave the same time."""
    logs, state = tmp_path / "t-0", tmp_path / "state"
    first, *_ = partition(logs)
    os.utime(first, (time.time() + 60, time.time() + 60))
    assert [reused(logs, state) for _ in range(2)] == [0, 1]


@pytest.mark.slow
def test_a_file_that_is_no_state_is_refused(tmp_path: Path) -> None:
    """Every cut and every flipped byte, another version, another file type:

    one line, exit code 2, and the file is unchanged.
    """
    logs, state = tmp_path / "t-0", tmp_path / "state"
    partition(logs)
    sweep(logs, "--cache", str(state))
    good = state.read_bytes()
    bad = [good[:size] for size in range(0, len(good), 7)]
    bad += [good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :] for at in range(0, len(good) - 1, 7)]
    bad += [good + b"x", b"{}\n", b"[1]\n", good.replace(b'"kseg_state":7', b'"kseg_state":1'), good * 2]
    for data in bad:
        state.write_bytes(data)
        done = sweep(logs, "--cache", str(state))
        assert done.exit_code == 2, data
        (line,) = [line for line in done.stderr.splitlines() if str(state) in line]
        assert "Delete it to start again" in line
        assert state.read_bytes() == data


def test_the_state_file_must_be_outside_of_the_inputs(tmp_path: Path) -> None:
    """A broker does not start with a foreign file in a partition's folder."""
    logs = tmp_path / "t-0"
    partition(logs)
    assert sweep(logs, "--cache", str(logs / "state")).exit_code == 2
    assert len(list(logs.iterdir())) == 3


#: A run that gets a signal right after it stored the fifth result, however fast or busy the machine is.
INTERRUPTED = """
import itertools, os, sys
from kseg.commands.validate.result_store import ResultStore
by, stored, store = int(sys.argv.pop(1)), itertools.count(1), ResultStore.store
def stored_and_signalled(*given):
    store(*given)
    if next(stored) == 5:
        os.kill(os.getpid(), by)
ResultStore.store = stored_and_signalled
from kseg.cli.main import main
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_continues(tmp_path: Path, by: signal.Signals) -> None:
    """Files that were read before Ctrl-C, or before a service manager ended the run, are not read again."""
    logs, state = tmp_path / "t-0", tmp_path / "state"
    partition(logs, 10)
    command = [sys.executable, "-c", INTERRUPTED, str(int(by)), "validate", "--cache", str(state), str(logs)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 128 + by, ended.stderr
    assert "Traceback" not in ended.stderr
    assert reused(logs, state) == 5


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_the_rate_holds_for_all_processes_together(tmp_path: Path, jobs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """--max-rate limits the sum of all processes."""
    monkeypatch.setattr(several_processes, "RANGE_SIZE", 1000)
    monkeypatch.setattr(several_processes, "BEGIN_ALONE", False)
    logs = tmp_path / "t-0"
    size = sum(path.stat().st_size for path in partition(logs, 40))
    began = time.monotonic()
    assert sweep(logs, "--max-rate", "80K", "--jobs", str(jobs)).exit_code == 0
    assert time.monotonic() - began > 0.8 * size / (80 * 1024)


def test_rates_are_read_as_people_write_them() -> None:
    """Powers of 1024, as sizes in Kafka's configuration."""
    assert [parse_rate(text) for text in ("50M", "1.5 GiB/s", "800000", "64kB")] == [
        50 << 20, 1.5 * (1 << 30), 800000, 65536,
    ]  # fmt: skip
    for text in ("", "fast", "-1", "0", "5X", "M"):
        with pytest.raises(ValueError, match="bytes per second"):
            parse_rate(text)


@pytest.mark.parametrize("results", [True, False])
def test_a_full_disk_leaves_no_empty_state_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, results: bool) -> None:
    """The message says that nothing was written there. Results that an earlier save has written stay."""
    path = tmp_path / "state"

    def run() -> None:
        with open_state_file(str(path), Settings(), []) as state:
            if results:
                state.save()
            monkeypatch.setattr("kseg.format.storage.atomic_write.publish", full_disk)

    with pytest.raises(KsegError, match="nothing was written there"):
        run()
    assert path.exists() == results


def full_disk(*_: object, **__: object) -> None:
    """Fail as a rename on a full disk."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
