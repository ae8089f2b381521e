"""``kseg dump --effective``: the effective state of an internal topic is the one that Kafka computed."""

from __future__ import annotations

import io
import json
import random
import re
import shutil
import struct
import tracemalloc
from itertools import accumulate, pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kseg.cli.main import main
from kseg.commands.dump.dump_items import BatchItem
from kseg.findings import do_nothing
from kseg.format.internal_topics.decode import decode
from kseg.format.internal_topics.effective_state import effective
from kseg.format.internal_topics.metadata_loading import replayed, state_files
from kseg.format.internal_topics.state import LatestValues, RecordPlace, place_of
from kseg.format.storage.naming import CONSUMER_OFFSETS
from kseg.report.effective_report import EffectivePartition, write_table
from tests.support import group_logs
from tests.support.cli import invoke
from tests.support.damage import entries, fix_crc, flip, get
from tests.support.fixtures import dump_segment
from tests.support.internal_topics import FOLDERS, SEGMENTS, placed
from tests.support.transactional_logs import ABORT, COMMIT, TRANSACTIONAL
from tests.support.transactional_logs import batch as write_batch
from tools.lab.oracle import ANSWERS

FIRST = f"{0:020}.log"


def dump(*arguments: object) -> Result:
    return invoke("dump", "--effective", *arguments)


def rows(folder: Path, *options: object) -> list[dict[str, Any]]:
    done = dump("--format", "jsonl", *options, folder)
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


def state(path: Path) -> dict[tuple[str, str], Any]:
    """Return the cluster metadata by key, without entries that a snapshot does not keep."""
    found = {}
    for item in effective("__cluster_metadata", [str(path)], lambda path: do_nothing).items():
        # A snapshot does not have the owner of the ids; the order of features does not matter.
        data = {name: value for name, value in item.data.items() if not name.startswith("broker")}
        data["features"] = sorted(data.get("features", ()), key=lambda feature: str(feature["name"]))
        found[item.entity, json.dumps(item.key)] = data
    return found


def test_effective_metadata_equal_kafkas_snapshot(tmp_path: Path) -> None:
    """The log up to the snapshot, and the snapshot: topics, partitions, configs, quotas, ACLs, credentials…"""
    folder = SEGMENTS / FOLDERS["__cluster_metadata"][0]
    (snapshot,) = folder.glob("*.checkpoint")
    end = int(snapshot.name.split("-")[0])
    entries = (item for item in dump_segment(str(folder / FIRST)) if isinstance(item, BatchItem))
    cut = next(item.batch.position for item in entries if item.batch.last_offset >= end)
    (tmp_path / FIRST).write_bytes((folder / FIRST).read_bytes()[:cut])
    before = state(tmp_path / FIRST)
    assert {"topic", "partition", "config", "quota", "acl", "broker", "feature"} <= {entity for entity, _ in before}
    assert before == state(snapshot)


def test_a_snapshot_and_the_log_after_it_give_the_state_of_the_whole_log(tmp_path: Path) -> None:
    folder = placed("__cluster_metadata", tmp_path)
    kept = [row for row in rows(folder) if row["kind"] == "state"]
    for snapshot in folder.glob("*.checkpoint"):
        snapshot.unlink()
    whole = [row for row in rows(folder) if row["kind"] == "state"]

    def keys(found: list[dict[str, Any]]) -> set[str]:
        return {json.dumps([row["entity"], row["key"]]) for row in found}

    assert keys(kept) == keys(whole)
    assert "tiered" not in {row["data"].get("name") for row in kept}


@pytest.mark.parametrize("topic", FOLDERS)
def test_the_state_of_a_moment_is_that_of_a_log_which_ends_there(topic: str, tmp_path: Path) -> None:
    """``--at`` with an offset, and with a time, for the end of each batch."""
    folder = placed(topic, tmp_path)
    for snapshot in folder.glob("*.checkpoint"):
        snapshot.unlink()  # one of them can be newer than the moment
    whole = (folder / FIRST).read_bytes()
    cut = tmp_path / "cut" / folder.name
    shutil.copytree(folder, cut)
    batches = [item.batch for item in dump_segment(str(folder / FIRST)) if isinstance(item, BatchItem)]
    latest = list(accumulate((batch.max_timestamp or 0 for batch in batches), max))
    sample = random.Random(7).sample(range(len(batches)), min(len(batches), 4))
    for batch, time, follower in ((batches[i], latest[i], batches[i + 1 : i + 2]) for i in sample):
        (cut / FIRST).write_bytes(whole[: batch.position + batch.size])
        wanted = [{**row, "folder": str(folder)} for row in rows(cut)]
        assert rows(folder, "--at", batch.last_offset) == wanted
        if not follower or (follower[0].base_timestamp or 0) > time:
            assert rows(folder, "--at", time) == wanted


def test_the_state_of_a_moment_begins_with_a_snapshot_from_before_it(tmp_path: Path) -> None:
    """A newer snapshot is not used. Without a snapshot from before it, a log that no longer begins at 0 has no answer."""
    folder = placed("__cluster_metadata", tmp_path)
    (snapshot,) = folder.glob("*.checkpoint")
    end = int(snapshot.name.split("-")[0])

    def items(at: int) -> set[tuple[str, str]]:
        return {(row["entity"], json.dumps(row["key"])) for row in rows(folder, "--at", at) if "key" in row}

    found = [items(at) for at in (end - 2, end - 1, end)]
    snapshot.rename(tmp_path / snapshot.name)
    assert found == [items(at) for at in (end - 2, end - 1, end)]
    shutil.copy(tmp_path / snapshot.name, snapshot)
    whole = (folder / FIRST).read_bytes()
    place = next(place for place in entries(whole) if get(whole, place.at, "base_offset") >= end)
    start = get(whole, place.at, "base_offset")
    (folder / FIRST).unlink()
    (folder / f"{start:020}.log").write_bytes(whole[place.at :])
    assert items(end) == found[-1]
    for is_left in (True, False):
        if not is_left:
            snapshot.unlink()
        done = dump("--at", end - 2, folder)
        assert (done.exit_code, done.stdout) == (2, "")
        assert f"no snapshot from before it is left, and the log begins at offset {start}" in done.stderr


def test_a_metadata_log_without_its_start_is_not_the_whole_state(tmp_path: Path) -> None:
    """Topics can be missing: as no node starts with the log, the exit code is 1, and stderr has the finding of validate."""
    folder = placed("__cluster_metadata", tmp_path)
    for snapshot in folder.glob("*.checkpoint"):
        snapshot.rename(snapshot.with_name(f"{5:020}-{1:010}.checkpoint"))
    (folder / FIRST).rename(folder / f"{60:020}.log")
    done = dump("--format", "jsonl", folder)
    assert (done.exit_code, "metadata-snapshot-missing" in done.stderr) == (1, True), done.stderr
    assert done.stdout
    assert replayed(state_files(str(folder))).image is None  # nothing is predicted from a part of the topics


@pytest.mark.parametrize("snapshot", [True, False])
def test_a_metadata_log_without_a_segment_is_not_the_whole_state(snapshot: bool, tmp_path: Path) -> None:
    """A node starts with such a log, and does not notice. A snapshot has the state before it, so nothing is lost then."""
    folder = placed("__cluster_metadata", tmp_path)
    whole = (folder / FIRST).read_bytes()
    places = entries(whole)
    starts = [places[n] for n in (0, len(places) // 3, 2 * len(places) // 3)]
    offsets = [get(whole, place.at, "base_offset") for place in starts]
    (folder / FIRST).unlink()
    for offset, begin, end in ((offsets[0], 0, starts[1].at), (offsets[2], starts[2].at, len(whole))):
        (folder / f"{offset:020}.log").write_bytes(whole[begin:end])
    for path in folder.glob("*.checkpoint"):
        path.rename(path.with_name(f"{offsets[2]:020}-{1:010}.checkpoint")) if snapshot else path.unlink()
    done = dump("--format", "jsonl", folder)
    wanted = "" if snapshot else f"no segment has offsets {offsets[1]}..{offsets[2] - 1}, after {FIRST}"
    assert (done.exit_code, wanted in done.stderr) == (0 if snapshot else 1, True), done.stderr
    assert ("segment-gap" in done.stderr) is not snapshot
    image = replayed(state_files(str(folder))).image
    assert image is None or image.whole is snapshot


def test_offsets_are_those_that_the_broker_answered(tmp_path: Path) -> None:
    """Offsets of a transaction are effective after its commit, and never after an abort.

    The broker was not asked for Streams groups.
    """
    folder = placed("__consumer_offsets", tmp_path)
    wanted = json.loads((folder / ANSWERS).read_text(encoding="utf-8"))
    found = [row for row in rows(folder) if row["entity"] == "OffsetCommit" and row["kind"] == "state"]
    held = [{**row["key"], "offset": row["data"]["offset"]} for row in found if not row["pending"]]
    requested = [row for row in held if row["group"] != "kseg-streams"]
    by_place = itemgetter("group", "topic", "partition")
    assert sorted(requested, key=by_place) == sorted(wanted, key=by_place)
    pending = [row for row in found if row["pending"]]
    assert [(row["key"]["group"], row["data"]["offset"]) for row in pending] == [("kseg-open", 9)]


def test_open_transactions_are_reported(tmp_path: Path) -> None:
    found = rows(placed("__transaction_state", tmp_path))
    ongoing = {row["key"]["transactionalId"] for row in found if row["kind"] == "state" and row["status"] == "Ongoing"}
    assert ongoing == {"plain-three", "plain-open"}


def held_remotely(data: bytes, folder: Path) -> list[list[Any]]:
    """Return the remote segments after each batch, as the oracle has them."""
    found = []
    for entry in entries(data):
        (folder / FIRST).write_bytes(data[: entry.end])
        segments = []
        for row in rows(folder):
            if row["kind"] == "state":
                place, segment_id = row["key"]["remoteLogSegmentId"].values()
                name = f"{place['id']}:{place['name']}-{place['partition']}"
                segments.append([name, segment_id, row["status"], *(row["data"][field] for field in SEGMENT_FIELDS)])
        found.append(sorted(segments))
    return found


SEGMENT_FIELDS = ("startOffset", "endOffset", "segmentSizeInBytes", "brokerId", "eventTimestampMs")


@pytest.mark.kafka
def test_tiered_storage_comes_to_what_the_brokers_cache_holds(tmp_path: Path) -> None:
    """After every batch, and with a log whose first segment is deleted:

    a broker ignores updates of unknown remote segments.
    """
    from tools.lab.oracle import VERSION, run_java

    folder = placed("__remote_log_metadata", tmp_path)
    whole = (folder / FIRST).read_bytes()
    logs = [whole, whole[entries(whole)[1].at :]]
    files = [tmp_path / f"{number}.log" for number in range(len(logs))]
    for file, data in zip(files, logs, strict=True):
        file.write_bytes(data)
    program = Path(__file__).parents[2] / "tools" / "lab" / "RemoteOracle.java"
    reported = run_java(VERSION, str(program), [str(file) for file in files])
    wanted = [sorted(json.loads(line)) for line in reported.splitlines()]
    assert [held for data in logs for held in held_remotely(data, folder)] == wanted
    assert any(wanted)


def test_remote_segments_have_their_states_until_they_are_gone(tmp_path: Path) -> None:
    """A table has partition, id and state of each remote segment; a line says if all are deleted."""
    folder = placed("__remote_log_metadata", tmp_path)
    data = (folder / FIRST).read_bytes()
    states = [{segment[2] for segment in held} for held in held_remotely(data, folder)]
    assert states[0] == {"COPY_SEGMENT_STARTED"}
    assert states[5] == {"COPY_SEGMENT_FINISHED"}
    assert states[-2:] == [{"DELETE_SEGMENT_STARTED"}, set()]
    assert "no effective state in 12 records" in dump(folder).stdout
    (folder / FIRST).write_bytes(b"")
    assert "no effective state in 0 records" in dump(folder).stdout
    (folder / FIRST).write_bytes(data[: entries(data)[5].end])
    line = next(line for line in dump(folder).stdout.splitlines() if "863wBXVcRYa4pXQE1BFRBw" in line)
    assert line.split()[:2] == ["tiered", "0"]
    assert "COPY_SEGMENT_FINISHED" in line


def test_names_replace_ids_and_numbers(tmp_path: Path) -> None:
    """A partition is shown with its topic's name; ACLs and configs with the names of Kafka's enums.

    JSON keeps the numbers.
    """
    folder = placed("__cluster_metadata", tmp_path)
    table = dump(folder).stdout
    acl = next(line for line in table.splitlines() if "User:alice" in line).split()
    assert acl[1:-1] == ["TOPIC", "plain", "PREFIXED", "User:alice", "*", "READ", "ALLOW"]
    assert {"TOPIC", "BROKER", "GROUP"} <= {line.split()[0] for line in table.splitlines() if line.strip()}
    found = [row for row in rows(folder) if row["kind"] == "state"]
    topics = {row["key"]["topicId"]: row["data"]["name"] for row in found if row["entity"] == "topic"}
    partitions = [row for row in found if row["entity"] == "partition"]
    assert {row["topic_name"] for row in partitions} == set(topics.values())
    assert all(row["topic_name"] == topics[row["key"]["topicId"]] for row in partitions)
    assert next(row for row in found if row["entity"] == "acl")["data"]["operation"] == 3


@pytest.mark.parametrize("width", [80, 100, 240])
@pytest.mark.parametrize("topic", FOLDERS)
def test_lines_on_a_terminal_stay_whole(
    topic: str, width: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table fits the terminal, its headings are not broken, and it has every item."""
    folder = placed(topic, tmp_path)
    found = effective(topic, [str(folder / FIRST)], lambda path: do_nothing)
    out = Terminal()
    monkeypatch.setenv("COLUMNS", str(width))
    write_table([EffectivePartition(str(folder), topic, 0, found)], out)
    lines = re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue()).splitlines()
    for heading, rule in pairwise(lines):
        if set(rule.strip()) == {"─"}:
            assert len(rule.rstrip()) <= width
            assert "…" not in heading
    ends = {line.split()[-1] for line in lines if line.strip()}
    assert {str(item.at.offset) for item in found.items()} <= ends


class Terminal(io.StringIO):
    """A text stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


def test_used_space_is_reported_by_owner(tmp_path: Path) -> None:
    """Every record is counted once, and the effective part is at most the total."""
    folder = placed("__consumer_offsets", tmp_path)
    found = rows(folder)
    spaces = [row for row in found if row["kind"] == "space"]
    records = [
        item for item in dump_segment(str(folder / FIRST)) if isinstance(item, BatchItem) and not item.batch.control
    ]
    assert sum(row["records"] for row in spaces) == sum(item.batch.record_count or 0 for item in records)
    assert [row["bytes"] for row in spaces] == sorted((row["bytes"] for row in spaces), reverse=True)
    assert all(row["live_bytes"] <= row["bytes"] and row["live_records"] <= row["records"] for row in spaces)
    held = [row for row in found if row["kind"] == "state" and not row["pending"]]
    assert sum(row["live_records"] for row in spaces) == len(held)


def test_a_table_has_a_line_for_each_key(tmp_path: Path) -> None:
    """The table lists each key once."""
    done = dump(placed("__transaction_state", tmp_path))
    assert done.exit_code == 0
    assert "plain-three" in done.stdout
    assert "Ongoing" in done.stdout


def test_damage_is_reported_and_reading_continues(tmp_path: Path) -> None:
    folder = placed("__transaction_state", tmp_path)
    data = bytearray((folder / FIRST).read_bytes())
    data[200] ^= 0xFF
    (folder / FIRST).write_bytes(bytes(data))
    done = dump("--format", "jsonl", folder)
    assert done.exit_code == 1
    assert "crc-mismatch" in done.stderr
    assert len(done.stdout.splitlines()) > 4


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--format", "csv"], "--format csv cannot write the effective state: expected table or jsonl"),
        (["--key", "x"], "--effective cannot be combined with --key"),
        (["--key", "x", "--deep"], "--effective cannot be combined with --key"),
        (["--limit", "0"], "--effective cannot be combined with --limit"),
        (["--no-decode"], "--effective cannot be combined with --no-decode"),
        (["--follow"], "--effective cannot be combined with --follow"),
    ],
)
def test_contradicting_options_are_rejected(arguments: list[str], line: str, tmp_path: Path) -> None:
    """One line names the option or path that is the cause."""
    done = dump(*arguments, placed("__transaction_state", tmp_path))
    assert done.exit_code == 2
    assert line in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_missing_path_is_reported_as_missing(tmp_path: Path) -> None:
    """A missing path gives one line that says so; the other paths are printed."""
    missing, empty = tmp_path / "nosuch", tmp_path / "empty"
    empty.mkdir()
    for path, reason in ((missing, "No such file or directory"), (empty, "no segment found")):
        done = dump(path)
        assert done.exit_code == 2
        assert [reason in line for line in done.stderr.splitlines()] == [True]
    done = dump(missing, empty, placed("__transaction_state", tmp_path))
    assert done.exit_code == 2
    assert "plain-three" in done.stdout
    assert len(done.stderr.splitlines()) == 2


def test_standard_input_has_its_own_name(tmp_path: Path) -> None:
    data = (placed("__transaction_state", tmp_path) / FIRST).read_bytes()
    arguments = ["dump", "--effective", "--decode", "__transaction_state", "-"]
    done = CliRunner().invoke(main, arguments, input=data)
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[0] == "-"
    done = CliRunner().invoke(main, [*arguments, "--format", "jsonl"], input=data)
    assert {json.loads(line)["folder"] for line in done.stdout.splitlines()} == {"-"}


def test_keys_of_unknown_types_are_distinguished(tmp_path: Path) -> None:
    """Records of a newer Kafka are printed as bytes, with key and value separate."""
    folder = placed("__consumer_offsets", tmp_path)
    data = (folder / FIRST).read_bytes()
    for group in (b"kseg-classic", b"kseg-consumer"):
        of_group = len(group).to_bytes(2, "big") + group
        data = data.replace(b"\0\1" + of_group, b"\x63\1" + of_group)
    for place in entries(data):
        data = fix_crc(data, place.at)
    (folder / FIRST).write_bytes(data)
    unknown = [row for row in rows(folder) if row["kind"] == "state" and row["entity"] == "type 25345"]
    assert len({row["key"]["raw"] for row in unknown}) == len(unknown) == 2
    table = dump(folder).stdout
    assert "key.raw" in table
    assert all(row["key"]["raw"] in table and row["data"]["raw"] in table for row in unknown)


def test_files_of_a_folder_count_in_whatever_order_they_are_named(tmp_path: Path) -> None:
    """Files of another folder between them must not hide the first of them."""
    folder, other = placed("__cluster_metadata", tmp_path), placed("__transaction_state", tmp_path)
    (snapshot,) = folder.glob("*.checkpoint")
    together = dump("--format", "jsonl", snapshot, folder / FIRST, other / FIRST)
    apart = dump("--format", "jsonl", snapshot, other / FIRST, folder / FIRST)
    assert apart.exit_code == together.exit_code == 0
    assert sorted(apart.stdout.splitlines()) == sorted(together.stdout.splitlines())


def test_topics_of_users_have_no_state(tmp_path: Path) -> None:
    """Only internal topics have an effective state."""
    shutil.copytree(SEGMENTS / "4.3.0-v2-none", tmp_path / "logs" / "orders-0")
    done = dump(tmp_path / "logs")
    assert done.exit_code == 2
    assert "--decode TOPIC" in done.stderr
    placed("__transaction_state", tmp_path / "logs")
    done = dump("--format", "jsonl", tmp_path / "logs")
    assert done.exit_code == 0
    assert "internal topic: 1" in done.stderr


def _written(folder: Path, *batches: bytes) -> Path:
    """Write a partition of ``__consumer_offsets`` with these batches."""
    folder.mkdir(parents=True)
    (folder / FIRST).write_bytes(b"".join(batches))
    return folder


def _commit(offset: int, value: bytes | None, *, producer: int = -1, version: int = 1) -> bytes:
    """Return a batch with a commit, in a transaction if it has a producer."""
    record = (offset, group_logs.commit_key("g", "orders", 0, version=version), value)
    if producer < 0:
        return write_batch(offset, offset, [record])
    return write_batch(offset, offset, [record], TRANSACTIONAL, producer, 0, offset)


def _offsets(folder: Path) -> list[tuple[int, bool]]:
    """Return the effective offsets, and whether they are pending."""
    found = [row for row in rows(folder) if row["kind"] == "state"]
    assert {row["entity"] for row in found} <= {"OffsetCommit"}
    return [(row["data"]["offset"], row["pending"]) for row in found]


_FIRST_VALUE, _SECOND_VALUE = (group_logs.commit_value(3, offset) for offset in (10, 20))


def test_a_later_record_wins_over_a_transaction_that_ends_after_it(tmp_path: Path) -> None:
    """As in OffsetMetadataManager: a pending offset takes effect only if no newer one was written meanwhile."""
    writes = _commit(0, _FIRST_VALUE, producer=7), _commit(1, _SECOND_VALUE)
    folder = _written(tmp_path / "__consumer_offsets-0", *writes, group_logs.marker(2, 7, COMMIT))
    assert _offsets(folder) == [(20, False)]


def test_each_open_transaction_has_its_pending_offset(tmp_path: Path) -> None:
    """A broker keeps one pending offset of a partition for each producer, and the later one of a producer replaces it."""
    writes = (
        _commit(0, _FIRST_VALUE, producer=7),
        _commit(1, _FIRST_VALUE, producer=8),
        _commit(2, _SECOND_VALUE, producer=8),
    )
    assert _offsets(_written(tmp_path / "a" / "__consumer_offsets-0", *writes)) == [(10, True), (20, True)]
    ended = _written(tmp_path / "b" / "__consumer_offsets-0", *writes, group_logs.marker(3, 7, COMMIT))
    assert _offsets(ended) == [(10, False), (20, True)]


@pytest.mark.parametrize("producer", [-1, 8])
def test_a_tombstone_removes_pending_offsets(producer: int, tmp_path: Path) -> None:
    """A deleted offset does not come back at the end of a transaction, whatever transaction the tombstone is in."""
    writes = (
        _commit(0, _FIRST_VALUE), _commit(1, _SECOND_VALUE, producer=7), _commit(2, None, producer=producer),
    )  # fmt: skip
    assert _offsets(_written(tmp_path / "open" / "__consumer_offsets-0", *writes)) == []
    for kind in (COMMIT, ABORT):
        ended = group_logs.marker(3, 7, kind), group_logs.marker(4, 8, kind)
        assert _offsets(_written(tmp_path / str(kind) / "__consumer_offsets-0", *writes, *ended)) == []


def test_group_metadata_in_a_transaction_takes_effect_at_once(tmp_path: Path) -> None:
    """Only commits wait for the end of a transaction (``GroupCoordinatorShard.replay``)."""
    record = (0, group_logs.group_key("g"), group_logs.group_value(4))
    folder = _written(tmp_path / "__consumer_offsets-0", write_batch(0, 0, [record], TRANSACTIONAL, 7, 0, 0))
    (row,) = (row for row in rows(folder) if row["kind"] == "state")
    assert (row["entity"], row["data"]["generation"], row["pending"]) == ("GroupMetadata", 4, False)


@pytest.mark.parametrize(
    ("value", "left"), [(None, []), (struct.pack(">hiiiqqqbb", 0, 1, 1, 0, 20, 1, 1, 1, 0), [("ShareSnapshot", 20)])]
)
def test_a_snapshot_of_a_share_partition_replaces_its_update(
    value: bytes | None, left: list[tuple[str, int]], tmp_path: Path
) -> None:
    """It has the state with all updates before it, and its deletion is that of the state (ShareCoordinatorShard.replay)."""
    place = struct.pack(">h2s16si", 2, b"sg", bytes(range(16)), 0)
    snapshot, update = (struct.pack(">h", kind) + place for kind in (0, 1))
    first = struct.pack(">hiiiqqqbb", 0, 0, 1, 0, 10, 1, 1, 1, 0)
    records = [(0, snapshot, first), (1, update, struct.pack(">hiiqbb", 0, 0, 0, 15, 1, 0)), (2, snapshot, value)]
    folder = _written(tmp_path / "__share_group_state-0", *(write_batch(one[0], one[0], [one]) for one in records))
    found = [row for row in rows(folder) if row["kind"] == "state"]
    assert [(row["entity"], row["data"]["startOffset"]) for row in found] == left


@pytest.mark.parametrize("versions", [(0, 1), (1, 0)])
def test_both_versions_of_a_key_are_one_item(versions: tuple[int, int], tmp_path: Path) -> None:
    """A commit of Kafka before 0.9 has the offset of the same partition: the later record wins, or removes it."""
    first, second = versions
    values = {version: group_logs.commit_value(3 * version, 10 * n) for n, version in enumerate(versions, 1)}
    writes = _commit(0, values[first], version=first), _commit(1, values[second], version=second)
    folder = _written(tmp_path / "replaced" / "__consumer_offsets-0", *writes)
    assert _offsets(folder) == [(20, False)]
    (space,) = (row for row in rows(folder, "--group", "g") if row["kind"] == "space")
    assert (space["entity"], space["records"], space["live_records"]) == ("OffsetCommit", 2, 1)
    removed = _written(tmp_path / "removed" / "__consumer_offsets-0", writes[0], _commit(1, None, version=second))
    assert _offsets(removed) == []


def test_a_record_that_kafka_cannot_load_is_damage(tmp_path: Path) -> None:
    """The exit code is that of ``kseg dump --deep`` and ``kseg validate``: the state can lack the record."""
    folder = _written(tmp_path / "__consumer_offsets-0", _commit(0, _FIRST_VALUE[:-1]))
    done = dump("--format", "jsonl", folder)
    assert done.exit_code == 1
    assert "internal-record at byte 0" in done.stderr
    assert CliRunner().invoke(main, ["dump", "--deep", str(folder)]).exit_code == 1
    (folder / FIRST).write_bytes(_commit(0, _FIRST_VALUE + b"more"))
    done = dump("--format", "jsonl", folder)
    assert (done.exit_code, done.stderr) == (0, "")


@pytest.mark.parametrize("topic", FOLDERS)
def test_records_that_are_not_what_they_should_be_end_nothing(topic: str, tmp_path: Path) -> None:
    """Bytes flipped with a valid CRC: the state is computed in bounded time, and every value can be written."""
    folder = placed(topic, tmp_path)
    sound = (folder / FIRST).read_bytes()
    noise = random.Random(5)
    for _ in range(12):
        data = sound
        for place in noise.choices(entries(sound), k=6):
            data = fix_crc(flip(data, noise.randrange(place.at + 61, place.end), 1 << noise.randrange(8)), place.at)
        (folder / FIRST).write_bytes(data)
        done = dump("--format", "jsonl", folder)
        assert done.exit_code in (0, 1), done.output
        assert all(json.loads(line)["kind"] for line in done.stdout.splitlines())


def test_memory_per_key() -> None:
    """A broker can have millions of committed offsets. Decoded ones took about 1,000 bytes each."""
    count = 2_000
    value = (
        bytes.fromhex("0003") + (7).to_bytes(8, "big") + bytes(4) + bytes(2) + (1_700_000_000_000).to_bytes(8, "big")
    )
    tracemalloc.start()
    try:
        latest = LatestValues(CONSUMER_OFFSETS)
        before = tracemalloc.get_traced_memory()[0]
        for n in range(count):
            key = bytes.fromhex("0001") + b"\0\x0agroup-%04d" % n + b"\0\x06orders" + bytes(4)
            place = place_of(decode(CONSUMER_OFFSETS, key, value))
            latest.put(place, key, value, RecordPlace(n, None, len(key) + len(value)))
        used = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert used / count < 400
    items = list(latest)
    assert (len(items), items[-1].entity, items[-1].key["group"]) == (count, "OffsetCommit", "group-1999")
