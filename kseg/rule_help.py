"""The full explanation of each rule: cause, consequence, remedy and a real example.

``kseg rules NAME`` and the documentation show it. ``rule_causes.toml`` has the causes. The examples are output
of kseg for the damaged files in ``fixtures/findings``; ``tools.make_rule_examples`` writes them.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from kseg.findings import known_rule
from kseg.rule_table import Rule

EXAMPLES = Path(__file__).with_name("rule_examples.jsonl")
_CAUSES = Path(__file__).with_name("rule_causes.toml")


@dataclass(frozen=True, slots=True)
class Example:
    """A command that reports a rule, and its output.

    ``damage`` describes how the file differs from the one that a broker wrote. ``output`` has several lines.
    """

    command: str
    damage: str
    output: str


@dataclass(frozen=True, slots=True)
class RuleHelp:
    """The explanation of one rule. ``rule.broker`` is the consequence, ``rule.remedy`` the remedy.

    ``example`` is None for a rule that no file can show.
    """

    rule: Rule
    cause: str
    example: Example | None


@cache
def _examples() -> Mapping[str, Example]:
    rows = [json.loads(line) for line in EXAMPLES.read_text(encoding="utf-8").splitlines()]
    return {row.pop("rule"): Example(**row) for row in rows}


@cache
def _causes() -> Mapping[str, str]:
    table = tomllib.loads(_CAUSES.read_text(encoding="utf-8"))
    return {rule: cause.format(changed=table["changed"]) for rule, cause in table["causes"].items()}


def rule_help(name: str) -> RuleHelp:
    """Return the explanation of the rule with that name or code. Raises UsageError for an unknown name."""
    rule = known_rule(name)
    return RuleHelp(rule, _causes()[rule.name], _examples().get(rule.name))
