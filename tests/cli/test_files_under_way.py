"""Commands over a file that a second process appends to, truncates, replaces or renames, as a broker does."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

from kseg.format.writer.records_builder import PlainRecord, build_batch

pytestmark = pytest.mark.slow

LOG = "00000000000000000000.log"
COMMANDS = (
    "validate --jobs 1 {}", "validate --jobs 2 {}", "dump --deep --format jsonl {}", "stats --deep {}", "recovery {}",
    "repair {} OUT", "convert any-to-v2 {} OUT", "grep e {}", "transactions {}", "explain {}/LOG",
)  # fmt: skip
#: The changes of the second process: each repeats until it is killed.
WRITER = """
import os, random, sys, time

path, kind = sys.argv[1:]
with open(path, "rb") as file:
    whole = file.read()
chance = random.Random(kind)
print("ready", flush=True)
while True:
    if kind == "append":
        os.truncate(path, 0)
        with open(path, "ab", buffering=0) as out:
            for at in range(0, len(whole), 100_000):
                out.write(whole[at : at + 100_000])
                time.sleep(0.003)
    elif kind == "truncate":
        with open(path, "r+b", buffering=0) as out:
            out.truncate(chance.randrange(len(whole)))
            time.sleep(chance.random() * 0.02)
            out.write(whole)
    elif kind == "replace":
        with open(path + ".cleaned", "wb") as out:
            out.write(whole[: chance.randrange(1, 1_000) * (len(whole) // 1_000)])
        os.replace(path + ".cleaned", path)
    else:
        os.rename(path, path + ".deleted")
        time.sleep(chance.random() * 0.01)
        os.rename(path + ".deleted", path)
    time.sleep(chance.random() * 0.02)
"""
#: Rules about bytes that are wrong, not missing.
DAMAGE = (
    "crc-mismatch",
    "invalid-size",
    "unknown-magic",
    "unreadable-bytes",
    "malformed-record",
    "undecodable-payload",
)


@cache
def whole() -> bytes:
    """Return 1,000 batches of one size."""
    records = (
        [PlainRecord(10_000 + 2 * i, b"k", bytes(2_000), 1), PlainRecord(10_001 + 2 * i, b"k", b"", 1)]
        for i in range(1_000)
    )
    return b"".join(map(build_batch, records))


@contextmanager
def changed(path: Path, kind: str) -> Iterator[None]:
    """Let another process change a file meanwhile."""
    with subprocess.Popen([sys.executable, "-c", WRITER, str(path), kind], stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        try:
            yield
        finally:
            process.kill()


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    words = {"{}": str(folder), "{}/LOG": str(folder / LOG), "OUT": str(folder.parents[1] / "out")}
    line = [words.get(word, word) for word in shlex.split(command)]
    return subprocess.run([sys.executable, "-m", "kseg", *line], capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("kind", ["append", "truncate", "replace", "rename"])
def test_a_file_that_changes_is_read_or_reported_in_a_line(tmp_path: Path, kind: str, command: str) -> None:
    """A read race is neither an internal error nor damage: the end of the log can be missing, but no byte is wrong."""
    folder = tmp_path / "logs" / "orders-0"
    folder.mkdir(parents=True)
    (folder / LOG).write_bytes(whole())
    with changed(folder / LOG, kind):
        done = run(command, folder)
    assert done.returncode in (0, 1, 2), done.stderr
    assert "Traceback" not in done.stderr
    assert "internal error" not in done.stderr
    if done.returncode == 2:
        assert "kseg: " in done.stderr
    if kind != "truncate":  # a truncated file that is written again has zeros and old bytes for a moment
        assert not [rule for rule in DAMAGE if rule in done.stdout + done.stderr], done.stdout[-500:] + done.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_without_file_descriptors_a_command_says_so(tmp_path: Path, command: str) -> None:
    """EMFILE is an error of the machine, not of a file."""
    folder = tmp_path / "logs" / "orders-0"
    folder.mkdir(parents=True)
    for number in range(30):
        batch = build_batch([PlainRecord(number, b"k", b"v", 1)])
        (folder / f"{number:020}.log").write_bytes(batch)
    words = {"{}": str(folder), "{}/LOG": str(folder / LOG), "OUT": str(tmp_path / "out")}
    line = [words.get(word, word) for word in shlex.split(command)]
    code = "import resource; from kseg.cli.main import main; resource.setrlimit(resource.RLIMIT_NOFILE, (5, 5)); main()"
    done = subprocess.run([sys.executable, "-c", code, *line], capture_output=True, text=True, timeout=300)
    assert done.returncode in (0, 1, 2), done.stderr
    assert "Traceback" not in done.stderr
    assert not [rule for rule in DAMAGE if rule in done.stdout + done.stderr]
    if done.returncode == 2:
        assert done.stderr.strip()


@pytest.mark.parametrize("command", ["validate --jobs 2 {}", "dump --deep --format jsonl {}", "repair {} OUT"])
def test_a_second_ctrl_c_ends_as_the_first(tmp_path: Path, command: str) -> None:
    """Impatient people press it twice: no traceback, and no temporary file."""
    folder = tmp_path / "logs" / "orders-0"
    folder.mkdir(parents=True)
    (folder / LOG).write_bytes(whole() * 10)
    words = {"{}": str(folder), "OUT": str(tmp_path / "out")}
    line = [sys.executable, "-m", "kseg", *(words.get(word, word) for word in shlex.split(command))]
    for delay in (0.3, 0.5):
        with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True) as process:
            time.sleep(delay)
            for _ in range(2):
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGINT)
                time.sleep(0.003)
            messages = process.communicate(timeout=300)[1]
        assert b"Traceback (most recent call last)" not in messages, messages
        assert process.returncode in (0, 1, 130, -signal.SIGINT)
    assert [path.name for path in tmp_path.iterdir() if path.name not in ("logs", "out")] == []
