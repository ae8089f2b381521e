"""The listing of a store: complete, asked once, and a folder that cannot be listed is named."""

from __future__ import annotations

import sys
from collections.abc import Container
from pathlib import Path
from typing import Any

import pytest

from kseg.format.storage import remote_files
from kseg.format.storage.file_access import file_access
from kseg.format.storage.remote_listing import Entries, ListedFolders, Stored, folders_below, names_matching
from kseg.format.storage.segment_files import find_segments

FOLDERS: dict[str, list[tuple[str, int | None]]] = {
    "b": [("b/orders-1", None), ("b/orders-2", None), ("b/readme", 3), ("b", 0)],
    "b/orders-1": [("b/orders-1/1.log", 9), ("b/orders-1/0.log", 7), ("b/orders-1/old", None)],
    "b/orders-1/old": [("b/orders-1/old/0.log", 5)],
    "b/orders-2": [("b/orders-2/0.log", 1)],
}


class Folders:
    """The calls of a file system that a listing uses. ``errors`` are raised for folders, the first ``times`` times.

    Folders in ``deleted`` are named only by the first listing of the folder above.
    """

    async_impl = True

    def __init__(
        self, errors: dict[str, Exception] | None = None, times: int = 99, deleted: Container[str] = ()
    ) -> None:
        self.errors, self.asked, self.times, self.deleted = errors or {}, 0, times, deleted

    def ls(self, path: str, detail: bool) -> list[dict[str, Any]]:
        assert detail
        self.asked += 1
        if path in self.errors and self.times:
            self.times -= 1
            raise self.errors[path]
        return [
            {"name": name, "size": size or 0, "ETag": name, "type": "directory" if size is None else "file"}
            for name, size in FOLDERS[path]
            if self.asked == 1 or name not in self.deleted
        ]

    def find(self, path: str, detail: bool) -> dict[str, dict[str, Any]]:
        assert detail
        below = {f"{path}//0.log": 8, f"{path}/1.log": 9, f"{path}/old/0.log": 5}
        return {name: {"name": name, "size": size, "ETag": name, "type": "file"} for name, size in below.items()}

    def invalidate_cache(self, path: str | None = None) -> None:
        pass


def listing(store: Folders) -> dict[str, Entries]:
    """Return the entries of the folders that can be listed."""
    return {folder: found for folder, found in folders_below(store, "b") if not isinstance(found, OSError)}


@pytest.mark.parametrize("parallel", [True, False])
def test_each_folder_is_asked_for_once(parallel: bool) -> None:
    """Also one with an empty object of its own name, as consoles of stores make for folders."""
    store = Folders()
    store.async_impl = parallel
    found = listing(store)
    assert store.asked == len(FOLDERS)
    assert found["b"] == {"orders-1": None, "orders-2": None, "readme": Stored(3, "b/readme")}
    assert list(found["b/orders-1"]) == ["0.log", "1.log", "old"]
    assert found["b/orders-1/old"] == {"0.log": Stored(5, "b/orders-1/old/0.log")}


def test_a_folder_that_cannot_be_listed_has_its_error() -> None:
    """The rights to a prefix can be missing. If the connection fails, so does the listing: rows would be missing."""
    error = PermissionError()
    found = dict(folders_below(Folders({"b/orders-2": error}), "b"))
    assert found.pop("b/orders-2") is error
    assert found == {folder: entries for folder, entries in listing(Folders()).items() if folder != "b/orders-2"}
    for folder, reason in (("b", error), ("b/orders-2", ConnectionError()), ("b/orders-2", ValueError())):
        with pytest.raises(type(reason)):
            listing(Folders({folder: reason}))


def test_a_folder_that_was_deleted_meanwhile_is_empty() -> None:
    """A topic is deleted while its bucket is listed. The folder that was asked for must exist."""
    warnings: list[str] = []
    with file_access(warn=warnings.append):
        found = listing(Folders({"b/orders-2": FileNotFoundError()}, deleted=["b/orders-2"]))
    assert warnings == ["skipped b/orders-2: it was deleted during the listing"]
    assert found["b/orders-2"] == {}
    assert "0.log" in found["b/orders-1"]
    with pytest.raises(FileNotFoundError):
        list(folders_below(Folders({"b": FileNotFoundError()}), "b"))


def test_a_folder_that_is_only_empty_for_a_store_that_fails_is_no_empty_one() -> None:
    """The folder above has it, so it has an object: without one the listing failed, and its segments would be missing."""
    store = Folders({"b/orders-1/old": FileNotFoundError()}, times=1)
    assert listing(store)["b/orders-1/old"] == {"0.log": Stored(5, "b/orders-1/old/0.log")}
    found = dict(folders_below(Folders({"b/orders-1/old": FileNotFoundError()}), "b"))
    assert str(found["b/orders-1/old"]) == "b/orders-1/old: the folder above lists it, but it was not found"


def test_a_pattern_of_two_levels_says_that_a_folder_cannot_be_listed() -> None:
    """The search of the file system takes such a folder for an empty one: its partitions would be missing without a word."""
    assert names_matching(Folders(), "b/orders-?/*.log") == ["b/orders-1/1.log", "b/orders-1/0.log", "b/orders-2/0.log"]
    assert names_matching(Folders(), "b/*/old/*") == ["b/orders-1/old/0.log"]
    for error in (FileNotFoundError(), PermissionError()):
        with pytest.raises(OSError, match=r"b/orders-1: the folder above lists it|^$"):
            names_matching(Folders({"b/orders-1": error}), "b/*/*.log")


def test_links_to_files_further_below_are_in_their_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    """The index page of an HTTP server can have them."""
    monkeypatch.setitem(FOLDERS, "b/orders-2", [("b/orders-2/0.log", 1), ("b/orders-2/more/9.log", 2)])
    found = listing(Folders())
    assert found["b/orders-2/more"] == {"9.log": Stored(2, "b/orders-2/more/9.log")}


def test_a_folder_with_an_empty_name_is_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    """``b//0.log``: S3 lists it as a folder with the name of its parent."""
    monkeypatch.setitem(FOLDERS, "b/orders-1", [("b/orders-1/", None), ("b/orders-1/1.log", 9)])
    found = listing(Folders())
    assert found["b/orders-1/"] == {"0.log": Stored(8, "b/orders-1//0.log")}
    assert found["b/orders-1"] == {"1.log": Stored(9, "b/orders-1/1.log")}
    assert "0.log" in found["b/orders-1/old"]


def test_an_empty_object_hides_no_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    """``0.log/`` beside ``0.log``."""
    for names in (("b/orders-2/0.log", "b/orders-2/0.log/"), ("b/orders-2/0.log/", "b/orders-2/0.log")):
        monkeypatch.setitem(FOLDERS, "b/orders-2", [(name, None if name[-1] == "/" else 1) for name in names])
        monkeypatch.setitem(FOLDERS, "b/orders-2/0.log/", [("b/orders-2/0.log", 1)])
        assert listing(Folders())["b/orders-2"] == {"0.log": Stored(1, "b/orders-2/0.log")}


def test_a_listing_takes_little_memory() -> None:
    """A bucket has millions of objects. As Python's objects, each takes 300 bytes."""
    listed = ListedFolders()
    names = {
        f"{n * 1000:020d}.log": Stored(n << 10, f'"{n * 0x9E3779B97F4A7C15F39CC0605CEDC835:032x}"') for n in range(300)
    }
    listed["s3://b/orders-1"] = names
    assert listed.get("s3://b/orders-1") == names
    assert sys.getsizeof(listed._packed["s3://b/orders-1"]) < 60 * len(names)


def test_a_listing_that_is_under_way_outlives_a_later_one(tmp_path: Path) -> None:
    """Whoever reads one segment after the other can list the same folder, or write next to it, meanwhile."""
    for number in (1, 2):
        (tmp_path / f"orders-{number}").mkdir()
        (tmp_path / f"orders-{number}" / f"{0:020d}.log").write_bytes(b"")
    memory = pytest.importorskip("fsspec", reason="fsspec is not installed").filesystem("memory")
    memory.put(str(tmp_path), "/listing", recursive=True)
    found = find_segments("memory://listing")
    first = next(found)
    remote_files.forget()
    assert [first.path, *(file.path for file in found)] == [
        f"memory:///listing/orders-{number}/{0:020d}.log" for number in (1, 2)
    ]
    memory.rm("/listing", recursive=True)
