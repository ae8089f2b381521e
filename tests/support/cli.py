"""Run the command line, on fixtures."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import chdir
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from kseg.cli.main import main
from kseg.format.storage import remote_files

ROOT = Path(__file__).parents[2]
SEGMENTS = ROOT / "fixtures" / "segments"
DAMAGED = ROOT / "fixtures" / "findings" / "crc-mismatch"
PLAIN = SEGMENTS / "4.3.0-v2-none" / "00000000000000000000.log"
MIXED = SEGMENTS / "2.8.2-v0v1v2-mixed" / "00000000000000000000.log"


def kseg(*arguments: object, cwd: Path | None = None, stdin: bytes = b"") -> subprocess.CompletedProcess[str]:
    run = subprocess.run(
        [sys.executable, "-m", "kseg", *map(str, arguments)], input=stdin, capture_output=True, cwd=cwd, check=False
    )
    return subprocess.CompletedProcess(run.args, run.returncode, run.stdout.decode(), run.stderr.decode())


def invoke(*arguments: object) -> Result:
    """Run the command line in this process, without the 0.1 s of a new one."""
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def kseg_here(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command line like ``kseg``, in this process: it has imported clients of stores, DuckDB and pyarrow already."""
    remote_files.forget()
    with chdir(cwd or "."):
        done = invoke(*arguments)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return subprocess.CompletedProcess([*map(str, arguments)], done.exit_code, done.stdout, done.stderr)


def rows_of(*arguments: object, code: int | None = 0) -> list[dict[str, Any]]:
    """Run a command line with JSON Lines, check its exit code, which None leaves open, and return its rows."""
    done = kseg_here(*arguments, "--format", "jsonl")
    assert done.returncode == code or code is None, done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def carry_out(commands: list[str], home: Path, *, cwd: Path | None = None) -> None:
    """Run the commands that kseg printed in a shell; each begins with `kseg`, or does without it.

    The shell reads the words of a command of kseg, which runs in this process. Losses and findings are exit code 1; a
    partition folder without a segment has nothing to validate.
    """
    place = cwd or home
    for command in commands:
        is_kseg = command.startswith("kseg ")
        assert not is_kseg or " && " not in command
        script = 'kseg() { printf "%s\\0" "$@"; }; ' + command if is_kseg else command
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=place,
            capture_output=True,
            encoding="utf-8",
            errors="surrogateescape",
            check=False,
        )
        if is_kseg and done.returncode == 0:
            done = kseg_here(*done.stdout.split("\0")[:-1], cwd=place)
        expected = (0, 1) if is_kseg else (0,)
        nothing = command.startswith("kseg validate ") and "no segment found" in done.stderr
        assert done.returncode in expected or nothing, f"{command}: {done.stderr}"
