"""The pages of ``kseg recovery``, ``stats``, ``transactions`` and ``lag``, and the sections of the first three.

The page of an incident has these sections, too.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import groupby
from typing import TextIO

from kseg.commands.lag.committed_offsets import GroupLag
from kseg.commands.lag.history import GroupHistory, GroupMinute
from kseg.commands.stats.levels import Level
from kseg.commands.transactions import PartitionTransactions, Transaction
from kseg.extras.html import page
from kseg.extras.html.page import PageSection, bars, columns, table
from kseg.format.log_loader.start_harm import REMEDIES, Harm, harm_of, is_affected
from kseg.report import lag_report as lag
from kseg.report import recovery_report as recovery
from kseg.report import stats_report as stats
from kseg.report import transactions_report as transactions
from kseg.report.formats import Run
from kseg.report.stats_rows import stats_row
from kseg.report.tables import TableColumn, cells_of
from kseg.report.wording import fold
from kseg.schema import Row
from kseg.text import count_of, iso_time, size_text

#: The most rows of each table, and the most folders whose steps are listed.
_MOST_ROWS = 500
_MOST_WITH_STEPS = 100


def _sentence(line: str) -> str:
    return f"{line[:1].upper()}{line[1:]}."


def write_recovery(
    plans: recovery.Plans, total: recovery.RecoveryTotal, out: TextIO, *, run: Run | None = None
) -> None:
    """Write the predicted losses of a broker's start, and its steps. ``total`` is complete after the last plan."""
    sections = recovery_sections(plans, total)
    level, verdict = "valid", "no loss"
    if total.harms:
        level, verdict = "damaged", "loss"
    elif total.unread or total.unseen:
        level = verdict = "undetermined"
    lead = "What a broker of Kafka 4 would do."
    head = page.header(level, verdict, "Start of a broker", lead, run, "kseg recovery")
    page.write_page(out, "kseg recovery", head, sections)


def recovery_sections(plans: recovery.Plans, total: recovery.RecoveryTotal) -> list[PageSection]:
    """Read the plans to their end, and return the section about them."""
    harms: list[Harm] = []
    folders: list[str] = []
    for plan in plans:
        if not is_affected(plan):
            continue
        harms.append(harm_of(plan))
        if len(folders) < _MOST_WITH_STEPS:
            steps = _table(recovery.STEP_COLUMNS, recovery.step_parts(plan.steps))
            folders.append(page.details(f"{plan.folder}: {recovery.headline(plan)}", steps))
    harms.sort(key=lambda harm: harm.rank)
    causes = frozenset[str]().union(*(harm.causes for harm in harms))
    remedies = "".join(f"<li>{page.prose(text)}</li>\n" for cause, text in REMEDIES.items() if cause in causes)
    content = f"<p>{page.text(_sentence(recovery.summary_line(total)))}</p>\n"
    content += _table(recovery.ANSWER_COLUMNS, recovery.answer_groups(harms))
    content += f'<ul class="remedies">\n{remedies}</ul>\n' if remedies else ""
    shown, hidden = "".join(folders[: page.OPEN_ROWS]), "".join(folders[page.OPEN_ROWS :])
    more = page.details(count_of(len(folders) - page.OPEN_ROWS, "more folder"), hidden) if hidden else ""
    return [PageSection("recovery", "If a broker started now", content + shown + more)]


def _table(shown: Sequence[TableColumn], items: Iterable[object]) -> str:
    return table(shown, (cells_of(shown, item) for item in items))


_HOUR_COLUMNS = 96
_TOTAL_COLUMNS = [TableColumn("subject"), TableColumn("total", text="wrap")]


def write_stats(levels: Iterable[Level], top: int, out: TextIO, *, run: Run | None = None) -> None:
    """Write the total, plots, and a table of the partitions, with the ``top`` producers."""
    total: Row = {"lost_bytes": 0, "unread": 0}

    def noted() -> Iterable[Level]:
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
    extremes = stats.Extremes()
    rows: list[list[str]] = []
    sizes: list[tuple[str, int]] = []
    last: Level | None = None
    for level in levels:
        last = level
        row = stats_row(level, 0)
        extremes.add(row)
        if level.level == "partition":
            sizes.append((str(level.path), row["bytes"]))
            if len(rows) < _MOST_ROWS:
                rows.append(cells_of(stats.COLUMNS, row))
    if last is None:
        return []
    total = stats_row(last, top)
    content = table(_TOTAL_COLUMNS, [*stats.outstanding(total, extremes), *stats.details(total)], "totals")
    content += _stats_plots(total, sizes) if plots else ""
    content += page.folded(stats.COLUMNS, rows, "partition", left_out=len(sizes) - len(rows))
    return [PageSection("stats", "Content in numbers", content)]


def _stats_plots(total: Row, sizes: list[tuple[str, int]]) -> str:
    producers = [(f"producer {one['producer_id']}", one["bytes"]) for one in total["producers"]["top"]]
    codecs = [(name, group["bytes"]) for name, group in total["compressions"].items()]
    keys = [(stats.key_text(one), one["disk_bytes"]) for one in (total["keys"] or {"top": ()})["top"]]
    slots = [(iso_time(time), size) for time, size in stats.by_hour(total, _HOUR_COLUMNS)[0]]
    return page.plots(
        columns("Bytes by hour", slots, size_text, (slots[0][0], slots[-1][0])) if slots else "",
        bars("Bytes by partition", sizes, size_text) if len(sizes) > 1 else "",
        bars("Bytes by codec", codecs, size_text),
        bars("Bytes by producer", producers, size_text),
        bars("Estimated bytes on disk by key", keys, size_text),
    )


def write_transactions(
    items: transactions.Items,
    total: transactions.TransactionsTotal,
    states: Collection[str],
    out: TextIO,
    *,
    run: Run | None = None,
) -> None:
    """Write hanging transactions and the offsets that they block, and the others. ``total`` is complete after the last."""
    sections = transaction_sections(items, total, states)
    hanging = total.states["hanging"]
    level, verdict = ("damaged", "hanging") if hanging else ("valid", "none hangs")
    title = f"{count_of(hanging, 'transaction')} {'hangs' if hanging == 1 else 'hang'}" if hanging else "Transactions"
    lead = "The transactions of the partitions, and what they block."
    head = page.header(level, verdict, title, lead, run, "kseg transactions")
    page.write_page(out, "kseg transactions", head, sections)


def transaction_sections(
    items: transactions.Items, total: transactions.TransactionsTotal, states: Collection[str]
) -> list[PageSection]:
    """Read the items to their end, and return the section about them."""
    hanging: list[transactions.Hanging] = []
    others: list[list[str]] = []
    partitions: list[tuple[str, str]] = []
    left_out = 0
    for folder, of_partition in groupby(items, key=lambda item: item.folder):
        listed = transactions.ListedTransactions(len(states) == 1)
        stuck: list[Transaction] = []
        for item in of_partition:
            if isinstance(item, PartitionTransactions):
                hanging += [(one, item) for one in stuck]
                if any(item.states.values()):
                    partitions.append((folder, transactions.partition_text(item)))
            elif item.state == "hanging" and item.state in states:
                stuck.append(item)
            elif item.state in states:
                if listed.is_full():
                    left_out += 1
                else:
                    listed.add(item)
        rows = [[folder, *cells] for cells, _ in listed.rows()]
        left_out += max(len(others) + len(rows) - _MOST_ROWS, 0)
        others += rows[: max(_MOST_ROWS - len(others), 0)]
    folder_column = TableColumn("partition", text="wrap")
    content = f"<p>{page.text(transactions.summary_line(total))}.</p>\n{_hanging(hanging)}"
    width = len(transactions.COLUMNS) + any(row[-1] for row in others)  # ended transactions have no age
    shown = [folder_column, *transactions.COLUMNS][:width]
    content += page.folded(shown, [row[:width] for row in others], "transaction", left_out=left_out)
    if partitions:
        content += "<h3>Partitions with transactions</h3>\n" + page.folded(
            [folder_column, TableColumn("state", text="wrap")], partitions, "partition", most=_MOST_ROWS
        )
    return [PageSection("transactions", "Transactions", content)]


def _hanging(hanging: list[transactions.Hanging]) -> str:
    if not hanging:
        return ""
    hanging.sort(key=lambda one: -(one[0].age_ms or 0))
    shown = hanging[:_MOST_ROWS]
    groups, rows = fold(hanging, transactions.equal_ones), [[one] for one in shown]
    heads = transactions.HANGING_COLUMNS
    folded, each = ([cells_of(heads, ones) for ones in listed] for listed in (groups, rows))
    listed = page.grouped(heads, folded, each, "hanging transaction")
    commands = dict.fromkeys(item.abort for item, _ in shown if item.abort)  # replicas have the same one
    remedy = f"<p>{page.prose(transactions.REMEDY)}</p>\n{page.commands([*commands])}" if commands else ""
    more = page.more(len(hanging) - _MOST_ROWS, "hanging transaction")
    return f"{listed}{more}<p>{page.text(transactions.BLOCKED)}</p>\n{remedy}"


_PLOT_COLUMNS = 120


def write_lag(found: Iterable[GroupLag], total: lag.LagTotal, out: TextIO, *, run: Run | None = None) -> None:
    """Write the lags of groups, the worst first."""
    rows = [cells_of(lag.COLUMNS, one) for one in heapq.nlargest(_MOST_ROWS, found, key=lag.rank)]
    content = page.folded(lag.COLUMNS, rows, "partition", left_out=total.statuses.total() - len(rows))
    level = "valid" if total.statuses["ok"] == total.statuses.total() else "damaged"
    head = page.header(level, "lag", "Lag of consumer groups", f"{lag.summary_line(total)}.", run, "kseg lag")
    page.write_page(out, "kseg lag", head, [PageSection("lag", "Lag by partition", content)])


def write_lag_history(found: GroupHistory, out: TextIO, *, run: Run | None = None) -> None:
    """Write the history of a group: the answer, the plots, the partitions and the minutes."""
    first, *others = lag.answer(found)
    partitions = [cells_of(lag.PARTITION_COLUMNS, one) for one in lag.worst_first(found)]
    minutes = [cells_of(lag.MINUTE_COLUMNS, one) for one in found.minutes[-_MOST_ROWS:]]
    earlier = page.more(len(found.minutes) - _MOST_ROWS, "earlier minute")
    sections = [
        PageSection("answer", "Answer", "".join(f"<p>{page.text(_sentence(line))}</p>\n" for line in others)),
        PageSection("plots", "Over time", _lag_plots(found) if found.minutes else ""),
        PageSection(
            "partitions", "Partitions", page.folded(lag.PARTITION_COLUMNS, partitions, "partition", most=_MOST_ROWS)
        ),
        PageSection("minutes", "Minutes", page.folded(lag.MINUTE_COLUMNS, minutes, "minute") + earlier),
    ]
    head = page.header("info", "history", f"Group {found.group}", _sentence(first), run, "kseg lag --history")
    page.write_page(out, f"kseg lag: {found.group}", head, sections)


def _lag_plots(found: GroupHistory) -> str:
    parts = lag.plot_slots(found, _PLOT_COLUMNS)
    ends = (lag.minute_text(found.minutes[0].timestamp), lag.minute_text(found.minutes[-1].timestamp))

    def drawn(title: str, value: Callable[[Sequence[GroupMinute]], int], shown: Callable[[int], str]) -> str:
        return columns(title, [(lag.minute_text(part[0].timestamp), value(part)) for part in parts], shown, ends)

    def summed(name: str, noun: str) -> str:
        return drawn(
            name.title(), lambda part: sum(getattr(one, name) for one in part), lambda count: count_of(count, noun)
        )

    return page.plots(
        drawn("Lag", lambda part: lag.last_known(part, "lag") or 0, lambda count: count_of(count, "record")),
        drawn("Age of the oldest unread record", lambda part: lag.last_known(part, "lag_ms") or 0, lag.age_text),
        summed("appended", "record"),
        summed("consumed", "record"),
        summed("commits", "commit"),
        summed("rebalances", "rebalance"),
    )
