"""``kseg report``: validation, recovery, transactions and stats in one page, for an incident."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TextIO

from kseg.extras.html import page, validation_page
from kseg.extras.html.collected import Collected
from kseg.extras.html.page import PageSection
from kseg.report.spool import Run
from kseg.results import Summary


@dataclass(frozen=True, slots=True)
class IncidentPart:
    """The sections of another command, and the sentence about its result; empty without one."""

    sections: Sequence[PageSection] = ()
    answer: str = ""


def write_html(
    found: Collected, total: Summary, parts: Sequence[IncidentPart], out: TextIO, *, run: Run | None = None
) -> None:
    """Write the page: the validation with the other ``parts`` in it.

    What to do comes first, the list of all findings last.
    """
    ordered = {one.name: one for one in validation_page.sections(found, total)}
    ordered |= {one.name: one for part in parts for one in part.sections}
    last = [ordered.pop(name) for name in ("segments", "content", "stats", "findings") if name in ordered]
    lead = " ".join(filter(None, (validation_page.lead(total), *(part.answer for part in parts))))
    title = validation_page.headline(found, total)
    head = page.header(validation_page.verdict_level(total), total.verdict, title, lead, run, "kseg report")
    head += validation_page.tiles(found, total)
    page.write_page(out, f"kseg report: {total.verdict}", head, [*ordered.values(), *last], found.data())
