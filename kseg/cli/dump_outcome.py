"""The outcome of a command that writes rows: its findings on stderr, and its exit code."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kseg.cli.finding_notes import FindingNotes
from kseg.cli.messages import FAILED, FOUND, fail, note
from kseg.commands.dump.rows import EmptyFile, FileStart, Item, row_count
from kseg.errors import KsegError, UsageError, VanishedError
from kseg.findings import Finding
from kseg.format.checks.run_checks import policy_for
from kseg.format.storage.source import SegmentFile
from kseg.results import Settings


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
        self._notes(self.file, finding)

    def counted(self, items: Iterator[Item]) -> Iterator[Item]:
        """Yield the items, and count the rows among them."""
        for item in items:
            self.written += row_count(item)
            self.rows |= not isinstance(item, (FileStart, EmptyFile))
            yield item

    def attempt(self, rows: Iterator[Any], *, listed: bool = False) -> Iterator[Any]:
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
