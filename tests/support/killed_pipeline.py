"""Run ``kseg pipeline`` in a process that kills itself with SIGKILL at a step: ``python -m … STEP CONFIG``.

Each write of the state, each commit of a table and each end of a data file is a step before it and one after it. Without a
STEP the process prints the number of steps. Commits are small, so that a load has several.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import kseg.cli.main
from kseg.engine import imported
from kseg.extras.pipeline import data_files, load_rows, pipeline_state

#: Format -> the classes of tables whose commits are steps.
TABLES = {"iceberg": ("iceberg_table:IcebergTable",), "delta": ("delta_table:DeltaLakeTable",)}


class _Steps:
    def __init__(self, last: int) -> None:
        self.count, self.last = 0, last

    def step(self) -> None:
        self.count += 1
        if self.count == self.last:
            os.kill(os.getpid(), signal.SIGKILL)

    def around(self, owner: Any, name: str) -> None:
        """Make a method a step before it and one after it."""
        real: Callable[..., Any] = getattr(owner, name)

        def call(*given: Any, **named: Any) -> Any:
            self.step()
            found = real(*given, **named)
            self.step()
            return found

        setattr(owner, name, call)


def main() -> None:
    steps = _Steps(int(sys.argv[1]))
    load_rows.COMMIT_BYTES = 3000
    steps.around(pipeline_state.PipelineState, "write")
    steps.around(data_files._OpenFile, "finish")
    for name in ("lake_table:ParquetTable", *TABLES.get(sys.argv[3], ())):
        steps.around(imported(f"kseg.extras.pipeline.{name}"), "commit")
    try:
        kseg.cli.main.main(["pipeline", "run", "--jobs", "1", sys.argv[2]])
    finally:
        print(f"steps: {steps.count}")


if __name__ == "__main__":
    main()
