"""`kseg diff` compares the producers of records: their transactions and sequences decide what consumers and brokers do."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

from kseg.format.record.layout import CONTROL, DELETE_HORIZON, INT32_MAX, LOG_APPEND_TIME, TRANSACTIONAL
from kseg.format.writer.records_builder import build_batch
from tests.support import damage
from tests.support.compared_replicas import batch, diff, differences, record, write
from tests.support.fuzzing import cases

pytestmark = pytest.mark.slow

PRODUCER: dict[str, Any] = {"producer_id": 7, "producer_epoch": 2, "transactional": True}
TRANSACTION = [
    batch([record(n) for n in range(4)], base_sequence=10, **PRODUCER),
    batch([record(4)], base_sequence=-1, control=True, **PRODUCER),
]


@pytest.mark.parametrize("altered", [0, 1], ids=["data", "marker"])
@pytest.mark.parametrize(
    ("field", "flipped", "difference", "detail"),
    [
        ("producer_id", 1, "content", "producer_id"),
        ("producer_epoch", 1, "content", "producer_epoch"),
        ("base_sequence", 8, "content", "sequence"),
        ("attributes", TRANSACTIONAL, "content", "transactional"),
        ("attributes", CONTROL, "content", "control"),
        ("attributes", LOG_APPEND_TIME, "content", "timestamp_type"),
        ("partition_leader_epoch", 1, "leader-epoch", "0 and 1"),
        # The log cleaner of each broker sets the horizon.
        ("attributes", DELETE_HORIZON, "batching", "different bytes"),
    ],
)
def test_each_field_of_the_header_that_followers_copy(
    field: str, flipped: int, difference: str, detail: str, altered: int, tmp_path: Path
) -> None:
    """Only this field differs, with a valid CRC: it is a divergence if Kafka keeps the field, also with another codec."""
    changed = [*TRANSACTION]
    value = damage.get(changed[altered], 0, field)
    # A marker has no sequence, -1: any other value differs.
    changed[altered] = damage.alter(changed[altered], 0, **{field: 8 if value == -1 else value ^ flipped})
    code, rows, outcome = diff(write(tmp_path / "a", TRANSACTION), write(tmp_path / "b", changed))
    first, last = (0, 3) if altered == 0 else (4, 4)
    assert differences(rows) == [(difference, None, first, last)]
    assert detail in rows[0]["detail"]
    assert (code, outcome["verdict"]) == ((1, "diverged") if difference == "content" else (0, "same"))


class _Sent(NamedTuple):
    """A record with what its producer sent with it."""

    value: bytes
    producer: tuple[int, int, bool]
    sequence: int


def _log(random: Random) -> dict[int, _Sent]:
    """Return the records of some producers by offset. Sequences go on at 0 after the largest one."""
    found: dict[int, _Sent] = {}
    while len(found) < 40:
        producer = random.choice(((-1, -1, False), (7, 0, False), (7, 1, True), (8, 0, True)))
        sequence = random.choice((0, 1000, INT32_MAX - 3))
        for n in range(random.randrange(1, 12)):
            number = (sequence + n) & INT32_MAX if producer[0] >= 0 else -1
            found[len(found)] = _Sent(random.choice((b"x", b"y")), producer, number)
    return found


def _batches(random: Random, log: dict[int, _Sent]) -> list[bytes]:
    """Cut a log into random batches, each with one producer and without a jump of its sequences."""
    found: list[bytes] = []
    offsets = sorted(log)
    while offsets:
        first = log[offsets[0]]
        size = 1
        for offset in offsets[1 : random.randrange(2, 9)]:
            expected = (first.sequence + offset - offsets[0]) & INT32_MAX if first.sequence >= 0 else -1
            if (log[offset].producer, log[offset].sequence) != (first.producer, expected):
                break
            size += 1
        producer_id, epoch, transactional = first.producer
        found.append(
            build_batch(
                [record(offset, log[offset].value) for offset in offsets[:size]],
                compression=random.choice(("none", "none", "lz4", "zstd")),
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=first.sequence,
                transactional=transactional,
            )
        )
        offsets = offsets[size:]
    return found


@pytest.mark.fuzz
def test_records_in_other_batches_are_equal_if_their_producers_are(tmp_path: Path) -> None:
    """The difference is that of two dictionaries, however batches are cut, compressed and cleaned."""
    outcomes = set()
    for case in range(cases(60)):
        random = Random(case)
        a = _log(random)
        b = dict(a)
        for offset in random.sample(sorted(b), random.choice((0, 0, 1, 5))):
            producer = random.choice(((-1, -1, False), (7, 0, False), (7, 1, True), (8, 0, True)))
            b[offset] = b[offset]._replace(producer=producer, sequence=-1 if producer[0] < 0 else random.choice((0, 5)))
        for offset in random.sample(sorted(b)[1:-1], random.choice((0, 0, 4))):
            del b[offset]
        home = tmp_path / str(case)
        code, rows, outcome = diff(
            write(home / "a", _batches(random, a)), write(home / "b", _batches(random, b)), "--limit", "1000"
        )
        changed = [offset for offset in b if b[offset] != a[offset]]
        assert outcome["counts"]["content"] == len(changed), case
        assert outcome["first_difference"] == min(changed, default=None), case
        contents = [row for row in rows if row["difference"] == "content"]
        found = {n for row in contents for n in range(row["first_offset"], row["last_offset"] + 1)}
        assert found & b.keys() == {*changed}, case
        assert code == (a != b), case
        outcomes.add(outcome["verdict"])
    assert outcomes == {"same", "consistent", "diverged"}


def test_empty_batches_of_other_producers(tmp_path: Path) -> None:
    """The log cleaner keeps an empty batch for the next sequence of its producer: no record differs, but brokers do."""
    empty = build_batch([], base_offset=0, last_offset=3, producer_id=7, producer_epoch=0, base_sequence=5)
    other = damage.alter(empty, 0, producer_id=8)
    code, rows, outcome = diff(
        write(tmp_path / "a", [empty, batch([record(4)])]), write(tmp_path / "b", [other, batch([record(4)])])
    )
    assert (code, outcome["verdict"], outcome["counts"]["content"]) == (1, "diverged", 0)
    assert differences(rows) == [("content", None, 0, 3)]
    assert rows[0]["detail"] == "producer_id"
