"""Which actions of remedies were carried out on a real broker, and why others were not; read without a broker."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from kseg.remedies import FETCH, Action
from kseg.rule_table import RULES

FOLDER = Path(__file__).parents[2] / "fixtures" / "remedies"
VERSION = "4.3.0"
#: Records of one broker, and of a cluster of three.
SINGLE, CLUSTER = "one-broker", "three-brokers"

_LEGACY = "Only v0 and v1 messages can have this fault, which are older than producers and transactions."
_ANY = "The whole folder is replaced, so its damage makes no difference; it was carried out for other rules."
#: Why actions were not carried out: by rule, those of one broker.
NOT_CARRIED_OUT: Mapping[str, str] = {
    "inner-crc-mismatch": _LEGACY,
    "wrapper-offset-mismatch": _LEGACY,
    "nested-compression": _LEGACY,
    "mixed-wrapper-codecs": _LEGACY,
    "truncated-wrapper": _LEGACY,
}

_NODE = "The file is of a KRaft node: kseg does not know which backup or which other node has it."
#: Remedies on files without commands, by rule and file.
WITHOUT_COMMANDS: Mapping[tuple[str, str], str] = {
    ("metadata-malformed", "quorum-state"): _NODE,
    ("kraft-snapshot-incomplete", ""): _NODE,
    ("metadata-not-replayable", ""): _NODE,
    ("metadata-snapshot-missing", ""): _NODE,
}


def write(rows: Iterable[Mapping[str, Any]], name: str) -> None:
    """Write a record."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (FOLDER / f"{VERSION}-{name}.jsonl").write_text(text, encoding="utf-8")


def recorded(name: str) -> list[dict[str, Any]]:
    """Return the rows of a record: actions that left no fault."""
    path = FOLDER / f"{VERSION}-{name}.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def actions() -> Iterator[tuple[str, str, Action]]:
    """Yield all actions with their rule, and the file that they are for; empty for any."""
    for rule in RULES.values():
        for file, remedy in rule.remedies():
            for action in remedy.actions:
                yield rule.name, file, action


def proof(rule: str, file: str, action: Action) -> str:
    """Return a sentence on where an action was carried out, or why not; empty if neither is known."""
    stops = {"clean": "after a clean shutdown", "kill": "after a kill"}
    key = {"rule": rule, "file": file, "case": action.case, "commands": list(action.commands)}
    for name, where in ((SINGLE, "Kafka"), (CLUSTER, "three brokers of Kafka")):
        for row in recorded(name):
            if {each: row[each] for each in key} == key:
                return f"Carried out on {where} {VERSION} {' and '.join(stops[stop] for stop in row['stops'])}."
    if action == FETCH:
        return f"Not carried out for this rule. {_ANY}"
    return f"Not carried out. {NOT_CARRIED_OUT[rule]}" if rule in NOT_CARRIED_OUT else ""
