"""The baseline of ``kseg validate``: findings that are known from an earlier run, and do not fail this one.

    {"kseg_baseline": 1, "findings": [{"file", "rule", "position", "offset", "id"}, ...]}

``id`` identifies a finding by its file, rule, place and facts. The other fields are for people. The baseline has all
findings of one run; a run with it must name the same paths.

The report of a repair (``kseg repair --format jsonl -o REPORT SRC DST``) is a baseline, too: missing offsets are known
if the report lists each of them as lost, for the partition folder of that name.
"""

from __future__ import annotations

import hashlib
import json
import os
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from kseg.errors import UsageError
from kseg.findings import Verdict, joined_ranges
from kseg.format.storage import local_files
from kseg.format.storage.atomic_write import whole_file
from kseg.format.storage.local_files import read_file
from kseg.results import FileResult, Settings, Summary, VerdictList, in_file

VERSION = 1
#: The most findings of one rule and file that are compared. More of them cannot be distinguished from known ones.
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
        entries, self._losses = _read_baseline(path)
        self._left = {entry["id"]: entry for entry in entries}
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
                if found in self._ids or self._is_loss(verdict):
                    known.append(replace(verdict, known=True))
                else:
                    self.new.count(verdict.rule.name, verdict.severity, 1)
                    new.add(verdict)
            self.known += len(known)
            self._count_uncompared(result)
            yield replace(result, verdicts=tuple(sorted([*known, *new.verdicts], key=in_file)), unlisted=new.unlisted)

    def _is_loss(self, verdict: Verdict) -> bool:
        """Return whether a finding is about missing offsets, and the repair's report lists all of them as lost."""
        first, last = verdict.offset, verdict.finding.last_offset
        if verdict.rule.name not in _MISSING or first is None or last is None:
            return False
        ranges = self._losses.get(_folder_of(verdict.file), [])
        at = bisect_right(ranges, (first, 1 << 63)) - 1
        return at >= 0 and ranges[at][0] <= first and last <= ranges[at][1]

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


def _read_baseline(path: str) -> tuple[list[dict[str, Any]], _Losses]:
    """Return the entries of a baseline, and the lost offsets of a repair's report."""
    text = read_file(path)
    try:
        if b'"kseg_baseline"' not in text:
            return [], _losses(map(json.loads, filter(None, text.splitlines())))
        read = json.loads(text)
        entries = read["findings"]
        if read["kseg_baseline"] != VERSION or not all(isinstance(entry["id"], str) for entry in entries):
            raise ValueError
    except (ValueError, KeyError, TypeError):
        raise UsageError(
            f"{path}: neither a baseline of this version nor a report of repair: write one with --write-baseline FILE, "
            "or with `kseg repair --format jsonl`"
        ) from None
    found: list[dict[str, Any]] = entries
    return found, {}


#: By the name of a partition's folder: the ranges of lost offsets (inclusive), in order and not adjacent.
_Losses = dict[str, list[tuple[int, int]]]
#: The rules about offsets that no batch has.
_MISSING = frozenset({"offset-gap", "missing-batches", "segment-gap"})


def _losses(rows: Iterable[dict[str, Any]]) -> _Losses:
    """Return the lost offsets that a repair's report lists. Raises ValueError or KeyError for other rows."""
    ranges: dict[str, list[tuple[int, int]]] = {}
    targets: dict[str, str] = {}
    ended = False
    for row in rows:
        kind = row["kind"]
        if kind == "segment":
            if row["target"]:
                targets[_folder_of(row["source"])] = _folder_of(row["target"])
        elif kind == "summary":
            ended = True
        elif row["offset"] is not None and row["last_offset"] is not None and kind != "mended":
            ranges.setdefault(_folder_of(row["file"]), []).append((int(row["offset"]), int(row["last_offset"])))
    if not ended:
        raise ValueError
    joined = {folder: joined_ranges(each) for folder, each in ranges.items()}
    return joined | {targets[folder]: each for folder, each in joined.items() if folder in targets}


def _folder_of(path: str) -> str:
    """Return the name of a file's folder: a repaired partition is moved to the place of the damaged one."""
    return os.path.basename(os.path.dirname(local_files.absolute(path)))
