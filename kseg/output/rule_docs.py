"""The rule table as people read it: on the terminal, and in the README."""

from __future__ import annotations

import re

from kseg.findings import RULES, Rule


def table() -> str:
    """Every rule, a line each."""
    width = max(map(len, RULES))
    return "\n".join(
        f"{rule.code}  {rule.name:<{width}}  {rule.severity.label:<7}  {said(rule)}" for rule in RULES.values()
    )


def said(rule: Rule) -> str:
    """The rule's message with its facts by name."""
    return re.sub(r"\{note\}|\{where\}", "", re.sub(r"\{(\w+):[^}]*\}", r"{\1}", rule.message))


def explain(rule: Rule) -> str:
    """One rule in full."""
    return (
        f"{rule.code} {rule.name} ({rule.severity.label}{', cannot be lowered' if rule.severity > 3 else ''})\n"
        f"  says:    {said(rule)}\n"
        f"  broker:  {rule.broker}"
    )


def markdown() -> str:
    """The table of the README."""
    lines = ["| code | rule | severity | says | what a broker does about it |", "|---|---|---|---|---|"]
    rows = (
        f"| {rule.code} | `{rule.name}` | {rule.severity.label} | {said(rule)} | {rule.broker} |"
        for rule in RULES.values()
    )
    return "\n".join([*lines, *rows])
