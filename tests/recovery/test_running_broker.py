"""``kseg recovery`` and ``kseg doctor`` beside a running broker: what it changes meanwhile is no loss, and no fault."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kseg.commands import recovery
from kseg.format.log_loader.loading_log import LoadingLog
from kseg.format.log_loader.plan import Lost
from kseg.format.writer.records_builder import PlainRecord, build_batch
from tests.support.cli import invoke
from tests.support.folders import held_lock
from tests.support.records import NOW

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a running broker is detected on Linux only")


@pytest.fixture
def log_dir(tmp_path: Path) -> Iterator[Path]:
    """Return a log directory whose lock another process holds, as a broker does."""
    found = tmp_path / "disk"
    found.mkdir()
    with held_lock(found):
        yield found


def batches(first: int, end: int) -> bytes:
    return b"".join(build_batch([PlainRecord(n, b"k", b"v", NOW)], partition_leader_epoch=0) for n in range(first, end))


def made(folder: Path) -> Path:
    """Make a partition folder, and return the path of its segment."""
    folder.mkdir(parents=True)
    (folder / "partition.metadata").write_text("version: 0\ntopic_id: Q2hxV1pLU0dGQk9xT2pYWA\n")
    return folder / f"{0:020}.log"


def test_records_that_are_appended_to_a_preallocated_segment_meanwhile_are_not_lost(
    log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that is killed now keeps them; what follows them and cannot be read is lost all the same."""
    log = made(log_dir / "t-0")
    lost_after = LoadingLog.lost_after

    def appended(self: LoadingLog, *place: Any) -> Lost:
        with log.open("r+b") as file:
            file.seek(len(batches(0, 10)))
            file.write(batches(10, 15))
        return lost_after(self, *place)

    monkeypatch.setattr(LoadingLog, "lost_after", appended)
    log.write_bytes(batches(0, 10) + bytes(1 << 20))
    done = invoke("recovery", log_dir)
    assert (done.exit_code, "would lose data" in done.stdout) == (0, False), done.output
    torn = bytearray(batches(15, 17))
    torn[len(batches(15, 16)) - 1] ^= 1
    log.write_bytes(batches(0, 10) + bytes(len(batches(10, 15))) + torn)
    done = invoke("recovery", log_dir)
    assert (done.exit_code, "1 record, offset 16" in done.stdout) == (1, True), done.output


def test_a_replica_that_is_moved_to_another_disk_meanwhile_is_there_once(
    log_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Advice to keep one of two folders would make people delete the only one (KIP-113)."""
    other = tmp_path / "disk2"
    for folder in (log_dir / "t-0", other / "u-0"):
        made(folder).write_bytes(batches(0, 10))
    plan = recovery.plan

    def moved(path: str, *options: Any, **more: Any) -> Iterator[Any]:
        yield from plan(path, *options, **more)
        if os.path.basename(path) == "disk":
            (log_dir / "t-0").rename(other / "t-0")

    monkeypatch.setattr(recovery, "plan", moved)
    done = invoke("recovery", "--jobs", "1", log_dir, other)
    assert (other / "t-0").is_dir(), "not moved: the test proved nothing"
    assert "has the same partition" not in done.stdout, done.output
