"""Run ``kseg pipeline`` in a process that kills itself with SIGKILL at a step: ``python -m … STEP CONFIG KIND [OPTION...]``.

Each write of the state, each commit of a table and each end of a data file is a step before it and one after it. STEP is the
number of a step, or its name: ``after CHECKED``, ``before commit``, ``in load_parts`` for a job of Spark that runs these
calls. With step 0 the process prints the number of steps. Commits are small, so that a load has several.

Without arguments it is a server: it imports what a pipeline needs, and runs each request of stdin in a forked child.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any

import kseg.cli.main
from kseg.engine import imported
from kseg.extras.pipeline import data_files, load_rows, pipeline_state

#: Format -> the classes of tables whose commits are steps.
TABLES = {"iceberg": ("iceberg_table:IcebergTable",), "delta": ("delta_table:DeltaLakeTable",)}


class _Steps:
    def __init__(self, last: str) -> None:
        self.count, self.last = 0, last

    def step(self, name: str) -> None:
        self.count += 1
        if self.last in (str(self.count), name):
            _kill()

    def around(self, owner: Any, name: str) -> None:
        """Make a method a step before it and one after it."""
        real: Callable[..., Any] = getattr(owner, name)

        def call(*given: Any, **named: Any) -> Any:
            step = next((one["state"] for one in given if isinstance(one, dict) and "state" in one), name)
            self.step(f"before {step}")
            found = real(*given, **named)
            self.step(f"after {step}")
            return found

        setattr(owner, name, call)

    def in_jobs(self, owner: Any) -> None:
        """Make the jobs of a pool of Spark steps, while they run."""
        real: Callable[..., Any] = owner.run

        def run(pool: Any) -> None:
            ((work, _), _), *_ = pool._waiting
            last = self.last == f"in {work.__name__}"
            if last:
                threading.Timer(0.2, _kill).start()
            real(pool)
            if last:  # the job was faster: nobody has its results yet
                _kill()

        owner.run = run


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    steps, (path, kind, *options) = _Steps(sys.argv[1]), sys.argv[2:]
    load_rows.COMMIT_BYTES = 3000
    pipeline_state._RENEWAL = 3600  # a renewal on a slow machine would be a step
    steps.around(pipeline_state.PipelineState, "write")
    steps.around(data_files._OpenFile, "finish")
    for name in ("lake_table:ParquetTable", *TABLES.get(kind, ())):
        table = imported(f"kseg.extras.pipeline.{name}")
        steps.around(table, "commit")
        steps.around(table, "replace_rows")
    action = "replay" if options[:1] == ["replay"] else "run"
    if action == "replay":
        options[:1] = ["--jobs", "1"]
    elif options:
        steps.in_jobs(imported("kseg.spark.jobs.pool:SparkPool"))
    try:
        kseg.cli.main.main(["pipeline", action, *(options or ["--jobs", "1"]), path])
    finally:
        print(f"steps: {steps.count}")


#: What a pipeline imports, if it is installed. None of them starts a thread by that.
_IMPORTED = ("pyarrow.parquet", "pyarrow.dataset", "pyiceberg.catalog.sql", "pyiceberg.table", "deltalake", "s3fs")


def serve() -> None:
    """Read a request per line: arguments, environment and a file for the output. Write each exit code as a line."""
    for name in _IMPORTED:
        with suppress(ImportError):
            import_module(name)
    for line in sys.stdin:
        child = os.fork()
        if not child:
            sys.argv[1:], environment, output = json.loads(line)
            os.environ.clear()
            os.environ.update(environment)
            handle = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(handle, 1)
            os.dup2(handle, 2)
            main()
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    main() if sys.argv[1:] else serve()
