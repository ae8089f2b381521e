"""``python -m tools.make_demo_files``: make the archive of ``kseg demo`` from fixtures, with the names an operator knows."""

from __future__ import annotations

import gzip
import io
import re
import shutil
import tarfile
import tempfile
from pathlib import Path

from kseg.format.writer.records_builder import PlainRecord, build_batch
from tests.support import damage, fleet, metadata_logs
from tests.support.group_histories import MINUTE, Simulated, generation_record

ROOT = Path(__file__).parents[1]
FIXTURES = ROOT / "fixtures"
ARCHIVE = ROOT / "kseg" / "extras" / "demo_files.tar.gz"
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
#: A pipeline over the damaged broker.
NIGHT = """\
[pipeline]
state = "state"

[source]
paths = ["kafka-logs"]

[quarantine]
to = "quarantine"

[table.orders]
path = "lake/orders"

[table.clicks]
path = "lake/clicks"

[table.payments]
path = "lake/payments"

[report]
to = ["reports/{run}.html", "reports/night.prom"]
"""
#: The log end of the fixture's metadata log, and the log directory that its broker registered.
_METADATA_END, _DIRECTORY = 27, "GnUZZBsEQ0Kx67wm-uGRaw"
_ENDS = {"orders-0": 121, "payments-1": 88, "clicks-2": 26, "__consumer_offsets-3": 62}


def make(home: Path) -> None:
    """Write all files below ``home``."""
    _kafka_logs(home / "kafka-logs")
    fleet.make(home / "backup")
    for number, fixture in enumerate(("0.8.2.2-v0-gzip", "0.10.2.2-v1-gzip-segments", "2.8.2-v0v1v2-mixed")):
        copy(SEGMENTS / fixture, home / "old-logs" / f"orders-{number}")
    _consumer_logs(home / "consumer-logs")
    _slow_group(home / "slow-group")
    for partition in ("_schemas-0", "orders-0", "users-0"):
        copy(FIXTURES / "serialized" / partition, home / "shop" / partition)
    (home / "night.toml").write_text(NIGHT)
    captures = home / "captures"
    captures.mkdir()
    for name, suffix in (("client.bin", "requests"), ("broker.bin", "responses")):
        shutil.copyfile(FIXTURES / "streams" / "4.3.0-java" / f"06.{suffix}", captures / name)
    shutil.copyfile(FIXTURES / "framed" / "message-article" / "data", captures / "message.bin")
    (home / "old-logs" / "orders-2" / "00000000000000000040.snapshot").unlink()  # the broker would delete it


def archive() -> bytes:
    """Return the files as an archive, which is equal for equal files."""
    packed = io.BytesIO()
    with tempfile.TemporaryDirectory() as folder, tarfile.open(fileobj=packed, mode="w") as tar:
        make(Path(folder))
        for path in sorted(path for path in Path(folder).rglob("*") if path.is_file()):
            member = tarfile.TarInfo(str(path.relative_to(folder)))
            member.size = path.stat().st_size
            with path.open("rb") as file:
                tar.addfile(member, file)
    return gzip.compress(packed.getvalue(), 9, mtime=0)


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


def _slow_group(home: Path) -> None:
    """Write an hour of a group: one of its two members leaves, and the other does not keep up with a partition."""
    one, group = Simulated(home, "payments"), "billing"
    read = {0: 0, 1: 0}
    for minute in range(60):
        at = minute * MINUTE
        if minute in (0, 38):
            one.record(at, *generation_record(4 + (minute > 0), 1 + (minute == 0), group))
        for partition in read:
            one.append(at + 2_000, 20, partition)
            read[partition] += 6 if minute > 38 and partition else 20
            one.commit(at + 30_000, read[partition], partition, group)
    one.write()


def _kafka_logs(home: Path) -> None:
    """Write the log directory of a broker after a power failure.

    It has a flipped byte, an incomplete batch, and zeros in a checkpoint that was not flushed.
    """
    for partition, fixture in {**PARTITIONS, "__cluster_metadata-0": "4.3.0-v2-none-kraft-metadata"}.items():
        copy(SEGMENTS / fixture, home / partition)
    _place(home)
    ids = (SEGMENTS / "4.3.0-v2-none-log-dir" / "meta.properties").read_text()
    registered = re.sub(r"directory.id=.*", f"directory.id={_DIRECTORY}", ids)
    (home / "meta.properties").write_text(registered)
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


def _place(home: Path) -> None:
    """Let the metadata log have the other partitions, as that of the broker that wrote them."""
    folder = metadata_logs.folder_for(home)
    log = folder / "00000000000000000000.log"
    changes = metadata_logs.placements(home, 1)
    log.write_bytes(metadata_logs.appended(log.read_bytes(), *changes))
    snapshot = folder / f"{_METADATA_END:020}.snapshot"
    snapshot.rename(folder / f"{_METADATA_END + len(changes):020}.snapshot")


if __name__ == "__main__":
    ARCHIVE.write_bytes(archive())
    print(f"{ARCHIVE}: {ARCHIVE.stat().st_size:,} bytes")
