"""``stops the broker`` in the reports of findings: what Kafka's loader does with the fixture of each rule is the judge."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kseg.findings import Consequence, Finding, Severity, consequence_of
from tests.support.cli import kseg_here as kseg
from tools.lab import load_cases

CASES = dict(load_cases.cases())
RULES = sorted({name.split()[0] for name, _ in load_cases.of_rules()})
#: Logs whose findings have rules that stop the broker in some cases only.
VARIANTS = (
    "renamed-to-2-to-31", "renamed-into-its-first-batch", "last-batch-beyond-its-index",
    "first-batch-negative", "first-batch-far-below", "batch-negative", "batch-below-its-name", "batch-twice",
    "transaction-index-version-7", "transaction-index-version-256", "transaction-index-version-65280",
)  # fmt: skip
#: Rules whose fixture stops the broker only after a clean shutdown, which trusts the indexes: they were written for the
#: log before the damage, so the last entry leads to no batch; or zeros follow the last batch.
AFTER_CLEAN_SHUTDOWN = {
    "duplicate-sequence", "lost-bytes", "non-monotonic-offset", "truncated-wrapper", "undecodable-payload", "wrapper-key",
    "zero-segment", "zero-tail",
}  # fmt: skip


def stops(case: str) -> bool:
    return load_cases.recorded()[case].get("failure") is not None


@pytest.mark.slow
@pytest.mark.parametrize("case", [*(f"{rule} unclean" for rule in RULES), *VARIANTS])
def test_a_partition_stops_the_broker_where_kafka_fails(case: str, tmp_path: Path) -> None:
    """The start after an unclean shutdown decides: it reads the whole log."""
    CASES[case].put(tmp_path / "topic-0")
    found = [
        json.loads(line) for line in kseg("validate", "--format", "jsonl", tmp_path / "topic-0").stdout.splitlines()
    ]
    consequences = {
        consequence_of(Finding(row["rule"], facts=row["facts"]), Severity[row["severity"].upper()])
        for row in found
        if row["kind"] == "finding"
    }
    assert (Consequence.STOPS_THE_BROKER in consequences) == stops(case)


def test_an_index_without_a_log_stops_nothing(tmp_path: Path) -> None:
    """The broker deletes it and does not read its wrong version."""
    name = "index-without-log"
    CASES[name].put(tmp_path / "topic-0")
    assert load_cases.recorded()[name].get("failure") is None
    shown = kseg("validate", tmp_path / "topic-0").stdout
    assert "txn-index-version" in shown
    assert shown.startswith("partitions that need attention: 1 (needs attention 1)")


def test_a_clean_shutdown_adds_what_only_recovery_predicts() -> None:
    assert {rule for rule in RULES if stops(f"{rule} clean") and not stops(f"{rule} unclean")} == AFTER_CLEAN_SHUTDOWN
