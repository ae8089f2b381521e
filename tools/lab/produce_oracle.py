"""Compare the verdicts on produce requests with Kafka's own append: ``python -m tools.lab.produce_oracle N``."""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kseg.extras.wire.produce_verdict import judge_request
from kseg.extras.wire.set_validation import SetVerdict
from tools.lab import maven
from tools.lab.produce_requests import Case, case

PROGRAM = Path(__file__).with_name("ProduceAppend.java")
VERSION = "4.3.0"
RECORDED = maven.ROOT / "fixtures" / "produce" / "requests.jsonl"
#: For records that Kafka appends, but cannot read: it skips keys and values if it does not rewrite the batch.
UNREADABLE = -2


# What differs in the source for Kafka 3.9.1: packages, and the Scala class UnifiedLog.
_IN_3_9 = {
    "org.apache.kafka.common.record.internal": "org.apache.kafka.common.record",
    "org.apache.kafka.storage.internals.log.UnifiedLog;": "org.apache.kafka.storage.internals.log.LogOffsetsListener;",
    "org.apache.kafka.storage.log.metrics.BrokerTopicStats;": "kafka.server.BrokerTopicStats;",
    "new BrokerTopicStats()": "new BrokerTopicStats(false)",
    "UnifiedLog log": "kafka.log.UnifiedLog log",
    "UnifiedLog.create(": "kafka.log.UnifiedLog.apply(",
    "new LogDirFailureChannel(1), true, Optional.empty());": (
        "new LogDirFailureChannel(1), true, scala.Option.empty(), false, new java.util.concurrent.ConcurrentHashMap<>(), "
        "false, LogOffsetsListener.NO_OP_OFFSETS_LISTENER);"
    ),
    "log.appendAsLeader(set, 0);": (
        "log.appendAsLeader(set, 0, org.apache.kafka.storage.internals.log.AppendOrigin.CLIENT, "
        "org.apache.kafka.server.common.MetadataVersion.latestProduction(), "
        "kafka.server.RequestLocal.NoCaching(), "
        "org.apache.kafka.storage.internals.log.VerificationGuard.SENTINEL);"
    ),
}


# The defaults of Kafka 4.3 that differ from those of 3.9.1, and the last version that 3.9.1 reads.
_CHANGED_DEFAULTS = {"message.timestamp.after.max.ms": "3600000"}
_LAST_IN_3_9 = 11


class ProduceAppend:
    """``with ProduceAppend() as kafka: kafka.append(case)``. ``version`` is 4.3.0 or 3.9.1."""

    def __init__(self, version: str = VERSION) -> None:
        self._version = version

    def __enter__(self) -> Self:
        memory = Path("/dev/shm")
        self._work = tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None)
        source = PROGRAM.read_text(encoding="utf-8")
        for name, other in _IN_3_9.items() if self._version == "3.9.1" else ():
            source = source.replace(name, other)
        program = Path(self._work.name, PROGRAM.name)
        program.write_text(source, encoding="utf-8")
        command = ["java", "-Xmx1g", *maven.QUICK, "-cp", f"{maven.libs(self._version)}/*", str(program)]
        self._jvm = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._jvm.kill()
        self._jvm.communicate()
        self._work.cleanup()

    def append(self, made: Case) -> list[dict[str, Any]]:
        """Return what Kafka answers to each set of the request, as ProduceAppend.java prints it."""
        assert self._jvm.stdin
        assert self._jvm.stdout
        asked = {
            "version": made.version,
            "acks": made.acks,
            "transactional_id": made.transactional_id is not None,
            "now": made.topic.now,
            "settings": {**_CHANGED_DEFAULTS, **made.topic_settings()}
            if self._version == "3.9.1"
            else made.topic_settings(),
            "sets": made.as_row()["sets"],
            "dir": self._work.name,
        }
        self._jvm.stdin.write(json.dumps(asked).encode() + b"\n")
        self._jvm.stdin.flush()
        answer: list[dict[str, Any]] = json.loads(self._jvm.stdout.readline())
        return answer


def disagreements(
    seeds: Iterable[int], outcomes: Counter[str] | None = None, version: str = VERSION
) -> Iterator[tuple[Case, str]]:
    """Append the requests of the seeds; yield those with another result than the verdict, with the difference."""
    with ProduceAppend(version) as kafka:
        for seed in seeds:
            made = case(seed)
            if version == "3.9.1" and made.version > _LAST_IN_3_9:
                continue
            for text in differences(made, kafka.append(made), outcomes):
                yield made, text


def differences(made: Case, answers: list[dict[str, Any]], outcomes: Counter[str] | None = None) -> Iterator[str]:
    """Yield how the verdicts on a request differ from Kafka's answers."""
    sets = [memoryview(data) for data in made.sets]
    verdicts = judge_request(made.version, made.acks, made.transactional_id, sets, made.topic)
    for number, (verdict, answer) in enumerate(zip(verdicts, answers, strict=True)):
        if outcomes is not None:
            outcomes[verdict.error or verdict.outcome] += 1
        if text := _difference(verdict, answer):
            yield f"set {number}: {text}"


def recorded() -> list[tuple[Case, list[dict[str, Any]]]]:
    """Return the recorded requests with Kafka's answers, for tests without Kafka."""
    lines = RECORDED.read_text(encoding="utf-8").splitlines()
    return [(Case.of_row(row["request"]), row["answers"]) for row in map(json.loads, lines)]


def record(count: int) -> None:
    """Record the answers to the first requests."""
    with ProduceAppend() as kafka, RECORDED.open("w", encoding="utf-8") as out:
        for seed in range(count):
            made = case(seed)
            answers = [{**answer, "message": None} for answer in kafka.append(made)]
            out.write(json.dumps({"request": made.as_row(), "answers": answers}, separators=(",", ":")) + "\n")


def _difference(verdict: SetVerdict, answer: dict[str, Any]) -> str:
    """Return how Kafka's result differs from the verdict, or ""."""
    if verdict.outcome == "undetermined":
        return ""
    predicted: dict[str, Any] = {"error": verdict.error}
    if not verdict.error:
        predicted["batches"] = int(verdict.magic is not None)
        if verdict.magic is not None:
            predicted |= {"magic": verdict.magic, "compression": verdict.compression, "records": verdict.records}
            predicted["max_timestamp"] = verdict.max_timestamp
            if verdict.max_timestamp_index is not None and answer.get("max_timestamp_offset") != UNREADABLE:
                predicted["max_timestamp_offset"] = verdict.max_timestamp_index
            if verdict.bytes is not None:
                predicted["bytes"] = verdict.bytes
    wrong = [name for name, value in predicted.items() if answer.get(name) != value]
    parts = [f"{name}: predicted {predicted[name]}, was {answer.get(name)}" for name in wrong]
    return "; ".join(parts) + f" ({verdict.why!r}; {answer.get('message')})" if parts else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--broker", choices=("4.3.0", "3.9.1"), default=VERSION)
    parser.add_argument("--record", action="store_true", help="record the answers instead of comparing them")
    parser.add_argument("--most", type=int, default=20, help="stop after so many disagreements")
    requested = parser.parse_args()
    if requested.record:
        record(requested.count)
        return
    began, found = time.monotonic(), 0
    outcomes: Counter[str] = Counter()
    seeds = range(requested.first, requested.first + requested.count)
    for made, text in disagreements(seeds, outcomes, requested.broker):
        found += 1
        print(
            f"{made.seed} v{made.version} {made.topic.compression_type} {', '.join(made.done)}\n    {text}", flush=True
        )
        if found == requested.most:
            break
    print(f"{requested.count} requests, {found} disagreements, {time.monotonic() - began:.0f} s")
    print(", ".join(f"{name} {count}" for name, count in outcomes.most_common()))


if __name__ == "__main__":
    main()
