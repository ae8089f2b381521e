"""``kseg report``: validation, recovery, transactions and stats in one page, for an incident."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from kseg.report.html import page, validation
from kseg.report.html.collected import Collected
from kseg.report.html.page import Section
from kseg.report.run import Run
from kseg.results import Summary


def write_html(
    found: Collected, total: Summary, others: Sequence[Section], out: TextIO, *, run: Run | None = None
) -> None:
    """Write the page: the validation with the ``others`` in it. What to do comes first, the list of all findings last."""
    sections = list(validation.sections(found, total))
    ordered = {one.name: one for one in (*sections, *others)}
    last = [ordered.pop(name) for name in ("segments", "content", "stats", "findings") if name in ordered]
    head = page.header(
        validation.verdict_level(total), total.verdict, validation.headline(found, total), validation.lead(total), run,
        "kseg report",
    )  # fmt: skip
    head += validation.tiles(total)
    page.write_page(out, f"kseg report: {total.verdict}", head, [*ordered.values(), *last], found.data())
