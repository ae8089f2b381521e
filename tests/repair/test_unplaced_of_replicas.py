"""Valid batches that no result can have are in DST, in a file ``.unplaced``, also if the source is several replicas."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kseg.format.writer.records_builder import PlainRecord, build_batch
from tests.support.cli import invoke
from tests.support.records import NOW

DAY = 86_400_000
_RULES = ("--rule", "duplicate-sequence=error", "--rule", "invalid-timestamp=error")


def _batch(first: int, value: bytes = b"v", time: int = NOW, sequence: int = -1) -> bytes:
    records = [PlainRecord(n, b"k%d" % n, value, time) for n in range(first, first + 5)]
    if sequence < 0:
        return build_batch(records, max_timestamp=time, partition_leader_epoch=0)
    return build_batch(records, partition_leader_epoch=0, producer_id=5, producer_epoch=0, base_sequence=sequence)


#: Left out with _RULES: the second one has sequences that the first one has, and the header of the fourth a negative time.
_BROKEN_RULES = [
    _batch(0, sequence=0),
    _batch(5, b"again", NOW + 8 * DAY, sequence=0),
    _batch(10, b"third", NOW + 8 * DAY, sequence=5),
    _batch(15, time=-60_000),
    _batch(20),
]


def _replica(folder: Path, *batches: bytes) -> Path:
    folder.mkdir(parents=True)
    (folder / f"{0:020}.log").write_bytes(b"".join(batches))
    return folder


def _unplaced(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.glob("*.unplaced")))


@pytest.mark.parametrize("dry_run", [False, True])
def test_batches_that_two_equal_replicas_have(dry_run: bool, tmp_path: Path) -> None:
    """Each byte of both replicas is in the log or in ``.unplaced`` of the result; a dry run has the same rows."""
    replicas = [_replica(tmp_path / name / "t-0", *_BROKEN_RULES) for name in ("a", "b")]
    options = [*_RULES, *(["--dry-run"] if dry_run else [])]
    done = invoke("repair", *options, "--format", "jsonl", *replicas, tmp_path / "t-0")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    unplaced = [row for row in rows if row["kind"] == "lost"]
    assert [(row["rule"], row["offset"], row["unplaced"]) for row in unplaced] == [
        ("duplicate-sequence", 5, True),
        ("invalid-timestamp", 15, True),
    ]
    assert (done.exit_code, rows[-1]["unplaced"]) == (1, 2)
    if not dry_run:
        assert (tmp_path / "t-0" / f"{0:020}.log").read_bytes() == b"".join(_BROKEN_RULES[::2])
        assert _unplaced(tmp_path / "t-0") == b"".join(_BROKEN_RULES[1::2])


def test_a_batch_that_another_replica_places(tmp_path: Path) -> None:
    """A wrong base offset in one replica is right in the other one: the batch is in the log, and in no other file."""
    batches = [_batch(n) for n in range(0, 25, 5)]
    moved = (7).to_bytes(8, "big") + batches[3][8:]  # 10 or 15 would fit
    damaged = _replica(tmp_path / "a" / "t-0", *batches[:2], moved, batches[4])
    assert "1 batch with a right CRC left out" in invoke("repair", "--dry-run", damaged).stdout
    other = _replica(tmp_path / "b" / "t-0", *batches)
    done = invoke("repair", damaged, other, tmp_path / "t-0")
    assert done.exit_code == 0, done.stdout
    assert (tmp_path / "t-0" / f"{0:020}.log").read_bytes() == b"".join(batches)
    assert _unplaced(tmp_path / "t-0") == b""


def test_a_batch_without_a_place_in_a_whole_log(tmp_path: Path) -> None:
    """One replica has a valid batch more, at offsets that the log has: it is in ``.unplaced``, and loses no offsets."""
    batches = [_batch(n) for n in range(0, 25, 5)]
    stray = _batch(3, b"stray")
    more = _replica(tmp_path / "a" / "t-0", *batches[:3], stray, *batches[3:])
    other = _replica(tmp_path / "b" / "t-0", *batches)
    done = invoke("repair", "--format", "jsonl", more, other, tmp_path / "t-0")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    (row,) = [row for row in rows if row["kind"] == "lost"]
    assert (row["unplaced"], row["offset"], row["position"]) == (True, None, len(b"".join(batches[:3])))
    assert done.exit_code == 1
    assert (tmp_path / "t-0" / f"{0:020}.log").read_bytes() == b"".join(batches)
    assert _unplaced(tmp_path / "t-0") == stray


def test_the_next_repair_keeps_them(tmp_path: Path) -> None:
    """A repair of a result copies its file ``.unplaced``: what an earlier repair left out is not lost."""
    source = _replica(tmp_path / "a" / "t-0", *_BROKEN_RULES)
    assert (
        invoke("repair", *_RULES, source, tmp_path / "once" / "t-0").exit_code == 2
    )  # the folder of DST does not exist
    (tmp_path / "once").mkdir()
    assert invoke("repair", *_RULES, source, tmp_path / "once" / "t-0").exit_code == 1
    assert invoke("repair", tmp_path / "once" / "t-0", tmp_path / "t-0").exit_code == 0
    assert _unplaced(tmp_path / "t-0") == b"".join(_BROKEN_RULES[1::2])


def test_replicas_without_a_valid_batch(tmp_path: Path) -> None:
    """Nothing is written, and the message names no hidden folder."""
    replicas = [_replica(tmp_path / name / "t-0", _batch(0, time=-60_000)) for name in ("a", "b")]
    done = invoke("repair", *_RULES, *replicas, tmp_path / "t-0")
    assert (done.exit_code, (tmp_path / "t-0").exists()) == (2, False)
    assert "no replica has a valid batch" in done.stderr
    assert ".tmp" not in done.stderr
