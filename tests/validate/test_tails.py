"""Zeros in a log, preallocated, written or a hole: harmless at the log's end, the end for a consumer elsewhere."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from kseg import open_partition, validate
from kseg.findings import Severity
from kseg.format.storage.source import open_source
from kseg.format.writer.records_builder import PlainRecord, build_batch
from kseg.results import FileResult
from tests.support.damage import flip, get
from tests.support.folders import SEGMENTS, validate_folder
from tests.support.fuzzing import cases
from tools.lab import maven

SOURCE = SEGMENTS / "4.3.0-v2-none-segments"
SEALED = f"{24:020}.log"
NEWEST = f"{120:020}.log"


def folder_with(tmp_path: Path, name: str, added: int, *, hole: bool) -> Path:
    """A partition of six segments, one of which ends in zeros."""
    folder = tmp_path / "orders-0"
    shutil.copytree(SOURCE, folder, ignore=shutil.ignore_patterns("ORIGIN", "expect.jsonl"))
    path = folder / name
    if hole:
        os.truncate(path, path.stat().st_size + added)
    else:
        path.write_bytes(path.read_bytes() + bytes(added))
    return folder


def reported(results: list[FileResult]) -> list[tuple[str, str, Severity]]:
    return [
        (Path(result.file).name, verdict.rule.name, verdict.severity)
        for result in results
        for verdict in result.verdicts
    ]


def knows_holes(folder: Path) -> bool:
    path = folder / "hole"
    path.touch()
    os.truncate(path, 1 << 20)
    with open_source(path) as source:
        return source.holes(0, 1 << 20) == 1 << 20


@pytest.mark.parametrize("added", [100, 70_000])
def test_zeros_are_harmless_at_the_end_of_the_log_only(tmp_path: Path, added: int) -> None:
    """A broker cuts preallocated space off when it rolls: before a later segment zeros mean lost data."""
    assert reported(validate_folder(folder_with(tmp_path / "1", NEWEST, added, hole=True))) == [
        (NEWEST, "zero-tail", Severity.INFO)
    ]
    (tmp_path / "1" / ".kafka_cleanshutdown").touch()  # it removes the zeros, and the start after it fails at them
    assert reported(validate_folder(tmp_path / "1" / "orders-0")) == [(NEWEST, "zero-tail", Severity.WARNING)]
    sealed = folder_with(tmp_path / "2", SEALED, added, hole=True)
    for jobs in (1, 2):
        assert reported(validate_folder(sealed, jobs)) == [(SEALED, "zero-tail", Severity.ERROR)]


def test_a_hole_on_disk_is_distinguished_from_written_zeros(tmp_path: Path) -> None:
    """Unwritten bytes and written zeros read the same:

    only the file system distinguishes them, and only in whole blocks.
    """
    if not knows_holes(tmp_path):
        pytest.skip("this file system has no holes")
    kinds = {"holes": (70_000, True), "written": (70_000, False), "few": (5000, True)}
    messages = {
        kind: verdict.message
        for kind, (added, hole) in kinds.items()
        for result in validate_folder(folder_with(tmp_path / kind, NEWEST, added, hole=hole))
        for verdict in result.verdicts
    }
    assert "never written: a hole in the file" in messages["holes"]
    assert "stored on disk" in messages["written"]
    assert messages["few"].endswith("as preallocation leaves them")


def test_a_hole_in_mid_file_is_reported_and_reading_continues(tmp_path: Path) -> None:
    """A page that was never written: 64 KiB between two batches, as a hole in the file."""
    if not knows_holes(tmp_path):
        pytest.skip("this file system has no holes")
    data = (SOURCE / SEALED).read_bytes()
    path = tmp_path / "orders-0" / SEALED
    path.parent.mkdir()
    with path.open("wb") as out:
        out.write(data)
        out.seek(len(data) + 65536)
        out.write(data)
    (result,) = validate_folder(path.parent)
    messages = [verdict.message for verdict in result.verdicts if verdict.rule.name == "lost-bytes"]
    assert len(messages) == 1
    assert "a hole in the file" in messages[0]
    with open_source(path) as source:
        before = source.position
        assert source.holes(len(data), len(data) + 65536)
        buffer = bytearray(61)
        source.readinto(memoryview(buffer))
        assert (before, bytes(buffer)) == (0, data[:61]), "asking does not move what is read next"


def messages_of(bootstrap: str, topic: str) -> list[str]:
    """Return the messages that Kafka's own consumer gets of partition 0 before it fails or a timeout."""
    command = ["java", *maven.JVM, "-cp", f"{maven.libs('4.3.0')}/*", "org.apache.kafka.tools.consumer.ConsoleConsumer"]
    command += ["--bootstrap-server", bootstrap, "--topic", topic, "--partition", "0", "--offset", "0"]
    command += ["--timeout-ms", "8000", "--formatter-property", "print.offset=true"]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False, timeout=300)
    return [line.split("\t")[0] for line in done.stdout.splitlines()]


@pytest.mark.kafka
def test_a_consumer_does_not_get_past_zeros_in_a_sealed_segment() -> None:
    """Why it is an error: the broker serves them. (librdkafka 2.x even aborts its process on them.)"""
    from tools.lab.kraft import KraftBroker
    from tools.lab.modern_fixtures import create_topic
    from tools.lab.serve import put

    with tempfile.TemporaryDirectory(prefix="kseg-lab-") as work:
        limits: Mapping[str, str] = {}
        broker = KraftBroker("4.3.0", Path(work), limits)
        sound, zeros = Path(work) / "sound", folder_with(Path(work) / "z", SEALED, 100, hole=False)
        shutil.copytree(SOURCE, sound)
        with broker:
            for topic in ("sound", "zeros"):
                create_topic(broker, topic, limits)
            broker.stop()
            for topic, files in (("sound", sound), ("zeros", zeros)):
                put(files, broker.partition(topic), side_files=True)
            broker.start()
            assert messages_of(broker.bootstrap, "sound")[-1] == "Offset:120"
            assert messages_of(broker.bootstrap, "zeros")[-1] == "Offset:47"


def _damaged_ends(dice: random.Random, folder: Path) -> int:
    """Write segments whose last batches have wrong bytes, but not in their offsets; return the offset after the last."""
    offset = 0
    segments: list[tuple[int, list[bytes]]] = []
    for _ in range(dice.randint(2, 4)):
        batches = []
        for _ in range(dice.randint(1, 4)):
            records = [PlainRecord(offset + n, b"key", b"value %d" % n, 1) for n in range(dice.randint(1, 4))]
            batches.append(build_batch(records))
            offset += len(records)
        segments.append((offset - sum(get(each, 0, "record_count") for each in batches), batches))
    for _, batches in segments[:-1]:
        for n in range(len(batches) - dice.randint(0, min(3, len(batches))), len(batches)):
            for _ in range(dice.randint(1, 2)):
                at = dice.choice([*range(8, 12), *range(17, 21), *range(61, len(batches[n]))])
                batches[n] = flip(batches[n], at, 1 << dice.randrange(8))
    for base, batches in segments:
        (folder / f"{base:020}.log").write_bytes(b"".join(batches))
    return offset


@pytest.mark.slow
def test_each_offset_that_is_lost_at_the_end_of_a_segment_is_in_a_finding(tmp_path: Path) -> None:
    """Several damaged batches can follow one another, and a wrong size hides those after it: the next segment's name shows
    what was lost.
    """
    for seed in range(cases(60)):
        folder = tmp_path / str(seed) / "orders-0"
        folder.mkdir(parents=True)
        end = _damaged_ends(random.Random(seed), folder)
        read = {record.offset for record in open_partition(folder).records()}
        named = [(one.finding.offset, one.finding.last_offset) for one in validate(folder).findings]
        covered = {n for first, last in named if first is not None for n in range(first, min(last or first, end) + 1)}
        assert set(range(end)) - read <= covered, seed


def test_the_end_of_the_newest_segment_is_unknown(tmp_path: Path) -> None:
    """Nothing shows how many records the bytes after a damaged batch had: the header's offsets are only a claim."""
    folder = tmp_path / "orders-0"
    folder.mkdir()
    batches = [build_batch([PlainRecord(offset + n, None, b"v", 1) for n in range(3)]) for offset in (0, 3, 6)]
    (folder / f"{0:020}.log").write_bytes(batches[0] + flip(batches[1], 70) + flip(batches[2], 59))
    (found,) = [one for one in validate(folder).findings if one.rule.name == "lost-bytes"]
    assert (found.finding.offset, found.finding.last_offset) == (None, None)
    assert found.message.endswith("the header claims offsets 3..5")
