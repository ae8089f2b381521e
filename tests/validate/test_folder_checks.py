"""Checks across the files of a folder: indexes against their logs, and no finding in any real broker's folder."""

from __future__ import annotations

import re
import shutil
import struct
from pathlib import Path

import pytest

from kseg.format.segment import several_processes
from kseg.format.sidefiles.indexes import ABORTED_TXN, TIME_ENTRY
from kseg.format.writer.records_builder import PlainRecord, build_batch
from kseg.library import validate
from tests.support import damage
from tests.support.folders import FOLDERS, SEGMENTS, copied, marker, rules, transactional, validate_folder

TRANSACTIONS = SEGMENTS / "4.3.0-v2-none-transactions"


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_folders_of_brokers_have_no_findings(folder: Path) -> None:
    """Every generation, sealed, compacted, live and preallocated: a false alarm costs more than a missed fault."""
    assert rules(folder) == {}


def test_a_log_dir_of_a_broker_has_no_findings(tmp_path: Path) -> None:
    """The checkpoints of a real log dir, with the partitions that they name."""
    shutil.copytree(SEGMENTS / "4.3.0-v2-none-log-dir", tmp_path, dirs_exist_ok=True)
    reported = (tmp_path / "recovery-point-offset-checkpoint").read_text().splitlines()[2:]
    for topic in (line.split()[0] for line in reported):
        for name in (f"4.3.0-v2-{topic}", {"__consumer_offsets": "4.3.0-v2-none-consumer-offsets"}.get(topic, "")):
            if name and (SEGMENTS / name).exists():
                shutil.copytree(SEGMENTS / name, tmp_path / f"{topic}-0")
    assert len(list(tmp_path.glob("*-0"))) > 15
    assert rules(tmp_path) == {}
    # Each of their lines is compared with its partition.
    text = (tmp_path / "replication-offset-checkpoint").read_text()
    (tmp_path / "replication-offset-checkpoint").write_text(re.sub(r"(?m)^(\S+ 0) (\d+)$", r"\1 9\2", text))
    (found,) = rules(tmp_path).values()
    assert found == ["checkpoint-behind-log"] * 16
    # A broker that is killed right after it truncated its logs leaves high watermarks of before.
    (tmp_path / ".kafka_cleanshutdown").unlink()
    assert rules(tmp_path) == {}


def test_files_are_counted_once_and_follow_their_segment() -> None:
    """Each file has one result, next to its segment's."""
    results = validate_folder(TRANSACTIONS)
    names = [Path(result.file).name for result in results]
    assert (
        len(names) == len(set(names)) == len([path for path in TRANSACTIONS.iterdir() if path.suffix != ".jsonl"]) - 1
    )
    at = names.index(f"{17:020}.log")
    assert names[at + 1 : at + 4] == [f"{17:020}{suffix}" for suffix in (".index", ".timeindex", ".txnindex")]
    assert sum(result.summary.side_files for result in results) == len(names) - 6


@pytest.mark.parametrize(
    ("suffix", "entry", "field", "value", "expected"),
    [
        (".index", 1, 0, 45 - 17, "index-mismatch"),  # the batch before reaches 45: a fetch of 45 would begin after it
        (".index", 1, 0, 48 - 17, "index-mismatch"),  # the end of the log is searched after its last batch
        (".index", 1, 4, 1024, None),  # an earlier batch than needed: look-ups read on from there
        (".index", 1, 4, 1298, "index-mismatch"),
        (".timeindex", 2, 8, 48 - 17, "time-index-mismatch"),
        (".timeindex", 0, 8, 30 - 17, None),  # too late, and yet no earlier record is as late
        (".timeindex", 0, 8, 21 - 17, "time-index-mismatch"),
    ],
)
def test_an_entry_is_checked_for_its_look_ups(
    tmp_path: Path, suffix: str, entry: int, field: int, value: int, expected: str | None
) -> None:
    """An index entry is wrong if a look-up would miss a record."""
    folder = copied(TRANSACTIONS.name, tmp_path)
    path = folder / f"{17:020}{suffix}"
    size = 8 if suffix == ".index" else 12
    at = entry * size + field
    path.write_bytes(damage.splice(path.read_bytes(), at, at + 4, struct.pack(">i", value)))
    assert rules(folder) == ({path.name: [expected]} if expected else {})


@pytest.mark.parametrize(
    ("fixture", "base", "field", "by"),
    [
        (TRANSACTIONS.name, 17, "timestamp", 1),
        ("0.10.2.2-v1-none-segments", 0, "timestamp", 1),
        ("4.3.0-v2-none", 0, "timestamp", 1),  # the newest, after a clean shutdown
    ],
)  # fmt: skip
def test_the_last_time_index_entry_has_the_segments_largest_timestamp(
    tmp_path: Path, fixture: str, base: int, field: str, by: int
) -> None:
    """Kafka appends that entry when a segment is rolled or closed; retention and time look-ups use it."""
    folder = copied(fixture, tmp_path)
    path = folder / f"{base:020}.timeindex"
    data = path.read_bytes()
    timestamp, relative = TIME_ENTRY.unpack(data[-TIME_ENTRY.size :])
    changed = (timestamp + by, relative) if field == "timestamp" else (timestamp, relative + by)
    path.write_bytes(data[: -TIME_ENTRY.size] + TIME_ENTRY.pack(*changed))
    assert rules(folder) == {path.name: ["time-index-mismatch"]}
    if len(data) > TIME_ENTRY.size:
        path.write_bytes(data[: -TIME_ENTRY.size])
        assert rules(folder) == {path.name: ["time-index-mismatch"]}


@pytest.mark.parametrize("entries", [0, 1], ids=["all zeros", "zeros after the entries"])
@pytest.mark.parametrize(
    ("fixture", "base", "clean"),
    [("4.3.0-v2-none-segments", 24, False), ("4.3.0-v2-none", 0, True), ("4.3.0-v2-none", 0, False)],
)
def test_zeros_at_the_end_of_a_trimmed_time_index_are_an_entry(
    tmp_path: Path, fixture: str, base: int, clean: bool, entries: int
) -> None:
    """A broker takes them for a timestamp of 1970, and deletes the segment by retention.ms.

    In the newest segment they are preallocated, until a clean shutdown.
    """
    folder = copied(fixture, tmp_path)
    path = folder / f"{base:020}.timeindex"
    data = path.read_bytes()
    path.write_bytes(data * entries + bytes(len(data)))
    if clean:
        (folder.parent / ".kafka_cleanshutdown").touch()
    found = rules(folder).get(path.name, [])
    assert found == (["time-index-mismatch"] if base or clean else [])


def test_the_mark_of_a_clean_shutdown_says_nothing_about_a_metadata_log(tmp_path: Path) -> None:
    """A node that ends at its start has opened the metadata log, and has not yet deleted the mark."""
    folder = tmp_path / "__cluster_metadata-0"
    shutil.copytree(SEGMENTS.parent / "findings" / "ghost-controller" / folder.name, folder)
    before = rules(folder)
    for path in (folder / f"{0:020}.timeindex", folder / f"{0:020}.log"):
        path.write_bytes(path.read_bytes() + bytes(1200))
    (tmp_path / ".kafka_cleanshutdown").touch()
    assert rules(folder) == before


def test_an_empty_time_index_is_a_missing_one(tmp_path: Path) -> None:
    """A broker leaves a missing time index empty: retention then uses the time of the file."""
    folder = copied("4.3.0-v2-none-segments", tmp_path)
    (folder / f"{24:020}.timeindex").write_bytes(b"")
    assert rules(folder) == {f"{24:020}.log": ["missing-index"]}


def test_an_aborted_transaction_begins_where_an_earlier_segment_has_its_first_records(tmp_path: Path) -> None:
    """A first offset that is too low makes consumers that read committed skip records that were committed."""
    folder = copied("3.9.1-v2-none-transactions", tmp_path)
    index = folder / f"{21:020}.txnindex"
    data = index.read_bytes()
    entries = [ABORTED_TXN.unpack_from(data, at) for at in range(0, len(data), ABORTED_TXN.size)]
    row = next(n for n, (_, _, first, _, _) in enumerate(entries) if first < 21)
    version, producer_id, first, last, stable = entries[row]
    for wrong in (first - 1, 0, first + 1):
        entries[row] = version, producer_id, wrong, last, stable
        index.write_bytes(b"".join(ABORTED_TXN.pack(*entry) for entry in entries))
        assert rules(folder) == {index.name: ["txn-index-mismatch"]}, wrong


def test_a_name_of_more_than_64_bits_is_a_wrong_name(tmp_path: Path) -> None:
    """Twenty nines: Kafka's offsets end at 9223372036854775807, and a sum past that must not end the run."""
    folder = copied(TRANSACTIONS.name, tmp_path)
    for path in sorted(folder.iterdir()):
        if path.stem != f"{17:020}":
            path.unlink()
        else:
            path.rename(path.with_stem("9" * 20))
    found = rules(folder)
    assert found["9" * 20 + ".log"] == ["file-name-mismatch"]
    assert {Path(name).suffix for name in found} == {".log", ".index", ".timeindex", ".txnindex", ".snapshot"}


def test_an_abort_without_an_index_is_reported_for_the_log(tmp_path: Path) -> None:
    """The broker deletes empty indexes: without one it assumes that no transaction was aborted."""
    folder = copied(TRANSACTIONS.name, tmp_path)
    (folder / f"{17:020}.txnindex").unlink()
    assert rules(folder) == {f"{17:020}.log": ["txn-index-mismatch"] * 2}


@pytest.mark.slow
def test_an_abort_of_records_in_earlier_segments_is_missed_too(tmp_path: Path) -> None:
    """The index next to the marker's segment has it, wherever its records are;

    a marker without records needs no entry.
    """
    folder = tmp_path / "orders-0"
    folder.mkdir()

    def abort(offset: int, producer_id: int) -> bytes:
        record = PlainRecord(offset, b"\0\0\0\0", b"\0\0\0\0\0\0", 1_700_000_000_000)
        return build_batch([record], producer_id=producer_id, producer_epoch=0, transactional=True, control=True)

    data = [PlainRecord(n, b"k", b"v", 1_700_000_000_000) for n in range(3)]
    (folder / f"{0:020}.log").write_bytes(
        build_batch(data, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    )
    (folder / f"{3:020}.log").write_bytes(abort(3, 7) + abort(4, 8))
    assert rules(folder) == {}, "logs alone, copied without any index"
    for base in (0, 3):
        (folder / f"{base:020}.index").touch()
    assert rules(folder) == {f"{3:020}.log": ["txn-index-mismatch"]}
    index = folder / f"{3:020}.txnindex"
    index.write_bytes(ABORTED_TXN.pack(0, 7, 0, 3, 4))
    assert rules(folder) == {}
    index.write_bytes(b"")
    assert rules(folder) == {index.name: ["txn-index-mismatch"]}


@pytest.mark.slow
def test_damage_of_a_log_is_not_reported_for_its_side_files(tmp_path: Path) -> None:
    """One cause gives one finding: if a log is damaged, indexes, checkpoints and neighbours are not reported as well."""
    folder = copied(TRANSACTIONS.name, tmp_path)
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n1\norders 0 88\n")
    for log in sorted(folder.glob("*.log")):
        data = log.read_bytes()
        for place in damage.entries(data):
            log.write_bytes(damage.flip(data, place.end - 3))
            assert rules(tmp_path) == {log.name: ["crc-mismatch"]}, place
        log.write_bytes(damage.shrink(data, len(data) - 10))
        assert rules(tmp_path).pop(log.name) == ["truncated-tail"]
        log.write_bytes(data)


def test_ranges_of_a_file_say_the_same_of_its_indexes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Splitting a segment does not change its index findings."""
    monkeypatch.setattr(several_processes, "RANGE_SIZE", 2 * 1024)
    monkeypatch.setattr(several_processes, "BEGIN_ALONE", False)
    folder = copied("4.3.0-v2-none", tmp_path)
    index = folder / f"{0:020}.index"
    index.write_bytes(damage.flip(index.read_bytes(), index.stat().st_size - 1))
    one, two = validate_folder(folder), validate_folder(folder, 2)
    assert [result.summary.rules for result in one] == [result.summary.rules for result in two]
    assert [result.verdicts for result in one] == [result.verdicts for result in two]
    assert any(result.summary.rules["index-mismatch"] for result in two)


def test_logs_without_side_files_are_valid(tmp_path: Path) -> None:
    """A backup that consists of .log files only is valid."""
    for path in TRANSACTIONS.glob("*.log"):
        shutil.copy(path, tmp_path)
    assert rules(tmp_path) == {}


@pytest.mark.parametrize("jobs", [1, 2])
def test_checks_continue_across_segments(tmp_path: Path, jobs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Epochs and sequences are followed from one segment to the next, with any number of processes."""
    monkeypatch.setattr(several_processes, "RANGE_SIZE", 256)
    monkeypatch.setattr(several_processes, "BEGIN_ALONE", False)
    data = (SEGMENTS / "4.3.0-v2-none-idempotent" / f"{0:020}.log").read_bytes()
    places = damage.entries(data)
    third = places[3]  # producer 0's second batch
    begin = damage.get(data, third.at, "base_offset")
    (tmp_path / f"{0:020}.log").write_bytes(damage.put(data[: third.at], places[2].at, partition_leader_epoch=3))
    later = damage.alter(data, third.at, base_sequence=damage.get(data, third.at, "base_sequence") + 5)
    (tmp_path / f"{begin:020}.log").write_bytes(later[third.at : third.end])
    first, second = validate_folder(tmp_path, jobs)
    assert [verdict.rule.name for verdict in first.verdicts] == ["no-indexes"]
    assert [verdict.rule.name for verdict in second.verdicts] == ["leader-epoch-regression", "sequence-gap"]


def test_a_hole_between_segments_is_compaction_where_there_are_signs_of_it(tmp_path: Path) -> None:
    """A gap is an error only without signs of compaction."""
    folder = copied("4.3.0-v2-none-segments", tmp_path)
    (folder / f"{24:020}.log").unlink()
    assert rules(folder)[f"{48:020}.log"] == ["segment-gap"]
    (tmp_path / "cleaner-offset-checkpoint").write_text("0\n1\norders 0 96\n")
    assert f"{48:020}.log" not in rules(folder)
    (reported,) = (
        verdict
        for result in validate_folder(folder)
        for verdict in result.verdicts
        if verdict.rule.name == "offset-gap"
    )
    assert (reported.finding.offset, reported.finding.last_offset) == (24, 47)
    assert reported.message.endswith("the cleaner has reached offset 96")


@pytest.mark.parametrize(
    ("checkpoint", "offset", "expected"),
    [
        (None, 0, "probably lost, because a compacted topic has no records without a key"),
        ("cleaner-offset-checkpoint", 40, "probably compacted, because the cleaner has reached offset 40"),
        ("cleaner-offset-checkpoint", 20, "lost, or compacted by another broker, because"),
        ("log-start-offset-checkpoint", 40, "harmless, the log starts at offset 40"),
    ],
)  # fmt: skip
def test_a_gap_is_explained_by_what_is_known(
    tmp_path: Path, checkpoint: str | None, offset: int, expected: str
) -> None:
    """The message names the evidence."""
    folder = copied("4.3.0-v2-none", tmp_path)
    log = folder / f"{0:020}.log"
    data = log.read_bytes()
    third = damage.entries(data)[2]
    log.write_bytes(damage.cut(data, third.at, third.end))
    for path in folder.glob("*index"):
        path.unlink()
    if checkpoint:
        (tmp_path / checkpoint).write_text(f"0\n1\norders 0 {offset}\n")
    rule = "missing-batches" if expected.startswith("probably lost") else "offset-gap"
    reported = [
        verdict
        for result in validate_folder(folder)
        for verdict in result.verdicts
        if verdict.rule.name != "no-indexes"
    ]
    ((found, why),) = ((verdict.rule.name, verdict.finding.facts["why"]) for verdict in reported)
    assert found == rule
    assert why.startswith(expected)


def test_real_gaps_of_compaction_are_reported_as_compaction() -> None:
    """Logs of real cleaners, without the log dir's cleaner checkpoint."""
    reported = [
        verdict.finding.facts["why"]
        for folder in SEGMENTS.glob("4.3.0-*-compacted")
        for result in validate_folder(folder)
        for verdict in result.verdicts
        if verdict.rule.name == "offset-gap"
    ]
    assert reported
    assert set(reported) == {"probably compacted, because other batches have fewer records than offsets"}


@pytest.mark.slow
def test_below_the_log_start_only_the_beginning_of_a_transaction_is_forgotten(tmp_path: Path) -> None:
    """A broker that starts after a deletion of records sees the rest of a transaction: its index entry begins there.

    Another producer, or a commit instead of the abort, is no deletion of records.
    """
    folder = tmp_path / "orders-0"
    folder.mkdir()
    log, index = folder / f"{0:020}.log", folder / f"{0:020}.txnindex"
    log.with_suffix(".index").touch()
    body = transactional(0, 2, 7, 0) + transactional(2, 2, 7, 2)
    for log_start, abort, entry, found in (
        (2, True, (7, 2), []), (2, True, None, []), (0, True, (7, 2), [index.name]), (0, True, None, [index.name]),
        (2, True, (8, 2), [index.name]), (2, False, (7, 2), [index.name]), (2, True, (7, 0), []),
    ):  # fmt: skip
        log.write_bytes(body + marker(4, 7, abort=abort))
        index.write_bytes(b"" if entry is None else ABORTED_TXN.pack(0, *entry, 4, 5))
        (tmp_path / "log-start-offset-checkpoint").write_text(f"0\n1\norders 0 {log_start}\n")
        wrong = [name for name, names in rules(folder).items() if "txn-index-mismatch" in names]
        assert wrong == found, (log_start, abort, entry)


def test_a_follower_writes_last_stable_offsets_after_the_marker(tmp_path: Path) -> None:
    """A follower appends several batches at once: Kafka then counts transactions that begin later as open.

    Only the offset at which the next transaction of another producer begins can stand there; any other one is wrong.
    """
    folder = tmp_path / "orders-0"
    folder.mkdir()
    # FORMATS: 38..43 of a follower had the last stable offset 49.
    first = transactional(0, 3, 7, 0) + marker(3, 7, abort=True) + transactional(4, 2, 7, 3) + transactional(6, 2, 8, 0)
    (folder / f"{0:020}.log").write_bytes(first + marker(8, 7, abort=True) + marker(9, 8, abort=False))
    (folder / f"{0:020}.index").touch()
    index = folder / f"{0:020}.txnindex"
    last = ABORTED_TXN.pack(0, 7, 4, 8, 6)
    for stable, found in ((4, []), (6, []), (5, ["txn-index-mismatch"]), (7, ["txn-index-mismatch"]),
                          (1 << 40, ["txn-index-order"])):  # fmt: skip
        index.write_bytes(ABORTED_TXN.pack(0, 7, 0, 3, stable) + last)
        assert rules(folder).get(index.name, []) == found, stable
    index.write_bytes(ABORTED_TXN.pack(0, 7, 0, 3, 6) + last)
    infos = [verdict.message for result in validate_folder(folder) for verdict in result.verdicts]
    assert "offsets 0..3 of producer 7: the last stable offset 6 is after the marker" in infos


@pytest.mark.parametrize(("ended", "last", "true"), [(True, 8, 4), (False, 8, 0)])
def test_an_abort_with_data_in_its_segment_begins_where_its_first_data_is(
    tmp_path: Path, ended: bool, last: int, true: int
) -> None:
    """A lower first offset hides committed records of the producer, a higher one shows aborted ones.

    Data in the marker's segment says where the transaction begins only if it is not open before. If an offset is missing,
    as the log cleaner leaves it, the first data can be gone, and nothing is known.
    """
    folder = tmp_path / "orders-0"
    folder.mkdir()
    before = transactional(0, 3, 7, 0) + (
        marker(3, 7, abort=False) if ended else build_batch([PlainRecord(3, b"k", b"v", 1_700_000_000_000)])
    )
    (folder / f"{0:020}.log").write_bytes(before)
    log, index = folder / f"{4:020}.log", folder / f"{4:020}.txnindex"
    for base in (0, 4):
        (folder / f"{base:020}.index").touch()
    log.write_bytes(transactional(4, 4, 7, 3) + marker(last, 7, abort=True))
    for first in range(last):
        index.write_bytes(ABORTED_TXN.pack(0, 7, first, last, last + 1))
        assert rules(folder) == ({} if first == true else {index.name: ["txn-index-mismatch"]}), first
    log.write_bytes(transactional(5, 3, 7, 3) + marker(last, 7, abort=True))
    index.write_bytes(ABORTED_TXN.pack(0, 7, true, last, last + 1))
    assert index.name not in rules(folder)


@pytest.mark.parametrize("last_stable", range(12))
def test_no_open_transaction_is_before_a_last_stable_offset(tmp_path: Path, last_stable: int) -> None:
    """A fetch below it reads no later entry (``collectAbortedTxns``): aborted records of the open transaction would be seen.

    A lower one only lets a consumer read more entries than it needs.
    """
    folder = tmp_path / "orders-0"
    folder.mkdir()
    first = transactional(0, 1, 8, 0) + transactional(1, 1, 8, 1) + transactional(2, 2, 7, 0) + marker(4, 7, abort=True)
    (folder / f"{0:020}.log").write_bytes(first + transactional(5, 2, 9, 0) + marker(7, 8, abort=True))
    (folder / f"{0:020}.index").touch()
    index = folder / f"{0:020}.txnindex"
    index.write_bytes(ABORTED_TXN.pack(0, 7, 2, 4, last_stable) + ABORTED_TXN.pack(0, 8, 0, 7, 5))
    assert ("txn-index-mismatch" in rules(folder).get(index.name, [])) == (last_stable > 0)


@pytest.mark.parametrize("kept", ["*", "leader-epoch-checkpoint", "*.index", "*.snapshot", "partition.metadata"])
def test_a_partition_without_a_segment_is_never_sound(kept: str, tmp_path: Path) -> None:
    """Its side files show that it had a log: nobody looked at that log, so a verdict on it would be invented."""
    folder = copied("4.3.0-v2-none-transactions", tmp_path)
    for path in folder.iterdir():
        if path.suffix == ".log" or not path.match(kept):
            path.unlink()
    left = list(folder.iterdir())
    assert left
    found = validate(folder)
    assert (found.verdict, found.summary.files, found.summary.side_files) == ("undetermined", 0, len(left))
    assert list(found.unread) == [f"{folder}/"]
    orphans = {path.name for path in left if path.suffix in (".index", ".timeindex", ".txnindex")}
    assert rules(folder) == {name: ["orphaned-index"] for name in orphans}
    # Beside a partition that is whole, it is found as well.
    shutil.copytree(TRANSACTIONS, tmp_path / "whole-0")
    assert list(validate(tmp_path).unread) == [f"{folder}/"]
    # A broker deletes the files of a deleted topic one by one.
    deleted = folder.rename(tmp_path / "orders-0.0123456789abcdef0123456789abcdef-delete")
    assert (validate(deleted).unread, rules(deleted)) == ({}, {})
