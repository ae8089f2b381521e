"""``python -m tools.proof.covered [TIER...]``: which lines and branches of kseg the tests run, as plain Python.

A tier is a target of the Makefile: ``test``, ``test-kafka``, ``test-spark``; all three without one. The processes that tests
start are measured, too, those of Spark among them; ``build/coverage`` keeps what was measured, so that tiers can run one by
one. Tests that bound time or memory may fail under the tracer; a failure is printed and no line is lost by it.
``--report`` runs no tests, and prints the rooms and the lines without a test. ``--write`` keeps the figure for the page of
proof.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from tools.proof.figures import write_figure

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "build" / "coverage"
TIERS = ("test", "test-kafka", "test-spark")
_SETTINGS = """
[run]
branch = True
source_pkgs = kseg
parallel = True
data_file = {folder}/data
patch = subprocess, _exit, fork
concurrency = thread, multiprocessing
disable_warnings = no-data-collected, module-not-imported, module-not-measured, couldnt-parse, already-imported
[report]
ignore_errors = True
exclude_also =
    if TYPE_CHECKING:
    assert_never\\(
"""


def measure(tier: str) -> None:
    """Run the tests of a tier, and add what they run to ``build/coverage``."""
    environment = {**os.environ, "KSEG_ENGINE": "python", "COVERAGE_RCFILE": str(_settings())}
    pytest = f"{sys.executable} -m coverage run -m pytest -q -n 2 -p no:cacheprovider"
    subprocess.run(["make", tier, f"PYTEST={pytest}"], cwd=ROOT, env=environment, check=False)
    _coverage("combine", "--append", "-q")


def rooms() -> dict[str, tuple[int, int]]:
    """Return what is covered and what there is, in lines and branches, for each folder of kseg, and ``kseg`` as a whole."""
    _coverage("json", "-q", "-o", str(FOLDER / "report.json"))
    found: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for path, file in json.loads((FOLDER / "report.json").read_bytes())["files"].items():
        summary = file["summary"]
        covered = summary["covered_lines"] + summary["covered_branches"]
        every = summary["num_statements"] + summary["num_branches"]
        for room in {"kseg", str(Path(path).parent)}:
            found[room] = (found[room][0] + covered, found[room][1] + every)
    return dict(found)


def _coverage(*arguments: str) -> None:
    command = [sys.executable, "-m", "coverage", *arguments, f"--rcfile={_settings()}"]
    subprocess.run(command, cwd=ROOT, check=True)


def _settings() -> Path:
    FOLDER.mkdir(parents=True, exist_ok=True)
    path = FOLDER / "coveragerc"
    path.write_text(_SETTINGS.format(folder=FOLDER))
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tiers", nargs="*", choices=[*TIERS, []], help="those of the Makefile")
    parser.add_argument("--report", action="store_true", help="without tests")
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    if not asked.report:
        if not asked.tiers:
            shutil.rmtree(FOLDER, ignore_errors=True)
        for tier in asked.tiers or TIERS:
            measure(tier)
    found = rooms()
    for room, (covered, every) in sorted(found.items()):
        print(f"{100 * covered / max(every, 1):5.1f} %  {every:6}  {room}")
    if asked.report:
        _coverage("report", "-m", "--skip-covered")
    covered, every = found["kseg"]
    figure = f"{100 * covered / every:.1f} % of {every:,} lines and branches run in the tests"
    print(figure)
    if asked.write:
        write_figure("covered", figure)


if __name__ == "__main__":
    main()
