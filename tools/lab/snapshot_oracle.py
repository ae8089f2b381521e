"""Compare the producer snapshots that ``kseg repair`` writes with those that Kafka's log loader writes for the same log.

``python -m tools.lab.snapshot_oracle N``. Each log has idempotent and transactional producers, aborted, committed and open
transactions, new producer epochs (also those of transactions v2, KIP-890) and several segments. Kafka loads it once and so
writes the snapshots of the source, then batches are damaged, kseg repairs the folder, and Kafka reads the result without
any snapshot, as after an unclean shutdown.
"""

from __future__ import annotations

import argparse
import base64
import random
import struct
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

from crc32c import crc32c

from kseg.commands.repair.repair import repair
from kseg.commands.repair.repaired_segment import RepairPlan
from kseg.format.log_loader.recovery_plan import BrokerStart
from kseg.format.sidefiles.producer_snapshot import ProducerState, read_snapshot
from tests.support import damage
from tools.lab.load_log import LoadLog
from tools.lab.load_scenes import TOPIC_ID, record

_TRANSACTIONAL, _CONTROL, _LOG_APPEND_TIME = 16, 32, 8
_UNCLEAN = BrokerStart(False)
_MAX_EPOCH = 32_000


@dataclass(slots=True)
class _Producer:
    id: int
    transactional: bool
    epoch: int = 0
    sequence: int = 0
    open: bool = False


def write_log(rng: random.Random, folder: Path) -> None:
    """Write a log as a broker writes it, without side files except partition.metadata."""
    folder.mkdir(parents=True)
    (folder / "partition.metadata").write_bytes(TOPIC_ID)
    producers = [
        _Producer(
            rng.choice((n, n, rng.getrandbits(62))),
            rng.random() < 0.7,
            rng.choice((0, 0, 7)),
            rng.choice((0, 2**31 - 4)),
        )
        for n in range(rng.randint(1, 6))
    ]
    version_2 = rng.random() < 0.5
    offset = rng.choice((0, 0, 1000))
    timestamp, leader_epoch, coordinator_epoch = 1_700_000_000_000, rng.choice((0, 3)), 0
    for _ in range(rng.randint(1, 5)):
        log = folder / f"{offset:020d}.log"
        data = b""
        for _ in range(rng.randint(0, 12)):
            timestamp += rng.randint(-50, 1000)
            producer = rng.choice(producers)
            kind = rng.random()
            coordinator_epoch += rng.random() < 0.05
            leader_epoch += rng.random() < 0.05
            if kind < 0.15:
                plain = record(b"k", b"v")
                data += _batch(offset, leader_epoch, 0, timestamp, -1, -1, -1, plain, 1)
                offset += 1
                continue
            if kind < 0.25 and producer.epoch < _MAX_EPOCH and not producer.open:
                producer.epoch, producer.sequence = producer.epoch + 1, 0
            if producer.transactional and kind > 0.7 and (producer.open or rng.random() < 0.1):
                if version_2 and producer.open:
                    producer.epoch, producer.sequence = producer.epoch + 1, 0
                key = struct.pack(">hh", 0, rng.randrange(2))
                marker = record(key, struct.pack(">hi", 0, coordinator_epoch))
                empty = rng.random() < 0.05 and not producer.open
                data += _batch(
                    offset, leader_epoch, _TRANSACTIONAL | _CONTROL, timestamp, producer.id, producer.epoch, -1,
                    b"" if empty else marker, int(not empty),
                )  # fmt: skip
                producer.open, offset = False, offset + 1
                continue
            count = rng.randint(1, 5)
            records = b"".join(record(b"k", b"v", n) for n in range(count))
            attributes = _TRANSACTIONAL * producer.transactional | _LOG_APPEND_TIME * (rng.random() < 0.2)
            data += _batch(
                offset,
                leader_epoch,
                attributes,
                timestamp,
                producer.id,
                producer.epoch,
                producer.sequence,
                records,
                count,
            )
            producer.sequence = (producer.sequence + count) % (1 << 31)
            producer.open = producer.transactional
            offset += count
        log.write_bytes(data)


def _batch(
    base: int, leader_epoch: int, attributes: int, timestamp: int, producer: int, epoch: int, sequence: int,
    records: bytes, count: int,
) -> bytes:  # fmt: skip
    last = max(count - 1, 0)
    body = struct.pack(">hiqqqhii", attributes, last, timestamp, timestamp, producer, epoch, sequence, count) + records
    return struct.pack(">qiibI", base, 9 + len(body), leader_epoch, 2, crc32c(body)) + body


def damage_log(rng: random.Random, folder: Path) -> None:
    """Damage a few batches, and delete, empty or break a few snapshots."""
    logs = [log for log in sorted(folder.glob("*.log")) if log.stat().st_size]
    for log in rng.sample(logs, min(len(logs), rng.randint(0, 2))):
        data = log.read_bytes()
        place = rng.choice(damage.entries(data))
        log.write_bytes(damage.flip(data, rng.randrange(place.at + 17, place.end)))
    for snapshot in sorted(folder.glob("*.snapshot")):
        kind = rng.random()
        if kind < 0.3:
            snapshot.unlink()
        elif kind < 0.4:
            snapshot.write_bytes(damage.flip(snapshot.read_bytes(), 3))


def disagreements(seeds: Iterable[int]) -> Iterator[tuple[int, str]]:
    """Yield the seed and the difference of each log for which kseg and Kafka write different producers."""
    with LoadLog() as kafka, tempfile.TemporaryDirectory() as work:
        for seed in seeds:
            rng = random.Random(seed)
            source, target = Path(work, f"{seed}", "topic-0"), Path(work, f"{seed}-new", "topic-0")
            write_log(rng, source)
            kafka.load(source, _UNCLEAN)
            damage_log(rng, source)
            target.parent.mkdir()
            repair(str(source), str(target), RepairPlan())
            written = {path.name: path.read_bytes() for path in target.glob("*.snapshot")}
            for name in written:
                (target / name).unlink()
            answer = kafka.load(target, _UNCLEAN)
            loaded = {name: base64.b64decode(data) for name, data in answer.get("snapshots", {}).items()}
            start = f"{answer.get('log_start', 0):020d}.snapshot"  # a broker deletes it at its next start
            missing = {name for name in loaded if _is_needed(name, answer)} - set(written)
            for name in sorted(set(written) - {start} | missing):
                if _sorted(written.get(name)) != _sorted(loaded.get(name)):
                    yield seed, f"{name}: {_sorted(written.get(name))}, Kafka has {_sorted(loaded.get(name))}"


def _is_needed(name: str, answer: dict[str, object]) -> bool:
    """Return whether a log that has producers needs the snapshot: the one at its end."""
    return int(name[:20]) == answer["log_end"] and bool(answer["snapshots"])


def _sorted(data: bytes | None) -> list[ProducerState]:
    """Return the producers of a snapshot; none without one, as a log that never had a producer needs none."""
    return sorted(read_snapshot(data) or [] if data else [], key=attrgetter("producer_id"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int)
    parser.add_argument("--first", type=int, default=0)
    requested = parser.parse_args()
    began = time.monotonic()
    found = 0
    for seed, text in disagreements(range(requested.first, requested.first + requested.count)):
        found += 1
        print(f"{seed}: {text}", flush=True)
    print(f"{requested.count} logs, {found} disagreements, {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
