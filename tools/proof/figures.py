"""The figures of the page of proof: one row per promise, in a file that the measuring tools write."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

FILE = Path(__file__).with_name("figures.jsonl")


class Figure(NamedTuple):
    """What is promised, the test that shows it, what was measured, the day, and the command to repeat it."""

    name: str
    promise: str
    test: str
    figure: str
    date: str
    command: str


def figures() -> list[Figure]:
    """Return all figures, in the order of the file."""
    lines = FILE.read_text(encoding="utf-8").splitlines()
    return [Figure(**json.loads(line)) for line in lines]


def report(name: str, figure: str) -> None:
    """Print the figure of a tool, and keep it if the command line has ``--write``."""
    print(figure)
    if "--write" in sys.argv:
        write_figure(name, figure)


def write_figure(name: str, figure: str) -> None:
    """Replace the figure of a row, and set its date to today (UTC). Raises KeyError for a name without a row."""
    rows = {row.name: row for row in figures()}
    rows[name] = rows[name]._replace(figure=figure, date=datetime.now(UTC).date().isoformat())
    lines = (json.dumps(row._asdict(), ensure_ascii=False) for row in rows.values())
    FILE.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
