"""Damaged partitions for a broker to start on: each a verb over a copy of one sound folder of six segments."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kseg.format.log_loader.recovery_plan import BrokerStart
from kseg.format.sidefiles.indexes import OFFSET_ENTRY
from tests.support import damage

SOUND = Path(__file__).parents[2] / "fixtures" / "segments" / "4.3.0-v2-none-segments"
TRANSACTIONS = SOUND.with_name("4.3.0-v2-none-transactions")
Verb = Callable[[Path], object]
#: The topic's, as the lab's brokers have it.
INDEX_INTERVAL = 512
INDEX_BYTES = 1200


@dataclass(frozen=True, slots=True)
class Scene:
    """A change to the folder before the start; ``loses`` is whether bytes of the log are lost by the start."""

    name: str
    clean: bool
    do: Verb = lambda folder: None
    loses: bool = False
    recovery_point: int = 0
    log_start: int = 0
    source: Path = SOUND

    def put(self, folder: Path) -> None:
        """Fill a partition's folder, whose topic id stays."""
        for file in folder.iterdir():
            if file.name != "partition.metadata":
                file.unlink()
        for file in self.source.iterdir():
            if file.name not in ("ORIGIN", "expect.jsonl", "partition.metadata"):
                shutil.copyfile(file, folder / file.name)
        self.do(folder)

    def start(self) -> BrokerStart:
        """The facts that a broker uses at its start."""
        return BrokerStart(self.clean, self.recovery_point, self.log_start, INDEX_INTERVAL, INDEX_BYTES)


def log(base: int) -> str:
    return f"{base:020d}.log"


def _edit(base: int, change: Callable[[bytes], bytes]) -> Verb:
    def do(folder: Path) -> None:
        file = folder / log(base)
        file.write_bytes(change(file.read_bytes()))

    return do


def _bad_crc(base: int, batch: int) -> Verb:
    return _edit(base, lambda data: damage.flip(data, damage.entries(data)[batch].at + 30))


def _with_offset(base: int, batch: int, offset: int) -> Verb:
    return _edit(base, lambda data: damage.put(data, damage.entries(data)[batch].at, base_offset=offset))


def _remove(*names: str) -> Verb:
    def do(folder: Path) -> None:
        for name in names:
            (folder / name).unlink()

    return do


def _write(name: str, data: bytes) -> Verb:
    return lambda folder: (folder / name).write_bytes(data)


def _index(base: int, *entries: tuple[int, int]) -> Verb:
    data = b"".join(OFFSET_ENTRY.pack(*entry) for entry in entries)
    return _write(log(base).replace(".log", ".index"), data)


def _all(*verbs: Verb) -> Verb:
    def do(folder: Path) -> None:
        for verb in verbs:
            verb(folder)

    return do


def _copy(base: int, suffix: str) -> Verb:
    """All files of one segment once more, with a suffix."""

    def do(folder: Path) -> None:
        for ending in ("log", "index", "timeindex"):
            file = folder / f"{base:020d}.{ending}"
            shutil.copyfile(file, f"{file}{suffix}")

    return do


def _swap_of_two(folder: Path) -> None:
    """The cleaner made one of segments 24 and 48, and the broker died before they were deleted."""
    both = (folder / log(24)).read_bytes() + (folder / log(48)).read_bytes()
    (folder / f"{log(24)}.swap").write_bytes(both)
    for ending in ("index", "timeindex"):
        shutil.copyfile(folder / f"{24:020d}.{ending}", folder / f"{24:020d}.{ending}.swap")


def _remove_from(base: int) -> Verb:
    def do(folder: Path) -> None:
        for file in folder.iterdir():
            if file.name[:20].isdigit() and int(file.name[:20]) >= base:
                file.unlink()

    return do


def _in_partition(verb: Verb) -> Verb:
    return lambda log_dir: [verb(folder) for folder in log_dir.glob("*-0")]


SNAPSHOTS = (24, 48, 72, 96, 120, 121)


def _unreadable_snapshots(*offsets: int) -> Verb:
    return _all(*(_write(f"{offset:020d}.snapshot", b"\0\1") for offset in offsets))


def _foreign_txn_index(folder: Path) -> None:
    shutil.copyfile(folder / f"{17:020d}.txnindex", folder / f"{52:020d}.txnindex")


def _plainly_by(producer_id: int, number: int) -> Callable[[bytes], bytes]:
    """That batch becomes the producer's, and no part of a transaction."""

    def change(data: bytes) -> bytes:
        at = damage.entries(data)[number].at
        return damage.alter(data, at, attributes=0, producer_id=producer_id, producer_epoch=0, base_sequence=6)

    return change


_EPOCHS = b"0\n3\n0 0\n1 50\n2 %d\n"
_NO_SNAPSHOTS = _remove(*(f"{offset:020d}.snapshot" for offset in SNAPSHOTS))
_TORN = _edit(120, lambda data: damage.shrink(data, len(data) - 10))
_NO_INDEX = _remove(f"{24:020d}.index")
_NOTHING_LEFT = _remove_from(0)

#: Errors that a broker survives.
SCENES = (
    Scene("sound", True),
    Scene("sound", False),
    Scene("sound-flushed", False, recovery_point=121),
    Scene("transactions", False, source=TRANSACTIONS),
    Scene("transactions-no-index", True, _remove(f"{52:020d}.index"), source=TRANSACTIONS),
    Scene("bad-crc-first", True, _bad_crc(0, 1)),
    Scene("bad-crc-first", False, _bad_crc(0, 1), loses=True),
    Scene("bad-crc-second", False, _bad_crc(24, 1), loses=True),
    Scene("bad-crc-first-batch", False, _bad_crc(48, 0), loses=True),
    Scene("bad-crc-flushed", False, _bad_crc(24, 1), recovery_point=100),
    Scene("bad-crc-last", True, _bad_crc(120, 0)),
    Scene("torn-tail", True, _TORN, loses=True),
    Scene("torn-tail", False, _TORN, loses=True),
    Scene("torn-tail-inside", False, _edit(24, lambda data: damage.shrink(data, len(data) - 10)), loses=True),
    Scene("torn-tail-behind-batches", True, _edit(77, lambda data: data[:-10]), source=TRANSACTIONS, loses=True),
    Scene("zero-tail", False, _edit(120, lambda data: data + bytes(5000))),
    Scene("zero-tail-inside", False, _edit(24, lambda data: data + bytes(500)), loses=True),
    Scene("bad-size", False, _all(_NO_SNAPSHOTS, _edit(24, lambda data: damage.put(data, 0, size=3))), loses=True),
    Scene("lower-offset-unindexed", False, _with_offset(24, 1, 24)),
    Scene("lower-offset", False, _with_offset(52, 8, 55), loses=True, source=TRANSACTIONS),
    Scene("overflow-in-last-batch", False, _with_offset(120, 0, 1 << 40)),
    Scene("overflow-no-index", True, _all(_with_offset(120, 0, 1 << 40), _remove(f"{120:020d}.index"))),
    Scene("magic-7", False, _edit(24, lambda data: damage.alter(data, 0, magic=7))),
    Scene("no-index", True, _NO_INDEX),
    Scene("no-index", False, _NO_INDEX, recovery_point=100),
    Scene("no-index-bad-crc", True, _all(_bad_crc(24, 1), _NO_INDEX), loses=True),
    Scene("no-index-bad-crc", False, _all(_bad_crc(24, 1), _NO_INDEX), loses=True),
    Scene("no-time-index", True, _remove(f"{24:020d}.timeindex")),
    Scene("bad-index", True, _index(24, (99999, 1 << 30))),
    Scene("bad-index", False, _index(24, (99999, 1 << 30))),
    Scene("bad-index-last", True, _index(120, (5, 4000)), loses=True),
    Scene("bad-index-last", False, _index(120, (5, 4000))),
    Scene("bad-index-last-offset", True, _index(120, (5, 0)), loses=True),
    Scene("odd-index-last", True, _write(f"{120:020d}.index", b"\0\0\0")),
    Scene("preallocated-index-last", True, _write(f"{120:020d}.index", bytes(1200))),
    Scene("foreign-txn-index", True, _foreign_txn_index, source=TRANSACTIONS),
    Scene("deleted", True, _copy(48, ".deleted")),
    Scene("cleaned", True, _copy(48, ".cleaned")),
    Scene("swap", True, _swap_of_two),
    Scene("swap", False, _swap_of_two),
    Scene("swap-without-index", True, _all(_swap_of_two, _remove(f"{24:020d}.index.swap"))),
    Scene("swap-above-cleaned", True, _all(_swap_of_two, _copy(0, ".cleaned"))),
    Scene("swap-below-cleaned", True, _all(_swap_of_two, _copy(48, ".cleaned"))),
    Scene("orphaned-index", True, _remove(log(48))),
    Scene("log-start-inside", True, log_start=30),
    Scene("log-start-inside", False, log_start=30),
    Scene("log-start-above-end", True, loses=True, log_start=500),
    Scene("log-start-above-end", False, loses=True, log_start=500),
    Scene("no-segments", True, _NOTHING_LEFT),
    Scene("no-segments", False, _NOTHING_LEFT, log_start=77),
    Scene("first-segment-gone", False, _remove(log(0), f"{0:020d}.index", f"{0:020d}.timeindex")),
    Scene("stray-snapshots", True, _unreadable_snapshots(30, 60, 130)),
    Scene("stray-snapshots", False, _unreadable_snapshots(30, 60, 130)),
    Scene("unreadable-snapshots", True, _unreadable_snapshots(120, 121)),
    Scene("unreadable-snapshots", False, _unreadable_snapshots(96, 120, 121)),
    Scene("no-snapshots", True, _NO_SNAPSHOTS),
    Scene("no-snapshots", False, _NO_SNAPSHOTS),
    Scene("no-snapshots-flushed", False, _NO_SNAPSHOTS, recovery_point=121),
    Scene("epochs-behind-the-end", True, _write("leader-epoch-checkpoint", _EPOCHS % 400)),
    Scene("epochs-forgotten", False, _write("leader-epoch-checkpoint", b"0\n0\n")),
    Scene("epochs-cut", False, _all(_bad_crc(72, 1), _write("leader-epoch-checkpoint", _EPOCHS % 90)), loses=True),
    Scene("no-topic-id", True, _remove("partition.metadata"), loses=True),
)
#: Errors that end a broker.
REFUSED = (
    Scene("zero-tail", True, _edit(120, lambda data: data + bytes(500))),
    Scene("no-offset-in-a-name", True, _write("notes.log", b"")),
    Scene("no-offset-in-a-snapshot", False, _write("notes.snapshot", b"")),
    Scene("overflow-inside", False, _with_offset(24, 1, 1 << 40)),
    Scene("offset-below-base", False, _with_offset(120, 0, 3)),
    Scene(
        "lower-offset-no-index", True, _all(_with_offset(52, 8, 55), _remove(f"{52:020d}.index")), source=TRANSACTIONS
    ),
    Scene("topic-id", True, _write("partition.metadata", b"version: 0\n")),
    # Replaying producers' states throws what reading batches does not.
    Scene("plain-write-in-a-transaction", False, _edit(77, _plainly_by(4, 2)), source=TRANSACTIONS),
    Scene("plain-write-in-an-earlier-one", False, _edit(17, _plainly_by(3, 1)), source=TRANSACTIONS),
)
#: What takes a log dir offline: done to the log dir, or to the partition in it.
OFFLINE = {
    "epochs": _in_partition(_write("leader-epoch-checkpoint", b"0\n3\n0 0\n")),
    "recovery-points": _write("recovery-point-offset-checkpoint", b"0\n2\nother 0 0\n"),
    "log-starts": _write("log-start-offset-checkpoint", b"1\n0\n"),
    "high-watermarks": _write("replication-offset-checkpoint", b"0\n2\nother 0 0\n"),
    "cleaner-offsets": _write("cleaner-offset-checkpoint", b"0\n1\nother 0\n"),
    "meta-properties": _write("meta.properties", b"version=7\n"),
}
