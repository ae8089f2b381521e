"""The outcomes of this process's engine for seeded damaged segments, as one line of JSON for each seed.

KSEG_ENGINE=python python -m tests.support.engine_outcomes FOLDER FIRST STOP STEP
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from io import BytesIO, TextIOWrapper
from pathlib import Path

from kseg.commands.convert.conversion import convert
from kseg.commands.convert.conversion_plan import ConversionPlan
from kseg.commands.dump.dumped_rows import dump_segment
from kseg.commands.repair.repair import repair
from kseg.commands.repair.repaired_segment import RepairPlan as RepairPlan
from kseg.commands.stats.counted_file import segment_stats
from kseg.commands.validate.validate import validate_segment
from kseg.errors import KsegError
from kseg.findings import Finding
from kseg.format.storage.segment_files import SegmentFile
from kseg.report.dump_report import write_jsonl
from kseg.report.formats import View
from kseg.results import FileResult, Settings
from tests.support.damaged_cases import damaged, written


def outcome(folder: Path, seed: int) -> dict[str, str]:
    """Return the result of each command for one segment, as text."""
    path = written(folder / str(seed), damaged(seed))
    beside = tuple(str(path.with_suffix(suffix)) for suffix in (".index", ".timeindex"))
    file = SegmentFile(str(path), indexes=beside)
    deep, shallow = Settings(max_per_rule=10**6), Settings(deep=False, max_per_rule=10**6)
    found: dict[str, Callable[[], object]] = {
        "deep": lambda: _unordered(validate_segment(file, deep)),
        "shallow": lambda: _unordered(validate_segment(file, shallow)),
        "stats": lambda: segment_stats(SegmentFile(str(path)), deep).stats,
        "dump": lambda: _dumped(path),
        "convert": lambda: _converted(path, folder / f"{seed}-converted"),
        "repair": lambda: _repaired(path, folder / f"{seed}-repaired"),
    }
    return {name: _attempt(call).replace(str(folder), "") for name, call in found.items()}


def _attempt(call: Callable[[], object]) -> str:
    try:
        return repr(call())
    except KsegError as error:
        return str(error)


def _unordered(result: FileResult) -> str:
    """Return a result with sorted sets: hashes differ between processes."""
    beside = [repr(replace(one, found=frozenset())) for one in result.indexes]
    facts = result.facts and (replace(result.facts, ended=frozenset()), sorted(result.facts.ended))
    return repr((replace(result, found=frozenset(), facts=None, indexes=()), sorted(result.found), facts, beside))


def _dumped(path: Path) -> str:
    raw, findings = BytesIO(), list[Finding]()
    out = TextIOWrapper(raw)
    for deep in (False, True):
        write_jsonl(dump_segment(str(path), deep=deep, report=findings.append), out, View(deep, "base64", False))
    out.flush()
    return f"{raw.getvalue()!r} {findings}"


def _converted(path: Path, folder: Path) -> object:
    folder.mkdir()
    findings: list[Finding] = []
    plan = ConversionPlan.of("any-to-v2", compression="gzip", skip_damaged=True)
    result = convert(str(path), str(folder / path.name), plan, lambda _, finding: findings.append(finding))
    return result.segments, findings, _digests(folder)


def _repaired(path: Path, folder: Path) -> object:
    folder.mkdir()
    reported: list[object] = []
    result = repair(str(path), str(folder / path.name), RepairPlan(salvage_records=True), reported.append)
    return result.segments, reported, _digests(folder)


def _digests(folder: Path) -> list[tuple[str, str]]:
    return [(file.name, hashlib.sha256(file.read_bytes()).hexdigest()) for file in sorted(folder.iterdir())]


if __name__ == "__main__":
    place = Path(sys.argv[1])
    for number in range(*map(int, sys.argv[2:5])):
        print(json.dumps({"seed": number, **outcome(place, number)}))
