"""Outputs in an object store: whole or absent, also when the store fails, and never in place of a file of Kafka."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kseg.errors import KsegError, UsageError
from tests.support.cli import kseg_here as kseg
from tests.support.fixtures import SEGMENTS

pytest.importorskip("s3fs", reason="s3fs is not installed")
pytest.importorskip("flask_cors", reason="moto's server is not installed")

from kseg.format.storage import remote_outputs
from tests.support.s3_server import S3Server, s3_server

pytestmark = pytest.mark.slow

SOURCE = SEGMENTS / "4.3.0-v2-none-transactions"
LOG = next(SOURCE.glob("*.log"))


@pytest.fixture(scope="module")
def shared() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


@pytest.fixture
def server(shared: S3Server) -> Iterator[S3Server]:
    yield shared
    shared.fails = shared.loses = lambda method, path: False


def objects(server: S3Server, folder: str = "") -> dict[str, bytes]:
    """Return the objects below a folder; also of a store that fails for others."""
    import s3fs

    server.fails = lambda method, path: False
    store = s3fs.S3FileSystem(skip_instance_cache=True, endpoint_url=server.endpoint)
    return {name.removeprefix("backup/"): store.cat_file(name) for name in store.find(f"backup/{folder}")}


def unfinished(server: S3Server) -> list[Any]:
    import s3fs

    store = s3fs.S3FileSystem(skip_instance_cache=True, endpoint_url=server.endpoint)
    uploads: list[Any] = store.call_s3("list_multipart_uploads", Bucket="backup").get("Uploads", [])
    return uploads


def without_times(content: bytes) -> bytes:
    """Return an output without what JUnit says of a run: its seconds, and when it began."""
    return re.sub(rb' (time|timestamp)="[^"]+"', b"", content)


@pytest.mark.parametrize("arguments", [
    ("dump", "--deep", "--format", "jsonl", SOURCE),
    ("dump", "--deep", "--format", "parquet", SOURCE),
    ("grep", "--format", "csv", ".", SOURCE),
    ("stats", "--format", "html", SOURCE),
    ("validate", "--format", "jsonl", SOURCE),
    ("validate", "--report", "junit={}", SOURCE),
    ("doctor", "--html", "{}", SOURCE),
    ("repair", "--dry-run", "--format", "jsonl", SOURCE),
], ids=lambda given: " ".join(map(str, given[:3])))  # fmt: skip
def test_an_object_has_the_bytes_of_a_file(server: S3Server, tmp_path: Path, arguments: tuple[object, ...]) -> None:
    """Every option that writes a file writes an object; a second run replaces it."""

    def run(target: object) -> Any:
        given = [text.format(target) if isinstance(text, str) else text for text in arguments]
        return kseg(*given, *(() if "{}" in str(arguments) else ("-o", target)))

    done = run(tmp_path / "out")
    for _ in range(2):
        remote = run("s3://backup/reports/out")
        assert (remote.returncode, remote.stdout) == (done.returncode, done.stdout), remote.stderr
    wanted, found = (tmp_path / "out").read_bytes(), objects(server)["reports/out"]
    if b"html" in wanted[:100]:  # a page names its command and its time
        assert found.rstrip().endswith(b"</html>")
    else:
        assert without_times(found) == without_times(wanted)
    assert unfinished(server) == []


@pytest.mark.parametrize("verb", [("convert", "any-to-v2"), ("repair",)], ids=["convert", "repair"])
def test_results_of_several_files(server: S3Server, tmp_path: Path, verb: tuple[str, ...]) -> None:
    """A segment, a partition folder and a log directory have the files that they have on disk, and DST is new."""
    shutil.copytree(SOURCE, tmp_path / "logs" / "t-0", ignore=shutil.ignore_patterns("ORIGIN", "expect*"))
    for name, source in (("one.log", LOG), ("t-0", tmp_path / "logs" / "t-0"), ("dir", tmp_path / "logs")):
        target = tmp_path / verb[0] / name
        target.parent.mkdir(exist_ok=True)
        local = kseg(*verb, source, target)
        url = f"s3://backup/{verb[0]}/{name[:3]}/{name}"
        remote = kseg(*verb, source, url)
        assert (remote.returncode, remote.stdout) == (local.returncode, local.stdout.replace(str(target), url))
        assert "kseg-" not in remote.stdout + remote.stderr
        found = {path.partition(f"{verb[0]}/{name[:3]}/")[2]: data for path, data in objects(server, verb[0]).items()}
        files = target.rglob("*") if target.is_dir() else target.parent.glob("one.*")
        wanted = {path.relative_to(target.parent).as_posix(): path.read_bytes() for path in files if path.is_file()}
        assert {path: found.get(path) for path in wanted} == wanted
        for force in ((), ("--force",)):
            again = kseg(*verb, source, url, *force)
            assert (again.returncode, again.stdout) == (2, "")
            assert "exists" in again.stderr or "next to" in again.stderr, again.stderr
    assert unfinished(server) == []


@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_a_failing_store_has_no_part_of_a_result(server: S3Server, method: str, tmp_path: Path) -> None:
    """A store that answers 503 from any request on: exit 2, and the earlier object or nothing is there."""
    server.put("faults/out.jsonl", b"earlier")
    before = objects(server)
    commands = (("dump", SOURCE, "-o", "s3://backup/faults/out.jsonl"), ("repair", SOURCE, "s3://backup/faults/t-0"))
    for arguments in commands:
        failed = 0
        for first in (0, 1, 3, 40):
            seen = iter(range(1 << 30))
            server.fails = lambda asked, path, seen=seen, first=first: asked == method and next(seen) >= first  # type: ignore[misc]
            done = kseg(*arguments)
            left = objects(server)
            if done.returncode == 2:
                failed += 1
                assert left == before
                assert "SlowDown" in done.stderr or "reduce your request rate" in done.stderr, done.stderr
                assert "Traceback" not in done.stderr
            else:
                assert left != before
                before = left
                break
        assert failed >= 1


def test_an_interrupted_upload_leaves_nothing(server: S3Server) -> None:
    """The block of an output fails: the earlier object stays, and its upload is ended."""
    server.put("stopped/out", b"earlier")

    def interrupted() -> None:
        with remote_outputs.whole_object("s3://backup/stopped/out") as out:
            out.write(bytes(60 << 20))
            assert len(unfinished(server)) == 1
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert objects(server)["stopped/out"] == b"earlier"
    assert unfinished(server) == []


def test_a_name_that_appears_meanwhile_is_kept(server: S3Server) -> None:
    """The store itself refuses to replace an object of another writer."""

    def racing() -> None:
        with remote_outputs.whole_object("s3://backup/race", new=True) as out:
            out.write(b"ours")
            server.put("race", b"theirs")

    with pytest.raises(UsageError, match="exists"):
        racing()
    assert objects(server)["race"] == b"theirs"


@pytest.mark.parametrize("fault", ["exists", "no upload", "broken"])
def test_a_lost_answer_to_the_end_of_an_upload(server: S3Server, tmp_path: Path, fault: str) -> None:
    """An object that its store has completed is the run's own, whatever the answer to the repeated request is."""
    server.fault = fault
    assert kseg("repair", SOURCE, tmp_path / "t-0").returncode == 0
    wanted = {path.name: path.read_bytes() for path in (tmp_path / "t-0").iterdir()}
    ends = ("POST uploadId=", "PUT x-id=PutObject")
    for lost in range(2):  # the answer for the first object, or all answers
        seen = iter(range(1 << 30))
        server.loses = lambda asked, path, seen=seen, lost=lost: asked.startswith(ends) and (lost or not next(seen))  # type: ignore[misc]
        done = kseg("repair", SOURCE, url := f"s3://backup/lost-{fault[:2]}-{lost}/t-0")
        server.loses = lambda asked, path: False
        assert done.returncode == 0, done.stderr
        assert {name.rpartition("/")[2]: data for name, data in objects(server, url[12:]).items()} == wanted


def _write(url: str, data: bytes) -> None:
    with remote_outputs.whole_object(url, new=True) as out:
        out.write(data)


def test_a_lost_answer_and_a_failing_store(server: S3Server) -> None:
    """If the store shows nothing of the object, the message claims nothing; what is the run's own is removed."""
    server.fault = "denied"
    server.loses = lambda asked, path: asked.startswith("POST uploadId=")
    server.fails = lambda method, path: method == "HEAD"
    with pytest.raises(KsegError, match="Access Denied; it is unknown whether it was written there"):
        _write("s3://backup/hidden", b"ours")
    server.fails = lambda method, path: path.endswith(".log") and method == "POST"
    assert kseg("repair", SOURCE, "s3://backup/undone/t-0").returncode == 2
    server.loses = lambda asked, path: False
    assert objects(server, "undone") == {}


def test_files_of_kafka_are_never_replaced(server: S3Server) -> None:
    """By name, by content, and the inputs: the rules of files on disk."""
    url = server.put_folder(SOURCE, "kafka/t-0")
    server.put("kafka/copy.txt", LOG.read_bytes())
    server.put("kafka/table.bak", b"x")
    server.put("kafka/t-0/partition.metadata", b"version: 0\n")
    before = objects(server)
    for target in (
        f"{url}/{LOG.name}", f"{url}/new.log", f"{url}/notes.txt", "s3a://backup/kafka/t-0/notes.txt",
        "s3://backup/elsewhere/00000000000000000000.log", "s3://backup/kafka/copy.txt", "s3://backup/kafka/table.bak",
        "s3://backup/kafka", "s3://backup/", "http://127.0.0.1:1/x",
    ):  # fmt: skip
        done = kseg("dump", url, "-o", target)
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), (target, done.stderr)
    for target in (f"{url}/x.log", f"{url}/x-1", "s3://backup/kafka/t-0"):
        assert kseg("repair", SOURCE, target).returncode == 2
    assert objects(server) == before


def test_other_stores_run_the_same_code() -> None:
    """gs:// and abfs:// have other clients of fsspec, as memory:// has."""
    memory = pytest.importorskip("fsspec").filesystem("memory")
    with remote_outputs.whole_object("memory:///out/one.txt") as out:
        out.write(b"whole")
    assert memory.cat_file("/out/one.txt") == b"whole"
    with pytest.raises(KsegError, match="exists"):
        remote_outputs.check_absent("memory:///out/one.txt")


def test_a_kill_leaves_no_object(server: S3Server, tmp_path: Path) -> None:
    """SIGTERM ends the upload; SIGKILL leaves one that nobody can read."""
    script = (
        "import time; from kseg.format.storage.remote_outputs import whole_object\n"
        "with whole_object('s3://backup/killed/out') as out:\n"
        "    out.write(bytes(60 << 20)); print('sent', flush=True); time.sleep(60)"
    )
    run = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=dict(os.environ))
    assert run.stdout is not None
    assert run.stdout.readline() == "sent\n"
    run.send_signal(signal.SIGKILL)
    run.wait(300)
    run.stdout.close()
    time.sleep(0.1)
    assert "killed/out" not in objects(server)
