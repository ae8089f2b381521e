"""Traffic for a broker under observation: ``python -m tools.lab.traffic HOST:PORT SECONDS`` writes as fast as it can.

Plain, idempotent and transactional producers, some transactions aborted, into topics that roll all the time, that are
compacted, that are deleted from the front, and whose segments are preallocated.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Mapping

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

#: Settings that make all of it happen within seconds; indexes of 1200 bytes are full after 75 KB.
BROKER = {
    "log.retention.check.interval.ms": "300",
    "log.initial.task.delay.ms": "300",
    "log.segment.delete.delay.ms": "500",
    "log.cleaner.backoff.ms": "100",
    "transaction.state.log.segment.bytes": "1048576",
    "producer.id.expiration.ms": "600000",
}
TOPICS: Mapping[str, Mapping[str, str]] = {
    "rolled": {},
    "compacted": {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        "delete.retention.ms": "100",
        "segment.ms": "500",
    },
    "deleted": {"cleanup.policy": "delete", "retention.bytes": "200000"},
    "preallocated": {"preallocate": "true", "segment.bytes": "1048576"},
    "transactions": {},
}


def write(bootstrap: str, seconds: float) -> None:
    """Creates TOPICS and fills them for that time."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    topics = [NewTopic(name, 1, 1, config=dict(config)) for name, config in TOPICS.items()]
    for created in admin.create_topics(topics).values():
        created.result(30)
    common: dict[str, str | int | bool] = {"bootstrap.servers": bootstrap, "linger.ms": 1, "log_level": 0}
    plain = Producer({**common, "compression.type": "lz4"})
    idempotent = Producer({**common, "enable.idempotence": True})
    transactional = Producer({**common, "transactional.id": "live"})
    transactional.init_transactions(30)
    noise = random.Random(1)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        transactional.begin_transaction()
        for topic in TOPICS:
            transactional.produce(topic, b"always one: an empty transaction can't be aborted", b"key")
            for number in range(noise.randrange(20)):
                key, value = b"key %d" % noise.randrange(40), noise.randbytes(noise.randrange(900))
                (plain if number % 2 else idempotent).produce(topic, value, key)
                if number % 3 == 0:
                    transactional.produce(topic, value, key)
            plain.poll(0)
            idempotent.poll(0)
        transactional.flush(30)
        if noise.randrange(3):
            transactional.commit_transaction(30)
        else:
            transactional.abort_transaction(30)
        time.sleep(0.02)
    plain.flush(30)
    idempotent.flush(30)


if __name__ == "__main__":
    write(sys.argv[1], float(sys.argv[2]))
