"""Segments that real brokers wrote, and the records that Kafka's own reader returns for them."""

from __future__ import annotations

import io
import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kseg.commands.dump.dump_items import SegmentItem
from kseg.commands.dump.dumped_rows import DumpRequest
from kseg.findings import Finding, Report, do_nothing
from kseg.format.segment.row_filter import BatchTransactions, RowFilter
from kseg.format.storage.segment_files import SegmentFile
from kseg.report.dump_report import Rows, write_jsonl
from kseg.report.formats import View

SEGMENTS = Path(__file__).parents[2] / "fixtures" / "segments"
FOLDERS = sorted(path.parent for path in SEGMENTS.glob("**/expect.jsonl"))
#: The fields of a record that are those of its batch.
OF_BATCH = ("producer_id", "producer_epoch", "partition_leader_epoch")


def expected(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of Kafka's reader by file, records with the fields of their batch.

    The state of a transaction is unknown, as in a dump of one segment without its log.
    """
    by_file: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in (folder / "expect.jsonl").read_text(encoding="utf-8").split("\n"):
        if line:
            row = json.loads(line)
            by_file[row["file"]].append(row)
    for rows in by_file.values():
        add_batch_fields(rows)
    return by_file


def add_batch_fields(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Give the records of Kafka's reader the fields of their batch, and return the rows."""
    batches = {row["position"]: row for row in rows if row["kind"] == "batch"}
    for row in rows:
        if row["kind"] == "record":
            batch = batches[row["position"]]
            row |= {name: batch[name] for name in OF_BATCH}
            row["transaction_state"] = "unknown" if batch["transactional"] else None
            row["transactional_id"] = None
    return rows


def dump_segment(
    path: str, *, report: Report = do_nothing, check: bool = False, **request: Any
) -> Iterator[SegmentItem]:
    """Return the items of one file; ``request`` are fields of a DumpRequest."""
    return DumpRequest(**request).items(SegmentFile(path), report, check=check)


def json_rows(dumped: Rows, deep: bool) -> list[dict[str, Any]]:
    """Return rows as `kseg dump --format jsonl --bytes base64` writes them."""
    raw = io.BytesIO()
    # Assigned to a name, because a deleted wrapper closes its stream.
    out = io.TextIOWrapper(raw, encoding="utf-8")
    write_jsonl(dumped, out, View(deep=deep, encoding="base64", terminal=False))
    out.flush()
    return [json.loads(line) for line in raw.getvalue().split(b"\n") if line]


def dumped(path: Path, deep: bool, transactions: BatchTransactions | None = None) -> list[dict[str, Any]]:
    """Return the rows of a valid segment, with the base name as file; without ``transactions`` their states are unknown."""
    found: list[Finding] = []
    keep = RowFilter(transactions=transactions)
    rows = json_rows(dump_segment(str(path), deep=deep, keep=keep, report=found.append), deep)
    assert [finding for finding in found if finding.rule not in ("codec-quirk", "zero-tail")] == []
    return [{**row, "file": path.name} for row in rows]
