"""Partition folders of every version with leader epochs, for tests of what kseg writes."""

from __future__ import annotations

from pathlib import Path

from kseg.format.writer.records_builder import PlainRecord, build_batch, build_message, build_wrapper
from tests.support.damage import entries, put

NAME = f"{0:020}.log"
SECOND = f"{200:020}.log"
NOW = 1_700_000_000_000
EPOCHS = "leader-epoch-checkpoint"
CODECS = ("none", "gzip", "lz4", "snappy")


def messages(first: int, count: int, magic: int, codec: str = "none") -> bytes:
    records = [
        PlainRecord(first + i, b"k%d" % i, b"%d" % (first + i) * 9, NOW + i if magic else -1) for i in range(count)
    ]
    if codec != "none":
        return build_wrapper(records, magic=magic, compression=codec)
    return b"".join(build_message(record, magic=magic) for record in records)


def batch(first: int, count: int, epoch: int, codec: str = "none") -> bytes:
    records = [PlainRecord(first + i, b"k%d" % i, b"%d" % (first + i) * 9, NOW + i) for i in range(count)]
    return build_batch(records, compression=codec, partition_leader_epoch=epoch)


def logs(highest: int = 4) -> dict[str, dict[str, bytes]]:
    """Return partition folders, as file names and bytes, by topic; ``highest`` is the largest leader epoch.

    A broker's own epoch of a partition is never below those in its log.
    """

    def checkpoint(*entries: tuple[int, int]) -> bytes:
        starts: dict[int, int] = {}
        for epoch, start in entries:
            starts.setdefault(min(epoch, highest), start)
        lines = ["0", str(len(starts)), *(f"{epoch} {start}" for epoch, start in starts.items())]
        return "".join(f"{line}\n" for line in lines).encode()

    v0, v1 = (b"".join(messages(10 * n, 10, magic, CODECS[n % 4]) for n in range(20)) for magic in (0, 1))
    more = b"".join(messages(n, 10, 1, "gzip") for n in range(200, 300, 10))
    later = b"".join(batch(n, 10, min(n // 100, highest)) for n in range(200, 400, 10))
    plain = b"".join(batch(n, 10, min(n // 100, highest)) for n in range(0, 200, 10))
    return {
        "v0": {NAME: v0},
        "v1": {NAME: v1, SECOND: more},
        # Upgraded: epochs 2 and 3 after batches without one.
        "upgraded": {NAME: v1, SECOND: later, EPOCHS: checkpoint((2, 200), (3, 300))},
        # Downgraded and upgraded again, in one segment and across segments.
        "downgraded": {NAME: plain + messages(200, 20, 1), f"{220:020}.log": messages(220, 30, 1, "lz4"),
                       f"{250:020}.log": b"".join(batch(n, 10, highest) for n in range(250, 300, 10)),
                       EPOCHS: checkpoint((4, 250))},
        "plain": {NAME: plain, SECOND: later, EPOCHS: checkpoint((0, 0), (1, 100), (2, 200), (3, 300))},
    }  # fmt: skip


def fill(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir(parents=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


def negative(data: bytes) -> bytes:
    for place in entries(data):
        data = put(data, place.at, partition_leader_epoch=-1)
    return data
