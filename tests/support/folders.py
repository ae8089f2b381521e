"""Folders of brokers: copies of them, batches to change them, and the results of a validation by file."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kseg.commands.validate import validate_ranges
from kseg.commands.validate.folder_checks import check_folders
from kseg.findings import Severity
from kseg.format.sidefiles.registry import find_files
from kseg.format.storage.naming import is_in_use
from kseg.format.writer.records_builder import PlainRecord, build_batch
from kseg.results import FileResult, Settings

SEGMENTS = Path(__file__).parents[2] / "fixtures" / "segments"
# The query of the lock sees other processes only.
_LOCK = """
import fcntl, sys
file = open(sys.argv[1], "w")
fcntl.lockf(file, fcntl.LOCK_EX)
print("locked", flush=True)
sys.stdin.read()
"""
FOLDERS = sorted(path.parent for path in SEGMENTS.glob("*/ORIGIN"))


def validate_folder(path: Path, jobs: int = 1) -> list[FileResult]:
    files = list(find_files(str(path), lambda name: None))
    return list(check_folders(files, Settings(), validate_ranges.validate_files(files, Settings(), jobs)))


def rules(path: Path) -> dict[str, list[str]]:
    """Return the rules with findings at warning or above, by file."""
    loud = {
        Path(result.file).name: [verdict.rule.name for verdict in result.verdicts if verdict.severity > Severity.INFO]
        for result in validate_folder(path)
    }
    return {name: found for name, found in loud.items() if found}


def copied(name: str, target: Path) -> Path:
    folder = target / "orders-0"
    shutil.copytree(SEGMENTS / name, folder, ignore=shutil.ignore_patterns("ORIGIN", "expect.jsonl"))
    return folder


def transactional(offset: int, count: int, producer_id: int, sequence: int) -> bytes:
    records = [PlainRecord(offset + n, b"k", b"v", 1_700_000_000_000) for n in range(count)]
    return build_batch(records, producer_id=producer_id, producer_epoch=0, base_sequence=sequence, transactional=True)


def marker(offset: int, producer_id: int, *, abort: bool) -> bytes:
    record = PlainRecord(offset, b"\0\0\0" + bytes([not abort]), bytes(6), 1_700_000_000_000)
    return build_batch([record], producer_id=producer_id, producer_epoch=0, transactional=True, control=True)


@contextmanager
def held_lock(log_dir: Path) -> Iterator[None]:
    """Have another process hold the lock of a log directory, as a running broker does."""
    with subprocess.Popen(
        [sys.executable, "-c", _LOCK, log_dir / ".lock"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout
        assert holder.stdout.readline() == b"locked\n"
        assert is_in_use(str(log_dir))
        yield
        holder.communicate(b"")
