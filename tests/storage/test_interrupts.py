"""Signals while a file is created, while a folder is renamed, and while an earlier signal is handled."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from kseg.format.storage import atomic_write, interrupts
from kseg.format.storage.interrupts import Interrupted

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")


@pytest.fixture(autouse=True)
def _handlers_kept() -> Iterator[None]:
    before = interrupts.handlers()
    yield
    interrupts.restore(before)


@pytest.mark.parametrize("number", interrupts.ENDING)
def test_a_delayed_signal_comes_after_the_block(number: int) -> None:
    """It must not come between the creation of a file and its registration, and must not get lost."""
    done = []

    def block() -> None:
        with interrupts.raised():
            with interrupts.delayed():
                signal.raise_signal(number)
                done.append("registered")
            done.append("continued")

    with pytest.raises(Interrupted) as raised:
        block()
    assert done == ["registered"]
    assert raised.value.exit_code == 128 + number


def test_a_signal_during_the_clean_up_does_nothing_and_a_later_one_counts() -> None:
    """Code of others can catch the first one, such as a library that ignores all exceptions: the next one must end it."""
    done = []

    def clean_up() -> None:
        signal.raise_signal(signal.SIGTERM)
        done.append("cleaned")

    def block() -> None:
        with interrupts.raised():
            try:
                signal.raise_signal(signal.SIGTERM)
            except KeyboardInterrupt:
                try:
                    raise ValueError
                except ValueError:
                    clean_up()
            done.append("caught")
            signal.raise_signal(signal.SIGINT)
            done.append("continued")

    with pytest.raises(Interrupted, match="interrupted"):
        block()
    assert done == ["cleaned", "caught"]


def test_generators_end_before_the_block() -> None:
    """One that waits, with worker processes or a temporary file, is held by the frames of the exception."""
    done = []

    def rows() -> Iterator[int]:
        try:
            yield from range(9)
        finally:
            signal.raise_signal(signal.SIGTERM)  # no effect during the clean-up
            done.append("ended")

    def use() -> None:
        numbers = rows()
        next(numbers)
        signal.raise_signal(signal.SIGTERM)

    def block() -> None:
        with interrupts.raised():
            use()

    with pytest.raises(Interrupted) as raised:
        block()
    assert done == ["ended"]
    assert raised.value.exit_code == 143


def test_an_ignored_signal_stays_ignored() -> None:
    """nohup starts a command with SIGHUP ignored."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with interrupts.raised():
        signal.raise_signal(signal.SIGHUP)
        with interrupts.delayed():
            signal.raise_signal(signal.SIGHUP)
    assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN


def test_a_signal_while_a_folder_is_replaced_leaves_no_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between its two renames the older folder has a hidden name."""
    target = tmp_path / "orders-0"
    target.mkdir()
    (target / "old").touch()
    rename = os.rename

    def interrupted_rename(source: Path, destination: Path) -> None:
        rename(source, destination)
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(os, "rename", interrupted_rename)

    def replace() -> None:
        with interrupts.raised(), atomic_write.whole_folder(target, replace=True) as folder:
            (folder / "new").touch()

    with pytest.raises(Interrupted, match="SIGTERM"):
        replace()
    assert [path.relative_to(tmp_path).as_posix() for path in sorted(tmp_path.rglob("*"))] == [
        "orders-0",
        "orders-0/new",
    ]
