"""Verdicts of whole files and runs: what they claim agrees with what was read, checked and lost."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kseg.cli.main import main
from kseg.findings import RULES
from tests.damage import entries
from tests.make_findings import FINDINGS, FIRST, SEGMENTS

PLAIN = SEGMENTS / "4.3.0-v2-none" / FIRST
DAMAGED = SEGMENTS.parent / "findings" / "crc-mismatch" / FIRST


def run_kseg(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def test_without_crcs_file_and_run_are_undetermined() -> None:
    """A file whose CRCs were not computed is not called sound, neither by itself nor in the sum."""
    done = run_kseg("validate", "--no-crc", PLAIN)
    assert f"{PLAIN}: undetermined (CRCs were not checked)\nundetermined: " in done.stdout


@pytest.mark.parametrize("name", ["table", "junit", "html"])
def test_an_ignored_rule_does_not_hide_lost_bytes(name: str) -> None:
    """A rule set to ignore takes the finding away, not the loss: the file is undetermined in every report."""
    done = run_kseg("validate", "--rule", "crc-mismatch=ignore", "--format", name, DAMAGED)
    assert done.exit_code == 0
    assert "sound" not in done.stdout.split("</style>")[-1]
    assert "undetermined" in done.stdout


def test_a_segment_without_one_readable_batch_is_damaged(tmp_path: Path) -> None:
    """The name makes it a segment for a broker: all of its bytes are lost, which is not "not a segment"."""
    dice = random.Random(1)
    data = bytearray(PLAIN.read_bytes())
    for place in entries(bytes(data)):
        data[place.at : place.at + 70] = dice.randbytes(70)
    path = tmp_path / FIRST
    path.write_bytes(data)
    done = run_kseg("validate", path)
    assert (done.exit_code, f"{len(data)} bytes lost" in done.stdout) == (1, True)
    other = tmp_path / "data.bin"
    other.write_bytes(data)
    assert run_kseg("validate", other).exit_code == 2
    path.write_bytes(b"a letter to somebody\n" * 9)
    assert "it looks like text" in run_kseg("validate", path).stderr


#: Rules that one file, read by itself, can't show: dump reads no other beside it.
ACROSS_FILES = {rule.name for rule in RULES.values() if rule.code.startswith("K6")} | {"epoch-mismatch"}


def shown_by_dump() -> list[Path]:
    folders = (path.parent for path in FINDINGS.glob("*/expect.jsonl"))
    return sorted(
        folder
        for folder in folders
        if folder.name not in ACROSS_FILES and not (folder / "settings.json").exists() and any(folder.rglob("*.log"))
    )


@pytest.mark.parametrize("folder", shown_by_dump(), ids=lambda folder: folder.name)
def test_dump_exits_as_validate_does(folder: Path) -> None:
    """Whoever sees rows of damaged data is told so: dump makes the checks of validate, and has its exit code."""
    (log,) = folder.rglob("*.log")
    judged = run_kseg("validate", log)
    shown = run_kseg("dump", "--deep", "--format", "jsonl", log)
    assert shown.exit_code == judged.exit_code
    if judged.exit_code == 1:
        assert f"kseg: {log}: " in shown.stderr
