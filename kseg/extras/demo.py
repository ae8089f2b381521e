"""The example files of ``kseg demo``, which the documentation and the tests use: log directories that brokers wrote.

``demo_files.tar.gz`` has them. ``python -m tools.make_demo_files`` makes it from the fixtures of the repository.
"""

from __future__ import annotations

import io
import tarfile
from importlib import resources
from pathlib import Path

#: Folder -> its content, and a command for it.
FOLDERS = {
    "kafka-logs": ("a broker's log directory after a power failure", "kseg doctor kafka-logs"),
    "backup": ("copies of three brokers, two of them damaged or stale", "kseg diff backup/broker-1 backup/broker-2"),
    "old-logs": ("partitions with v0 and v1 segments", "kseg stats old-logs"),
    "consumer-logs": ("partitions, and the committed offsets of their consumers", "kseg lag consumer-logs"),
    "slow-group": ("a consumer group that does not keep up", "kseg lag --history billing slow-group"),
    "shop": (
        "a topic with Avro values, and the topic of its registry",
        "kseg dump --schemas shop/_schemas-0 shop/orders-0",
    ),
    "night.toml": ("a pipeline that loads kafka-logs into tables", "kseg pipeline plan night.toml"),
    "captures": ("requests and responses on the wire", "kseg dump --as requests captures/client.bin"),
}
_ARCHIVE = "demo_files.tar.gz"


def write(folder: Path) -> int:
    """Write the files below a folder, and return their number. Raises OSError."""
    content = resources.files(__package__).joinpath(_ARCHIVE).read_bytes()
    files = 0
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        for member in archive:
            stored = archive.extractfile(member)
            if stored is None:
                continue
            path = folder / member.name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(stored.read())
            files += 1
    return files
