"""Read the views that need all of a segment or of a folder: findings, segments and transactions."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import asdict
from itertools import groupby

from kseg import schema
from kseg.commands.transactions.history import MAX_TRANSACTION_MS, Transaction, transactions_of
from kseg.commands.validate.folder_checks import check_folders
from kseg.commands.validate.parallel import validate_files
from kseg.findings import Finding
from kseg.report.arrow_parts import pa
from kseg.results import Settings
from kseg.views.planning import Split
from kseg.views.reading import Damaged, DamagePolicy, Task, as_arrow
from kseg.views.segment_summary import segment_row

#: Findings of one rule in one file that the findings view shows; the segments view counts all.
MAX_PER_RULE = 1000


def read_findings(task: Task, split: Split) -> Iterator[pa.RecordBatch]:
    """Yield the findings of ``validate`` folder by folder. An unreadable file is a row, too."""
    return as_arrow(task, _finding_rows(task, split))


def _finding_rows(task: Task, split: Split) -> Iterator[schema.Row]:
    settings = Settings(verify_crc=task.request.verify_crc, max_per_rule=MAX_PER_RULE)
    files = [piece.file for piece in split.pieces]
    for result in check_folders(files, settings, validate_files(files, settings)):
        for verdict in result.verdicts:
            yield verdict.as_row()
        if result.unread:
            _report_unread(task, result.unread)
            yield {"file": result.file, "severity": "error", "message": result.unread}


def read_segments(task: Task, split: Split) -> Iterator[pa.RecordBatch]:
    return as_arrow(task, _segment_rows(task, split))


def _segment_rows(task: Task, split: Split) -> Iterator[schema.Row]:
    settings = Settings(verify_crc=task.request.verify_crc, max_per_rule=1)
    for piece in split.pieces:
        row = segment_row(piece.file, piece.size, settings)
        _report_unread(task, row["unread"])
        yield row


def read_transactions(task: Task, split: Split) -> Iterator[pa.RecordBatch]:
    """Yield the transactions of each partition, the open ones last."""
    return as_arrow(task, _transaction_rows(task, split))


def _transaction_rows(task: Task, split: Split) -> Iterator[schema.Row]:
    now = time.time_ns() // 1_000_000
    policies = {piece.file.path: DamagePolicy(piece, task, rows=False) for piece in split.pieces}

    def report(path: str, finding: Finding) -> None:
        policies[path](finding)

    def unread(reason: str) -> None:
        task.notices.unread(reason)
        _report_unread(task, reason)

    for folder, pieces in groupby(split.pieces, key=lambda piece: os.path.dirname(piece.file.path)):
        files = (piece.file for piece in pieces)
        for item in transactions_of(folder or ".", files, now, MAX_TRANSACTION_MS, report, unread):
            if isinstance(item, Transaction):
                yield asdict(item)


def _report_unread(task: Task, unread: str | None) -> None:
    if unread and task.request.mode == "failfast":
        raise Damaged(unread)
    if unread:
        task.notices.unread(unread)
