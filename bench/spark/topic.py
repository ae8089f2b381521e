"""A topic of a real broker on this machine, and what Spark's own ``kafka`` source needs to read it.

The broker is given the segments of a corpus, and so both sides read the same bytes: one from it, one from its log dir.
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
#: The newest in Maven that runs under the pyspark here, and what of its needs Spark does not bring.
CONNECTOR = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.0",
    "org.apache.commons:commons-pool2:2.12.0",
)


#: As brokers have them by default: those of the tests are for small segments.
_INDEXES = {"log.index.size.max.bytes": str(10 << 20), "log.index.interval.bytes": "4096"}


@dataclass(frozen=True, slots=True)
class Topic:
    """Where it is served, and where its partition lies."""

    bootstrap: str
    folder: Path


def jars() -> str:
    """The connector's jars as ``spark.jars`` takes them; nothing where Maven or Java is missing."""
    if maven.missing():
        return ""
    return ",".join(str(path) for path in sorted(maven.only("spark-kafka", CONNECTOR).glob("*.jar")))


@contextmanager
def served(name: str) -> Iterator[Topic]:
    """A broker with the segment of that corpus in a topic's one partition. Raises BenchError where there can be none."""
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
