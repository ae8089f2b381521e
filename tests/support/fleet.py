"""``python -m tests.support.fleet FOLDER``: log dirs of three brokers with typical damage, for trials.

The segments are those of real brokers, except for one topic whose replicas diverge.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from kseg.format.writer.records_builder import PlainRecord, build_batch
from tests.support import damage

SEGMENTS = Path(__file__).parents[2] / "fixtures" / "segments"
SOURCES = {"orders-0": "4.3.0-v2-none-segments", "payments-1": "4.3.0-v2-none-transactions"}
BROKERS = ("broker-1", "broker-2", "broker-3")


def make(home: Path) -> list[Path]:
    """Make the brokers' log dirs.

    The first is valid, the second has a bad record and an incomplete tail, and the third has a stale leader's end of
    ``clicks-2``.
    """
    for broker in BROKERS:
        for partition, fixture in SOURCES.items():
            expected = shutil.ignore_patterns("ORIGIN", "expect.jsonl")
            shutil.copytree(SEGMENTS / fixture, home / broker / partition, ignore=expected)
        _write_clicks(home / broker / "clicks-2", stale=broker == BROKERS[2])
    second = home / BROKERS[1]
    _damage(second / "orders-0" / "00000000000000000024.log", lambda data: damage.flip(data, len(data) - 5))
    _damage(second / "payments-1" / "00000000000000000073.log", lambda data: damage.shrink(data, len(data) - 40))
    return [home / broker for broker in BROKERS]


def _write_clicks(folder: Path, *, stale: bool) -> None:
    folder.mkdir(parents=True)
    shared = [build_batch(_records(first, "both"), partition_leader_epoch=1) for first in range(0, 30, 10)]
    own = build_batch(_records(30, "lost" if stale else "kept"), partition_leader_epoch=1 if stale else 2)
    (folder / "00000000000000000000.log").write_bytes(b"".join([*shared, own]))


def _records(first: int, text: str) -> list[PlainRecord]:
    return [
        PlainRecord(offset, b"k%d" % offset, f"{text} {offset}".encode(), 1_700_000_000_000 + offset)
        for offset in range(first, first + 10)
    ]


def _damage(path: Path, change: Callable[[bytes], bytes]) -> None:
    path.write_bytes(change(path.read_bytes()))


if __name__ == "__main__":
    for made in make(Path(sys.argv[1])):
        print(made)
