"""The lines and modules of each room, next to those of the last release: ``python -m tools.sizes``.

``--release`` stores the present numbers in ``tools/sizes.json``, for comparison until the next release. Before the first
release it has the numbers from before the modules were merged.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
STORED = Path(__file__).with_suffix(".json")


def sizes() -> dict[str, list[int]]:
    """Return the lines and the number of modules of each room, ``kseg`` and the other folders with Python files."""
    lines: Counter[str] = Counter()
    modules: Counter[str] = Counter()
    for folder in ("kseg", "tests", "tools", "bench"):
        for path in (ROOT / folder).rglob("*.py"):
            room = str(path.parent.relative_to(ROOT)) if folder == "kseg" else folder
            lines[room] += path.read_text(encoding="utf-8").count("\n")
            modules[room] += 1
    return {room: [lines[room], modules[room]] for room in sorted(lines)}


def table(now: dict[str, list[int]], before: dict[str, list[int]]) -> str:
    """Return a line for each room and one for all of ``kseg``: lines, modules, and by how much they have changed."""
    rooms = [_line(room, now.get(room, [0, 0]), before.get(room, [0, 0])) for room in sorted({*now, *before})]
    head = f"{'room':34}{'lines':>8}{'change':>8}{'modules':>9}{'change':>8}"
    return "\n".join([head, *rooms, _line("all of kseg", _whole(now), _whole(before))])


def _whole(rooms: dict[str, list[int]]) -> list[int]:
    return [sum(counts[n] for room, counts in rooms.items() if room.startswith("kseg")) for n in (0, 1)]


def _line(room: str, now: list[int], before: list[int]) -> str:
    return f"{room:34}{now[0]:8,}{now[0] - before[0]:+8,}{now[1]:9,}{now[1] - before[1]:+8,}"


if __name__ == "__main__":
    if "--release" in sys.argv[1:]:
        STORED.write_text(json.dumps(sizes(), indent=1) + "\n", encoding="utf-8")
    print(table(sizes(), json.loads(STORED.read_text(encoding="utf-8"))))
