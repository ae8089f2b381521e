"""The installation: man pages, completion, and a start without modules that only POSIX systems have."""

from __future__ import annotations

import hashlib
import os
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from kseg.cli.main import COMMANDS
from tools import man_pages

ROOT = Path(__file__).parents[2]
SEGMENT = ROOT / "fixtures" / "segments" / "4.3.0-v2-none-headers" / "00000000000000000000.log"
SEGMENTS = ROOT / "fixtures" / "segments" / "0.10.2.2-v1-none-segments"

# Python on Windows has none of these modules and names, starts processes from scratch, and can neither open folders nor
# rename or remove open files.
WITHOUT_POSIX = """
import os, shutil, signal, sys
shutil._use_fd_functions = False  # rmtree that opens folders
import multiprocessing.heap, multiprocessing.popen_spawn_posix, multiprocessing.synchronize, concurrent.futures.process
multiprocessing.heap.Arena._dir_candidates = ()  # asks for statvfs
for module in ("fcntl", "grp", "pty", "pwd", "resource", "syslog", "termios", "tty"):
    sys.modules[module] = None
for name in ("O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK", "SEEK_DATA", "SEEK_HOLE", "chown", "fchmod", "fork",
             "geteuid", "getpgid", "getuid", "mkfifo", "pread", "preadv", "sched_getaffinity", "statvfs", "sysconf",
             "posix_fadvise", "killpg", "setsid", "wait3", "wait4"):
    if hasattr(os, name):
        delattr(os, name)
for name in ("SIGALRM", "SIGHUP", "SIGKILL", "SIGPIPE", "SIGQUIT", "SIGUSR1", "pthread_sigmask", "setitimer"):
    if hasattr(signal, name):
        delattr(signal, name)
posix_open = os.open
def windows_open(path, flags, *more, **named):
    if os.path.isdir(path):
        raise PermissionError(13, "Permission denied", path)
    return posix_open(path, flags, *more, **named)
os.open = windows_open
def refuses_open(change):
    def windows_change(path, *more, **named):
        whole = os.path.realpath(path)
        handles = (f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd"))
        opened = {os.path.realpath(handle) for handle in handles if os.path.exists(handle)}
        opened = {one for one in opened if "/pymp-" not in one}  # files of multiprocessing itself
        if any(one == whole or one.startswith(whole + os.sep) for one in opened):
            raise PermissionError(13, "used by another process", path)
        return change(path, *more, **named)
    return windows_change
if os.path.isdir("/proc/self/fd"):
    os.rename, os.replace, os.unlink, os.remove = map(refuses_open, (os.rename, os.replace, os.unlink, os.remove))
multiprocessing.get_all_start_methods = lambda: ["spawn"]
from kseg.cli.main import main
from kseg.format.storage import process_pool
from kseg.format.segment import several_processes
from kseg.format.segment import several_processes
several_processes.BEGIN_ALONE = False
several_processes.RANGE_SIZE, executor = 256, process_pool.start_executor
def noted(*arguments):
    print("process pool", file=sys.stderr)
    return executor(*arguments)
process_pool.start_executor = noted
sys.platform = os.environ.get("PLATFORM", sys.platform)
main(sys.argv[1:], prog_name="kseg")
"""


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """A copy of a partition of several segments, with nothing else in its folder."""
    copied = tmp_path / "partition"
    shutil.copytree(SEGMENTS, copied, ignore=shutil.ignore_patterns("ORIGIN", "expect.jsonl"))
    return copied


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        "--version",
        "dump --deep {}",
        "dump --format jsonl -o {}.jsonl {}",
        "dump --follow --limit 1 {}",
        "validate --jobs 1 {}",
        "validate --jobs 1 --cache {}.state {}",
        "stats --jobs 1 {}",
        "convert any-to-v2 --jobs 1 {} {}.converted",
        "convert any-to-v2 --jobs 1 {} {}.new",
        "repair {} {}.repaired",
        "repair {} {}.new",
        "recovery {}",
        "diff {} {}.old",
        "transactions {}",
        "completion bash",
    ],
)
def test_commands_run_without_posix_modules(command: str, partition: Path) -> None:
    """An import of fcntl, or a rename of an open file, would end a command on Windows."""
    shutil.copytree(partition, f"{partition}.old")
    run = _without_posix(*command.format(*[partition] * 2).split())
    lost = "recovery" in command  # the segments of an old log without a checkpoint
    noted = "3 files unchanged since" if "--cache" in command else "38 rows" if "-o" in command.split() else ""
    assert run.returncode == lost, run.stderr
    assert noted in run.stderr
    assert len(run.stderr.splitlines()) == bool(noted)


@pytest.mark.slow
@pytest.mark.parametrize(
    "command", ["validate --jobs 2 {}", "stats --jobs 2 {}", "convert any-to-v2 --jobs 2 {} {}.new"]
)
def test_processes_start_without_fork(command: str, partition: Path) -> None:
    """Windows and macOS start each process from scratch: its arguments must survive pickling."""
    run = _without_posix(*command.format(*[partition] * 2).split())
    assert (run.returncode, run.stderr) == (0, "process pool\n")


def _without_posix(*arguments: str, platform: str = sys.platform) -> subprocess.CompletedProcess[str]:
    """Run kseg in a Python with the modules of Windows only; ``platform`` is its sys.platform."""
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_POSIX, *arguments],
        env={**os.environ, "PLATFORM": platform},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_damage_that_was_just_written_is_found_without_pread(tmp_path: Path) -> None:
    """Damaged bytes of a recently written file are read again, and Windows lacks pread."""
    data = bytearray(SEGMENT.read_bytes())
    data[80] ^= 1
    (tmp_path / SEGMENT.name).write_bytes(data)
    run = _without_posix("validate", "--jobs", "1", str(tmp_path / SEGMENT.name))
    assert (run.returncode, run.stderr) == (1, "")
    assert "crc-mismatch" in run.stdout


@pytest.mark.parametrize("platform", ["win32", "darwin"])
def test_a_lock_that_cannot_be_read_is_one_line(tmp_path: Path, platform: str) -> None:
    """Without the lock, findings about the checkpoints of a running broker need a warning."""
    shutil.copytree(SEGMENT.parent, tmp_path / "topic-0")
    (tmp_path / ".lock").touch()
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        (tmp_path / name).write_text("0\n1\ntopic 0 1\n", encoding="utf-8")
    run = _without_posix("validate", "--jobs", "1", str(tmp_path), platform=platform)
    assert run.returncode == 0
    lines = [line for line in run.stderr.splitlines() if line.startswith("kseg: warning:")]
    assert len(lines) == 1, run.stderr
    assert "a running broker on Linux only" in lines[0]


@pytest.mark.parametrize("command", ["validate --spark local[1] {}", "sql --recipe gaps --spark local[1] {}"])
def test_spark_on_windows_is_one_line(command: str, partition: Path) -> None:
    """Spark itself would fail with pages of text."""
    run = _without_posix(*command.format(partition).split(), platform="win32")
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr == "kseg: kseg does not run Spark on Windows: use Linux, macOS or WSL\n"


def test_each_command_has_a_man_page() -> None:
    """A command without a page, and a page of a removed command, are found; `make docs` writes the pages."""
    assert {path.name for path in man_pages.FOLDER.glob("*.1")} == {"kseg.1", *(f"kseg-{name}.1" for name in COMMANDS)}


def test_the_wheel_holds_the_man_pages() -> None:
    """`man kseg` works after an install only if the pages are data files of the wheel."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["tool"]["setuptools"]["data-files"]["share/man/man1"] == ["packaging/man/*.1"]


def test_the_development_environment_is_pinned_by_hashes() -> None:
    """`make locked` installs these files and no others; the list names no index, so it works with each mirror."""
    text = (ROOT / "packaging" / "development.txt").read_text(encoding="utf-8")
    entry = re.compile(
        r"([a-z0-9][a-z0-9._-]*)(?:\[[a-z0-9,-]+\])?==\S+(?: ; [^\n]+?)?((?: \\\n    --hash=sha256:[0-9a-f]{64})+)\n"
    )
    entries = entry.findall(text)
    assert entry.sub("", text) == ""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    groups = project["dependency-groups"]
    unpinned = ("spark", "musl")  # too large for each environment
    wanted = [
        *project["project"]["dependencies"],
        *(one for name in groups if name not in unpinned for one in groups[name]),
    ]
    names = {re.split(r"[^A-Za-z0-9._-]", one)[0].lower() for one in wanted}
    assert names - {name for name, _ in entries} == set()


@pytest.mark.parametrize("recipe", ["conda/meta.yaml", "homebrew/kseg.rb"])
def test_a_recipe_is_filled_for_a_release(recipe: str, tmp_path: Path) -> None:
    """A release needs no edit by hand: version, address, checksum and dependencies are those of the sdist."""
    sdist = tmp_path / "kseg-1.2.3.tar.gz"
    sdist.write_bytes(b"an sdist")
    names = runpy.run_path(str(ROOT / "packaging" / "fill_recipes.py"))
    template = (ROOT / "packaging" / recipe).read_text(encoding="utf-8")
    address = "https://example.com/owner/kseg/releases/download/v1.2.3/kseg-1.2.3.tar.gz"
    text = names["filled"](template, sdist, address, 'resource "click" do')
    assert "https://example.com/owner/kseg/releases/download/v1.2.3/kseg-1.2.3.tar.gz" in text
    assert hashlib.sha256(b"an sdist").hexdigest() in text
    assert re.findall(r"@[A-Z0-9]+@|example.invalid", text) == []
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert ('resource "click" do' in text) == recipe.startswith("homebrew")
    if recipe.startswith("conda"):
        required = {line.partition(">")[0] for line in project["dependencies"]}
        assert {name for name in required if f"    - {name} >" in text} == required - {"isal"}
        assert f"kseg = {project['scripts']['kseg']}" in text
        assert text.endswith("recipe-maintainers:\n    - owner\n")


def _environment(home: Path) -> dict[str, str]:
    """Return this environment with ``home`` as home folder."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "ZDOTDIR", "_KSEG"))}
    return {**kept, "HOME": str(home)}


def _kseg(home: Path, *arguments: str, **environment: str) -> str:
    """Run kseg with ``home`` as home folder; returns stdout."""
    command = [sys.executable, "-c", "from kseg.cli.main import main; main(prog_name='kseg')", *arguments]
    run = subprocess.run(
        command, env={**_environment(home), **environment}, capture_output=True, text=True, timeout=300, check=True
    )
    return run.stdout


def _program(folder: Path) -> str:
    """Write a program ``kseg`` of this Python into ``folder``; returns a PATH that finds it first."""
    folder.mkdir()
    program = folder / "kseg"
    program.write_text(f"#!/bin/sh\nPYTHONPATH='{ROOT}' exec '{sys.executable}' -m kseg \"$@\"\n", encoding="utf-8")
    program.chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


@pytest.mark.parametrize(
    ("shell", "ask"),
    [
        (
            "bash",
            't() { COMPREPLY=(); COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _kseg_completion kseg; echo ${COMPREPLY[*]}; }\n'
            ". ~/.bashrc; t kseg vali; t kseg validate --format ju",
        ),
        ("fish", "complete -C 'kseg vali' | cut -f 1; complete -C 'kseg validate --format ju'"),
    ],
)
def test_installed_completion_works_in_the_shell(tmp_path: Path, shell: str, ask: str) -> None:
    """One command installs it, in a home folder of any name; the shell itself completes commands and values of options."""
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    home = tmp_path / "the \"$home\" of 'me'"
    home.mkdir()
    _kseg(home, "completion", shell, "--install")
    environment = {**_environment(home), "PATH": _program(tmp_path / "bin"), "TERM": "dumb"}
    requested = subprocess.run(
        [program, "-c", ask], env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert requested.stdout.split() == ["validate", "junit"], requested.stderr


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_installed_completion_works_in_zsh(tmp_path: Path) -> None:
    """zsh completes only in a terminal: its own pseudo-terminal types a word and Tab, and the line shows the rest."""
    home = tmp_path / "home"
    home.mkdir()
    _kseg(home, "completion", "zsh", "--install")
    typed = {
        "kseg vali": "validate", "--format ju": "junit", "--rule crc-mismatch=ig": "crc-mismatch=ignore",
        "--baseline ~/fi": "findings.jsonl",
    }  # fmt: skip
    (home / "findings.jsonl").touch()
    ask = [f"zpty -n -w shell $' {word}\\t'; zpty -r -m shell out '*{found}*'" for word, found in typed.items()]
    script = "\n".join(["zmodload zsh/zpty; zpty shell zsh -i", *ask, "print complete"])
    environment = {**_environment(home), "PATH": _program(tmp_path / "bin"), "TERM": "dumb"}
    done = subprocess.run(
        ["zsh", "-c", script], env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.stdout == "complete\n"


@pytest.mark.slow
def test_the_shell_completes_the_values_of_options(tmp_path: Path) -> None:
    """Names that nobody types from memory: rules and their severities, conversions, columns, formats, fields, recipes."""
    for words, expected in {
        "validate --rule crc-m": "crc-mismatch",
        "validate --rule crc-mismatch=i": "crc-mismatch=ignore crc-mismatch=info",
        "validate --report ju": "junit=",
        "rules K20": "K201 K202 K203 K204 K205 K206 K207 K208 K209",
        "convert v0-to-v2": "v0-to-v2",
        "dump --columns offset,val": "offset,value",
        "stats --columns path,lost_": "path,lost_bytes",
        "dump --format js": "jsonl",
        "dump --key-as int": "int16 int32 int64",
        "dump --decode __consumer": "__consumer_offsets",
        "dump --since yes": "yesterday",
        "grep --in header-": "header-key header-value",
        "grep --partitioner mur": "murmur2",
        "sql --recipe top-k": "top-keys",
        "transactions --state hang": "hanging",
        "completion fi": "fish",
    }.items():
        request = {
            "_KSEG_COMPLETE": "bash_complete",
            "COMP_WORDS": f"kseg {words}",
            "COMP_CWORD": str(len(words.split())),
        }
        found = [line.removeprefix("plain,") for line in _kseg(tmp_path, **request).splitlines()]
        assert set(expected.split()) <= set(found), words
        assert all(one.startswith(words.split()[-1]) for one in found), words


def test_installing_the_completion_twice_adds_one_line(tmp_path: Path) -> None:
    """The start file of the shell belongs to the user: its content stays, and it does not grow with each install."""
    start = tmp_path / ".zshrc"
    start.write_text("alias k=kseg", encoding="utf-8")
    for _ in range(2):
        _kseg(tmp_path, "completion", "--install", SHELL="/usr/bin/zsh")
    lines = start.read_text(encoding="utf-8").splitlines()
    assert lines[0] == "alias k=kseg"
    assert len(lines) == 2
    assert "completion.zsh" in lines[1]


def test_paths_are_completed_by_the_shell(tmp_path: Path) -> None:
    """Most commands take segments: without this, Tab after `kseg validate` would do nothing."""
    requested = {"_KSEG_COMPLETE": "bash_complete", "COMP_WORDS": "kseg validate 00", "COMP_CWORD": "2"}
    assert _kseg(tmp_path, **requested).split() == ["file,00"]
