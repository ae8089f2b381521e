"""What commands say on stderr besides their results: a line a time, with nothing in it that could steer a terminal."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TextIO

import click

from kseg.errors import KsegError

if TYPE_CHECKING:
    from kseg.findings import Finding, Policy

FOUND, FAILED = 1, 2


def note(line: str) -> None:
    """Print one line, ``kseg:`` before it."""
    from kseg.text import escape_controls

    with heard():
        click.echo(f"kseg: {escape_controls(line)}", err=True)


@contextmanager
def heard() -> Iterator[None]:
    """What is said on stderr may find nobody, a full disk or a pipe's end: that changes no outcome."""
    try:
        yield
    except OSError:
        silence(sys.stderr)


@contextmanager
def telling() -> Iterator[None]:
    """Results on stdout of work that is done: it stays done where the reader has gone. Raises KsegError for a full disk."""
    try:
        yield
    except BrokenPipeError:
        silence(sys.stdout)
    except OSError as error:
        silence(sys.stdout)
        raise KsegError(f"standard output: {error.strerror or error}; the work itself is done") from error


@contextmanager
def while_read() -> Iterator[None]:
    """Rows for a reader of stdout who may have enough at any moment, as ``head`` has: the block ends there, as it would."""
    try:
        yield
    except BrokenPipeError:
        silence(sys.stdout)


def silence(stream: TextIO | None) -> None:
    """Have a stream that can't be written to take whatever comes, or what it still holds would fail at the end."""
    with suppress(OSError):
        if stream is not None:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)


def fail(line: str) -> int:
    """Print one line that says why something could not be done; returns the exit code for that."""
    note(line)
    return FAILED


class Notes:
    """Prints findings from warnings up, a few of each rule for each file; ``errors`` counts those that are errors.

    ``policy`` weighs the findings of the file that is read: None is the rule table alone.
    """

    def __init__(self) -> None:
        self.errors = 0
        self.policy: Policy | None = None
        self._told: Counter[tuple[str, str]] = Counter()

    def __call__(self, path: str, finding: Finding) -> None:
        from kseg.findings import RULES, Severity, Verdict
        from kseg.validation.validate import MAX_PER_RULE

        rule = RULES[finding.rule]
        severity = self.policy.severity(rule) if self.policy else rule.severity
        if severity < Severity.WARNING and rule.name != "partial-entry":  # which rows would not show
            return
        self.errors += severity >= Severity.ERROR
        self._told[path, rule.name] += 1
        if self._told[path, rule.name] <= MAX_PER_RULE:
            message = Verdict(path, severity, finding).message
            place = "" if finding.position is None else f" at byte {finding.position}"
            note(f"{path}: {rule.name}{place}: {message}")
