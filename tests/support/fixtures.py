"""Segments that real brokers wrote, and the records that Kafka's own reader returns for them."""

from __future__ import annotations

import io
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from kseg.commands.dump.dumped_rows import dump_segment
from kseg.findings import Finding
from kseg.report.dump_report import Rows, write_jsonl
from kseg.report.formats import View

SEGMENTS = Path(__file__).parents[2] / "fixtures" / "segments"


FOLDERS = sorted(path.parent for path in SEGMENTS.glob("**/expect.jsonl"))


def expected(folder: Path) -> dict[str, list[dict[str, Any]]]:
    by_file: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in (folder / "expect.jsonl").read_text(encoding="utf-8").split("\n"):
        if line:
            row = json.loads(line)
            by_file[row["file"]].append(row)
    return by_file


def json_rows(dumped: Rows, deep: bool) -> list[dict[str, Any]]:
    """Return rows as `kseg dump --format jsonl --bytes base64` writes them."""
    raw = io.BytesIO()
    # Assigned to a name, because a deleted wrapper closes its stream.
    out = io.TextIOWrapper(raw, encoding="utf-8")
    write_jsonl(dumped, out, View(deep=deep, encoding="base64", terminal=False))
    out.flush()
    return [json.loads(line) for line in raw.getvalue().split(b"\n") if line]


def dumped(path: Path, deep: bool) -> list[dict[str, Any]]:
    """Return the rows of a valid segment, with the base name as file."""
    found: list[Finding] = []
    rows = json_rows(dump_segment(str(path), deep=deep, report=found.append), deep)
    assert [finding for finding in found if finding.rule not in ("codec-quirk", "zero-tail")] == []
    return [{**row, "file": path.name} for row in rows]
