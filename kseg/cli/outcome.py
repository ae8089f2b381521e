"""The findings of commands other than ``kseg validate`` as messages on stderr, and the exit codes that follow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TypeVar

import click

from kseg.cli.messages import FAILED, FOUND, fail, note
from kseg.commands.dump.dumped_rows import (
    EmptyFile,
    FileStart,
    Item,
    row_count,
)
from kseg.errors import KsegError, UsageError, VanishedError
from kseg.findings import (
    READ_ERROR,
    RULES,
    Finding,
    Policy,
    Severity,
    Verdict,
    is_noted,
    unreadable,
)
from kseg.format.checks.run_checks import policy_for
from kseg.format.storage.source import SegmentFile
from kseg.results import MAX_PER_RULE, Settings
from kseg.text import count_of

#: The number of files whose findings are printed; those of others are counted.
_NOTED_FILES = 3

_Row = TypeVar("_Row")


class FindingNotes:
    """Prints warnings and errors, a limited number per rule and file, of a few files. ``errors`` counts the errors.

    ``policy`` is the policy of the file that is read; None uses the severities of the rule table. The end of the command
    prints how many places there are in other files.
    """

    def __init__(self) -> None:
        self.errors = 0
        self.policy: Policy | None = None
        self._printed: Counter[tuple[str, str]] = Counter()
        self._files: set[str] = set()
        self._others: Counter[str] = Counter()
        if context := click.get_current_context(silent=True):
            context.call_on_close(self._end)

    def __call__(self, path: str, finding: Finding) -> None:
        if not is_noted(finding, self.policy):
            return
        rule = RULES[finding.rule]
        severity = self.policy.severity(rule) if self.policy else rule.severity
        self.errors += severity >= Severity.ERROR
        if not self._is_listed(path):
            self._others[path] += 1
            return
        self._printed[path, rule.name] += 1
        if self._printed[path, rule.name] == MAX_PER_RULE + 1:
            note(f"{path}: {rule.name}: more of them follow; `kseg validate` counts them")
        elif self._printed[path, rule.name] <= MAX_PER_RULE:
            message = Verdict(path, severity, finding).message
            place = "" if finding.position is None else f" at byte {finding.position}"
            note(f"{path}: {rule.name}{place}: {message}")

    def more(self, path: str, rule: str, count: int) -> None:
        """Print that a file has more findings of a rule."""
        if self._is_listed(path):
            note(f"{path}: {rule}: {count:,} more")
        else:
            self._others[path] += count

    def _is_listed(self, path: str) -> bool:
        if len(self._files) < _NOTED_FILES:
            self._files.add(path)
        return path in self._files

    def _end(self) -> None:
        if self._others:
            places, files = self._others.total(), len(self._others)
            note(
                f"and {count_of(places, 'more damaged place')} in {count_of(files, 'other file')}: "
                "`kseg validate` lists them"
            )


class DumpOutcome:
    """The outcome of a command that writes rows: prints findings on stderr, and has the exit code."""

    def __init__(self) -> None:
        self.file = ""
        self.rows = False
        self.written = 0
        self.failed = False
        self._notes = FindingNotes()

    def begin(self, file: SegmentFile) -> None:
        """The next file: its findings are weighed as ``kseg validate`` does."""
        self.file, self._notes.policy = file.path, policy_for(file, Settings())

    def __call__(self, finding: Finding) -> None:
        if finding.rule == READ_ERROR:  # rows are missing that the file may have
            self.failure(unreadable(self.file, finding), listed=False)
            return
        self._notes(self.file, finding)

    def counted(self, items: Iterator[Item]) -> Iterator[Item]:
        """Yield the items, and count the rows among them."""
        for item in items:
            self.written += row_count(item)
            self.rows |= not isinstance(item, (FileStart, EmptyFile))
            yield item

    def attempt(self, rows: Iterator[_Row], *, listed: bool = False) -> Iterator[_Row]:
        """Yield the rows. A file that cannot be read is one line on stderr; a ``listed`` file may have been deleted."""
        try:
            yield from rows
        except UsageError:
            raise
        except KsegError as error:
            self.failure(error, listed=listed)

    def failure(self, error: KsegError, *, listed: bool) -> None:
        """Print why a file cannot be read."""
        if not (listed and isinstance(error, VanishedError)):
            self.failed = True
            fail(str(error))

    def exit_code(self) -> int:
        if not (self.rows or self.failed):
            note("no rows")
        return FAILED if self.failed else FOUND if self._notes.errors else 0
