"""Outputs are complete or absent, for any interruption of their writing."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner

from kseg.cli.main import main
from kseg.errors import KsegError, UsageError
from kseg.format.storage.atomic_write import hidden_prefix, publish, whole_file, whole_files, whole_folder
from kseg.format.writer.records_builder import PlainRecord, build_message


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


@pytest.mark.parametrize("name", ["t" * 249 + "-9999", "é" * 127, "x" * 236, "x" * 237])
def test_the_longest_names_can_be_written_and_replaced(name: str, tmp_path: Path) -> None:
    """A hidden name fits into 255 bytes, is that of its target alone, and is recognized by its ends."""
    for target in (tmp_path / name, tmp_path / "folder" / name):
        target.parent.mkdir(exist_ok=True)
        with whole_file(target) as out:
            out.write(b"old")
        with whole_file(target) as out:
            (hidden,) = (path.name for path in target.parent.iterdir() if path.name.startswith("."))
            assert hidden.endswith(".tmp")
            assert hidden.startswith(hidden_prefix(target))
            out.write(b"new")
        assert target.read_bytes() == b"new"
        target.unlink()
        for _ in range(2):
            with whole_folder(target, replace=True) as folder:
                (folder / "file").write_bytes(b"x")
        target.rename(tmp_path / "moved")
        (tmp_path / "moved" / "file").unlink()
        (tmp_path / "moved").rmdir()


def test_hidden_names_of_two_long_names_differ() -> None:
    """What is removed by its hidden name is never that of the next partition."""
    assert hidden_prefix(Path("t" * 249 + "-0")) != hidden_prefix(Path("t" * 249 + "-1"))
    assert hidden_prefix(Path("orders-0")) == ".orders-0."


@pytest.mark.parametrize("command", [["repair"], ["convert", "v0-to-v2"]])
def test_a_log_directory_with_the_longest_topic_names(command: list[str], tmp_path: Path) -> None:
    """Every legal name of a topic can be written, and one that cannot be written keeps no other partition from it."""
    source, target = tmp_path / "old", tmp_path / "new"
    names = ["a-0", "t" * 249 + "-0", "z" * 240 + "-12"]
    for name in names:
        (source / name).mkdir(parents=True)
        (source / name / "00000000000000000000.log").write_bytes(build_message(PlainRecord(0, b"k", b"v"), magic=0))
    done = CliRunner().invoke(main, [*command, str(source), str(target)])
    assert done.exit_code == 0, done.output
    assert sorted(path.name for path in target.iterdir()) == names


def test_a_disk_that_is_full_at_a_small_file_is_named_too(tmp_path: Path) -> None:
    """Whatever is written into the new folder: the line says of which target nothing was written."""
    for whole, name in ((whole_folder, "t-0"), (whole_files, "x.log")):
        target = tmp_path / name
        match = rf"^{target}: No space left on device; nothing was written there$"
        with pytest.raises(KsegError, match=match), whole(target, replace=False):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert not list(tmp_path.iterdir())


def test_a_partition_that_cannot_be_written_leaves_the_others(tmp_path: Path) -> None:
    """A conversion goes on with the next partition, as a repair does."""
    source, target = tmp_path / "old", tmp_path / "new"
    for name in ("a-0", "x" * 250 + "-0000", "z-0"):
        (source / name).mkdir(parents=True)
        (source / name / "00000000000000000000.log").write_bytes(build_message(PlainRecord(0, b"k", b"v"), magic=0))
    real = os.mkdir

    def full(path: str, *args: int) -> None:
        if "xxx" in str(path):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(path, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "mkdir", full)
        done = CliRunner().invoke(main, ["convert", "v0-to-v2", str(source), str(target)])
    assert done.exit_code == 2
    assert "No space left on device; nothing was written there" in done.stderr
    assert sorted(path.name for path in target.iterdir()) == ["a-0", "z-0"]
