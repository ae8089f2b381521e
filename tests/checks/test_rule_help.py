"""``kseg rules NAME``: every rule is explained, with an example that kseg really prints."""

from __future__ import annotations

import json
import string
from collections.abc import Iterator

import pytest

from kseg.rule_help import EXAMPLES, rule_help
from kseg.rule_table import RULES
from tools import make_rule_examples
from tools.docs.terminal import Terminal
from tools.make_findings import WITHOUT_FILE

EXAMPLE_ROWS = {row["rule"]: row for row in map(json.loads, EXAMPLES.read_text(encoding="utf-8").splitlines())}


def test_every_rule_has_an_example() -> None:
    """An explanation without an example leaves open what the finding looks like."""
    assert list(EXAMPLE_ROWS) == [rule for rule in RULES if rule != WITHOUT_FILE]


@pytest.fixture(scope="module")
def terminal() -> Iterator[Terminal]:
    with Terminal() as terminal:
        yield terminal


@pytest.mark.slow
@pytest.mark.parametrize("rule", EXAMPLE_ROWS)
def test_examples_are_real_output(rule: str, terminal: Terminal) -> None:
    """The explanation shows the command and the output of this version: `python -m tools.make_rule_examples` writes them."""
    assert make_rule_examples.example(rule, terminal) == EXAMPLE_ROWS[rule]


def test_every_rule_has_cause_consequence_and_remedy() -> None:
    """Each text is whole sentences, and not a template: only messages have facts."""
    for rule in RULES.values():
        for text in (rule_help(rule.name).cause, rule.broker, rule.remedy):
            assert text.endswith("."), text
            assert not any(name for _, name, _, _ in string.Formatter().parse(text)), text
