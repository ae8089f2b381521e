"""kseg at a fixed time: ``python -m tools.docs.frozen ARGUMENTS`` runs it at the time in KSEG_DOCS_NOW (epoch seconds)."""

from __future__ import annotations

import os
import platform
import sys
import time
from datetime import UTC, datetime

#: The time of all examples that name no other.
NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
#: The time at which the files of the examples were written: before the time of each example.
WRITTEN = datetime(2023, 11, 14, 23, tzinfo=UTC).timestamp()


def freeze(now: float) -> None:
    """Stop the clock of this process, name its host, and show no progress bars, which depend on the machine's speed."""
    from kseg.cli import messages

    platform.node = lambda: "broker-1"
    time.time = lambda: now
    time.time_ns = lambda: int(now * 1e9)
    messages.DELAY = 1e9


if __name__ == "__main__":
    from kseg.cli.main import main

    freeze(float(os.environ["KSEG_DOCS_NOW"]))
    sys.argv[0] = "kseg"
    main(prog_name="kseg")
