"""Promise: each of the 120 statements about Kafka's formats is shown by a command on bytes that kseg did not write."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.statements import STATEMENTS, STATEMENTS_FOLDER, Statement
from tools import make_statements
from tools.docs.terminal import Terminal


@pytest.fixture(scope="module")
def terminal() -> Iterator[Terminal]:
    with Terminal() as server:
        yield server


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the files: a command may write next to them."""
    return shutil.copytree(STATEMENTS_FOLDER, tmp_path_factory.mktemp("copy") / "statements")


@pytest.mark.slow
@pytest.mark.parametrize("statement", [one for one in STATEMENTS if one.command], ids=lambda one: one.name)
def test_statement(statement: Statement, terminal: Terminal, folder: Path) -> None:
    """The command prints what the statement says."""
    printed = statement.run(terminal, folder)
    missing = [text for text in statement.seen if text not in printed.text]
    assert not missing, printed.text
    assert printed.code == statement.code


def test_every_statement_has_a_row_and_a_file() -> None:
    """The table is complete, each row names files that exist, and each file belongs to a row."""
    assert [one.number for one in STATEMENTS] == list(range(1, 121))
    assert len({one.name for one in STATEMENTS}) == 120
    assert all(one.files or not one.command for one in STATEMENTS)
    used = {Path(name).parts[0] for one in STATEMENTS for name in one.files}
    assert {Path(name).parts[0] for name in make_statements.files()} == used


def test_the_files_are_those_of_the_packer() -> None:
    """The bytes come from the layouts alone: nobody edits them or makes them with kseg."""
    stored = {str(path.relative_to(STATEMENTS_FOLDER)): path for path in STATEMENTS_FOLDER.rglob("*") if path.is_file()}
    assert {name: path.read_bytes() for name, path in stored.items()} == make_statements.files()
    for module in ("make_statements.py", "statement_bytes.py"):
        assert (
            "kseg." not in (Path(make_statements.__file__).parent / module).read_text(encoding="utf-8").split('"""')[2]
        )
