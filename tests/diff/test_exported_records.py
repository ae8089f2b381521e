"""``kseg diff --export`` writes exactly the records of A that B does not have, in segments that can be read."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random

import pytest

from kseg import open_partition
from kseg.format.writer.records_builder import PlainRecord, build_batch, build_message, build_wrapper
from tests.support.cli import invoke
from tests.support.fleet import make
from tests.support.fuzzing import cases
from tests.support.records import NOW

_Model = dict[int, tuple[bytes, bytes]]


def _write(folder: Path, random: Random, model: _Model, magic: int) -> None:
    folder.mkdir(parents=True)
    records = [PlainRecord(offset, key, value, NOW if magic else -1) for offset, (key, value) in sorted(model.items())]
    data = bytearray()
    while records:
        some = records[: random.randrange(1, 6)]
        records = records[len(some) :]
        if magic == 2:
            data += build_batch(some, compression=random.choice(("none", "lz4")), producer_id=7)
        elif random.random() < 0.5:
            data += build_wrapper(some, magic=magic, compression="gzip")
        else:
            data += b"".join(build_message(one, magic=magic) for one in some)
    (folder / f"{min(model):020}.log").write_bytes(data)


def _read(folder: Path) -> _Model:
    return {record.offset: (record.key or b"", record.value or b"") for record in open_partition(folder).records()}


@pytest.mark.slow
@pytest.mark.fuzz
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_the_export_has_what_b_lacks(tmp_path: Path, magic: int) -> None:
    """Replicas of random records in random batches: the export is the difference of two dictionaries."""
    partly = 0
    for case in range(cases(40)):
        random = Random(case)
        home = tmp_path / str(case)
        offsets = [*range(random.randrange(10), 40)]
        a = {n: (b"k", random.choice((b"x", b"y"))) for n in random.sample(offsets, random.randrange(1, len(offsets)))}
        b = {n: random.choice((a.get(n, (b"k", b"z")), (b"k", b"y"))) for n in random.sample(offsets, 25)}
        _write(home / "a" / "t-0", random, a, magic)
        _write(home / "b" / "t-0", random, b, magic)
        done = invoke("diff", "--export", home / "lost", home / "a" / "t-0", home / "b" / "t-0")
        expected = {n: value for n, value in a.items() if b.get(n) != value}
        assert done.exit_code == (a != b), (case, done.stderr)
        if not expected:
            assert not (home / "lost").exists(), case
            assert "B lacks no readable record of A" in done.stderr
            continue
        assert _read(home / "lost" / "t-0") == expected, case
        assert invoke("validate", "-q", "--compacted", home / "lost").exit_code == 0, case
        partly += len(expected) < len(a)
    assert partly > 10


def test_whole_batches_are_copied_byte_for_byte(tmp_path: Path) -> None:
    """The batches that a stale leader alone has are in the export with their epoch, as they were."""
    stale, leader = make(tmp_path)[2], tmp_path / "broker-1"
    done = invoke("diff", "--export", tmp_path / "lost", stale / "clicks-2", leader / "clicks-2")
    (log,) = (tmp_path / "lost" / "clicks-2").iterdir()
    assert log.name == f"{30:020}.log"
    assert (stale / "clicks-2" / f"{0:020}.log").read_bytes().endswith(log.read_bytes())
    assert "10 records of A that B lacks, in 1 batch" in done.stderr


@pytest.mark.parametrize("jobs", [1, 2])
def test_log_directories_have_a_folder_for_each_partition(tmp_path: Path, jobs: int) -> None:
    """Damage of B and a partition that only A has; what --allow accepts is not exported."""
    a, b, _ = make(tmp_path)
    shutil.rmtree(b / "clicks-2")
    done = invoke("diff", "--jobs", str(jobs), "--export", tmp_path / "lost", a, b)
    assert "3 partitions in" in done.stderr
    assert sorted(_read(tmp_path / "lost" / "orders-0")) == [*range(40, 48)]
    assert _read(tmp_path / "lost" / "clicks-2") == _read(a / "clicks-2")
    (b / "orders-0" / f"{120:020}.log").write_bytes(b"")
    again = invoke("diff", "--allow", "ends-earlier", "--export", tmp_path / "more", a / "orders-0", b / "orders-0")
    assert again.exit_code == 1
    assert sorted(_read(tmp_path / "more" / "orders-0")) == [*range(40, 48)]


def test_what_is_not_known_is_said(tmp_path: Path) -> None:
    """A partition that cannot be compared can lack records: the export is called incomplete, and leaves no folder."""
    a, b, _ = make(tmp_path)
    shutil.rmtree(b)
    shutil.copytree(a, b)
    (b / "orders-0" / f"{24:020}.log").write_text("a text in the place of a segment")
    done = invoke("diff", "-q", "--export", tmp_path / "lost", a, b)
    assert done.exit_code == 2
    assert "is not complete: 1 partition could not be compared or written" in done.stderr
    assert "B lacks no" not in done.stderr
    assert not (tmp_path / "lost").exists()


def test_what_cannot_be_exported(tmp_path: Path) -> None:
    """Headers alone, keys, three replicas, metadata logs, a folder that exists, and one inside the replica."""
    brokers = make(tmp_path)
    two = [one / "clicks-2" for one in brokers[:2]]
    metadata = [shutil.copytree(two[0], tmp_path / name / "__cluster_metadata-0") for name in ("m1", "m2")]
    for options in (["--shallow", *two], ["--by-key", *two], [one / "clicks-2" for one in brokers], brokers, metadata):
        assert invoke("diff", "--export", tmp_path / "lost", *options).exit_code == 2, options
        assert not (tmp_path / "lost").exists()
    assert "exists" in invoke("diff", "--export", brokers[2], *two).stderr
    assert invoke("diff", "--export", two[0] / "lost", *two).exit_code == 2
