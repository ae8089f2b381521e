"""Plots as SVG: panels of curves over a logarithmic axis."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 320, 200
LEFT, RIGHT, TOP, BOTTOM = 44, 18, 36, 30
COLUMNS = 2
COLOURS = (
    "#1f6feb", "#d1570b", "#2da44e", "#8250df", "#bf8700", "#cf222e", "#0a7ea4", "#7d4e00", "#57606a",
)  # fmt: skip
GREY = "#808890"


@dataclass(frozen=True, slots=True)
class Panel:
    """Curves by name: points (x, y) with x above 0. ``title`` names the x axis."""

    title: str
    curves: Mapping[str, Sequence[tuple[float, float]]]


def svg(panels: Sequence[Panel], unit: str) -> str:
    """Return an SVG of the panels, two per row. ``unit`` is that of all y axes, which begin at 0.

    A curve has one colour in all panels; there are at most as many names as COLOURS.
    """
    rows = -(-len(panels) // COLUMNS)
    colours = dict(zip(dict.fromkeys(name for panel in panels for name in panel.curves), COLOURS, strict=False))
    size = f"{WIDTH * COLUMNS} {HEIGHT * rows}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" font-family="sans-serif" font-size="10" '
        f'fill="{GREY}" role="img" aria-label="{unit} over {", ".join(panel.title for panel in panels)}">'
    ]
    for number, panel in enumerate(panels):
        x, y = number % COLUMNS * WIDTH, number // COLUMNS * HEIGHT
        parts += [f'<g transform="translate({x} {y})">', *_panel(panel, unit, colours), "</g>"]
    return "\n".join([*parts, "</svg>\n"])


def _panel(panel: Panel, unit: str, colours: Mapping[str, str]) -> Iterator[str]:
    points = [point for curve in panel.curves.values() for point in curve]
    low, high = (math.log10(bound(x for x, _ in points)) for bound in (min, max))
    top = _round_up(max(y for _, y in points))

    def place(x: float, y: float) -> tuple[float, float]:
        across = (math.log10(x) - low) / (high - low or 1)
        return (
            round(LEFT + across * (WIDTH - LEFT - RIGHT), 1),
            round(HEIGHT - BOTTOM - y / top * (HEIGHT - TOP - BOTTOM), 1),
        )

    yield f'<text x="{LEFT}" y="14" font-weight="bold">{unit} over {panel.title}</text>'
    for step in range(5):
        value = top * step / 4
        _, y = place(10**low, value)
        yield f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}" stroke="{GREY}" stroke-opacity="0.3"/>'
        yield f'<text x="{LEFT - 5}" y="{y + 3}" text-anchor="end">{value:g}</text>'
    for number in sorted({x for x, _ in points}):
        x, _ = place(number, 0)
        yield f'<text x="{x}" y="{HEIGHT - BOTTOM + 13}" text-anchor="middle">{_short(number)}</text>'
    legend = LEFT
    for name, curve in panel.curves.items():
        colour = colours[name]
        places = [place(x, y) for x, y in curve]
        line = " ".join(f"{x},{y}" for x, y in places)
        yield f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>'
        yield from (f'<circle cx="{x}" cy="{y}" r="2.5" fill="{colour}"/>' for x, y in places)
        yield f'<text x="{legend}" y="26" fill="{colour}">{name}</text>'
        legend += 5 * len(name) + 10


def _round_up(value: float) -> float:
    """Return the next of 1, 2, 4 or 10 times a power of ten."""
    power = 10 ** math.floor(math.log10(value)) if value > 0 else 1
    return next((factor * power for factor in (1.0, 2.0, 4.0) if value <= factor * power), 10.0 * power)


def _short(number: float) -> str:
    """Return a number with its unit: 1 Mi, 10 k."""
    for base, units in ((1024, ("", " Ki", " Mi", " Gi")), (1000, ("", " k", " M", " G"))):
        power = int(math.log(number, base) + 1e-9)
        if number == base**power * (whole := round(number / base**power)) and (base == 1000 or power > 1):
            return f"{whole}{units[power]}"
    return f"{number:g}"
