"""kseg's findings on record sets, against Kafka's own log of a leader and of a follower, and against a consumer's
reader.
"""

from __future__ import annotations

import random
import struct
import zlib
from pathlib import Path

import pytest

from kseg.findings import Severity, Verdict
from kseg.format.checks.run_checks import new_collector, run_checks
from kseg.format.segment.framed_files import RecordSet
from kseg.format.storage.segment_files import SegmentFile
from kseg.format.storage.source import open_source
from kseg.format.writer.records_builder import PlainRecord, build_batch, build_message, wrap
from kseg.results import Settings
from tests.support.fuzzing import cases

NOW = 1_700_000_000_000
CODECS = {"gzip": 1, "snappy": 2, "lz4": 3}
# Kafka drops an incomplete end silently: kseg reports the missing bytes.
SILENT = {"truncated-tail"}
#: A consumer reads these, though at other offsets than those that they were produced with.
SHIFTED = {"wrapper-offset-mismatch", "record-offset-mismatch", "non-monotonic-offset"}


def message(magic: int, offset: int, *, append_time: int | None = None) -> bytes:
    kind = "CreateTime" if append_time is None else "LogAppendTime"
    record = PlainRecord(offset, b"key", b"value %d" % offset, (append_time or NOW) if magic else -1)
    return build_message(record, magic=magic, timestamp_type=kind)


def wrapper(magic: int, codec: str, inner: list[int], offset: int | None = None) -> bytes:
    messages = bytearray(b"".join(message(magic, each) for each in inner))
    timestamp = NOW if magic else -1
    return wrap(memoryview(messages), magic, CODECS[codec], 0, inner[-1] if offset is None else offset, timestamp)


def batch(count: int, offset: int = 0, codec: str = "none", append_time: int | None = None) -> bytes:
    records = [PlainRecord(offset + i, b"key", b"value", append_time or NOW) for i in range(count)]
    kind = "CreateTime" if append_time is None else "LogAppendTime"
    return build_batch(records, compression=codec, timestamp_type=kind)


def claiming(magic: int, codec: int, value: bytes | None = b"value") -> bytes:
    """Return a message whose attributes name a codec, though its value is plain."""
    body = struct.pack(">bb", magic, codec) + (struct.pack(">q", NOW) if magic else b"") + struct.pack(">i", -1)
    body += struct.pack(">i", -1 if value is None else len(value)) + (value or b"")
    return struct.pack(">qiI", 0, len(body) + 4, zlib.crc32(body)) + body


def short(size: int, rest: bytes = b"") -> bytes:
    """Return an offset and a size, and optional following bytes."""
    return struct.pack(">qi", 7, size) + rest


def _sets() -> dict[str, bytes]:
    found = {
        "v2": batch(2), "v2 gzip": batch(2, codec="gzip"), "two v2": batch(2) + batch(2, 2),
        "v0 and v1": message(0, 0) + message(1, 1), "v1 and v0": message(1, 0) + message(0, 1),
        "v1 and v2": message(1, 0) + batch(1, 1), "v2 and v1": batch(1) + message(1, 1),
        "v2 and 11 bytes": batch(2) + bytes(11), "v2 and zeros": batch(2) + bytes(100),
        "v2 and a part": batch(2) + batch(2, 2)[:-9],
    }  # fmt: skip
    for magic in (0, 1):
        found |= {
            f"plain v{magic}": b"".join(message(magic, offset) for offset in range(3)),
            f"wrapper v{magic}": wrapper(magic, "gzip", [0, 1, 2]),
            f"two wrappers v{magic}": wrapper(magic, "gzip", [0, 1]) + wrapper(magic, "gzip", [0, 1]),
            f"two codecs v{magic}": wrapper(magic, "gzip", [0, 1]) + wrapper(magic, "lz4", [0, 1]),
            f"plain, wrapper v{magic}": message(magic, 0) + wrapper(magic, "gzip", [0, 1]),
            f"wrapper, plain v{magic}": wrapper(magic, "gzip", [0, 1]) + message(magic, 0),
            f"null wrapper v{magic}": claiming(magic, 1, None),
        }
        found |= {f"claimed {codec} v{magic}": claiming(magic, codec) for codec in (1, 2, 3)}
        for inner in ([5, 6, 7], [0, 2, 3], [0, 2, 1], [0, 0, 0]):
            found[f"inner {inner} v{magic}"] = wrapper(magic, "gzip", inner)
        for offset in (-1, 0, 1, 9):
            found[f"wrapper at {offset} v{magic}"] = wrapper(magic, "gzip", [0, 1, 2], offset)
    for size in (-5, 0, 1, 13, 14, 21, 22):
        for rest in (b"", bytes(5), bytes(4) + b"\1" + bytes(20), bytes(4) + b"\2" + bytes(20)):
            found[f"v2 and a size of {size}, {rest.hex()}"] = batch(2) + short(size, rest)
            found[f"v1 and a size of {size}, {rest.hex()}"] = message(1, 0) + short(size, rest)
    found["append times back v1"] = message(1, 0, append_time=NOW) + message(1, 1, append_time=NOW - 5000)
    found["append times back v2"] = batch(1, append_time=NOW) + batch(1, 1, append_time=NOW - 5000)
    return found


SETS = _sets()


def composed(seed: int) -> bytes:
    """Return a set of one to three batches of any kind, and sometimes a damaged size, from a seed."""
    rng = random.Random(seed)
    parts, at = [], 0
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3))):
        count, magic = rng.randint(1, 4), rng.choice((0, 1, 1, 2))
        inner = list(range(count)) if rng.random() < 0.7 else [rng.randint(0, 5) for _ in range(count)]
        codec = rng.choice(list(CODECS))
        made = (
            batch(count, at, rng.choice(("none", codec))) if magic == 2
            else wrapper(magic, codec, inner, rng.choice((None, None, None, 0, count + 3))) if rng.random() < 0.5
            else b"".join(message(magic, at + i) for i in range(count)) if rng.random() < 0.9
            else claiming(magic, CODECS[codec])
        )  # fmt: skip
        parts.append(made)
        at += count
    if rng.random() < 0.2:
        parts.append(short(rng.randint(-20, 13), bytes(rng.randint(0, 30))))
    return b"".join(parts)


def verdicts(records: bytes, folder: Path, *, sent: bool) -> list[Verdict]:
    path = folder / "set"
    path.write_bytes(records)
    file = SegmentFile(str(path), framing="message-set")
    tally = new_collector(file, Settings())
    from kseg.format.checks.record_set_checks import RecordSetChecks

    with open_source(file.path) as source:
        part = RecordSet(source, sent=sent)
        run_checks(source, Settings(), tally, report=part.report_for(tally), record_set=RecordSetChecks(sent=sent))
    return list(tally.result().verdicts)


def errors(records: bytes, folder: Path, *, sent: bool) -> set[str]:
    return {verdict.rule.name for verdict in verdicts(records, folder, sent=sent) if verdict.severity >= Severity.ERROR}


def disagreements(sets: dict[str, bytes], folder: Path) -> list[str]:
    """Return the sets about which kseg and a leader, or a consumer, disagree."""
    from tools.lab.leader_log import answers_of

    requested = [(records, way, 2) for records in sets.values() for way in ("leader", "consumer")]
    answers = iter(answers_of(requested))
    found = []
    for name, records in sets.items():
        leader, consumer = next(answers), next(answers)
        refused = errors(records, folder, sent=True) - SILENT
        if bool(refused) is leader["ok"]:
            found.append(f"{name}: leader {leader}, kseg {sorted(refused)}")
        damage = errors(records, folder, sent=False)
        if (consumer["ok"] and damage - SHIFTED) or (not consumer["ok"] and not damage):
            found.append(f"{name}: consumer {consumer}, kseg {sorted(damage)}")
    return found


@pytest.mark.kafka
def test_a_leader_and_a_consumer_refuse_what_kseg_calls_an_error(tmp_path: Path) -> None:
    """Sizes below the minimum, several compressed messages, relative offsets, claimed codecs:

    each as Kafka 4.3 treats it.
    """
    assert disagreements(SETS, tmp_path) == []


@pytest.mark.kafka
@pytest.mark.fuzz
def test_composed_sets_are_accepted_and_rejected_as_by_kafka(tmp_path: Path) -> None:
    """kseg agrees with Kafka's leader and consumer on random sets."""
    assert disagreements({str(seed): composed(seed) for seed in range(cases(400))}, tmp_path) == []


def test_append_times_are_the_leaders(tmp_path: Path) -> None:
    """In a produce request they have no meaning; a follower accepts decreasing ones, so they are a warning elsewhere."""
    for name in ("append times back v1", "append times back v2"):
        rules = {verdict.rule.name: verdict.severity for verdict in verdicts(SETS[name], tmp_path, sent=False)}
        assert rules == {"append-time-regression": Severity.WARNING}
        (found,) = verdicts(SETS[name], tmp_path, sent=False)
        assert ("the same leader" in str(found.finding)) == name.endswith("v2"), "a v1 message does not name its leader"
        sent = {verdict.rule.name for verdict in verdicts(SETS[name], tmp_path, sent=True)}
        assert "append-time-regression" not in sent


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("two v2", "only one v2 batch"), ("v1 and v2", "only one v2 batch"), ("two wrappers v1", "KAFKA-1718"),
        ("plain, wrapper v0", "KAFKA-1718"), ("v0 and v1", "messages of one version"), ("plain v1", None), ("v2", None),
    ],
)  # fmt: skip
def test_a_leader_accepts_one_batch_or_plain_messages_of_one_version(
    name: str, reason: str | None, tmp_path: Path
) -> None:
    """The reason is that of the set; in a log and in a fetch response any number of batches follow one another."""
    reasons = [
        one.finding.facts["why"] for one in verdicts(SETS[name], tmp_path, sent=True) if "batches" in one.rule.name
    ]
    assert len(reasons) == bool(reason)
    assert all(str(reason) in why for why in reasons)
    assert "several-batches" not in {one.rule.name for one in verdicts(SETS[name], tmp_path, sent=False)}
