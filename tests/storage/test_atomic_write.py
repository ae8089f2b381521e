"""Outputs are complete or absent, for any interruption of their writing."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from kseg.errors import KsegError, UsageError
from kseg.format.storage.atomic_write import publish, whole_file, whole_folder


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
    with pytest.raises(KsegError, match="does not exist"), whole_file(tmp_path / "absent" / "out"):
        pass


def test_a_replaced_file_keeps_its_permissions(tmp_path: Path) -> None:
    """A report that only its owner may read stays so."""
    target = tmp_path / "out"
    target.touch()
    target.chmod(0o600)
    with whole_file(target) as out:
        out.write(b"new")
    assert stat.S_IMODE(target.stat().st_mode) == 0o600


def test_a_folder_that_cannot_be_synced_has_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message says that the file is there, not that nothing was written; what it replaced is kept."""
    target = tmp_path / "out"
    target.write_bytes(b"old")
    fsync = os.fsync

    def fail_for_folders(handle: int) -> None:
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(errno.EIO, "Input/output error")
        fsync(handle)

    monkeypatch.setattr(os, "fsync", fail_for_folders)
    with pytest.raises(KsegError, match="out: written completely") as raised, whole_file(target) as out:
        out.write(b"new")
    assert target.read_bytes() == b"new"
    (kept,) = set(tmp_path.iterdir()) - {target}
    assert kept.read_bytes() == b"old"
    assert str(kept) in str(raised.value)
    assert "nothing was written" not in str(raised.value)


def test_a_file_system_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FAT and some network file systems have none: renames do the same."""

    def no_link(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_link)
    target = tmp_path / "out"
    for content in (b"1", b"2"):
        with whole_file(target) as out:
            out.write(content)
        assert target.read_bytes() == content
    with pytest.raises(UsageError, match="exists"), whole_file(target, replace=False) as out:
        out.write(b"3")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"out": b"2"}


def test_an_older_file_that_cannot_be_restored_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user must know where the only copy is."""
    new, target = tmp_path / "new", tmp_path / "t-0"
    for folder in (new, target):
        folder.mkdir()
    rename = os.rename

    def fail_for_new(source: Path, destination: Path) -> None:
        if source == new:
            raise OSError(errno.ENOSPC, "No space left on device")
        rename(source, destination)

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "rename", fail_for_new)
    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(KsegError, match=r"No space left.*t-0: could not be restored.*it is in .*\.old"):
        publish([(new, target)], replace=True)
