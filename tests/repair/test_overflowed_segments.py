"""A segment that an old log cleaner merged beyond 2^31 offsets (KAFKA-6264) keeps its records: it becomes several."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from kseg.commands.convert.conversion import convert
from kseg.commands.convert.conversion_plan import ConversionPlan
from kseg.commands.repair.repair import repair
from kseg.commands.repair.repair_losses import CorrectedBatch, LostRange, UnplacedBatch
from kseg.commands.repair.repaired_segment import RepairPlan
from kseg.errors import KsegError
from kseg.format.log_loader.recovery_plan import BrokerStart, plan_partition
from kseg.format.writer.output_guards import DamagedError
from kseg.format.writer.records_builder import PlainRecord, build_batch
from tests.support import damage
from tests.support.cli import invoke
from tests.support.records import NOW

LIMIT = 1 << 31
#: Base offsets of the batches of segment 0, the last one but two beyond its range.
OFFSETS = (10, 900_000_000, 2_000_000_000, LIMIT - 8, LIMIT + 12, 2_300_000_000)
NEXT = 2_400_000_000


def log(offset: int) -> str:
    return f"{offset:020}.log"


def batches_at(offsets: Sequence[int]) -> list[bytes]:
    return [build_batch([PlainRecord(offset, b"key", b"value", NOW)], partition_leader_epoch=0) for offset in offsets]


def partition(folder: Path, segments: dict[int, Sequence[int]]) -> Path:
    """Write a partition whose segments have batches of one record with these offsets."""
    folder.mkdir(parents=True)
    for base, offsets in segments.items():
        (folder / log(base)).write_bytes(b"".join(batches_at(offsets)))
    return folder


def logs(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.log"))}


def test_repair_splits_where_a_broker_does(tmp_path: Path) -> None:
    """No record is left out, the segments begin where Kafka's do, and the result is valid."""
    source, reported = partition(tmp_path / "t-0", {0: OFFSETS, NEXT: [NEXT]}), list[LostRange]()
    done = repair(str(source), str(tmp_path / "out-0"), RepairPlan(), reported.append)
    assert (done.split_off, done.renamed) == (1, 0)
    all_batches = batches_at(OFFSETS)
    assert logs(tmp_path / "out-0") == {
        log(0): b"".join(all_batches[:4]),
        log(LIMIT + 12): b"".join(all_batches[4:]),
        log(NEXT): batches_at([NEXT])[0],
    }
    size = len(all_batches[0])
    (split,) = (row for row in reported if isinstance(row, CorrectedBatch))
    assert (split.rule, split.position, split.end) == ("segment-offset-overflow", 4 * size, 6 * size)
    assert [row.position for row in reported if row is not split] == [4 * size, 6 * size]  # gaps between segments
    assert invoke("validate", tmp_path / "out-0").exit_code == 0
    steps = plan_partition(str(source), BrokerStart(clean=False)).steps
    assert log(LIMIT + 12) in next(step.why for step in steps if step.action == "split-segment")


def test_validate_and_doctor_do_not_advise_a_repair(tmp_path: Path) -> None:
    """A broker splits the segment without a loss: an error would make an operator leave out records that are right."""
    folder = partition(tmp_path / "logs" / "t-0", {0: OFFSETS, NEXT: [NEXT]})
    (folder / "partition.metadata").write_text("version: 0\ntopic_id: PMvcIbWpT9WLyUYLvwcXYQ\n")
    found = invoke("validate", folder)
    assert found.exit_code == 0
    assert "segment-offset-overflow" in found.output
    assert "invalid-offset-range" not in found.output
    assert "  kseg repair" not in invoke("doctor", folder.parent).output


def test_damage_in_such_a_segment_costs_only_the_damaged_batches(tmp_path: Path) -> None:
    """The first batch beyond the range is lost: the segment is split at the next one, and positions are the source's."""
    source, reported = partition(tmp_path / "t-0", {0: OFFSETS, NEXT: [NEXT]}), list[LostRange]()
    data = (source / log(0)).read_bytes()
    size = len(data) // len(OFFSETS)
    (source / log(0)).write_bytes(damage.flip(damage.flip(data, 2 * size - 1), 5 * size - 1))
    repair(str(source), str(tmp_path / "out-0"), RepairPlan(), reported.append)
    first, _, third, fourth, _, last = batches_at(OFFSETS)
    written = logs(tmp_path / "out-0")
    assert (written[log(0)], written[log(OFFSETS[-1])]) == (first + third + fourth, last)
    lost = [(row.rule, row.position) for row in reported if row.rule == "crc-mismatch"]
    assert lost == [("crc-mismatch", size), ("crc-mismatch", 4 * size)]


def test_an_offset_that_one_bit_explains_is_no_reason_to_split(tmp_path: Path) -> None:
    """No CRC covers a base offset: without a second batch beyond the range it is more probably wrong."""
    source, reported = partition(tmp_path / "t-0", {0: [0, LIMIT + 5]}), list[LostRange]()
    repair(str(source), str(tmp_path / "out-0"), RepairPlan(), reported.append)
    assert logs(tmp_path / "out-0") == {log(0): batches_at([0])[0]}
    assert [type(row) for row in reported] == [UnplacedBatch]


def test_the_next_segment_must_begin_after_the_offsets(tmp_path: Path) -> None:
    """Offsets that another segment has do not show that a cleaner merged segments."""
    source = partition(tmp_path / "t-0", {0: OFFSETS, LIMIT + 1: [LIMIT + 1, LIMIT + 2]})
    repair(str(source), str(tmp_path / "out-0"), RepairPlan())
    assert logs(tmp_path / "out-0")[log(LIMIT + 1)] == b"".join(batches_at([LIMIT + 1, LIMIT + 2]))


def test_a_single_file_cannot_become_several(tmp_path: Path) -> None:
    """The message says what to repair instead of leaving out batches."""
    source = partition(tmp_path / "t-0", {0: OFFSETS}) / log(0)
    with pytest.raises(KsegError, match="repair its folder"):
        repair(str(source), str(tmp_path / log(0)), RepairPlan())
    with pytest.raises(DamagedError, match="has to be split"):
        repair(str(source), str(tmp_path / log(0)), RepairPlan(indexes_only=True))


@pytest.mark.parametrize("skip_damaged", [False, True])
@pytest.mark.parametrize("rebatch", [None, 4096])
def test_convert_names_the_repair_that_splits(tmp_path: Path, rebatch: int | None, skip_damaged: bool) -> None:
    """The batches are not damaged, so none is skipped; the repaired partition is converted."""
    source = partition(tmp_path / "t-0", {0: OFFSETS, NEXT: [NEXT]})
    plan = ConversionPlan.of("any-to-v2", skip_damaged=skip_damaged, rebatch=rebatch)
    with pytest.raises(DamagedError, match="a broker splits the segment here: run `kseg repair` first"):
        convert(str(source), str(tmp_path / "out-0"), plan)
    repair(str(source), str(tmp_path / "split-0"), RepairPlan())
    done = convert(str(tmp_path / "split-0"), str(tmp_path / "out-0"), plan)
    assert sum(segment.records for segment in done.segments) == len(OFFSETS) + 1
