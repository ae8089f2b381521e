"""Offsets of broken headers are not printed as facts: a number that the log never had is a claim of the header."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from kseg.cli.main import main
from tests.support.damage import entries
from tests.support.damaged_logs import SEGMENTS
from tests.support.fuzzing import cases

PARTITIONS = ("4.3.0-v2-none-segments", "4.3.0-v2-none-transactions", "0.10.2.2-v1-none-segments")
#: No offset of the undamaged partitions is as high.
HIGHEST = 1 << 31


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
        done = CliRunner().invoke(main, ["validate", "--format", "jsonl", str(folder)])
        for row in map(json.loads, done.stdout.splitlines()):
            stated = [row[name] for name in ("offset", "last_offset") if (row.get(name) or 0) > HIGHEST]
            numbers = [word for word in row.get("message", "").replace(",", "").split() if word.isdigit()]
            claimed = "claims" in row.get("message", "") or row.get("rule") == "crc-mismatch"
            if stated or (not claimed and any(int(number) > HIGHEST for number in numbers)):
                wrong.append((seed, row["rule"], row["offset"], row["last_offset"], row["message"]))
    assert wrong == []
