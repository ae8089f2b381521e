"""The progress bar and the results share a terminal."""

import shutil
from pathlib import Path

import pytest

from tests.support.fixtures import SEGMENTS

pytest.importorskip("pty", reason="a pseudo-terminal needs POSIX")

from tests.support.terminal import run_in_terminal, shown_lines

BAR = "━"


def test_the_bar_does_not_write_into_results(tmp_path: Path) -> None:
    """A result line on a terminal was overwritten by the bar, or began in the middle of it."""
    for n in range(6):
        folder = tmp_path / f"orders-{n}"
        folder.mkdir()
        shutil.copy(SEGMENTS / "4.3.0-v2-none-live" / "00000000000000000000.log", folder)
    # Slow enough for the bar, which appears after a second.
    total = sum(file.stat().st_size for file in tmp_path.glob("*/*"))
    bars = results = 0
    for screen in run_in_terminal("validate", tmp_path, "--jobs", "1", "--max-rate", str(total // 6), columns=160):
        lines = shown_lines(screen)
        bars = max(bars, sum(BAR in line for line in lines))
        results = sum("orders-" in line for line in lines)
        assert not any(BAR in line and "orders-" in line for line in lines), lines
    assert bars == 1, "the bar was drawn, and once"
    assert not any(BAR in line for line in shown_lines(screen)), "the bar is removed at the end"
    assert results == 6
