"""Segments in an object store: a real server of S3's protocol on loopback, from the command line and from Spark."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from kseg.errors import KsegError
from kseg.format.segment.row_filter import RowFilter
from tests.support.cli import invoke, kseg
from tests.support.fixtures import SEGMENTS
from tests.support.growing_logs import batch, write

pytest.importorskip("s3fs", reason="s3fs is not installed")
pytest.importorskip("flask_cors", reason="moto's server is not installed")
pytest.importorskip("pyarrow", reason="pyarrow is not installed")

from s3fs import S3FileSystem

from kseg.extras.views.planning import Request, Split, plan
from kseg.extras.views.split_rows import Task, read
from kseg.extras.views.view_table import columns_of
from tests.support.s3_server import FAULTS, S3Server, s3_server

pytestmark = pytest.mark.slow

SOURCE = SEGMENTS / "4.3.0-v2-none-segments"
BUCKET = "s3://backup/cluster.a"
FIRST_TIME = 1_700_000_000_000  # of growing_logs


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


@pytest.fixture(scope="module")
def bucket(server: S3Server) -> str:
    """A log dir in a bucket: two partitions with side files."""
    for partition in (3, 4):
        server.put_folder(SOURCE, f"cluster.a/orders-{partition}")
    return server.endpoint


def local(*arguments: object) -> str:
    return kseg(*arguments).stdout.replace(str(SOURCE), f"{BUCKET}/orders-3")


def test_a_bucket_gives_the_findings_of_its_files(bucket: str) -> None:
    """A file, a partition folder and a log dir; a folder's segments in Kafka's order, the last one active."""
    first = "00000000000000000000.log"
    arguments = ("dump", "--deep", "--format", "jsonl")
    assert kseg(*arguments, f"{BUCKET}/orders-3/{first}").stdout == local(*arguments, SOURCE / first) != ""
    done = kseg(*arguments, f"{BUCKET}/orders-3")
    assert (done.stdout, done.stderr, done.returncode) == (local(*arguments, SOURCE), "", 0)
    both = kseg("validate", "--format", "jsonl", BUCKET).stdout.splitlines()
    assert f'"files":{2 * len(list(SOURCE.glob("*.log")))},' in both[-1]
    assert '"verdict":"sound"' in both[-1]
    side_files = json.loads(kseg("validate", "--format", "jsonl", SOURCE).stdout.splitlines()[-1])["side_files"]
    assert json.loads(both[-1])["side_files"] == 2 * side_files > 0


def test_a_missing_object_is_one_line(bucket: str) -> None:
    """A missing bucket or key, and a folder without segments: exit 2, no traceback."""
    for url in ("s3://missing/orders-3", f"{BUCKET}/orders-9/00000000000000000000.log", f"{BUCKET}/orders-9"):
        done = kseg("dump", url)
        assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1), done.stderr
        assert done.stderr.startswith(f"kseg: {url}: ")


def test_a_wrong_address_or_wrong_credentials_are_reported(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors of the store's own library are not OSError, but are not internal errors either."""
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    done = kseg("dump", f"{BUCKET}/orders-3")
    assert (done.returncode, done.stderr) == (2, f"kseg: {BUCKET}/orders-3: Unable to locate credentials\n")


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two partitions of four segments each, about 0.9 MB per segment; the last index of each is preallocated."""
    root = tmp_path_factory.mktemp("logs")
    for partition in range(2):
        for first in range(0, 8000, 2000):
            log = write(root / f"orders-{partition}", [batch(n) for n in range(first, first + 2000)], first=first)
        for suffix in (".index", ".timeindex"):
            with log.with_suffix(suffix).open("ab") as index:
                index.write(bytes(4_000_000 - index.tell()))
    return root


#: Query shapes, as arguments of ``planned``.
SHAPES: dict[str, dict[str, Any]] = {
    "all records": {},
    "one column": {"names": ("offset",)},
    "100 rows by offset": {"limits": RowFilter(first_offset=17_000, end_offset=17_100)},
    "the newest rows": {"limits": RowFilter(since=FIRST_TIME + 7_900_000)},
    "a time window": {"limits": RowFilter(since=FIRST_TIME + 5_000_000, until=FIRST_TIME + 5_100_000)},
    "one partition": {"limits": RowFilter(partitions=frozenset({1}))},
    "batches": {"view": "batches"},
    "segments": {"view": "segments"},
    "findings": {"view": "findings"},
    "transactions": {"view": "transactions"},
    "read_committed": {"isolation": "read_committed"},
    "small splits": {"split_bytes": 200_000},
}


def planned(
    path: object, view: str = "records", names: tuple[str, ...] = (), **given: Any
) -> tuple[Request, list[Split]]:
    limits = given.get("limits", RowFilter())
    request = Request((str(path),), view, columns_of(view, names), **given)
    return request, plan(request, limits)


def rows(path: object, **given: Any) -> list[dict[str, Any]]:
    request, splits = planned(path, **given)
    found = [
        row for split in splits for batch in read(Task(request, request.limits), split) for row in batch.to_pylist()
    ]
    for row in found:
        for name in {"file", "folder"} & row.keys():
            row[name] = row[name].removeprefix(f"{path}/")
        row.pop("stamp", None)
    return sorted(found, key=repr)


def test_a_bucket_sends_the_bytes_that_a_disk_reads(server: S3Server, logs: Path) -> None:
    """A store sends at most 1.2 times the bytes that the same query reads from a disk, and the rows are the same."""
    url = server.put_folder(logs, "measured")
    read_bytes = 0

    class Counted(io.FileIO):
        def readinto(self, view: Any) -> int | None:
            nonlocal read_bytes
            count = super().readinto(view)
            read_bytes += count or 0
            return count

        def readall(self) -> bytes:
            nonlocal read_bytes
            data = super().readall()
            read_bytes += len(data)
            return data

    total = sum(path.stat().st_size for path in logs.rglob("*.log"))
    for shape, given in SHAPES.items():
        read_bytes = 0
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(io, "FileIO", Counted)
            wanted = rows(logs, **given)
        found, sent, requests = server.count(lambda given=given: rows(url, **given))  # type: ignore[misc]
        assert found == wanted, shape
        assert 0 < sent <= 1.2 * read_bytes, (shape, sent, read_bytes)
        assert requests < 150, shape
        if "limits" in given:
            assert sent < total * 0.6, (shape, sent)
        if shape in ("100 rows by offset", "the newest rows"):
            assert sent < total // 10, (shape, sent)


def test_objects_are_split_and_packed(server: S3Server, logs: Path) -> None:
    """Large objects are several tasks and small ones are one, as on a disk; each task has the version to read."""
    url = server.put_folder(logs, "packed")
    for split_bytes in (None, 400_000):
        _, splits = planned(url, split_bytes=split_bytes)
        _, local_splits = planned(logs, split_bytes=split_bytes)
        assert [len(split) for split in splits] == [len(split) for split in local_splits]
        assert all(piece.file.stored and piece.file.stored.tag for split in splits for piece in split)
    assert len(planned(url)[1]) == 1
    assert len(splits) > 10


def test_a_replaced_object_is_not_read(server: S3Server, logs: Path) -> None:
    """The rows of one query are of one version of an object: a task whose object was replaced since fails."""
    url = server.put_folder(logs / "orders-0", "replaced/orders-0")
    request, splits = planned(url)
    path = sorted((logs / "orders-0").glob("*.log"))[1]
    server.put(f"replaced/orders-0/{path.name}", path.read_bytes()[:-1000] + bytes(1000))
    with pytest.raises(KsegError, match=path.name):
        [batch.num_rows for split in splits for batch in read(Task(request, request.limits), split)]


def test_other_stores_run_the_same_code(logs: Path) -> None:
    """gs:// and abfs:// have other clients of fsspec, as memory:// has: the same rows, pieces and tags from one listing."""
    memory = pytest.importorskip("fsspec", reason="fsspec is not installed").filesystem("memory")
    memory.put(f"{logs}/", "/other/", recursive=True)
    for shape in ("100 rows by offset", "a time window", "findings", "small splits"):
        assert rows("memory:///other", **SHAPES[shape]) == rows(logs, **SHAPES[shape]), shape
    _, splits = planned("memory:///other", split_bytes=400_000)
    assert len(splits) > 10
    assert all(piece.file.stored and piece.file.stored.tag for split in splits for piece in split)


def test_a_state_file_knows_objects(server: S3Server, tmp_path: Path) -> None:
    """Objects are known by size and ETag: only the active segment, and what was replaced, is read again."""
    url = server.put_folder(SOURCE, "stated/orders-3")
    logs = sorted(SOURCE.glob("*.log"))

    def validate() -> tuple[str, int]:
        done = kseg("validate", "--format", "jsonl", "--state", tmp_path / "state", url)
        lines = [line for line in done.stderr.splitlines() if "results are from" in line]
        return done.stdout, int(lines[0].split()[1]) if lines else 0

    whole, first = validate()
    again, second = validate()
    assert again == whole
    assert first == 0
    assert second >= len(logs) - 1
    server.put(f"stated/orders-3/{logs[0].name}", logs[0].read_bytes()[:-7])
    assert "damaged" in validate()[0]


def test_an_inventory_replaces_the_indexes_that_a_bucket_lacks(server: S3Server, logs: Path, tmp_path: Path) -> None:
    """Backups often have the logs alone: a time window then reads all bytes, and with an inventory one segment of each
    partition. The inventory is in a bucket, too. Objects that have changed since are read."""
    backup = tmp_path / "backup"
    for log in logs.rglob("*.log"):
        target = backup / log.relative_to(logs)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(log.read_bytes())
    url = server.put_folder(backup, "bare")
    assert kseg("validate", "--inventory", tmp_path / "made", url).returncode == 0
    inventory = server.put_folder(tmp_path / "made", "made")
    window = {"limits": RowFilter(since=FIRST_TIME + 5_000_000, until=FIRST_TIME + 5_100_000)}
    wanted, sent, _ = server.count(lambda: rows(url, **window))
    found, fewer, _ = server.count(lambda: rows(url, inventory=inventory, **window))
    assert found == wanted
    assert len(found) == 2 * 100 * 4  # records of a batch
    assert fewer < 0.3 * sent
    changed = backup / "orders-1" / f"{0:020}.log"
    changed.write_bytes(b"".join(batch(n) for n in range(5000, 5050)))
    server.put_folder(backup, "bare")
    assert len(rows(url, inventory=inventory, **window)) == len(rows(url, **window)) > len(found)


def failing(wanted: Callable[[str, str], bool], times: int = 1 << 30) -> Callable[[str, str], bool]:
    """Return a fault of the server: the first ``times`` requests that are ``wanted`` are answered 503."""
    left = iter(range(times))
    return lambda method, path: wanted(method, path) and next(left, None) is not None


@pytest.mark.parametrize(
    ("command", "listings"),
    [("validate", 2), ("transactions", 2), ("doctor", 2), ("dump", 1), ("stats", 1), ("grep", 1)],
)
def test_a_folder_costs_one_listing_and_one_read_of_each_file(server: S3Server, command: str, listings: int) -> None:
    """A request takes as long as the transfer of megabytes. Several checks need a checkpoint or a snapshot. The files of the
    log directory, most of which a backup lacks, are known from one listing, which a later run in the same process makes
    again."""
    url = server.put_folder(SOURCE, f"{command}/orders-3")
    words = {"validate": ("--jobs", "1"), "doctor": ("--jobs", "1"), "grep": ("x",)}.get(command, ())
    for _ in range(2):
        done, _, _ = server.count(lambda: invoke(command, *words, url))
        assert done.exit_code in (0, 1), done.output
        assert server.requests.count(("GET", "/backup")) == listings
        assert not [path for method, path in server.requests if method == "HEAD"]
        read = [path for _, path in server.requests if path != "/backup"]
        assert len(read) == len(set(read))
        assert len([path for path in read if path.endswith(".log")]) == len(list(SOURCE.glob("*.log")))
    server.put(f"{command}/log-start-offset-checkpoint", b"0\n1\norders 3 0\n")
    server.count(lambda: invoke(command, *words, url))
    read = [path for _, path in server.requests if path.endswith("log-start-offset-checkpoint")]
    assert bool(read) == (listings == 2)


def test_an_object_without_a_suffix_is_no_folder(server: S3Server) -> None:
    """Its listing is empty: it is read as the file that it is. A folder and an object that are missing are one line."""
    data = (SOURCE / f"{0:020}.log").read_bytes()
    server.put("plain/copy", data)
    done = invoke("validate", "--format", "jsonl", "s3://backup/plain/copy")
    assert json.loads(done.stdout.splitlines()[-1])["bytes"] == len(data)
    assert done.exit_code == 0
    assert invoke("validate", "s3://backup/plain/other").stderr.splitlines()[-1].endswith("No such file or directory")


def dumped(path: object) -> list[Any]:
    return [json.loads(line)["position"] for line in invoke("dump", "--format", "jsonl", path).stdout.splitlines()]


@pytest.mark.parametrize("name", ["kafka.log", "a::zip", "co::lon"])
def test_names_that_look_like_other_things(server: S3Server, name: str) -> None:
    """A folder named like a file, and names with the sign of fsspec's files in files, are read as any folder."""
    url = server.put_folder(SOURCE, f"named-{name[:2]}/{name}/orders-0").rpartition("/")[0]
    wanted = kseg("validate", "--format", "jsonl", SOURCE).stdout.splitlines()[-1]
    for path in (url, f"{url}/", url.rpartition("/")[0], f"{url}/orders-0"):
        done = invoke("validate", "--format", "jsonl", path)
        assert done.exit_code == 0, done.stderr
        assert json.loads(done.stdout.splitlines()[-1])["records"] == json.loads(wanted)["records"] > 0
    log = next(SOURCE.glob("*.log"))
    assert dumped(f"{url}/orders-0/{log.name}") == dumped(log) != []


def test_an_older_version_of_an_object_is_read(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Status and bytes are those of the version that the URL names, also if the store's answers do not name it."""
    named = S3FileSystem._info

    async def unnamed(*given: Any, **settings: Any) -> dict[str, Any]:
        return {**await named(*given, **settings), "VersionId": None}

    monkeypatch.setattr(S3FileSystem, "_info", unnamed)
    store = S3FileSystem(skip_instance_cache=True, endpoint_url=server.endpoint)
    store.call_s3("create_bucket", Bucket="versioned")
    store.call_s3("put_bucket_versioning", Bucket="versioned", VersioningConfiguration={"Status": "Enabled"})
    log = next(SOURCE.glob("*.log"))
    place = {"Bucket": "versioned", "Key": f"orders-3/{log.name}"}
    version = store.call_s3("put_object", Body=log.read_bytes(), **place)["VersionId"]
    store.call_s3("put_object", Body=b"", **place)
    url = f"s3://versioned/orders-3/{log.name}"
    assert dumped(f"{url}?versionId={version}") == dumped(log) != []


@pytest.mark.parametrize(("fault", "unlisted", "why"), [
    ("same token", ("list-type",), "the listing is not complete: the store gave the same token for the next part again"),
    ("no token", ("list-type",), "the listing is not complete: the store gave no token for the next part"),
    ("missing", ("list-type", "continuation-token"), "the store did not find a later part of the listing"),
    ("moved", ("list-type",), "Ask there (the bucket is in the region eu-west-1: set AWS_DEFAULT_REGION)"),
])  # fmt: skip
def test_a_listing_that_fails_has_a_reason(
    server: S3Server, fault: str, unlisted: tuple[str, ...], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listing ends, and the line is about the answer of the store, not about the code that reads it."""
    monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "1")
    for number in range(2):
        server.put(f"parts/orders-{number}/x", b"")
    server.fault, server.unlisted = fault, unlisted
    try:
        done = invoke("validate", "s3://backup/parts")
    finally:
        server.fault, server.unlisted = "throttled", ()
    assert (done.exit_code, done.stderr) == (2, f"kseg: s3://backup/parts: {why}\n")


@pytest.mark.parametrize("page", ["", "continuation-token"])
def test_a_prefix_that_cannot_be_listed_costs_its_partition(
    server: S3Server, page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a folder of a disk: the line names the prefix, and the others are read. The first page of one is not all of it."""
    monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "3")
    url = server.put_folder(SOURCE, "rights/orders-0").rpartition("/")[0]
    for number in (1, 2):
        server.put_folder(SOURCE, f"rights/orders-{number}")
    count = "select count(*) n from records"
    commands = {
        "validate": ["validate", "--format", "jsonl", url],
        "dump": ["dump", "--shallow", "--format", "jsonl", url],
        "transactions": ["transactions", url],
        "sql": ["sql", "--format", "jsonl", count, url],
    }
    server.fault, server.unlisted = "denied", ("list-type", "prefix=rights/orders-1/", page)
    try:
        done = {name: invoke(*command) for name, command in commands.items()}
    finally:
        server.fault, server.unlisted = "throttled", ()
    for name, one in done.items():
        assert (one.exit_code, f"kseg: {url}/orders-1: Access Denied" in one.stderr.splitlines()) == (2, True), (
            name,
            one,
        )
    whole = json.loads(kseg("validate", "--format", "jsonl", SOURCE).stdout.splitlines()[-1])
    assert json.loads(done["validate"].stdout.splitlines()[-1])["records"] == 2 * whole["records"] > 0
    assert {json.loads(line)["file"].split("/")[-2] for line in done["dump"].stdout.splitlines()} == {
        "orders-0",
        "orders-2",
    }


@pytest.mark.parametrize("fault", ["denied", "missing", "empty", "page of a proxy", "throttled"])
def test_an_object_that_cannot_be_read_is_no_finding(server: S3Server, fault: str) -> None:
    """A log and an index are alike: unread, with the reason, and a broker's disk is not to be checked."""
    url = server.put_folder(SOURCE, "unread/orders-3")
    server.fault = fault
    try:
        for suffix in (".log", ".index"):
            name = f"{48:020}{suffix}"
            server.fails = lambda method, path, name=name: path.endswith(name)  # type: ignore[misc]
            done = invoke("validate", "--jobs", "1", "--format", "jsonl", url)
            *rows, summary = map(json.loads, done.stdout.splitlines())
            (row,) = [row for row in rows if row.get("severity") != "info"]
            assert (row["rule"], row["file"]) == ("read-error", f"{url}/{name}")
            assert row["message"] not in ("", "None")
            assert (summary["unread"], summary["errors"], summary["verdict"]) == (1, 0, "undetermined")
            assert done.exit_code == 2
    finally:
        server.fails, server.fault = lambda method, path: False, "throttled"


@pytest.mark.parametrize("view", ["records", "batches", "segments", "findings", "transactions"])
def test_a_503_of_the_server_is_not_damage(server: S3Server, logs: Path, view: str) -> None:
    """One 503 is repeated, and the rows are all there. A server that answers 503 to all requests fails the query."""
    url = server.put_folder(logs / "orders-1", "busy/orders-1")
    wanted = rows(url, view=view)
    last = max(path.name for path in (logs / "orders-1").glob("*.log"))
    try:
        for mode in ("permissive", "dropmalformed", "failfast"):
            server.fails = failing(lambda method, path: method == "GET" and path.endswith(last), 1)
            assert rows(url, view=view, mode=mode) == wanted
        server.fails = failing(lambda method, path: method == "GET" and path.endswith(last))
        if view != "findings":  # each of its reads is repeated for several seconds
            with pytest.raises(KsegError, match=last):
                rows(url, view=view)
    finally:
        server.fails = lambda method, path: False


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault != "throttled"])
@pytest.mark.parametrize("times", [1, 1 << 30], ids=["once", "always"])
def test_a_wrong_answer_of_the_store_is_not_damage(server: S3Server, fault: str, times: int) -> None:
    """A request fails, once or from then on: the answer is that of a whole read, or an error with exit code 2.

    No partition is missing because the listing of its folder fails. An object that is missing was deleted meanwhile.
    """
    for number in range(2):
        server.put_folder(SOURCE, f"odd/orders-{number}")
    url = "s3://backup/odd"
    commands = (("validate", "--jobs", "1", "--format", "jsonl", url), ("dump", "--format", "jsonl", url))
    server.fault = fault
    try:
        for command in commands:
            server.fails = lambda method, path: False
            sound, _, requests = server.count(lambda command=command: invoke(*command))  # type: ignore[misc]
            assert sound.exit_code == 0
            for number in range(0, requests, 1 + requests // 8):
                left = iter(range(number))
                server.fails = failing(
                    lambda method, path, left=left: (  # type: ignore[misc]
                        next(left, None) is None and (fault != "missing" or path == "/backup")
                    ),
                    times,
                )
                done = invoke(*command)
                assert done.exit_code == 2 or (done.exit_code, done.stdout) == (0, sound.stdout), (number, done.output)
                assert "Traceback" not in done.output
        if fault in ("empty", "page"):  # also of the bucket itself, and of a second page
            server.fails = failing(lambda method, path: method == "GET", 1 << 30)
            assert "the answer to a listing is not one of S3" in invoke("validate", "s3://backup").stderr
    finally:
        server.fails, server.fault = lambda method, path: False, "throttled"


@pytest.mark.spark
def test_spark_reads_a_bucket(bucket: str, spark_settings: Mapping[str, str]) -> None:
    """Small segments share a task; topic and partition come from the key; executors get the credentials."""
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    from kseg.spark.jobs import launch

    # A JVM that other tests have started lacks the credentials in its environment.
    credentials = {f"spark.executorEnv.{name}": value for name, value in os.environ.items() if name.startswith("AWS_")}
    spark = launch.start("local[2]", {**spark_settings, **credentials})
    try:
        table = spark.read.format("kseg").option("columns", "topic,partition,offset,damage").load(BUCKET)
        found = sorted(tuple(row) for row in table.collect())
        count = len(local("dump", "--deep", "--format", "jsonl", SOURCE).splitlines())
        assert found == [("orders", partition, offset, None) for partition in (3, 4) for offset in range(count)]
        assert table.rdd.getNumPartitions() == 1  # small objects share a task
        assert table.where("partition = 4").count() == count
    finally:
        spark.stop()


def test_a_folder_in_a_bucket_cannot_be_compared_or_merged(bucket: str, tmp_path: Path) -> None:
    """Both commands read replicas on disks: the message says what to do."""
    url = f"{BUCKET}/orders-3"
    for arguments in (["diff", url, SOURCE], ["diff", SOURCE, BUCKET], ["repair", SOURCE, url, tmp_path / "new"]):
        done = kseg(*arguments)
        named = next(one for one in arguments if str(one).startswith("s3:"))
        message = f"kseg: {named} is a folder at a URL: give one of its segments, or copy it to a disk first\n"
        assert (done.returncode, done.stderr) == (2, message)
