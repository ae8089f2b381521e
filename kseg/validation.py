"""Validate a file, a partition folder or a log directory in one call."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from kseg import schema
from kseg.commands.validate.folder_checks import check_folders
from kseg.commands.validate.parallel import validate_files
from kseg.errors import UnreadableError
from kseg.findings import Verdict, do_nothing
from kseg.format.sidefiles.registry import find_files
from kseg.format.storage.source import find_segments, is_folder
from kseg.report import arrow_table
from kseg.report.arrow_parts import pa
from kseg.results import FileResult, Settings, Summary


@dataclass(frozen=True, slots=True)
class Validation:
    """The result of ``validate``: the results of all files, in the order of the folders, and their sum."""

    files: tuple[FileResult, ...]
    summary: Summary

    @property
    def verdict(self) -> str:
        """``sound`` without errors, ``damaged`` with one; ``undetermined`` if something was not read or not checked."""
        return self.summary.verdict

    @property
    def findings(self) -> tuple[Verdict, ...]:
        """The findings of all files: the first ``Settings.max_per_rule`` of each rule and file; ``summary`` counts all."""
        return tuple(verdict for file in self.files for verdict in file.verdicts)

    @property
    def unread(self) -> Mapping[str, str]:
        """The files that could not be read, with the reason of each."""
        return {file.file: file.unread for file in self.files if file.unread}

    def to_arrow(self) -> pa.RecordBatch:
        """Return the findings as one Arrow batch with the columns of Spark's ``findings`` view.

        Raises UsageError if pyarrow is not installed.
        """
        columns = arrow_table.widened(schema.FINDING_TABLE)
        return arrow_table.from_rows(columns, [verdict.as_row() for verdict in self.findings])


def validate(path: str | os.PathLike[str], *, settings: Settings | None = None, jobs: int = 1) -> Validation:
    """Run every check of ``kseg validate`` over a file, a partition folder, a log directory or an fsspec URL.

    Files of a local folder are also checked against each other. ``settings`` says what to check and which severity each
    rule has; None is the default of the command line. ``jobs`` is the maximum number of processes.

    Raises UnreadableError if a folder cannot be listed or if no file is found in it, or if the one file that ``path`` names
    cannot be read or is not a segment. A file in a folder that cannot be read does not raise: see ``Validation.unread``.
    """
    name = os.fspath(path)
    settings = settings or Settings()
    folder = is_folder(name)
    files = list(find_files(name, do_nothing) if folder else find_segments(name))
    found = validate_files(files, settings, jobs)
    found = check_folders(files, settings, found)
    results = tuple(result for result in found if not result.vanished)
    if len(files) == 1 and not folder and results and results[0].unread:
        raise UnreadableError(results[0].unread)
    total = Summary()
    for result in results:
        total.add(result.summary)
    return Validation(results, total)
