"""Log directories of 300 partitions with damage of all rules: each report fits, and all have the same numbers."""

from __future__ import annotations

import itertools
import json
import random
import re
import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.support import fleet
from tests.support.cli import kseg_here as kseg
from tests.support.commits import commit_value, write_commits
from tools.docs.terminal import Terminal

pytestmark = pytest.mark.slow

FINDINGS = fleet.SEGMENTS.parent / "findings"
PARTITIONS, DAMAGED, SEEDS = 300, 30, (1, 2, 3)
GROUPS = ("billing", "search-index", "a-group-with-a-long-name-for-the-warehouse")
#: A command, and text that its first ten lines on a terminal of 80 columns have. One process needs half of two's time here.
ANSWERS = {
    "validate --jobs 1 logs": "partitions that need attention",
    "recovery logs": "partitions that a start would harm",
    "doctor --jobs 1 logs": "partitions that need attention",
    "transactions logs": "hanging transactions in",
    "stats logs": "segments in ",
    "diff logs ../fine": "the first:",
    "grep zzzz logs": "no match in",
    "repair --dry-run logs": "ranges lost",
    "lag logs": "3 groups, 900 commits",
}
#: A number that is cut. Names of segments lose only zeros, and lists end with an ellipsis.
_CUT = re.compile(r"\d+…|…\d(?!\d+[.-])")


def place_findings(log_dir: Path, seed: int) -> None:
    """Give some partitions of a log directory the files of fixtures of rules."""
    chance = random.Random(seed)
    rules = sorted(path for path in FINDINGS.iterdir() if not (path / "settings.json").exists())
    folders = sorted(path for path in log_dir.iterdir() if path.is_dir())
    for rule, folder in zip(chance.sample(rules, DAMAGED), chance.sample(folders, DAMAGED), strict=True):
        files = [path for path in rule.iterdir() if path.name not in ("ORIGIN", "expect.jsonl")]
        of_log_dir = any(path.is_dir() for path in files) or (
            files[0].suffix == "" and files[0].name.endswith("-offset-checkpoint")
        )
        if not of_log_dir and any(path.suffix == ".log" for path in files):
            shutil.rmtree(folder)
            folder.mkdir()
        for path in files:
            target = (log_dir if of_log_dir else folder) / path.name
            shutil.copytree(path, target, dirs_exist_ok=True) if path.is_dir() else shutil.copyfile(path, target)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a valid log directory, and one folder for each seed with its damaged ``logs``."""
    home = tmp_path_factory.mktemp("mixed")
    fleet.make_many(home / "fine", PARTITIONS, 0)
    names = [path.name.rpartition("-") for path in (home / "fine").iterdir() if path.is_dir()]
    places = [(group, topic, int(number)) for group in GROUPS for topic, _, number in names]
    for seed in SEEDS:
        shutil.copytree(home / "fine", home / f"seed-{seed}" / "logs")
        place_findings(home / f"seed-{seed}" / "logs", seed)
    for log_dir in (home / "fine", *home.glob("seed-*/logs")):
        write_commits(log_dir / "__consumer_offsets-0", {place: commit_value(5) for place in places})
    return home


@pytest.fixture(scope="module")
def terminal() -> Iterator[Terminal]:
    with Terminal() as terminal:
        yield terminal


@pytest.fixture(scope="module")
def validated(home: Path) -> Callable[[int], dict[str, str]]:
    """Return a function: the reports of one run of validate about the log directory of a seed, by format."""

    @cache
    def reports(seed: int) -> dict[str, str]:
        files = {name: home / f"{seed}.{name}" for name in ("markdown", "html", "prometheus")}
        options = [word for name, path in files.items() for word in ("--report", f"{name}={path}")]
        table = kseg("validate", "--jobs", "1", *options, "logs", cwd=home / f"seed-{seed}").stdout
        return {"table": table, **{name: path.read_text("utf-8") for name, path in files.items()}}

    return reports


@pytest.mark.parametrize("command", ANSWERS)
def test_the_answer_is_in_the_first_lines(command: str, home: Path, terminal: Terminal) -> None:
    """60 lines at most at 80 columns, the answer in the first ten; no line is wider, and no number cut, at any width."""
    screen = terminal.run(f"kseg {command}", home / "seed-1", width=80).text
    lines = screen.splitlines()
    assert len(lines) <= 60, screen
    assert ANSWERS[command] in " ".join(" ".join(lines[:10]).split()), screen
    for width in (60, 80, 100, 200):
        wider = screen if width == 80 else terminal.run(f"kseg {command}", home / "seed-1", width=width).text
        assert not _CUT.search(wider), wider
        assert not [line for line in wider.splitlines() if len(line) > width and " " in line.strip()], wider
        assert ANSWERS[command] in " ".join(wider.split())
        assert wider.count("hidden columns: ") <= 1


def test_the_tables_of_markdown_are_tables(validated: Callable[[int], dict[str, str]]) -> None:
    """A summary on GitHub shows cells, not bars: by its rule the line below the heads has as many cells as they."""
    lines = validated(SEEDS[0])["markdown"].splitlines()
    found = [(head, line) for head, line in itertools.pairwise(lines) if re.fullmatch(r"[|:-]+", line)]
    assert len(found) == 3
    for head, line in found:
        assert len(re.split(r"(?<!\\)\|", head)) == len(line.split("|")), head


@pytest.mark.parametrize("seed", SEEDS)
def test_one_count_in_every_report(seed: int, home: Path, validated: Callable[[int], dict[str, str]]) -> None:
    """The numbers of partitions by consequence are the same in the table, Markdown, HTML and Prometheus of validate."""
    reports = validated(seed)
    (answer,) = re.findall(r"partitions that need attention: .*", reports["table"])
    assert answer in reports["markdown"]
    total = int(re.findall(r"attention: (\d+)", answer)[0])
    partitions = re.sub(r"; log directories.*", "", answer)
    counts = dict(re.findall(r"(stops the broker|loses records|loses bytes|needs attention) (\d+)", partitions))
    assert sum(map(int, counts.values())) == total > 0
    assert re.search(rf"\b{total} of \d+ partitions need attention", reports["html"])
    for kind, count in counts.items():
        assert (
            f'kseg_partitions_needing_attention{{path="logs",consequence="{kind}"}} {count}\n' in reports["prometheus"]
        )
    shown = kseg("recovery", "logs", cwd=home / f"seed-{seed}").stdout
    assert "need attention" not in shown
    assert re.search(r"partitions that a start would harm: \d+|no data would be lost|would lose data", shown)


@pytest.mark.parametrize("seed", SEEDS)
def test_doctor_has_the_numbers_of_validate(seed: int, home: Path, validated: Callable[[int], dict[str, str]]) -> None:
    """Findings are counted once; what only the predicted start harms is another number with other words."""
    done = kseg("doctor", "--jobs", "1", "--format", "jsonl", "logs", cwd=home / f"seed-{seed}")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    (damage,) = (row["text"] for row in rows if row.get("subject") == "damage")
    (answer,) = re.findall(r"partitions that need attention: .*", validated(seed)["table"])
    assert damage.partition("; harmed only")[0] == answer
    assert sum(rows[-1]["needing_attention"].values()) == int(re.findall(r"attention: (\d+)", answer)[0])
