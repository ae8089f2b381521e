"""A file that is not a segment gives one line that names its type, and exit code 2 without a traceback."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SEGMENTS = Path(__file__).parents[2] / "fixtures" / "segments"
FIRST = "00000000000000000000.log"
SEGMENT = SEGMENTS / "4.3.0-v2-none" / FIRST
KSEG = Path(sys.executable).with_name("kseg")

COMMANDS = ["validate", "dump"]


def kseg(*arguments: str | Path, stdin: str | Path = os.devnull) -> subprocess.CompletedProcess[str]:
    """Run the installed command as a user does."""
    with open(stdin, "rb") as source:
        return subprocess.run(
            [str(KSEG), *map(str, arguments)], stdin=source, capture_output=True, text=True, timeout=300, check=False
        )


def complaint(done: subprocess.CompletedProcess[str]) -> str:
    """Return the one line on stderr of a command that failed."""
    assert "Traceback" not in done.stderr
    assert "internal error" not in done.stderr
    assert done.returncode == 2, done.stderr
    # The summary of an output file does not count.
    lines = [line for line in done.stderr.splitlines() if not line.startswith("kseg: no rows") and "/out: " not in line]
    lines = [line for line in lines if not line.startswith("kseg: skipped ")]  # files that were left out are named
    assert len(lines) == 1, lines
    assert lines[0].startswith("kseg: ")
    return lines[0]


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("notes.txt", b"Kafka keeps its log in segments.\n" * 40, "looks like text"),
        ("words.log", "Überraschung, kein Segment".encode(), "looks like text"),
        ("picture.log", b"\xff\xd8\xff\xe0\0\x10JFIF\0" + bytes(range(256)) * 40, "JPEG"),
        ("orders.index", bytes.fromhex("0000000c000001db0000001800000482"), "offset index"),
        ("orders.timeindex", bytes.fromhex("0000018bcfe5682e0000000b"), "time index"),
        ("segment.gzip", gzip.compress(SEGMENT.read_bytes()), "gzip"),
        ("letters.bin", b"\x07\x01\x02\x03\xfe" * 3, "07 01 02 03 fe"),
    ],
)
def test_a_file_of_another_kind(tmp_path: Path, command: str, name: str, content: bytes, says: str) -> None:
    """The line names the kind of the file, so that the user sees which path was wrong."""
    path = tmp_path / name
    path.write_bytes(content)
    line = complaint(kseg(command, path))
    assert str(path) in line
    assert says in line


@pytest.mark.parametrize("command", COMMANDS)
def test_a_missing_file(tmp_path: Path, command: str) -> None:
    """A path that does not exist is one line with the system's reason."""
    assert "No such file" in complaint(kseg(command, tmp_path / "missing.log"))


@pytest.mark.parametrize("command", COMMANDS)
def test_a_folder_without_segments(tmp_path: Path, command: str) -> None:
    """An empty result would look like a valid log."""
    (tmp_path / "notes.txt").write_text("nothing here")
    assert "no segment" in complaint(kseg(command, tmp_path))


@pytest.mark.parametrize("command", COMMANDS)
def test_a_folder_that_is_named_like_a_segment(tmp_path: Path, command: str) -> None:
    """Opening it must not end in a traceback of the system's error."""
    folder = tmp_path / "topic-0"
    (folder / FIRST).mkdir(parents=True)
    complaint(kseg(command, folder))


def without_rights(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the command without the rights by which root reads every file."""
    rights = "-dac_override,-dac_read_search"
    drop = ["setpriv", f"--bounding-set={rights}", f"--inh-caps={rights}"] if os.geteuid() == 0 else []
    if drop and not shutil.which("setpriv"):
        pytest.skip("root can read every file, and there is no setpriv")
    command = [*drop, str(KSEG), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_without_permission(tmp_path: Path, command: str) -> None:
    """The line names the reason."""
    path = tmp_path / FIRST
    path.write_bytes(SEGMENT.read_bytes())
    path.chmod(0)
    assert "Permission denied" in complaint(without_rights(command, "--format", "jsonl", path))


@pytest.fixture
def partly_readable(tmp_path: Path) -> Iterator[Path]:
    """A log directory with three partitions, of which the second cannot be listed."""
    for partition in ("orders-0", "orders-1", "orders-2"):
        shutil.copytree(SEGMENT.parent, tmp_path / partition)
    unlisted = tmp_path / "orders-1"
    unlisted.chmod(0)
    yield tmp_path
    unlisted.chmod(0o755)


@pytest.mark.slow
@pytest.mark.parametrize("command", ["validate", "dump", "stats", "transactions", "recovery"])
def test_a_folder_without_permission(partly_readable: Path, command: str) -> None:
    """The folders after it are read, it is named, and the exit code says that something was not read."""
    done = without_rights(command, "--format", "jsonl", partly_readable)
    assert done.returncode == 2, done.stderr
    assert f"kseg: {partly_readable}/orders-1: Permission denied\n" in done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    if command == "validate":
        assert [rows[-1][name] for name in ("files", "unread", "verdict")] == [3, 1, "undetermined"]
    else:
        assert all(any(f"{partly_readable}/{name}" in str(row) for row in rows) for name in ("orders-0", "orders-2"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("library", "arguments"),
    [
        ("fsspec", ("validate", "s3://bucket/topic-0/00000000000000000000.log")),
        ("fsspec", ("dump", "s3://bucket/topic-0/00000000000000000000.log")),
        ("pyarrow", ("dump", "--format", "parquet", "-o", "{out}", str(SEGMENT))),
        ("fastavro", ("dump", "--value-as", "avro", "--schema-file", "{avsc}", str(SEGMENT))),
        ("google.protobuf", ("dump", "--value-as", "protobuf", "--schema-file", "{proto}", str(SEGMENT))),
        ("grpc_tools", ("dump", "--value-as", "protobuf", "--schema-file", "{proto}", str(SEGMENT))),
        ("pyspark", ("validate", "--spark", "local[1]", str(SEGMENT))),
        ("pyspark", ("sql", "--recipe", "gaps", "--spark", "local[1]", str(SEGMENT))),
    ],
)
def test_a_missing_library(library: str, arguments: tuple[str, ...], tmp_path: Path) -> None:
    """The line names the package to install."""
    program = f"import sys; sys.modules['{library}'] = None; from kseg.cli.main import main; main()"
    (tmp_path / "x.avsc").write_text('"string"')
    (tmp_path / "x.proto").write_text("message A {}")
    files = {"out": tmp_path / "out", "avsc": tmp_path / "x.avsc", "proto": tmp_path / "x.proto"}
    words = [word.format(**files) for word in arguments]
    done = subprocess.run(
        [sys.executable, "-c", program, *words], capture_output=True, text=True, timeout=300, check=False
    )
    line = complaint(done)
    assert library.split(".")[-1] in line or "protoc" in line
    assert "pip install" in line


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("device", ["/dev/zero", "/dev/urandom"])
def test_a_stream_without_an_end(command: str, device: str) -> None:
    """Reading stops after a limit, in the memory of a usual segment."""
    limit = ["--limit", "3"] if command == "dump" else []
    assert "not a Kafka log segment" in complaint(kseg(command, *limit, "-", stdin=device))


@pytest.mark.parametrize("command", COMMANDS)
def test_an_empty_segment_is_sound(tmp_path: Path, command: str) -> None:
    """A segment that was just rolled is an empty file."""
    path = tmp_path / FIRST
    path.touch()
    done = kseg(command, path)
    assert done.returncode == 0
    assert "Traceback" not in done.stderr
    assert done.stdout.strip() or done.stderr.strip(), "it says something"


def test_an_empty_stream(tmp_path: Path) -> None:
    """An empty pipe is not a valid segment: its writer may have failed."""
    assert kseg("validate", "-").returncode == 2


def test_a_bad_file_does_not_hide_the_good_ones(tmp_path: Path) -> None:
    """One wrong path among many must not cost the results of the others."""
    text = tmp_path / "notes.txt"
    text.write_text("no segment")
    done = kseg("validate", "--format", "jsonl", text, SEGMENT, tmp_path / "missing.log")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 2
    summary = json.loads(done.stdout.splitlines()[-1])
    assert (summary["files"], summary["records"], summary["verdict"]) == (3, 44, "undetermined")


def test_file_names_are_data(tmp_path: Path) -> None:
    """Escape sequences in a file name don't reach the terminal, and its markup has no effect."""
    path = tmp_path / "\x1b[31m[bold]red.txt"
    path.write_text("no segment")
    line = complaint(kseg("validate", path))
    assert "\x1b" not in line
    assert "[bold]" in line


def test_damage_is_findings_and_exit_1(tmp_path: Path) -> None:
    """A script distinguishes damage from failure by the exit code."""
    path = tmp_path / FIRST
    path.write_bytes(SEGMENT.read_bytes()[:-100])
    for command in COMMANDS:
        done = kseg(command, path)
        assert done.returncode == 1
        assert "Traceback" not in done.stderr
    assert "truncated-tail" in kseg("validate", path).stdout


def test_no_file_is_created_next_to_the_input(tmp_path: Path) -> None:
    """Inputs and their folders are read-only for kseg."""
    path = tmp_path / FIRST
    path.write_bytes(data := SEGMENT.read_bytes()[:-100])
    path.chmod(0o400)
    before = path.stat()
    for command in COMMANDS:
        kseg(command, tmp_path)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == {FIRST: data}
    after = path.stat()
    assert (after.st_mtime_ns, after.st_size, after.st_ino) == (before.st_mtime_ns, before.st_size, before.st_ino)
