"""FIFOs, sockets and devices under the names of Kafka's files, and workers of a killed parent:

no process waits for ever.
"""

from __future__ import annotations

import errno
import os
import shutil
import socket
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from kseg.errors import UnreadableError, VanishedError
from kseg.format.storage import local_files
from kseg.format.storage.local_files import SpecialFileError
from kseg.format.storage.source import open_source
from tests.support.fuzzing import cases

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no FIFOs")]

ROOT = Path(__file__).parents[2]
SEGMENTS = ROOT / "fixtures" / "segments"
PLAIN = SEGMENTS / "4.3.0-v2-none"
LOG = "00000000000000000000.log"
# A test that hangs fails after this number of seconds, also on a busy machine.
PATIENCE = 120
#: The number of kinds of special files that each name is tried as: all of them with KSEG_FUZZ_CASES=6.
CASES = cases(1)

#: Every kind of file that a broker has in a partition folder or a log dir.
NAMES = [
    *(f"00000000000000000000.{suffix}" for suffix in ("log", "index", "timeindex", "txnindex", "snapshot")),
    *(f"00000000000000000100.{suffix}" for suffix in ("log", "index", "timeindex", "txnindex", "snapshot")),
    "00000000000000000200.log.deleted", "00000000000000000200.log.cleaned", "00000000000000000300.log.swap",
    "00000000000000000000-0000000001.checkpoint", "leader-epoch-checkpoint", "partition.metadata", "quorum-state",
    "recovery-point-offset-checkpoint", "replication-offset-checkpoint", "log-start-offset-checkpoint",
    "cleaner-offset-checkpoint", "meta.properties", "bootstrap.checkpoint", ".kafka_cleanshutdown", ".lock",
]  # fmt: skip
KINDS = ["fifo", "socket", "device", "link to a fifo", "dangling link", "folder"]
COMMANDS = {
    "validate": ["validate"],
    "validate shallow": ["validate", "--shallow"],
    "dump": ["dump"],
    "dump deep": ["dump", "--deep", "--format", "jsonl"],
    "grep": ["grep", "-v", "nowhere"],
    "stats": ["stats", "--format", "jsonl"],
    "transactions": ["transactions"],
    "recovery": ["recovery"],
    "diff": ["diff", "{path}"],
    "convert": ["convert", "any-to-v2", "{path}", "{out}"],
    "repair": ["repair", "{path}", "{out}"],
    "repair dry": ["repair", "--dry-run"],
}


def kseg(*arguments: object, stdin: bytes = b"") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kseg", *map(str, arguments)]
    done = subprocess.run(command, input=stdin, capture_output=True, timeout=PATIENCE, check=False)
    return subprocess.CompletedProcess(command, done.returncode, done.stdout.decode(), done.stderr.decode())


def run(command: str, path: Path, out: Path) -> subprocess.CompletedProcess[str]:
    words = COMMANDS[command]
    arguments = [word.format(path=path, out=out) for word in words]
    return kseg(*arguments, *([] if "{out}" in words else [path]))


@pytest.fixture
def short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The temporary folder as the working folder: the path of a socket has at most 107 bytes."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def make(path: Path, kind: str) -> None:
    """Replace a path by a special file."""
    if path.exists():
        path.unlink()
    match kind:
        case "fifo":
            os.mkfifo(path)
        case "socket":
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(os.path.relpath(path))
        case "device":
            try:
                os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 5))  # zeros without an end
            except PermissionError:
                path.symlink_to("/dev/zero")
        case "link to a fifo":
            target = path.with_name(f"fifo-of-{path.name}")
            os.mkfifo(target)
            path.symlink_to(target)
        case "dangling link":
            path.symlink_to("not-there")
        case "folder":
            path.mkdir()


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.fuzz
@pytest.mark.parametrize("turn", range(min(CASES, len(KINDS))))
def test_a_folder_of_nothing_else(short: Path, turn: int, command: str) -> None:
    """Every name that a broker writes is a special file: each command ends with a plain reason."""
    folder = short / "log-dir" / "topic-0"
    folder.mkdir(parents=True)
    for i, name in enumerate(NAMES):
        make(folder / name, KINDS[(i + turn) % len(KINDS)])
        make(folder.parent / name, KINDS[(i + turn + 1) % len(KINDS)])
    for path in (folder, folder.parent):
        done = run(command, path, short / "out")
        assert done.returncode in (0, 1, 2)
        assert "Traceback" not in done.stderr
        assert "internal error" not in done.stderr
        assert "special file" in done.stderr


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.fuzz
@pytest.mark.parametrize("kind", ["fifo", "socket", "device"][:CASES])
def test_among_sound_files(short: Path, kind: str, command: str) -> None:
    """Valid files in the folder are read as without the special files, which are counted in one warning."""
    folder, alike = short / "it" / "topic-0", short / "alike" / "topic-0"
    for each in (folder, alike):
        each.parent.mkdir()
        shutil.copytree(PLAIN, each)
        for path in each.iterdir():
            if path.suffix != ".log":
                path.unlink()
    for name in ("00000000000000000000.index", "00000000000000000999.log", "leader-epoch-checkpoint"):
        make(folder / name, kind)
    done, expected = run(command, folder, short / "out"), run(command, alike, short / "out-alike")
    assert done.returncode == expected.returncode
    if command not in ("recovery", "diff"):
        shown = done.stdout.replace(str(short / "out"), "").replace(str(folder.parent), "")
        assert (
            shown.split()
            == expected.stdout.replace(str(short / "out-alike"), "").replace(str(alike.parent), "").split()
        )
    if command != "recovery":
        assert done.stderr.count("skipped 3 special files") == 1


def test_swapped_after_the_folder_was_listed(short: Path) -> None:
    """A path that was listed as a file is opened without waiting, even if it is a FIFO by then."""
    for kind in ("fifo", "socket", "device"):
        path = short / f"{kind}.log"
        make(path, kind)
        with pytest.raises(SpecialFileError, match="not a file"):
            open_source(path, listed=True)
    with pytest.raises(VanishedError):
        open_source(short / "nothing", listed=True)


@pytest.mark.parametrize(
    "arguments", [["validate"], ["dump", "--deep", "--format", "csv"], ["stats", "--format", "jsonl"], ["transactions"]]
)
def test_a_fifo_that_is_named_is_read(short: Path, arguments: list[str]) -> None:
    """A pipe has an end: it is read like a file with its content."""
    path = short / LOG
    os.mkfifo(path)
    writer = threading.Thread(target=lambda: path.write_bytes((PLAIN / LOG).read_bytes()), daemon=True)
    writer.start()
    done = kseg(*arguments, path)
    writer.join(PATIENCE)
    expected = kseg(*arguments, PLAIN / LOG)
    assert done.returncode == expected.returncode == 0
    assert done.stdout.replace(str(short), "") == expected.stdout.replace(str(PLAIN), "")


def test_standard_input_by_its_path() -> None:
    """/dev/stdin is the pipe of a shell, or the file."""
    done = kseg("dump", "--deep", "--format", "csv", "/dev/stdin", stdin=(PLAIN / LOG).read_bytes())
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) > 1


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("kind", ["socket", "device"])
def test_without_an_end_and_named(short: Path, kind: str, command: str) -> None:
    """A socket can't be opened and zeros never end: one clear line, exit code 2."""
    make(short / LOG, kind)
    done = run(command, short / LOG, short / "out.log")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    lines = [line for line in done.stderr.splitlines() if line]
    assert lines
    assert len(lines) <= 2


@pytest.mark.parametrize("command", ["convert", "repair"])
def test_a_pipe_cannot_be_converted(short: Path, command: str) -> None:
    """The verification of a conversion reads the source again: a pipe is rejected before its first byte is read."""
    os.mkfifo(short / LOG)
    done = run(command, short / LOG, short / "out.log")
    assert done.returncode == 2
    assert "a FIFO, which cannot be read twice" in done.stderr


def test_a_state_file_that_is_a_fifo(short: Path) -> None:
    """The state file is read and replaced: no command waits for a FIFO at its path."""
    os.mkfifo(short / "state")
    done = kseg("validate", "--cache", short / "state", PLAIN)
    assert done.returncode == 2
    assert "is a FIFO, not a file" in done.stderr
    assert stat.S_ISFIFO((short / "state").stat().st_mode)


def test_a_failing_disk_has_no_missing_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Promise 9: what a disk does not answer is an error, not a file that is not there."""
    stat = os.stat

    def failing(path: object, *given: object, **named: object) -> os.stat_result:
        if str(path).endswith(".index"):
            raise OSError(number, os.strerror(number), str(path))
        return stat(path, *given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "stat", failing)
    for look in (local_files.exists, local_files.is_file, local_files.is_folder):
        number = errno.EIO
        with pytest.raises(UnreadableError, match=r"0\.index: Input/output error"):
            look(tmp_path / f"{0:020}.index")
        number = errno.ENOENT
        assert not look(tmp_path / f"{0:020}.index")


def test_a_link_to_itself_is_no_file(tmp_path: Path) -> None:
    """The other files are read, and listed."""
    shutil.copytree(PLAIN, tmp_path / "logs" / "topic-0")
    (tmp_path / "logs" / "self").symlink_to("self")
    for words in (
        ["sql", "select count(*) from files"],
        ["sql", "select count(*) from records"],
        ["recovery"],
        ["stats"],
    ):
        done = kseg(*words, tmp_path / "logs")
        assert done.returncode in (0, 1), (words, done.stderr)
        assert "symbolic links" not in done.stderr
