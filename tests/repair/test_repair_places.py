"""Repair writes a segment of a partition under the name that its batches need, whatever the names of its files are."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from kseg.commands.repair.repair import repair
from kseg.commands.repair.repair_losses import CorrectedBatch, LostOffsets, LostRange, RepairResult
from kseg.commands.repair.repaired_segment import RepairPlan
from kseg.commands.validate.validate_ranges import validate_files
from kseg.errors import UnreadableError
from kseg.findings import Severity
from kseg.format.storage.segment_files import find_segments
from kseg.format.writer.records_builder import PlainRecord, build_batch
from kseg.results import Settings
from tests.support.cli import invoke
from tests.support.damage import entries
from tests.support.records import NOW

SEGMENTS = Path(__file__).parents[2] / "fixtures" / "segments"
#: Segments 0, 24, 48, 72, 96 and 120, of three batches each but the last, which has one.
SOUND = SEGMENTS / "4.3.0-v2-none-segments"


def log(offset: int) -> str:
    return f"{offset:020}.log"


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """A copy of a sound partition, to be damaged."""
    folder = tmp_path / "t-0"
    shutil.copytree(SOUND, folder, ignore=shutil.ignore_patterns("ORIGIN", "expect.jsonl"))
    return folder


def repaired(folder: Path, reported: list[LostRange] | None = None) -> tuple[RepairResult, dict[str, bytes]]:
    """Repair a partition; return the result and the written segments."""
    target = folder.with_name("out-0")
    result = repair(str(folder), str(target), RepairPlan(), (reported if reported is not None else []).append)
    return result, {path.name: path.read_bytes() for path in sorted(target.glob("*.log"))}


def originals() -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(SOUND.glob("*.log"))}


@pytest.mark.parametrize("content", [b"", b"\0" * 1000, b"\x5a" * 500], ids=["empty", "zeros", "garbage"])
@pytest.mark.parametrize("offset", [10, 23, 100])
def test_a_stray_file_costs_no_other_segment_a_batch(partition: Path, content: bytes, offset: int) -> None:
    """Its name lies within the offsets of a segment, which keeps all its batches in the repair."""
    (partition / log(offset)).write_bytes(content)
    reported: list[LostRange] = []
    result, written = repaired(partition, reported)
    assert written == originals()
    assert [Path(one.file).name for one in reported] == ([log(offset)] if content else [])
    assert result.lost == bool(content)
    assert not any(verdict.severity >= Severity.ERROR for verdict in findings(partition.with_name("out-0")))


def findings(folder: Path) -> list:  # type: ignore[type-arg]
    files = list(find_segments(str(folder)))
    return [verdict for result in validate_files(files, Settings(), 1) for verdict in result.verdicts]


@pytest.mark.parametrize("of", [0, 48, 96])
@pytest.mark.parametrize("offset", [10, 60, 110, 5000])
def test_a_copy_of_a_segment_is_left_out(partition: Path, of: int, offset: int) -> None:
    """All of its batches are in the segment with the right name."""
    shutil.copy(partition / log(of), partition / log(offset))
    reported: list[LostRange] = []
    result, written = repaired(partition, reported)
    assert written == originals()
    assert reported == []
    assert result.left_out == [f"{log(offset)} (a copy of batches in {log(of)})"]


@pytest.mark.parametrize(
    "names",
    [{48: 50}, {48: 30}, {24: 10}, {0: 5}, {0: 40}, {120: 100}, {120: 130}, {48: 72, 72: 48}, {0: 120, 120: 0}],
    ids=str,
)
def test_a_renamed_segment_gets_the_name_of_its_offsets(partition: Path, names: dict[int, int]) -> None:
    """All its batches are kept, and the report names the file."""
    for old in names:
        (partition / log(old)).rename(partition / f"{old}.tmp")
    for old, new in names.items():
        (partition / f"{old}.tmp").rename(partition / log(new))
    reported: list[LostRange] = []
    result, written = repaired(partition, reported)
    assert written == originals()
    assert not result.lost
    assert not result.missing
    assert {(Path(one.file).name, one.rule) for one in reported} == {
        (log(new), "file-name-mismatch") for new in names.values()
    }


def test_an_empty_segment_after_the_last_one_stays(partition: Path) -> None:
    """A broker has begun it: its name is the end of the log."""
    (partition / log(121)).write_bytes(b"")
    _, written = repaired(partition)
    assert written == {**originals(), log(121): b""}


@pytest.mark.slow
@pytest.mark.parametrize("base", [0, 24, 48, 72, 96, 120])
def test_one_flipped_bit_in_a_base_offset_is_corrected(partition: Path, base: int) -> None:
    """The segments before and after prove the offsets of a segment's first and last batch."""
    data = (partition / log(base)).read_bytes()
    for place in (entries(data)[0], entries(data)[-1]):
        for bit in (0, 3, 4, 7, 13, 30, 33, 63):
            damaged = bytearray(data)
            damaged[place.at + 7 - bit // 8] ^= 1 << bit % 8
            (partition / log(base)).write_bytes(damaged)
            reported: list[LostRange] = []
            result, written = repaired(partition, reported)
            assert written == originals(), (base, place.at, bit)
            assert [type(one) for one in reported] == [CorrectedBatch]
            assert not result.lost
            shutil.rmtree(partition.with_name("out-0"))


def test_an_overwritten_segment_is_reported_as_missing_offsets(partition: Path) -> None:
    """A copy of another segment under its name does not hide that its offsets are gone."""
    shutil.copy(partition / log(0), partition / log(24))
    reported: list[LostRange] = []
    _, written = repaired(partition, reported)
    assert written == {name: data for name, data in originals().items() if name != log(24)}
    assert [(type(one), one.offset, one.last_offset) for one in reported] == [(LostOffsets, 24, 47)]


def test_a_folder_named_like_a_segment_is_left_out(partition: Path) -> None:
    """It is listed as not copied, and the segments are repaired."""
    (partition / log(200)).mkdir()
    result, written = repaired(partition)
    assert written == originals()
    assert result.left_out == [log(200)]


def test_damaged_side_files_are_not_copied(partition: Path) -> None:
    """A broker would stop at them; the report names each with its error."""
    (partition / "partition.metadata").write_text("garbage")
    (partition / f"{48:020}.snapshot").write_bytes(b"junk")
    result, _ = repaired(partition)
    left_out = sorted(line.partition(" (")[0] for line in result.left_out)
    assert left_out == [f"{48:020}.snapshot", "partition.metadata"]
    assert all("(snapshot-size" in line or "(metadata-malformed" in line for line in result.left_out)
    assert not (partition.with_name("out-0") / "partition.metadata").exists()


@pytest.mark.parametrize("to", ["nowhere", log(24)])
def test_a_link_without_a_file_is_named(partition: Path, to: str) -> None:
    """It is not a segment that a broker deleted: the repair of this partition fails, and says why."""
    (partition / log(24)).unlink()
    (partition / log(24)).symlink_to(to)
    with pytest.raises(UnreadableError, match="a symbolic link"):
        repaired(partition)


def test_adjacent_losses_are_listed_with_their_offsets(partition: Path) -> None:
    """Batches that are left out one after another have the offsets between the batches that are kept."""
    data = (partition / log(24)).read_bytes()
    first, second, _ = entries(data)
    damaged = bytearray(data)
    damaged[first.at : first.at + 30] = bytes(30)
    damaged[second.at : second.at + 30] = b"\x5a" * 30
    (partition / log(24)).write_bytes(damaged)
    reported: list[LostRange] = []
    result, _ = repaired(partition, reported)
    assert {(one.offset, one.last_offset) for one in reported} == {(24, 39)}
    assert not result.missing


def test_a_single_segment_without_batches_is_a_loss(tmp_path: Path) -> None:
    """As in a folder: it is reported as lost, and no file is written."""
    (tmp_path / log(7)).write_bytes(b"\x5a" * 500)
    target = tmp_path / "out" / log(7)
    target.parent.mkdir()
    result = repair(str(tmp_path / log(7)), str(target), RepairPlan())
    assert result.lost
    assert list(target.parent.iterdir()) == []


def test_every_partition_of_a_log_dir_is_repaired(tmp_path: Path) -> None:
    """A partition that can't be repaired, a misplaced segment and a stray file in others stop none of them."""
    source, target = tmp_path / "data", tmp_path / "out"
    for name in ("a-0", "b-0", "c-0", "d-0", "e-0"):
        shutil.copytree(SOUND, source / name, ignore=shutil.ignore_patterns("ORIGIN", "expect.jsonl"))
    (source / "a-0" / log(48)).rename(source / "a-0" / log(1 << 40))
    (source / "b-0" / f"{0:020}.log.swap").write_bytes(b"")
    (source / "c-0" / log(10)).write_bytes(b"stray")
    shutil.copy(SOUND / log(0), source / "d-0" / log(200))
    result = repair(str(source), str(target), RepairPlan())
    assert [line.partition(": ")[0] for line in result.failed] == [str(source / "b-0")]
    for name in ("a-0", "c-0", "d-0", "e-0"):
        assert {path.name: path.read_bytes() for path in (target / name).glob("*.log")} == originals(), name
    assert not (target / "b-0").exists()


COMPACTED = SEGMENTS / "4.3.0-v2-none-compacted-transactions"


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize(("base", "stale"), [(32, (25, 200)), (33, (0, 275)), (33, (25, 257)), (25, (0, 275))], ids=str)
def test_batches_of_an_earlier_segment_after_a_segment_cost_it_nothing(
    base: int, stale: tuple[int, int], alone: bool, tmp_path: Path
) -> None:
    """However many they are, they do not make the segment a copy: its own batches stay, and the others are reported."""
    folder = tmp_path / "t-0"
    shutil.copytree(COMPACTED, folder, ignore=shutil.ignore_patterns("ORIGIN", "expect.jsonl"))
    own, (of, size) = (folder / log(base)).read_bytes(), stale
    (folder / log(base)).write_bytes(own + (folder / log(of)).read_bytes()[-size:])
    if alone:
        others = [path for path in folder.iterdir() if path.name != log(base)]
        for path in others:
            path.unlink()
    reported: list[LostRange] = []
    result, written = repaired(folder, reported)
    expected = {path.name: path.read_bytes() for path in COMPACTED.glob("*.log") if not alone or path.name == log(base)}
    assert written == expected
    assert result.lost
    losses = [(one.file, one.position) for one in reported if one.kind == "lost"]
    assert losses[0] == (str(folder / log(base)), len(own))
    assert not [one for one in result.left_out if "copy" in one]


@pytest.mark.parametrize("seed", range(6))
def test_the_ends_of_earlier_segments_cost_a_segment_nothing(partition: Path, seed: int) -> None:
    """A broker's disk can leave any old bytes after a segment: those of one earlier segment, or of several."""
    dice = random.Random(seed)
    base = dice.choice([48, 72, 96, 120])
    own = originals()[log(base)]
    earlier = [data for name, data in originals().items() if name < log(base)]
    stale = b"".join(data[-dice.randrange(100, len(data) + 1) :] for data in dice.sample(earlier, dice.randint(1, 2)))
    (partition / log(base)).write_bytes(own + stale)
    reported: list[LostRange] = []
    result, written = repaired(partition, reported)
    assert written == originals()
    assert result.lost
    assert {(Path(one.file).name, one.position >= len(own)) for one in reported} == {(log(base), True)}


def test_a_segment_with_a_batch_of_its_own_is_no_copy(partition: Path) -> None:
    """Its own batch has no place among the copies of other batches: it is reported as lost, not left out in silence."""
    (partition / log(10)).write_bytes(originals()[log(0)] + (COMPACTED / log(0)).read_bytes()[:61])
    reported: list[LostRange] = []
    result, written = repaired(partition, reported)
    assert written == originals()
    assert result.lost
    assert [Path(one.file).name for one in reported] == [log(10)]
    assert result.left_out == []


def test_an_emptied_log_is_a_loss_that_its_side_files_prove(tmp_path: Path) -> None:
    """The index (offset 25), or the snapshot at 26, shows what was there; no epoch of the result starts after its end."""
    for proof in (".index", ".timeindex", ".snapshot"):
        folder = tmp_path / f"{proof}-0" / "t-0"
        shutil.copytree(
            SEGMENTS / "4.3.0-v2-none-headers", folder, ignore=shutil.ignore_patterns("ORIGIN", "expect.jsonl")
        )
        (folder / log(0)).write_bytes(b"")
        for path in list(folder.iterdir()):
            if path.suffix in {".index", ".timeindex", ".snapshot"} - {proof}:
                path.unlink()
        reported: list[LostRange] = []
        result, written = repaired(folder, reported)
        assert written == {log(0): b""}
        assert result.lost
        assert [(one.kind, one.offset, one.last_offset) for one in reported] == [("lost", 0, 25)]
        target = folder.with_name("out-0")
        assert (target / "leader-epoch-checkpoint").read_text().split() == ["0", "1", "0", "0"]
        assert not [one for one in findings(target) if one.severity >= Severity.ERROR]
        assert not repair(str(target), str(folder.with_name("again-0")), RepairPlan()).lost


@pytest.mark.parametrize("claimed", [5_000_000_000, (1 << 63) - 1])
def test_no_segment_is_renamed_on_the_word_of_one_header(tmp_path: Path, claimed: int) -> None:
    """No CRC covers the base offset, and Kafka never loads a segment with offsets 2^31 above its name: it is a loss."""
    folder = tmp_path / "t-0"
    folder.mkdir()
    data = (SOUND / log(0)).read_bytes()
    only = claimed.to_bytes(8, "big") + data[8 : entries(data)[0].end]
    (folder / log(0)).write_bytes(only)
    reported: list[LostRange] = []
    result, written = repaired(folder, reported)
    assert result.lost
    assert written == {}
    assert f"a header claims offset {claimed}, the file name 0" in reported[0].why


def test_a_second_batch_confirms_that_a_name_is_wrong(tmp_path: Path) -> None:
    """Two headers that continue each other prove the name wrong, which the corrected name is reported for."""
    folder = tmp_path / "t-0"
    folder.mkdir()
    data = bytearray((SOUND / log(0)).read_bytes()[: entries((SOUND / log(0)).read_bytes())[1].end])
    for n, place in enumerate(entries(bytes(data))):
        data[place.at : place.at + 8] = (5_000_000_000 + 8 * n).to_bytes(8, "big")
    (folder / log(0)).write_bytes(data)
    assert list(repaired(folder)[1]) == [log(5_000_000_000)]


@pytest.mark.parametrize("base", [0, 24, 120])
def test_an_emptied_segment_is_a_loss_wherever_it_is(partition: Path, base: int) -> None:
    """A file of 0 bytes is a loss if its index has entries: of a partition, and alone; validate reports an error."""
    (partition / log(base)).write_bytes(b"")
    reported: list[LostRange] = []
    assert repaired(partition, reported)[0].lost
    last = {0: 23, 24: 47, 120: 120}[base]
    assert [(one.kind, one.offset, one.last_offset) for one in reported] == [("lost", base, last)]
    alone: list[LostRange] = []
    assert repair(str(partition / log(base)), str(partition.with_name(log(base))), RepairPlan(), alone.append).lost
    assert [(one.kind, one.offset, one.last_offset) for one in alone] == [("lost", base, last)]
    assert all("show that the log reached offset" in one.why for one in (*reported, *alone))
    assert invoke("validate", partition).exit_code == 1


def test_the_name_of_the_next_segment_limits_a_last_batch_that_joins_no_other(tmp_path: Path) -> None:
    """Its own first batches are gone, so no batch shows that offset 19 is of that segment: a flipped bit of offset 3."""
    folder = tmp_path / "t-0"
    folder.mkdir()

    def batch(offset: int, stored: int) -> bytes:
        made = build_batch([PlainRecord(offset, b"key", b"value", NOW + offset)])
        return stored.to_bytes(8, "big") + made[8:]

    own = batch(0, 0) + batch(1, 1) + batch(2, 2)
    (folder / log(0)).write_bytes(own + batch(3, 19))
    (folder / log(16)).write_bytes(batch(24, 24) + batch(25, 25))
    assert repaired(folder)[1][log(0)] == own


@pytest.mark.parametrize("bit", [11, 17, 29])
def test_the_only_valid_batch_of_a_damaged_segment_renames_it_not(partition: Path, bit: int) -> None:
    """One flipped bit moved it beyond the next segment, and its neighbours are damaged: it has no place, and is lost."""
    path = partition / log(24)
    data = bytearray(path.read_bytes())
    before, middle, after = entries(bytes(data))
    data[middle.at + 7 - bit // 8] ^= 1 << bit % 8
    data[before.end - 3] ^= 16
    data[after.end - 3] ^= 16
    path.write_bytes(data)
    result, written = repaired(partition)
    assert result.lost
    assert set(written) == set(originals()) - {log(24)}


@pytest.mark.slow
@pytest.mark.parametrize("name", [24, 25, 29, 96, 150])
@pytest.mark.parametrize("first", [22, 24, 25])
@pytest.mark.parametrize("count", [1, 4])
def test_a_segment_of_another_log_displaces_no_other(partition: Path, count: int, first: int, name: int) -> None:
    """Whatever its name is, however many batches it has, and although it alone can have the offset of its name."""
    foreign = b"".join(
        build_batch([PlainRecord(offset + n, b"k", b"foreign", NOW) for n in range(count)])
        for offset in range(first, first + 3 * 4, count)
    )
    (partition / log(name)).write_bytes(foreign)
    _, written = repaired(partition)
    own = {file: data for file, data in originals().items() if file != log(name)}
    assert {file: written.get(file) for file in own} == own
    assert foreign not in written.values() or name == 24


def test_two_files_of_a_name_leave_both_of_their_batches(partition: Path) -> None:
    """A whole copy in other batches has the place of a damaged segment, whose other batches are left out beside it."""
    records = [PlainRecord(24 + n, b"k", b"v", NOW) for n in range(24)]
    (partition / log(150)).write_bytes(b"".join(build_batch([one]) for one in records))
    damaged = bytearray((partition / log(24)).read_bytes())
    damaged[100] ^= 1
    (partition / log(24)).write_bytes(damaged)
    result, written = repaired(partition)
    assert set(written) == set(originals())
    assert result.renamed == 1
    assert (partition.with_name("out-0") / f"{24:020}.unplaced").read_bytes() == bytes(damaged[357:])
