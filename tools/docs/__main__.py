"""``python -m tools.docs`` compares the documentation with the program, ``--write`` updates it.

``--write --spark`` also runs the examples with Spark, which ``make test-spark`` compares.
"""

from __future__ import annotations

import sys

from tools.docs import documents

if "--write" in sys.argv[1:]:
    documents.write(spark="--spark" in sys.argv)
elif differing := documents.differences():
    sys.exit(f"not what the program says: {', '.join(differing)}: run `make docs`")
