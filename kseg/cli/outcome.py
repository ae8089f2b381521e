"""Findings of commands other than ``kseg validate`` as messages on stderr, and their exit codes."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import click

from kseg.cli.messages import FAILED, FOUND, note, note_after, until_reader_closes
from kseg.commands.dump import dump_items
from kseg.errors import KsegError, UnreadableError, UsageError
from kseg.findings import READ_ERROR, RULES, Finding, Policy, Report, Severity, is_noted, unreadable
from kseg.format.checks import run_checks
from kseg.format.storage.naming import is_missing
from kseg.format.storage.segment_files import SegmentFile, check_complete, find_segments, once_each, unless_deleted
from kseg.report.formats import destination
from kseg.results import MAX_PER_RULE, Settings
from kseg.text import count_of

if TYPE_CHECKING:
    from kseg.commands.dump.dump_items import Item
    from kseg.extras.serialization.decoding import DecodedValue

#: The number of findings up to which each has a line; of more there is one sentence.
_MOST_LINES = 3
#: The number of schemas up to which those that a registry did not return are counted.
_MOST_SCHEMAS = 10_000

_Row = TypeVar("_Row")


def segments_text(files: Iterable[SegmentFile]) -> str:
    """Return the numbers of segments and of their folders: ``1,124 segments of 304 partitions``."""
    folders = [os.path.dirname(file.path) for file in files]
    partitions = len(set(folders))
    return count_of(len(folders), "segment") + (f" of {count_of(partitions, 'partition')}" if partitions > 1 else "")


class FindingNotes:
    """Prints warnings and errors after the results: few in a line each, many as one sentence. ``errors`` counts the errors.

    ``rules`` are the names of the rules. ``failed``: something was not read or not found;
    ``failures`` are the reasons that were printed.

    ``policy`` is the policy of the file that is read; None uses the severities of the rule table. With ``each``, each
    finding has a line, of a rule and file the first MAX_PER_RULE. With ``at_once`` they are printed when they are found,
    for rows that follow a growing log.
    """

    def __init__(self, *, each: bool = False, at_once: bool = False) -> None:
        self.errors = 0
        self.failed = False
        self.failures: set[str] = set()
        self.policy: Policy | None = None
        self._each = each
        self._at_once = at_once
        self._lines: list[str] = []
        self.rules: set[str] = set()
        self._places: Counter[str] = Counter()
        self._printed: Counter[tuple[str, str]] = Counter()
        self._files: dict[str, SegmentFile] = {}
        self._policies: dict[str, Policy] = {}
        self._unread_schemas: dict[str, str] = {}
        if context := click.get_current_context(silent=True):
            context.call_on_close(self._end)

    def weigh(self, files: Iterable[SegmentFile]) -> None:
        """Weigh the findings of these files as ``kseg validate`` does: a broker may be writing the end of an active one."""
        self._files |= {file.path: file for file in files}

    def __call__(self, path: str, finding: Finding) -> None:
        policy = self._policy_of(path)
        if not is_noted(finding, policy):
            return
        rule = RULES[finding.rule]
        self.rules.add(rule.name)
        severity = policy.severity(rule) if policy else rule.severity
        self.errors += severity >= Severity.ERROR
        self._places[path] += 1
        if not (self._each or self._at_once or len(self._lines) < _MOST_LINES):
            return
        self._printed[path, rule.name] += 1
        if self._printed[path, rule.name] == MAX_PER_RULE + 1:
            self._line(f"{path}: {rule.name}: more of them follow; `kseg validate` counts them")
        elif self._printed[path, rule.name] <= MAX_PER_RULE:
            place = "" if finding.position is None else f" at byte {finding.position}"
            self._line(f"{path}: {rule.name}{place}: {finding.message}")

    def _policy_of(self, path: str) -> Policy | None:
        """Return the policy of a file, which looks at its folder once, at the first finding."""
        if file := self._files.pop(path, None):
            self._policies[path] = run_checks.policy_for(file, Settings())
        return self._policies.get(path) if self.policy is None else self.policy

    def fail(self, why: str) -> None:
        """Print why something was not read, once."""
        if why not in self.failures:
            (note if self._at_once else note_after)(why)
        self.failures.add(why)
        self.failed = True

    def unread(self, error: KsegError) -> None:
        """Print the error of a file that cannot be read."""
        self.fail(str(error))

    def listed(self, paths: Iterable[str], find: Callable[[str], Iterator[SegmentFile]]) -> list[SegmentFile]:
        """Return the files found at each of the paths; print why a path could not be listed."""
        files: list[SegmentFile] = []
        for path in paths:
            try:
                files += find(path)
            except KsegError as error:
                self.unread(error)
        return once_each(files)

    def undecoded(self, found: DecodedValue) -> None:
        """Remember a key or a value whose schema a registry was asked for without an answer: its ``unread``."""
        if found.unread is not None and found.error and len(self._unread_schemas) < _MOST_SCHEMAS:
            self._unread_schemas.setdefault(found.unread, found.error)

    def end_undecoded(self, *, failed: bool) -> None:
        """Print why schemas were not read: one line. ``failed``: the answer of the command depends on them."""
        if self._unread_schemas:
            (reason, *_), count = self._unread_schemas.values(), len(self._unread_schemas)
            line = f"{reason}: {count_of(count, 'schema')}{' or more' * (count == _MOST_SCHEMAS)} not read"
            (self.fail if failed else note_after)(line)
            self._unread_schemas.clear()

    def add(self, read: Any) -> None:
        """Print the ``findings`` of files that were read elsewhere, and why a file was ``unread``."""
        for file, finding in read.findings:
            self(file, finding)
        if read.unread:
            self.fail(read.unread)

    def exit_code(self, found: object = None) -> int:
        """Return the exit code of a command that ``found`` something, or nothing but these findings."""
        return FAILED if self.failed else FOUND if found or self.errors else 0

    def more(self, path: str, rule: str, count: int) -> None:
        """Count more findings of a rule in a file."""
        self._places[path] += count
        if self._each:
            self._line(f"{path}: {rule}: {count:,} more")

    def _line(self, line: str) -> None:
        if self._at_once:
            note(line)
        else:
            self._lines.append(line)

    def _end(self) -> None:
        places, files = self._places.total(), len(self._places)
        if self._each or places <= len(self._lines):
            for line in self._lines:
                note(line)
        elif not self._at_once:
            found = f"{count_of(places, 'finding')} in {count_of(files, 'file')}"
            note(f"{found}: `kseg validate` lists them; the first: {self._lines[0]}")


class DumpOutcome(FindingNotes):
    """The outcome of a command that writes rows: prints findings on stderr, and has the exit code.

    With ``at_once``, for rows that follow a growing log, messages are printed between the rows, not after them.
    """

    def __init__(self, *, at_once: bool = False) -> None:
        super().__init__(at_once=at_once)
        self.rows = False
        self.written = 0

    def begin(self, file: SegmentFile) -> Report:
        """Return what reports the findings of a file: they are weighed as ``kseg validate`` does."""
        self.weigh([file])
        return partial(self, file.path)

    def __call__(self, path: str, finding: Finding) -> None:
        if finding.rule == READ_ERROR:  # rows are missing that the file may have
            self.fail(str(unreadable(path, finding)))
        else:
            super().__call__(path, finding)

    def segments(
        self, paths: Iterable[str], find: Callable[[str], Iterator[SegmentFile]] = find_segments
    ) -> list[SegmentFile]:
        """Return the segments of paths. A path that cannot be read is one line on stderr.

        So is an archive that ends early, also if enough rows are found before its end.
        """
        files = once_each(chain.from_iterable(self.attempt(find(path)) for path in paths))
        try:
            for file in files:
                if is_missing(file.path):
                    check_complete(file.path)
        except UnreadableError as error:
            self.fail(str(error))
        return files

    @contextmanager
    def output(self, path: str | None) -> Iterator[TextIO]:
        """Open the destination of rows. An older file is kept if no row could be read."""
        with until_reader_closes(), destination(path, to_the_end=False) as out:
            yield out
            if self.failed and not self.rows:
                raise click.exceptions.Exit(FAILED)

    def counted(self, items: Iterator[Item]) -> Iterator[Item]:
        for item in items:
            self.written += dump_items.row_count(item)
            self.rows |= not isinstance(item, (dump_items.FileStart, dump_items.EmptyFile))
            yield item

    def attempt(self, rows: Iterator[_Row], file: SegmentFile | None = None) -> Iterator[_Row]:
        """Yield the rows. What cannot be read is one line on stderr; a listed ``file`` may have been deleted."""
        try:
            yield from rows
        except UsageError:
            raise
        except KsegError as error:
            if reported := unless_deleted(error, file):
                self.fail(str(reported))

    def exit_code(self, found: object = None, *, read: Sequence[SegmentFile] = ()) -> int:
        """Return the exit code; without a row, print that there is none in the segments ``read``."""
        if not (self.rows or self.failed):
            hidden = "; --no-crc shows those whose CRC is wrong" * ("crc-mismatch" in self.rules)
            note("no rows" + (f" in {segments_text(read)}" if read else "") + hidden)
        return super().exit_code(found)
