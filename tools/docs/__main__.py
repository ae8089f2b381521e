"""``python -m tools.docs`` compares the documentation with the program, ``--write`` updates it."""

from __future__ import annotations

import sys

from tools.docs import documents

if sys.argv[1:] == ["--write"]:
    documents.write()
elif differing := documents.differences():
    sys.exit(f"not what the program says: {', '.join(differing)}: run `make docs`")
