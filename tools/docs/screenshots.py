"""``python -m tools.docs.screenshots`` takes the pictures of HTML pages in ``docs/screenshots``. It needs Chromium.

They are not compared in tests: fonts differ between machines.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support.browser import Browser
from tools.docs import sandbox
from tools.docs.frozen import NOW

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "screenshots"


def main() -> None:
    """Write the pictures."""
    with tempfile.TemporaryDirectory() as temporary:
        home = sandbox.make(Path(temporary) / "home")
        command = [sys.executable, "-m", "tools.docs.frozen", "doctor", "kafka-logs", "--html", "incident.html"]
        environment = {**os.environ, "KSEG_DOCS_NOW": str(NOW.timestamp()), "PYTHONPATH": str(ROOT)}
        subprocess.run(command, cwd=home, env=environment, check=False, stderr=subprocess.DEVNULL)
        browser = Browser(Path(temporary) / "profile")
        browser.open(home / "incident.html", width=1100, height=1000)
        browser.screenshot(FOLDER / "report.png")
        browser.click(".partitions .cell.damaged:not(.side)")
        browser.screenshot(FOLDER / "segment.png")
        browser.close()


if __name__ == "__main__":
    main()
