"""The progress bar and the results share a terminal."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kseg.cli import messages, validate_command
from tests.support.cli import invoke
from tests.support.fixtures import SEGMENTS

pytest.importorskip("pty", reason="a pseudo-terminal needs POSIX")

from tests.support.terminal import run_in_terminal, shown_lines

BAR = "━"


@pytest.mark.slow
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


def test_the_bytes_of_all_files_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rate and time left are right only if each byte of the total is reported once: logs, indexes and other side files."""
    counted: list[int] = []
    totals: list[int | None] = []

    @contextmanager
    def bar(total: int | None) -> Iterator[Callable[[int], None]]:
        totals.append(total)
        yield counted.append

    monkeypatch.setattr(validate_command, "progress_bar", bar)
    monkeypatch.setattr(messages, "_is_shown", lambda: True)
    folder = SEGMENTS / "4.3.0-v2-none-segments"
    for jobs in ("1", "2"):
        invoke("validate", "--jobs", jobs, folder)
    names = [path for path in folder.iterdir() if path.suffix in (".log", ".index", ".timeindex", ".snapshot")]
    assert totals[0] == totals[1] == sum(counted) // 2
    assert sum(path.stat().st_size for path in names) <= (totals[0] or 0)
