"""One Kafka broker in KRaft mode (3.9, 4.x): broker and controller in one process, on free ports of 127.0.0.1."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tools.lab import class_archive, maven
from tools.lab.ports import free_port

CLUSTER_ID = "a3NlZy1sYWItMDAwMDAwMQ"
START_SECONDS = 90.0
STOP_SECONDS = 60.0
DEFAULTS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "num.partitions": "1",
    "auto.create.topics.enable": "false",
    # Indexes of active segments are preallocated to this size; and small files shall have entries in them.
    "log.index.size.max.bytes": "1200",
    "log.index.interval.bytes": "512",
    # Explicit timestamps lie years back.
    "log.retention.ms": "-1",
    "log.cleaner.backoff.ms": "200",
    "log.cleaner.dedupe.buffer.size": "4194304",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}


class KraftBroker:
    """`with KraftBroker("4.3.0", folder) as broker:` starts it, and stops the process in any case.

    `folder` keeps the configuration, the log directory and the output of the process; a folder used before is started
    again unchanged. `standalone` formats a dynamic quorum (KIP-853, kraft.version 1) instead of a static one.
    `release` is the metadata.version of a new log directory.
    `plugins` names more jars of `maven`. `heap` is the largest heap of its JVM, `flags` replace those for the archive of
    its classes. Raises RuntimeError when the broker ends or does not answer in time.
    """

    def __init__(
        self,
        version: str,
        folder: Path,
        properties: Mapping[str, str] | None = None,
        port: int = 0,
        *,
        standalone: bool = False,
        release: str | None = None,
        plugins: str | None = None,
        heap: str = "512m",
        flags: Sequence[str] | None = None,
    ) -> None:
        self.version = version
        self.folder = folder
        self.log_dir = folder / "logs"
        self.port = port or free_port()
        self._controller_port = free_port()
        self._standalone = standalone
        self._release = release
        self._heap = heap
        self._flags = flags
        self._jars = [f"{maven.libs(jars)}/*" for jars in (version, plugins) if jars]
        self._properties = dict(properties or {})
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        """`host:port` for clients."""
        return f"127.0.0.1:{self.port}"

    @property
    def quorum(self) -> str:
        """`id@host:port` of its controller, the controller.quorum.voters of brokers that join."""
        return f"1@127.0.0.1:{self._controller_port}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.stop()
        else:
            self.kill()

    def start(self) -> None:
        """Formats the log directory if it is new, starts the process and waits until a client gets an answer."""
        self.launch()
        self.wait_until_it_answers()

    def launch(self) -> None:
        """Format the log directory if it is new and start the process.

        The process is killed when the calling thread ends (see `_until_parent_dies`).
        """
        if self._process is not None:
            raise RuntimeError("already running")
        self.folder.mkdir(parents=True, exist_ok=True)
        config = self._write_config()
        if not (self.log_dir / "meta.properties").exists():
            self._format(config)
        with (self.folder / "broker.out").open("ab") as output:
            self._process = subprocess.Popen(
                [*_until_parent_dies(), *self._java("kafka.Kafka"), str(config)],
                stdout=output,
                stderr=output,
                cwd=self.folder,
            )

    def wait_until_it_answers(self) -> None:
        """Wait until a client gets an answer. Raises RuntimeError, and kills the process, when there is none in time."""
        assert self._process is not None
        deadline = time.monotonic() + START_SECONDS
        try:
            while time.monotonic() < deadline:
                if self._process.poll() is not None:
                    raise RuntimeError(f"broker ended with {self._process.returncode}\n{self._output()}")
                if _listens(self.port):
                    with contextlib.suppress(KafkaException):
                        if self.admin().list_topics(timeout=2).brokers:
                            return
                time.sleep(0.2)
            raise RuntimeError(f"broker did not answer within {START_SECONDS:.0f} s\n{self._output()}")
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Clean shutdown (SIGTERM): indexes trimmed, producer snapshots and `.kafka_cleanshutdown` written."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired as late:
            self.kill()
            raise RuntimeError(f"no clean shutdown within {STOP_SECONDS:.0f} s\n{self._output()}") from late
        self._process = None

    def kill(self) -> None:
        """SIGKILL: the folder is then as after a crash."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def signal(self, number: int) -> None:
        """Send a signal to the process."""
        if self._process is not None:
            self._process.send_signal(number)

    def is_running(self) -> bool:
        """Whether its process has not ended."""
        return self._process is not None and self._process.poll() is None

    def change(self, properties: Mapping[str, str]) -> None:
        """Set properties for the next start."""
        self._properties.update(properties)

    def admin(self) -> AdminClient:
        """A new admin client of this broker."""
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def partition(self, topic: str, number: int = 0) -> Path:
        """The folder of a partition."""
        return self.log_dir / f"{topic}-{number}"

    def _write_config(self) -> Path:
        settings = {
            **DEFAULTS,
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://127.0.0.1:{self._controller_port}",
            "log.dirs": str(self.log_dir),
        }
        if self._standalone:
            settings["controller.quorum.bootstrap.servers"] = f"127.0.0.1:{self._controller_port}"
        else:
            settings["controller.quorum.voters"] = self.quorum
        settings.update(self._properties)
        config = self.folder / "server.properties"
        config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        return config

    def _format(self, config: Path) -> None:
        command = [*self._java("kafka.tools.StorageTool"), "format", "-t", CLUSTER_ID, "-c", str(config)]
        if self._standalone:
            command.append("--standalone")
        if self._release:
            command += ["--release-version", self._release]
        done = subprocess.run(
            command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", cwd=self.folder
        )
        if done.returncode:
            raise RuntimeError(f"format failed\n{done.stdout}")

    def _java(self, program: str) -> list[str]:
        flags = _archive_flags(self.version) if self._flags is None else self._flags
        return ["java", *maven.JVM, f"-Xmx{self._heap}", *flags, "-cp", ":".join(self._jars), program]

    def _output(self) -> str:
        return (self.folder / "broker.out").read_text(encoding="utf-8", errors="replace")[-4000:]


@cache
def _archive_flags(version: str) -> Sequence[str]:
    """Return the flags for the archive of a version's classes: a broker starts in two thirds of the processor time."""

    def train(flags: list[str], folder: Path) -> None:
        with KraftBroker(version, folder / "broker", flags=flags):
            pass

    return class_archive.flags(f"kafka-{version}", maven.libs(version).glob("*.jar"), train)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _until_parent_dies() -> list[str]:
    # A test run that is itself killed can't clean up: the kernel does it. The "parent" is the thread that started it.
    return ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
