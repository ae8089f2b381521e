"""The benchmark's measurement of processes."""

from __future__ import annotations

import sys

import pytest

from bench import codec_readers
from bench.measure import BenchError, Command, Run, alternate, run


def _python(name: str, program: str) -> Command:
    return Command(name, (sys.executable, "-c", program))


def test_the_peak_is_that_of_the_command() -> None:
    """A process inherits the peak of the process that starts it: a benchmark with much memory measured itself."""
    held = b"x" * (300 << 20)
    done = run(_python("small", "print(1)"))
    assert 1 << 20 < done.peak < len(held) / 2
    assert done.output == "1\n"


def test_a_contender_that_fails_drops_out_alone() -> None:
    """The figures of the others are kept, and the reason is the first line of the error."""

    def check(command: Command, done: Run) -> None:
        if done.output == "less\n":
            raise BenchError(f"{command.name} read less")

    commands = [
        _python("works", "print(1)"),
        _python("fails", "import sys; sys.exit('first\\nlast')"),
        _python("cheats", "print('less')"),
    ]
    runs, failed = alternate(commands, 2, 60, check)
    assert {name: len(done) for name, done in runs.items()} == {"works": 2}
    assert {name: why.splitlines()[0] for name, why in failed.items()} == {
        "fails": "fails ended with 1: last",
        "cheats": "cheats read less",
    }


@pytest.mark.parametrize("codec", codec_readers.READERS)
@pytest.mark.parametrize("size", [1 << 10, 200_000])
def test_readers_of_a_codec_are_compared_for_the_same_work(codec: int, size: int) -> None:
    """The page of dependencies gives the reason for a library in figures: each reader must read the whole payload."""
    found = codec_readers.measure(codec, size, rounds=1)
    assert all(len(seconds) == 1 for seconds in found.values())
    assert list(found) == list(codec_readers.READERS[codec])
