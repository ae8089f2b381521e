"""`kseg diff --by-key` has the keys that two dictionaries have, the last value of each key in them."""

from __future__ import annotations

import json
import random
import re
import struct
from pathlib import Path
from typing import Any

import pytest

from kseg.commands.diff import key_differences
from kseg.format.segment.records_chunk import Header
from kseg.format.writer.records_builder import PlainRecord, build_batch
from tests.support import damage
from tests.support.cli import invoke
from tests.support.cli import kseg_here as kseg

#: Offset, key and value; None is a tombstone.
Entry = tuple[int, bytes, bytes | None]


def write(folder: Path, entries: list[Entry], per_batch: int = 7, compression: str = "none") -> Path:
    """Write a partition of two segments; offsets may have holes."""
    folder.mkdir(parents=True)
    middle = len(entries) // 2
    for part in (entries[:middle], entries[middle:]):
        batches = [part[at : at + per_batch] for at in range(0, len(part), per_batch)]
        data = b"".join(
            build_batch(
                [PlainRecord(*one, 1_000 + one[0]) for one in batch], base_offset=batch[0][0], compression=compression
            )
            for batch in batches
        )
        if part:
            (folder / f"{part[0][0]:020}.log").write_bytes(data)
    return folder


def by_key(*arguments: object, code: int) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the differences, and the counts."""
    run = invoke("diff", "--by-key", "--format", "jsonl", *arguments)
    assert run.exit_code == code, run.stderr
    *differences, counts = map(json.loads, run.stdout.splitlines())
    return differences, counts


@pytest.mark.parametrize("seed", range(6))
def test_random_backups(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Updates, tombstones and a cleaner that removes old values and tombstones, in one file of keys or in many."""
    monkeypatch.setattr(key_differences, "_BUCKET_BYTES", 512 if seed % 2 else 2**30)
    monkeypatch.setattr(key_differences, "_WRITTEN_AT_ONCE", 100)
    chance = random.Random(seed)

    def entries(first: int, count: int) -> list[Entry]:
        def value(key: int) -> bytes | None:
            return None if chance.random() < 0.3 else b"v%d" % (key if chance.random() < 0.5 else chance.randrange(9))

        keys = [chance.randrange(60) for _ in range(count)]
        return [(first + i, b"k%d" % key, value(key)) for i, key in enumerate(keys)]

    monday = entries(0, 120)
    tuesday = monday + entries(120, 80)
    last = {key: offset for offset, key, _ in tuesday[:150]}
    # As the cleaner leaves it: the last record of each key before offset 150, some of them without tombstones.
    cleaned = [one for one in tuesday if one[0] >= 150 or last[one[1]] == one[0]]
    cleaned = [one for one in cleaned if one[2] is not None or one[0] >= 90]
    a = {key: (offset, value) for offset, key, value in monday}
    b = {key: (offset, value) for offset, key, value in cleaned}
    expected = set()
    for key in {*a, *b}:
        (in_a, old), (in_b, new) = a.get(key, (None, None)), b.get(key, (None, None))
        if old is not None and new is not None:
            change = "changed" if old != new else ""
        elif old is not None:
            change = "gone" if in_b is None else "deleted"
        else:
            change = "appeared" if new is not None else ""
        if change:
            expected.add((change, key.decode(), in_a, in_b))
    paths = write(tmp_path / "a" / "users-0", monday), write(tmp_path / "b" / "users-0", cleaned, compression="gzip")
    found, counts = by_key("--limit", 1000, *paths, code=1)
    assert {(row["change"], row["key"], row["offset_a"], row["offset_b"]) for row in found} == expected
    assert len(found) == len(expected)
    assert {(row["topic"], row["partition"]) for row in found} == {("users", 0)}
    for change in key_differences.CHANGES:
        assert counts[change] == sum(one[0] == change for one in expected)
    assert counts["a"]["keys"] == sum(value is not None for _, value in a.values())
    assert counts["b"]["keys"] == sum(value is not None for _, value in b.values())
    limited, same_counts = by_key("--limit", 2, *paths, code=1)
    assert same_counts == counts
    for change in key_differences.CHANGES:
        offsets = sorted(row["offset_b"] or row["offset_a"] for row in found if row["change"] == change)
        assert [row["offset_b"] or row["offset_a"] for row in limited if row["change"] == change] == offsets[:2]


def test_equal_content_in_other_batches_and_offsets(tmp_path: Path) -> None:
    """A backup after compaction has the same keys and values: no difference."""
    entries: list[Entry] = [(i, b"k%d" % (i % 5), b"v%d" % (i % 10)) for i in range(50)]
    full = write(tmp_path / "a" / "users-0", entries)
    compacted = write(tmp_path / "b" / "users-0", entries[45:], per_batch=2)
    assert by_key(full, compacted, code=0)[1]["same"] == 5
    run = kseg("diff", "--by-key", full.parent, compacted.parent)
    assert (run.returncode, run.stdout.strip()) == (0, "5 keys: no difference, 5 the same")


def test_aborted_and_open_transactions_do_not_count(tmp_path: Path) -> None:
    """A consumer with read_committed never sees them; what is undecided is counted apart."""
    a = write(tmp_path / "a" / "users-0", [(0, b"k", b"old")])
    folder = write(tmp_path / "b" / "users-0", [(0, b"k", b"old")])
    data, offset = b"", 1
    for producer, marker in ((1, 0), (2, 1), (3, None)):
        fields: dict[str, Any] = {"transactional": True, "producer_id": producer, "producer_epoch": 0}
        record = PlainRecord(offset, b"key-%d" % producer, b"v", 1)
        data += build_batch([record], base_offset=offset, base_sequence=0, **fields)
        offset += 1
        if marker is not None:
            end = PlainRecord(offset, struct.pack(">hh", 0, marker), struct.pack(">hi", 0, 0), 1)
            data += build_batch([end], base_offset=offset, control=True, **fields)
            offset += 1
    (folder / f"{1:020}.log").write_bytes(data)
    found, counts = by_key(a, folder, code=1)
    assert [(row["change"], row["key"]) for row in found] == [("appeared", "key-2")]
    assert counts["b"]["undecided"] == 1


def test_headers_and_null_keys(tmp_path: Path) -> None:
    """Headers are a part of the content. Records without a key have no last value: they are counted."""
    for name, header in (("a", b"1"), ("b", b"2")):
        folder = tmp_path / name / "users-0"
        folder.mkdir(parents=True)
        records = [PlainRecord(0, b"k", b"v", 1, (Header("h", header),)), PlainRecord(1, None, b"v", 1)]
        (folder / f"{0:020}.log").write_bytes(build_batch(records))
    found, counts = by_key(tmp_path / "a", tmp_path / "b", code=1)
    assert [row["change"] for row in found] == ["changed"]
    assert (counts["a"]["null_keys"], counts["b"]["null_keys"]) == (1, 1)


def test_damage_and_missing_partitions_are_reported(tmp_path: Path) -> None:
    """A lost batch can hold the last value: the exit code is 1, and so for a partition of one backup only."""
    entries: list[Entry] = [(i, b"k%d" % i, b"v") for i in range(28)]
    a, b = (write(tmp_path / name / "users-0", entries) for name in "ab")
    write(tmp_path / "b" / "users-1", entries)
    run = invoke("diff", "--by-key", a.parent, b.parent)
    assert run.exit_code == 1
    assert "only" in run.stderr
    assert "users-1 exists" in run.stderr
    path = b / f"{0:020}.log"
    path.write_bytes(damage.flip(path.read_bytes(), 100))
    run = invoke("diff", "--by-key", a, b)
    assert run.exit_code == 1
    assert "crc-mismatch" in run.stderr
    assert "7 gone" in run.stdout


def test_wrong_arguments(tmp_path: Path) -> None:
    """One line says what is wrong."""
    a = write(tmp_path / "a" / "users-0", [(0, b"k", b"v"), (1, b"k", b"v")])
    for arguments in (("--shallow", a, a), ("--allow", "missing", a, a)):
        assert "cannot be combined" in invoke("diff", "--by-key", *arguments).stderr
    done = kseg("diff", "--by-key", a.parent, a.parent, a.parent)
    assert (done.returncode, done.stderr) == (2, "kseg: --by-key compares two backups, got 3\n")
    assert kseg("diff", a.parent, a.parent, a.parent).stderr.count("are the same files") == 1


def test_keys_that_are_not_text_are_not_shown_as_others(tmp_path: Path) -> None:
    """Base64 of bytes can be another key: tables have hexadecimal bytes, CSV the encoding, and an empty key is not blank."""
    keys = (b"\xff\xfe", b"//4=", b"")
    a, b = (write(tmp_path / one / "t-0", [(n, key, one.encode()) for n, key in enumerate(keys)]) for one in "ab")

    def cells(*options: str) -> list[str]:
        lines = invoke("diff", "--by-key", *options, a, b).stdout.splitlines()
        return [re.split(r"\s{3,}", line)[-1 if options else 2] for line in lines if "changed   " in line]

    assert invoke("diff", "--by-key", "--columns", "key_encoding", a, b).stdout.count("base64") == 1
    for options in ((), ("--columns", "change,key")):
        assert cells(*options) == ["0xfffe (2 B)", "//4=", '""'], options
    header, *lines = invoke("diff", "--by-key", "--format", "csv", a, b).stdout.splitlines()
    assert "key,key_encoding," in header
    assert [line.split(",")[4:6] for line in lines] == [["//4=", "base64"], ["//4=", ""], ['""', ""]]
