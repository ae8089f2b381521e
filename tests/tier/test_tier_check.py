"""``kseg tier check``: each fault that is put into a real bucket, its metadata or its logs is found, and no other.

The bucket and the metadata are those of a 4.3 broker with Kafka's own ``LocalTieredStorage``.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kseg.commands.adopt.old_metadata import MetadataRecord, write_snapshot
from kseg.commands.tier.reconcile import DAY_MS, PROBLEMS, TierCheck, check_bucket
from kseg.commands.tier.remote_metadata import (
    DELETE_STARTED,
    KnownSegment,
    LocalLog,
    holes,
    read_cluster_metadata,
)
from kseg.commands.tier.remote_segments import RemotePlace, remote_segments
from kseg.format.writer.records_builder import PlainRecord, build_batch
from tests.support import damage
from tests.support.cli import SEGMENTS, invoke
from tests.support.metadata_logs import topic
from tests.support.read_faults import local_faults
from tests.support.tiered_objects import AIVEN, REFERENCE, TOPIC_ID, pack

(FOLDER,) = (REFERENCE / "bucket").iterdir()
METADATA = read_cluster_metadata(str(REFERENCE / "logs"))
NOW = max(one.changed_ms for one in METADATA.segments.values()) + 3 * DAY_MS
FIRST, SECOND = sorted(METADATA.segments.values(), key=lambda one: one.start)


class Tier:
    """A copy of the bucket and of the log directory."""

    def __init__(self, home: Path) -> None:
        self.bucket, self.logs = home / "bucket", home / "logs"
        for name in ("bucket", "logs"):
            shutil.copytree(REFERENCE / name, home / name)
        self.folder = self.bucket / FOLDER.name

    def object(self, base: int, suffix: str) -> Path:
        return next(self.folder.glob(f"{base:020}*{suffix}"))

    def cut_metadata(self, batches: int) -> int:
        """Remove all but the first records of the metadata; each is a batch."""
        log = self.logs / "__remote_log_metadata-0" / f"{0:020}.log"
        rows = [json.loads(line) for line in invoke("dump", "--shallow", log, "--format", "jsonl").stdout.splitlines()]
        os.truncate(log, rows[batches]["position"])
        return batches

    def check(self, *, local: bool = True, now: float = NOW) -> TierCheck:
        for path in self.bucket.rglob("*"):
            os.utime(path, (FIRST.changed_ms / 1000,) * 2)
        return check_bucket(str(self.bucket), str(self.logs), [str(self.logs)] if local else [], now)


@pytest.fixture
def tier(tmp_path: Path) -> Tier:
    return Tier(tmp_path)


@pytest.mark.parametrize("local", [False, True])
def test_a_healthy_bucket_has_no_problem(local: bool, tier: Tier) -> None:
    found = tier.check(local=local)
    assert (found.problems, found.faults, found.segments, found.stored, found.free) == ([], [], 2, 2, 0)


def write(path: Path, text: str) -> int:
    return path.write_text(text)


def delete(*paths: Path) -> int:
    for path in paths:
        path.unlink()
    return len(paths)


#: Fault -> how it is made, and the problems that it is.
FAULTS: dict[str, tuple[Callable[[Tier], object], list[str]]] = {
    "a segment without objects": (
        lambda tier: delete(*tier.folder.glob(f"{0:020}*")),
        ["lost-object"],
    ),
    "a segment without its log": (lambda tier: delete(tier.object(0, ".log")), ["lost-object"]),
    "no offset index": (lambda tier: delete(tier.object(0, ".index")), ["missing-file"]),
    "no producer snapshot": (lambda tier: delete(tier.object(10, ".snapshot")), ["missing-file"]),
    "no epochs": (lambda tier: delete(tier.object(10, ".leader_epoch_checkpoint")), ["missing-file"]),
    "a shorter log": (lambda tier: os.truncate(tier.object(10, ".log"), 100), ["size-mismatch"]),
    "a longer log": (lambda tier: os.truncate(tier.object(10, ".log"), 10_000), ["size-mismatch"]),
    "other epochs": (
        lambda tier: write(tier.object(10, ".leader_epoch_checkpoint"), "0\n2\n0 0\n2 15\n"),
        ["epoch-mismatch"],
    ),
    "an epoch less": (
        lambda tier: write(tier.object(10, ".leader_epoch_checkpoint"), "0\n1\n0 0\n"),
        ["epoch-mismatch"],
    ),
    "no readable epochs": (
        lambda tier: write(tier.object(10, ".leader_epoch_checkpoint"), "x\n"),
        ["unreadable"],
    ),
    "objects under another topic id": (
        lambda tier: tier.folder.rename(tier.bucket / "tiered-0-AAAAAAAAAAAAAAAAAAAAAA"),
        ["lost-object", "lost-object", "dead-topic"],
    ),
    "an object under another offset": (
        lambda tier: [
            path.rename(path.with_name(f"{5:020}{path.name[20:]}")) for path in tier.folder.glob(f"{0:020}*")
        ],
        ["offset-mismatch"],
    ),
    "an orphan": (
        lambda tier: shutil.copyfile(
            tier.object(0, ".log"), tier.folder / f"{0:020}-zzzzzzzzzzzzzzzzzzzzzw.log"
        ),
        ["orphan"],
    ),
    "metadata that ends in an upload": (lambda tier: tier.cut_metadata(1), ["hole", "stuck-copy", "orphan"]),
    "metadata that lost the last segment": (lambda tier: tier.cut_metadata(2), ["orphan"]),
    "an upload without objects": (
        lambda tier: (tier.cut_metadata(1), delete(*tier.folder.iterdir())),
        ["hole", "stuck-copy"],
    ),
    "a topic that the cluster does not have": (
        lambda tier: shutil.copytree(tier.folder, tier.bucket / "gone-0-AAAAAAAAAAAAAAAAAAAAAA"),
        ["dead-topic"],
    ),
    "a local log that begins later": (
        lambda tier: (
            delete(*(tier.logs / "tiered-0").glob("0000000000000000001*")),
            write(tier.logs / "tiered-0" / f"{24:020}.log", ""),
        ),
        ["hole"],
    ),
    "no metadata of a topic that is tiered": (
        lambda tier: (
            shutil.copytree(tier.logs / "tiered-0", tier.logs / "plain-0"),
            tier.cut_metadata(0),
            delete(*tier.folder.iterdir()),
        ),
        ["hole"],
    ),
    "a local lineage with other epochs": (
        lambda tier: write(tier.logs / "tiered-0" / "leader-epoch-checkpoint", "0\n2\n0 0\n3 8\n"),
        ["hole"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_found_and_no_other(fault: str, tier: Tier) -> None:
    make, expected = FAULTS[fault]
    make(tier)
    found = tier.check()
    assert [one.problem for one in found.problems] == expected, found.problems
    assert found.faults == []
    frees = {"orphan", "stuck-copy", "stuck-delete", "dead-topic"}
    assert all(one.size == 0 for one in found.problems if one.problem not in frees)
    if fault not in ("an upload without objects",):
        assert bool(found.free) == bool(frees & {*expected})


def test_what_is_younger_than_a_day_is_in_progress(tier: Tier) -> None:
    """A running broker uploads objects first, and its metadata can be a copy of some minutes ago."""
    tier.cut_metadata(1)
    found = tier.check(local=False, now=NOW - 2.5 * DAY_MS)
    assert ([one.problem for one in found.problems], found.recent) == ([], 1)


def test_the_bytes_to_free_are_those_of_all_objects_of_a_segment(tier: Tier) -> None:
    tier.cut_metadata(2)
    (orphan,) = tier.check().problems
    assert orphan.size == sum(path.stat().st_size for path in tier.folder.glob(f"{10:020}*"))
    assert (orphan.segment_id, orphan.first_offset) == (SECOND.segment_id, 10)


def test_a_deletion_that_did_not_end(tmp_path: Path) -> None:
    """The metadata of a broker that deleted its tiered topic, up to the batch in which its segments are being deleted."""
    folder = tmp_path / "logs" / "__remote_log_metadata-0"
    shutil.copytree(SEGMENTS / "4.3.0-v2-none-internal-remote-log-metadata", folder)
    (tmp_path / "bucket").mkdir()
    found = check_bucket(str(tmp_path / "bucket"), str(tmp_path / "logs"), [], NOW)
    assert found.problems == []
    (deleted,) = read_cluster_metadata(str(folder)).deleted.values()
    assert sorted(deleted) == [(0, 31), (32, 63), (64, 95)]
    log = folder / f"{0:020}.log"
    rows = [json.loads(line) for line in invoke("dump", "--deep", folder, "--format", "jsonl").stdout.splitlines()]
    states = [(row["position"], row["decoded"]["value"]["data"].get("remoteLogSegmentState")) for row in rows]
    first = next(n for n, (_, state) in enumerate(states) if state == 2)
    end = next(position for position, _ in states[first + 1 :] if position > states[first][0])
    os.truncate(log, end)
    found = check_bucket(str(tmp_path / "bucket"), str(tmp_path / "logs"), [], NOW)
    assert [one.problem for one in found.problems] == ["stuck-delete"] * 3


def test_objects_of_the_plugin_are_compared_with_their_manifest(tmp_path: Path, tier: Tier) -> None:
    """Its metadata has the size of the segment, not of the object."""
    local = tmp_path / "local"
    shutil.copytree(REFERENCE / "before" / "tiered-0", local)
    for path in local.glob(f"{19:020}.*"):
        if path.suffix != ".snapshot":
            path.unlink()
    objects = pack(local, tmp_path / "packed", zstd=True, encrypted=True, topic="tiered")
    target = tier.bucket / f"tiered-{FIRST.place.topic_id}" / "0"
    target.mkdir(parents=True)
    shutil.rmtree(tier.folder)
    for path in objects.iterdir():
        known = {one.start: one for one in (FIRST, SECOND)}.get(int(path.name[:20]))
        if known:
            shutil.copyfile(path, target / f"{path.name[:21]}{known.segment_id}{path.suffix}")
    assert TOPIC_ID not in str(target)
    assert tier.check().problems == []
    manifest = target / f"{0:020}-{FIRST.segment_id}.rsm-manifest"
    fields = json.loads(manifest.read_text())
    fields["remoteLogSegmentMetadata"] = {"endOffset": 8, "segmentLeaderEpochs": {"1": 0}}
    manifest.write_text(json.dumps(fields))
    assert [one.problem for one in tier.check().problems] == ["offset-mismatch", "epoch-mismatch"]
    manifest.write_text("{}")
    (target / f"{10:020}-{SECOND.segment_id}.indexes").unlink()
    os.truncate(target / f"{10:020}-{SECOND.segment_id}.log", 50)
    assert [one.problem for one in tier.check().problems] == ["unreadable", "missing-file", "size-mismatch"]
    manifest.unlink()
    assert tier.check().problems[0].problem == "lost-object"


def test_damaged_metadata_is_a_failure_not_a_clean_bucket(tier: Tier) -> None:
    log = tier.logs / "__remote_log_metadata-0" / f"{0:020}.log"
    data = bytearray(log.read_bytes())
    data[100] ^= 1
    log.write_bytes(data)
    done = invoke("tier", "check", tier.bucket, tier.logs)
    assert (done.exit_code, "its records are missing" in done.stderr) == (2, True), done.output


def rewrite(log: Path, change: Callable[[bytes], bytes]) -> bytes:
    data = change(log.read_bytes())
    log.write_bytes(data)
    return data


def without_start(log: Path, batches: int) -> Path:
    """Remove the first batches of a log, as retention and an incomplete copy do."""
    data = log.read_bytes()
    at = damage.entries(data)[batches].at
    log.write_bytes(data[at:])
    return log.rename(log.with_name(f"{damage.get(data, at, 'base_offset'):020}.log"))


def without_middle(log: Path) -> None:
    """Move the records after the first batch into a segment of their own, without the second batch."""
    first, *_ = damage.entries(data := log.read_bytes())
    log.write_bytes(data[: first.end])
    later = log.with_name("later")
    later.write_bytes(data)
    without_start(later, 2)


#: What is missing in the metadata log -> how, and a part of the line about it.
LOST_RECORDS: dict[str, tuple[Callable[[Path], object], str]] = {
    "its start": (lambda log: without_start(log, 2), "no batch has offsets 0 to 1"),
    "all records": (
        lambda log: (rewrite(log, lambda data: b""), log.rename(log.with_name(f"{4:020}.log"))),
        "no batch has offsets 0 to 3",
    ),
    "a batch in the middle": (without_middle, "no batch has offsets 1 to 1"),
    "a batch that is damaged": (lambda log: rewrite(log, lambda data: damage.flip(data, 100)), "crc-mismatch"),
    "a record of a newer Kafka": (
        lambda log: rewrite(log, lambda data: damage.fix_crc(damage.flip(data, 70, 9), 0)),
        "the record at offset 0",
    ),
}  # fmt: skip


@pytest.mark.parametrize("lost", LOST_RECORDS)
def test_what_lost_records_can_explain_is_not_to_be_deleted(lost: str, tier: Tier) -> None:
    """The records of a live segment can be the lost ones: no orphan, no stuck upload and no hole, but a reason."""
    make, reason = LOST_RECORDS[lost]
    make(tier.logs / "__remote_log_metadata-0" / f"{0:020}.log")
    found = tier.check()
    assert (found.problems, found.free) == ([], 0)
    assert reason in found.faults[0]
    assert "these are not reported: 1 " in found.faults[-1]
    assert invoke("tier", "check", tier.bucket, tier.logs).exit_code == 2


@pytest.mark.parametrize(
    ("numbers", "with_topics", "reasons"),
    [
        ((0,), True, ()),
        ((0,), False, ("not reported: 1 hole, 2 orphan",)),
        ((3,), False, ("of 4 partitions of __remote_log_metadata 3 are not there, 0, 1, 2:", "1 hole, 2 orphan")),
    ],
)
def test_a_partition_without_metadata_can_have_it_on_another_disk(
    numbers: tuple[int, ...], with_topics: bool, reasons: tuple[str, ...], tier: Tier
) -> None:
    """Its segments are orphans only if all partitions of the metadata are there. Their number is in the cluster metadata."""
    other = shutil.copytree(tier.folder, tier.bucket / tier.folder.name.replace("-0-", "-1-"))
    for path in other.iterdir():
        path.rename(path.with_name(f"{path.name[:21]}zzzz{path.name[25:]}"))
    (tier.logs / "tiered-0").rename(tier.logs / "tiered-1")
    write(tier.logs / "log-start-offset-checkpoint", "0\n1\ntiered 1 0\n")
    for number in numbers:
        (tier.logs / "__remote_log_metadata-0").rename(tier.logs / f"__remote_log_metadata-{number}")
    if not with_topics:
        shutil.rmtree(tier.logs / "__cluster_metadata-0")
    found = tier.check()
    assert [one.problem for one in found.problems] == ([] if reasons else ["hole", "orphan", "orphan"])
    assert len(found.faults) == len(reasons)
    assert all(reason in fault for reason, fault in zip(reasons, found.faults, strict=True)), found.faults


@pytest.mark.parametrize("lost", ["start", "batch"])
def test_a_topic_that_a_part_of_the_metadata_lacks_is_not_dead(lost: str, tier: Tier) -> None:
    """Its record can be among the lost ones: its objects are not to be deleted."""
    log = tier.logs / "__cluster_metadata-0" / f"{0:020}.log"
    if lost == "start":
        without_start(log, 30)
    else:
        rewrite(log, lambda data: damage.flip(data, len(data) - 10))
    shutil.copytree(tier.folder, tier.bucket / "gone-0-AAAAAAAAAAAAAAAAAAAAAA")
    found = tier.check()
    assert (found.problems, found.free) == ([], 0)
    assert {"start": "metadata-snapshot-missing", "batch": "crc-mismatch"}[lost] in found.faults[0]


def test_a_topic_that_is_younger_than_the_metadata_is_not_dead(tier: Tier) -> None:
    """The metadata can be a copy of some hours ago, as for single segments: objects of the last day are uploads."""
    shutil.copytree(tier.folder, tier.bucket / "new-0-AAAAAAAAAAAAAAAAAAAAAA")
    found = tier.check(now=NOW - 2.5 * DAY_MS)
    assert ([one.problem for one in found.problems], found.recent, found.free) == ([], 2, 0)


def test_a_replica_of_a_former_topic_does_not_hide_a_hole(tier: Tier) -> None:
    """The topic was created again while a broker was down: its log has another id, and begins later."""
    tier.cut_metadata(1)
    stale = tier.logs / "down" / "tiered-0"
    shutil.copytree(tier.logs / "tiered-0", stale)
    write(stale.parent / "log-start-offset-checkpoint", "0\n1\ntiered 0 500\n")
    for path in stale.glob(f"{0:014}*"):
        path.unlink()
    write(stale / f"{500:020}.log", "")
    assert "hole" not in [one.problem for one in tier.check().problems]
    write(stale / "partition.metadata", "version: 0\ntopic_id: CgoKCgoKCgoKCgoKCgoKCg")
    assert [one.problem for one in tier.check().problems] == ["hole", "stuck-copy", "orphan"]


def test_a_deleted_replica_of_the_metadata_is_not_read(tier: Tier) -> None:
    """A folder that a broker is about to delete has an older state: deleted segments would be lost objects."""
    folder = tier.logs / "__remote_log_metadata-0"
    shutil.copytree(folder, tier.logs / f"{folder.name}.0123456789abcdef0123456789abcdef-delete")
    delete(*folder.glob("*.log"))
    write(folder / f"{0:020}.log", "")
    assert tier.check().segments == 0


def test_a_second_reading_that_fails_confirms_no_deletion(tier: Tier, monkeypatch: pytest.MonkeyPatch) -> None:
    """A segment that it does not have may be one that was not read: the exit code is 2, with the reason."""
    delete(*tier.folder.glob(f"{0:020}*"))
    answers = [METADATA, replace(METADATA, segments={}, faults=["Input/output error"])]
    monkeypatch.setattr("kseg.commands.tier.reconcile.read_cluster_metadata", lambda path: answers.pop(0))
    assert tier.check(local=False).faults == ["Input/output error"]


@pytest.mark.parametrize("lost", ["object", "folder"])
def test_a_listing_that_lacks_objects_once_is_not_a_loss(
    lost: str, tier: Tier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bucket is listed again before an object is reported as lost."""
    whole = list(remote_segments(str(tier.bucket), decoded=False))
    short = [replace(one, files={".index": one.files[".index"]}) if lost == "object" else one for one in whole[:1]]
    answers = [short + whole[1:] if lost == "object" else [], whole]
    monkeypatch.setattr("kseg.commands.tier.reconcile.remote_segments", lambda path, decoded: answers.pop(0))
    found = tier.check()
    assert (found.problems, answers) == ([], [])
    assert len(found.faults) == (1 if lost == "object" else 2)
    assert all("a second listing has it" in line for line in found.faults)


def test_an_empty_bucket_is_a_wrong_one(tier: Tier) -> None:
    """Whether all is lost or the URL is wrong cannot be told."""
    delete(*tier.folder.iterdir())
    done = invoke("tier", "check", tier.bucket, tier.logs)
    assert (done.exit_code, done.stdout) == (2, "")
    assert f"{tier.bucket}: no segment of tiered storage found, but the metadata has 2 segments" in done.stderr


def test_a_damaged_checkpoint_of_a_local_log_is_named(tier: Tier) -> None:
    """Without it, the lineage of the log is unknown, so a hole can be missing: the check is not complete."""
    path = tier.logs / "tiered-0" / "leader-epoch-checkpoint"
    path.write_text("0\n2\n0 0\n")
    assert [fault.partition(":")[0] for fault in tier.check().faults] == [str(path)]


def test_an_object_that_cannot_be_read_is_not_damaged(tier: Tier) -> None:
    """Its content is unknown: it is one line, and the exit code is 2. Segments that are being deleted are not looked at."""
    path = tier.object(10, ".leader_epoch_checkpoint")
    with local_faults(path, "EIO", range(2, 10**6)):  # from its open on
        done = invoke("tier", "check", tier.bucket, tier.logs, "--format", "jsonl")
    summary = json.loads(done.stdout)
    assert (done.exit_code, summary["problems"]) == (2, {})
    assert summary["faults"] == [f"{path}: Input/output error"]
    assert f"{path}: Input/output error" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["throttled", "denied", "missing", "empty", "page", "page of a proxy"])
@pytest.mark.parametrize("times", [1, 1 << 30], ids=["once", "always"])
def test_a_store_that_fails_is_not_a_problem_of_its_objects(fault: str, times: int, tmp_path: Path) -> None:
    """A request fails, once or from then on: the answer is that of a whole check, or there is no problem and exit code 2.

    An upload that is in progress has its age in its manifest.
    """
    pytest.importorskip("s3fs", reason="s3fs is not installed")
    pytest.importorskip("flask_cors", reason="moto's server is not installed")
    from tests.support.s3_server import s3_server

    objects = tmp_path / "upload" / f"tiered-{FIRST.place.topic_id}" / "0"
    objects.mkdir(parents=True)
    source = REFERENCE / "before" / "tiered-0"
    packed = pack(source, tmp_path / "packed", zstd=False, encrypted=False, topic="tiered")
    for path in packed.glob(f"{0:020}*"):
        shutil.copyfile(path, objects / path.name)
    (manifest,) = objects.glob("*.rsm-manifest")
    fields = json.loads(manifest.read_text())
    fields["remoteLogSegmentMetadata"] = {"eventTimestampMs": int(time.time() * 1000)}
    manifest.write_text(json.dumps(fields))
    with s3_server() as server:
        server.put_folder(REFERENCE / "bucket", "checked")
        url = server.put_folder(tmp_path / "upload", "checked")
        command = ("tier", "check", url, REFERENCE / "logs", "--format", "jsonl")
        sound, _, requests = server.count(lambda: invoke(*command))
        assert (sound.exit_code, json.loads(sound.stdout)["recent"]) == (0, 1)
        server.fault = fault
        for number in range(requests):
            left, failing = iter(range(number)), iter(range(times))
            server.fails = lambda method, path, left=left, failing=failing: (  # type: ignore[misc]
                next(left, None) is None and next(failing, None) is not None
            )
            done = invoke(*command)
            if done.exit_code == 2:
                assert ("tier_problem" in done.stdout, done.stderr != "") == (False, True), (number, done.output)
                assert number == 0 or "expected a folder" not in done.stderr, (number, done.stderr)
            else:
                assert (done.exit_code, done.stdout) == (0, sound.stdout), (number, done.output)


def test_exit_codes_and_rows(tier: Tier) -> None:
    assert invoke("tier", "check", tier.bucket, tier.logs, tier.logs).exit_code == 0
    tier.object(0, ".log").unlink()
    done = invoke("tier", "check", tier.bucket, tier.logs, "--format", "jsonl")
    problem, summary = map(json.loads, done.stdout.splitlines())
    assert (done.exit_code, problem["problem"], summary["problems"]) == (1, "lost-object", {"lost-object": 1})
    assert problem["problem"] in PROBLEMS
    assert invoke("tier", "check", tier.bucket).exit_code == 2
    assert invoke("tier", "check", tier.bucket, tier.bucket).exit_code == 2
    assert invoke("tier", "check", tier.bucket, tier.logs, "--partition", "tiered-0").exit_code == 2


@pytest.mark.parametrize("stale", ["a", "z"])
def test_the_newest_copy_is_that_of_the_last_offset(stale: str, tier: Tier) -> None:
    """A broker that joined with a snapshot and died has a later file name: it knows neither later topics nor segments."""
    folder = tier.logs.rename(tier.logs.with_name("broker"))
    tier.logs.mkdir()
    folder.rename(tier.logs / "m")
    metadata = tier.logs / stale / "__cluster_metadata-0"
    metadata.mkdir(parents=True)
    with (metadata / f"{40:020}-0000000001.checkpoint").open("wb") as out:
        write_snapshot([MetadataRecord("TopicRecord", 0, topic("other", 1)[2])], out)
    (metadata / f"{40:020}.log").touch()
    remote = tier.logs / stale / "__remote_log_metadata-0"
    shutil.copytree(tier.logs / "m" / remote.name, remote)
    records = [PlainRecord(1, None, b"", 1)]
    (remote / f"{0:020}.log").rename(remote / f"{1:020}.log")
    (remote / f"{1:020}.log").write_bytes(build_batch(records, partition_leader_epoch=0))
    found = tier.check(local=False)
    assert (found.problems, found.faults) == ([], [])


def test_what_a_running_broker_deletes_is_no_loss(tier: Tier, monkeypatch: pytest.MonkeyPatch) -> None:
    """The metadata is read again before an object is reported as lost: the deletion has begun there."""
    delete(*tier.folder.glob(f"{0:020}*"))
    assert [one.problem for one in tier.check(local=False).problems] == ["lost-object"]
    later = read_cluster_metadata(str(tier.logs))
    later.segments[FIRST.segment_id] = replace(later.segments[FIRST.segment_id], state=DELETE_STARTED)
    answers = [METADATA, later]
    monkeypatch.setattr("kseg.commands.tier.reconcile.read_cluster_metadata", lambda path: answers.pop(0))
    assert tier.check(local=False).problems == []


@pytest.mark.parametrize(
    ("copied", "problems"),
    [
        ({"endOffset": 1998, "segmentLeaderEpochs": {"0": 0}}, []),
        ({}, []),
        ({"endOffset": 1997}, ["offset-mismatch"]),
        ({"segmentLeaderEpochs": {"1": 0}}, ["epoch-mismatch"]),
        ({"segmentLeaderEpochs": {"x": 0}}, ["unreadable"]),
        ({"segmentLeaderEpochs": {"0": None}}, ["unreadable"]),
        ({"segmentLeaderEpochs": [0]}, ["unreadable"]),
        ({"endOffset": "x"}, ["unreadable"]),
        ([0], []),
    ],
)
def test_the_copy_of_the_metadata_in_a_manifest(
    copied: object, problems: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is compared with the metadata, and a damaged one is a problem of its object."""
    bucket = Path(shutil.copytree(AIVEN, tmp_path / "bucket"))
    next(bucket.glob("tiered-*")).rename(bucket / f"tiered-{FIRST.place.topic_id}")
    manifest = min(bucket.rglob("*.rsm-manifest"))
    fields = json.loads(manifest.read_bytes())
    size = fields["chunkIndex"]["originalFileSize"]
    manifest.write_text(json.dumps({**fields, "remoteLogSegmentMetadata": copied}))
    first = min(remote_segments(str(bucket), decoded=False), key=lambda one: one.base)
    known = replace(
        FIRST, topic=first.topic, segment_id=first.segment_id, start=0, end=1998, size=size, epochs=((0, 0),)
    )
    metadata = replace(METADATA, segments={first.segment_id: known})
    monkeypatch.setattr("kseg.commands.tier.reconcile.read_cluster_metadata", lambda path: metadata)
    found = check_bucket(str(bucket), "", [], known.changed_ms)
    assert [one.problem for one in found.problems if one.segment_id == first.segment_id] == problems


def test_deleted_offsets_are_no_hole() -> None:
    """The checkpoint of the log start is written once a minute."""
    log = LocalLog("t-0", 0, 30, ((0, 0),))
    segments = [known(10, 29, (0, 10))]
    assert list(holes(segments, log)) == [(0, 9)]
    assert list(holes(segments, log, [(0, 9)])) == []


def known(start: int, end: int, *epochs: tuple[int, int]) -> KnownSegment:
    return KnownSegment("t", RemotePlace("i", 0), f"{start}", "", start, end, 1, epochs, 0)


@pytest.mark.parametrize(
    ("segments", "log", "expected"),
    [
        ([known(0, 9, (0, 0)), known(10, 19, (0, 10))], None, []),
        ([known(0, 9, (0, 0)), known(12, 19, (0, 12))], None, [(10, 11)]),
        # Two leaders uploaded the same offsets.
        ([known(0, 9, (0, 0)), known(5, 14, (0, 5), (1, 8)), known(15, 19, (1, 15))], None, []),
        # Of offsets 8 and 9 the readable ones are those of epoch 1.
        ([known(0, 9, (0, 0)), known(8, 14, (1, 8))], LocalLog("t-0", 0, 15, ((0, 0), (1, 8))), []),
        ([known(0, 9, (0, 0)), known(10, 14, (1, 10))], LocalLog("t-0", 0, 15, ((0, 0), (1, 8))), [(8, 9)]),
        # Retention moved the log start into a segment; the local log begins before the end of the tier.
        ([known(0, 9, (0, 0)), known(10, 19, (0, 10))], LocalLog("t-0", 4, 15, ((0, 4),)), []),
        ([known(10, 19, (0, 10))], LocalLog("t-0", 4, 15, ((0, 4),)), [(4, 9)]),
        ([known(50, 99, (0, 50))], LocalLog("t-0", 0, 20, ((0, 0),)), [(0, 19)]),
        ([], LocalLog("t-0", 0, 15, ((0, 0),)), [(0, 14)]),
        ([], LocalLog("t-0", None, 15, ((0, 0),)), []),
        ([], LocalLog("t-0", 20, 15, ((0, 0),)), []),
    ],
)  # fmt: skip
def test_holes_follow_the_lineage(
    segments: list[KnownSegment], log: LocalLog | None, expected: list[tuple[int, int]]
) -> None:
    """As ``RemoteLogLeaderEpochState`` looks for a segment: by the epoch of the offset."""
    assert list(holes(segments, log)) == expected
