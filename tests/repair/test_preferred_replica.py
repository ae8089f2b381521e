"""``kseg repair --prefer``: records of other replicas that no conflict decides are in the result, or reported as lost."""

from __future__ import annotations

import json
from pathlib import Path

import kseg
from kseg.format.writer.records_builder import PlainRecord, build_batch
from tests.support.cli import invoke
from tests.support.records import NOW

#: (First offset, number of offsets, value, leader epoch) of a batch.
Batch = tuple[int, int, bytes, int]


def _replica(folder: Path, *batches: Batch) -> Path:
    folder.mkdir(parents=True)
    data = b"".join(
        build_batch(
            [PlainRecord(n, None, value, NOW + n) for n in range(first, first + count)], partition_leader_epoch=epoch
        )
        for first, count, value, epoch in batches
    )
    (folder / f"{batches[0][0]:020}.log").write_bytes(data)
    return folder


def _prefer_first(tmp_path: Path, *logs: tuple[Batch, ...]) -> tuple[int, list[tuple[str, int, int]], dict[int, bytes]]:
    """Return the exit code, the lost offsets by replica, and the values of the result, of which the first is preferred."""
    replicas = [_replica(tmp_path / f"{n}" / "t-0", *log) for n, log in enumerate(logs)]
    done = invoke("repair", "--format", "jsonl", "--prefer", replicas[0], *replicas, tmp_path / "t-0")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    lost = [(Path(row["file"]).parts[-3], row["offset"], row["last_offset"]) for row in rows if row["kind"] == "lost"]
    found = {one.offset: one.value or b"" for one in kseg.open_partition(tmp_path / "t-0").records()}
    return done.exit_code, lost, found


def _values(*parts: tuple[int, int, bytes]) -> dict[int, bytes]:
    return {n: value for first, stop, value in parts for n in range(first, stop)}


def test_what_a_batch_has_before_the_conflict_is_reported(tmp_path: Path) -> None:
    """A batch that differs at some of its offsets is left out as a whole: its other offsets are lost, exit code 1."""
    code, lost, found = _prefer_first(
        tmp_path, ((5, 5, b"a", 0), (10, 5, b"c", 0)), ((0, 10, b"b", 0), (10, 5, b"c", 0))
    )
    assert found == _values((5, 10, b"a"), (10, 15, b"c"))
    assert (code, lost) == (1, [("1", 0, 4)])


def test_batches_after_the_end_of_the_preferred_replica(tmp_path: Path) -> None:
    """They are of the same epoch, so nothing shows another history: they are in the result."""
    code, lost, found = _prefer_first(tmp_path, ((0, 5, b"a", 0),), ((0, 10, b"b", 0), (10, 5, b"b", 0)))
    assert found == _values((0, 5, b"a"), (10, 15, b"b"))
    assert (code, lost) == (1, [("1", 5, 9)])


def test_a_later_epoch_after_the_end_of_the_preferred_replica(tmp_path: Path) -> None:
    """The preferred replica is only behind: nothing of the others is left out."""
    log = ((0, 5, b"a", 1), (5, 5, b"a", 1), (10, 5, b"a", 2))
    code, lost, found = _prefer_first(tmp_path, log[:1], log)
    assert (code, lost, found) == (0, [], _values((0, 15, b"a")))


def test_a_later_epoch_that_is_not_preferred(tmp_path: Path) -> None:
    """Kafka would continue with the other history: its records after the end of the preferred one are lost, exit code 1."""
    code, lost, found = _prefer_first(
        tmp_path, ((0, 5, b"a", 1), (5, 5, b"old", 1)), ((0, 5, b"a", 1), (5, 5, b"new", 2), (10, 5, b"new", 2))
    )
    assert found == _values((0, 5, b"a"), (5, 10, b"old"))
    assert (code, lost) == (1, [("1", 10, 14)])


def test_a_longer_batch_is_not_taken_before_the_preferred_one(tmp_path: Path) -> None:
    """A batch of another replica that begins before the conflict does not replace the preferred batch."""
    code, lost, found = _prefer_first(
        tmp_path, ((3, 3, b"a", 0), (6, 3, b"a", 0)), ((0, 2, b"b", 0), (2, 5, b"b", 0), (7, 2, b"b", 0))
    )
    assert found == _values((0, 2, b"b"), (3, 9, b"a"))
    assert (code, lost) == (1, [("1", 2, 2)])


def test_replicas_that_are_not_preferred_diverge(tmp_path: Path) -> None:
    """--prefer decides conflicts of its replica only: where two others differ, nothing is written."""
    replicas = [
        _replica(tmp_path / name / "t-0", *log)
        for name, log in (("a", ((0, 5, b"a", 0),)), ("b", ((5, 5, b"b", 0),)), ("c", ((5, 5, b"c", 0),)))
    ]
    done = invoke("repair", "--prefer", replicas[0], *replicas, tmp_path / "t-0")
    assert done.exit_code == 2
    assert "different records at offset 5" in done.stderr
    assert not (tmp_path / "t-0").exists()
