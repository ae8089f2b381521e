"""Kafka brokers of the ZooKeeper era (0.8.2 to 3.x) as context managers, and their own producer clients."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from tools.lab import maven
from tools.lab.ports import LOCALHOST, free_port

ZOOKEEPER_FROM = "2.8.2"
SESSION_SECONDS = 6
OLD_PRODUCER = Path(__file__).with_name("OldProducer.java")

# The old jars reach into the JDK by reflection, which Java 17 refuses without these.
JVM_FLAGS = [
    *("--add-opens", "java.base/java.lang=ALL-UNNAMED"),
    *("--add-opens", "java.base/sun.nio.ch=ALL-UNNAMED"),
    *("--add-opens", "java.base/java.nio=ALL-UNNAMED"),
    # Short-lived small processes: start fast, stay small.
    *("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xms32m", "-Xmx256m"),
]

# Unknown names only earn a warning, so one table serves every version.
BROKER_PROPERTIES = {
    "broker.id": "0",
    "host.name": LOCALHOST,
    "advertised.host.name": LOCALHOST,
    "zookeeper.session.timeout.ms": str(SESSION_SECONDS * 1000),
    "num.partitions": "1",
    "num.network.threads": "1",
    "num.io.threads": "2",
    "controlled.shutdown.enable": "false",
    # Explicit timestamps lie years back: neither retention nor rolling may act on them (100 years).
    "log.retention.hours": "876000",
    "log.roll.hours": "876000",
    # Indexes are preallocated to this size, and small files shall have entries in them.
    "log.index.size.max.bytes": "4096",
    "log.index.interval.bytes": "256",
    # 0.8.2 has it off, and the default buffer (128 MiB) is larger than the heap.
    "log.cleaner.enable": "true",
    "log.cleaner.dedupe.buffer.size": "4194304",
    "log.cleaner.backoff.ms": "200",
    "log.segment.delete.delay.ms": "100",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
}


def java(version: str, *arguments: str) -> list[str]:
    """The command line that runs Java ``arguments`` on the jars of one Kafka version."""
    return ["java", *JVM_FLAGS, "-cp", f"{maven.libs(version)}/*", *arguments]


def write_properties(path: Path, properties: Mapping[str, str]) -> None:
    """Write a Java properties file."""
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))


class _Server:
    """One Java process that listens on a port; its output goes to a file."""

    def __init__(self, command: list[str], port: int, output: Path, start_seconds: float = 60) -> None:
        self.port = port
        self._output = output
        with output.open("ab") as stream:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT, cwd=output.parent
            )
        try:
            self._wait_for_port(time.monotonic() + start_seconds)
        except BaseException:
            self.kill()
            raise

    def _wait_for_port(self, deadline: float) -> None:
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise RuntimeError(f"the server ended with {self._process.returncode}:\n{self._tail()}")
            with contextlib.suppress(OSError), socket.create_connection((LOCALHOST, self.port), timeout=1):
                return
            time.sleep(0.1)
        raise TimeoutError(f"nothing listens on port {self.port}:\n{self._tail()}")

    def _tail(self) -> str:
        return self._output.read_text(errors="replace")[-4000:]

    def stop(self, seconds: float = 60) -> None:
        self._process.terminate()
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


class ZooKeeper:
    """A ZooKeeper on 127.0.0.1 whose data is kept in ``folder``, so that a later one can continue from it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._server: _Server | None = None
        self.address = ""

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        port = free_port()
        settings = self._folder / "zookeeper.properties"
        write_properties(
            settings,
            {
                "dataDir": str(self._folder / "data"),
                "clientPort": str(port),
                "clientPortAddress": LOCALHOST,
                "admin.enableServer": "false",
                "tickTime": "1000",
            },
        )
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        self._server = _Server(java(ZOOKEEPER_FROM, main, str(settings)), port, self._folder / "zookeeper.out")
        self.address = f"{LOCALHOST}:{port}"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.stop()


class OldBroker:
    """A broker of any ZooKeeper version; stopped cleanly (SIGTERM, waited for) at the end of the ``with`` block.

    ``folder`` keeps the log dir and, without a given ``zookeeper``, ZooKeeper's data: a later broker on the same
    folder, even of another version or with other ``properties``, continues from there. A shared ``zookeeper`` holds
    each broker below a chroot named after its folder.

    Raises RuntimeError or TimeoutError, with the end of the broker's output, when it doesn't start.
    """

    def __init__(
        self,
        version: str,
        folder: Path,
        properties: Mapping[str, str] | None = None,
        zookeeper: ZooKeeper | None = None,
    ) -> None:
        self.version = version
        self.folder = folder
        self.properties = dict(properties or {})
        self.log_dir = folder / "logs"
        self.bootstrap = ""
        self._zookeeper = zookeeper
        self._connect = ""
        self._server: _Server | None = None
        self._own = contextlib.ExitStack()

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as stack:
            zookeeper = self._zookeeper or stack.enter_context(ZooKeeper(self.folder / "zookeeper"))
            self._connect = f"{zookeeper.address}/{self.folder.name}"
            self._server = self._start(free_port())
            self._own = stack.pop_all()
        return self

    def _start(self, port: int) -> _Server:
        self.bootstrap = f"{LOCALHOST}:{port}"
        settings = self.folder / "server.properties"
        own = {
            "port": str(port),
            "listeners": f"PLAINTEXT://{self.bootstrap}",
            "log.dirs": str(self.log_dir),
            "zookeeper.connect": self._connect,
        }
        write_properties(settings, BROKER_PROPERTIES | own | self.properties)
        return _Server(java(self.version, "kafka.Kafka", str(settings)), port, self.folder / "broker.out")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._own:
            self.stop()

    def stop(self) -> None:
        """Stop cleanly: logs flushed, indexes trimmed, the clean-shutdown file written. Again is harmless."""
        server, self._server = self._server, None
        if server is not None:
            server.stop()

    def kill(self) -> None:
        """End the broker as a crash does: no clean-shutdown file, indexes as preallocated. Waits for ZooKeeper, 8 s."""
        server, self._server = self._server, None
        if server is not None:
            server.kill()
            # While ZooKeeper still holds the dead broker's registration, the next one with its id gives up.
            time.sleep(SESSION_SECONDS + 2)

    def partition(self, topic: str) -> Path:
        """The folder of partition 0 of a topic."""
        return self.log_dir / f"{topic}-0"

    def create_topic(self, topic: str, configs: Mapping[str, str] | None = None) -> None:
        """Create a topic of one partition. A topic without configs needs none of this: producing to it creates it."""
        options = [option for name, value in (configs or {}).items() for option in ("--config", f"{name}={value}")]
        created = ["--create", "--topic", topic, "--partitions", "1", "--replication-factor", "1"]
        self._command("kafka.admin.TopicCommand", "--zookeeper", self._connect, *created, *options)

    def alter_topic(self, topic: str, configs: Mapping[str, str]) -> None:
        """Change configs of a topic (0.9 or later); brokers hear of it through ZooKeeper, within a moment."""
        settings = ",".join(f"{name}={value}" for name, value in configs.items())
        entity = ["--entity-type", "topics", "--entity-name", topic]
        at = ["--zookeeper", self._connect]
        self._command("kafka.admin.ConfigCommand", *at, "--alter", *entity, "--add-config", settings)

    def produce(self, script: Iterable[str], client: str | None = None) -> None:
        """Run an OldProducer script with the producer of this broker's version, or of version ``client``."""
        self._command(str(OLD_PRODUCER), self.bootstrap, version=client, script="".join(f"{line}\n" for line in script))

    def _command(self, *arguments: str, version: str | None = None, script: str = "") -> None:
        done = subprocess.run(
            java(version or self.version, *arguments),
            check=False,
            input=script,
            capture_output=True,
            text=True,
            timeout=180,
        )
        # Kafka's commands print their failures and may still exit with 0.
        if done.returncode != 0 or "Error while executing" in done.stdout:
            output = f"{done.stdout}\n{done.stderr}"
            raise RuntimeError(f"{arguments[0]} of {version or self.version} failed:\n{output[-6000:]}")

    def wait_cleaned(self, topic: str, offset: int, seconds: float = 60) -> None:
        """Wait until a topic is cleaned up to ``offset``, and what that replaced is gone. Raises TimeoutError."""
        checkpoint = self.log_dir / "cleaner-offset-checkpoint"
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            lines = checkpoint.read_text().splitlines() if checkpoint.exists() else []
            cleaned = any(line.split()[:2] == [topic, "0"] and int(line.split()[2]) >= offset for line in lines[2:])
            if cleaned and not list(self.partition(topic).glob("*.deleted")):
                return
            time.sleep(0.2)
        raise TimeoutError(f"{topic} was not cleaned up to {offset}; the broker's log is in {self.folder}")

    def wait_unchanged(self, topic: str, seconds: float = 8, at_most: float = 120) -> None:
        """Wait until the files of a topic have been the same for so long. Raises TimeoutError."""
        deadline = time.monotonic() + at_most
        last, since = None, time.monotonic()
        while time.monotonic() < deadline:
            now = sorted((path.name, path.stat().st_size) for path in self.partition(topic).iterdir())
            if now != last:
                last, since = now, time.monotonic()
            elif time.monotonic() - since >= seconds:
                return
            time.sleep(1)
        raise TimeoutError(f"{topic} still changes; the broker's log is in {self.folder}")


def scratch() -> tempfile.TemporaryDirectory[str]:
    """A folder for brokers that is gone after the ``with`` block."""
    return tempfile.TemporaryDirectory(prefix="kseg-old-brokers-")


def copy_partition(source: Path, target: Path) -> None:
    """Replace ``target`` by the files of a partition folder as they are now."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
