"""``kseg pipeline`` where one file or folder of the source cannot be read: it costs its partition, and no row is lost."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed")

from kseg.errors import UnreadableError
from kseg.extras.pipeline import pipeline_run
from kseg.extras.pipeline.pipeline_settings import PipelineSettings
from kseg.extras.pipeline.source_replicas import Listing, list_source
from kseg.format.storage import segment_files, source
from kseg.format.storage.source import Stamp
from kseg.format.writer.records_builder import PlainRecord, build_batch
from tests.support.damage import flip
from tests.support.growing_logs import batch, write
from tests.support.pipelines import config, rows, run_here, run_in_process, statuses
from tests.support.read_faults import local_faults


def log(folder: Path) -> list[Path]:
    """Write a log with three segments of two batches, each with four records."""
    for first in (0, 2, 4):
        write(folder, [batch(first), batch(first + 1)], first=first)
    return sorted(folder.glob("*.log"))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder with a source of two partitions."""
    for partition in range(2):
        (tmp_path / "source" / f"orders-{partition}").mkdir(parents=True)
        log(tmp_path / "source" / f"orders-{partition}")
    return tmp_path


def counts(home: Path) -> dict[int, int]:
    """Return the rows in the table by partition."""
    found = [row[0] for row in rows(home, "parquet")]
    return {partition: found.count(partition) for partition in set(found)}


@pytest.mark.parametrize("first", [0, 8, 16])
@pytest.mark.parametrize("folder", [False, True])
def test_what_is_no_file_costs_its_partition(home: Path, first: int, folder: bool) -> None:
    """The page says: a segment that cannot be read is tried again, and its partition is loaded up to it.

    A folder in its place is no segment that retention has deleted: the load must not begin after it.
    """
    segment = home / "source" / "orders-1" / f"{first:020}.log"
    content = segment.read_bytes()
    segment.unlink()
    if folder:
        segment.mkdir()
    else:
        segment.symlink_to("/nonexistent")
    path = config(home)
    outcome = run_here(path)
    what = "a folder with the name of a segment" if folder else "a symbolic link to /nonexistent, which does not exist"
    reason = f"{segment}: {what}"
    assert (outcome.code, outcome.failures) == (2, (f"orders-1: {reason}",))
    assert counts(home) == ({0: 24, 1: first} if first else {0: 24})
    assert not (home / "quarantine").exists()
    assert list((home / "reports").iterdir())
    for action in ("plan", "status", "verify"):
        done = run_in_process(path, action, "--format", "jsonl")
        if first or action != "verify":  # it compares only what the table has
            assert (done.returncode, reason in done.stdout) == (2, True), action
    if folder:
        segment.rmdir()
    else:
        segment.unlink()
    segment.write_bytes(content)
    assert run_here(path).code == 0
    assert counts(home) == {0: 24, 1: 24}


def test_the_last_segment_without_permission_is_in_the_preview(home: Path) -> None:
    """plan and status read the end of the last segment: that it cannot be read costs its partition, not the others."""
    last = home / "source" / "orders-1" / f"{16:020}.log"
    path = config(home)
    with local_faults(last, "EACCES", range(10**6)):
        assert run_here(path).code == 2
        assert counts(home) == {0: 24, 1: 16}
        for action in ("plan", "status"):
            done = run_in_process(path, action, "-v")
            assert f"orders-1: {last}: Permission denied" in " ".join(done.stdout.split()), action
            assert "orders-0" in done.stdout, action


def test_leader_epochs_that_cannot_be_read_cost_their_partition(home: Path) -> None:
    """They decide between two replicas: without them, records of a former leader could be loaded."""
    (home / "other" / "orders-1").mkdir(parents=True)
    log(home / "other" / "orders-1")
    path = home / "other" / "orders-1" / "leader-epoch-checkpoint"
    path.write_text("0\n1\n0 0\n")
    settings = config(home, source='source", "other')
    with local_faults(path, "EACCES", range(10**6)):
        outcome = run_here(settings)
    assert (outcome.code, outcome.failures) == (2, (f"orders-1: {path}: Permission denied",))
    assert counts(home) == {0: 24}
    assert run_here(settings).code == 0
    assert counts(home) == {0: 24, 1: 24}


def test_a_folder_that_cannot_be_listed_costs_its_partition(home: Path) -> None:
    """Also if the folder is a path of the configuration; a folder of a topic that is not loaded costs nothing."""
    folder = home / "source" / "orders-1"
    for place in ("source", "source/orders-*"):
        path = config(home, source=place)
        with local_faults(folder, "EACCES", range(10**6)):
            outcome = run_here(path)
        assert (outcome.code, outcome.failures) == (2, (f"orders-1: {folder}: Permission denied",)), place
        assert counts(home) == {0: 24}
    (home / "source" / "users-0").mkdir()
    with local_faults(home / "source" / "users-0", "EACCES", range(10**6)):
        assert run_here(config(home)).code == 0
    assert counts(home) == {0: 24, 1: 24}


@pytest.mark.parametrize("lost", ["segments", "folder", "all"])
def test_a_loaded_partition_without_segments_fails(home: Path, lost: str) -> None:
    """It is not current: the table has rows that no segment has, as on a disk that is not mounted. It can be given up."""
    path = config(home)
    folder = home / "source" / "orders-1"
    (folder / "leader-epoch-checkpoint").write_text("0\n0\n")
    assert run_here(path).code == 0
    shutil.rmtree(folder)
    if lost == "segments":
        folder.mkdir()
        (folder / "leader-epoch-checkpoint").write_text("0\n0\n")
    if lost == "all":
        shutil.rmtree(home / "source" / "orders-0")
        for action in ("run", "plan", "status", "verify"):
            assert run_in_process(path, action).returncode == 2, action
        return
    for action in ("run", "plan", "status"):
        assert statuses(path, action) == (2, ["current", "failed"]), action
    assert statuses(path, "verify") == (1, ["same", "different"])
    assert 'set source.ended = ["orders-1"]' in run_in_process(path).stderr
    replayed = run_in_process(path, "replay", "--topic", "orders", "--offsets", "1:0:8")
    assert (replayed.returncode, "no segment of it in the source" in replayed.stderr) == (2, True)
    ended = config(home, more='ended = ["orders-1"]')
    for action in ("run", "plan", "status", "verify"):
        assert statuses(ended, action) == (0, ["same" if action == "verify" else "current"]), action
    assert counts(home) == {0: 24, 1: 24}


def test_a_partition_whose_records_were_all_deleted_is_current(home: Path) -> None:
    """Retention leaves an empty active segment at the log end."""
    path = config(home)
    assert run_here(path).code == 0
    for segment in (home / "source" / "orders-1").iterdir():
        segment.unlink()
    (home / "source" / "orders-1" / f"{24:020}.log").touch()
    for action in ("run", "plan", "status"):
        assert statuses(path, action) == (0, ["current"] * 2), action


def test_a_folder_of_unknown_partitions_fails_the_run(home: Path) -> None:
    """A broker's folder has a name like that of a partition: it does not look like a broker without segments."""
    for number in range(2):
        (home / "brokers" / f"broker-{number}").mkdir(parents=True)
        shutil.move(home / "source" / f"orders-{number}", home / "brokers" / f"broker-{number}" / f"orders-{number}")
    path = config(home, source="brokers")
    unlisted = home / "brokers" / "broker-1"
    with local_faults(unlisted, "EACCES", range(10**6)), pytest.raises(UnreadableError) as error:
        run_here(path)
    assert str(error.value) == f"{unlisted}: Permission denied"
    assert not (home / "lake").exists()


@pytest.mark.parametrize("when", ["while the folder is listed", "after the listing"])
def test_a_segment_deleted_meanwhile_costs_its_partition(
    home: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """It is not a gap: with gaps = continue its offsets would be given up, though the log cleaner has only replaced it."""
    segment = home / "source" / "orders-1" / f"{8:020}.log"
    content = segment.read_bytes()

    def listed(settings: PipelineSettings) -> Listing:
        found = list_source(settings)
        segment.unlink()
        return found

    def stamp_of(path: str) -> Stamp:
        if path == str(segment):
            segment.unlink()
        return source.stamp_of(path)

    path = config(home, more='gaps = "continue"')
    with monkeypatch.context() as patched:
        if when == "after the listing":
            patched.setattr(pipeline_run, "list_source", listed)
        else:
            patched.setattr(segment_files, "stamp_of", stamp_of)
        outcome = run_here(path)
    assert (outcome.code, len(outcome.failures)) == (2, 1)
    assert outcome.failures[0].startswith(f"orders-1: {segment}: ")
    assert counts(home) == {0: 24, 1: 8}
    segment.write_bytes(content)
    assert run_here(path).code == 0
    assert counts(home) == {0: 24, 1: 24}


def test_an_unreadable_topic_id_costs_its_partition(home: Path) -> None:
    """The rows can be those of a topic that was created again under the same name."""
    metadata = home / "source" / "orders-1" / "partition.metadata"
    metadata.write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n")
    with local_faults(metadata, "EIO", range(10**6)):
        outcome = run_here(config(home))
    assert (outcome.code, outcome.failures) == (2, (f"orders-1: {metadata}: Input/output error",))
    assert counts(home) == {0: 24}
    assert run_here(config(home)).code == 0


def test_what_an_unreadable_replica_can_have_is_not_lost(tmp_path: Path) -> None:
    """The load stops before a damaged batch if the segment of the other replica is tried again."""
    for broker in range(2):
        folder = tmp_path / "source" / f"broker-{broker}" / "orders-0"
        folder.mkdir(parents=True)
        segments = log(folder)
    damaged = tmp_path / "source" / "broker-0" / "orders-0" / segments[1].name
    data = damaged.read_bytes()
    damaged.write_bytes(flip(data, len(data) // 2 - 1))
    content = segments[1].read_bytes()
    segments[1].unlink()
    segments[1].symlink_to("/nonexistent")
    path = config(tmp_path, source="source/broker-*")
    outcome = run_here(path)
    assert outcome.code == 2
    assert outcome.failures == (f"orders-0: {segments[1]}: a symbolic link to /nonexistent, which does not exist",)
    assert [row[1] for row in rows(tmp_path, "parquet")] == list(range(8))
    segments[1].unlink()
    segments[1].write_bytes(content)
    assert run_here(path).code == 0
    assert [row[1] for row in rows(tmp_path, "parquet")] == list(range(24))


def test_an_unreadable_checkpoint_costs_the_partitions_with_gaps(home: Path) -> None:
    """Without the cleaner's checkpoint a gap is not explained; the partitions without gaps are loaded."""
    (home / "source" / "orders-1" / f"{8:020}.log").unlink()
    checkpoint = home / "source" / "cleaner-offset-checkpoint"
    checkpoint.write_text("0\n1\norders 1 16\n")
    path = config(home)
    with local_faults(checkpoint, "EIO", range(10**6)):
        outcome = run_here(path)
    assert (outcome.code, len(outcome.failures)) == (2, 1)
    assert str(checkpoint) in outcome.failures[0]
    assert counts(home) == {0: 24, 1: 8}
    assert run_here(path).code == 0


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("which", [1, 2])
def test_a_segment_that_another_replica_has_is_loaded_from_it(tmp_path: Path, which: int, begun: bool) -> None:
    """Also the newest one: what it has beyond the end of the other replica is loaded in a later run, so nothing fails."""
    for broker in range(2):
        folder = tmp_path / "source" / f"broker-{broker}" / "orders-0"
        folder.mkdir(parents=True)
        segments = log(folder)
        if begun:
            first = build_batch([PlainRecord(n, b"k", b"v") for n in range(4, 8)], producer_id=7, producer_epoch=0,
                                base_sequence=0, transactional=True)  # fmt: skip
            segments[0].write_bytes(batch(0) + first)
    segments[which].unlink()
    segments[which].symlink_to("/nonexistent")
    path = config(tmp_path, source="source/broker-*")
    wanted = ["waiting"] if begun else ["loaded"] if which == 1 else ["waiting"]
    assert statuses(path, "run") == (0, wanted)
    for action in ("status", "run"):
        assert statuses(path, action) == (0, ["current"] if wanted == ["loaded"] else wanted), action
    assert statuses(path, "verify") == (0, ["same"])
    if not begun:
        assert [row[1] for row in rows(tmp_path, "parquet")] == list(range(24))


@pytest.mark.parametrize("start", [24, 28])
def test_verify_compares_nothing_of_which_no_offset_is_left(home: Path, start: int) -> None:
    """Retention has passed the table: nothing is compared. Offsets that were deleted before a load are a difference."""
    path = config(home)
    assert run_here(path).code == 0
    for segment in (home / "source" / "orders-1").iterdir():
        segment.unlink()
    write(home / "source" / "orders-1", [batch(start // 4)], first=start // 4)
    assert statuses(path, "verify") == ((0, ["same", "same"]) if start == 24 else (1, ["same", "different"]))
    text = " ".join(run_in_process(path, "verify").stdout.split())
    assert "1 partition compared" in text
    assert "1 partition without loaded offsets in the segments" in text
