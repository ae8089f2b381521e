"""Which leader epochs the batches of replicas have, and where a replica leaves the history of the first one, by hand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from kseg.commands.repair.damaged_replicas import DamagedReplica, ReplicaBatch, end_other_histories, settle_epochs
from kseg.commands.repair.repair_losses import LostRange
from kseg.format.sidefiles.checkpoints import LeaderEpoch


class Replica(DamagedReplica):
    """A replica in memory: each offset with an epoch is a batch."""

    given: Sequence[ReplicaBatch] = ()

    def batches(self) -> Iterator[ReplicaBatch]:
        return (one for one in self.given if one.last_offset < self.end)


def replica(
    path: str,
    epochs: Sequence[int | None],
    *,
    content: int = 0,
    doubtful: Sequence[int] = (),
    stored: Sequence[tuple[int, int]] | None = None,
) -> Replica:
    """Return a replica whose batch at offset n has the n-th epoch, None without such a batch."""
    found = Replica(path, Path(path))
    found.given = [
        ReplicaBatch(n, n, 80, 1000 * content + n, epoch, Path(path), 80 * n, 1, False, False)
        for n, epoch in enumerate(epochs)
        if epoch is not None
    ]
    found.end = len(epochs)
    found.doubtful = [LostRange(path, 0, 0, n, n, "leader-epoch-regression", "") for n in doubtful]
    found.stored = None if stored is None else [LeaderEpoch(*one) for one in stored]
    return found


def settled(*replicas: Replica) -> list[list[int]]:
    """Return the epochs of the batches of each replica."""
    settle_epochs(replicas)
    return [[one.epoch_of.get((batch.path, batch.position), batch.epoch) for batch in one.given] for one in replicas]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([[1, 1, 1], [1, 1, 1]], [[1, 1, 1]] * 2),
        ([[1, 1, 1], [1, 7, 1], [1, 1, 1]], [[1, 1, 1]] * 3),
        ([[1, 7, 1], [1, 7, 1], [1, 1, 1]], [[1, 7, 1]] * 3),
        ([[1, 7, 1], [1, 1, 1]], [[1, 1, 1]] * 2),  # of two, the lower one
        ([[1, None, 1], [1, 7, 1]], [[1, 1], [1, 7, 1]]),
    ],
)
def test_most_replicas_decide_about_an_epoch(given: list[list[int | None]], expected: list[list[int]]) -> None:
    """No CRC covers it."""
    for order in (given, given[::-1]):
        found = settled(*(replica(f"r{n}", epochs) for n, epochs in enumerate(order)))
        assert sorted(found) == sorted(expected)


def test_a_corrected_epoch_and_another_batch_have_no_vote() -> None:
    """A repair has guessed the one; the other is of another history."""
    assert settled(replica("a", [1, 5], doubtful=[1]), replica("b", [1, 7])) == [[1, 7], [1, 7]]
    assert settled(replica("a", [1, 5], doubtful=[1]), replica("b", [1, 7], doubtful=[1])) == [[1, 5], [1, 7]]
    assert settled(replica("a", [1, 5], doubtful=[0]), replica("b", [1, 7])) == [[1, 5], [1, 5]]
    assert settled(replica("a", [1, 5]), replica("b", [1, 7], content=1)) == [[1, 5], [1, 7]]


def test_an_epoch_begins_after_the_last_batch_before_it() -> None:
    """And not after its first batch: between them, lost batches can have it."""
    one = replica("a", [0, 0, None, None, 2, 2, 3], stored=[(0, 0), (2, 3), (3, 6)])
    settle_epochs([one])
    assert one.starts == {0: (0, 0), 2: (2, 4), 3: (6, 6)}
    assert one.epochs.entries == [LeaderEpoch(0, 0), LeaderEpoch(2, 3), LeaderEpoch(3, 6)]


#: The epochs of the first replica and of another one -> where the latter ends, and which of its offsets are a loss.
HISTORIES: list[tuple[list[int | None], list[int | None], int | None, list[tuple[int, int]]]] = [
    ([0, 0, 0], [0, 0, 0], None, []),
    ([0, 0, 0], [0, 0], None, []),
    ([0, 0], [0, 0, 0], None, []),  # more of the same epoch
    ([0, 0, 2, 2], [0, 0, 1, 1], 2, []),  # the unclean leader of epoch 2 had not these
    ([0, 0, 2, 2], [0, 0, 0, 0], 2, []),
    ([0, 2, 2, 2], [0, 0, 1, 1], 1, []),
    ([0, 0, 0, 0], [0, 0, 3, 3], 2, [(2, 3)]),  # a later epoch than the preferred one
    ([0, 0], [0, 0, 3, 3], None, []),  # it continues the first one
    ([0, 0, None, 2], [0, 0, 0], 2, [(2, 2)]),  # the batch that is lost can be of either
    ([0, 0, None, 2], [0, 0, 0, 2], None, []),
    ([0, 0, None, 2], [0, 0, None, 2], None, []),
]


@pytest.mark.parametrize(("first", "other", "end", "lost"), HISTORIES, ids=str)
def test_a_replica_ends_where_its_history_does(
    first: list[int | None], other: list[int | None], end: int | None, lost: list[tuple[int, int]]
) -> None:
    """Kafka truncates a follower to there (KIP-101)."""
    replicas = [replica("a", first), replica("b", other, content=1)]
    same = {n for n, epoch in enumerate(other) if first[n : n + 1] == [epoch]}
    replicas[1].given = [
        one._replace(crc=one.base_offset) if one.base_offset in same else one for one in replicas[1].given
    ]
    settle_epochs(replicas)
    before = replicas[1].end
    found = end_other_histories(replicas)
    assert replicas[1].end == (before if end is None else end)
    assert [(one.offset, one.last_offset) for one in replicas[1].left_out] == lost
    assert found == ({} if end is None or (lost and first[2] is None) else {"b": end})


def test_a_checkpoint_shows_where_an_epoch_began() -> None:
    """Of any replica, if no batch contradicts it."""
    for stored, end in (([(0, 0), (2, 3)], 3), ([(0, 0), (2, 2)], 2), ([(0, 0), (2, 1)], 2)):
        for holder in (0, 1):
            replicas = [
                replica("a", [0, 0, None, None, 2], stored=None if holder else stored),
                replica("b", [0, 0, 0, 0], content=1),
                replica("c", [0, 0, None, None, 2], stored=stored if holder else None),
            ]
            settle_epochs(replicas)
            end_other_histories(replicas)
            assert replicas[1].end == end, (stored, holder)
