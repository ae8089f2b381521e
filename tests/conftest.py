"""Set-up for every test: tiers, an environment that does not depend on who started the run, and a Spark session."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from shutil import disk_usage
from tempfile import TemporaryFile
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests.support.fuzzing import cases
from tests.support.rooms import BEGIN_FIRST
from tools.lab import maven

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A busy machine is no reason to fail, and two runs of one commit see the same examples.
settings.register_profile("kseg", deadline=None, derandomize=True, max_examples=cases(100))
settings.load_profile("kseg")

# A shell starts background jobs with SIGINT ignored, and all their children would ignore it, too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _set_files_in_memory() -> None:
    """Let pytest make its folders in memory if there is room for them: kseg fsyncs outputs, and a disk makes tests wait.

    Tests run programs there, and need extended attributes.
    """
    with suppress(OSError):
        if disk_usage(_MEMORY).free > 6 << 30 and not os.statvfs(_MEMORY).f_flag & os.ST_NOEXEC:
            with TemporaryFile(dir=_MEMORY) as file:
                os.setxattr(file.fileno(), "user.kseg", b"")
            os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", _MEMORY)


_MEMORY = "/dev/shm"
if sys.platform == "linux":
    _set_files_in_memory()

#: For sessions of tests: a JVM that stays small.
SPARK_SETTINGS = {"spark.driver.memory": "700m", "spark.sql.shuffle.partitions": "2"}


def pytest_configure(config: pytest.Config) -> None:
    """Let --dist loadfile keep the order of the files: by its own, those with one test come last, as long as it is."""
    config.option.loadscopereorder = False


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests that need Kafka's jars where these can't run, before ``-m`` selects. Long files are first."""
    order = {name: number for number, name in enumerate(BEGIN_FIRST)}
    items.sort(key=lambda item: order.get(item.path.name, len(order)))
    why = maven.missing()
    if why is None and find_spec("confluent_kafka") is None:
        why = "needs confluent-kafka"
    for item in items:
        if item.get_closest_marker("interop") and not item.get_closest_marker("spark"):
            item.add_marker("kafka")
        if why and item.get_closest_marker("kafka"):
            item.add_marker(pytest.mark.skip(reason=why))


@pytest.fixture(scope="session", autouse=True)
def _spark_starts_quickly(request: pytest.FixtureRequest) -> None:
    if any(item.get_closest_marker("spark") for item in request.session.items):
        from tests.support import spark_jvm

        spark_jvm.start_quickly()


@pytest.fixture(scope="session")
def spark_settings() -> dict[str, str]:
    """Return Spark's settings for tests. Skips where Spark finds no Java."""
    from kseg.errors import UsageError
    from kseg.spark.jobs.launch import check_java

    try:
        check_java(local=True)
    except UsageError as error:
        pytest.skip(str(error))
    return SPARK_SETTINGS


@pytest.fixture(scope="module")
def spark(spark_settings: dict[str, str]) -> Iterator[SparkSession]:
    """A session for each module, in which kseg is not registered. One JVM runs all sessions of a process."""
    from pyspark.sql import SparkSession

    from kseg.spark.jobs.launch import LOCAL_SETTINGS

    os.environ.update(PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1")
    builder = SparkSession.builder.master("local[2]").appName("kseg tests")
    for name, value in {
        **LOCAL_SETTINGS,
        **spark_settings,
        "spark.sql.session.timeZone": "America/Sao_Paulo",
        "spark.sql.execution.pyspark.udf.hideTraceback.enabled": "true",
    }.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """Return a function that mounts a file system with a size in bytes."""
    folder = tmp_path / "small"
    folder.mkdir()
    if os.geteuid():
        pytest.skip("mounting a tmpfs needs root")

    def mount(size: int) -> Path:
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
        done = subprocess.run(command, capture_output=True, check=False)
        if done.returncode:
            pytest.skip(f"no tmpfs can be mounted: {done.stderr.decode().strip()}")
        return folder

    yield mount
    if os.path.ismount(folder):
        subprocess.run(["umount", folder], check=True)
