"""Messages with the same content are no copies of each other: the CRC does not cover the base offset."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kseg.format.writer.records_builder import PlainRecord, build_batch, build_message
from tests.support.cli import invoke

TIME = 1_700_000_000_000


def v0(offset: int, value: bytes) -> bytes:
    return build_message(PlainRecord(offset, None, value, -1), magic=0)


def v2(offset: int, value: bytes) -> bytes:
    return build_batch([PlainRecord(offset, None, value, TIME)])


def repaired_offsets(folder: Path, batches: list[bytes]) -> tuple[list[int], int]:
    """Return the offsets in the result of a repair, and its exit code."""
    (folder / "t-0").mkdir(parents=True)
    (folder / "t-0" / f"{0:020}.log").write_bytes(b"".join(batches))
    code = invoke("repair", folder / "t-0", folder / "new").exit_code
    rows = invoke("dump", "--deep", "--format", "jsonl", folder / "new").stdout.splitlines()
    return [row["offset"] for row in map(json.loads, rows) if row["kind"] == "record"], code


@pytest.mark.parametrize("build", [v0, v2])
@pytest.mark.parametrize("bit", range(8))
def test_a_wrong_offset_among_the_same_messages_is_corrected(
    build: Callable[[int, bytes], bytes], bit: int, tmp_path: Path
) -> None:
    """With one flipped bit it has the offset of another message. The batches around it leave it one place."""
    batches = [build(offset, b"page view") for offset in range(64)]
    batches[37] = build(37 ^ 1 << bit, b"page view")
    assert repaired_offsets(tmp_path, batches) == ([*range(64)], 0)


@pytest.mark.parametrize("build", [v0, v2])
def test_a_copy_that_can_have_overwritten_a_batch_is_a_loss(
    build: Callable[[int, bytes], bytes], tmp_path: Path
) -> None:
    """Nothing else has this content: a copy of 36 may lie where 37 was. Its offset is lost, and the exit code says so."""
    batches = [build(offset, b"value %02d" % offset) for offset in range(64)]
    batches[37] = batches[36]
    offsets, code = repaired_offsets(tmp_path, batches)
    assert offsets == [*range(37), *range(38, 64)]
    assert code == 1


@pytest.mark.parametrize("build", [v0, v2])
def test_a_second_copy_beside_a_whole_log_loses_nothing(build: Callable[[int, bytes], bytes], tmp_path: Path) -> None:
    batches = [build(offset, b"value %02d" % offset) for offset in range(64)]
    batches.insert(40, batches[36])
    assert repaired_offsets(tmp_path, batches) == ([*range(64)], 0)
