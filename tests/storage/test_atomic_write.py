"""Outputs are complete or absent, for any interruption of their writing."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from kseg.errors import KsegError, UsageError
from kseg.format.storage.atomic_write import Staged, move_folders, whole_file, whole_folder


def test_a_file_appears_when_it_is_whole(tmp_path: Path) -> None:
    """A reader of the target never sees half a file."""
    target = tmp_path / "out"
    with whole_file(target) as out:
        out.write(b"all")
        assert not target.exists()
    assert target.read_bytes() == b"all"
    assert list(tmp_path.iterdir()) == [target]
    probe = tmp_path / "probe"
    probe.touch()
    assert stat.S_IMODE(target.stat().st_mode) == stat.S_IMODE(probe.stat().st_mode)


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_what_ends_early_leaves_the_old_file(error: type[BaseException], tmp_path: Path) -> None:
    """A failed write keeps the old content."""
    target = tmp_path / "out"
    target.write_bytes(b"old")

    def fail() -> None:
        with whole_file(target) as out:
            out.write(b"half")
            raise error

    with pytest.raises(error):
        fail()
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_file_that_came_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    """A file that appears during the write is not overwritten."""
    target = tmp_path / "out"

    def overtaken() -> None:
        with whole_file(target, replace=False) as out:
            out.write(b"mine")
            target.write_bytes(b"theirs")

    with pytest.raises(UsageError, match="exists"):
        overtaken()
    assert target.read_bytes() == b"theirs"
    assert list(tmp_path.iterdir()) == [target]


def test_a_folder_appears_with_all_in_it_and_replaces_only_on_demand(tmp_path: Path) -> None:
    """A folder is complete or absent."""
    target = tmp_path / "folder"
    for content in (b"1", b"2"):
        with whole_folder(target, replace=True) as folder:
            (folder / "file").write_bytes(content)
        assert (target / "file").read_bytes() == content
    with pytest.raises(UsageError, match="exists"), whole_folder(target, replace=False) as folder:
        (folder / "file").write_bytes(b"3")
    with pytest.raises(RuntimeError), whole_folder(target, replace=True) as folder:
        raise RuntimeError
    assert (target / "file").read_bytes() == b"2"
    assert list(tmp_path.iterdir()) == [target]


def test_a_failing_write_names_the_target(tmp_path: Path) -> None:
    """The error names the user's path."""
    target = tmp_path / "out"

    def overflow() -> None:
        # A real device that is always full.
        with whole_file(target), open("/dev/full", "wb", buffering=0) as full:
            full.write(b"x")

    with pytest.raises(KsegError, match=r"out: No space left on device"):
        overflow()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(KsegError, match="No such file"):
        Staged(tmp_path / "absent" / "out")


@pytest.mark.parametrize("failing", range(4))
def test_older_folders_are_restored_when_a_rename_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    """Whichever rename fails, all older folders are restored, and no other folder is left."""
    names = ("t-0", "t-1")
    for name in names:
        for home, text in ((tmp_path, "old"), (tmp_path / "new", "new")):
            (home / name).mkdir(parents=True)
            (home / name / "file").write_text(text)
    rename, calls = os.rename, 0

    def failing_rename(source: Path, target: Path) -> None:
        nonlocal calls
        calls += 1
        if calls == failing + 1:
            raise OSError("no space")
        rename(source, target)

    monkeypatch.setattr(os, "rename", failing_rename)
    moves = [(tmp_path / "new" / name, tmp_path / name) for name in names]
    with pytest.raises(OSError, match="no space"):
        move_folders(moves, tmp_path / ".aside", replace=True)
    assert [(tmp_path / name / "file").read_text() for name in names] == ["old", "old"]
    assert [(tmp_path / "new" / name / "file").read_text() for name in names] == ["new", "new"]
    assert not (tmp_path / ".aside").exists()
    monkeypatch.setattr(os, "rename", rename)
    move_folders(moves, tmp_path / ".aside", replace=True)
    assert [(tmp_path / name / "file").read_text() for name in names] == ["new", "new"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "t-0", "t-1"]
