"""What users install: man pages, completion, and a start without modules that only POSIX systems have."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from kseg.cli.main import COMMANDS
from tools import man_pages

ROOT = Path(__file__).parents[1]
SEGMENT = ROOT / "fixtures" / "segments" / "4.3.0-v2-none-headers" / "00000000000000000000.log"

# Python on Windows has none of these modules and names, and opens no folder.
WITHOUT_POSIX = """
import os, signal, sys, multiprocessing
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
from kseg.cli.main import main
main(sys.argv[1:], prog_name="kseg")
"""


@pytest.mark.parametrize(
    "arguments",
    [
        ["--version"],
        ["dump", "--deep", str(SEGMENT)],
        ["dump", "--format", "jsonl", "-o", "{tmp}/out.jsonl", str(SEGMENT)],
        ["validate", "--jobs", "1", str(SEGMENT.parent)],
        ["validate", "--state", "{tmp}/state", "--jobs", "1", str(SEGMENT.parent)],
        ["stats", str(SEGMENT)],
        ["convert", "any-to-v2", str(SEGMENT), "{tmp}/converted.log"],
        ["repair", str(SEGMENT), "{tmp}/repaired.log"],
        ["repair", str(SEGMENT.parent), "{tmp}/repaired"],
        ["recovery", str(SEGMENT.parent)],
        ["transactions", str(SEGMENT.parent)],
    ],
    ids=lambda arguments: " ".join(arguments[:2]),
)
def test_commands_run_without_posix_modules(arguments: list[str], tmp_path: Path) -> None:
    """On Windows an import of fcntl, or a folder that is opened, would end every command with a traceback."""
    filled = [one.replace("{tmp}", str(tmp_path)) for one in arguments]
    run = subprocess.run(
        [sys.executable, "-c", WITHOUT_POSIX, *filled], capture_output=True, text=True, timeout=120, check=False
    )
    assert (run.returncode, "internal error" in run.stderr) == (0, False), run.stderr


def test_each_command_has_a_man_page() -> None:
    """A command without a page, and a page of a removed command, are found; `make docs` writes the pages."""
    assert {path.name for path in man_pages.FOLDER.glob("*.1")} == {"kseg.1", *(f"kseg-{name}.1" for name in COMMANDS)}


def test_the_wheel_holds_the_man_pages() -> None:
    """`man kseg` works after an install only if the pages are data files of the wheel."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["tool"]["setuptools"]["data-files"]["share/man/man1"] == ["packaging/man/*.1"]


def _environment(home: Path) -> dict[str, str]:
    """Return this environment with ``home`` as home folder."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "ZDOTDIR", "_KSEG"))}
    return {**kept, "HOME": str(home)}


def _kseg(home: Path, *arguments: str, **environment: str) -> str:
    """Run kseg with ``home`` as home folder; returns stdout."""
    command = [sys.executable, "-c", "from kseg.cli.main import main; main(prog_name='kseg')", *arguments]
    run = subprocess.run(
        command, env={**_environment(home), **environment}, capture_output=True, text=True, timeout=60, check=True
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
    """One command installs it, and the shell itself completes commands and values of options."""
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    home = tmp_path / "home"
    home.mkdir()
    _kseg(home, "completion", shell, "--install")
    environment = {**_environment(home), "PATH": _program(tmp_path / "bin"), "TERM": "dumb"}
    asked = subprocess.run(
        [program, "-c", ask], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert asked.stdout.split() == ["validate", "junit"], asked.stderr


def test_installing_the_completion_twice_adds_one_line(tmp_path: Path) -> None:
    """The start file of the shell is the user's: all of it stays, and it does not grow with each install."""
    start = tmp_path / ".zshrc"
    start.write_text("alias k=kseg", encoding="utf-8")
    for _ in range(2):
        _kseg(tmp_path, "completion", "--install", SHELL="/usr/bin/zsh")
    lines = start.read_text(encoding="utf-8").splitlines()
    assert lines[0] == "alias k=kseg"
    assert len(lines) == 2
    assert "completion.zsh" in lines[1]


def test_paths_are_completed_by_the_shell(tmp_path: Path) -> None:
    """Segments are what most commands take: without this, Tab after `kseg validate` would do nothing."""
    asked = {"_KSEG_COMPLETE": "bash_complete", "COMP_WORDS": "kseg validate 00", "COMP_CWORD": "2"}
    assert _kseg(tmp_path, **asked).split() == ["file,00"]
