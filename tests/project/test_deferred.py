"""Modules run at their first use: once, also if several threads use them first."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cli import ROOT, SEGMENTS

#: Imports kseg anew, as plain Python, and uses it from eight threads at once; argv: a partition, the number of times.
PROGRAM = """
import sys, threading
folder, times = sys.argv[1], int(sys.argv[2])
sys.setswitchinterval(1e-5)
expected = None
for _ in range(times):
    for name in [name for name in sys.modules if name.split(".")[0] == "kseg"]:
        del sys.modules[name]
    import kseg
    start, results = threading.Barrier(8), []
    def use(number):
        start.wait()
        try:
            if number % 2:
                results.append(kseg.validate(folder).summary.batches)
            else:
                results.append(len({batch.base_offset for batch in kseg.open_partition(folder).batches()}))
        except BaseException as error:
            results.append(repr(error))
    threads = [threading.Thread(target=use, args=(number,)) for number in range(8)]
    for thread in threads: thread.start()
    for thread in threads: thread.join(60)
    expected = expected or results[0]
    assert len(results) == 8 and set(results) == {expected} and isinstance(expected, int), results
print(expected)
"""


@pytest.mark.slow
@pytest.mark.fuzz
def test_eight_threads_can_be_the_first_users() -> None:
    """A thread never sees a module that another one is still running, and they don't wait for each other for ever."""
    times = str(max(5, int(os.environ.get("KSEG_FUZZ_CASES", "0")) // 10))
    command = [sys.executable, "-c", PROGRAM, str(SEGMENTS / "4.3.0-v2-none-transactions"), times]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=600, cwd=ROOT, env={**os.environ, "KSEG_ENGINE": "python"}
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) > 0


def test_a_module_that_fails_fails_at_each_use(tmp_path: Path) -> None:
    """The first error is not hidden by a module that ran in part."""
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text('"""A package."""\n')
    (tmp_path / "package" / "broken.py").write_text("begun = True\nraise ValueError('broken')\n")
    program = (
        "import sys; from kseg.engine import install\n"
        f"sys.path.insert(0, {str(tmp_path)!r}); install({str(tmp_path)!r}, extensions=True)\n"
        "from package import broken\n"
        "for name in ('begun', 'other'):\n"
        "    try: getattr(broken, name)\n"
        "    except ValueError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert (done.stdout, done.stderr) == ("broken\nbroken\n", "")
