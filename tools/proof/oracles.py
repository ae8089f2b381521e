"""``python -m tools.proof.oracles [NAME...]``: run the tests of rows of the page of proof, and keep how many passed.

Their commands are in the rows; KSEG_FUZZ_CASES in a command is the number of cases of each random test.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from tools.proof.figures import figures, write_figure

_ROOT = Path(__file__).parents[2]


def measured(command: str) -> str:
    """Run the tests of a command and return its figure. Raises ValueError if pytest does not report how many passed."""
    words = shlex.split(command)
    settings = dict(word.split("=", 1) for word in words if "=" in word.split("/")[0])
    line = [sys.executable, *(word for word in words[len(settings) + 1 :])]
    done = subprocess.run(line, cwd=_ROOT, env=os.environ | settings, capture_output=True, text=True, check=False)
    counts = {name: int(count) for count, name in re.findall(r"(\d+) (passed|failed|error)", done.stdout)}
    if "passed" not in counts:
        raise ValueError(f"{command}: {done.stdout[-500:]}{done.stderr[-500:]}")
    cases = settings.get("KSEG_FUZZ_CASES")
    each = f", with {int(cases):,} cases for each random test" if cases else ""
    return f"{counts['passed']:,} tests passed, {counts.get('failed', 0) + counts.get('error', 0)} failed{each}"


def main() -> None:
    rows = {row.name: row for row in figures()}
    tests = [row.name for row in rows.values() if "pytest" in row.command]
    for name in sys.argv[1:] or tests:
        figure = measured(rows[name].command)
        write_figure(name, figure)
        print(name, figure, flush=True)


if __name__ == "__main__":
    main()
