"""``kseg dump --effective``: what an internal topic comes to, held to what Kafka itself made of the same records."""

from __future__ import annotations

import json
import random
import shutil
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kseg.cli.main import main
from kseg.dumping.dump import Entry, dump_segment
from kseg.findings import ignore
from kseg.internal.effective import effective
from kseg.internal.state import At, State
from tests.damage import entries, fix_crc, flip
from tests.lab.oracle import ANSWERS
from tests.test_internal_topics import FOLDERS, SEGMENTS, placed

FIRST = f"{0:020}.log"


def dump(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["dump", "--effective", *map(str, arguments)])


def rows(folder: Path) -> list[dict[str, Any]]:
    done = dump("--format", "jsonl", folder)
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


def state(path: Path) -> dict[tuple[str, str], Any]:
    """Of the cluster's metadata what holds by key, without what a snapshot doesn't keep."""
    found = {}
    for item in effective("__cluster_metadata", [str(path)], lambda path: ignore).items():
        # Whoever asked for the ids is not in a snapshot; of features the order isn't.
        data = {name: value for name, value in item.data.items() if not name.startswith("broker")}
        data["features"] = sorted(data.get("features", ()), key=lambda feature: str(feature["name"]))
        found[item.entity, json.dumps(item.key)] = data
    return found


def test_metadata_come_to_what_kafka_wrote_into_its_snapshot(tmp_path: Path) -> None:
    """The log as far as the snapshot goes, and the snapshot: topics, partitions, configs, quotas, ACLs, credentials…"""
    folder = SEGMENTS / FOLDERS["__cluster_metadata"][0]
    (snapshot,) = folder.glob("*.checkpoint")
    end = int(snapshot.name.split("-")[0])
    entries = (item for item in dump_segment(str(folder / FIRST)) if isinstance(item, Entry))
    cut = next(item.batch.position for item in entries if item.batch.last_offset >= end)
    (tmp_path / FIRST).write_bytes((folder / FIRST).read_bytes()[:cut])
    before = state(tmp_path / FIRST)
    assert {"topic", "partition", "config", "quota", "acl", "broker", "feature"} <= {entity for entity, _ in before}
    assert before == state(snapshot)


def test_a_snapshot_and_the_log_behind_it_come_to_the_same_as_the_whole_log(tmp_path: Path) -> None:
    folder = placed("__cluster_metadata", tmp_path)
    kept = [row for row in rows(folder) if row["kind"] == "state"]
    for snapshot in folder.glob("*.checkpoint"):
        snapshot.unlink()
    whole = [row for row in rows(folder) if row["kind"] == "state"]

    def keys(found: list[dict[str, Any]]) -> set[str]:
        return {json.dumps([row["entity"], row["key"]]) for row in found}

    assert keys(kept) == keys(whole)
    assert "tiered" not in {row["data"].get("name") for row in kept}


def test_offsets_are_those_that_the_broker_answered(tmp_path: Path) -> None:
    """What a transaction wrote holds from its commit on, nothing of one that aborted. Streams groups it wasn't asked for."""
    folder = placed("__consumer_offsets", tmp_path)
    wanted = json.loads((folder / ANSWERS).read_text(encoding="utf-8"))
    found = [row for row in rows(folder) if row["entity"] == "OffsetCommit" and row["kind"] == "state"]
    held = [{**row["key"], "offset": row["data"]["offset"]} for row in found if not row["pending"]]
    asked = [row for row in held if row["group"] != "kseg-streams"]
    by_place = itemgetter("group", "topic", "partition")
    assert sorted(asked, key=by_place) == sorted(wanted, key=by_place)
    pending = [row for row in found if row["pending"]]
    assert [(row["key"]["group"], row["data"]["offset"]) for row in pending] == [("kseg-open", 9)]


def test_open_transactions_are_told(tmp_path: Path) -> None:
    found = rows(placed("__transaction_state", tmp_path))
    ongoing = {row["key"]["transactionalId"] for row in found if row["kind"] == "state" and row["status"] == "Ongoing"}
    assert ongoing == {"plain-three", "plain-open"}


def test_what_takes_the_space_is_told_by_owner(tmp_path: Path) -> None:
    """Every record is counted once, and what holds is no more than what is there."""
    folder = placed("__consumer_offsets", tmp_path)
    found = rows(folder)
    spaces = [row for row in found if row["kind"] == "space"]
    records = [item for item in dump_segment(str(folder / FIRST)) if isinstance(item, Entry) and not item.batch.control]
    assert sum(row["records"] for row in spaces) == sum(item.batch.record_count or 0 for item in records)
    assert [row["bytes"] for row in spaces] == sorted((row["bytes"] for row in spaces), reverse=True)
    assert all(row["live_bytes"] <= row["bytes"] and row["live_records"] <= row["records"] for row in spaces)
    held = [row for row in found if row["kind"] == "state" and not row["pending"]]
    assert sum(row["live_records"] for row in spaces) == len(held)


def test_a_table_has_a_line_for_each_key(tmp_path: Path) -> None:
    done = dump(placed("__transaction_state", tmp_path))
    assert done.exit_code == 0
    assert "plain-three" in done.stdout
    assert "Ongoing" in done.stdout


def test_damage_is_told_and_the_rest_goes_on(tmp_path: Path) -> None:
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
        (["--format", "csv"], "--effective takes --format table or jsonl"),
        (["--key", "x", "--deep"], "--effective is of whole partitions"),
        (["--follow"], "--effective is of whole partitions"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments: list[str], line: str, tmp_path: Path) -> None:
    done = dump(*arguments, placed("__transaction_state", tmp_path))
    assert done.exit_code == 2
    assert line in done.stderr


def test_topics_of_users_have_no_state(tmp_path: Path) -> None:
    shutil.copytree(SEGMENTS / "4.3.0-v2-none", tmp_path / "logs" / "orders-0")
    done = dump(tmp_path / "logs")
    assert done.exit_code == 2
    assert "--decode TOPIC" in done.stderr
    placed("__transaction_state", tmp_path / "logs")
    done = dump("--format", "jsonl", tmp_path / "logs")
    assert done.exit_code == 0
    assert "1 folders" in done.stderr


def test_a_later_record_wins_over_a_transaction_that_ends_behind_it() -> None:
    """As in OffsetMetadataManager: what was pending comes to hold only where nothing newer was written meanwhile."""
    state = State()
    state.put("OffsetCommit", {"group": "g"}, {"offset": 2}, At(8, None, 1))
    state.put("OffsetCommit", {"group": "g"}, {"offset": 1}, At(5, None, 1))
    assert [item.data["offset"] for item in state] == [2]


@pytest.mark.parametrize("topic", FOLDERS)
def test_records_that_are_not_what_they_should_be_end_nothing(topic: str, tmp_path: Path) -> None:
    """Bytes flipped behind a valid CRC: there is a state still, in bounded time, and whatever it says can be written."""
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
