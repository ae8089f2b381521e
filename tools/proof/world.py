"""The life of a partition from a seed: Kafka's own classes write, truncate, compact, crash and load; kseg must agree.

A world has two replicas, and a list of steps, each with its own random numbers: a step that is left out changes no other.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from kseg.format.log_loader.recovery_plan import BrokerStart
from tools.lab.load_log import LoadLog
from tools.proof import world_checks
from tools.proof.world_checks import Disagreement

TOPIC, TOPIC_ID = "orders-0", "PMvcIbWpT9WLyUYLvwcXYQ"
FIRST_TIME = 1_700_000_000_000
CODECS = ("none", "none", "gzip", "snappy", "lz4", "zstd")


class Step(NamedTuple):
    number: int
    kind: str


#: How often a step is drawn.
WEIGHTS = {
    "append": 40, "transact": 22, "end": 12, "fetch": 10, "roll": 3, "flush": 4, "elect": 4, "crash": 3, "restart": 2,
    "clean": 4, "delete_records": 2, "retain": 3, "snapshot": 1, "tasks": 5, "renew": 2, "wait": 3, "damage": 3,
    "read_error": 1, "convert": 1,
}  # fmt: skip


def steps_of(seed: int, count: int) -> list[Step]:
    """Return the steps of a world."""
    kinds = random.Random(f"steps {seed}").choices(list(WEIGHTS), list(WEIGHTS.values()), k=count)
    return [Step(number, kind) for number, kind in enumerate(kinds)]


@dataclass(slots=True)
class Producer:
    epoch: int = 0
    sequence: int = 0
    open: bool = False


@dataclass(slots=True)
class Replica:
    """A replica's folder, and what its broker has on disk for certain: ``synced`` are the sizes at the last flush."""

    log_dir: Path
    recovery_point: int = 0
    log_start: int = 0
    log_end: int = 0
    first_dirty: int = 0
    synced: dict[str, int] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        return self.log_dir / TOPIC

    def update(self, answer: dict[str, Any], recovery_point: int) -> None:
        """Take over the offsets of an answer. What is below a new recovery point is on disk; a truncation cuts that, too."""
        if recovery_point != self.recovery_point or answer["log_end"] < self.log_end:
            sizes = {path.name: path.stat().st_size for path in self.folder.glob("*.log")}
            for name, size in sizes.items():
                known = size if int(name[:20]) < recovery_point > self.recovery_point else self.synced.get(name, 0)
                self.synced[name] = min(size, known)
        self.recovery_point, self.log_start, self.log_end = recovery_point, answer["log_start"], answer["log_end"]
        self.first_dirty = min(self.first_dirty, self.log_end)


class World:
    """``run`` executes steps; it raises Disagreement where kseg and Kafka differ."""

    def __init__(self, seed: int, kafka: LoadLog, root: Path) -> None:
        self.seed, self.kafka, self.root = seed, kafka, root
        chance = random.Random(f"world {seed}")
        self.compacted = chance.random() < 0.4
        self.magic = chance.choice((2, 2, 2, 2, 2, 1, 0))
        self.had_old_formats = self.magic < 2
        self.transactions_v2 = chance.random() < 0.4
        self.config = {
            "internal.segment.bytes": chance.choice((1_500, 4_000, 12_000, 40_000)),
            "cleanup.policy": "compact" if self.compacted else "delete",
            "retention.ms": chance.choice((-1, 3_600_000)),
            "retention.bytes": chance.choice((-1, 30_000)),
            "delete.retention.ms": chance.choice((0, 60_000)),
            "message.timestamp.type": chance.choice(("CreateTime", "CreateTime", "LogAppendTime")),
            "compression.type": chance.choice(("producer", "producer", "producer", "zstd", "uncompressed")),
            "message.timestamp.after.max.ms": 1 << 60,
        }
        self.start = BrokerStart(False, 0, 0, chance.choice((0, 200, 4096)), 1 << 16)
        self.now, self.epoch = FIRST_TIME, 0
        self.producers = {number: Producer() for number in range(1_000, 1_005)}
        self.replicas = [Replica(root / name) for name in ("one", "two")]
        self.rejected = self.steps = 0
        for replica in self.replicas:
            self._create(replica)
        self._ask(self.leader, "epoch", epoch=0)

    @property
    def leader(self) -> Replica:
        return self.replicas[0]

    def run(self, steps: Sequence[Step], every: int, checked: Callable[[World, Replica], None]) -> None:
        """Execute the steps; after each ``every`` of them, and after the last one, both replicas are ``checked``."""
        for count, step in enumerate(steps, 1):
            self.steps = count
            self.now += 10
            getattr(self, step.kind)(random.Random(f"{self.seed} {step.number}"))
            if count % every == 0 or count == len(steps):
                for replica in self.replicas:
                    checked(self, replica)

    # --- requests to Kafka ---

    def _create(self, replica: Replica) -> None:
        replica.folder.mkdir(parents=True)
        self._load(replica, self.start, topic_id=TOPIC_ID)

    def _load(self, replica: Replica, start: BrokerStart, **more: Any) -> dict[str, Any]:
        answer = self.kafka.load(replica.folder, start, keep=True, config=self.config, now=self.now, **more)
        if "failure" not in answer:
            replica.update(answer, min(start.recovery_point, answer["log_end"]))
        return answer

    def _ask(self, replica: Replica, step: str, **more: Any) -> dict[str, Any]:
        answer = self.kafka.answer({"do": step, "dir": str(replica.folder), "now": self.now, **more})
        if "failure" in answer:
            raise AssertionError(f"{step}: {answer}")
        self.rejected += "error" in answer
        if "log_end" in answer:
            replica.update(answer, answer["recovery_point"])
        return answer

    def state(self, replica: Replica) -> dict[str, Any]:
        """Return what Kafka says of a replica."""
        answer = self._ask(replica, "state")
        assert "error" not in answer, answer
        return answer

    # --- steps ---

    def append(self, chance: random.Random) -> None:
        """Append a batch: plain, or of an idempotent producer, which can also send it twice."""
        if self.magic < 2 and chance.random() < 0.02:
            self.magic = 2  # an upgrade
        producer = chance.choice((-1, *self.producers)) if self.magic == 2 else -1
        if producer >= 0 and self.producers[producer].open:
            producer = -1
        self._append(producer, chance, transactional=False)

    def transact(self, chance: random.Random) -> None:
        """Append a batch of a transaction, which begins with it if none is open."""
        if self.magic == 2:
            self._append(chance.choice(list(self.producers)), chance, transactional=True)

    def _append(self, number: int, chance: random.Random, *, transactional: bool) -> None:
        producer = self.producers.get(number)
        records = [self._record(chance) for _ in range(chance.choice((1, 1, 1, 2, 3, 8, 40)))]
        codec = chance.choice(CODECS)
        request = {
            "records": records, "magic": self.magic, "codec": codec if self.magic == 2 or codec != "zstd" else "lz4",
            "producer": number, "producer_epoch": producer.epoch if producer else -1,
            "sequence": producer.sequence if producer else -1, "transactional": transactional, "epoch": self.epoch,
            "transaction_version": 2 if self.transactions_v2 else 0,
        }  # fmt: skip
        answer = self._ask(self.leader, "append", **request)
        if producer and "error" in answer:
            self._renew(number)
        elif producer:
            producer.sequence += len(records)
            producer.open |= transactional
            if chance.random() < 0.1:
                self._ask(self.leader, "append", **request)  # a duplicate

    def _renew(self, number: int) -> None:
        """Start a producer with the next epoch, as InitProducerId does: its coordinator aborts what is open."""
        producer = self.producers[number]
        if producer.open:
            self._mark(number, commit=False)
        producer.epoch, producer.sequence, producer.open = producer.epoch + 1, 0, False

    def _record(self, chance: random.Random) -> tuple[int, str | None, str | None]:
        key = f"key-{chance.randint(0, 30)}" if self.compacted or chance.random() < 0.7 else None
        value = None if chance.random() < 0.15 else "v" * chance.choice((0, 3, 40, 400)) + str(chance.randint(0, 9999))
        return self.now + chance.choice((0, 0, 0, -50_000, 3)), key, value

    def end(self, chance: random.Random) -> None:
        """Commit or abort the transaction of a producer, if it has one."""
        number = chance.choice(list(self.producers))
        producer = self.producers[number]
        if producer.open:
            self._mark(number, commit=chance.random() < 0.6)
            producer.open = False
            if self.transactions_v2:
                producer.epoch, producer.sequence = producer.epoch + 1, 0

    def _mark(self, number: int, *, commit: bool) -> None:
        self._ask(
            self.leader, "marker", producer=number, commit=commit, epoch=self.epoch,
            producer_epoch=self.producers[number].epoch + self.transactions_v2,
            transaction_version=2 if self.transactions_v2 else 0,
        )  # fmt: skip

    def renew(self, chance: random.Random) -> None:
        """Start a producer anew, or one with another id: the transaction of the old one hangs, if it has one."""
        number = chance.choice(list(self.producers))
        if chance.random() < 0.5:
            self._renew(number)
        else:
            del self.producers[number]
            self.producers[max(self.producers, default=number) + 1] = Producer()

    def fetch(self, _: random.Random) -> None:
        """Let the follower copy what it lacks, and what the leader deleted."""
        self._ask(self.replicas[1], "fetch", leader=str(self.leader.folder))

    def elect(self, chance: random.Random) -> None:
        """Elect the other replica, which may lack records: those are lost, and the old leader truncates them."""
        if chance.random() < 0.4:
            self.fetch(chance)
        self.replicas.reverse()
        self._lead(chance)

    def _lead(self, chance: random.Random) -> None:
        """Begin a leader epoch. The follower truncates what its leader does not have, and copies the rest."""
        self.epoch += 1
        self._ask(self.leader, "epoch", epoch=self.epoch)
        if chance.random() < 0.5:
            self.append(chance)
        self._ask(self.replicas[1], "reconcile", leader=str(self.leader.folder))
        self.fetch(chance)

    def roll(self, chance: random.Random) -> None:
        self._ask(chance.choice(self.replicas), "roll")

    def flush(self, chance: random.Random) -> None:
        self._ask(chance.choice(self.replicas), "flush")

    def tasks(self, chance: random.Random) -> None:
        """Run what the broker postponed: it deletes files, and flushes rolled segments."""
        self._ask(chance.choice(self.replicas), "tasks")

    def snapshot(self, chance: random.Random) -> None:
        self._ask(chance.choice(self.replicas), "snapshot")

    def wait(self, chance: random.Random) -> None:
        """Let time pass: for retention, and for tombstones."""
        self.now += chance.choice((1_000, 61_000, 1_000_000))

    def clean(self, chance: random.Random) -> None:
        """Compact a replica: each has its own cleaner."""
        replica = chance.choice(self.replicas)
        if self.compacted:
            before = {path.name: path.stat().st_ino for path in replica.folder.glob("*.log")}
            answer = self._ask(replica, "clean", first_dirty=replica.first_dirty)
            replica.first_dirty = answer.get("first_dirty", replica.first_dirty)
            for path in replica.folder.glob("*.log"):  # the cleaner syncs what it wrote
                if path.stat().st_ino != before.get(path.name):
                    replica.synced[path.name] = path.stat().st_size

    def retain(self, chance: random.Random) -> None:
        """Delete old segments below the high watermark."""
        self.fetch(chance)
        self._ask(chance.choice(self.replicas), "retain")

    def delete_records(self, chance: random.Random) -> None:
        """Move the log start, as kafka-delete-records does; the follower does with its next fetch."""
        replica = self.leader
        self.fetch(chance)
        if not self.compacted and replica.log_end > replica.log_start:
            self._ask(replica, "delete_records", to=chance.randint(replica.log_start, replica.log_end))

    def restart(self, chance: random.Random) -> None:
        """Shut a broker down cleanly, and start it."""
        replica = chance.choice(self.replicas)
        if "error" in self._ask(replica, "close"):  # Kafka could not flush: the broker halts
            self.crash(chance)
            return
        self._start(replica, BrokerStart(True, replica.log_end, replica.log_start, *self._settings), chance)

    def crash(self, chance: random.Random) -> None:
        """End a broker; half of the crashes are power failures, which lose what was not synced."""
        replica = chance.choice(self.replicas)
        self._ask(replica, "crash")
        if chance.random() < 0.5:
            lose_unsynced(replica, chance)
        self._start(replica, BrokerStart(False, replica.recovery_point, replica.log_start, *self._settings), chance)

    @property
    def _settings(self) -> tuple[int, int]:
        return self.start.index_interval, self.start.index_bytes

    def _start(self, replica: Replica, start: BrokerStart, chance: random.Random) -> None:
        predicted = world_checks.predicted(replica.folder, start)
        answer = self._load(replica, start)
        world_checks.check_prediction(predicted, answer)
        at = self.replicas.index(replica)
        if "failure" in answer:  # the replica is lost
            shutil.rmtree(replica.log_dir)
            self.replicas[at] = replica = Replica(replica.log_dir.with_name(f"{replica.log_dir.name}-again"))
            self._create(replica)
        if at == 0 and ("failure" in answer or chance.random() < 0.5):
            self.replicas.reverse()
        self._lead(chance)

    # --- steps that change nothing of the world: they damage a copy, or make a read fail ---

    def damage(self, chance: random.Random) -> None:
        self._with_copy(world_checks.check_damage, chance)

    def convert(self, chance: random.Random) -> None:
        self._with_copy(world_checks.check_conversion, chance)

    def _with_copy(self, check: Callable[[World, Replica, Path, random.Random], None], chance: random.Random) -> None:
        copy = self.root / "copy"
        try:
            check(self, chance.choice(self.replicas), copy / TOPIC, chance)
        finally:
            shutil.rmtree(copy, ignore_errors=True)

    def read_error(self, chance: random.Random) -> None:
        world_checks.check_read_error(self, chance.choice(self.replicas).log_dir, chance)


def lose_unsynced(replica: Replica, chance: random.Random) -> None:
    """Cut, zero or keep what was written since the last flush; files that came since then can be missing or empty."""
    for path in sorted(replica.folder.iterdir()):
        kind = chance.randint(0, 4)
        synced, size = replica.synced.get(path.name), path.stat().st_size
        if path.suffix == ".log" and size > (synced or 0):
            keep = chance.randint(synced or 0, size)
            data = path.read_bytes()
            tail = (b"", b"", bytes(size - keep), chance.randbytes(size - keep), data[keep:])[kind]
            path.write_bytes(data[:keep] + tail)
        elif path.suffix in (".index", ".timeindex", ".txnindex") and int(path.name[:20]) >= replica.recovery_point:
            path.write_bytes(
                (b"", bytes(size), path.read_bytes()[: size // 2], path.read_bytes(), path.read_bytes())[kind]
            )
        elif path.suffix == ".snapshot" and int(path.name[:20]) > replica.recovery_point and kind < 2:
            path.write_bytes(path.read_bytes()[: size // 2 * kind])


__all__ = ["Disagreement", "Replica", "Step", "World", "steps_of"]
