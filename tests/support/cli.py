"""Run the command line in this process, on fixtures."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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
