"""``kseg doctor --html``: validation, recovery, transactions and stats in one page, for an incident."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TextIO

from kseg.commands.next_steps import FolderTask, decisions_of, in_order, left_of
from kseg.extras.html import page, validation_page
from kseg.extras.html.collected import Collected
from kseg.extras.html.page import PageSection
from kseg.report.doctor_report import Diagnosis
from kseg.report.spool import Run
from kseg.report.tables import TableColumn
from kseg.report.wording import Prose


@dataclass(frozen=True, slots=True)
class IncidentPart:
    """The sections of another command, and the sentence about its result; empty without one."""

    sections: Sequence[PageSection] = ()
    answer: str = ""


@dataclass
class IncidentDiagnosis(Diagnosis):
    """A diagnosis with the additions of the page: the results of the validation, and the parts of other commands."""

    page: Collected = field(default_factory=Collected)
    parts: list[IncidentPart] = field(default_factory=list)


def _tasks(tasks: Sequence[FolderTask], head: str) -> str:
    """Return a table of tasks with the head of their column."""
    columns = (TableColumn("folder", text="wrap"), TableColumn(head, text="wrap"))
    return page.folded(columns, [(folder, Prose(text)) for folder, text in tasks], "task")


def _next_steps(found: Diagnosis) -> PageSection:
    """Return the section with the commands for these directories in their order, and the tasks that have no command."""
    decisions, left = decisions_of(found.steps), left_of(found.steps)
    lines = in_order(found.steps, all_of_them=not decisions)
    content = _tasks(decisions, "what to decide")
    if content and lines:
        content = f"<p>Before the start of the broker, decide about these folders:</p>\n{content}"
    content += page.commands(lines)
    if any(one.replaced for one in found.steps):
        content += "<p>With another replica in sync, only move the folder away, and start the broker.</p>\n"
    if left:
        content += f"<p>No command corrects these:</p>\n{_tasks(left, 'no command')}"
    return PageSection("next", "Next steps, in order", content)


def write_html(found: IncidentDiagnosis, out: TextIO, *, run: Run | None = None) -> None:
    """Write the page: the validation with the parts of the other commands in it.

    What to do comes first, the list of all findings last.
    """
    total = found.total
    ordered = {one.name: one for one in validation_page.sections(found.page, total)}
    ordered |= {one.name: one for part in found.parts for one in part.sections}
    ordered = {"damaged": ordered.pop("damaged"), "next": _next_steps(found), **ordered}
    last = [ordered.pop(name) for name in ("segments", "content", "stats", "findings") if name in ordered]
    lead = " ".join(filter(None, (validation_page.lead(total), *(part.answer for part in found.parts))))
    level, verdict = validation_page.verdict_level(total), total.verdict
    title = validation_page.headline(found.page, total)
    if verdict == "sound" and found.recovery.harms:
        level, verdict, title = "damaged", "loss", "The files have no errors, but a start of the broker harms its data"
    head = page.header(level, verdict, title, lead, run, "kseg doctor")
    head += validation_page.tiles(found.page, total)
    page.write_page(out, f"kseg doctor: {verdict}", head, [*ordered.values(), *last], found.page.data())
