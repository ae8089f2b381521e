"""Let the JVMs of Spark start quickly in tests: the quick compiler, the plain collector, and an archive of their classes."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from tests.support.cli import PLAIN, ROOT
from tools.lab import class_archive, maven

#: For the executors of a cluster: each is a JVM.
EXECUTORS = ("--spark-conf", f"spark.executor.extraJavaOptions={' '.join(maven.QUICK)}")
#: What most tests do: Spark plans a source in Python, runs its tasks, and sorts and counts their rows.
_STATEMENT = "select key_size, count(*) from records group by 1 order by 1"


def start_quickly() -> None:
    """Set the environment for all drivers that this process and its children start."""
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        return
    jars = (Path(found.origin).parent / "jars").glob("*.jar")
    os.environ["SPARK_LAUNCHER_OPTS"] = " ".join(maven.QUICK)
    os.environ["SPARK_SUBMIT_OPTS"] = " ".join([*maven.QUICK, *class_archive.flags("spark", jars, _train)])


def _train(flags: list[str], _: Path) -> None:
    command = [sys.executable, "-m", "kseg", "sql", _STATEMENT, str(PLAIN), "--spark", "local[1]"]
    environment = {**os.environ, "SPARK_SUBMIT_OPTS": " ".join(flags)}
    # The JVM ends after the command, and writes the archive then: its stdout is open until it has.
    subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=False)
