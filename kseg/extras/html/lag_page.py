"""``kseg lag --format html``: the lags of groups, or the history of one group with its plots."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from typing import TextIO

from kseg.commands.lag.committed_offsets import GroupLag
from kseg.commands.lag.history import GroupHistory, GroupMinute
from kseg.extras.html import page
from kseg.extras.html.page import PageSection
from kseg.report import lag_history_report as history
from kseg.report.lag_report import COLUMNS, LagTotal, rank, summary_line
from kseg.report.spool import Run
from kseg.report.tables import cells_of
from kseg.text import count_of

_MOST_ROWS = 500
_PLOT_COLUMNS = 120


def write_html(found: Iterable[GroupLag], total: LagTotal, out: TextIO, *, run: Run | None = None) -> None:
    """Write the page of lags, the worst first."""
    worst = heapq.nlargest(_MOST_ROWS, found, key=rank)
    rows = [cells_of(COLUMNS, one) for one in worst]
    content = page.folded(COLUMNS, rows, "partition") + page.more(total.statuses.total() - len(rows), "partition")
    level = "valid" if total.statuses["ok"] == total.statuses.total() else "damaged"
    head = page.header(level, "lag", "Lag of consumer groups", f"{summary_line(total)}.", run, "kseg lag")
    page.write_page(out, "kseg lag", head, [PageSection("lag", "Lag by partition", content)])


def write_history(found: GroupHistory, out: TextIO, *, run: Run | None = None) -> None:
    """Write the page of a history: the answer, the plots, the partitions and the minutes."""
    first, *others = history.answer(found)
    ranked = history.worst_first(found)
    sections = [
        PageSection("answer", "Answer", "".join(f"<p>{page.text(_sentence(line))}</p>\n" for line in others)),
        PageSection("plots", "Over time", _plots(found)),
        PageSection("partitions", "Partitions", page.folded(
            history.PARTITION_COLUMNS, [cells_of(history.PARTITION_COLUMNS, one) for one in ranked[:_MOST_ROWS]], "partition"
        ) + page.more(len(ranked) - _MOST_ROWS, "partition")),
        PageSection("minutes", "Minutes", page.folded(
            history.MINUTE_COLUMNS, [cells_of(history.MINUTE_COLUMNS, one) for one in found.minutes[-_MOST_ROWS:]], "minute"
        ) + page.more(len(found.minutes) - _MOST_ROWS, "earlier minute")),
    ]  # fmt: skip
    head = page.header("info", "history", f"Group {found.group}", _sentence(first), run, "kseg lag --history")
    page.write_page(out, f"kseg lag: {found.group}", head, sections)


def _sentence(line: str) -> str:
    return f"{line[:1].upper()}{line[1:]}."


def _plots(found: GroupHistory) -> str:
    if not found.minutes:
        return ""
    parts = history.plot_slots(found, _PLOT_COLUMNS)
    ends = (history.minute_text(found.minutes[0].timestamp), history.minute_text(found.minutes[-1].timestamp))

    def drawn(title: str, value: Callable[[Sequence[GroupMinute]], int], shown: Callable[[int], str]) -> str:
        return page.columns(
            title, [(history.minute_text(part[0].timestamp), value(part)) for part in parts], shown, ends
        )

    def summed(name: str) -> Callable[[Sequence[GroupMinute]], int]:
        return lambda part: sum(getattr(one, name) for one in part)

    plots = (
        drawn("Lag", lambda part: history.last_known(part, "lag") or 0, lambda lag: count_of(lag, "record")),
        drawn(
            "Age of the oldest unread record", lambda part: history.last_known(part, "lag_ms") or 0, history.age_text
        ),
        drawn("Appended", summed("appended"), lambda count: count_of(count, "record")),
        drawn("Consumed", summed("consumed"), lambda count: count_of(count, "record")),
        drawn("Commits", summed("commits"), lambda count: count_of(count, "commit")),
        drawn("Rebalances", summed("rebalances"), lambda count: count_of(count, "rebalance")),
    )
    return f'<div class="plots">\n{"".join(plots)}</div>\n'
