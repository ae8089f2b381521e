"""A check is one rule, one function and one row: validate, repair, convert and parallel runs read the table."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

#: Adds an error-level rule with a check that compares batches (sizes must not shrink to SMALL), and runs the commands.
_PROGRAM = """
import json, sys
from pathlib import Path
from kseg import findings
from kseg.findings import Rule, Severity
from kseg.format.checks import run_checks
from kseg.format.checks.batch_checks import CheckState, batch_finding

odd = Rule("K299", "odd-producer", Severity.ERROR, "producer id {id} is odd", "Nothing.", "Nothing.")
key = Rule("K399", "key-of-record", Severity.ERROR, "a key is {key}", "Nothing.", "Nothing.")
findings.RULES.update({rule.name: rule for rule in (odd, key)})

def check_producer(batches, limits, history, report):
    for row in range(batches.count):
        if batches.selected[row] and batches.producer_id[row] % 2 and batches.producer_id[row] > 0:
            report(batch_finding("odd-producer", batches, row, id=batches.producer_id[row]))

def check_key(chunk, limits, report):
    for row in range(chunk.first, chunk.stop):
        if any(chunk.key(i) == b"bad" for i in chunk.rows(row)):
            report(batch_finding("key-of-record", chunk.batches, row, key="bad"))

joined = []
def join(before, after):
    joined.append((before, after))
    return sys.argv[2] == "join"

run_checks.BATCH_CHECKS += (run_checks.BatchCheck(check_producer, join),)
run_checks.RECORD_CHECKS += (run_checks.RecordCheck(check_key),)

from kseg.commands.validate import validate_ranges
from kseg.cli.main import main
from kseg.format.segment import several_processes
from kseg.format.segment import several_processes
from kseg.format.storage.segment_files import SegmentFile
from kseg.format.writer.records_builder import PlainRecord, build_batch
from kseg.results import Settings
several_processes.RANGE_SIZE, several_processes.SEARCH_REACH = 10_000, 8_000
several_processes.BEGIN_ALONE = False

folder = Path(sys.argv[1])
segment = folder / "00000000000000000000.log"
data = bytearray()
for n in range(300):
    records = [PlainRecord(offset=n, timestamp=1, key=b"bad" if n == 150 else b"k", value=bytes(200))]
    odd = n in (100, 200)
    data += build_batch(records, producer_id=1 + n if odd else -1, producer_epoch=0 if odd else -1,
                        base_sequence=0 if odd else -1)
segment.write_bytes(data)

def run(*arguments):
    try:
        main(list(map(str, arguments)))
    except SystemExit as end:
        return end.code or 0

def found(path, jobs):
    (result,) = validate_ranges.validate_files([SegmentFile(str(path))], Settings(), jobs)
    return [(one.finding.rule, one.finding.offset) for one in result.verdicts]

expected = [("odd-producer", 100), ("key-of-record", 150), ("odd-producer", 200)]
alone = found(segment, 1)
assert sorted(alone, key=lambda one: one[1]) == expected, alone
assert not joined
assert found(segment, 2) == alone
assert joined

# repair leaves out the batches that the checks reject, and its output has none of these errors.
repaired, converted = folder / "repaired" / segment.name, folder / "converted" / segment.name
repaired.parent.mkdir(); converted.parent.mkdir()
assert run("repair", segment, repaired) in (0, 1)
assert found(repaired, 1) == [("offset-gap", 100), ("offset-gap", 150), ("offset-gap", 200)], found(repaired, 1)
assert repaired.stat().st_size < len(data)

# convert stops at an error of its source, or skips the batches.
assert run("convert", "v2-to-v2", "--compression", "gzip", segment, converted) == 2
assert run("convert", "v2-to-v2", "--compression", "gzip", "--skip-damaged", segment, converted) == 1
assert {rule for rule, _ in found(converted, 1)} <= {"offset-gap"}
print("done")
"""


@pytest.mark.slow
def test_a_check_is_added_in_one_place(tmp_path: Path) -> None:
    """A command with a list of its own would accept, or write, what another command rejects."""
    for joins in ("join", "separate"):
        (tmp_path / joins).mkdir()
        command = [sys.executable, "-c", _PROGRAM, str(tmp_path / joins), joins]
        done = subprocess.run(command, env=os.environ, capture_output=True, text=True, timeout=300, check=False)
        assert done.stdout.endswith("done\n"), done.stdout + done.stderr
