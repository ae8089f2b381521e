"""A topic of a real broker on this machine, and what Spark's own ``kafka`` source needs to read it.

The broker has the segments of a corpus. Both sides read the same bytes: Spark from the broker, kseg from its log directory.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.corpora import HOME, KAFKA, corpus
from bench.measure import BenchError
from tools.lab import maven
from tools.lab.kraft import KraftBroker
from tools.lab.modern_fixtures import create_topic
from tools.lab.serve import forget_clean_stop, put

NAME = "events"
#: The newest connector in Maven for this pyspark, and its dependencies that Spark does not include.
CONNECTOR = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.0",
    "org.apache.commons:commons-pool2:2.12.0",
)


#: The defaults of brokers; the tests use values for small segments.
_INDEXES = {"log.index.size.max.bytes": str(10 << 20), "log.index.interval.bytes": "4096"}


@dataclass(frozen=True, slots=True)
class Topic:
    """The address of the broker, and the folder of the partition."""

    bootstrap: str
    folder: Path


def jars() -> str:
    """Return the connector's jars for ``spark.jars``; empty without Maven or Java."""
    if maven.missing():
        return ""
    return ",".join(str(path) for path in sorted(maven.only("spark-kafka", CONNECTOR).glob("*.jar")))


@contextmanager
def served(name: str) -> Iterator[Topic]:
    """Run a broker with the segment of that corpus as a topic with one partition. Raises BenchError if it can't run."""
    if absent := maven.missing():
        raise BenchError(f"a broker {absent}")
    with TemporaryDirectory(prefix="kseg-bench-", dir=HOME) as work:
        broker = KraftBroker(KAFKA, Path(work), _INDEXES)
        with broker:
            create_topic(broker, NAME, {})
            broker.stop()
            put(corpus(name).path.parent, broker.partition(NAME), side_files=False)
            forget_clean_stop(broker)
            broker.start()
            yield Topic(broker.bootstrap, broker.partition(NAME))
