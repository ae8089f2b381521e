"""What commands say on stderr besides their results: a line a time, with nothing in it that could steer a terminal."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from kseg.findings import Finding

FOUND, FAILED = 1, 2


def note(line: str) -> None:
    """Print one line, ``kseg:`` before it."""
    from kseg.escapes import escape_controls

    click.echo(f"kseg: {escape_controls(line)}", err=True)


def fail(line: str) -> int:
    """Print one line that says why something could not be done; returns the exit code for that."""
    note(line)
    return FAILED


class Notes:
    """Prints findings from warnings up, a few of each rule for each file; ``errors`` counts those that are errors."""

    def __init__(self) -> None:
        self.errors = 0
        self._told: Counter[tuple[str, str]] = Counter()

    def __call__(self, path: str, finding: Finding) -> None:
        from kseg.findings import RULES, Severity, Verdict
        from kseg.validate import MAX_PER_RULE

        rule = RULES[finding.rule]
        if rule.severity < Severity.WARNING:
            return
        self.errors += rule.severity >= Severity.ERROR
        self._told[path, rule.name] += 1
        if self._told[path, rule.name] <= MAX_PER_RULE:
            message = Verdict(path, rule.severity, finding).message
            place = "" if finding.position is None else f" at byte {finding.position}"
            note(f"{path}: {rule.name}{place}: {message}")
