"""The rule table as people read it: on the terminal, and in the README."""

from __future__ import annotations

from kseg.findings import RULES, Rule


def table() -> str:
    """Every rule, a line each."""
    width = max(map(len, RULES))
    return "\n".join(
        f"{rule.code}  {rule.name:<{width}}  {rule.severity.label:<7}  {rule.message}" for rule in RULES.values()
    )


def explain(rule: Rule) -> str:
    """One rule in full."""
    return (
        f"{rule.code} {rule.name} ({rule.severity.label}{', cannot be lowered' if rule.severity > 3 else ''})\n"
        f"  says:    {rule.message}\n"
        f"  broker:  {rule.broker}"
    )


def markdown() -> str:
    """The table of the README."""
    lines = ["| code | rule | severity | says | what a broker does about it |", "|---|---|---|---|---|"]
    rows = (
        f"| {rule.code} | `{rule.name}` | {rule.severity.label} | {rule.message} | {rule.broker} |"
        for rule in RULES.values()
    )
    return "\n".join([*lines, *rows])
