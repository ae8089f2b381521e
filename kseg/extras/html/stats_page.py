"""``kseg stats --format html``: the total, plots, and a table of the partitions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TextIO

from kseg.commands.stats.levels import Level
from kseg.extras.html import page
from kseg.extras.html.page import PageSection, bars, columns, table
from kseg.report.spool import Run
from kseg.report.stats_report import COLUMNS, Extremes, by_hour, details, level_cells, outstanding
from kseg.report.stats_rows import stats_row
from kseg.report.tables import TableColumn
from kseg.schema import Row
from kseg.text import count_of, iso_time, size_text

_MOST_ROWS = 500
_HOUR_COLUMNS = 96
_TOTAL_COLUMNS = [TableColumn("subject"), TableColumn("total", text="wrap")]


def write_html(levels: Iterable[Level], top: int, out: TextIO, *, run: Run | None = None) -> None:
    """Write the page, with the ``top`` producers."""
    total: Row = {"lost_bytes": 0, "unread": 0}

    def noted() -> Iterator[Level]:
        for level in levels:
            total.update(level.stats.sums)
            yield level

    sections = stats_sections(noted(), top, plots=True)
    level, verdict, lead = "info", "stats", "What the segments contain."
    if total["unread"]:
        level, verdict = "undetermined", "incomplete"
        lead = f"{lead} {count_of(total['unread'], 'file')} could not be read."
    if total["lost_bytes"]:
        level = verdict = "damaged"
        lead = f"{lead} {count_of(total['lost_bytes'], 'damaged byte')} cannot be read."
    head = page.header(level, verdict, "Content in numbers", lead, run, "kseg stats")
    page.write_page(out, "kseg stats", head, sections)


def stats_sections(levels: Iterable[Level], top: int, *, plots: bool = False) -> list[PageSection]:
    """Read the levels to their end, and return the section about them, with ``plots`` or without."""
    extremes = Extremes()
    rows: list[list[str]] = []
    sizes: list[tuple[str, int]] = []
    left_out = 0
    last: Level | None = None
    for level in levels:
        last = level
        row = stats_row(level, 0)
        extremes.add(row)
        if level.level != "partition":
            continue
        sizes.append((str(level.path), row["bytes"]))
        if len(rows) < _MOST_ROWS:
            rows.append([*level_cells(row)])
        else:
            left_out += 1
    if last is None:
        return []
    total = stats_row(last, top)
    content = table(_TOTAL_COLUMNS, [*outstanding(total, extremes), *details(total)], "totals")
    content += _plots(total, sizes) if plots else ""
    content += page.folded(COLUMNS, rows, "partition") + page.more(left_out, "partition")
    return [PageSection("stats", "Content in numbers", content)]


def _plots(total: Row, sizes: list[tuple[str, int]]) -> str:
    producers = [(f"producer {one['producer_id']}", one["bytes"]) for one in total["producers"]["top"]]
    codecs = [(name, group["bytes"]) for name, group in total["compressions"].items()]
    keys = [(str(one["key"]), one["disk_bytes"]) for one in (total["keys"] or {"top": ()})["top"]]
    slots, _ = by_hour(total, _HOUR_COLUMNS)
    ends = (iso_time(slots[0][0]), iso_time(slots[-1][0])) if slots else ("", "")
    drawn = (
        columns("Bytes by hour", [(iso_time(time), size) for time, size in slots], size_text, ends) if slots else "",
        bars("Bytes by partition", sizes, size_text) if len(sizes) > 1 else "",
        bars("Bytes by codec", codecs, size_text),
        bars("Bytes by producer", producers, size_text),
        bars("Estimated bytes on disk by key", keys, size_text),
    )
    return f'<div class="plots">\n{"".join(drawn)}</div>\n'
