"""The examples of the documentation's page on the library run as they are printed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.fixtures import SEGMENTS
from tools.docs import sandbox

ROOT = SEGMENTS.parents[1]
PAGE = (ROOT / "docs" / "how-to" / "use-the-library.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_an_example_runs(number: int, tmp_path: Path) -> None:
    """A newcomer copies these lines: each must run alone and print something."""
    example = EXAMPLES[number]
    for library in ("pyarrow", "polars", "duckdb"):
        if "kseg.scan(" in example and library in example:
            pytest.importorskip(library)
    if "Schemas" in example:
        pytest.importorskip("fastavro")
    sandbox.make(tmp_path)
    assert len(example.strip().splitlines()) <= 10
    run = ["-c", example]
    if "def test_" in example:
        (tmp_path / "test_backup.py").write_text(example, encoding="utf-8")
        run = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "test_backup.py"]
    done = subprocess.run(
        [sys.executable, "-W", "error", *run],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout or "assert" in example
