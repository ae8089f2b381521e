"""Figures that the documentation states are those of the code: each row of the page of limits names its constant here."""

from __future__ import annotations

import re
from importlib import import_module

import pytest

from kseg.findings import RULES
from tests.support.cli import ROOT
from tools.make_findings import FINDINGS, WITHOUT_FILE

PAGE = (ROOT / "docs" / "reference" / "limits.md").read_text(encoding="utf-8")
ROWS = dict(re.findall(r"^\| ([^|]+) \| ([^|]+) \| [^|]+ \|$", PAGE, re.MULTILINE))
#: The start of a row -> the constant, and how the row writes it: a number, or a number of bytes.
LIMITS = {
    "decompressed size of one batch": ("kseg.format.segment.deep_reader:DECOMPRESSION_LIMIT", "bytes"),
    "a record of a compressed batch": ("kseg.format.segment.deep_reader:RECORD_BYTES", "bytes"),
    "producers of a partition": ("kseg.format.record.offset_evidence:LIMIT", "number"),
    "headers of a record": ("kseg.format.record.default_records:MAX_HEADERS", "number"),
    "listed findings per rule and file": ("kseg.results:MAX_PER_RULE", "number"),
    "listed findings per rule in one batch": ("kseg.format.checks.offset_checks:MAX_GAPS", "number"),
    "processor time of a regular expression": ("kseg.commands.grep.text_patterns:SECONDS", "number"),
    "value that is decoded with a schema": ("kseg.extras.serialization.decoding:MOST_BYTES", "bytes"),
    "answer of a schema registry": ("kseg.extras.serialization.schema_sources:_MOST_BYTES", "bytes"),
    "bytes that a compressed archive": ("kseg.extras.archive_formats:MOST_EXPANDED", "bytes"),
    "records of a compressed batch": ("kseg.format.segment.deep_reader:RECORDS_PER_BYTE", "number"),
    "members of an archive": ("kseg.extras.archive_formats:MOST_MEMBERS", "number"),
    "memory for the names in an archive": ("kseg.extras.archive_formats:MOST_MEMORY", "bytes"),
    "temporary files of `kseg sql`": ("kseg.extras.sql.statement:TEMPORARY", "bytes"),
    "bytes of a key, value or header in": ("kseg.report.dump_table:MOST_PIPED_BYTES", "bytes"),
    "characters of a cell": ("kseg.report.row_formats:_CELL_LENGTH", "number"),
    "producers in `kseg stats`": ("kseg.commands.stats.totals:MAX_PRODUCERS", "number"),
}


@pytest.mark.parametrize("row", LIMITS)
def test_a_limit_is_that_of_the_code(row: str) -> None:
    """Operators plan with these figures."""
    (stated,) = (limit for name, limit in ROWS.items() if name.startswith(row))
    place, kind = LIMITS[row]
    module, _, constant = place.partition(":")
    value = getattr(import_module(module), constant)
    shown = f"{value:,}"
    if kind == "bytes":
        shown = f"{value >> 30:,} GiB" if value % (1 << 30) == 0 else f"{value >> 20:,} MiB"
    assert re.search(rf"(^|\s){shown}\b", stated)


def test_rules_without_a_file_are_named() -> None:
    """Two pages say that every rule has a damaged file, and which one has none."""
    without = {name for name in RULES if not (FINDINGS / name).is_dir()}
    assert without == {WITHOUT_FILE}
    for page in ("CONTRIBUTING.md", "docs/explanation/promises.md"):
        assert re.search(f"rule but `{WITHOUT_FILE}`", (ROOT / page).read_text(encoding="utf-8")), page
