"""The rate limit and the warnings of one library call do not change another one."""

from __future__ import annotations

import os
import threading
from collections import Counter, defaultdict
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

import kseg
from kseg.format.storage import file_access
from kseg.format.storage.source import open_source

SEGMENT = Path(__file__).parents[2] / "fixtures" / "segments" / "4.3.0-v2-none" / "00000000000000000000.log"


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """The last pause of each thread in seconds. The clock is stopped."""
    seconds: Counter[int] = Counter()

    def sleep(pause: float) -> None:
        seconds[threading.get_ident()] = pause  # type: ignore[assignment]  # pauses grow, because the clock is stopped

    monkeypatch.setattr(file_access, "time", SimpleNamespace(monotonic=lambda: 0.0, sleep=sleep))
    return seconds


def test_limits_and_warnings_of_two_threads_do_not_mix(tmp_path: Path, slept: Counter[int]) -> None:
    """Two threads validate at the same time, each with its own limit and warnings; a third has none."""
    folder = tmp_path / "orders-0"
    folder.mkdir()
    (folder / SEGMENT.name).write_bytes(SEGMENT.read_bytes())
    if hasattr(os, "mkfifo"):
        os.mkfifo(folder / "00000000000000000009.log")
    seconds: dict[float | None, float] = {}
    lines: dict[float | None, list[str]] = defaultdict(list)
    together = threading.Barrier(3)

    def work(rate: float | None) -> None:
        with kseg.file_access(max_rate=rate, warn=lines[rate].append if rate else None):
            together.wait()
            kseg.validate(folder)
            together.wait()
        seconds[rate] = slept[threading.get_ident()]

    threads = [threading.Thread(target=work, args=(rate,)) for rate in (1000.0, 4000.0, None)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seconds[1000.0] >= SEGMENT.stat().st_size / 1000
    assert seconds[1000.0] == pytest.approx(4 * seconds[4000.0])
    assert seconds[None] == 0
    if hasattr(os, "mkfifo"):
        assert "1 special file" in lines[1000.0][0]
        assert lines[1000.0] == lines[4000.0]


def test_an_open_file_keeps_its_limit(slept: Counter[int]) -> None:
    """Iterations that are interleaved in one thread read at the limit with which their file was opened."""
    here = threading.get_ident()
    with kseg.file_access(max_rate=1000):
        limited = open_source(str(SEGMENT))
    unlimited = open_source(str(SEGMENT))
    with limited, unlimited:
        unlimited.readinto(memoryview(bytearray(100)))
        assert slept[here] == 0
        limited.readinto(memoryview(bytearray(100)))
        assert slept[here] == pytest.approx(0.1)


def test_the_limit_ends_with_its_block() -> None:
    """After the block the limit and the warnings from before apply again, also after an exception."""
    before = file_access.current()
    with kseg.file_access(max_rate=5, warn=print):
        with suppress(ZeroDivisionError), kseg.file_access(max_rate=7):
            assert (file_access.current().limit.rate, file_access.current().warn) == (7, print)
            raise ZeroDivisionError
        assert file_access.current().limit.rate == 5
    assert file_access.current() is before
