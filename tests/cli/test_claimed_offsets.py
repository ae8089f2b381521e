"""Offsets of broken headers are not printed as facts: a number that the log never had is a claim of the header."""

from __future__ import annotations

import json
import random
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from kseg.cli.main import main
from tests.support.cli import invoke
from tests.support.damage import entries
from tests.support.damaged_logs import SEGMENTS
from tests.support.fuzzing import cases

PARTITIONS = ("4.3.0-v2-none-segments", "4.3.0-v2-none-transactions", "0.10.2.2-v1-none-segments")
#: No offset of the undamaged partitions is as high.
HIGHEST = 1 << 31


@pytest.mark.slow
@pytest.mark.fuzz
def test_validate_does_not_state_offsets_of_broken_headers(tmp_path: Path) -> None:
    """No CRC covers the base offset: neither the place of a finding nor a range of missing offsets follows from it."""
    wrong = []
    for seed in range(cases(12)):
        dice = random.Random(seed)
        folder = tmp_path / "t-0"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(SEGMENTS / dice.choice(PARTITIONS), folder, ignore=shutil.ignore_patterns("ORIGIN", "*.jsonl"))
        log = dice.choice([path for path in sorted(folder.glob("*.log")) if path.stat().st_size])
        data = bytearray(log.read_bytes())
        place = dice.choice(entries(bytes(data)))
        data[place.at + dice.randrange(3)] ^= 1 << dice.randrange(7)
        if dice.random() < 0.3:
            data[place.at + 40] ^= 16
        log.write_bytes(data)
        done = invoke("validate", "--format", "jsonl", folder)
        for row in map(json.loads, done.stdout.splitlines()):
            stated = [row[name] for name in ("offset", "last_offset") if (row.get(name) or 0) > HIGHEST]
            numbers = [word for word in row.get("message", "").replace(",", "").split() if word.isdigit()]
            claimed = "claims" in row.get("message", "") or row.get("rule") == "crc-mismatch"
            if stated or (not claimed and any(int(number) > HIGHEST for number in numbers)):
                wrong.append((seed, row["rule"], row["offset"], row["last_offset"], row["message"]))
    assert wrong == []


def machine_and_text(log: Path, other: Path) -> Iterator[list[str]]:
    """Yield the commands that show offsets, for a segment and its partition, in all kinds of formats."""
    partition = log.parent
    for form in ("table", "jsonl"):
        for path in map(str, (log, partition)):
            for command in ("validate", "stats", "transactions"):
                yield [command, "--format", form, path]
            yield ["repair", "--dry-run", "--format", form, path]
        yield ["diff", "--format", form, str(partition), str(other)]
        yield ["recovery", "--format", form, str(partition.parent)]
    yield ["stats", "--deep", "--format", "jsonl", str(partition)]
    yield ["validate", "--format", "html", str(partition)]
    yield ["validate", "--format", "sarif", str(partition)]
    yield ["doctor", "--format", "html", str(partition)]
    yield ["sql", "--format", "jsonl", f"select * from segments('{partition}')"]


#: What a broker does on the word of a header is a prediction, and a wide row of the HTML page has its facts elsewhere.
PREDICTED = re.compile(r"write-snapshot|split-segment|recover-segment|log_end|\.snapshot|\.log and \d+ more")
PLACES = (
    ("4.3.0-v2-none-segments", 1, 1), ("4.3.0-v2-none-segments", -1, -1), ("4.3.0-v2-none-transactions", 1, 3),
    ("0.10.2.2-v1-none-segments", 0, -1), ("0.8.2.2-v0-none", 0, 0), ("0.10.2.2-v1-gzip-segments", 0, 0),
    ("0.10.2.2-v1-gzip-segments", 0, 1), ("0.8.2.2-v0-gzip", 0, -1), ("2.8.2-v1-snappy", 0, 1),
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.fuzz
@pytest.mark.parametrize("broken", ["the CRC too", "the offset only", "a cut"])
def test_no_command_states_an_offset_that_only_a_header_claims(tmp_path: Path, broken: str) -> None:
    """Statements are proved or marked: an offset far from those of all neighbours is shown with the word "claims"."""
    wrong = []
    for seed in range(cases(2)):
        dice = random.Random(f"{seed} {broken}")
        name, segment, row = dice.choice(PLACES)
        partition, other = tmp_path / "a" / "t-0", tmp_path / "b" / "t-0"
        shutil.rmtree(tmp_path / "a", ignore_errors=True)
        shutil.rmtree(tmp_path / "b", ignore_errors=True)
        for folder in (partition, other):
            shutil.copytree(SEGMENTS / name, folder, ignore=shutil.ignore_patterns("ORIGIN", "*.jsonl"))
        log = [path for path in sorted(partition.glob("*.log")) if path.stat().st_size][segment]
        data = bytearray(log.read_bytes())
        place = entries(bytes(data))[row]
        # Bytes that move the offset farther than a batch has records.
        data[place.at + dice.randrange(5)] ^= 1 << dice.randrange(8)
        wild = int.from_bytes(data[place.at : place.at + 8], "big", signed=True)
        if broken == "the CRC too":
            data[place.end - 3] ^= 16
        log.write_bytes(data if broken != "a cut" else data[: place.end - 5])
        for command in machine_and_text(log, other):
            done = CliRunner().invoke(main, command, env={"COLUMNS": "400"})
            assert not done.exception or isinstance(done.exception, SystemExit), (command, done.exception)
            # In an HTML page and SARIF a finding is longer than a line.
            text = done.stdout + done.stderr
            for line in re.split(r"</tr>|\n|\]\],", text) if "html" in command else text.splitlines():
                numbers = map(int, re.findall(r"\d{8,}", line.replace(",", "")))
                near = any(abs(number - abs(wild)) < 100_000 for number in numbers)
                if near and "claim" not in line and not PREDICTED.search(line):
                    wrong.append((seed, name, segment, row, wild, " ".join(command[:3]), line[:300]))
    assert wrong == []
