"""A hole at the start of the newest segment, and one as long as the batch after it: no batch is moved into it."""

from __future__ import annotations

from pathlib import Path

import pytest

import kseg
from kseg.format.writer.records_builder import PlainRecord, build_batch
from tests.support.cli import invoke
from tests.support.damage import flip


def batch(first: int, count: int = 1, epoch: int = 0) -> bytes:
    records = [PlainRecord(first + n, b"key", b"%d" % (first + n), 1_700_000_000_000) for n in range(count)]
    return build_batch(records, partition_leader_epoch=epoch)


def offsets(folder: Path) -> list[int]:
    return [one.offset for path in sorted(folder.glob("*.log")) for one in kseg.open_segment(path).records()]


def test_where_the_epoch_of_a_batch_begins_does_not_move_it(tmp_path: Path) -> None:
    """Offsets 4..7 are missing. Epoch 10 begins at 8: that is where the batch begins, and no end of it at 4."""
    source = tmp_path / "orders-0"
    source.mkdir()
    (source / f"{0:020}.log").write_bytes(batch(0, 4, 5) + batch(8, 4, 10))
    (source / "leader-epoch-checkpoint").write_text("0\n2\n5 0\n10 8\n")
    invoke("repair", source, tmp_path / "new")
    assert offsets(tmp_path / "new") == [0, 1, 2, 3, 8, 9, 10, 11]
    assert (tmp_path / "new" / "leader-epoch-checkpoint").read_text() == "0\n2\n5 0\n10 8\n"


@pytest.mark.parametrize("following", [None, 16, 20])
def test_a_batch_stays_where_its_leader_epoch_is(following: int | None, tmp_path: Path) -> None:
    """Offsets 4..11 are missing. Epoch 5 begins at 8: no end of the batch, which is not of epoch 3."""
    source = tmp_path / "orders-0"
    source.mkdir()
    (source / f"{0:020}.log").write_bytes(batch(0, 4, 1) + batch(12, 4, 5))
    if following is not None:
        (source / f"{following:020}.log").write_bytes(batch(following, 4, 5))
    (source / "leader-epoch-checkpoint").write_text("0\n3\n1 0\n3 4\n5 8\n")
    assert invoke("repair", source, tmp_path / "new").exit_code == 1
    assert offsets(tmp_path / "new")[:8] == [0, 1, 2, 3, 12, 13, 14, 15]


@pytest.mark.slow
@pytest.mark.parametrize("start", range(4, 36))
def test_a_merge_moves_no_batch_to_the_name_of_the_newest_segment(start: int, tmp_path: Path) -> None:
    """Both replicas have lost its first batch. The second one keeps its offset, also if one bit makes the difference."""
    sources = []
    for name in ("a", "b"):
        source = tmp_path / name / "orders-0"
        source.mkdir(parents=True)
        (source / f"{0:020}.log").write_bytes(b"".join(map(batch, range(start))))
        first = batch(start)
        (source / f"{start:020}.log").write_bytes(flip(first, len(first) - 1) + batch(start + 1))
        sources.append(source)
    done = invoke("repair", *sources, tmp_path / "orders-0")
    assert done.exit_code == 1
    assert offsets(tmp_path / "orders-0") == [*range(start), start + 1]


def test_an_end_that_one_replica_has_lost_is_named(tmp_path: Path) -> None:
    """The other one lags: it never had these offsets. Both are of one leader epoch."""
    sources = []
    for name, end in (("a", flip(batch(4, 4), 80)), ("b", b"")):
        source = tmp_path / name / "orders-0"
        source.mkdir(parents=True)
        (source / f"{0:020}.log").write_bytes(batch(0, 4) + end)
        (source / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
        sources.append(source)
    done = invoke("repair", *sources, tmp_path / "orders-0")
    assert done.exit_code == 1
    assert "offsets 4..7" in done.stdout


@pytest.mark.parametrize("copied", [0, 1, 2])
def test_a_batch_that_a_copy_has_overwritten_is_lost(copied: int, tmp_path: Path) -> None:
    """Also the first one of a log, over which the second was written."""
    batches = [batch(first, 4) for first in range(0, 20, 4)]
    batches[copied] = batches[copied + 1]
    source = tmp_path / "orders-0"
    source.mkdir()
    (source / f"{0:020}.log").write_bytes(b"".join(batches))
    assert invoke("repair", source, tmp_path / "new").exit_code == 1
    assert offsets(tmp_path / "new") == [n for n in range(20) if n // 4 != copied]
