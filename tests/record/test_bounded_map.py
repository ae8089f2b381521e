"""Bounded tables of producers: which entries they keep, which they drop, and that they never invent one."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from kseg.errors import LimitError
from kseg.format.record.offset_evidence import LIMIT, BoundedMap
from kseg.format.sidefiles import indexes
from kseg.format.sidefiles.indexes import AbortedTransactions
from kseg.format.sidefiles.producer_snapshot import ProducerState, packed
from kseg.format.writer.records_builder import PlainRecord, build_batch

LOG = "00000000000000000000.log"


def test_the_last_ones_are_known_and_no_more_than_twice_as_many_are_held() -> None:
    """After any sequence of updates the last LIMIT numbers are known with their last values, and memory is bounded."""
    table, noted = BoundedMap(), dict[int, int]()
    chosen = random.Random(13)
    for i in range(4 * LIMIT):
        number = chosen.randrange(2 * LIMIT)
        table.put(number, i)
        noted.pop(number, None)
        noted[number] = i
    assert table.forgot
    assert len(table.young) + len(table.old) <= 2 * LIMIT
    for number in list(noted)[-LIMIT:]:
        assert table.get(number) == noted[number]
    assert all(noted[number] == value for number, value in table.all().items())


def test_nothing_is_forgotten_up_to_the_limit() -> None:
    """Up to the limit, all numbers are known, in any order and however often they are updated."""
    table = BoundedMap()
    for turn in range(3):
        for number in range(LIMIT):
            table.put(number, turn)
    assert not table.forgot
    assert not table.old
    assert len(table.all()) == LIMIT


def test_a_number_is_removed_from_both_tables() -> None:
    """Also one that was stored long ago; a copy has its own numbers, and forgetting all of them is remembered."""
    table = BoundedMap()
    table.forget()
    assert not table.forgot, "it had none"
    for number in range(LIMIT + 2):
        table.put(number, -number)
    assert (len(table.old), len(table.young), table.forgot) == (LIMIT, 2, False)
    table.put(0, 7)  # in both
    copy = table.copy()
    for number in (0, 1, LIMIT, LIMIT + 9):
        table.drop(number)
    assert [table.get(number) for number in (0, 1, 2, LIMIT, LIMIT + 1)] == [None, None, -2, None, -LIMIT - 1]
    assert len(table.all()) == LIMIT - 1
    assert [copy.get(number) for number in (0, 1, LIMIT)] == [7, -1, -LIMIT]
    assert (len(copy.all()), copy.forgot) == (LIMIT + 2, False)
    copy.forget()
    assert (copy.all(), copy.forgot) == ({}, True)


def transactional(producer_id: int, offset: int) -> bytes:
    return build_batch(
        [PlainRecord(offset, b"k", b"v", 1)], base_offset=offset, producer_id=producer_id, producer_epoch=0,
        base_sequence=0, transactional=True,
    )  # fmt: skip


def kseg(*arguments: object) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "kseg", *map(str, arguments)], capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.slow
def test_more_open_transactions_than_the_limit_are_reported(tmp_path: Path) -> None:
    """validate reports the transactions that it does not compare; other commands report open transactions;

    all tables are bounded.
    """
    folder = tmp_path / "t-0"
    folder.mkdir()
    (folder / LOG).write_bytes(b"".join(transactional(i, i) for i in range(LIMIT + 2)))
    (folder / LOG).with_suffix(".txnindex").touch()
    code, out, _ = kseg("validate", "--format", "jsonl", folder)
    assert code == 0
    limits = [row for row in map(json.loads, out.splitlines()) if row.get("rule") == "limit-reached"]
    assert {row["facts"]["what"] for row in limits} == {"open transactions", "producers"}
    code, out, error = kseg("transactions", "--format", "jsonl", folder)
    assert code == 2
    assert "transactions are open at once" in error
    assert '"last_stable_offset":0,' in out
    # They can also be open by the newest snapshot alone: the cleaner removes the records of a transaction that ended.
    (folder / LOG).write_bytes(transactional(0, 0) + transactional(1, LIMIT))
    states = (ProducerState(number, 0, 0, 1, 0, 1, -1, number) for number in range(LIMIT + 2))
    (folder / f"{LIMIT + 1:020}.snapshot").write_bytes(packed(states))
    code, out, error = kseg("transactions", "--format", "jsonl", folder)
    assert (code, error.count("transactions are open at once")) == (2, 1)


def test_an_index_is_not_built_of_half_of_the_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    """If not all open transactions can be followed, the last stable offset is unknown: this is an error."""
    monkeypatch.setattr(indexes, "MAX_OPEN", 3)
    transactions = AbortedTransactions()
    for producer in range(3):
        transactions.begin(producer, 10 - producer)
    with pytest.raises(LimitError):
        transactions.begin(3, 20)
    assert [entry.last_stable_offset for entry in transactions._end(2, 30, True)] == [9]
    assert [entry.last_stable_offset for entry in transactions._end(0, 31, True)] == [9]
    assert [entry.last_stable_offset for entry in transactions._end(1, 32, True)] == [33]
