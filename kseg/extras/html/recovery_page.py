"""``kseg recovery --format html``: the predicted losses of a broker's start, its steps, and the next steps."""

from __future__ import annotations

from typing import TextIO

from kseg.extras.html import page
from kseg.extras.html.page import PageSection, table
from kseg.format.log_loader.start_harm import REMEDIES, Harm, harm_of, is_affected
from kseg.report.recovery_report import (
    ANSWER_COLUMNS,
    STEP_COLUMNS,
    Plans,
    RecoveryTotal,
    answer_cells,
    answer_groups,
    headline,
    step_rows,
    summary_line,
)
from kseg.report.spool import Run
from kseg.text import count_of

#: The most folders whose steps are listed.
_MOST_WITH_STEPS = 100


def write_html(plans: Plans, total: RecoveryTotal, out: TextIO, *, run: Run | None = None) -> None:
    """Write the page. ``total`` is complete after the last plan."""
    sections = list(recovery_sections(plans, total))
    head = page.header(
        level_of(total),
        _VERDICTS[level_of(total)],
        "Start of a broker",
        "What a broker of Kafka 4 would do.",
        run,
        "kseg recovery",
    )
    page.write_page(out, "kseg recovery", head, sections)


_VERDICTS = {"damaged": "loss", "undetermined": "undetermined", "valid": "no loss"}


def level_of(total: RecoveryTotal) -> str:
    """Return the class of the answer's colour."""
    if total.harms:
        return "damaged"
    return "undetermined" if total.unread or total.unseen else "valid"


def summary(total: RecoveryTotal) -> str:
    """Return the answer as a sentence."""
    line = summary_line(total)
    return f"{line[:1].upper()}{line[1:]}."


def recovery_sections(plans: Plans, total: RecoveryTotal) -> list[PageSection]:
    """Read the plans to their end, and return the section about them."""
    harms: list[Harm] = []
    folders: list[str] = []
    for plan in plans:
        if not is_affected(plan):
            continue
        harms.append(harm_of(plan))
        if len(folders) < _MOST_WITH_STEPS:
            steps = table(STEP_COLUMNS, (cells for cells, _ in step_rows(plan.steps)))
            folders.append(page.details(f"{plan.folder}: {headline(plan)}", steps))
    harms.sort(key=lambda harm: harm.rank)
    causes = frozenset[str]().union(*(harm.causes for harm in harms))
    remedies = "".join(f"<li>{page.prose(text)}</li>\n" for cause, text in REMEDIES.items() if cause in causes)
    content = f"<p>{page.text(summary(total))}</p>\n" + table(ANSWER_COLUMNS, map(answer_cells, answer_groups(harms)))
    content += f'<ul class="remedies">\n{remedies}</ul>\n' if remedies else ""
    shown, hidden = "".join(folders[: page.OPEN_ROWS]), "".join(folders[page.OPEN_ROWS :])
    more = page.details(count_of(len(folders) - page.OPEN_ROWS, "more folder"), hidden) if hidden else ""
    return [PageSection("recovery", "If a broker started now", content + shown + more)]
