"""Send random produce requests to a real broker, and compare its error codes with the verdicts.

``produce_oracle`` compares far more requests with Kafka's own classes, in the order in which a broker calls them. This
shows that the order is right.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from confluent_kafka.cimpl import NewTopic

from kseg.extras.wire.produce_verdict import judge_request
from kseg.extras.wire.set_validation import TopicSettings
from tools.lab import kafka_requests
from tools.lab.kraft import KraftBroker
from tools.lab.produce_requests import Case, case

#: The versions that are sent: later ones have another layout and the same checks.
VERSIONS = {"4.3.0": range(3, 9), "3.9.1": range(9)}
ERRORS = {
    "UNKNOWN_SERVER_ERROR": -1, "CORRUPT_MESSAGE": 2, "MESSAGE_TOO_LARGE": 10, "INVALID_REQUIRED_ACKS": 21,
    "INVALID_TIMESTAMP": 32, "INVALID_PRODUCER_EPOCH": 47, "INVALID_PRODUCER_ID_MAPPING": 49,
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": 53, "UNSUPPORTED_COMPRESSION_TYPE": 76, "INVALID_RECORD": 87,
}  # fmt: skip
_NO_LEADER = 6
_HOUR = 3_600_000
# No partition gets two requests, because a partition remembers its producers.
_PARTITIONS = 90
_NOW = TopicSettings(now=0, timestamp_after_max_ms=_HOUR)
_TOPICS = (
    _NOW,
    replace(_NOW, compression_type="lz4", compacted=True),
    replace(_NOW, compression_type="gzip", max_message_bytes=200),
    replace(_NOW, compression_type="uncompressed"),
    replace(_NOW, compression_type="zstd", timestamp_before_max_ms=_HOUR),
    replace(_NOW, compression_type="snappy", timestamp_after_max_ms=0),
)


def differences(version: str, folder: Path, count: int) -> Iterator[str]:
    """Send ``count`` requests to a broker of a version; yield those with other error codes than the verdicts."""
    used = [0] * len(_TOPICS)
    with KraftBroker(version, folder, {"transaction.partition.verification.enable": "false"}) as broker:
        _create_topics(broker)
        seeds = iter(range(1_000_000))
        while count:
            made = case(next(seeds))
            number = made.seed % len(_TOPICS)
            if made.version not in VERSIONS[version] or used[number] + len(made.sets) > _PARTITIONS:
                if all(one + 3 > _PARTITIONS for one in used):
                    return
                continue
            made.acks = made.acks or 1  # with acks 0, a broker does not answer
            partitions = range(used[number], used[number] + len(made.sets))
            used[number] += len(made.sets)
            count -= 1
            answers = _send(broker.port, made, f"topic{number}", partitions)
            sets = [memoryview(data) for data in made.sets]
            topic = replace(_TOPICS[number], now=time.time_ns() // 1_000_000)
            verdicts = judge_request(made.version, made.acks, made.transactional_id, sets, topic)
            for verdict, answer in zip(verdicts, answers, strict=True):
                predicted = ERRORS[verdict.error] if verdict.error else 0
                if answer != predicted and verdict.outcome != "undetermined":
                    yield f"{made.seed} {made.done}: {predicted} {verdict.why!r}, was {answer}"


def is_answered(version: str, folder: Path, api_version: int) -> bool:
    """Return whether a broker answers a produce request of ``api_version`` before it closes the connection."""
    with KraftBroker(version, folder) as broker:
        _create_topics(broker)
        try:
            _send(broker.port, Case(0, api_version, 1, None, _NOW, [b""]), "topic0", [0])
        except struct.error:  # the size of the response is missing
            return False
        return True


def _create_topics(broker: KraftBroker) -> None:
    topics = []
    for number, topic in enumerate(_TOPICS):
        settings = Case(0, 3, 1, None, topic, []).topic_settings()
        topics.append(NewTopic(f"topic{number}", _PARTITIONS, 1, config=settings))
    admin = broker.admin()  # until the topics exist
    for created in admin.create_topics(topics).values():
        created.result(60)


def _send(port: int, made: Case, topic: str, partitions: Sequence[int]) -> list[Any]:
    """Return the error code of each set."""
    parts = struct.pack(">h", len(topic)) + topic.encode() + struct.pack(">i", len(partitions))
    for partition, data in zip(partitions, made.sets, strict=True):
        parts += struct.pack(">ii", partition, len(data)) + data
    body = struct.pack(">hii", made.acks, 30_000, 1) + parts
    if made.version >= 3:
        name = made.transactional_id
        body = (struct.pack(">h", -1) if name is None else struct.pack(">h", len(name)) + name.encode()) + body
    while True:
        answer = kafka_requests.exchanged("ProduceResponse", port, 0, made.version, body)
        found = {row["index"]: row["errorCode"] for row in answer["responses"][0]["partitionResponses"]}
        if _NO_LEADER not in found.values():
            return [found[partition] for partition in partitions]
        time.sleep(0.2)  # the broker has created the topic, and does not lead all of its partitions yet
