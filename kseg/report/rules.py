"""The rule table for the terminal and the README."""

from __future__ import annotations

import re

from kseg.findings import RULES, Rule


def table() -> str:
    """Return all rules, one per line."""
    width = max(map(len, RULES))
    return "\n".join(
        f"{rule.code}  {rule.name:<{width}}  {rule.severity.label:<7}  {message_of(rule)}" for rule in RULES.values()
    )


def message_of(rule: Rule) -> str:
    """Return the message of a rule with the names of its facts."""
    return re.sub(r"\{note\}|\{where\}", "", re.sub(r"\{(\w+):[^}]*\}", r"{\1}", rule.message))


def explain(rule: Rule) -> str:
    """Return the explanation of one rule."""
    return (
        f"{rule.code} {rule.name} ({rule.severity.label}{', cannot be lowered' if rule.severity > 3 else ''})\n"
        f"  says:    {message_of(rule)}\n"
        f"  broker:  {rule.broker}"
    )


def markdown() -> str:
    """Return the rule table as Markdown."""
    lines = ["| code | rule | severity | says | what a broker does about it |", "|---|---|---|---|---|"]
    rows = (
        f"| {rule.code} | `{rule.name}` | {rule.severity.label} | {message_of(rule)} | {rule.broker} |"
        for rule in RULES.values()
    )
    return "\n".join([*lines, *rows])
