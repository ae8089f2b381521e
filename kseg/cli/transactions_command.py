"""``kseg transactions``: options and exit codes. 1: a transaction hangs, or damage was found."""

from __future__ import annotations

import time
from dataclasses import dataclass

from kseg.cli import common
from kseg.cli.messages import note_output
from kseg.cli.outcome import FindingNotes
from kseg.cli.typed_command import TableOptions, command
from kseg.commands.transactions import items_of
from kseg.format.storage.segment_files import find_in_use
from kseg.report.formats import TRANSACTIONS, destination
from kseg.report.transactions_report import TransactionsTotal, summary_line


@dataclass(frozen=True, kw_only=True)
class TransactionsOptions(TableOptions):
    states: tuple[str, ...]
    max_age: int


@command(
    TransactionsOptions,
    results=TRANSACTIONS,
    arguments=(common.LOG_PATHS,),
    examples=(
        "kseg transactions kafka-logs",
        "kseg transactions --state hanging --max-age 3600 kafka-logs/payments-1",
        "kseg transactions --format jsonl kafka-logs",
    ),
)
def transactions(asked: TransactionsOptions) -> int:
    """List the transactions of partitions, and the last stable offset.

    Reads the markers in the log, and the producer snapshot for transactions that started before the first segment. Prints
    the command that aborts a hanging transaction.

    Exit codes: 0 no hanging transaction, 1 a hanging transaction or damage, 2 the command failed.
    """
    common.check_outputs()
    notes = FindingNotes(each=asked.verbose)
    total = TransactionsTotal()
    now = time.time_ns() // 1_000_000
    files = notes.listed(asked.paths, find_in_use)
    notes.weigh(files)
    with destination(asked.output) as out:
        items = total.counted(items_of(files, now, asked.max_age, notes, notes.unread))
        asked.write(TRANSACTIONS, out, items, total, asked.states)
    note_output(asked.output, summary_line(total))
    return notes.exit_code(total.states["hanging"])
