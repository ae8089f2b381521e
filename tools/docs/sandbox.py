"""The files of the documentation's examples: made from fixtures, with the names that an operator knows.

``python -m tools.docs.sandbox FOLDER`` writes them, to try the examples by hand.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from kseg.format.writer.records_builder import PlainRecord, build_batch
from tests.support import damage, fleet

FIXTURES = Path(__file__).parents[2] / "fixtures"
SEGMENTS = FIXTURES / "segments"
#: Files of a fixture that no broker writes.
EXTRA = ("ORIGIN", "expect.jsonl", "settings.json", "committed-offsets.json")
#: Partition of the damaged broker -> its fixture.
PARTITIONS = {
    "orders-0": "4.3.0-v2-none-segments",
    "payments-1": "4.3.0-v2-none-transactions",
    "clicks-2": "4.3.0-v2-none-headers",
    "__consumer_offsets-3": "4.3.0-v2-none-internal-consumer-offsets",
}
_ENDS = {"orders-0": 121, "payments-1": 88, "clicks-2": 26, "__consumer_offsets-3": 62}


def make(home: Path) -> Path:
    """Write all files below ``home``, and return it."""
    _kafka_logs(home / "kafka-logs")
    fleet.make(home / "backup")
    for number, fixture in enumerate(("0.8.2.2-v0-gzip", "0.10.2.2-v1-gzip-segments", "2.8.2-v0v1v2-mixed")):
        copy(SEGMENTS / fixture, home / "old-logs" / f"orders-{number}")
    _consumer_logs(home / "consumer-logs")
    for partition in ("_schemas-0", "orders-0", "users-0"):
        copy(FIXTURES / "serialized" / partition, home / "shop" / partition)
    shutil.copytree(FIXTURES / "statements", home / "statements")
    captures = home / "captures"
    captures.mkdir()
    for name, suffix in (("client.bin", "requests"), ("broker.bin", "responses")):
        shutil.copyfile(FIXTURES / "streams" / "4.3.0-java" / f"06.{suffix}", captures / name)
    shutil.copyfile(FIXTURES / "framed" / "message-article" / "data", captures / "message.bin")
    (home / "old-logs" / "orders-2" / "00000000000000000040.snapshot").unlink()  # the broker would delete it
    return home


def copy(fixture: Path, target: Path) -> None:
    """Copy the files of a fixture that a broker or a client wrote."""
    shutil.copytree(fixture, target, ignore=shutil.ignore_patterns(*EXTRA))


def _consumer_logs(home: Path) -> None:
    """Write a log directory with committed offsets, and their partitions. One of them has lost its end."""
    copy(SEGMENTS / "4.3.0-v2-none-internal-consumer-offsets", home / "__consumer_offsets-3")
    ends = {"plain-0": 44, "kseg-streams-counts-repartition-0": 20, "kseg-streams-counts-repartition-1": 16}
    for folder, end in ends.items():
        (home / folder).mkdir()
        records = [PlainRecord(offset, b"k", b"v", 1_700_000_000_000 + offset) for offset in range(end)]
        (home / folder / f"{0:020}.log").write_bytes(build_batch(records))


def _kafka_logs(home: Path) -> None:
    """Write the log directory of a broker after a power failure.

    It has a flipped byte, an incomplete batch, and zeros in a checkpoint that was not flushed.
    """
    for partition, fixture in {**PARTITIONS, "__cluster_metadata-0": "4.3.0-v2-none-kraft-metadata"}.items():
        copy(SEGMENTS / fixture, home / partition)
    shutil.copyfile(SEGMENTS / "4.3.0-v2-none-log-dir" / "meta.properties", home / "meta.properties")
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        ends = {**_ENDS, "orders-0": 24, "payments-1": 77} if name.startswith("recovery") else _ENDS
        lines = [
            f"{partition.rpartition('-')[0]} {partition.rpartition('-')[2]} {end}" for partition, end in ends.items()
        ]
        (home / name).write_text("\n".join(["0", str(len(lines)), *lines, ""]), encoding="utf-8")
    flipped = home / "orders-0" / "00000000000000000048.log"
    flipped.write_bytes(damage.flip(flipped.read_bytes(), 600))
    torn = home / "payments-1" / "00000000000000000077.log"
    torn.write_bytes(torn.read_bytes()[:-40])
    (home / "clicks-2" / "leader-epoch-checkpoint").write_bytes(b"0\n2\n0 0\n" + bytes(4))


if __name__ == "__main__":
    print(make(Path(sys.argv[1])))
