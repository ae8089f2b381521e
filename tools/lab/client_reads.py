"""Update ``fixtures/clients.jsonl``, what client libraries read of the fixtures: ``python -m tools.lab.client_reads``.

A real broker serves the files of each fixture as a partition, and each client consumes all of them with its defaults. The
broker recovers the files of ``segments/``. It serves those of ``findings/`` with their damage, as after a clean shutdown;
the line of a file that keeps it from starting has no client. Files with batches of v0 and v1 are served by Kafka 3.9,
the others by 4.3.
Needs Java, Maven and Go, and ``pip install --group clients``.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from importlib.metadata import version as installed
from pathlib import Path

from confluent_kafka import libversion
from confluent_kafka.cimpl import NewTopic

from kseg import open_partition
from tools.lab import maven
from tools.lab.kraft import KraftBroker
from tools.lab.oracle import Row
from tools.lab.serve import forget_clean_stop, put

FIXTURES = maven.ROOT / "fixtures"
RESULTS = FIXTURES / "clients.jsonl"
PROGRAMS = Path(__file__).with_name("clients")
KAFKA, OLD_KAFKA = "4.3.0", "3.9.1"
SECONDS = 900
_LIMIT = str(1 << 27)


def folders_by_broker() -> dict[str, list[Path]]:
    """Return the folders of fixtures that are the files of a partition, by the version of their broker."""
    found: dict[str, list[Path]] = {KAFKA: [], OLD_KAFKA: []}
    for folder in sorted(path for kind in ("segments", "findings") for path in (FIXTURES / kind).iterdir()):
        logs = [path.name for path in folder.glob("*.log")]
        if logs and all(re.fullmatch(r"\d{20}\.log", name) for name in logs):
            old = any(batch.magic < 2 for batch in open_partition(folder).batches())
            found[OLD_KAFKA if old else KAFKA].append(folder)
    return found


def reads(version: str, folders: Sequence[Path], work: Path) -> Iterator[Row]:
    """Yield what each client reads of each folder, served by one broker in ``work``. Raises RuntimeError if one fails.

    All folders are segments, or all are findings.
    """
    damaged = folders[0].parent.name == "findings"
    served = {folder.name: folder for folder in folders}
    settings = {"message.max.bytes": _LIMIT, "num.recovery.threads.per.data.dir": "1"}
    broker = KraftBroker(version, work, settings, plugins="slf4j-simple")
    with broker:
        admin = broker.admin()
        topics = [NewTopic(name, 1, 1, config={"max.message.bytes": _LIMIT}) for name in served]
        for created in admin.create_topics(topics).values():
            created.result(60)
        broker.stop()
        for name, folder in served.items():
            put(folder, broker.partition(name), side_files=damaged)
            for log in broker.partition(name).glob("*.log") if damaged else ():
                for suffix in (".index", ".timeindex"):  # a broker recovers a segment without indexes
                    log.with_suffix(suffix).touch()
        if not damaged:
            forget_clean_stop(broker)
        for name, error in _start(broker):
            yield {"files": _name(served.pop(name)), "broker": version, "client": None, "error": error}
        for client, row in _consumed(broker.bootstrap, sorted(served)):
            yield {"files": _name(served[row.pop("topic")]), "broker": version, "client": client, **row}


def _name(folder: Path) -> str:
    return folder.relative_to(FIXTURES).as_posix()


def _start(broker: KraftBroker) -> Iterator[tuple[str, str]]:
    """Start a broker; yields the topics whose files it cannot load, with the error, and leaves them out."""
    output, kept = broker.folder / "broker.out", broker.folder / "kept"
    shutil.copytree(broker.log_dir, kept)
    while True:
        before = output.stat().st_size
        try:
            broker.start()
            return
        except RuntimeError:
            said = output.read_bytes()[before:].decode(errors="replace")
            # One thread loads the partitions: the error is that of the first one.
            topic = re.search(r"Error while loading logs in \S*/([^/\s]+)-0 in ", said)
            error = re.search(r"during logs loading: (?:\w+\.)*(\w+)", said)
            if topic is None or error is None:
                raise
        yield topic[1], error[1]
        for file in (kept / f"{topic[1]}-0").iterdir():
            if file.name != "partition.metadata":
                file.unlink()
        # A start that fails leaves the log directory as after a crash: the next one would truncate what is damaged.
        shutil.rmtree(broker.log_dir)
        shutil.copytree(kept, broker.log_dir)


def _consumed(bootstrap: str, topics: Sequence[str]) -> Iterator[tuple[str, Row]]:
    """Yield what each client reads of each topic, with the client's name and version."""
    for client, command in commands().items():
        done = subprocess.run(
            [*command, bootstrap, *topics], check=False, capture_output=True, encoding="utf-8", timeout=SECONDS
        )
        if done.returncode:
            raise RuntimeError(f"{client} ended with {done.returncode}\n{done.stderr[-4000:]}")
        for line in done.stdout.splitlines():
            yield client, json.loads(line)


def commands() -> dict[str, list[str]]:
    """Return the command of each client by its name and version. Raises CalledProcessError if Go cannot compile it."""
    binary = maven.LAB / "clients"
    subprocess.run(["go", "build", "-o", str(binary), "."], cwd=PROGRAMS, check=True)
    required = dict(re.findall(r"^\t(\S+) v(\S+)$", (PROGRAMS / "go.mod").read_text(encoding="utf-8"), re.M))
    librdkafka, python = libversion()[0], [sys.executable, str(PROGRAMS / "consume.py")]
    java = ["java", *maven.JVM, "-cp", f"{maven.libs(KAFKA)}/*", str(PROGRAMS / "Consume.java")]
    return {
        f"java {KAFKA}": java,
        f"librdkafka {librdkafka}": [*python, "librdkafka"],
        f"librdkafka {librdkafka} check.crcs=true": [*python, "librdkafka check.crcs"],
        f"franz-go {required['github.com/twmb/franz-go']}": [str(binary), "franz-go"],
        f"sarama {required['github.com/IBM/sarama']}": [str(binary), "sarama"],
        f"kafka-python {installed('kafka-python')}": [*python, "kafka-python"],
        f"aiokafka {installed('aiokafka')}": [*python, "aiokafka"],
    }


def main() -> None:
    """Write all results."""
    rows: list[Row] = []
    for version, folders in folders_by_broker().items():
        for kind in ("segments", "findings"):
            chosen = [folder for folder in folders if folder.parent.name == kind]
            with tempfile.TemporaryDirectory(prefix="kseg-lab-") as work:
                rows += reads(version, chosen, Path(work))
    rows.sort(key=lambda row: (row["files"], str(row["client"])))
    RESULTS.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    main()
