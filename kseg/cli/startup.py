"""Settings of the process that save start-up time. The command line calls them; importing kseg changes nothing."""

from __future__ import annotations

import gc
import sys

#: Allocations between two collections. Imported modules stay and the loops leave no cycles: collecting every 700
#: objects, Python's default, takes a tenth of a short run.
GC_THRESHOLD = 50_000


def collect_rarely() -> None:
    """Raise the threshold of the garbage collector."""
    gc.set_threshold(GC_THRESHOLD)


def skip_final_collection() -> None:
    """Keep the interpreter from traversing all imported modules before it exits."""
    if "_duckdb" not in sys.modules:  # it prints those of its objects that are not freed
        gc.freeze()
