"""``--spark sc://…``: a real server of Spark Connect, whose client needs neither Java nor the classes of Spark."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support import pipelines
from tests.support.cli import ROOT, kseg
from tests.support.damage import flip

pyspark = pytest.importorskip("pyspark", reason="pyspark is not installed")

_HOME = Path(pyspark.__file__).parent
pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not list(_HOME.glob("jars/spark-connect_*.jar")), reason="pyspark has no Connect server"),
    pytest.mark.skipif(find_spec("grpc_status") is None, reason="needs pyspark[connect]"),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, spark_settings: dict[str, str]) -> Iterator[str]:
    """Start a server on loopback; return its URL."""
    folder = tmp_path_factory.mktemp("connect")
    settings = {**spark_settings, "spark.connect.grpc.binding.address": "127.0.0.1",
                "spark.connect.grpc.binding.port": "0", "spark.driver.host": "127.0.0.1",
                "spark.ui.enabled": "false"}  # fmt: skip
    command = [str(_HOME / "bin" / "spark-submit"), "--master", "local[2]", "--class",
               "org.apache.spark.sql.connect.service.SparkConnectServer"]  # fmt: skip
    for name, value in settings.items():
        command += ["--conf", f"{name}={value}"]
    env = {**os.environ, "SPARK_HOME": str(_HOME), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable,
           "PYTHONPATH": str(ROOT)}  # fmt: skip
    log = folder / "log"
    with log.open("w") as out:
        process = subprocess.Popen(
            [*command, "spark-internal"], cwd=folder, env=env, stdout=out, stderr=out, start_new_session=True
        )
    try:
        until = time.monotonic() + 120
        while not (found := re.search(r"server started at: 127\.0\.0\.1:(\d+)", log.read_text())):
            assert process.poll() is None, log.read_text()[-2000:]
            assert time.monotonic() < until, log.read_text()[-2000:]
            time.sleep(0.3)
        yield f"sc://127.0.0.1:{found[1]}"
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()


@pytest.mark.parametrize(
    "command",
    [
        ("validate", "--format", "jsonl"),
        ("sql", "--format", "jsonl", "select topic, partition, offset, value from records order by partition, offset"),
        ("sql", "--format", "jsonl", "--recipe", "gaps"),
    ],
)
def test_the_output_is_that_of_one_machine(server: str, tmp_path: Path, command: tuple[str, ...]) -> None:
    """Rows, verdicts, damage and exit codes."""
    for partition in range(3):
        ignored = shutil.ignore_patterns("ORIGIN", "expect*")
        shutil.copytree(pipelines.TRANSACTIONS, tmp_path / f"orders-{partition}", ignore=ignored)
    log = min((tmp_path / "orders-1").glob("*.log"))
    log.write_bytes(flip(log.read_bytes(), 300))
    here, there = kseg(*command, tmp_path), kseg(*command, "--spark", server, tmp_path)
    assert here.returncode == 1
    assert (there.returncode, there.stdout) == (here.returncode, here.stdout), there.stderr
    assert sorted(there.stderr.splitlines()) == sorted(here.stderr.splitlines())
