"""Small plots as SVG. Each has its numbers as text, so that it needs neither colours nor a pointer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from string import Template

from kseg.report.html.page import text
from kseg.text import count_of

_MOST_BARS = 10
#: Fewer values than this are bars: their columns would be too wide.
_FEWEST_COLUMNS = 6
_UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB")

_FIGURE = Template("<figure><figcaption>$title</figcaption>\n$content</figure>\n")
_BAR = Template("""<tr><th scope="row">$label</th><td class="bar"><svg viewBox="0 0 100 1" preserveAspectRatio="none" \
aria-hidden="true"><rect width="$share" height="1"/></svg></td><td class="number">$value</td></tr>
""")
_COLUMNS = Template("""<svg class="columns" role="img" aria-label="$label" viewBox="0 0 $count 100" \
preserveAspectRatio="none">$columns</svg>
<div class="ends"><span>$first</span><span>$last</span></div>
""")
_COLUMN = Template('<rect x="$x" y="$y" width="0.9" height="$height"><title>$title</title></rect>')


def size_text(count: float) -> str:
    """Return a size with a unit: ``512 bytes``, ``1.5 MiB``."""
    if count < 1024:
        return count_of(int(count), "byte")
    for unit in _UNITS:
        count /= 1024
        if count < 1024 or unit == _UNITS[-1]:
            break
    return f"{count:,.1f} {unit}"


def figure(title: str, content: str) -> str:
    """Return a plot with its title; empty without content."""
    return _FIGURE.substitute(title=text(title), content=content) if content else ""


def bars(
    title: str, values: Sequence[tuple[str, int]], shown: Callable[[int], str], *, largest_first: bool = True
) -> str:
    """Return a bar for each of the largest (name, value), and one for the sum of the others."""
    ordered = sorted(values, key=lambda pair: -pair[1]) if largest_first else list(values)
    largest, others = ordered[:_MOST_BARS], ordered[_MOST_BARS:]
    if others:
        largest.append((f"{len(others):,} others", sum(value for _, value in others)))
    longest = max((value for _, value in largest), default=0)
    rows = "".join(
        _BAR.substitute(
            label=text(name), share=f"{100 * value / longest:.1f}" if longest else 0, value=text(shown(value))
        )
        for name, value in largest
    )
    return figure(title, f'<table class="bars"><tbody>{rows}</tbody></table>\n' if rows else "")


def columns(title: str, values: Sequence[tuple[str, int]], shown: Callable[[int], str], ends: tuple[str, str]) -> str:
    """Return a histogram of (name, value), or bars of a few values. ``ends`` is the text below its ends."""
    highest = max((value for _, value in values), default=0)
    if not highest:
        return ""
    if len(values) < _FEWEST_COLUMNS:
        return bars(title, values, shown, largest_first=False)
    drawn = "".join(
        _COLUMN.substitute(
            x=at, y=f"{100 - 100 * value / highest:.1f}", height=f"{100 * value / highest:.1f}",
            title=text(f"{name}: {shown(value)}"),
        )
        for at, (name, value) in enumerate(values)
        if value
    )  # fmt: skip
    label = f"{title}: {count_of(len(values), 'column')} from {ends[0]} to {ends[1]}, at most {shown(highest)}"
    plot = _COLUMNS.substitute(
        label=text(label), count=len(values), columns=drawn, first=text(ends[0]), last=text(ends[1])
    )
    return figure(title, plot)
