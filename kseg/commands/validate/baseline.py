"""The baseline of ``kseg validate``: known findings, which do not fail a run.

    {"kseg_baseline": 1, "findings": [{"file", "rule", "position", "offset", "id"}, ...]}

``id`` identifies a finding by its file, rule, place and facts. The other fields are for people. The baseline has all
findings of one run; a run with it must name the same paths.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from kseg.errors import UsageError
from kseg.findings import Verdict
from kseg.format.storage.atomic_write import whole_file
from kseg.format.storage.special_files import read_file
from kseg.results import FileResult, Settings, Summary, VerdictList, in_file

VERSION = 1
#: The most findings of one rule and file that are compared. More of them can't be told apart from known ones.
MAX_COMPARED = 100_000


def fingerprint(verdict: Verdict) -> str:
    """Return the id of a finding: equal for the same damage in the same file, whatever its severity is."""
    finding = verdict.finding
    what = (verdict.rule.code, verdict.file, finding.position, finding.offset, finding.last_offset, finding.facts)
    return hashlib.sha256(repr(what).encode("utf-8", "backslashreplace")).hexdigest()[:32]


def comparing(settings: Settings) -> Settings:
    """Return settings under which all findings are listed, so that each can be compared."""
    return replace(settings, max_per_rule=max(settings.max_per_rule, MAX_COMPARED))


class Baseline:
    """The known findings of an earlier run. ``new`` are the counts of all others, ``known`` the number of known ones."""

    def __init__(self, path: str) -> None:
        """Read a baseline. Raises UsageError if it isn't one, UnreadableError if it can't be read."""
        self.new = Summary()
        self.known = 0
        self._left = {entry["id"]: entry for entry in _read(path)}
        self._ids = set(self._left)
        self._read: set[str] = set()

    def marked(self, results: Iterable[FileResult], max_per_rule: int) -> Iterator[FileResult]:
        """Yield the results with ``known`` set on known findings, and at most ``max_per_rule`` new ones of each rule."""
        for result in results:
            if not (result.unread or result.vanished):
                self._read.add(result.file)
            known: list[Verdict] = []
            new = VerdictList(max_per_rule, unlisted=result.unlisted)
            for verdict in result.verdicts:
                found = fingerprint(verdict)
                self._left.pop(found, None)
                if found in self._ids:
                    known.append(replace(verdict, known=True))
                else:
                    self.new.count(verdict.rule.name, verdict.severity, 1)
                    new.add(verdict)
            self.known += len(known)
            self._count_uncompared(result)
            yield replace(result, verdicts=tuple(sorted([*known, *new.verdicts], key=in_file)), unlisted=new.unlisted)

    def _count_uncompared(self, result: FileResult) -> None:
        """Count findings that are not listed as new."""
        listed = Counter(verdict.rule.name for verdict in result.verdicts)
        for verdict in {verdict.rule.name: verdict for verdict in result.verdicts}.values():
            name = verdict.rule.name
            if more := result.summary.rules[name] - listed[name]:
                self.new.count(name, verdict.severity, more)

    def gone(self) -> list[dict[str, Any]]:
        """Return the known findings that did not occur in this run although their files were read."""
        return [entry for entry in self._left.values() if entry.get("file") in self._read]

    def unread(self) -> int:
        """Return the number of known findings of files that this run did not read."""
        return len(self._left) - len(self.gone())


class BaselineWriter:
    """Collects the findings of a run and writes them as a baseline."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []

    def collected(self, results: Iterable[FileResult], max_per_rule: int) -> Iterator[FileResult]:
        """Yield the results with at most ``max_per_rule`` findings of each rule and file; collect all of them."""
        for result in results:
            kept = VerdictList(max_per_rule, unlisted=result.unlisted)
            for verdict in result.verdicts:
                finding, rule = verdict.finding, verdict.rule.name
                place = {"position": finding.position, "offset": finding.offset}
                self.entries.append({"file": result.file, "rule": rule, **place, "id": fingerprint(verdict)})
                kept.add(verdict)
            yield replace(result, verdicts=tuple(kept.verdicts), unlisted=kept.unlisted)

    def write(self, path: str) -> None:
        """Write the baseline atomically. Raises KsegError."""
        lines = ",\n".join(json.dumps(entry, ensure_ascii=True) for entry in self.entries)
        with whole_file(Path(path)) as out:
            out.write(f'{{"kseg_baseline": {VERSION}, "findings": [\n{lines}\n]}}\n'.encode("ascii"))


def _read(path: str) -> list[dict[str, Any]]:
    try:
        read = json.loads(read_file(path))
        entries = read["findings"]
        if read["kseg_baseline"] != VERSION or not all(isinstance(entry["id"], str) for entry in entries):
            raise ValueError
    except (ValueError, KeyError, TypeError):
        raise UsageError(f"{path}: not a baseline of this version: write one with --write-baseline FILE") from None
    found: list[dict[str, Any]] = entries
    return found
