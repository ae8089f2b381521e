"""Objects of Aiven's tiered storage plugin are read by every command as Kafka's own files, and nothing is written there.

The objects and the hashes of the decoded files are those of a real broker with the plugin. Other layouts are packed by
``tests.support.tiered_objects``.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from kseg.errors import UnreadableError
from kseg.extras.tiered_view import DecodedFile, view_at
from kseg.format.storage.file_access import file_access
from tests.support.cli import SEGMENTS, invoke
from tests.support.tiered_objects import (
    AIVEN,
    EXPECT,
    OBJECTS,
    STEMS,
    VIEW,
    copied,
    flip,
    key_file,
    other_key_file,
    pack,
)

LOCAL = SEGMENTS / "4.3.0-v2-none-transactions"


@pytest.fixture(autouse=True)
def key(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = key_file(tmp_path_factory.mktemp("key"))
    monkeypatch.setenv("KSEG_KEK", str(path))
    return path


def rows(*arguments: object) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in invoke(*arguments, "--format", "jsonl").stdout.splitlines()]
    return [{name: value for name, value in row.items() if name != "file"} for row in found]


def summary(path: object) -> dict[str, Any]:
    (last,) = [row for row in rows("validate", path) if row["kind"] == "summary"]
    return last


def test_decoded_files_are_those_of_the_broker() -> None:
    """Byte for byte: sizes and hashes of the local files before they were tiered. Snapshots are those of the end."""
    view = view_at(str(OBJECTS))
    assert view
    hashes = {name: hashlib.sha256(member.open(strict=True).read()).hexdigest() for name, member in view.files.items()}
    sizes = {name: member.status.st_size for name, member in view.files.items()}
    ends = {STEMS[0]: 1999, STEMS[1]: 9149}
    for stem in STEMS:
        for suffix in (".log", ".index", ".timeindex", ".txnindex", ".snapshot"):
            base = ends[stem] if suffix == ".snapshot" else int(stem[:20])
            expected = EXPECT["decoded"].get(f"tiered-0/{base:020}{suffix}")
            if suffix == ".txnindex" and expected is None:
                assert stem + suffix not in view.files
            else:
                assert (hashes[stem + suffix], sizes[stem + suffix]) == (expected["sha256"], expected["bytes"])


def test_the_folder_of_the_bucket_is_validated_and_stays_as_it_is() -> None:
    before = sorted((path, path.stat().st_mtime_ns) for path in AIVEN.rglob("*"))
    total = summary(AIVEN)
    assert (total["verdict"], total["records"], total["bytes"]) == ("sound", 9149, 560_681 + 1_035_521)
    assert sorted((path, path.stat().st_mtime_ns) for path in AIVEN.rglob("*")) == before


@pytest.mark.slow
@pytest.mark.parametrize("encrypted", [False, True])
@pytest.mark.parametrize("zstd", [False, True])
def test_every_command_reads_objects_as_local_files(zstd: bool, encrypted: bool, tmp_path: Path) -> None:
    """The folder with the objects, the folder above and the decoded view: one log, plain, zstd, AES-GCM or both."""
    objects = pack(LOCAL, tmp_path, zstd=zstd, encrypted=encrypted)
    assert rows("dump", "--deep", objects) == rows("dump", "--deep", tmp_path) == rows("dump", "--deep", LOCAL)
    assert summary(tmp_path)["verdict"] == summary(LOCAL)["verdict"]
    (found,) = rows("sql", "select topic, partition, count(*) as n from records group by all", tmp_path)
    assert (found["topic"], found["partition"]) == ("packed", 0)
    assert rows("grep", "-c", ".", objects) == rows("grep", "-c", ".", LOCAL)
    assert "4 aborted, 6 committed" in invoke("transactions", objects).stdout
    done = invoke("diff", objects, LOCAL)
    assert done.exit_code == 0, done.output
    assert invoke("stats", objects).stdout.splitlines()[0] == invoke("stats", LOCAL).stdout.splitlines()[0]


def test_a_file_of_the_view_can_be_named() -> None:
    """As it is in the results."""
    log = f"{VIEW}/{STEMS[1]}.log"
    assert [row["offset"] for row in rows("dump", "--deep", "--offsets", "5000:5002", log)] == [5000, 5001]
    assert rows("dump", f"{VIEW}/{STEMS[1]}.txnindex")
    assert "no such file" in invoke("dump", f"{VIEW}/{STEMS[0]}.txnindex").stderr


def test_the_log_of_an_object_can_be_named() -> None:
    """It is its decoded file: its own bytes would be damage, or a zstd file with a wrong name."""
    own, decoded = OBJECTS / f"{STEMS[0]}.log", f"{VIEW}/{STEMS[0]}.log"
    for command in ("dump", "validate", "stats"):
        assert rows(command, own) == rows(command, decoded) != []
    done = invoke("explain", own)
    assert (done.exit_code, done.stdout) == (0, invoke("explain", decoded).stdout)


def test_only_the_chunks_of_a_batch_are_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each once: a record of a segment of 1 GiB takes one or two of the plugin's chunks of 4 MiB."""
    decoded: list[int] = []
    original = DecodedFile._decoded

    def counting(self: DecodedFile, chunk: int) -> bytes:
        if self._member.path.endswith(".log"):
            decoded.append(chunk)
        return original(self, chunk)

    monkeypatch.setattr(DecodedFile, "_decoded", counting)
    monkeypatch.setattr("kseg.extras.tiered_view._recent", {})
    # The batch with offset 7000 is in bytes 882,536 to 958,944 of the segment; the index leads to the batch before.
    assert len(rows("dump", "--deep", "--offsets", "7000:7001", f"{VIEW}/{STEMS[1]}.log")) == 1
    assert sorted(decoded) == sorted(set(decoded))
    assert {13, 14} <= set(decoded) <= {12, 13, 14, 15}


def test_a_missing_or_wrong_key_is_one_line(monkeypatch: pytest.MonkeyPatch, key: Path, tmp_path: Path) -> None:
    """It names the manifest, the key's name and what to give."""
    other = other_key_file(tmp_path)
    assert summary(AIVEN)["verdict"] == "sound"
    monkeypatch.delenv("KSEG_KEK")
    for options, text in (
        ((), "'key1': give its private key (PEM) with --kek FILE or KSEG_KEK"),
        (("--kek", other), f"'key1': {other} cannot decrypt the data key"),
        (("--kek", AIVEN / "expect.json"), "expected a private key in PEM without a password"),
        (("--kek", tmp_path / "absent"), "absent: No such file"),
    ):
        done = invoke("validate", *options, AIVEN)
        lines = [line for line in done.stderr.splitlines() if "skipped" not in line]
        assert (done.exit_code, len(lines), text in done.stderr) == (2, 1, True), done.stderr
    done = invoke("validate", "--kek", other, "--kek", key, AIVEN)
    assert (done.exit_code, done.stdout.startswith("sound")) == (0, True)


def test_a_damaged_chunk_is_a_finding_and_the_others_are_read(tmp_path: Path) -> None:
    """A wrong tag, like a wrong CRC, costs the batches in its chunk. Made-up bytes are no batch, and no zeros either."""
    objects = copied(tmp_path)
    flip(objects / f"{STEMS[1]}.log", 165_000)  # in the last chunk
    done = invoke("validate", objects)
    assert (done.exit_code, "the AES-GCM tag does not match" in done.stderr) == (1, True), done.stderr
    assert "are read as 0xff" in done.stderr
    assert {row.get("rule") for row in rows("validate", objects)} >= {"undecodable-bytes"} or "damaged" in done.stdout
    assert rows("dump", "--deep", "--offsets", "2000:2001", objects)[0]["offset"] == 2000


def test_a_read_error_is_not_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk or a store that fails now can answer later: no filler, and no warning."""

    def failing(self: DecodedFile, start: int, size: int) -> bytes:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(DecodedFile, "_stored", failing)
    monkeypatch.setattr("kseg.extras.tiered_view._recent", {})
    done = invoke("validate", OBJECTS)
    assert (done.exit_code, "0xff" in done.stderr, "Input/output error" in done.output) == (2, False, True), done.output


@pytest.mark.parametrize("suffix", [".log", ".indexes"])
def test_a_truncated_object_is_a_finding(suffix: str, tmp_path: Path) -> None:
    objects = copied(tmp_path)
    path = objects / (STEMS[1] + suffix)
    path.write_bytes(path.read_bytes()[:-100])
    done = invoke("validate", objects)
    assert done.exit_code == 1, done.output
    assert "the object has only" in done.stderr


def test_an_object_of_which_next_to_nothing_is_left_is_one_line(tmp_path: Path) -> None:
    """The filler for gigabytes that a manifest claims would cost their time."""
    objects = copied(tmp_path)
    path = objects / f"{STEMS[1]}.log"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 300])
    done = invoke("validate", objects)
    assert done.exit_code == 2, done.output
    assert re.search(r"the object has [0-9,]+ of the [0-9,]+ bytes in its manifest", done.stderr)


def test_a_missing_object_is_one_line(tmp_path: Path) -> None:
    objects = copied(tmp_path)
    (objects / f"{STEMS[1]}.log").unlink()
    done = invoke("validate", objects)
    assert (done.exit_code, "the object is missing, but its manifest exists" in done.stderr) == (2, True), done.output


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", '{"version": "2"}', '{"version": "1"}', "[" * 100_000, "\0" * 100,
        '{"version":"1","chunkIndex":{"type":"fixed","originalChunkSize":1,"originalFileSize":2147483647,'
        '"transformedChunkSize":1,"finalTransformedChunkSize":1},"segmentIndexes":{},"compression":false}',
        '{"version":"1","chunkIndex":{"type":"variable","originalChunkSize":10,"originalFileSize":20,'
        '"transformedChunks":"KLUv/SArWQEAAAAAEAAAE1ACAgEBSgBqAAAA"},"segmentIndexes":{},"compression":false}',
    ],
)  # fmt: skip
def test_a_broken_manifest_is_one_line(text: str, tmp_path: Path) -> None:
    """Never a traceback, nor memory for what it claims. The other segment is read."""
    objects = copied(tmp_path)
    (objects / f"{STEMS[0]}.rsm-manifest").write_text(text)
    done = invoke("validate", objects)
    assert (done.exit_code, done.stderr.count("not a manifest of a segment")) == (2, 1), done.output
    assert "7,150 records" in done.stdout


def test_any_broken_byte_of_a_manifest_gives_no_traceback(tmp_path: Path) -> None:
    objects = copied(tmp_path)
    path = objects / f"{STEMS[0]}.rsm-manifest"
    data = path.read_bytes()
    for position in range(0, len(data), 97):
        path.write_bytes(data[:position] + bytes([data[position] ^ 7]) + data[position + 1 :])
        view = view_at(str(objects))
        assert view
        for member in view.files.values():
            with file_access(warn=lambda line: None), suppress(UnreadableError):
                member.open().read()


def test_logs_without_a_manifest_are_skipped_with_a_warning(tmp_path: Path) -> None:
    """Their upload did not end."""
    objects = copied(tmp_path)
    (objects / f"{STEMS[1]}.rsm-manifest").unlink()
    done = invoke("validate", objects)
    assert f"skipped logs without a manifest: {STEMS[1]}.log" in done.stderr
    assert "1,999 records" in done.stdout


def test_the_iceberg_mode_is_refused(tmp_path: Path) -> None:
    (tmp_path / "warehouse").mkdir()
    (tmp_path / "warehouse" / "segment.puffin").write_bytes(b"PFA1")
    done = invoke("validate", tmp_path)
    assert (done.exit_code, "in its Iceberg mode Aiven's plugin keeps rows" in done.stderr) == (2, True), done.stderr


def test_objects_in_an_archive_are_read_as_on_disk(tmp_path: Path) -> None:
    """A copy of a bucket is often a tar file."""
    archive = shutil.make_archive(str(tmp_path / "bucket"), "tar", AIVEN)
    assert summary(archive)["verdict"] == "sound"
    assert rows("dump", "--deep", archive) == rows("dump", "--deep", AIVEN)


@pytest.mark.slow
def test_a_record_of_a_bucket_costs_the_bytes_of_its_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """On S3: each byte of the objects is sent once for all records, and few of them for one."""
    pytest.importorskip("flask_cors", reason="moto's server is not installed")
    pytest.importorskip("s3fs", reason="s3fs is not installed")
    from tests.support.s3_server import s3_server

    with s3_server() as server:
        url = server.put_folder(AIVEN, "tier")
        stored = sum(path.stat().st_size for path in OBJECTS.iterdir())
        total, sent, _ = server.count(lambda: summary(url))
        assert (total["verdict"], total["records"]) == ("sound", 9149)
        assert sent < 1.1 * stored
        monkeypatch.setattr("kseg.extras.tiered_view._recent", {})
        name = f"{url}/{OBJECTS.parent.name}/0/{VIEW.name}/{STEMS[1]}.log"
        found, sent, _ = server.count(lambda: rows("dump", "--deep", "--offsets", "7000:7001", name))
        assert len(found) == 1
        assert sent < stored / 2


def test_objects_in_a_store_are_read_as_on_disk(tmp_path: Path) -> None:
    """At a URL, with the same mechanism."""
    pytest.importorskip("fsspec")
    url = f"memory://bucket-{tmp_path.name}"
    import fsspec

    fsspec.filesystem("memory").put(str(AIVEN), f"{url}/", recursive=True)
    assert summary(url)["verdict"] == "sound"
    found = rows("dump", "--deep", url)
    assert found == rows("dump", "--deep", AIVEN)


def test_the_topic_of_a_key_with_a_prefix(tmp_path: Path) -> None:
    """``key.prefix`` may end with a slash: the objects are deeper."""
    shutil.copytree(OBJECTS.parent, tmp_path / "some" / "prefix" / OBJECTS.parent.name)
    (found,) = rows("sql", "select distinct topic, partition from records", tmp_path)
    assert (found["topic"], found["partition"]) == ("tiered", 0)
