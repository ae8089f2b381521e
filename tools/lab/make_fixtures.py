"""`python -m tools.lab.make_fixtures [NAME…]`: write `fixtures/segments/` with real brokers and Kafka's own reader.

A NAME is a pattern of folder names (`4.3.0-v2-*`): only those are replaced. Needs Java, Maven and a few minutes.
"""

from __future__ import annotations

import fnmatch
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tools.lab import internal_fixtures, maven, modern_fixtures, old_fixtures, oracle

FIXTURES = maven.ROOT / "fixtures" / "segments"
# No pattern that begins with one of these needs the old brokers, which take most of the time.
MODERN = tuple(modern_fixtures.SCENES)


def main(patterns: Sequence[str]) -> int:
    """Makes the folders aside, lets Kafka's reader judge them, and replaces those that match a pattern (all without one)."""
    if (why := maven.missing()) is not None:
        print(why, file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="kseg-fixtures-") as work:
        out = Path(work)
        modern_fixtures.make(out)
        internal_fixtures.make(out)
        if not patterns or not all(pattern.startswith(MODERN) for pattern in patterns):
            old_fixtures.make(out)
        wanted = [
            folder
            for folder in sorted(out.iterdir())
            if not patterns or any(fnmatch.fnmatch(folder.name, pattern) for pattern in patterns)
        ]
        oracle.write_expectations(wanted)
        for folder in wanted:
            shutil.rmtree(FIXTURES / folder.name, ignore_errors=True)
            shutil.copytree(folder, FIXTURES / folder.name)
            print(folder.name)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
