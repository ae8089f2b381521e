"""The findings of commands other than ``kseg validate``, as messages on stderr."""

from __future__ import annotations

from collections import Counter

from kseg.cli.messages import note
from kseg.findings import RULES, Finding, Policy, Severity, Verdict, is_noted
from kseg.results import MAX_PER_RULE


class FindingNotes:
    """Prints warnings and errors, a limited number per rule and file. ``errors`` counts the errors.

    ``policy`` is the policy of the file that is read; None uses the severities of the rule table.
    """

    def __init__(self) -> None:
        self.errors = 0
        self.policy: Policy | None = None
        self._printed: Counter[tuple[str, str]] = Counter()

    def __call__(self, path: str, finding: Finding) -> None:
        if not is_noted(finding, self.policy):
            return
        rule = RULES[finding.rule]
        severity = self.policy.severity(rule) if self.policy else rule.severity
        self.errors += severity >= Severity.ERROR
        self._printed[path, rule.name] += 1
        if self._printed[path, rule.name] == MAX_PER_RULE + 1:
            note(f"{path}: {rule.name}: more of them follow; `kseg validate` counts them")
        elif self._printed[path, rule.name] <= MAX_PER_RULE:
            message = Verdict(path, severity, finding).message
            place = "" if finding.position is None else f" at byte {finding.position}"
            note(f"{path}: {rule.name}{place}: {message}")
