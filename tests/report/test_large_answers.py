"""300 partitions, 30 of them damaged: the answer comes first, fits on a screen, and is one number everywhere."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import fleet
from tests.support.cli import kseg_here as kseg
from tools.docs.terminal import Terminal

pytestmark = pytest.mark.slow

PARTITIONS, DAMAGED = 300, 30
COMMANDS = ("validate", "recovery", "transactions", "stats", "diff", "lag", "doctor")
#: A number that is cut. Names of segments lose only zeros.
_RANGE = re.compile(r"\d+…|…\d(?!\d+\.[a-z])")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two log dirs: ``broker`` is damaged, ``other`` is not."""
    home = tmp_path_factory.mktemp("fleet")
    (home / "damaged.json").write_text(json.dumps(fleet.make_many(home / "broker", PARTITIONS, DAMAGED)))
    fleet.make_many(home / "other", PARTITIONS, 0)
    offsets = fleet.SEGMENTS / "4.3.0-v2-none-internal-consumer-offsets"
    ignored = shutil.ignore_patterns("ORIGIN", "*.json*")
    shutil.copytree(offsets, home / "broker" / "__consumer_offsets-3", ignore=ignored)
    return home


@pytest.fixture(scope="module")
def screens(home: Path) -> Iterator[dict[str, str]]:
    """What each command prints on a terminal of 80 columns."""
    with Terminal() as terminal:
        others = {"diff": " other"}
        yield {
            name: terminal.run(f"kseg {name} broker{others.get(name, '')}", home, width=80).text for name in COMMANDS
        }


def test_an_answer_fits_on_a_screen(screens: dict[str, str]) -> None:
    """At most 60 lines without -v, no line wider than the terminal, and no number cut."""
    for name, screen in screens.items():
        lines = screen.splitlines()
        assert len(lines) <= 60, f"{name}: {len(lines)} lines\n{screen}"
        wide = [line for line in lines if len(line) > 80 and " " in line.strip()]
        assert not wide, f"{name}: {wide}"
        assert not _RANGE.search(screen), name
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
    """Partitions that need attention are the damaged ones, in each format of validate."""
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
    assert answer in kseg("validate", "--format", "markdown", "broker", cwd=home).stdout
    html = kseg("validate", "--format", "html", "broker", cwd=home).stdout
    assert f"{DAMAGED} of {PARTITIONS + 1} partitions need attention" in html
    metrics = kseg("validate", "--format", "prometheus", "broker", cwd=home).stdout
    for kind, count in counts.items():
        assert f'kseg_partitions_needing_attention{{path="broker",consequence="{kind}"}} {count}\n' in metrics


def test_all_rows_are_there_with_v(home: Path) -> None:
    """Folding hides nothing: -v and JSON Lines name each damaged partition."""
    damaged = json.loads((home / "damaged.json").read_text())
    for options in (("-v",), ("--format", "jsonl")):
        shown = kseg("validate", *options, "broker", cwd=home).stdout
        assert all(f"broker/{name}/" in shown for names in damaged.values() for name in names)
