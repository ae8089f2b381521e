"""A repair of a source that changes, and of a disk that stores other bytes; its progress and its memory.

Faults while it writes: tests/storage/test_publish.py.
"""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kseg.commands.repair.repair import repair
from kseg.commands.repair.repaired_segment import RepairPlan
from kseg.errors import UnreadableError
from kseg.format.storage.atomic_write import NewFile
from kseg.format.writer.batch_runs import ReadBackError
from kseg.format.writer.records_builder import PlainRecord, build_batch
from tests.support import damage
from tests.support.repairing import FIRST, digests

REPAIR = [sys.executable, "-m", "kseg", "repair"]
SECOND = "00000000000000002000.log"
VALUE = damage.noise(200) * 10
MAX_RSS = """
import resource, sys
from kseg.commands.repair.repair import repair
from kseg.commands.repair.repaired_segment import RepairPlan
repair(sys.argv[1], sys.argv[2], RepairPlan())
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def log_from(first: int, count: int, value: bytes = VALUE) -> bytes:
    """A log of ``count`` batches, one of them with a damaged record."""
    data = b"".join(build_batch([PlainRecord(n, b"k", value)]) for n in range(first, first + count))
    return damage.flip(data, len(data) // 2 + 100)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A partition of two segments, each damaged."""
    folder = tmp_path / "in-0"
    folder.mkdir()
    (folder / FIRST).write_bytes(log_from(0, 2000))
    (folder / SECOND).write_bytes(log_from(2000, 1000))
    return folder


def test_a_segment_that_can_not_be_read(source: Path, tmp_path: Path) -> None:
    """A link to itself replaces the second segment: it can't be read, and the first one's result is removed, too."""
    (source / SECOND).unlink()
    (source / SECOND).symlink_to(SECOND)
    before = digests(tmp_path)
    done = subprocess.run([*REPAIR, str(source), str(tmp_path / "p-0")], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "a symbolic link to itself" in done.stderr
    assert "Traceback" not in done.stderr
    assert digests(tmp_path) == before
    assert not (tmp_path / "p-0").exists()


@pytest.mark.slow
def test_memory_does_not_grow_with_the_segment(tmp_path: Path) -> None:
    """Memory does not grow with the damage either: one batch in a hundred is damaged."""
    peaks = []
    for count in (8, 56):
        log = tmp_path / f"{count}.log"
        with log.open("wb") as out:
            for n in range(count * 10):
                out.write(log_from(n * 100, 100, VALUE[:1000]))
        done = subprocess.run(
            [sys.executable, "-c", MAX_RSS, log, tmp_path / f"out-{count}.log"],
            capture_output=True, check=True, text=True,
        )  # fmt: skip
        peaks.append(int(done.stdout) / 1024)
    assert peaks[1] - peaks[0] < 8


@pytest.mark.slow
def test_progress_is_shown_on_a_terminal(tmp_path: Path) -> None:
    """Progress of long work is shown on stderr, and never on stdout."""
    log = tmp_path / "in.log"
    log.write_bytes(b"".join(log_from(n * 100, 100) for n in range(200)))
    primary, secondary = pty.openpty()
    # The duration of work depends on the machine: here progress is shown at once.
    at_once = (
        "import sys, kseg.cli.messages; kseg.cli.messages.DELAY = 0; from kseg.cli.main import main; main(sys.argv[1:])"
    )
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
    process = subprocess.Popen(
        [sys.executable, "-c", at_once, "repair", log, tmp_path / FIRST],
        stdout=subprocess.PIPE, stderr=secondary, env=environment,
    )  # fmt: skip
    os.close(secondary)
    shown = b""
    while True:
        try:
            piece = os.read(primary, 65536)
        except OSError:
            break
        if not piece:
            break
        shown += piece
    out, _ = process.communicate()
    os.close(primary)
    assert process.returncode == 1
    assert b"200 ranges lost" in out
    assert b" MB" in shown


def _put(at: int, piece: bytes) -> Callable[[bytes], bytes]:
    return lambda data: data[:at] + piece + data[at + len(piece) :]


def _batch(offset: int, value: bytes = VALUE) -> bytes:
    return build_batch([PlainRecord(offset, b"k", value)], partition_leader_epoch=3)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        (_put(300, b"?!"), "crc-mismatch"),
        (_put(7, b"\x01"), "non-monotonic-offset"),
        (_put(len(_batch(0)), _batch(1, VALUE[::-1])), "the batches differ"),
        (_put(3 * len(_batch(0)) + 12, b"\0\0\0\x04"), "the batches differ"),
        (lambda data: data[: -len(_batch(0))], "the batches differ"),
    ],
)
def test_changed_result_is_found_when_it_is_read_back(
    changed: Callable[[bytes], bytes], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that stores other bytes: also other valid batches, and header fields that no CRC covers."""
    source, target = tmp_path / FIRST, tmp_path / "out" / FIRST
    source.write_bytes(b"".join(_batch(offset) for offset in range(4)))
    target.parent.mkdir()
    sync = NewFile.sync

    def sync_other_bytes(new: NewFile, modified_ns: int | None = None) -> None:
        sync(new, modified_ns)
        if new.path.name == target.name:
            new.path.write_bytes(changed(source.read_bytes()))

    monkeypatch.setattr(NewFile, "sync", sync_other_bytes)
    with pytest.raises(ReadBackError, match=why):
        repair(str(source), str(target), RepairPlan())
    assert not os.listdir(target.parent)


def test_a_source_that_is_replaced_meanwhile_has_no_result(source: Path, tmp_path: Path) -> None:
    """A repair reads a segment several times. Of two versions of it, as a log cleaner leaves them, it makes no third."""
    other = tmp_path / "cleaned.log"
    other.write_bytes(log_from(100, 1900))

    def replace_it(_: int) -> None:
        if other.exists():
            other.replace(source / FIRST)

    with pytest.raises(UnreadableError, match=f"{FIRST}: replaced meanwhile: run again"):
        repair(str(source / FIRST), str(tmp_path / FIRST), RepairPlan(), progress=replace_it)
    assert not other.exists()
    assert not (tmp_path / FIRST).exists()
