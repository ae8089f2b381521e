"""A partition for another cluster: only what was committed, at its offsets, without what belongs to its own cluster."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path
from random import Random

import pytest

from kseg.commands.convert.conversion import convert
from kseg.commands.convert.conversion_plan import ConversionPlan
from kseg.errors import UsageError
from kseg.format.segment import several_processes
from kseg.format.writer.records_builder import PlainRecord, build_batch, build_message, build_wrapper
from tests.support.cli import invoke
from tests.support.cli import kseg_here as kseg
from tests.support.fuzzing import cases
from tests.support.records import NOW

CODECS = ("none", "gzip", "lz4", "snappy", "zstd")


class _History:
    """Writes the segments of a random partition, and knows which records were committed."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self.end = random.choice((0, 0, 1000))
        self.committed: set[int] = set()
        self._epoch = 0
        self._open: dict[int, set[int]] = {}
        self._sequences: dict[int, int] = {}
        self._key = random.choice((b"k", None))

    def write(self, folder: Path) -> None:
        folder.mkdir()
        (folder / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n")
        old = self._random.random() < 0.3
        for number in range(self._random.randrange(1, 5)):
            log = folder / f"{self.end:020}.log"
            write = self._message if old and not number else self._batch
            log.write_bytes(b"".join(write() for _ in range(self._random.randrange(1, 60))))

    def _records(self, count: int) -> list[PlainRecord]:
        first, self.end = self.end, self.end + count
        return [PlainRecord(offset, self._key, b"%d" % offset * 20, NOW + offset) for offset in range(first, self.end)]

    def _message(self) -> bytes:
        (record,) = self._records(1)
        self.committed.add(record.offset)
        return build_message(record, magic=1)

    def _batch(self) -> bytes:
        random = self._random
        self._epoch += random.random() < 0.05
        producer = random.choice((-1, 0, 1, 2))
        if producer in self._open and random.random() < 0.4:
            return self._marker(producer)
        records = self._records(random.randrange(1, 5))
        offsets = {record.offset for record in records}
        transactional = producer in self._open or (producer > 0 and random.random() < 0.7)
        (self._open.setdefault(producer, set()) if transactional else self.committed).update(offsets)
        sequence = self._sequences.get(producer, 0)
        self._sequences[producer] = sequence + len(records)
        return build_batch(
            records, compression=random.choice(CODECS), producer_id=producer, producer_epoch=min(producer, 0),
            base_sequence=sequence if producer >= 0 else -1, transactional=transactional,
            partition_leader_epoch=self._epoch,
        )  # fmt: skip

    def _marker(self, producer: int) -> bytes:
        commit, offsets = self._random.random() < 0.5, self._open.pop(producer)
        self.committed |= offsets if commit else set()
        (record,) = self._records(1)
        marker = PlainRecord(record.offset, bytes([0, 0, 0, commit]), bytes(6), NOW)
        return build_batch(
            [marker], producer_id=producer, producer_epoch=0, transactional=True, control=True,
            partition_leader_epoch=self._epoch,
        )  # fmt: skip


def _rows(folder: Path, *options: object) -> list[dict[str, object]]:
    done = invoke("dump", "--format", "jsonl", *options, folder)
    assert done.exit_code == 0, done.stderr
    return [row for row in map(json.loads, done.stdout.splitlines()) if row["kind"] in ("record", "batch")]


def _content(rows: list[dict[str, object]]) -> dict[object, tuple[object, ...]]:
    return {row["offset"]: tuple(row[name] for name in ("timestamp", "key", "value", "headers")) for row in rows}


def _digest(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.slow
@pytest.mark.fuzz
def test_only_committed_records_remain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random partitions: the committed records and the end stay; nothing is left of producers, epochs and topic ids.

    No removed record or marker seems lost, also if records without a key show that the topic is not compacted. Any number
    of processes writes the same, and a single segment knows the markers of later ones. In half of the cases the first
    records were deleted.
    """
    monkeypatch.setattr(several_processes, "RANGE_SIZE", 3_000)
    monkeypatch.setattr(several_processes, "SEARCH_REACH", 3_000)
    removed = 0
    for case in range(cases(15)):
        random = Random(case)
        source, target, parallel = (tmp_path / f"{name}{case}-0" for name in ("in", "out", "jobs"))
        history = _History(random)
        begin = history.end
        history.write(source)
        start = random.choice((0, random.randrange(begin, history.end + 1)))
        (tmp_path / "log-start-offset-checkpoint").write_text(f"0\n1\nin{case} 0 {start}\n")
        codec = random.choice(("keep", "keep", *CODECS))
        plan = ConversionPlan.of(
            "any-to-v2", compression=codec, for_another_cluster=True, rebatch=random.choice((None, None, 500))
        )
        convert(str(source), str(target), plan)
        convert(str(source), str(parallel), plan, jobs=3)
        assert _digest(parallel) == _digest(target), case
        before, after = _content(_rows(source, "--deep")), _content(_rows(target, "--deep"))
        assert after == {offset: before[offset] for offset in history.committed if offset >= start}, case
        batches = _rows(target, "--shallow")
        for name, value in (("producer_id", -1), ("base_sequence", -1), ("partition_leader_epoch", 0)):
            assert {row[name] for row in batches} == {value}, (case, name)
        assert not any(row["transactional"] or row["control"] for row in batches)
        assert max(int(str(row["last_offset"])) for row in batches) == history.end - 1, case
        assert not {path.suffix for path in target.iterdir()} & {".snapshot", ".txnindex", ".metadata"}
        assert invoke("validate", "-q", target).exit_code == 0, case
        for log in sorted(source.glob("*.log")):
            alone = tmp_path / f"alone{case}" / log.name
            alone.parent.mkdir(exist_ok=True)
            convert(str(log), str(alone), plan)
            if (target / log.name).exists():  # not if all its records were deleted
                assert alone.read_bytes() == (target / log.name).read_bytes(), (case, log.name)
            else:
                assert not _rows(alone, "--deep"), case
                assert int(str(_rows(alone, "--shallow")[-1]["last_offset"])) < start, case
        removed += len(before) - len(after)
    assert removed > 100


def test_producers_are_kept_by_choice(tmp_path: Path) -> None:
    """With --keep-producers only epochs change: transactions, markers, sequences, snapshots and their index stay."""
    source, target = tmp_path / "in-0", tmp_path / "out-0"
    _History(Random(3)).write(source)
    done = kseg("convert", "any-to-v2", "--for-another-cluster", "--keep-producers", source, target)
    assert done.returncode == 0, done.stderr
    plain = tmp_path / "plain-0"
    assert kseg("convert", "v2-to-v2", "--compression", "none", source, plain).returncode == 0
    changed = {"position", "partition_leader_epoch", "size", "stored_crc", "computed_crc", "file", "compression"}
    for left, right in zip(_rows(source, "--shallow"), _rows(target, "--shallow"), strict=True):
        assert right["partition_leader_epoch"] == 0
        assert {name: left[name] for name in left if name not in changed} == {
            name: right[name] for name in right if name not in changed
        }
    assert (target / "leader-epoch-checkpoint").read_text().split() == [
        "0",
        "1",
        "0",
        sorted(source.glob("*.log"))[0].stem.lstrip("0") or "0",
    ]
    written, ours = _digest(plain), _digest(target)
    for name in written:
        if name.endswith((".snapshot", ".txnindex")):
            assert ours[name] == written[name], name


def test_the_second_conversion_changes_nothing(tmp_path: Path) -> None:
    """A converted partition is what another cluster needs."""
    first, second = tmp_path / "first-0", tmp_path / "second-0"
    _History(Random(1)).write(tmp_path / "in-0")
    plan = ConversionPlan.of("any-to-v2", for_another_cluster=True)
    convert(str(tmp_path / "in-0"), str(first), plan)
    again = convert(str(first), str(second), plan)
    assert _digest(first) == _digest(second)
    assert all(one.copied == one.entries_after and not one.lost for one in again.segments)


def test_what_is_refused(tmp_path: Path) -> None:
    """Versions without producers, and topics with ids of their cluster; in a log directory these are left out and named."""
    with pytest.raises(UsageError, match="needs v2"):
        ConversionPlan.of("v2-to-v1", lossy=True, for_another_cluster=True)
    logs = tmp_path / "logs"
    logs.mkdir()
    _History(Random(2)).write(logs / "orders-0")
    of_cluster = [
        f"{topic}-0"
        for topic in ("__cluster_metadata", "__remote_log_metadata", "__share_group_state", "__transaction_state")
    ]
    for name in (*of_cluster, "__consumer_offsets-0"):
        shutil.copytree(logs / "orders-0", logs / name)
    for name in of_cluster:
        for source in (logs / name, *(logs / name).glob("*.log")):
            done = kseg("convert", "any-to-v2", "--for-another-cluster", source, tmp_path / "out-0")
            assert (done.returncode, (tmp_path / "out-0").exists()) == (2, False)
            assert "no other cluster" in done.stderr
    done = kseg("convert", "any-to-v2", "--for-another-cluster", logs, tmp_path / "out")
    written = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert (done.returncode, written) == (0, ["__consumer_offsets-0", "orders-0"])
    assert all(name in done.stderr for name in of_cluster)
    assert kseg("convert", "any-to-v2", logs / of_cluster[-1], tmp_path / "same-0").returncode == 0


def test_a_lost_marker_commits_nothing(tmp_path: Path) -> None:
    """The next marker of the producer is that of its next transaction: the records before the lost one are left out."""
    folder, target = tmp_path / "orders-0", tmp_path / "out-0"
    folder.mkdir()
    batch = partial(build_batch, producer_id=7, producer_epoch=0, transactional=True)
    batches = [
        batch([PlainRecord(0, b"k", b"aborted", NOW)], base_sequence=0),
        batch([PlainRecord(1, bytes(4), bytes(6), NOW)], control=True),
        batch([PlainRecord(2, b"k", b"committed", NOW)], base_sequence=1),
        batch([PlainRecord(3, bytes([0, 0, 0, 1]), bytes(6), NOW)], control=True),
    ]
    batches[1] = batches[1][:-1] + bytes([batches[1][-1] ^ 1])
    (folder / f"{0:020}.log").write_bytes(b"".join(batches))
    done = kseg("convert", "any-to-v2", "--for-another-cluster", "--skip-damaged", folder, target)
    assert (done.returncode, "unknown-records: 1 record" in done.stdout) == (1, True), done.stdout + done.stderr
    assert [row["value"] for row in _rows(target, "--deep")] == ["committed"]


def _log_start(folder: Path, start: int) -> None:
    topic, _, partition = folder.name.rpartition("-")
    (folder.parent / "log-start-offset-checkpoint").write_text(f"0\n1\n{topic} {partition} {start}\n")


def _records(*offsets: int) -> list[PlainRecord]:
    return [PlainRecord(offset, b"k", b"v%d" % offset, NOW + offset) for offset in offsets]


def _old_and_new(folder: Path) -> None:
    """Write wrappers and messages of v1, and two committed transactions of v2; offsets 2, 13 and 15 were compacted."""
    folder.mkdir()
    batch = partial(build_batch, producer_id=7, producer_epoch=0, transactional=True)
    marker = PlainRecord(10, bytes([0, 0, 0, 1]), bytes(6), NOW)
    (folder / f"{0:020}.log").write_bytes(
        build_wrapper(_records(0, 1, 3), magic=1, compression="gzip") + build_message(*_records(4), magic=1)
    )
    (folder / f"{5:020}.log").write_bytes(
        batch(_records(5, 6, 7, 8, 9), base_sequence=0, compression="lz4")
        + batch([marker], control=True)
        + batch(_records(11, 12, 14), base_offset=11, last_offset=15, base_sequence=5)
        + batch([PlainRecord(16, marker.key, marker.value, NOW)], control=True)
    )


@pytest.mark.parametrize(
    "options", [[], ["--keep-producers"], ["--compression", "zstd", "--keep-producers"], ["--rebatch", "10000"]]
)
def test_deleted_records_do_not_come_back(tmp_path: Path, options: list[str]) -> None:
    """Records before the log start are deleted for all clients, wherever in a batch it is; the others stay as they are.

    They are counted, no offset seems lost, and kept producers continue with the sequence that they had.
    """
    source = tmp_path / "orders-0"
    _old_and_new(source)
    before = [row for row in _rows(source, "--deep") if not row["control"]]
    kept = ("timestamp", "timestamp_type", "key", "value", *(("sequence",) if "--keep-producers" in options else ()))
    for start in range(18):
        _log_start(source, start)
        target = tmp_path / f"out{start}-0"
        done = kseg("convert", "any-to-v2", "--for-another-cluster", *options, "--format", "jsonl", source, target)
        assert done.returncode == 0, done.stderr
        expected = [row for row in before if int(str(row["offset"])) >= start]
        after = [row for row in _rows(target, "--deep") if not row["control"]]
        assert [row["offset"] for row in after] == [row["offset"] for row in expected]
        for left, right in zip(expected, after, strict=True):
            names = kept if right["sequence"] is not None and left["sequence"] is not None else kept[:4]
            assert [left[name] for name in names] == [right[name] for name in names], start
            if "--keep-producers" in options and left["transaction_state"]:
                assert (left["producer_id"], "committed") == (right["producer_id"], right["transaction_state"])
        base = 5 if start >= 5 else 0  # no record of the first segment is left
        losses = [json.loads(line).get("lost", {}).get("deleted-records") for line in done.stdout.splitlines()]
        lost = [row["offset"] for row in before if base <= int(str(row["offset"])) < start]
        assert sum(loss["count"] for loss in losses if loss) == len(lost)
        assert (f"{0:020}.log" in done.stderr) == (base == 5)
        batches = _rows(target, "--shallow")
        ends = [base - 1, *(row["last_offset"] for row in batches)]
        assert [row["base_offset"] for row in batches if row["base_offset"] not in (2, 13)] == [
            int(str(end)) + 1 for end in ends[:-1]
        ], start
        assert ends[-1] == 16
        assert invoke("validate", "-q", target).exit_code == 0


def test_the_log_start_in_a_large_batch(tmp_path: Path) -> None:
    """A batch that is read in parts loses the records before the log start, wherever its parts end."""
    source = tmp_path / "orders-0"
    source.mkdir()
    records = [PlainRecord(2 * n, None, b"%d" % n, NOW) for n in range(70_000)]
    data = build_batch(
        records, compression="gzip", last_offset=150_000, producer_id=1, producer_epoch=0, base_sequence=0
    )
    (source / f"{0:020}.log").write_bytes(data)
    for start in (1, 100_001, 139_998, 139_999):
        _log_start(source, start)
        target = tmp_path / f"out{start}-0"
        (done,) = convert(str(source), str(target), ConversionPlan.of("any-to-v2", for_another_cluster=True)).segments
        assert (done.records, done.lost["deleted-records"].count) == (70_000 - (start + 1) // 2, (start + 1) // 2)
        after = _rows(target, "--deep", "--last", 70_000)
        assert [row["offset"] for row in after] == [one.offset for one in records if one.offset >= start]
        assert _rows(target, "--shallow")[-1]["last_offset"] == 150_000


def test_damage_before_the_log_start_is_not_read(tmp_path: Path) -> None:
    """A segment that the broker was about to delete, as all its records are deleted, does not stop a conversion."""
    source = tmp_path / "orders-0"
    _old_and_new(source)
    (source / f"{0:020}.log").write_bytes(b"\1" * 300)
    (source / f"{3:020}.snapshot").write_bytes(b"\1" * 30)
    _log_start(source, 5)
    options = ("--for-another-cluster", "--keep-producers")
    assert kseg("convert", "any-to-v2", *options, source, tmp_path / "kept-0").returncode == 0
    done = kseg("convert", "any-to-v2", "--for-another-cluster", source, tmp_path / "out-0")
    assert (done.returncode, f"not copied: {0:020}.log" in done.stderr) == (0, True), done.stderr
    assert [row["offset"] for row in _rows(tmp_path / "out-0", "--deep")] == [5, 6, 7, 8, 9, 11, 12, 14]
    assert (tmp_path / "out-0" / "leader-epoch-checkpoint").read_text().split()[2:] == ["0", "5"]


def test_an_unreadable_log_start_is_one_line(tmp_path: Path) -> None:
    """Without the log start, deleted records could come back: nothing is written, and one line says why."""
    (tmp_path / "logs").mkdir()
    for name in ("orders-0", "orders-1"):
        _old_and_new(tmp_path / "logs" / name)
    (tmp_path / "logs" / "log-start-offset-checkpoint").mkdir()
    done = kseg("convert", "any-to-v2", "--for-another-cluster", tmp_path / "logs", tmp_path / "out")
    assert (done.returncode, (tmp_path / "out").exists()) == (2, False)
    assert done.stderr.count("log-start-offset-checkpoint: ") == 1
    assert kseg("convert", "any-to-v2", tmp_path / "logs", tmp_path / "same").returncode == 0


def test_a_stray_has_no_log_start(tmp_path: Path) -> None:
    """The checkpoint is about the folders in use: a new topic of the same name may have another log start."""
    stray = tmp_path / f"orders-0.{'1' * 32}-stray"
    _old_and_new(stray)
    _log_start(tmp_path / "orders-0", 100)
    done = kseg("convert", "any-to-v2", "--for-another-cluster", stray, tmp_path / "orders-0")
    assert (done.returncode, "deleted-records" in done.stdout) == (0, False)
    assert len(_rows(tmp_path / "orders-0", "--deep")) == 12
