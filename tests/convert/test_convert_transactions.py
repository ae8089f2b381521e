"""A converted log has the transaction index that fits its batches, whatever index the source has."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from random import Random

import pytest

from kseg.commands.convert import conversion as convert_module
from kseg.commands.convert.conversion import convert
from kseg.commands.convert.conversion_plan import ConversionPlan
from kseg.commands.convert.transcode import Conversion
from kseg.commands.repair.repair import repair
from kseg.commands.repair.repaired_segment import RepairPlan
from kseg.errors import KsegError, LimitError
from kseg.format.segment import several_processes
from kseg.format.sidefiles.indexes import AbortedTxn
from kseg.format.writer.records_builder import PlainRecord, build_batch, build_message, build_wrapper
from tests.support import damage
from tests.support.cli import invoke
from tests.support.fixtures import FOLDERS, SEGMENTS
from tests.support.fuzzing import cases
from tests.support.index_entries import read_txn_index
from tests.support.records import NOW

TRANSACTIONAL = [folder for folder in FOLDERS if any(path.stat().st_size for path in folder.glob("*.txnindex"))]
TRANSACTIONS = SEGMENTS / "4.3.0-v2-none-transactions"


class _Log:
    """Writes the segments of a random partition with transactions of several producers that overlap."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._next = 0
        self._sequences = dict.fromkeys(range(1, random.randrange(2, 6)), 0)
        self._open: set[int] = set()

    def write(self, folder: Path) -> None:
        random = self._random
        folder.mkdir()
        old = random.choice((0, 0, 1, 2))  # segments that begin with v0 and v1
        for number in range(random.randrange(1, 5)):
            log = folder / f"{self._next:020}.log"
            parts = [self._old_batch() for _ in range(random.randrange(1, 9))] if number < old else []
            if number + 1 >= old:
                parts += [self._batch() for _ in range(random.randrange(1, 60))]
            log.write_bytes(b"".join(parts))

    def _records(self, count: int, *, timed: bool = True) -> list[PlainRecord]:
        first, self._next = self._next, self._next + count
        return [
            PlainRecord(offset, b"k", b"v" * 50, NOW + offset if timed else -1) for offset in range(first, self._next)
        ]

    def _old_batch(self) -> bytes:
        magic = self._random.randrange(2)
        records = self._records(self._random.randrange(1, 5), timed=bool(magic))
        if self._random.random() < 0.5:
            return build_wrapper(records, magic=magic, compression="gzip")
        return b"".join(build_message(record, magic=magic) for record in records)

    def _batch(self) -> bytes:
        producer = self._random.choice(list(self._sequences))
        if self._random.random() < 0.3 and (self._open or self._random.random() < 0.1):
            return self._marker(self._random.choice(sorted(self._open) or [producer]))
        transactional = producer in self._open or self._random.random() < 0.7
        if transactional:
            self._open.add(producer)
        records = self._records(self._random.randrange(1, 5))
        sequence = self._sequences[producer]
        self._sequences[producer] += len(records)
        return build_batch(
            records, compression=self._random.choice(("none", "gzip")), producer_id=producer, producer_epoch=0,
            base_sequence=sequence, transactional=transactional, partition_leader_epoch=0,
        )  # fmt: skip

    def _marker(self, producer: int) -> bytes:
        self._open.discard(producer)
        (offset,) = [record.offset for record in self._records(1)]
        marker = PlainRecord(offset, b"\0\0\0" + bytes([self._random.random() < 0.4]), bytes(6), NOW + offset)
        return build_batch(
            [marker], producer_id=producer, producer_epoch=0, transactional=True, control=True, partition_leader_epoch=0
        )


def _damage(random: Random, folder: Path) -> None:
    """Remove, cut, overwrite or exchange some of the transaction indexes."""
    for index in sorted(folder.glob("*.txnindex")):
        data = index.read_bytes()
        at = random.randrange(len(data))
        kind = random.randrange(6)
        if kind == 0:
            index.unlink()
        else:
            index.write_bytes(
                (data, data[:at], data[34:], data[:at] + random.randbytes(3) + data[at + 3 :], data * 2)[kind - 1]
            )
    if random.random() < 0.3:
        log = random.choice(sorted(folder.glob("*.log")))
        log.with_suffix(".txnindex").write_bytes(AbortedTxn(1, 3, 9, 10).pack())


def indexes(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.txnindex")}


def errors_of(path: Path) -> list[str]:
    """Return the errors that ``kseg validate`` reports."""
    done = invoke("validate", "--format", "jsonl", path)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert rows[-1]["kind"] == "summary"
    return [f"{row['file']}: {row['message']}" for row in rows if row.get("severity") in ("error", "fatal")]


@pytest.mark.slow
@pytest.mark.fuzz
def test_random_transactions_have_the_index_that_repair_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sources without transaction indexes, with right and with damaged ones, are converted to the same index."""
    monkeypatch.setattr(several_processes, "RANGE_SIZE", 3_000)
    monkeypatch.setattr(several_processes, "SEARCH_REACH", 3_000)
    aborted = 0
    for case in range(cases(25)):
        random, home = Random(case), tmp_path / str(case)
        home.mkdir()
        source, repaired, target = (home / name for name in ("in-0", "repaired-0", "out-0"))
        _Log(random).write(source)
        repair(str(source), str(repaired), RepairPlan())
        wanted = indexes(repaired)
        aborted += sum(map(len, wanted.values()))
        if case % 3:
            shutil.copytree(repaired, source, dirs_exist_ok=True)
        if case % 3 == 2:
            _damage(random, source)
        plan = ConversionPlan.of(
            "any-to-v2", compression=random.choice(("keep", "lz4")), rebatch=random.choice((None, None, 500))
        )
        jobs = random.choice((1, 1, 1, 3)) if case % 8 else 3
        convert(str(source), str(target), plan, jobs=jobs)
        assert indexes(target) == wanted, case
        assert errors_of(target) == [], case
        if case % 3 == 1:
            for log in source.glob("*.log"):
                convert(str(log), str(home / log.name), plan)
            assert indexes(home) == wanted, case
        shutil.rmtree(home)
    assert aborted > 34


@pytest.mark.fuzz
def test_skipped_batches_are_not_in_the_index(tmp_path: Path) -> None:
    """Without the damaged batches, among them data and markers of transactions, the index fits those that are left."""
    skipped = 0
    for case in range(cases(8)):
        random, home = Random(case), tmp_path / str(case)
        home.mkdir()
        source, target, logs, repaired = (home / name for name in ("in-0", "out-0", "logs-0", "repaired-0"))
        _Log(random).write(source)
        for log in dict.fromkeys(random.choices(sorted(source.glob("*.log")), k=3)):
            data = log.read_bytes()
            at = random.randrange(len(data))
            log.write_bytes(random.choice((damage.flip(data, at), data[:at] + data[at + 90 :], data[: at + 1])))
        try:
            result = convert(str(source), str(target), ConversionPlan.of("any-to-v2", skip_damaged=True))
        except KsegError:
            continue  # offsets that do not fit the segment
        skipped += sum(segment.lost_bytes for segment in result.segments)
        shutil.copytree(target, logs, ignore=lambda _, names: [name for name in names if not name.endswith(".log")])
        repair(str(logs), str(repaired), RepairPlan())
        assert indexes(target) == indexes(repaired), case
        shutil.rmtree(home)
    assert skipped


@pytest.mark.parametrize("folder", TRANSACTIONAL, ids=lambda folder: folder.name)
@pytest.mark.parametrize("kept", ["*.log", "*.log *.snapshot", "*"])
def test_the_index_is_the_brokers(folder: Path, kept: str, tmp_path: Path) -> None:
    """The index built from the batches equals the broker's, also without its side files."""
    source, target = tmp_path / "in-0", tmp_path / "out-0"
    source.mkdir()
    for path in {path for pattern in kept.split() for path in folder.glob(pattern)}:
        shutil.copy(path, source)
    convert(str(source), str(target), ConversionPlan.of("v2-to-v2", compression="lz4"))
    assert indexes(target) == {name: data for name, data in indexes(folder).items() if data}
    assert errors_of(target) == []


def test_a_transaction_that_began_before_the_first_segment(tmp_path: Path) -> None:
    """A snapshot or the source's own index shows where it began. An entry that contradicts the log is not used."""
    log = TRANSACTIONS / f"{17:020}.log"
    index = log.with_suffix(".txnindex").read_bytes()
    plan = ConversionPlan.of("v2-to-v2", compression="gzip", force=True)
    source, target = tmp_path / log.name, tmp_path / "out" / log.name
    target.parent.mkdir()
    shutil.copy(log, source)
    own, written = source.with_suffix(".txnindex"), target.with_suffix(".txnindex")
    began = next(txn for txn in read_txn_index(index) if txn.first_offset < 17)
    own.write_bytes(index)
    convert(str(source), str(target), plan)
    assert written.read_bytes() == index
    own.write_bytes(index.replace(began.pack(), began._replace(last_offset=began.last_offset + 1).pack()))
    convert(str(source), str(target), plan)
    assert began not in read_txn_index(written.read_bytes())
    shutil.copy(log.with_suffix(".snapshot"), source.with_suffix(".snapshot"))
    convert(str(source), str(target), plan)
    assert written.read_bytes() == index


def test_an_index_that_cannot_be_built_leaves_no_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log without its transaction index must not look like a finished conversion."""

    def fail(*_: object) -> list[Conversion]:
        raise LimitError("too many open transactions")

    monkeypatch.setattr(convert_module, "write_txn_indexes", fail)
    log = TRANSACTIONS / f"{17:020}.log"
    for source, target in ((log, tmp_path / log.name), (TRANSACTIONS, tmp_path / "out-0")):
        with pytest.raises(LimitError):
            convert(str(source), str(target), ConversionPlan.of("any-to-v2"))
    assert list(tmp_path.iterdir()) == []
