"""`kseg demo`: the example files are in each installation, and are those that the fixtures make."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from kseg.cli import demo_command
from tests.support.cli import kseg
from tools import make_demo_files

#: 30 KB in each wheel are enough for 276 files.
MOST_BYTES = 30_000


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_archive_is_made_of_the_fixtures(tmp_path: Path) -> None:
    """After a change of a fixture: python -m tools.make_demo_files."""
    demo_command.write_files(tmp_path / "archive")
    make_demo_files.make(tmp_path / "made")
    assert contents(tmp_path / "archive") == contents(tmp_path / "made")
    assert make_demo_files.ARCHIVE.stat().st_size < MOST_BYTES


@pytest.mark.slow
def test_the_commands_that_it_prints_work_in_its_folder(tmp_path: Path) -> None:
    """The first minute of a new user has no error."""
    done = kseg("demo", "first", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    lines = [line.strip() for line in done.stdout.splitlines() if line.strip().startswith("kseg ")]
    assert lines == [line for _, line in demo_command.FOLDERS.values()]
    assert sorted(path.name for path in (tmp_path / "first").iterdir()) == sorted(demo_command.FOLDERS)
    for line in lines:
        run = kseg(*shlex.split(line)[1:], cwd=tmp_path / "first")
        assert run.returncode in (0, 1), run.stderr
        assert run.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", ["old", "none/new", "logs-0"])
def test_it_writes_a_new_folder_only(name: str, tmp_path: Path) -> None:
    """An existing folder, one without a parent, and one in a broker's log directory are refused with one line."""
    (tmp_path / "old").mkdir()
    if name == "logs-0":
        (tmp_path / "meta.properties").write_text("version=1\n")
    before = contents(tmp_path)
    done = kseg("demo", name, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert contents(tmp_path) == before
    assert not [path for path in tmp_path.iterdir() if path.name not in ("old", "meta.properties")]
