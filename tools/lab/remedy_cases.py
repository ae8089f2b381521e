"""The table of the remedy lab: for each rule whose remedy is an action, the damage on which it is carried out."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from crc32c import crc32c

from tests.support import damage
from tests.support.damage import entries, get
from tools.lab.remedy_model import CASES, DAMAGED, LOG_START, RECORDS_PER_BATCH, Place
from tools.make_findings import CASES as FIXTURES

Bytes = Callable[[bytes], bytes]


@dataclass(frozen=True, slots=True)
class Ground:
    """The files of a stopped broker that belong to a case."""

    folder: Path
    place: Place

    @property
    def log_dir(self) -> Path:
        return self.folder / self.place.log_dir

    @property
    def partition(self) -> Path:
        return self.log_dir / f"{CASES}-{self.place.number}"

    @property
    def neighbour(self) -> Path:
        return self.log_dir / f"{CASES}-{self.place.neighbour}"

    def log(self, number: int) -> Path:
        """Return a segment of the partition; -1 is the newest."""
        return sorted(self.partition.glob("*.log"))[number]

    def side_file(self, suffix: str) -> Path:
        """Return the first file with the suffix that has an entry; the newest snapshot."""
        found = [file for file in sorted(self.partition.glob(f"*{suffix}")) if any(file.read_bytes())]
        return found[-1 if suffix == ".snapshot" else 0]


Damage = Callable[[Ground], object]


@dataclass(frozen=True, slots=True)
class Case:
    """A row: ``damage`` changes files so that ``rule`` is reported in a file whose name ends with ``file``.

    ``action`` is the case of the rule's action. ``lost`` are the offsets that the damage destroys.
    ``values`` are placeholders that an operator knows. ``stops`` are the kinds of stop after which the damage can exist.
    """

    rule: str
    damage: Damage
    lost: Sequence[int] = ()
    file: str = ""
    action: str = ""
    values: Mapping[str, str] = field(default_factory=dict)
    stops: Sequence[str] = ("clean", "kill")


def in_log(make: Bytes, segment: int = DAMAGED) -> Damage:
    """Return the damage that changes the bytes of a segment."""
    return lambda ground: _change(ground.log(segment), make)


def in_side_file(suffix: str, make: Bytes) -> Damage:
    return lambda ground: _change(ground.side_file(suffix), make)


def _change(path: Path, make: Bytes) -> None:
    path.write_bytes(make(path.read_bytes()))


def _with_crc(make: Bytes) -> Bytes:
    """Return a change of a producer snapshot that corrects its CRC."""

    def changed(data: bytes) -> bytes:
        data = make(data)
        return damage.splice(data, 2, 6, struct.pack(">I", crc32c(data[6:])))

    return changed


def _wrong_sequence(data: bytes) -> bytes:
    (sequence,) = struct.unpack_from(">i", data, 20)
    return damage.splice(data, 20, 24, struct.pack(">i", sequence + 6))


def _all_snapshots(ground: Ground) -> None:
    for file in ground.partition.glob("*.snapshot"):
        _change(file, _with_crc(_wrong_sequence))


def _no_snapshots(ground: Ground) -> None:
    for file in ground.partition.glob("*.snapshot"):
        file.unlink()


def in_checkpoint(name: str, make: Callable[[list[str], Ground], list[str]]) -> Damage:
    """Return the damage to the lines of a checkpoint, which is made if it is missing."""

    def apply(ground: Ground) -> None:
        path = (ground.partition if name == EPOCHS else ground.log_dir) / name
        offsets = [f"{CASES} {number} 60" for number in (ground.place.number, ground.place.neighbour)]
        lines = path.read_text().splitlines() if path.exists() else []
        if len(lines) < 3:
            lines = ["0", "2", *offsets]
        path.write_text("\n".join(make(lines, ground)) + "\n")

    return apply


def _without_offset(lines: list[str], ground: Ground) -> list[str]:
    own = f"{CASES} {ground.place.number} "
    return [line.rpartition(" ")[0] if line.startswith(own) else line for line in lines]


def _one_too_many(lines: list[str], _: Ground) -> list[str]:
    return [lines[0], str(int(lines[1]) + 1), *lines[2:]]


def _last_line_lost(lines: list[str], ground: Ground) -> list[str]:
    own = f"{CASES} {ground.place.number} "
    return [line for line in lines if not line.startswith(own)]


def _second_line(lines: list[str], ground: Ground) -> list[str]:
    return [*_one_too_many(lines, ground), f"{CASES} {ground.place.number} 30"]


def _no_number(lines: list[str], _: Ground) -> list[str]:
    return [*lines[:-1], lines[-1][:-1] + "x"]


def _earlier(lines: list[str], _: Ground) -> list[str]:
    epoch, start = map(int, lines[-1].split())
    return [*lines[:-1], f"{epoch} {start - 12}"]


def _first_lost(lines: list[str], _: Ground) -> list[str]:
    return [lines[0], str(int(lines[1]) - 1), *lines[3:]]


def _misnamed(*, indexes: bool) -> Damage:
    """Rename a segment to the offset of its second batch; with ``indexes``, to which its index is made relative."""

    def apply(ground: Ground) -> None:
        log = ground.log(DAMAGED + 1)
        data = log.read_bytes()
        wrong = get(data, entries(data)[1].at, "base_offset")
        for file in list(ground.partition.glob(f"{log.stem}.*")):
            if file.suffix != ".snapshot":
                file.rename(file.with_name(f"{wrong:020}{file.suffix}"))
        if indexes:
            by = wrong - int(log.stem)
            _change(log.with_name(f"{wrong:020}.index"), lambda index: b"".join(
                struct.pack(">ii", offset - by, position) for offset, position in struct.iter_unpack(">ii", index)
            ))  # fmt: skip

    return apply


def _no_base_offsets(data: bytes) -> bytes:
    """Fill the base offsets of the first two batches with zeros: the name is right, and offset 0 is another segment's."""
    for place in entries(data)[:2]:
        data = damage.zero(data, place.at, place.at + 8)
    return data


def _exchanged(ground: Ground) -> None:
    """Give two segments and their indexes each other's name."""
    one, two = ground.log(1), ground.log(2)
    for suffix in (".log", ".index", ".timeindex", ".txnindex"):
        pair = [each.with_suffix(suffix) for each in (one, two)]
        first, second = (file.read_bytes() if file.exists() else None for file in pair)
        for file, data in zip(pair, (second, first), strict=True):
            file.unlink(missing_ok=True)
            if data is not None:
                file.write_bytes(data)


def _copied(ground: Ground) -> None:
    """Copy a segment to the offset of its second batch."""
    data = ground.log(DAMAGED).read_bytes()
    second = entries(data)[1]
    (ground.partition / f"{get(data, second.at, 'base_offset'):020}.log").write_bytes(data[second.at :])


def _no_indexes(ground: Ground) -> None:
    for file in [*ground.partition.glob("*index")]:
        file.unlink()


def _file(name: str, make: Bytes) -> Damage:
    return lambda ground: _change(ground.partition / name if name == METADATA else ground.log_dir / name, make)


def _claimed_codec(data: bytes) -> bytes:
    at = entries(data)[2].at
    return damage.alter(data, at, attributes=get(data, at, "attributes") | 4)


def _undecodable(data: bytes) -> bytes:
    return _claimed_codec(damage.with_payload(data, entries(data)[2], b"no zstd" * 30))


def _later(data: bytes) -> bytes:
    (timestamp,) = struct.unpack_from(">q", data, 12)
    return damage.splice(data, 12, 20, struct.pack(">q", timestamp + 1))


def _late_stable_offset(data: bytes) -> bytes:
    """Raise the last stable offset of the first entry, as a follower writes it."""
    (stable,) = struct.unpack_from(">q", data, 26)
    return damage.splice(data, 26, 34, struct.pack(">q", stable + 6))


EPOCHS, METADATA = "leader-epoch-checkpoint", "partition.metadata"
RECOVERY, WATERMARKS = "recovery-point-offset-checkpoint", "replication-offset-checkpoint"
CLEANER, LOG_STARTS = "cleaner-offset-checkpoint", "log-start-offset-checkpoint"
ALONE = "there is no other replica"
OFFSET = {"OFFSET": str(LOG_START)}


def _batch(number: int) -> range:
    """Return the offsets of a batch of the damaged segment, which starts at 0."""
    return range(RECORDS_PER_BATCH * number, RECORDS_PER_BATCH * (number + 1))


def _in_batches() -> list[Case]:
    """The damage of the rules' fixtures, in the first segment, and the offsets that it destroys."""
    lost: dict[str, Sequence[int]] = {
        "invalid-size": (), "unknown-magic": (), "lost-bytes": (), "crc-mismatch": _batch(1),
        "non-monotonic-offset": (), "max-timestamp-mismatch": (), "invalid-offset-range": _batch(2),
        "leader-epoch-regression": (), "leader-epoch-jump": (), "negative-leader-epoch": (),
        "record-offset-mismatch": _batch(2), "unknown-codec": _batch(2),
        # The records before the fault are kept.
        "malformed-record": _batch(2)[4:], "record-count-mismatch": _batch(2)[5:],
    }  # fmt: skip
    cases = [
        Case(rule, in_log(FIXTURES[rule].make), each, ".log", "" if rule == "negative-leader-epoch" else ALONE)
        for rule, each in lost.items()
    ]
    return [
        *cases,
        Case("undecodable-payload", in_log(_undecodable), _batch(2), ".log", ALONE),
        Case("claimed-codec", in_log(_claimed_codec), file=".log"),
    ]


def _in_checkpoints() -> list[Case]:
    deleted = [
        Case(rule, in_checkpoint(name, make), file=name)
        for name in (RECOVERY, WATERMARKS, CLEANER)
        for rule, make in (
            ("checkpoint-malformed", _without_offset),
            ("checkpoint-count", _one_too_many),
            ("checkpoint-duplicate", _second_line),
        )
    ]
    return [
        *deleted,
        Case("checkpoint-malformed", in_checkpoint(LOG_STARTS, _without_offset), file=LOG_STARTS, values=OFFSET),
        Case("checkpoint-count", in_checkpoint(LOG_STARTS, _one_too_many), file=LOG_STARTS,
             action="no line is missing"),
        Case("checkpoint-count", in_checkpoint(LOG_STARTS, _last_line_lost), file=LOG_STARTS, values=OFFSET,
             action="a line is missing"),
        Case("checkpoint-duplicate", in_checkpoint(LOG_STARTS, _second_line), file=LOG_STARTS),
        Case("checkpoint-malformed", in_checkpoint(EPOCHS, _no_number), file=EPOCHS),
        Case("checkpoint-count", in_checkpoint(EPOCHS, _one_too_many), file=EPOCHS),
        Case("epoch-not-increasing", in_checkpoint(EPOCHS, lambda lines, _: [*lines[:2], *reversed(lines[2:])])),
        Case("epoch-mismatch", in_checkpoint(EPOCHS, _earlier)),
        Case("missing-epochs", lambda ground: (ground.partition / EPOCHS).unlink(), action=ALONE),
        # A broker may delete epochs below the log start after a kill, so that validate can't know that one is missing.
        Case("missing-epochs", in_checkpoint(EPOCHS, _first_lost), action=ALONE, stops=("clean",)),
    ]  # fmt: skip


def _in_indexes() -> list[Case]:
    return [
        Case("index-size", in_side_file(".index", lambda data: data[:-3])),
        Case("index-not-increasing", in_side_file(".index", lambda data: damage.insert(data, 16, data[8:16]))),
        Case("index-below-base", in_side_file(".index", FIXTURES["index-below-base"].make)),
        Case("time-index-not-increasing", in_side_file(".timeindex", FIXTURES["time-index-not-increasing"].make)),
        Case("txn-index-version", in_side_file(".txnindex", FIXTURES["txn-index-version"].make)),
        Case("txn-index-order", in_side_file(".txnindex", lambda data: data * 2)),
        Case("late-stable-offset", in_side_file(".txnindex", _late_stable_offset)),
        Case("index-mismatch", in_side_file(".index", FIXTURES["index-mismatch"].make)),
        Case("time-index-mismatch", in_side_file(".timeindex", _later)),
        Case("txn-index-mismatch", in_side_file(".txnindex", lambda data: damage.flip(data, 9, 1))),
        Case("missing-index", lambda ground: ground.side_file(".timeindex").unlink()),
        Case("no-indexes", _no_indexes),
    ]


def _in_other_files() -> list[Case]:
    newest = FIXTURES
    return [
        Case("snapshot-mismatch", in_side_file(".snapshot", _with_crc(_wrong_sequence))),
        Case("snapshot-mismatch", _all_snapshots),
        # After a kill the broker reads the producers from the log.
        Case("producers-without-snapshot", _no_snapshots, stops=("clean",)),
        Case("snapshot-version", in_side_file(".snapshot", newest["snapshot-version"].make)),
        Case("snapshot-size", in_side_file(".snapshot", newest["snapshot-size"].make)),
        Case("snapshot-crc", in_side_file(".snapshot", lambda data: damage.flip(data, 30))),
        Case("metadata-malformed", _file(METADATA, lambda data: data[:-10]), file=METADATA),
        Case("metadata-malformed", _file("meta.properties", lambda data: data.replace(b"version=1", b"version=x")),
             file="meta.properties"),
        Case("metadata-malformed", _file(".kafka_cleanshutdown", lambda data: data[:-5]),
             file=".kafka_cleanshutdown", stops=("clean",)),
    ]  # fmt: skip


TABLE: Sequence[Case] = (
    Case("truncated-tail", in_log(lambda data: data + data[:200], -1)),
    Case("zero-tail", in_log(lambda data: data + bytes(500), -1), action="it is the newest segment"),
    Case("zero-tail", in_log(lambda data: data + bytes(500)), action=ALONE),
    *_in_batches(),
    Case("file-name-mismatch", _misnamed(indexes=False), file=".log"),
    Case("file-name-mismatch", _misnamed(indexes=True), file=".log"),
    Case("file-name-mismatch", in_log(_no_base_offsets, DAMAGED + 1), file=".log"),
    Case("segment-order", _exchanged, file=".log"),
    Case("segment-overlap", _copied, file=".log", action=ALONE),
    Case("log-start-behind-end", in_checkpoint(LOG_STARTS, lambda lines, ground: [
        f"{CASES} {ground.place.number} 900" if line.startswith(f"{CASES} {ground.place.number} ") else line
        for line in lines
    ]), values=OFFSET),
    *_in_indexes(),
    *_in_checkpoints(),
    *_in_other_files(),
)  # fmt: skip
