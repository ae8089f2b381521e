"""Replicas of a partition after leader changes, each then damaged: the result is of the history that Kafka continues.

A simulation of a leader, its followers and brokers that are down: a follower truncates its log to where it differs from
that of the leader (KIP-101, KIP-279), a broker that is down keeps a stale end. What the damage leaves shows a latest leader
epoch, and its leader had the history.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

from kseg.format.writer.records_builder import PlainRecord, build_batch
from tests.support.cli import invoke
from tests.support.damage import batches_of
from tests.support.fuzzing import cases
from tests.support.records import NOW


@dataclass(frozen=True)
class Batch:
    """A batch of the simulation. Its values name its epoch, so two batches of different epochs differ."""

    first: int
    last: int
    epoch: int

    def data(self) -> bytes:
        word = b"epoch %d\0" % self.epoch
        records = [PlainRecord(n, b"k%d" % n, word, NOW + n) for n in range(self.first, self.last + 1)]
        return build_batch(records, base_offset=self.first, last_offset=self.last, partition_leader_epoch=self.epoch)


@dataclass
class Broker:
    """The log and the checkpoint of a replica."""

    log: list[Batch] = field(default_factory=list)
    starts: dict[int, int] = field(default_factory=dict)
    online: bool = True

    @property
    def end(self) -> int:
        return self.log[-1].last + 1 if self.log else 0

    def append(self, batch: Batch) -> None:
        if batch.epoch > max(self.starts, default=-1):
            self.begin(batch.epoch, batch.first)
        self.log.append(batch)

    def begin(self, epoch: int, start: int) -> None:
        """Add an entry: an epoch without records that begins there, too, is replaced (``LeaderEpochFileCache.assign``)."""
        self.starts = {one: at for one, at in self.starts.items() if at < start} | {epoch: start}

    def follow(self, leader: Broker, count: int) -> None:
        """Truncate to the history of the leader, and fetch ``count`` batches."""
        same = 0
        while same < min(len(self.log), len(leader.log)) and self.log[same] == leader.log[same]:
            same += 1
        if same < len(self.log):
            del self.log[same:]
            self.starts = {one: at for one, at in self.starts.items() if at < self.end}
        for batch in leader.log[same : same + count]:
            self.append(batch)


class Cluster:
    """A partition whose leader changes. ``histories`` has, by leader epoch, the log of its leader until the next change."""

    def __init__(self, random: Random) -> None:
        self.brokers = [Broker() for _ in range(random.choice((2, 2, 3)))]
        self.histories: dict[int, list[Batch]] = {}
        self.epoch = -1
        self.high_watermark = 0
        self.in_sync = [*self.brokers]
        self._random = random
        self._elect(unclean=False)
        for _ in range(random.randrange(15, 50)):
            self._step()

    def _step(self) -> None:
        random = self._random
        what = random.random()
        if what < 0.45:
            first = self.leader.end
            self.leader.append(Batch(first, first + random.randrange(3), self.epoch))
            self.histories[self.epoch] = [*self.leader.log]
        elif what < 0.75:
            broker = random.choice(self.brokers)
            if broker.online and broker is not self.leader:
                broker.follow(self.leader, random.randrange(1, 5))
        elif what < 0.85:
            broker = random.choice(self.brokers)
            if broker is not self.leader:
                broker.online = not broker.online
        else:
            self._elect(unclean=random.random() < 0.15)
        self._commit()

    def _commit(self) -> None:
        """Shrink or expand the replicas in sync, and advance the high watermark to the lowest end of them."""
        one = self._random.choice(self.brokers)
        if one.log[: len(self.leader.log)] == self.leader.log and one.online and one not in self.in_sync:
            self.in_sync.append(one)
        self.in_sync = [each for each in self.in_sync if each is self.leader or each.online]
        ends = [sum(1 for a, b in zip(each.log, self.leader.log, strict=False) if a == b) for each in self.in_sync]
        self.high_watermark = max(self.high_watermark, min(ends))

    def _elect(self, *, unclean: bool) -> None:
        online = [one for one in (self.brokers if unclean else self.in_sync) if one.online]
        if not online:
            return
        self.leader = self._random.choice(online)
        if unclean:
            self.in_sync = [self.leader]
            self.high_watermark = min(self.high_watermark, len(self.leader.log))
        self.epoch += 1
        self.leader.begin(self.epoch, self.leader.end)
        self.histories[self.epoch] = [*self.leader.log]

    @property
    def committed(self) -> list[Batch]:
        """The batches that a consumer could have read."""
        return self.leader.log[: self.high_watermark]


@dataclass
class Damaged:
    """What damage left of a replica: its valid batches and the epochs of its checkpoint."""

    left: list[Batch]
    starts: dict[int, int]

    @property
    def latest(self) -> int:
        return max((*self.starts, *(one.epoch for one in self.left)), default=-1)


def _write(random: Random, broker: Broker, folder: Path) -> Damaged:
    """Write the log of a broker, and cut it, flip a bit in some batches or delete its checkpoint."""
    folder.mkdir(parents=True)
    batches, kept = [bytearray(one.data()) for one in broker.log], [*broker.log]
    for _ in range(random.choice((0, 0, 1, 1, 3))):
        if batches:
            at = random.randrange(len(batches))
            batches[at][random.randrange(21, len(batches[at]))] ^= 1 << random.randrange(8)
            kept[at] = Batch(-1, -1, -1)
    torn = b""
    if random.random() < 0.5:
        stop = random.randrange(len(batches) + 1)
        if stop < len(batches) and random.random() < 0.5:
            torn = bytes(batches[stop][: random.randrange(len(batches[stop]))])
        del batches[stop:], kept[stop:]
    (folder / f"{0:020}.log").write_bytes(b"".join(batches) + torn)
    starts = {} if random.random() < 0.25 else broker.starts
    if starts:
        lines = ["0", str(len(starts)), *(f"{epoch} {start}" for epoch, start in starts.items())]
        (folder / "leader-epoch-checkpoint").write_text("\n".join(lines) + "\n")
    return Damaged([one for one in kept if one.epoch >= 0], starts)


def _batches(folder: Path) -> list[Batch]:
    """Return the batches of an undamaged log. Their epochs are those that the values name."""
    found = []
    for data in batches_of(folder):
        first, delta = int.from_bytes(data[:8]), int.from_bytes(data[23:27])
        epoch = int(data.partition(b"epoch ")[2].partition(b"\0")[0])
        batch = Batch(first, first + delta, epoch)
        assert data == batch.data()
        found.append(batch)
    return found


@pytest.mark.slow
@pytest.mark.fuzz
def test_no_record_of_a_history_that_an_epoch_excludes(tmp_path: Path) -> None:
    """The result has only records of the latest epoch's history, and each committed one of it that a replica has whole."""
    stale = cut = 0
    for case in range(cases(60)):
        random, home = Random(case), tmp_path / str(case)
        cluster = Cluster(random)
        folders = [home / str(n) / "t-0" for n in range(len(cluster.brokers))]
        damaged = [_write(random, *each) for each in zip(cluster.brokers, folders, strict=True)]
        latest = max(one.latest for one in damaged)
        if not any(one.left for one in damaged):
            continue
        done = invoke("repair", "--format", "jsonl", *folders, home / "t-0")
        history = cluster.histories[latest]
        readable = {batch for one in damaged for batch in one.left}
        if done.exit_code == 2:
            assert not readable & {*history}, (case, done.stderr)
            assert "no replica has a valid batch" in done.stderr, (case, done.stderr)
            continue
        found = _batches(home / "t-0")
        assert [one for one in found if one not in history] == [], case
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        lost = [(row["offset"], row["last_offset"]) for row in rows if row["kind"] == "lost"]
        for batch in {*cluster.committed} & {*history} & readable - {*found}:
            named = any(
                low is not None and low <= batch.first and (high or batch.last) >= batch.last for low, high in lost
            )
            assert (named, done.exit_code) == (True, 1), (case, batch, lost)
        holes = [one for one in history if found and one.last < found[-1].first and one not in found]
        assert not holes or done.exit_code == 1, (case, holes)
        stale += any(batch not in history for batch in readable)
        cut += any("no replica has a batch of it" in row.get("why", "") for row in rows)
        shutil.rmtree(home)
    assert stale > 5
    assert cut > 0
