"""The plots of the content: bytes by partition, codec, time, batch size and producer."""

from __future__ import annotations

from kseg.report.html.collected import Collected
from kseg.report.html.plots import bars, size_text


def plots(found: Collected) -> str:
    """Return the plots of what was read. With a single partition, its bytes are not a plot."""
    sizes = [(one.name, one.bytes) for one in found.partitions.values() if one.bytes]
    drawn = [bars("Bytes by partition", sizes, size_text) if len(sizes) > 1 else ""]
    shown = "".join(drawn)
    return f'<div class="plots">\n{shown}</div>\n' if shown else ""
