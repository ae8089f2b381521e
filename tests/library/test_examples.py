"""The examples of README's chapter on the library run as they are printed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.fixtures import SEGMENTS

ROOT = SEGMENTS.parents[1]
CHAPTER = (ROOT / "README.md").read_text(encoding="utf-8").split("\n## As a library")[1].split("\n## ")[0]
EXAMPLES = re.findall(r"```python\n(.*?)```", CHAPTER, re.DOTALL)


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_an_example_runs(number: int, tmp_path: Path) -> None:
    """A newcomer copies these lines: each must run alone and print something."""
    example = EXAMPLES[number]
    if "to_arrow" in example:
        pytest.importorskip("pyarrow")
    shutil.copytree(SEGMENTS / "4.3.0-v2-none-segments", tmp_path / "kafka-logs" / "orders-0")
    shutil.copy(ROOT / "fixtures" / "findings" / "crc-mismatch" / "00000000000000000000.log", tmp_path / "damaged.log")
    for name, suffix in (("client.bin", "requests"), ("broker.bin", "responses")):
        shutil.copy(ROOT / "fixtures" / "streams" / "4.3.0-java" / f"06.{suffix}", tmp_path / name)
    assert len(example.strip().splitlines()) <= 10
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", example],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout or "assert" in example
