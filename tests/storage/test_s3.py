"""Segments in an object store: a real server of S3's protocol on loopback, from the command line and from Spark."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping

import pytest

from tests.support.cli import kseg
from tests.support.fixtures import SEGMENTS

pytest.importorskip("s3fs", reason="s3fs is not installed")
pytest.importorskip("flask_cors", reason="moto's server is not installed")

SOURCE = SEGMENTS / "4.3.0-v2-none-segments"
BUCKET = "s3://backup/cluster.a"


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """A log dir in a bucket: two partitions with side files; credentials and address as AWS's tools expect them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    endpoint = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    names = {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in names.items():
            patch.setenv(name, value)
        try:
            _until_up(server, endpoint)
            _put(f"{endpoint}/backup")
            for partition in (3, 4):
                for file in sorted(SOURCE.iterdir()):
                    _put(f"{endpoint}/backup/cluster.a/orders-{partition}/{file.name}", file.read_bytes())
            yield endpoint
        finally:
            server.terminate()
            server.wait(30)


def _until_up(server: subprocess.Popen[bytes], endpoint: str) -> None:
    until = time.monotonic() + 90
    while True:
        assert server.poll() is None
        try:
            urllib.request.urlopen(endpoint, timeout=5).close()
            return
        except OSError:
            assert time.monotonic() < until
            time.sleep(0.2)


def _put(url: str, data: bytes = b"") -> None:
    # Under urllib's default type the server waits for a form.
    headers = {"Content-Type": "application/octet-stream"}
    urllib.request.urlopen(urllib.request.Request(url, data, headers, method="PUT"), timeout=60).close()


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


@pytest.mark.spark
def test_spark_reads_a_bucket(bucket: str, spark_settings: Mapping[str, str]) -> None:
    """Each segment is read by one task; topic and partition come from the key; executors get the credentials."""
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
        assert table.rdd.getNumPartitions() == 2 * len(list(SOURCE.glob("*.log")))
        assert table.where("partition = 4").count() == count
    finally:
        spark.stop()
