"""The actions of a real broker on damaged partitions at its start: the reference for ``kseg recovery``.

``python -m tools.lab.recovery_broker`` records them in ``fixtures/recovery/``.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.cimpl import NewTopic

from tools.lab.kraft import KraftBroker
from tools.lab.oracle import VERSION
from tools.lab.recovery_scenes import SCENES, Scene
from tools.lab.scenes import wait_for

RECORDED = Path(__file__).parents[2] / "fixtures" / "recovery" / f"{VERSION}.jsonl"
# Deleted files keep their suffix as long as anyone looks.
SETTINGS = {"log.segment.delete.delay.ms": "600000"}
LEADER_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """A partition after the start, in the terms of ``PartitionPlan``; ``files`` are indexes, and files with a suffix.

    Leader epochs that begin at the log's end are the new leader's own. ``stray``: the folder was renamed to one.
    """

    scene: str
    clean: bool
    log_start: int
    log_end: int
    segments: Sequence[tuple[int, int]]
    snapshots: Sequence[int]
    epochs: Sequence[tuple[int, int]]
    files: Sequence[str]
    stray: bool


def observe(scenes: Sequence[Scene] = SCENES, see: Callable[[Scene, Path], None] = lambda *_: None) -> list[Outcome]:
    """Run every scene as a partition, in two starts: after a clean shutdown, and after a crash.

    ``see`` is called with each partition's folder before the start. Raises RuntimeError when the broker dies.
    """
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="kseg-lab-") as work:
        broker = KraftBroker(VERSION, Path(work), SETTINGS)
        groups = {topic: [scene for scene in scenes if scene.clean is clean] for topic, clean in TOPICS.items()}
        groups = {topic: group for topic, group in groups.items() if group}
        with broker:
            admin = broker.admin()
            wanted = [NewTopic(topic, len(group), 1) for topic, group in groups.items()]
            for made in admin.create_topics(wanted).values():
                made.result(30)
            for topic, group in groups.items():
                folders = [broker.partition(topic, number) / "partition.metadata" for number in range(len(group))]
                wait_for(lambda folders=folders: all(file.exists() for file in folders), topic)  # type: ignore[misc]
            broker.stop()
            for topic, group in groups.items():
                if not TOPICS[topic]:
                    (broker.log_dir / ".kafka_cleanshutdown").unlink(missing_ok=True)
                _set_out(broker, topic, group)
                for number, scene in enumerate(group):
                    see(scene, broker.partition(topic, number))
                broker.start()
                outcomes += _look(broker, topic, group)
                broker.kill()
    return outcomes


TOPICS = {"clean": True, "unclean": False}


def _set_out(broker: KraftBroker, topic: str, group: Sequence[Scene]) -> None:
    for number, scene in enumerate(group):
        scene.put(broker.partition(topic, number))
    for name, offsets in (
        ("recovery-point-offset-checkpoint", [scene.recovery_point for scene in group]),
        ("log-start-offset-checkpoint", [scene.log_start for scene in group]),
    ):
        lines = [f"{topic} {number} {offset}" for number, offset in enumerate(offsets)]
        (broker.log_dir / name).write_text("\n".join(["0", str(len(lines)), *lines]) + "\n")


def _look(broker: KraftBroker, topic: str, group: Sequence[Scene]) -> list[Outcome]:
    consumer = consumer_of(broker)
    try:
        return [_outcome(consumer, broker, topic, number, scene) for number, scene in enumerate(group)]
    finally:
        consumer.close()


def _outcome(consumer: Consumer, broker: KraftBroker, topic: str, number: int, scene: Scene) -> Outcome:
    folder = broker.partition(topic, number)
    low, high = watermarks(consumer, topic, number)
    stray = bool(list(broker.log_dir.glob(f"{topic}-{number}.*-stray")))
    names = sorted(file.name for file in folder.iterdir() if not file.name.endswith(".deleted"))
    epochs = [line.split() for line in (folder / "leader-epoch-checkpoint").read_text().splitlines()[2:]]
    return Outcome(
        scene.name,
        scene.clean,
        low,
        high,
        [(int(name[:20]), (folder / name).stat().st_size) for name in names if name.endswith(".log")],
        [int(name[:20]) for name in names if name.endswith(".snapshot")],
        [(int(epoch), int(start)) for epoch, start in epochs if int(start) < high],
        [name for name in names if name[:20].isdigit() and not name.endswith((".log", ".snapshot"))],
        stray,
    )


def watermarks(consumer: Consumer, topic: str, number: int, seconds: float = LEADER_SECONDS) -> tuple[int, int]:
    """The first offset and the end of a partition, once it has a leader. Raises KafkaException when it gets none."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            low, high = consumer.get_watermark_offsets(
                TopicPartition(topic, number), timeout=min(10, seconds), cached=False
            )
            return low, high
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)


def consumer_of(broker: KraftBroker) -> Consumer:
    """A consumer that sees what open transactions hold back, too."""
    return Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "kseg-lab",
            # Else an open transaction passes for the end.
            "isolation.level": "read_uncommitted",
            "log_level": 0,
        }
    )


def refused(scenes: Sequence[Scene], see: Callable[[Scene, Path], None]) -> list[str]:
    """The names of the scenes that the broker did not start on, each tried by itself."""
    died = []
    with tempfile.TemporaryDirectory(prefix="kseg-lab-") as work:
        broker = KraftBroker(VERSION, Path(work), SETTINGS)
        topic_id = _one_partition(broker, Path(work))
        for scene in scenes:
            folder = broker.partition("topic")
            (folder / "partition.metadata").write_bytes(topic_id)
            scene.put(folder)
            mark = broker.log_dir / ".kafka_cleanshutdown"
            mark.touch() if scene.clean else mark.unlink(missing_ok=True)
            see(scene, folder)
            try:
                broker.start()
            except RuntimeError:
                died.append(scene.name)
            broker.kill()
    return died


def offline(damages: Mapping[str, Callable[[Path], object]], see: Callable[[str, Path], None]) -> list[str]:
    """Return the damages that kept a partition from being served; each has its own log dir with one partition.

    The broker's first log dir stays valid; raises KafkaException when it does not serve the partition there.
    """
    with tempfile.TemporaryDirectory(prefix="kseg-lab-") as work:
        sound = Path(work) / "logs"
        dirs = {name: Path(work) / name for name in damages}
        log_dirs = ",".join(map(str, (sound, *dirs.values())))
        broker = KraftBroker(VERSION, Path(work), {**SETTINGS, "log.dirs": log_dirs})
        with broker:
            admin = broker.admin()
            # A new partition goes to the log dir that has the fewest, so each gets one; a moved one would be missed.
            for number in range(len(dirs) + 1):
                admin.create_topics([NewTopic(f"topic{number}", 1, 1)])[f"topic{number}"].result(30)
                _found(f"topic{number}", (sound, *dirs.values()))
            broker.stop()
            topics = {folder: _topic_in(folder) for folder in (sound, *dirs.values())}
            for folder, topic in topics.items():
                Scene("sound", True).put(folder / f"{topic}-0")
            for name, folder in dirs.items():
                damages[name](folder)
                see(name, folder)
            broker.start()
            consumer = consumer_of(broker)
            watermarks(consumer, topics[sound], 0)
            unserved = [name for name, folder in dirs.items() if not _serves(consumer, topics[folder])]
            consumer.close()
            broker.kill()
    return unserved


def _topic_in(log_dir: Path) -> str:
    return next(log_dir.glob("topic*-0")).name.removesuffix("-0")


def _serves(consumer: Consumer, topic: str) -> bool:
    try:
        return watermarks(consumer, topic, 0, seconds=2)[1] > 0
    except KafkaException:
        return False


def _found(topic: str, log_dirs: Sequence[Path]) -> Path:
    def there() -> list[Path]:
        return [folder for log_dir in log_dirs for folder in log_dir.glob(f"{topic}-0/partition.metadata")]

    wait_for(lambda: bool(there()), topic)
    return there()[0].parent


def _one_partition(broker: KraftBroker, work: Path) -> bytes:
    with broker:
        admin = broker.admin()
        admin.create_topics([NewTopic("topic", 1, 1)])["topic"].result(30)
        return (_found("topic", [broker.log_dir]) / "partition.metadata").read_bytes()


def recorded() -> dict[tuple[str, bool], Outcome]:
    """Return the recorded outcomes, by scene."""
    outcomes = [Outcome(**json.loads(line)) for line in RECORDED.read_text(encoding="utf-8").splitlines()]
    return {(outcome.scene, outcome.clean): outcome for outcome in outcomes}


if __name__ == "__main__":
    RECORDED.parent.mkdir(parents=True, exist_ok=True)
    RECORDED.write_text("".join(json.dumps(asdict(outcome)) + "\n" for outcome in observe()), encoding="utf-8")
