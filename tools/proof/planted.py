"""``python -m tools.proof.planted [NAME...]``: faults planted in a copy of kseg, which the machinery must find.

A search that finds nothing proves little unless it finds what is there. Each fault is one changed line. The fuzzers, the
worlds or the limits run over the copy, as plain Python, until one of their cases fails. ``--write`` keeps the seconds that
each took for the page of proof.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from tools.proof.figures import report
from tools.proof.mutants import copy_tree

#: The line of a tool on a case that fails.
_FAILS = re.compile(r"TOO MUCH$|--world \d|^[a-z-]+ \d+: ")
#: Seconds after which a fault counts as not found.
_PATIENCE = 3600


class Fault(NamedTuple):
    """A line of a module, what is planted instead of it, and the arguments of the tool that looks for it."""

    path: str
    old: str
    new: str
    tool: str


FAULTS = {
    "wrong-verdict": Fault(
        "kseg/format/record/framing.py",
        "if batch_crc(view, at, at + batches.size[row], batches.magic[row])",
        "if batches.size[row] < 200 and batch_crc(view, at, at + batches.size[row], batches.magic[row])",
        "worlds 40000 0 --no-shrink",
    ),
    "lost-batch": Fault(
        "kseg/commands/repair/kept_batches.py",
        "if self._out is not None:\n            self._out.write(data)",
        "if self._out is not None and stop - row != 2:\n            self._out.write(data)",
        "worlds 40000 0 --no-shrink",
    ),
    "wrong-record": Fault(
        "kseg/format/record/default_records.py",
        "base_timestamp = batches.base_timestamp[row]\n        # The sum",
        "base_timestamp = batches.base_timestamp[row] + (count == 5)\n        # The sum",
        "worlds 40000 0 --no-shrink",
    ),
    "read-error-as-damage": Fault(
        "kseg/format/storage/source.py",
        'raise UnreadableError(f"{path}: {error.strerror or error}") from error\n    try:',
        "return None\n    try:",
        "worlds 40000 0 --no-shrink",
    ),
    "out-of-bounds": Fault(
        "kseg/format/record/default_records.py",
        "if at < 0 or length < MIN_RECORD_SIZE - 1 or length > end - at:\n            return 0",
        "if at < 0 or length > end - at:\n            return 0",
        "fuzz 3000",
    ),
    "hang": Fault(
        "kseg/format/segment/resync_search.py",
        "self.at = max(self.at, head + 1)",
        "self.at = max(self.at, head)",
        "fuzz 3000",
    ),
    "memory": Fault(
        "kseg/extras/serialization/json_values.py",
        "MOST_ITEMS = 500_000",
        "MOST_ITEMS = 500_000_000",
        "limits json-items binary-items protobuf-items",
    ),
}


def seconds_until_found(name: str) -> float | None:
    """Return how long the tool of a fault runs until a case fails, None if it ends without one, or runs too long."""
    fault = FAULTS[name]
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "copy")
        copy_tree(copy)
        path = copy / fault.path
        text = path.read_text(encoding="utf-8")
        if text.count(fault.old) != 1:
            sys.exit(f"{name}: its line is not in {fault.path} any more, or not once")
        path.write_text(text.replace(fault.old, fault.new), encoding="utf-8")
        tool, *arguments = fault.tool.split()
        environment = {**os.environ, "KSEG_ENGINE": "python", "PYTHONPATH": str(copy), "PYTHONUNBUFFERED": "1"}
        began = time.monotonic()
        with subprocess.Popen(
            ["timeout", str(_PATIENCE), sys.executable, "-m", f"tools.proof.{tool}", *arguments],
            cwd=copy, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True,
        ) as search:  # fmt: skip
            assert search.stdout is not None
            for line in search.stdout:
                if _FAILS.search(line):
                    os.killpg(search.pid, signal.SIGKILL)
                    print(line.strip()[:200])
                    return time.monotonic() - began
    return None


def main() -> None:
    names = [name for name in sys.argv[1:] if name != "--write"] or list(FAULTS)
    found = {}
    for name in names:
        found[name] = seconds_until_found(name)
        print(f"{name}: {'not found' if found[name] is None else f'found after {found[name]:.0f} s'}", flush=True)
    each = ", ".join(f"{name} {'not found' if one is None else f'{one:.0f} s'}" for name, one in found.items())
    report("planted", f"{sum(one is not None for one in found.values())} of {len(found)} planted faults found: {each}")


if __name__ == "__main__":
    main()
