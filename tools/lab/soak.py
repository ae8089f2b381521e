"""kseg next to a cluster of three brokers that fail, elect, truncate, move replicas, compact and delete.

    KSEG_SOAK_SECONDS=7200 python -m tools.lab.soak FOLDER [--write]

Each `validate` must end with exit code 0 and without a finding at warning or above: what such a cluster leaves is valid.
`lag` must end without an error, and a `dump --follow` and a Spark stream must run on, without damage and without more
memory or descriptors. `--write` keeps the figure for the page of proof.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import random
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException, TopicPartition

from bench.measure import launcher
from tools.lab.cluster import KraftCluster, freeze, thaw, wait_until
from tools.lab.cluster_traffic import PARTITIONS, TOPICS
from tools.lab.kraft import KraftBroker
from tools.lab.soak_watched import GROWN, Follower, Stream, Watched
from tools.proof import figures

VERSION = "4.3.0"
SECONDS = float(os.environ.get("KSEG_SOAK_SECONDS", "60"))
#: The second log directory of each broker. That of broker 2 fails from time to time.
SECOND = "logs-2"
BROKER = {
    "log.dirs": f"logs,{SECOND}",
    # Indexes larger than the lab's, so that stale entries are in the middle of preallocated space. With 64 KiB a time index
    # was full after 20 minutes: the broker then wrote batches to the old segment, failed, and wrote them to a new one, too.
    "log.index.size.max.bytes": "1048576",
    "log.cleaner.backoff.ms": "500",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "3000",
    "transaction.state.log.segment.bytes": "1048576",
    "log.retention.check.interval.ms": "1000",
    "unclean.leader.election.interval.ms": "1000",
}
#: Run in turn. CACHE is a file that the runs share.
COMMANDS = (
    ("validate", "--format", "jsonl"),
    ("lag", "--format", "jsonl"),
    ("validate", "--format", "jsonl", "--cache", "CACHE"),
    ("validate", "--format", "jsonl", "--jobs", "2"),
    ("validate", "--format", "jsonl", "--cache", "CACHE"),
    ("validate", "--format", "jsonl", "--shallow"),
)
PAUSE_SECONDS = 2.0
#: The exit code when something could not be read.
UNREADABLE = 2
MAX_KEPT = 50


@dataclass(slots=True)
class Report:
    """The figures of a soak. `bad` are findings at warning or above, and runs that failed, at most MAX_KEPT.

    `peaks` are the largest memory of each run in bytes; `lags` counts the rows of `lag`; `unreadable` the runs with exit
    code 2 while a log directory was away, the last time until `away_until` (monotonic, infinite while it is away).
    """

    seconds: float = 0
    runs: int = 0
    peaks: list[int] = field(default_factory=list)
    lags: int = 0
    unreadable: int = 0
    away_until: float = 0
    watched: list[str] = field(default_factory=list)
    segments: int = 0
    batches: int = 0
    bytes: int = 0
    infos: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)
    bad: list[dict[str, Any]] = field(default_factory=list)
    bad_count: int = 0
    grown: list[str] = field(default_factory=list)

    def add_bad(self, row: dict[str, Any]) -> None:
        self.bad_count += 1
        if len(self.bad) < MAX_KEPT:
            self.bad.append(row)

    def __str__(self) -> str:
        half = len(self.peaks) // 2 or 1
        peaks = " and ".join(f"{max(part, default=0) >> 20}" for part in (self.peaks[:half], self.peaks[half:]))
        return (
            f"{self.seconds / 60:.0f} minutes: {self.runs} runs of validate and lag, {self.segments:,} segments,"
            f" {self.batches:,} batches, {self.lags:,} rows of lag; at most {peaks} MB in the first and second half;"
            f" {'; '.join(self.watched)}; {sum(self.events.values())} events, and {self.unreadable} runs could not read a"
            " log directory that failed;"
            f" {self.bad_count} findings at warning or above, or failed runs;"
            f" with more memory or descriptors: {', '.join(self.grown) or 'no command'}"
        )


def soak(folder: Path, seconds: float, seed: int = 1, show: Callable[[str], None] = lambda line: None) -> Report:
    """Run the cluster under load for that time, and validate all its log directories again and again."""
    report = Report(seconds)
    with KraftCluster(VERSION, folder, BROKER) as cluster:
        for topic, config in TOPICS.items():
            cluster.create_topic(
                topic, [(1 + n % 3, 1 + (n + 1) % 3, 1 + (n + 2) % 3) for n in range(PARTITIONS)], config
            )
        load = subprocess.Popen([sys.executable, "-m", "tools.lab.cluster_traffic", cluster.bootstrap, str(seed)])
        until = time.monotonic() + seconds
        done = threading.Event()
        validation = threading.Thread(target=_run_until, args=(done, cluster, report, folder, show))
        pattern = str(cluster.brokers[3].folder / "logs*")
        watched = [Follower(_log_dirs(cluster, 3)), Stream(folder / "checkpoint", pattern)]
        try:
            validation.start()
            # In this thread: a broker is killed when the thread that started it ends.
            _Events(cluster, random.Random(seed), report, show).run(until)
            if (code := load.poll()) is not None:
                report.add_bad({"command": "cluster_traffic", "exit_code": code})
        finally:
            done.set()
            validation.join()
            for each in watched:
                _end(each, report)
            load.kill()
            load.wait()
            for broker in cluster.brokers.values():
                thaw(broker)
    return report


def _run_until(
    done: threading.Event, cluster: KraftCluster, report: Report, folder: Path, show: Callable[[str], None]
) -> None:
    while not done.wait(PAUSE_SECONDS):
        words = [str(folder / "cache") if word == "CACHE" else word for word in COMMANDS[report.runs % len(COMMANDS)]]
        log_dirs = [each for node in cluster.brokers for each in _log_dirs(cluster, node)]
        _run(words, log_dirs, report, folder, show)


def _log_dirs(cluster: KraftCluster, node: int) -> list[Path]:
    """The log directories of a broker, without one that has failed."""
    folder = cluster.brokers[node].folder
    return [path for path in (folder / "logs", folder / SECOND) if path.exists()]


def _end(watched: Watched, report: Report) -> None:
    line, wrong = watched.end()
    report.watched.append(line)
    if wrong is not None and wrong.startswith(GROWN):
        report.grown.append(watched.name)
    elif wrong is not None:
        report.add_bad({"command": line, "stderr": wrong})


def _run(words: list[str], log_dirs: list[Path], report: Report, folder: Path, show: Callable[[str], None]) -> None:
    command = [*words, *map(str, log_dirs)]
    start = time.monotonic()
    lines, stderr, code, peak = _output(command, folder)
    report.runs += 1
    report.peaks.append(peak)
    rows = [json.loads(line) for line in lines]
    if command[0] == "lag":
        report.lags += len(rows)
        failed = code not in (0, 1)  # 1: an unclean election has left a group after the log end
    else:
        summary = rows.pop() if rows else {}
        failed = bool(code or not summary)
        # The exit code says that files were not read.
        found = [row for row in rows if row["kind"] == "finding" and row["rule"] != "read-error"]
        _add_findings(found, summary, report, folder / "bad", show)
    if code == UNREADABLE and report.away_until > start and "Traceback" not in stderr:
        report.unreadable += 1
    elif failed or "Traceback" in stderr:
        report.add_bad({"command": command[0], "exit_code": code, "stderr": stderr[-2000:]})
        show(f"exit code {code}: {stderr[-2000:]}")


def _output(command: list[str], folder: Path) -> tuple[list[str], str, int, int]:
    """Return the lines, stderr, exit code and peak memory of a run of kseg."""
    with (folder / "stdout").open("w+b") as out, (folder / "stderr").open("w+b") as err:
        line = [*launcher(folder / "usage"), sys.executable, "-m", "kseg", *command]
        subprocess.run(line, stdout=out, stderr=err, check=True)
    lines, errors, usage = ((folder / name).read_text(encoding="utf-8") for name in ("stdout", "stderr", "usage"))
    done = json.loads(usage)
    return lines.splitlines(), errors, done["code"], done["peak"]


def _add_findings(
    rows: list[dict[str, Any]], summary: dict[str, Any], report: Report, kept: Path, show: Callable[[str], None]
) -> None:
    for row in rows:
        if row["severity"] == "info":
            report.infos[row["rule"]] += 1
        else:
            report.add_bad(row)
            _keep(row, kept)
            show(json.dumps(row))
    report.segments += summary.get("files", 0)
    report.batches += summary.get("batches", 0)


def _keep(row: dict[str, Any], kept: Path) -> None:
    """Copy the partition folder of a finding, once: the broker changes it within seconds."""
    source = Path(row["file"]).parent
    target = kept / f"{source.parent.parent.name}-{source.name}"
    if target.exists() or not source.name[-1].isdigit() or len(list(kept.glob("*"))) >= MAX_KEPT:
        return
    shutil.copytree(source, target, copy_function=_copy_if_there)


def _copy_if_there(source: str, target: str) -> None:
    with contextlib.suppress(FileNotFoundError):  # deleted meanwhile
        shutil.copyfile(source, target)


class _Events:
    """What goes wrong in a cluster, one thing after the other."""

    def __init__(
        self, cluster: KraftCluster, noise: random.Random, report: Report, show: Callable[[str], None]
    ) -> None:
        self._cluster = cluster
        self._noise = noise
        self._report = report
        self._show = show
        self._topics = 0

    def run(self, until: float) -> None:
        kinds = (
            self.unclean_election, self.reassignment, self.unclean_election, self.clean_election, self.crash,
            self.unclean_election, self.topic_deletion, self.record_deletion, self.restart, self.log_dir_failure,
        )  # fmt: skip
        number = 0
        while time.monotonic() < until:
            event = kinds[number % len(kinds)]
            number += 1
            self._show(f"{time.strftime('%H:%M:%S')} {event.__name__}")
            try:
                event()
                self._report.events[event.__name__] += 1
            except (KafkaException, TimeoutError, RuntimeError, OSError) as error:
                self._report.events[f"{event.__name__} failed"] += 1
                self._show(f"{event.__name__}: {error}")
            finally:
                for broker in self._cluster.brokers.values():
                    thaw(broker)
                    self._start_again(broker)
            time.sleep(self._noise.uniform(0.5, 3))

    def _start_again(self, broker: KraftBroker) -> None:
        """Start a broker that has ended, such as a controller that waited too long on a busy machine."""
        if not broker.is_running():
            self._report.events["started again"] += 1
            broker.kill()
            with contextlib.suppress(RuntimeError):
                broker.start()

    def unclean_election(self) -> None:
        """Two followers miss what their leader writes, one of them is elected, and the old leader truncates."""
        cluster = self._cluster
        led: dict[int, list[tuple[str, int]]] = {node: [] for node in cluster.brokers}
        for topic in ("unclean", "transactions"):
            for number in range(PARTITIONS):
                led.setdefault(cluster.leader(topic, number), []).append((topic, number))
        # Broker 1 is the controller, and stays awake.
        leader = self._noise.choice((2, 3))
        other = 5 - leader
        chosen = [place for place in led[leader] if place[1] in (0, 1, 2)]
        if not chosen:
            cluster.reassign({(topic, n): (leader, other) for topic in ("unclean", "transactions") for n in (0, 1)})
            wait_until(lambda: cluster.isr("unclean", 0) == {leader, other}, "replicas moved", 30)
            cluster.elect([(topic, n) for topic in ("unclean", "transactions") for n in (0, 1)])
            chosen = [("unclean", 0), ("unclean", 1), ("transactions", 0)]
        cluster.reassign(dict.fromkeys(chosen, (leader, other)))
        wait_until(lambda: all(cluster.isr(*place) <= {leader, other} for place in chosen), "two replicas", 30)
        freeze(cluster.brokers[other])
        wait_until(lambda: all(other not in cluster.isr(*place) for place in chosen), "the other out of sync", 30)
        time.sleep(self._noise.uniform(0.5, 3))
        freeze(cluster.brokers[leader])
        thaw(cluster.brokers[other])
        wait_until(lambda: all(cluster.leader(*place) == other for place in chosen), "an unclean election", 40)
        time.sleep(self._noise.uniform(0, 2))
        thaw(cluster.brokers[leader])
        wait_until(lambda: all(leader in cluster.isr(*place) for place in chosen), "the old leader in sync", 40)

    def clean_election(self) -> None:
        """Other preferred replicas, which then lead."""
        places = [(topic, n) for topic in TOPICS for n in range(PARTITIONS)]
        self._cluster.elect(self._noise.sample(places, 6))

    def reassignment(self) -> None:
        """Two or three other replicas for some partitions: new ones are copied, old ones deleted."""
        wanted = {}
        for topic in TOPICS:
            nodes = self._noise.sample((1, 2, 3), self._noise.randrange(2, 4))
            wanted[topic, self._noise.randrange(PARTITIONS)] = nodes
        self._cluster.reassign(wanted)
        wait_until(lambda: all(self._cluster.isr(*place) == set(nodes) for place, nodes in wanted.items()), "moved", 40)

    def crash(self) -> None:
        """A killed broker starts again and recovers."""
        broker = self._cluster.brokers[self._noise.choice((2, 3))]
        broker.kill()
        time.sleep(self._noise.uniform(0.5, 6))
        broker.start()

    def restart(self) -> None:
        """A clean shutdown, of the controller, too."""
        broker = self._cluster.brokers[self._noise.choice((1, 2, 3))]
        broker.stop()
        broker.start()

    def log_dir_failure(self) -> None:
        """A log directory of broker 2 is gone when its next segment is rolled; after a restart it is there again."""
        broker = self._cluster.brokers[2]
        failing, away = broker.folder / SECOND, broker.folder / f"failed-{SECOND}"
        self._report.away_until = math.inf
        failing.rename(away)
        try:
            time.sleep(self._noise.uniform(5, 15))
        finally:
            broker.kill()
            away.rename(failing)
            self._report.away_until = time.monotonic()
            broker.start()

    def topic_deletion(self) -> None:
        """A topic is created, written to for a while and deleted."""
        self._topics += 1
        name = f"gone-{self._topics}"
        self._cluster.create_topic(name, [(1, 2, 3)], {})
        time.sleep(self._noise.uniform(0, 2))
        self._cluster.admin.delete_topics([name])[name].result(30)

    def record_deletion(self) -> None:
        """The log start moves up to the middle."""
        admin = self._cluster.admin
        place = TopicPartition("rolled", self._noise.randrange(PARTITIONS), -1)
        admin.delete_records([place])[place].result(30)


def main() -> None:
    folder = Path(sys.argv[1])
    report = soak(folder, SECONDS, show=lambda line: print(line, flush=True))
    print(dict(report.infos), dict(report.events), *report.bad, sep="\n")
    figures.report("soak", str(report))
    sys.exit(bool(report.bad_count or report.grown))


if __name__ == "__main__":
    main()
