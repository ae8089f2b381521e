"""``kseg rules NAME``: every rule is explained, with an example that kseg really prints."""

from __future__ import annotations

import json
import re
import string
from collections.abc import Mapping

import pytest

from kseg.rule_help import EXAMPLES, rule_help
from kseg.rule_table import RULES, Rule
from tools import make_rule_examples
from tools.make_findings import WITHOUT_FILE

EXAMPLE_ROWS = {row["rule"]: row for row in map(json.loads, EXAMPLES.read_text(encoding="utf-8").splitlines())}
#: The age of a timestamp depends on the day.
_DAYS = re.compile(r"[\d,]+ days")


def test_every_rule_has_an_example() -> None:
    """An explanation without an example leaves open what the finding looks like."""
    assert list(EXAMPLE_ROWS) == [rule for rule in RULES if rule != WITHOUT_FILE]


@pytest.mark.parametrize("rule", EXAMPLE_ROWS)
def test_examples_are_real_output(rule: str) -> None:
    """The explanation shows the command and the output of this version: `python -m tools.make_rule_examples` writes them."""
    assert _undated(make_rule_examples.example(rule)) == _undated(EXAMPLE_ROWS[rule])


def _undated(row: Mapping[str, str]) -> dict[str, str]:
    return {name: re.sub(r"\s+|─+", " ", _DAYS.sub("N days", text)) for name, text in row.items()}


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_every_rule_has_cause_consequence_and_remedy(rule: Rule) -> None:
    """Each text is whole sentences, and not a template: only messages have facts."""
    for text in (rule_help(rule.name).cause, rule.broker, rule.remedy):
        assert text.endswith("."), text
        assert not any(name for _, name, _, _ in string.Formatter().parse(text)), text
