"""Makes ``fixtures/streams/``: what real clients, old and new, and real brokers said to each other.

    python -m tools.lab.streams [SCENE…]

A folder holds a pair of files for each connection, ``sent.json`` (the records that were produced, and consumed again),
``expect.jsonl`` (what Kafka's own classes read in them) and ``ORIGIN``.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource  # type: ignore[attr-defined]
from confluent_kafka.cimpl import NewTopic

from tools.lab.kraft import KraftBroker
from tools.lab.old_brokers import OLD_PRODUCER, OldBroker, java
from tools.lab.oracle import run_java
from tools.lab.proxy import HOST, Proxy

PROGRAM = Path(__file__).with_name("StreamOracle.java")
STREAMS = Path(__file__).parents[2] / "fixtures" / "streams"
TOPIC = "orders"
MODERN = "4.3.0"
Pair = tuple[bytes | None, bytes | None]
#: The content that every client sends: text, null, and bytes that are not text.
PAIRS: tuple[Pair, ...] = (
    (b"first", b"this is the first message"),
    (None, b"no key"),
    (b"no value", None),
    (b"\x00\xff", b"\xfe" * 40),
    (b"last", b'{"amount": 12.5}'),
)
_TIMESTAMP = 1_600_000_000_000


@contextlib.contextmanager
def old_broker(version: str, folder: Path, proxy: Proxy) -> Iterator[None]:
    """Run a broker of the ZooKeeper era with the proxy in front."""
    advertised = {
        "advertised.listeners": f"PLAINTEXT://{proxy.bootstrap}",
        "advertised.port": str(proxy.port),
        "advertised.host.name": HOST,
    }
    with OldBroker(version, folder / "broker", advertised) as broker:
        proxy.lead_to(int(broker.bootstrap.rpartition(":")[2]))
        broker.create_topic(TOPIC)
        yield


@contextlib.contextmanager
def modern_broker(folder: Path, proxy: Proxy, properties: Mapping[str, str] | None = None) -> Iterator[None]:
    """Run a broker of 4.3 with the proxy in front."""
    advertised = {"advertised.listeners": f"PLAINTEXT://{proxy.bootstrap}", **(properties or {})}
    broker = KraftBroker(MODERN, folder / "broker", advertised)
    proxy.lead_to(broker.port)
    with broker:
        admin = broker.admin()  # kept: one that is let go takes its answers with it
        admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(30)
        yield


def script(*settings: str) -> str:
    """What OldProducer is to do: PAIRS in two batches, with timestamps where the version has them."""
    stamped = settings and settings[0] == "stamped"
    lines = ["\t".join(("producer", *settings[1 if stamped else 0 :]))]
    for number, (key, value) in enumerate(PAIRS):
        fields = ["-" if data is None else data.hex() for data in (key, value)]
        lines.append("\t".join(["send", TOPIC, str(_TIMESTAMP + number) if stamped else "-", *fields]))
        if number == 1:
            lines.append("flush")
    return "".join(f"{line}\n" for line in lines)


def run(command: list[str], text: str = "") -> None:
    """Run a command. Raises RuntimeError with its output if it fails."""
    done = subprocess.run(command, check=False, input=text.encode(), capture_output=True, timeout=120)
    if done.returncode:
        raise RuntimeError(f"{command}\n{done.stdout!r}\n{done.stderr!r}")


def java_producer(version: str, proxy: Proxy, *settings: str) -> None:
    """The Java producer of that version."""
    run(java(version, str(OLD_PRODUCER), proxy.bootstrap), script(*settings))


def java_consumer(version: str, proxy: Proxy, program: str, *options: str) -> None:
    """A console consumer of that version reads the topic."""
    run(java(version, program, "--topic", TOPIC, "--max-messages", str(len(PAIRS)), *options))


def scene_0_8(folder: Path, proxy: Proxy) -> str:
    with old_broker("0.8.2.2", folder, proxy):
        java_producer("0.8.2.2", proxy, "compression.type=gzip")
        # So little room in a response that its last entry is cut off.
        shell = ("--broker-list", proxy.bootstrap, "--partition", "0", "--fetchsize", "200")
        java_consumer("0.8.2.2", proxy, "kafka.tools.SimpleConsumerShell", *shell)
    return "Kafka 0.8.2.2: its Java producer (gzip) and SimpleConsumerShell"


def scene_0_9(folder: Path, proxy: Proxy) -> str:
    with old_broker("0.9.0.1", folder, proxy):
        java_producer("0.9.0.1", proxy)
        old = ("--new-consumer", "--from-beginning", "--bootstrap-server", proxy.bootstrap)
        java_consumer("0.9.0.1", proxy, "kafka.tools.ConsoleConsumer", *old)
    return "Kafka 0.9.0.1: its Java producer and the new ConsoleConsumer"


def scene_0_10(folder: Path, proxy: Proxy) -> str:
    with old_broker("0.10.2.2", folder, proxy):
        java_producer("0.10.2.2", proxy, "stamped", "compression.type=lz4")
        new = ("--from-beginning", "--bootstrap-server", proxy.bootstrap)
        java_consumer("0.10.2.2", proxy, "kafka.tools.ConsoleConsumer", *new)
    return "Kafka 0.10.2.2: its Java producer (lz4) and ConsoleConsumer"


def scene_0_11(folder: Path, proxy: Proxy) -> str:
    with old_broker("0.11.0.3", folder, proxy):
        java_producer(
            "0.11.0.3",
            proxy,
            "stamped",
            "enable.idempotence=true",
            "max.in.flight.requests.per.connection=1",
            "retries=3",
        )
        new = ("--from-beginning", "--bootstrap-server", proxy.bootstrap)
        java_consumer("0.11.0.3", proxy, "kafka.tools.ConsoleConsumer", *new)
    return "Kafka 0.11.0.3: its idempotent Java producer and ConsoleConsumer"


def scene_2_8(folder: Path, proxy: Proxy) -> str:
    with old_broker("2.8.2", folder, proxy):
        java_producer("2.8.2", proxy, "stamped", "compression.type=zstd")
        new = ("--from-beginning", "--bootstrap-server", proxy.bootstrap, "--isolation-level", "read_committed")
        java_consumer("2.8.2", proxy, "kafka.tools.ConsoleConsumer", *new)
    return "Kafka 2.8.2: its Java producer (zstd) and ConsoleConsumer, which reads committed"


def scene_java(folder: Path, proxy: Proxy) -> str:
    with modern_broker(folder, proxy):
        java_producer(MODERN, proxy, "stamped", "compression.type=snappy")
        new = ("--from-beginning", "--bootstrap-server", proxy.bootstrap)
        java_consumer(MODERN, proxy, "org.apache.kafka.tools.consumer.ConsoleConsumer", *new)
    return "Kafka 4.3.0: its Java producer (snappy) and ConsoleConsumer"


def scene_librdkafka(folder: Path, proxy: Proxy) -> str:
    with modern_broker(folder, proxy):
        common: dict[str, str | int | bool] = {"bootstrap.servers": proxy.bootstrap, "log_level": 0}
        producer = Producer({**common, "compression.type": "zstd", "enable.idempotence": True, "linger.ms": 500})
        for number, (key, value) in enumerate(PAIRS):
            producer.produce(TOPIC, value, key, timestamp=_TIMESTAMP + number, headers=[("n", bytes([number]))])
        producer.flush(30)
        consumer = Consumer({**common, "group.id": "readers", "auto.offset.reset": "earliest"})
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        got = 0
        while got < len(PAIRS):
            got += len(consumer.consume(len(PAIRS), 1))
        consumer.commit(asynchronous=False)
        consumer.close()
    return "Kafka 4.3.0: confluent-kafka's idempotent producer (zstd, headers) and consumer, which commits"


def scene_admin(folder: Path, proxy: Proxy) -> str:
    with modern_broker(folder, proxy):
        admin = AdminClient({"bootstrap.servers": proxy.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic("made", 2, 1, config={"cleanup.policy": "compact"})])["made"].result(30)
        resource = ConfigResource(ConfigResource.Type.TOPIC, TOPIC)
        admin.describe_configs([resource])[resource].result(30)
        admin.list_consumer_groups().result(30)
        admin.delete_topics(["made"])["made"].result(30)
    return "Kafka 4.3.0: confluent-kafka's admin client makes, describes and deletes a topic, and lists groups"


SCENES: Mapping[str, Callable[[Path, Proxy], str]] = {
    "0.8.2.2": scene_0_8,
    "0.9.0.1": scene_0_9,
    "0.10.2.2": scene_0_10,
    "0.11.0.3": scene_0_11,
    "2.8.2": scene_2_8,
    "4.3.0-java": scene_java,
    "4.3.0-librdkafka": scene_librdkafka,
    "4.3.0-admin": scene_admin,
}


def capture(name: str) -> None:
    """Write one folder with the connections that had traffic."""
    target = STREAMS / name
    with tempfile.TemporaryDirectory(prefix="kseg-streams-") as scratch:
        folder = Path(scratch)
        with Proxy(folder / "said") as proxy:
            what = SCENES[name](folder, proxy)
            time.sleep(0.5)
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        digests = []
        for path in sorted((folder / "said").iterdir()):
            if path.stat().st_size:
                shutil.copy(path, target / path.name)
                digests.append(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n")
    if name != "4.3.0-admin":
        sent = [[None if data is None else data.hex() for data in pair] for pair in PAIRS]
        (target / "sent.json").write_text(json.dumps(sent) + "\n", encoding="utf-8")
    (target / "ORIGIN").write_text(f"{what}\n\n{''.join(digests)}", encoding="utf-8")
    (target / "expect.jsonl").write_text(said(judge_of(target), [target]), encoding="utf-8")


def judge_of(folder: Path) -> str:
    """The Kafka whose classes read a folder's streams: of old versions 3.9, since 4 has dropped them."""
    return MODERN if folder.name.startswith(MODERN) else "3.9.1"


def said(version: str, folders: Iterable[Path]) -> str:
    """Return the reading of the classes of that Kafka for folders of streams, in their order."""
    requests = [path for folder in folders for path in sorted(folder.glob("*.requests"))]
    files = [str(file) for path in requests for file in (path, path.with_suffix(".responses"))]
    return run_java(version, str(PROGRAM), files)


if __name__ == "__main__":
    for scene in sys.argv[1:] or SCENES:
        capture(scene)
        print(scene, flush=True)
