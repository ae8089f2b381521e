"""The fixtures that brokers in KRaft mode write (magic 2): whole partition folders, as the broker left them."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka.cimpl import NewTopic

from tools.lab import scenes
from tools.lab.kraft import KraftBroker

# 4.0 raised the minimum of segment.bytes to 1 MiB (KIP-1030) and kept a small one for tests under another name.
SEGMENT_BYTES = {"4.3.0": "internal.segment.bytes", "3.9.1": "segment.bytes"}
COMPACT = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.ms": "3600000"}
OPEN_TRANSACTION_SECONDS = 900


@dataclass(frozen=True, slots=True)
class Scene:
    """One topic and the fixture folder made of it; `write` may return what must live until the broker stops."""

    name: str
    what: str
    write: Callable[[KraftBroker, str], Any]
    config: Mapping[str, str] = field(default_factory=dict)
    segment_bytes: int | None = None
    # Copied while the broker runs, instead of after its clean shutdown.
    live: bool = False


def _by_client(codec: str) -> Callable[[KraftBroker, str], None]:
    return lambda broker, topic: scenes.mixed(broker, topic, compression_type=codec)


def _by_broker(codec: str) -> Scene:
    topic = {"compression.type": codec}
    return Scene(codec, f"compressed by the broker (topic's compression.type={codec})", scenes.mixed, topic)


def _compacted(broker: KraftBroker, topic: str) -> None:
    scenes.superseded(broker, topic)
    scenes.wait_for_cleaner(broker, topic)


NONE = Scene("none", "nulls, empty and binary keys and values, timestamps out of order", scenes.mixed)
SCENES: dict[str, list[Scene]] = {
    "4.3.0": [
        NONE,
        *(_by_broker(codec) for codec in ("gzip", "snappy", "lz4", "zstd")),
        # Raw snappy without snappy-java's framing, and zstd by another library than the broker's.
        *(
            Scene(f"{codec}-librdkafka", f"compressed by the client, librdkafka with {codec}", _by_client(codec))
            for codec in ("snappy", "zstd")
        ),
        *(
            Scene(
                f"{codec}-large", "one batch of several blocks of its codec", scenes.large, {"compression.type": codec}
            )
            for codec in ("snappy", "lz4")
        ),
        Scene("none-headers", "headers: null and empty values, empty, non-ASCII and doubled keys", scenes.headers),
        Scene(
            "none-log-append-time",
            "message.timestamp.type=LogAppendTime",
            scenes.mixed,
            {"message.timestamp.type": "LogAppendTime"},
        ),
        Scene(
            "lz4-log-append-time",
            "message.timestamp.type=LogAppendTime, compressed by the broker",
            scenes.mixed,
            {"message.timestamp.type": "LogAppendTime", "compression.type": "lz4"},
        ),
        Scene("none-idempotent", "two idempotent producers and a plain one, in turns", scenes.idempotent),
        Scene(
            "none-transactions",
            "committed, aborted, overlapping transactions, one left open; several segments",
            scenes.transactions,
            segment_bytes=1500,
        ),
        Scene(
            "none-transactions-v2",
            "transactions of version 2 (KIP-890), by Kafka's own client: every marker has a new epoch",
            scenes.transactions_v2,
        ),
        Scene(
            "none-compacted",
            "after the cleaner: holes, an empty batch, tombstones with a delete horizon",
            _compacted,
            {**COMPACT, "delete.retention.ms": "86400000"},
        ),
        Scene(
            "lz4-compacted",
            "after the cleaner, compressed: holes, an empty batch, tombstones with a delete horizon",
            _compacted,
            {**COMPACT, "delete.retention.ms": "86400000", "compression.type": "lz4"},
        ),
        Scene(
            "none-compacted-transactions",
            "after three rounds of the cleaner: markers without data, empty control and data batches, a delete horizon",
            scenes.superseded_transactions,
            {**COMPACT, "delete.retention.ms": "1500"},
            segment_bytes=1500,
        ),
        Scene("none-segments", "five segments rolled by segment.ms", scenes.segments, {"segment.ms": "600000"}),
        Scene("none-live", "copied under a running broker: indexes are preallocated", scenes.mixed, live=True),
        Scene(
            "none-live-preallocated",
            "copied under a running broker, preallocate=true: zeros behind the last batch",
            scenes.mixed,
            {"preallocate": "true"},
            segment_bytes=16384,
            live=True,
        ),
    ],
    "3.9.1": [
        NONE,
        _by_broker("zstd"),
        Scene(
            "none-transactions",
            "committed, aborted, overlapping transactions, one left open; several segments",
            scenes.transactions,
            segment_bytes=1500,
        ),
    ],
}
# Folder name and topic of the logs that brokers write for themselves.
INTERNAL = {
    "none-consumer-offsets": (
        "__consumer_offsets",
        "both group protocols, plain and transactional commits, a deleted group",
    ),
    "none-transaction-state": ("__transaction_state", "what the transactions of the other folders left"),
}


def make(out: Path) -> list[Path]:
    """Write every folder into `out`, replacing older ones, and return them. The oracle adds `expect.jsonl`."""
    made: list[Path] = []
    for version in SCENES:
        with tempfile.TemporaryDirectory(prefix="kseg-lab-") as work:
            made += _topics(version, Path(work), out)
    with tempfile.TemporaryDirectory(prefix="kseg-lab-") as work:
        made.append(_kraft_metadata("4.3.0", Path(work), out))
    return made


def _topics(version: str, work: Path, out: Path) -> list[Path]:
    broker = KraftBroker(version, work, {"transaction.max.timeout.ms": str(OPEN_TRANSACTION_SECONDS * 1000)})
    made = []
    with broker:
        alive = [_write(broker, version, scene) for scene in SCENES[version]]
        if version == "4.3.0":
            scenes.groups(broker, "none")
        for scene in SCENES[version]:
            if scene.live:
                made.append(save(broker.partition(scene.name), out, version, scene.name, scene.what))
        # Another start is another leader epoch.
        broker.stop()
        broker.start()
        scenes.Writer(broker, "none-segments" if version == "4.3.0" else "none").batch(
            ((b"epoch", b"written after a restart"),), scenes.T0 + 24 * 60 * scenes.MINUTE
        )
    del alive
    for scene in SCENES[version]:
        if not scene.live:
            made.append(save(broker.partition(scene.name), out, version, scene.name, scene.what))
    if version == "4.3.0":
        for name, (topic, what) in INTERNAL.items():
            made.append(save(broker.partition(topic), out, version, name, what))
        made.append(_save_log_dir(broker.log_dir, out, version))
    return made


def _write(broker: KraftBroker, version: str, scene: Scene) -> Any:
    config = dict(scene.config)
    if scene.segment_bytes is not None:
        config[SEGMENT_BYTES[version]] = str(scene.segment_bytes)
    create_topic(broker, scene.name, config)
    return scene.write(broker, scene.name)


def create_topic(broker: KraftBroker, topic: str, config: Mapping[str, str]) -> None:
    """Creates a topic of one partition and waits for it. Raises KafkaException."""
    # A client that is dropped fails its own calls: it must live until the answer.
    admin = broker.admin()
    admin.create_topics([NewTopic(topic, 1, 1, config=dict(config))])[topic].result(30)


def _kraft_metadata(version: str, work: Path, out: Path) -> Path:
    """A dynamic quorum (KIP-853) that has written a snapshot of its metadata, and continued after it."""
    settings = {"metadata.log.max.record.bytes.between.snapshots": "1000", "metadata.max.idle.interval.ms": "2000"}
    with KraftBroker(version, work, settings, standalone=True) as broker:
        snapshots = broker.partition("__cluster_metadata")
        create_topic(broker, "first", {"cleanup.policy": "compact"})
        scenes.wait_for(lambda: len(list(snapshots.glob("*.checkpoint"))) > 1, "a metadata snapshot")
        create_topic(broker, "second", {"retention.ms": "1000"})
        admin = broker.admin()
        admin.delete_topics(["first"])["first"].result(30)
    what = "a dynamic quorum's metadata: the log, the snapshot it was formatted with and one it wrote itself"
    return save(snapshots, out, version, "none-kraft-metadata", what)


def save(partition: Path, out: Path, version: str, name: str, what: str) -> Path:
    """The contents of a partition folder as a fixture folder."""
    target = out / f"{version}-v2-{name}"
    shutil.rmtree(target, ignore_errors=True)
    # Contents only: Kafka makes its snapshots unreadable for others.
    shutil.copytree(partition, target, copy_function=shutil.copyfile)
    write_origin(target, [f"Kafka {version} (KRaft mode), {partition.name}", what])
    return target


def _save_log_dir(log_dir: Path, out: Path, version: str) -> Path:
    """Copy the files next to the partition folders of a log dir, after a clean shutdown."""
    target = out / f"{version}-v2-none-log-dir"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for file in log_dir.iterdir():
        if file.is_file() and file.name != ".lock":
            shutil.copyfile(file, target / file.name)
    write_origin(target, [f"Kafka {version} (KRaft mode), log dir", "the files beside the partition folders"])
    return target


def write_origin(folder: Path, lines: list[str]) -> None:
    """Writes ORIGIN: the lines given, then the SHA-256 of every file of the folder."""
    files = sorted(file for file in folder.iterdir() if file.name not in ("ORIGIN", "expect.jsonl"))
    sums = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}" for file in files]
    (folder / "ORIGIN").write_text("\n".join([*lines, "", *sums]) + "\n", encoding="utf-8")
