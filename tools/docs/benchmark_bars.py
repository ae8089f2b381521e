"""The answer of the page of benchmarks: a sentence and ten bars, made of its table."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape
from pathlib import Path
from statistics import median
from typing import NamedTuple

PAGE = Path(__file__).parents[2] / "docs" / "benchmarks.md"
#: The program that an operator has without kseg.
PEER = "kafka-dump-log"
#: The cases of the bars: commands and codecs, and the one with the smallest figure.
CASES = (
    "validate none", "validate gzip", "validate snappy", "validate lz4", "validate zstd", "validate transactions",
    "validate records-100kb", "dump jsonl", "dump text", "grep lz4",
)  # fmt: skip
_LABEL, _BAR, _ROW, _TOP = 180, 330, 24, 34
_COLOUR = "#0f766e"


class Figure(NamedTuple):
    """How many times as fast as another program kseg is in a case."""

    case: str
    peer: str
    ours: str
    theirs: str
    times: float


def figures() -> list[Figure]:
    """Return the figures of the table that compare kseg with other programs."""
    cells = ([cell.strip() for cell in line.split("|")[1:-1]] for line in PAGE.read_text(encoding="utf-8").splitlines())
    return [
        Figure(row[0], row[3].partition(",")[0], row[2], row[4], float(found[1]))
        for row in cells
        if len(row) == 10 and row[1] in ("kseg", "grep") and (found := re.fullmatch(r"([0-9.]+)x as fast", row[5]))
    ]


def sentence() -> str:
    """Return the answer in words: the range and the median, also where other programs are faster."""
    parts = []
    for peer in (PEER, "franz-go", "aiokafka"):
        times = [figure.times for figure in figures() if figure.peer == peer]
        parts.append(
            f"{min(times):.1f} to {max(times):.1f} times as fast as {peer} (median {median(times):.1f}, {len(times)} cases)"
        )
    return f"kseg is {', '.join(parts[:-1])}, and {parts[-1]}, on the machine of the table.\n"


def bars() -> str:
    """Return the SVG of the bars. Raises KeyError if the table lacks a case."""
    found = {figure.case: figure for figure in figures() if figure.peer == PEER}
    longest = max(found[case].times for case in CASES)
    width, height = _LABEL + _BAR + 150, _TOP + _ROW * len(CASES) + 8
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'role="img" font-family="sans-serif" font-size="13" fill="#808890" '
        f'aria-label="How many times as fast as {PEER} kseg is">',
        f'<text x="0" y="18" font-weight="bold">kseg, times as fast as {PEER}</text>',
        *(line for at, case in enumerate(CASES) for line in _bar(found[case], _TOP + _ROW * at, longest)),
        "</svg>",
        "",
    ])  # fmt: skip


def _bar(figure: Figure, top: int, longest: float) -> Iterator[str]:
    size = _BAR * figure.times / longest
    yield f'<text x="0" y="{top + 14}">{escape(figure.case)}</text>'
    yield f'<rect x="{_LABEL}" y="{top + 2}" width="{size:.1f}" height="16" rx="2" fill="{_COLOUR}"/>'
    text = f"{figure.times:g}x: {figure.ours}, {figure.theirs}"
    yield f'<text x="{_LABEL + size + 6:.1f}" y="{top + 14}">{text}</text>'
