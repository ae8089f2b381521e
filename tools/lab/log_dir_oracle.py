"""Compare ``kseg recovery`` with a real broker over damaged log dirs: ``python -m tools.lab.log_dir_oracle N``.

The broker has two log dirs with three partitions each; the first one holds the KRaft metadata. Each case is a start.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.cimpl import NewTopic

from kseg.commands.recovery import plans_of
from kseg.format.log_loader.plan import LEAVE_UNSERVED, PartitionPlan
from kseg.format.log_loader.recovery_plan import BrokerStart
from tools.lab import load_scenes
from tools.lab.kraft import KraftBroker
from tools.lab.oracle import VERSION
from tools.lab.recovery_broker import SETTINGS, consumer_of, watermarks
from tools.lab.recovery_scenes import INDEX_BYTES, INDEX_INTERVAL, Scene
from tools.lab.scenes import wait_for

TOPICS = tuple(f"topic{number}" for number in range(6))
CHECKPOINTS = (
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
    "cleaner-offset-checkpoint",
)
#: Seconds to wait for a partition that is predicted to be served, and for one that is not.
_SECONDS, _SECONDS_WITHOUT_LEADER = 20.0, 1.5
#: The topic id of TOPIC_ID, however the file writes it.
_FOREIGN_ID = load_scenes.TOPIC_ID.split()[-1]


@dataclass(frozen=True, slots=True)
class Outcome:
    """``ends`` are the log ends of the partitions that are served; None where the broker does not start.

    ``unassigned`` are topics in a log dir that lost its directory.id. The broker loads their logs and gives the log dir
    another id. Whether they get a leader was seen to vary from start to start. All topics are, if the broker cannot apply
    its metadata: it serves those that come before the error.
    """

    ends: dict[str, int] | None
    unassigned: frozenset[str] = frozenset()

    def agrees_with(self, observed: Outcome) -> bool:
        """Return whether a prediction agrees with the observation."""
        if self.ends is None or observed.ends is None:
            return self.ends == observed.ends
        left_out = self.unassigned - observed.ends.keys()
        return {topic: end for topic, end in self.ends.items() if topic not in left_out} == observed.ends


def disagreements(seeds: Iterable[int]) -> Iterator[tuple[int, tuple[str, ...], Outcome, Outcome]]:
    """Start a broker for each seed; yield (seed, damage, predicted, observed) if the two differ."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as work:
        dirs = (Path(work) / "logs", Path(work) / "more")
        properties = {**SETTINGS, "log.dirs": ",".join(map(str, dirs)), "log.cleaner.threads": "1"}
        broker = KraftBroker(VERSION, Path(work), properties)
        homes = _prepare(broker, dirs)
        for folder in dirs:
            shutil.move(folder, folder.with_suffix(".kept"))
        for seed in seeds:
            for folder in dirs:
                shutil.rmtree(folder, ignore_errors=True)
                shutil.copytree(folder.with_suffix(".kept"), folder)
            done = damage(random.Random(seed), dirs, homes)
            predicted = predict(dirs, homes)
            observed = observe(broker, homes, predicted)
            if not predicted.agrees_with(observed):
                yield seed, done, predicted, observed


def _prepare(broker: KraftBroker, dirs: tuple[Path, Path]) -> dict[str, Path]:
    """Make the topics, fill their partitions; return the log dir of each topic."""
    homes: dict[str, Path] = {}
    with broker:
        admin = broker.admin()
        for topic in TOPICS:
            # A new partition goes to the log dir that has the fewest.
            admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
            wait_for(lambda topic=topic: any(_has(folder, topic) for folder in dirs), topic)  # type: ignore[misc]
            homes[topic] = next(folder for folder in dirs if _has(folder, topic))
    for topic, folder in homes.items():
        Scene("sound", True).put(folder / f"{topic}-0")
    return homes


def _has(folder: Path, topic: str) -> bool:
    return (folder / f"{topic}-0" / "partition.metadata").exists()


def predict(dirs: tuple[Path, Path], homes: dict[str, Path]) -> Outcome:
    """What ``kseg recovery`` says of the two log dirs."""
    ends: dict[str, int] = {}
    offline: set[str] = set()
    unserved = False
    request = BrokerStart(index_interval=INDEX_INTERVAL, index_bytes=INDEX_BYTES)
    unread: list[str] = []
    for plan in plans_of(list(map(str, dirs)), request, unread.append):
        actions = {step.action for step in plan.steps}
        folder = plan.folder if not isinstance(plan, PartitionPlan) else str(Path(plan.folder).parent)
        if "refuse" in actions:
            return Outcome(None)
        unserved = unserved or LEAVE_UNSERVED in actions
        if "offline" in actions:
            offline.add(folder)
        if isinstance(plan, PartitionPlan) and plan.topic in homes:
            # Whose topic it is, the cluster knows: a log of another topic becomes a stray, an empty one takes its place.
            topic_id = Path(plan.folder) / "partition.metadata"
            stray = not topic_id.exists() or _FOREIGN_ID in topic_id.read_bytes()
            ends[plan.topic] = 0 if stray or plan.log_end is None else plan.log_end
    if unread:
        raise OSError(unread[0])
    if str(dirs[0]) in offline:  # it has the metadata
        return Outcome(None)
    served = {topic: end for topic, end in ends.items() if str(homes[topic]) not in offline}
    return Outcome(served, frozenset(topic for topic, folder in homes.items() if unserved or not _has_id(folder)))


def _has_id(folder: Path) -> bool:
    file = folder / "meta.properties"
    return not file.exists() or "directory.id" in file.read_text()


def observe(broker: KraftBroker, homes: dict[str, Path], predicted: Outcome) -> Outcome:
    """Start the broker; return which partitions it serves. ``predicted`` only decides how long to wait for each."""
    try:
        broker.start()
    except RuntimeError:
        return Outcome(None)
    try:
        consumer = consumer_of(broker)
        ends: dict[str, int] = {}
        # Those that are served first: the others have had their time by then.
        for topic in sorted(homes, key=lambda topic: topic not in (predicted.ends or ())):
            seconds = _SECONDS if predicted.ends is None or topic in predicted.ends else _SECONDS_WITHOUT_LEADER
            with contextlib.suppress(KafkaException):
                ends[topic] = watermarks(consumer, topic, 0, seconds=seconds)[1]
        consumer.close()
        # A log dir can fail after the start, too.
        return Outcome(ends) if broker.is_running() else Outcome(None)
    finally:
        broker.kill()


# --- damages ---


def damage(rng: random.Random, dirs: tuple[Path, Path], homes: dict[str, Path]) -> tuple[str, ...]:
    """Damage one or two things in the log dirs; return their names."""
    done = []
    for _ in range(rng.choice((1, 1, 1, 2))):
        name = rng.choice(tuple(_DAMAGES))
        folder = dirs[1] if rng.random() < 0.75 else dirs[0]
        detail = _DAMAGES[name](rng, folder, dirs, homes)
        done.append(f"{name} in {folder.name}: {detail}")
    return tuple(done)


def _partition(rng: random.Random, folder: Path, homes: dict[str, Path]) -> Path:
    return folder / f"{rng.choice(sorted(topic for topic, home in homes.items() if home == folder))}-0"


def _meta(rng: random.Random, folder: Path, dirs: tuple[Path, Path], homes: dict[str, Path]) -> str:
    file = folder / "meta.properties"
    text = file.read_text()
    lines = text.splitlines()
    other = (dirs[0] if folder == dirs[1] else dirs[1]) / "meta.properties"
    choice = rng.randrange(10)
    if choice == 0:
        file.unlink()
        return "removed"
    changed = (
        "", "version=7\n", "", text.replace("version=1", "version=0"), text.replace("node.id=1", "node.id=2"),
        "\n".join(line if "cluster.id" not in line else "cluster.id=b3NlZy1sYWItMDAwMDAwMQ" for line in lines),
        "\n".join(line for line in lines if "directory.id" not in line),
        other.read_text(),
        "\n".join(line for line in lines if "cluster.id" not in line),
        "\n".join(line if "directory.id" not in line else "directory.id=x" for line in lines),
    )[choice]  # fmt: skip
    file.write_text(changed)
    return repr(changed)


def _checkpoint(rng: random.Random, folder: Path, dirs: tuple[Path, Path], homes: dict[str, Path]) -> str:
    name = rng.choice(CHECKPOINTS)
    topic = _partition(rng, folder, homes).name.removesuffix("-0")
    text = rng.choice((
        "", "0", "0\n", "0\n0\n", "1\n0\n", "x\n0\n", "0\nx\n", "0\n-1\n", "0\n2147483647\n",
        f"0\n2\n{topic} 0 0\n", f"0\n1\n{topic} 0\n",
        f"0\n1\n{topic} 0 x\n", f"0\n1\n{topic} x 0\n", f"0\n1\n{topic} 0 -5\n", f"0\n1\n{topic} 0 50\n",
        f"0\n1\n{topic} 0 121\n",
        f"0\n1\n{topic} 0 500\n", f"0\n2\n{topic} 0 5\n{topic} 0 60\n", f"0\n1\n{topic} 0 99999999999999999999\n",
        f"0\n1\n{topic} 99999999999 0\n", "0\n1\nother 0 7\n", f"0\n1\n{topic} 0 30 \n", f"0\n1\n {topic} 0 30\n", "\xff",
    ))  # fmt: skip
    (folder / name).write_text(text, encoding="latin-1")
    if rng.random() < 0.5:
        (folder / ".kafka_cleanshutdown").unlink(missing_ok=True)
        name += " unclean"
    return f"{name} {text!r}"


def _clean_shutdown(rng: random.Random, folder: Path, dirs: tuple[Path, Path], homes: dict[str, Path]) -> str:
    file = folder / ".kafka_cleanshutdown"
    file.unlink(missing_ok=True)
    choice = rng.randrange(4)
    if choice:
        file.write_text(("", "x", '{"version":0,"brokerEpoch":7}')[choice - 1])
    log = rng.choice(sorted(_partition(rng, folder, homes).glob("*.log")))
    log.write_bytes(load_scenes.mangle(rng, log.read_bytes()))
    return f"{choice}, {log.parent.name} {log.name} mangled"


def _topic_id(rng: random.Random, folder: Path, dirs: tuple[Path, Path], homes: dict[str, Path]) -> str:
    file = _partition(rng, folder, homes) / "partition.metadata"
    kind = rng.randrange(3)
    if kind == 0:
        file.unlink()
        return "removed"
    data = load_scenes.TOPIC_ID if kind == 1 else rng.choice(load_scenes.TOPIC_IDS)
    file.write_bytes(data)
    return repr(data)


def _epochs(rng: random.Random, folder: Path, dirs: tuple[Path, Path], homes: dict[str, Path]) -> str:
    text = rng.choice(load_scenes.EPOCH_TEXTS)
    (_partition(rng, folder, homes) / "leader-epoch-checkpoint").write_text(text)
    return repr(text)


def _folder(rng: random.Random, folder: Path, dirs: tuple[Path, Path], homes: dict[str, Path]) -> str:
    """Another folder in the log dir."""
    other = dirs[0] if folder == dirs[1] else dirs[1]
    name = rng.choice(
        ("lost+found", "x", "a-b", "-0", "a-", "x-1-delete", "copy", "future", "remote-log-index-cache", "metadata")
    )
    part = _partition(rng, other, homes)
    if name == "copy":
        shutil.copytree(part, folder / part.name)
        return f"{part.name} twice"
    if name == "future":
        shutil.copytree(part, folder / f"{part.name}.{'ab' * 16}-future")
        return f"{part.name} on its way"
    if name == "metadata":
        (folder / "__cluster_metadata-0").mkdir(exist_ok=True)
        return "__cluster_metadata-0"
    (folder / name).mkdir()
    return name


def _segments(rng: random.Random, folder: Path, dirs: tuple[Path, Path], homes: dict[str, Path]) -> str:
    """Damage inside a partition, as the loader's oracle has it."""
    part = _partition(rng, folder, homes)
    files: load_scenes.Folder = {file.name: file.read_bytes() for file in part.iterdir()}
    done = load_scenes.damage_folder(
        rng, files, ("log", "last log", "field", "side file", "index entries", "removed", "left over")
    )
    shutil.rmtree(part)
    part.mkdir()
    for name, data in files.items():
        if data is not None:
            (part / name).write_bytes(data)
    if rng.random() < 0.5:
        (folder / ".kafka_cleanshutdown").unlink(missing_ok=True)
        done += " unclean"
    return f"{part.name} {done}"


_DAMAGES: dict[str, Callable[[random.Random, Path, tuple[Path, Path], dict[str, Path]], str]] = {
    "meta.properties": _meta,
    "checkpoint": _checkpoint,
    "clean shutdown": _clean_shutdown,
    "topic id": _topic_id,
    "epochs": _epochs,
    "folder": _folder,
    "segments": _segments,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seeds", type=int, nargs="*", help="these instead")
    requested = parser.parse_args()
    began = time.monotonic()
    found = 0
    for seed, done, predicted, observed in disagreements(
        requested.seeds or range(requested.first, requested.first + requested.count)
    ):
        found += 1
        print(f"{seed} {'; '.join(done)}\n    predicted {predicted.ends}\n    observed  {observed.ends}", flush=True)
    print(f"{requested.count} starts, {found} disagreements, {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
