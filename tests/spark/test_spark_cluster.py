"""On a cluster as in the documentation: executors without kseg get it from an archive, and read their files."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.support.spark_jvm import EXECUTORS
from tests.support.writer import Writer

pyspark = pytest.importorskip("pyspark", reason="pyspark is not installed")

from kseg.errors import UsageError  # noqa: E402
from kseg.spark.jobs.launch import check_java  # noqa: E402

pytestmark = pytest.mark.spark
ROOT = Path(__file__).parents[2]
BATCHES = 4000


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an interpreter as on a machine of a cluster: it has pyarrow, but neither kseg nor its codecs."""
    folder = tmp_path_factory.mktemp("machine")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    site = sysconfig.get_path("purelib", vars={"base": str(folder)})
    pyarrow = Path(importlib.import_module("pyarrow").__file__ or "").parent
    for original in (pyarrow, pyarrow.with_name("pyarrow.libs")):
        if original.exists():
            (Path(site) / original.name).symlink_to(original)
    # Workers of a local-cluster write to Spark's own folder: this one consists of links.
    (folder / "spark").mkdir()
    for part in Path(pyspark.__file__).parent.iterdir():
        if part.name != "work":
            (folder / "spark" / part.name).symlink_to(part)
    python = folder / "bin" / "python"
    has_kseg = subprocess.run([python, "-c", "import kseg"], cwd=folder, env={}, capture_output=True, check=False)
    assert b"No module named 'kseg'" in has_kseg.stderr
    return python


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make the folder of ``pip install --target kseg_env`` from the installed packages: no network, no compiler."""
    folder = tmp_path_factory.mktemp("packages") / "kseg_env"
    folder.mkdir()
    for name in ("kseg", "crc32c", "lz4", "snappy", "cramjam", "zstandard"):
        found = find_spec(name)
        assert found is not None
        assert found.origin is not None
        (folder / name).symlink_to(Path(found.origin).parent)
    with tarfile.open(folder.with_suffix(".tar.gz"), "w:gz", compresslevel=1, dereference=True) as tar:
        tar.add(folder, arcname=".", filter=lambda entry: None if "__pycache__" in entry.name else entry)
    return folder


def environment(python: Path) -> dict[str, str]:
    try:
        check_java(local=True)
    except UsageError as error:
        pytest.skip(str(error))
    foreign = "PYTHON", "SPARK", "KSEG"
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(foreign) or name in ("SPARK_LAUNCHER_OPTS", "SPARK_SUBMIT_OPTS")
    }
    return {
        **clean,
        "PYSPARK_PYTHON": str(python),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_HOME": str(python.parents[1] / "spark"),
    }


@contextmanager
def standalone(folder: Path, python: Path) -> Iterator[str]:
    """Start a master and two workers as processes, on loopback."""
    home = python.parents[1] / "spark"
    started: list[subprocess.Popen[bytes]] = []

    def start(what: str, *arguments: str) -> Path:
        log = folder / f"{what}-{len(started)}.log"
        command: list[str | Path] = [home / "bin" / "spark-class", f"org.apache.spark.deploy.{what}", *arguments]
        with log.open("wb") as out:
            started.append(
                subprocess.Popen(command, stdout=out, stderr=out, env=environment(python), start_new_session=True)
            )
        return log

    def reported(log: Path, pattern: str) -> str:
        until = time.monotonic() + 120
        while time.monotonic() < until:
            if found := re.search(pattern, log.read_text(encoding="utf-8", errors="replace")):
                return found[0]
            assert started[-1].poll() is None, log.read_text(encoding="utf-8", errors="replace")
            time.sleep(0.2)
        raise AssertionError(log.read_text(encoding="utf-8", errors="replace"))

    try:
        address = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        master = reported(start("master.Master", *address), r"spark://127\.0\.0\.1:\d+")
        for i in range(2):
            work = ("--cores", "1", "--memory", "600m", "--work-dir", str(folder / f"work-{i}"))
            reported(start("worker.Worker", *address, *work, master), "Successfully registered with master")
        yield master
    finally:
        for process in started:
            os.killpg(process.pid, signal.SIGTERM)
        for process in started:
            process.wait(300)


@pytest.mark.parametrize("kind", ["local-cluster", "standalone"])
def test_executors_without_kseg_get_it_from_the_archive(
    kind: str, tmp_path: Path, python: Path, packages: Path
) -> None:
    """The documented recipe with two executors: a table of several tasks, a stream to its end, and the origin of kseg."""
    writer = Writer(tmp_path / "logs" / "orders-3", segment_batches=1500)
    writer.append(BATCHES)
    if kind == "standalone":
        with standalone(tmp_path, python) as master:
            reported = run(master, tmp_path, python, packages)
    else:
        reported = run("local-cluster[2,1,600]", tmp_path, python, packages)
    count = 4 * BATCHES
    assert reported["read"] == reported["streamed"] == [count * (count - 1) // 2, count]
    assert reported["tasks"] > 3
    assert {Path(path).parent.parent.name for path in reported["kseg"]} == {"kseg_env"}


COMMANDS = (
    ("validate",),
    ("sql", "SELECT count(*) AS found, sum(offset) AS offsets FROM records", "--format", "jsonl"),
)


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_a_command_sends_kseg_to_executors_that_lack_it(words: tuple[str, ...], tmp_path: Path, python: Path) -> None:
    """On a cluster whose machines have Python and Spark only, a command says what it says on one machine."""
    Writer(tmp_path / "logs" / "orders-3", segment_batches=300).append(1000)
    shown = []
    for spark in ((), ("--spark", "local-cluster[2,1,600]", "--spark-conf", MEMORY, *EXECUTORS)):
        command = [sys.executable, "-m", "kseg", *words, str(tmp_path / "logs"), *spark]
        done = subprocess.run(
            command, cwd=ROOT, env=environment(python), capture_output=True, text=True, timeout=200, check=False
        )
        assert done.returncode == 0, (command, done.stdout[-2000:], done.stderr[-6000:])
        shown.append(done.stdout)
    assert shown[0] == shown[1] != ""


#: Less than an executor takes by default: two of them share a small machine.
MEMORY = "spark.executor.memory=512m"


def run(master: str, folder: Path, python: Path, packages: Path) -> dict[str, Any]:
    """Run the job from a driver that has kseg on its path: Spark plans there, with the interpreter of PYSPARK_PYTHON."""
    archive = packages.with_suffix(".tar.gz")
    command: list[str | Path] = [
        sys.executable,
        "-m",
        "tests.support.cluster_job",
        master,
        archive,
        folder / "logs",
        folder / "target",
    ]
    driver = {**environment(python), "PYTHONPATH": f"{packages}:{ROOT}"}
    done = subprocess.run(command, cwd=ROOT, env=driver, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr[-6000:]
    reported: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return reported


#: Runs a command where neither the host name nor localhost resolves, as in some containers.
NAMELESS = ["unshare", "--map-root-user", "--uts", "--mount", "sh", "-c",
            'hostname nosuchhost && mount --bind /dev/null /etc/hosts && exec "$@"', "sh"]  # fmt: skip


def test_a_machine_need_not_resolve_its_own_name() -> None:
    """A local master listens on loopback. Protects against ``gaierror`` from pyspark and UnknownHostException from Java."""
    if not shutil.which("unshare") or subprocess.run([*NAMELESS, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no namespaces for a machine without names")
    environment(Path(sys.executable))  # skips without Java
    log = ROOT / "fixtures" / "segments" / "4.3.0-v2-none" / "00000000000000000000.log"
    command = [*NAMELESS, sys.executable, "-m", "kseg", "validate", "--spark", "local[1]", str(log)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("0 bytes lost\n")
