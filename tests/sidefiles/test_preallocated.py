"""The zeros of a preallocated index are skipped, and no entry is skipped with them."""

import io
from pathlib import Path

import pytest

from kseg.findings import Finding, do_nothing
from kseg.format.sidefiles.side_file_reading import fixed_runs
from kseg.format.storage.source import Source

#: ``segment.index.bytes`` of a broker by default.
PREALLOCATED = 10 * 1024 * 1024
KIB = 1024


class CountingFile(io.FileIO):
    """A file that counts the bytes read from it."""

    count = 0

    def readinto(self, view: object) -> int:
        count = super().readinto(view)  # type: ignore[arg-type]
        self.count += count or 0
        return count or 0


def read_entries(path: Path, size: int) -> tuple[bytes, int]:
    """Return the bytes of all entries of ``size`` bytes, and the number of bytes read with ``readinto``."""
    with CountingFile(path) as file:
        source = Source(str(path), file, path.stat().st_size)
        entries = b"".join(bytes(block) for _, block in fixed_runs(source, size, do_nothing, preallocated=True))
        return entries, file.count


def write(path: Path, size: int, parts: dict[int, bytes], *, sparse: bool) -> bytes:
    """Write parts at their positions in a file of ``size`` bytes, the rest as a hole or as stored zeros."""
    content = bytearray(size)
    with path.open("wb") as out:
        if sparse:
            out.truncate(size)
        else:
            out.write(content)
        for at, part in parts.items():
            content[at : at + len(part)] = part
            out.seek(at)
            out.write(part)
    return bytes(content)


@pytest.mark.parametrize("sparse", [True, False], ids=["hole", "stored"])
@pytest.mark.parametrize("size", [8, 12])
@pytest.mark.parametrize("entries", [0, 5, 70_000])
def test_only_the_entries_are_read(tmp_path: Path, sparse: bool, size: int, entries: int) -> None:
    """A live broker keeps 10 MiB for each index of an active segment. Reading all of it takes hours under a rate limit."""
    written = bytes(range(1, size + 1)) * entries
    write(tmp_path / "index", PREALLOCATED // size * size, {0: written}, sparse=sparse)
    found, read = read_entries(tmp_path / "index", size)
    assert found == written
    assert read <= len(written) + 256 * KIB


@pytest.mark.parametrize("sparse", [True, False], ids=["hole", "stored"])
@pytest.mark.parametrize("gap", [60 * KIB, 1000 * KIB, 4000 * KIB])
def test_entries_after_zeros_are_not_skipped(tmp_path: Path, sparse: bool, gap: int) -> None:
    """A crash can leave zeros in the middle of an index. The entries after them are entries."""
    first, second = b"\1" * 8000, b"\2" * gap
    content = write(tmp_path / "index", PREALLOCATED, {0: first, 8000 + gap: second}, sparse=sparse)
    found, _ = read_entries(tmp_path / "index", 8)
    assert found == content.rstrip(b"\0")


@pytest.mark.parametrize("sparse", [True, False], ids=["hole", "stored"])
def test_an_incomplete_entry_after_zeros_is_reported(tmp_path: Path, sparse: bool) -> None:
    """The size of the file is checked also where its zeros are skipped."""
    write(tmp_path / "index", PREALLOCATED + 3, {0: b"\1" * 80}, sparse=sparse)
    findings: list[Finding] = []
    with CountingFile(tmp_path / "index") as file:
        source = Source("index", file, PREALLOCATED + 3)
        assert sum(len(block) for _, block in fixed_runs(source, 8, findings.append, preallocated=True)) == 80
    assert [(found.rule, found.position) for found in findings] == [("index-size", PREALLOCATED)]
