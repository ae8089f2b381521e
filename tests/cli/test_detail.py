"""``-v`` and ``-q``: each command that has them prints more, and less."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.cli import invoke
from tests.support.damage import flip
from tests.support.fixtures import SEGMENTS

#: Commands over two log directories A and B, of which B has a damaged partition. OUT is a new path.
COMMANDS = (
    "validate B", "stats B", "transactions B", "recovery B", "diff A B", "repair --dry-run B", "grep a B",
    "convert any-to-v2 --skip-damaged B OUT",
)  # fmt: skip


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("detail")
    for side in "AB":
        for number, source in enumerate(("4.3.0-v2-none-segments", "4.3.0-v2-none-transactions")):
            folder = made / side / f"orders-{number}"
            shutil.copytree(SEGMENTS / source, folder, ignore=shutil.ignore_patterns("ORIGIN", "expect.jsonl"))
    log = made / "B" / "orders-0" / f"{48:020}.log"
    log.write_bytes(flip(log.read_bytes(), 500))
    return made


@pytest.mark.slow
@pytest.mark.parametrize("line", COMMANDS)
def test_verbose_prints_more_and_quiet_less(line: str, home: Path, tmp_path: Path) -> None:
    def lines(*options: str) -> int:
        out = tmp_path / "".join(options).strip("-") / "out"
        out.parent.mkdir(exist_ok=True)
        words = {"A": home / "A", "B": home / "B", "OUT": out}
        done = invoke(*(words.get(word, word) for word in line.split()), *options)
        assert done.exit_code < 2, done.output
        return len(done.stdout.splitlines())

    assert lines("-q") < lines() < lines("-v")
