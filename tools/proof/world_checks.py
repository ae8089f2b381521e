"""What must agree between Kafka and kseg over a partition of a world: the oracles of tools.proof.world."""

from __future__ import annotations

import io
import random
import shutil
from collections.abc import Collection, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kseg
from kseg.commands.convert.conversion import convert
from kseg.commands.convert.conversion_plan import ConversionPlan
from kseg.commands.repair.repair import repair
from kseg.commands.repair.repaired_segment import RepairPlan
from kseg.commands.transactions import PartitionTransactions, Transaction
from kseg.errors import UnreadableError
from kseg.findings import READ_ERROR
from kseg.format.log_loader.recovery_plan import BrokerStart, plan_partition
from kseg.format.record.layout import READ_COMMITTED
from kseg.report.arrow_table import pa
from kseg.results import Settings
from tests.support.read_faults import local_faults
from tools.lab.load_oracle import difference, outcome, prediction

if TYPE_CHECKING:
    from tools.proof.world import Replica, World

OPEN = ("open", "hanging")
#: The bytes of a batch of each magic that its CRC does not cover, but for the size: offsets and leader epochs.
_UNCHECKED = {0: range(16), 1: range(16), 2: range(21)}


#: True findings: batches of a producer are lost in an unclean election, or with a disk that was not synced.
_TRUE = {"sequence-gap"}
#: True in a log of v0 or v1, which have no leader epochs: after an unclean election a replica keeps batches that its leader
#: does not have, and appends the leader's after them, which can have earlier append times, and the same offsets. A
#: truncation removes the whole batch that has the offset, so the log ends below offsets that the broker had in memory.
_OLD_FORMATS = {"append-time-regression", "checkpoint-behind-log"}
_BEHIND = {"snapshot-behind-log", "checkpoint-behind-log"}
_SAME_OFFSETS = {"non-monotonic-offset", "segment-overlap", "file-name-mismatch"}
#: What Kafka's cleaner does wrong: it writes batches of v0 and v1 as v2, without a leader epoch.
_CLEANED = {"negative-leader-epoch"}
#: What a repaired log shows of the batch that was lost.
_LOSSES = ("missing-batches", "segment-gap")


class Disagreement(AssertionError):
    """Kafka and kseg differ; the message names the check and both results."""


def _equal(check: str, kafka: object, ours: object) -> None:
    if kafka != ours:
        if isinstance(kafka, list) and isinstance(ours, list):
            only = [one for one in kafka if one not in ours][:3], [one for one in ours if one not in kafka][:3]
            raise Disagreement(f"{check}: {len(kafka)} in Kafka, {len(ours)} in kseg, only in one: {only}")
        raise Disagreement(f"{check}: Kafka {kafka}, kseg {ours}")


def check_replica(world: World, replica: Replica) -> None:
    """Compare a live replica. Raises Disagreement."""
    state = world.state(replica)
    write_checkpoints(replica)
    rows = _records(state)
    same_offsets = world.had_old_formats and (world.compacted or _goes_back(rows))
    # After a truncation into a batch the end in memory is above that of the files.
    behind = _BEHIND if not rows or rows[-1][0] + 1 < replica.log_end else set()
    rules = check_valid(world, replica.log_dir, behind | (_SAME_OFFSETS if same_offsets else set()), rows)
    if not replica.log_end and not state["records"]:
        return
    folder = replica.folder
    _equal("records", _records(state), [_row(one) for one in kseg.open_log_dir(folder).records()])
    known = check_transactions(folder, state, compacted=world.compacted)
    # At an entry with a last stable offset that is too late Kafka stops looking, and serves records of aborted transactions.
    if known and "late-stable-offset" not in rules:
        committed = [offset for offset in _committed(folder) if offset >= state["log_start"]]
        _equal("read committed", state["committed"], committed)
    *_, total = kseg.stats(folder)
    _equal("stats", len(state["records"]), total.stats.total("records"))


def _goes_back(rows: list[tuple[Any, ...]]) -> bool:
    return any(row[0] >= after[0] for row, after in pairwise(rows))


def check_valid(
    world: World, log_dir: Path, allowed: Collection[str] = (), rows: Sequence[tuple[Any, ...]] = ()
) -> set[str]:
    """Raise Disagreement if kseg has a finding on what Kafka wrote: none is damage, but for the ``allowed`` rules.

    Returns the rules of all findings.

    ``rows`` are what Kafka reads. Offsets are missing there, too, after a truncation into a batch: an election lost them.
    """
    findings = kseg.validate(log_dir, settings=Settings(compacted=world.compacted)).findings
    for one in findings:
        found = one.finding
        if one.severity.name == "INFO" or found.rule in {*allowed, *_true(world)}:
            continue
        first, last = found.offset or 0, found.last_offset or 0
        if found.rule not in _LOSSES or not rows or any(first <= row[0] <= last for row in rows):
            raise Disagreement(f"false finding: {one}")
    return {one.finding.rule for one in findings}


def _true(world: World) -> set[str]:
    """The rules of findings that are true: what is lost with an election or a crash, and what Kafka does wrong."""
    # The flush after a roll is postponed: if the log is truncated before, it sets a recovery point above the log end.
    late = any(replica.recovery_point > replica.log_end for replica in world.replicas)
    return (
        _TRUE
        | ({"checkpoint-behind-log"} if late else set())
        | (_CLEANED if world.compacted else set())
        | (_OLD_FORMATS if world.had_old_formats else set())
    )


def _records(state: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [tuple(one) for one in state["records"]]


def _row(record: kseg.Record) -> tuple[Any, ...]:
    texts = (None if data is None else data.decode("latin-1") for data in (record.key, record.value))
    timestamp = -1 if record.timestamp is None else record.timestamp
    return record.offset, timestamp, *texts, record.control is not None


def _committed(folder: Path) -> list[int]:
    stream = kseg.scan(folder, columns=("offset",), isolation=READ_COMMITTED)
    return [row["offset"] for row in pa.RecordBatchReader.from_stream(stream).read_all().to_pylist()]


def check_transactions(folder: Path, state: dict[str, Any], *, compacted: bool) -> bool:
    """Compare the open transactions and the last stable offset. Return whether the latter is known.

    A transaction that began below the log start is left out: Kafka forgets it when it reloads its producers, with the
    snapshots below the log start, so its end is not in the files. In a compacted log the first record can be gone: the
    marker that let the cleaner remove it was truncated later, in an unclean election.
    """
    *found, last = kseg.transactions(folder)
    assert isinstance(last, PartitionTransactions)
    theirs = {one[0]: one[2] for one in state["producers"] if one[2] >= 0}
    ours = {
        one.producer_id: one.first_offset or 0 for one in found if isinstance(one, Transaction) and one.state in OPEN
    }
    start = state["log_start"]
    old = {number for number, first in (*theirs.items(), *ours.items()) if first < start}
    kafkas, ksegs = (
        sorted((number, first) for number, first in one.items() if number not in old) for one in (theirs, ours)
    )
    if compacted:
        _equal("open producers", [number for number, _ in kafkas], [number for number, _ in ksegs])
    else:
        _equal("open transactions", kafkas, ksegs)
    emptied = any(isinstance(one, Transaction) and one.state in OPEN and not one.records for one in found)
    if old or kafkas != ksegs or last.log_end is None or emptied:
        return False
    # After a truncation into a batch the end in memory is above that of the files.
    stable = max(min(state["last_stable"], last.log_end), start)
    _equal("last stable offset", stable, max(last.last_stable_offset or 0, start))
    return True


def write_checkpoints(replica: Replica) -> None:
    """Write the checkpoints of a log dir, as a broker does from time to time."""
    values = {
        "recovery-point-offset-checkpoint": replica.recovery_point,
        "log-start-offset-checkpoint": replica.log_start,
        "replication-offset-checkpoint": replica.log_end,
        **({"cleaner-offset-checkpoint": replica.first_dirty} if replica.first_dirty else {}),
    }
    for name, value in values.items():
        topic, _, number = replica.folder.name.rpartition("-")
        (replica.log_dir / name).write_text(f"0\n1\n{topic} {number} {value}\n")


def predicted(folder: Path, start: BrokerStart) -> dict[str, Any]:
    """Return kseg's prediction of a start, as ``check_prediction`` compares it."""
    return prediction(plan_partition(str(folder), start))


def check_prediction(ours: dict[str, Any], answer: dict[str, Any]) -> None:
    """Raise Disagreement if Kafka's loader did something else."""
    loaded = outcome(answer)
    if any(loaded.get(key) != value for key, value in ours.items()):
        raise Disagreement(f"recovery: {difference(ours, loaded)}")


def check_damage(world: World, replica: Replica, copy: Path, chance: random.Random) -> None:
    """Damage a copy: kseg must find it, and a repair loses only the damaged batches, and invents nothing."""
    shutil.copytree(replica.folder, copy)
    logs = [path for path in sorted(copy.glob("*.log")) if path.stat().st_size]
    if not logs:
        return
    before = [_row(one) for one in kseg.open_log_dir(copy).records()]
    if _goes_back(before):
        return  # replicas diverged: a repair keeps the first batch of those with the same offsets
    path = chance.choice(logs)
    data = path.read_bytes()
    batches = list(kseg.open_segment(path).batches())
    positions = {one.position for one in batches}
    kind, begin, end = (
        chance.choice(("bit", "bit", "bit", "zeros", "cut", "side")),
        chance.randrange(len(data)),
        len(data),
    )
    if kind == "bit":
        end = begin + 1
        changed = data[:begin] + bytes([data[begin] ^ 1 << chance.randrange(8)]) + data[end:]
    elif kind == "zeros":
        end = min(begin + chance.choice((1, 64, 4096)), len(data))
        changed = data[:begin] + bytes(end - begin) + data[end:]
    elif kind == "cut":
        changed = data[:begin]
    else:
        begin = end = 0
        changed = data
        _damage_side_file(copy, chance)
    if changed == data and kind != "side":
        return
    path.write_bytes(changed)
    damaged = [one for one in batches if one.position < end and begin < one.position + one.size]
    unchecked = kind == "bit" and begin - damaged[0].position in _UNCHECKED[damaged[0].magic]
    # The newest segment can end anywhere between batches, and with zeros that a broker wrote in advance.
    at_an_end = path == logs[-1] and ((kind == "cut" and begin in positions) or (kind == "zeros" and end == len(data)))
    if kind != "side" and not (unchecked or at_an_end or _has_findings(copy)):
        raise Disagreement(f"damage: {kind} at {path.name}:{begin}..{end} is not found")
    lost_at = {one.position for one in damaged}
    with kseg.open_segment(io.BytesIO(data)) as whole:
        lost = {one.offset for one in whole.records() if one.position in lost_at}
    target = copy.parent / "out" / copy.name
    target.parent.mkdir()
    repair(str(copy), str(target), RepairPlan())
    check_repaired(world, target, before, None if unchecked else lost)


def _has_findings(folder: Path) -> bool:
    """Whether anything in a folder is a warning at least: a torn end of the newest segment is no more than that."""
    return any(one.severity.name != "INFO" for one in kseg.validate(folder).findings)


def _damage_side_file(folder: Path, chance: random.Random) -> None:
    """Delete a side file, cut it, or change a byte of it."""
    paths = [path for path in sorted(folder.iterdir()) if path.suffix != ".log" and path.stat().st_size]
    if not paths:
        return
    path = chance.choice(paths)
    data, at = path.read_bytes(), chance.randrange(min(path.stat().st_size, 200))
    kind = chance.choice(("delete", "cut", "byte"))
    if kind == "delete":
        path.unlink()
    else:
        path.write_bytes(data[:at] + (b"" if kind == "cut" else bytes([chance.randrange(256)]) + data[at + 1 :]))


def check_conversion(world: World, replica: Replica, copy: Path, chance: random.Random) -> None:
    """Convert a copy to v2 with a codec: Kafka must load the result as predicted, and read the same records."""
    shutil.copytree(replica.folder, copy, ignore=shutil.ignore_patterns("*.deleted"))
    before = [_row(one) for one in kseg.open_log_dir(copy).records()]
    if _goes_back(before) or not before or _has_findings(copy):
        return  # what Kafka wrote wrong, such as epochs below 0, is not converted
    target = copy.parent / "out" / copy.name
    target.parent.mkdir()
    codec = chance.choice(("keep", "none", "gzip", "snappy", "lz4", "zstd"))
    convert(str(copy), str(target), ConversionPlan.of("any-to-v2", compression=codec))
    check_repaired(world, target, before, set())


def check_repaired(world: World, target: Path, before: list[Any], lost: set[int] | None) -> None:
    """Kafka must load the repaired copy as predicted, and read the records that were ``before``, but for those ``lost``."""
    if not list(target.glob("*.log")):
        return
    expected = predicted(target, world.start)
    answer = world.kafka.load(target, world.start, keep=True, config=world.config, now=world.now)
    check_prediction(expected, answer)
    if "failure" in answer:
        return  # without a marker, or the first batch of a transaction, Kafka rejects later batches of the producer
    request = {"dir": str(target), "now": world.now}
    state = world.kafka.answer({"do": "state", **request})
    world.kafka.answer({"do": "crash", **request})
    if "records" not in state:
        raise Disagreement(f"repair: Kafka does not read the result: {state}")
    if lost is not None:
        found = _records(state)
        # A wrong magic is corrected where the CRC proves the right one: then nothing is lost.
        kept = [row for row in before if row[0] not in lost or row in found]
        _equal("repair", kept, found)
    check_valid(world, target, _LOSSES)


def check_read_error(world: World, log_dir: Path, chance: random.Random) -> None:
    """Let one call of the storage fail: nothing of that is damage, and what was not read is not valid."""
    for replica in world.replicas:
        write_checkpoints(replica)
    with local_faults(log_dir) as counted:
        known = {(one.file, one.finding.rule) for one in kseg.validate(log_dir).findings}
    number = chance.randrange(max(1, counted.calls))
    with local_faults(log_dir, "EIO", range(number, number + 1)):
        try:
            found = kseg.validate(log_dir).findings
        except UnreadableError:
            return
    wrong = [
        one
        for one in found
        if one.severity.name != "INFO" and one.finding.rule != READ_ERROR and (one.file, one.finding.rule) not in known
    ]
    if wrong:
        raise Disagreement(f"read error: a finding {wrong[0]}")
