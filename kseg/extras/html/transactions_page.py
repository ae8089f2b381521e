"""``kseg transactions --format html``: hanging transactions and the offsets that they block, and the others."""

from __future__ import annotations

from collections.abc import Collection
from itertools import groupby
from typing import TextIO

from kseg.commands.transactions import PartitionTransactions, Transaction
from kseg.extras.html import page
from kseg.extras.html.page import PageSection
from kseg.report.ranking import fold
from kseg.report.spool import Run
from kseg.report.tables import TableColumn, cells_of
from kseg.report.transactions_report import (
    BLOCKED,
    COLUMNS,
    HANGING_COLUMNS,
    REMEDY,
    Items,
    ListedTransactions,
    TransactionsTotal,
    equal_ones,
    partition_text,
    summary_line,
)
from kseg.text import count_of

#: The most rows of each table.
_MOST_ROWS = 500


def write_html(
    items: Items, total: TransactionsTotal, states: Collection[str], out: TextIO, *, run: Run | None = None
) -> None:
    """Write the page. ``total`` is complete after the last item."""
    sections = transaction_sections(items, total, states)
    hanging = total.states["hanging"]
    level, verdict = ("damaged", "hanging") if hanging else ("valid", "none hangs")
    title = f"{count_of(hanging, 'transaction')} {'hangs' if hanging == 1 else 'hang'}" if hanging else "Transactions"
    lead = "The transactions of the partitions, and what they block."
    head = page.header(level, verdict, title, lead, run, "kseg transactions")
    page.write_page(out, "kseg transactions", head, sections)


def transaction_sections(items: Items, total: TransactionsTotal, states: Collection[str]) -> list[PageSection]:
    """Read the items to their end, and return the section about them."""
    hanging: list[tuple[Transaction, PartitionTransactions]] = []
    others: list[list[str]] = []
    partitions: list[tuple[str, str]] = []
    left_out = 0
    for folder, of_partition in groupby(items, key=lambda item: item.folder):
        listed = ListedTransactions(len(states) == 1)
        stuck: list[Transaction] = []
        for item in of_partition:
            if isinstance(item, PartitionTransactions):
                hanging += [(one, item) for one in stuck]
                if any(item.states.values()):
                    partitions.append((folder, partition_text(item)))
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
    content = f"<p>{page.text(summary_line(total))}.</p>\n{_hanging(hanging)}"
    width = len(COLUMNS) + any(row[-1] for row in others)  # ended transactions have no age
    content += page.folded([folder_column, *COLUMNS][:width], [row[:width] for row in others], "transaction")
    content += page.more(left_out, "transaction")
    if partitions:
        state = page.folded([folder_column, TableColumn("state", text="wrap")], partitions[:_MOST_ROWS], "partition")
        content += (
            f"<h3>Partitions with transactions</h3>\n{state}{page.more(len(partitions) - _MOST_ROWS, 'partition')}"
        )
    return [PageSection("transactions", "Transactions", content)]


def _hanging(hanging: list[tuple[Transaction, PartitionTransactions]]) -> str:
    if not hanging:
        return ""
    hanging.sort(key=lambda one: -(one[0].age_ms or 0))
    shown = hanging[:_MOST_ROWS]
    groups, rows = fold(hanging, equal_ones), [[one] for one in shown]
    folded, each = ([cells_of(HANGING_COLUMNS, ones) for ones in listed] for listed in (groups, rows))
    listed = page.grouped(HANGING_COLUMNS, folded, each, "hanging transaction")
    commands = dict.fromkeys(item.abort for item, _ in shown if item.abort)  # replicas have the same one
    remedy = f"<p>{page.prose(REMEDY)}</p>\n{page.commands([*commands])}" if commands else ""
    return f"{listed}{page.more(len(hanging) - _MOST_ROWS, 'hanging transaction')}<p>{page.text(BLOCKED)}</p>\n{remedy}"
