"""``kseg demo``: write the example files of the documentation and of tests, which are log directories that brokers wrote."""

from __future__ import annotations

import io
import os
import tarfile
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import click

from kseg.cli import common
from kseg.cli.typed_command import command
from kseg.errors import UsageError
from kseg.format.storage.atomic_write import publish, scratch_folder, sync_folder, writing
from kseg.report.formats import destination
from kseg.report.tables import print_text
from kseg.text import count_of, escape_controls

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
#: The files. ``python -m tools.make_demo_files`` makes it from the fixtures of the repository.
_ARCHIVE = "demo_files.tar.gz"


@dataclass(frozen=True, kw_only=True)
class DemoOptions:
    folder: str


@command(
    DemoOptions,
    arguments=(click.Argument(["folder"], metavar="FOLDER", type=common.OutputFolder()),),
    examples=("kseg demo first", "kseg demo /tmp/kseg-files", "kseg demo ~/kseg-demo"),
)
def demo(asked: DemoOptions) -> None:
    """Write the example files of the documentation to a new folder.

    They are log directories of real brokers: valid, damaged, old, with transactions, offsets and schemas.
    """
    common.check_outputs()
    target = Path(asked.folder).absolute()
    if os.path.lexists(target):
        raise UsageError(f"{asked.folder} exists: give a new folder")
    with writing(target), scratch_folder(target) as folder:
        count = write_files(folder)
        folder.chmod(0o755)
        sync_folder(folder)
        publish([(folder, target)], replace=False)
    with destination(None) as out:
        for name, (content, line) in FOLDERS.items():
            print_text(out, f"{name:13} {content}", indent=14)
            print_text(out, f"{'':13} {line}", indent=14)
        print_text(out, f"{escape_controls(asked.folder)}: {count_of(count, 'file')}; the commands are for this folder")


def write_files(folder: Path) -> int:
    """Write the files below a folder, and return their number. Raises OSError."""
    content = resources.files("kseg.extras").joinpath(_ARCHIVE).read_bytes()
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
