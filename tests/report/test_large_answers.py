"""300 partitions, 30 of them damaged: the answer comes first, fits on a screen, and is one number everywhere."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import fleet
from tests.support.cli import kseg_here as kseg
from tools.docs.terminal import Terminal

pytestmark = pytest.mark.slow

PARTITIONS, DAMAGED = 300, 30
COMMANDS = ("validate", "recovery", "transactions", "doctor")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the damaged log directory ``broker``."""
    home = tmp_path_factory.mktemp("fleet")
    (home / "damaged.json").write_text(json.dumps(fleet.make_many(home / "broker", PARTITIONS, DAMAGED)))
    return home


@pytest.fixture(scope="module")
def screens(home: Path) -> Iterator[dict[str, str]]:
    """What each command prints on a terminal of 80 columns."""
    with Terminal() as terminal:
        yield {name: terminal.run(f"kseg {name} broker", home, width=80).text for name in COMMANDS}


def test_an_answer_fits_on_a_screen(screens: dict[str, str]) -> None:
    """All commands: tests/report/test_mixed_damage.py. The answer of doctor needs no scrolling."""
    assert len(screens["doctor"].splitlines()) <= 24


def test_the_worst_comes_first(screens: dict[str, str], home: Path) -> None:
    """The partition that stops the broker is in the first ten lines and in the last sentence."""
    damaged = json.loads((home / "damaged.json").read_text())
    (stopping,) = damaged["checkpoint"]
    for name in ("validate", "recovery"):
        lines = screens[name].splitlines()
        assert stopping in "\n".join(lines[:10]), name
        assert f"broker/{stopping}/leader-epoch-checkpoint" in " ".join(" ".join(lines[-6:]).split()), name


def test_equal_hanging_transactions_are_one_row(screens: dict[str, str]) -> None:
    """The oldest first, and named in the last sentence."""
    lines = screens["transactions"].splitlines()
    assert re.match(r" broker/payments-\d+ and \d+ more", lines[4])
    assert "the oldest hangs in broker/payments-" in " ".join(screens["transactions"].split())
    assert len(lines) <= 40


def test_every_report_has_the_same_number(home: Path, screens: dict[str, str]) -> None:
    """Partitions that need attention are the damaged ones. The formats: tests/report/test_mixed_damage.py."""
    damaged = json.loads((home / "damaged.json").read_text())
    # Checkpoints name the records that the torn logs have lost.
    counts = {"stops the broker": 1, "loses records": len(damaged["flipped"]) + len(damaged["torn"])}
    counts["needs attention"] = len(damaged["index"])
    parts = ", ".join(f"{kind} {count}" for kind, count in counts.items())
    answer = f"partitions that need attention: {DAMAGED} ({parts})"
    assert " ".join(screens["validate"].split()).startswith(answer)
    assert answer in " ".join(screens["doctor"].split())
    # The start is another question, with words of its own: an index loses nothing there.
    start = " ".join(screens["recovery"].split()).partition(";")[0]
    assert re.match(r"partitions that a start would harm: \d+ \(stops the broker 1, loses records \d+", start)


def test_all_rows_are_there_with_v(home: Path) -> None:
    """Folding hides nothing: -v and JSON Lines name each damaged partition."""
    damaged = json.loads((home / "damaged.json").read_text())
    reports = [word for name in ("jsonl", "html") for word in ("--report", f"{name}={home / name}")]
    table = kseg("validate", "-v", *reports, "broker", cwd=home).stdout
    assert f"{DAMAGED} of {PARTITIONS} partitions need attention" in (home / "html").read_text("utf-8")
    for shown in (table, (home / "jsonl").read_text("utf-8")):
        assert all(f"broker/{name}/" in shown for names in damaged.values() for name in names)
