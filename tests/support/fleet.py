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


#: How the partitions of ``make_many`` are damaged, in turn. The first one stops the broker.
DAMAGES = ("checkpoint", "flipped", "torn", "index")
_MANY = {
    "orders": "4.3.0-v2-none-segments",
    "payments": "4.3.0-v2-none-transactions",
    "clicks": "4.3.0-v2-none-headers",
}


def make_many(log_dir: Path, partitions: int, damaged: int) -> dict[str, list[str]]:
    """Make one broker's log dir with many partitions, and return the names of the damaged ones by kind.

    One of them has a zeroed checkpoint; the others have a flipped byte, an incomplete tail, or a wrong index.
    """
    names = []
    for number in range(partitions):
        topic, fixture = list(_MANY.items())[number % len(_MANY)]
        names.append(f"{topic}-{number // len(_MANY)}")
        shutil.copytree(
            SEGMENTS / fixture, log_dir / names[-1], ignore=shutil.ignore_patterns("ORIGIN", "expect.jsonl")
        )
    shutil.copyfile(SEGMENTS / "4.3.0-v2-none-log-dir" / "meta.properties", log_dir / "meta.properties")
    found: dict[str, list[str]] = {kind: [] for kind in DAMAGES}
    for number in range(damaged):
        kind = DAMAGES[0] if not number else DAMAGES[1 + number % (len(DAMAGES) - 1)]
        name = names[number * (partitions // damaged)]
        _damage_partition(log_dir / name, kind)
        found[kind].append(name)
    return found


def _damage_partition(folder: Path, kind: str) -> None:
    logs = [path for path in sorted(folder.glob("*.log")) if path.stat().st_size]
    if kind == "checkpoint":
        (folder / "leader-epoch-checkpoint").write_bytes(bytes(40))
    elif kind == "flipped":
        _damage(logs[0], lambda data: damage.flip(data, 100))
    elif kind == "torn":
        _damage(logs[-1], lambda data: data[:-20])
    else:
        logs[-1].with_suffix(".index").write_bytes(b"\xff" * 16)


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
