"""A repaired log holds all valid data of its source to the byte, reports the losses, and the source is unchanged."""

from __future__ import annotations

import json
import os
import shutil
from base64 import b64decode
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from kseg.commands.convert import conversion_plan
from kseg.commands.convert.conversion import convert
from kseg.commands.repair.repair import repair
from kseg.commands.repair.repair_losses import (
    CorrectedBatch,
    DuplicateBatch,
    LostRange,
    OffsetGap,
    PartlyKeptBatch,
    UnplacedBatch,
)
from kseg.commands.repair.repaired_segment import RepairPlan
from kseg.commands.validate.validate import validate_segment
from kseg.errors import KsegError, NotASegmentError, UnreadableError, UsageError
from kseg.findings import RULES, SERVED, Finding, Policy, Severity
from kseg.format.compress.codecs import codec_name
from kseg.format.log_loader.recovery_plan import plan_partition
from kseg.format.record.layout import CODEC_MASK, LOG_OVERHEAD
from kseg.format.segment.deep_reader import CHUNK_ROWS
from kseg.format.segment.records_chunk import Header
from kseg.format.segment.segment_reader import WINDOW_SIZE
from kseg.format.sidefiles.indexes import ABORTED_TXN, AbortedTransactions, AbortedTxn
from kseg.format.storage.atomic_write import mark_results
from kseg.format.storage.segment_files import SegmentFile
from kseg.format.writer.output_guards import DamagedError, PartitionFolder, each_partition, index_paths
from kseg.format.writer.records_builder import PlainRecord, build_batch, build_message, build_wrapper
from kseg.results import Settings
from tests.support import damage
from tests.support.cli import invoke
from tests.support.cli import kseg_here as kseg
from tests.support.damage import entries, get, put
from tests.support.fixtures import FOLDERS, SEGMENTS, add_batch_fields, dumped, expected
from tests.support.index_entries import read_offset_index, read_txn_index
from tests.support.records import NOW
from tests.support.repairing import FIRST, SOUND, digests
from tools.lab.recovery_scenes import SCENES, Scene
from tools.make_findings import CASES

FINDINGS = SEGMENTS.parent / "findings"
# The settings of the lab's brokers.
INDEX_INTERVAL = 512
# Rules of the log itself; if only side files are wrong (K5, K6), the log is valid.
OF_THE_LOG = [FINDINGS / rule.name for rule in RULES.values() if rule.code < "K5"]
DAMAGED = sorted(
    folder
    for folder in OF_THE_LOG
    if folder.name not in SERVED
    and any(folder.glob("*.log"))
    and '"severity": "error"' in (folder / "expect.jsonl").read_text("utf-8")
)
# A file that is read with --as is not a segment that could be repaired.
FRAMED = {path.parent for path in FINDINGS.glob("*/settings.json") if '"framing"' in path.read_text("utf-8")}
SEGMENTS_OF_ONE = {folder for folder in FINDINGS.iterdir() if len(list(folder.glob("*.log"))) == 1}
# A file alone cannot become the segments of its offsets.
_NOT_ALONE = (*SERVED, "zero-segment", "segment-offset-overflow")
HARMLESS = sorted(SEGMENTS_OF_ONE - set(DAMAGED) - FRAMED - {FINDINGS / name for name in _NOT_ALONE})
# These need the settings of their expectation.
BY_OPTION = {"null-key", "oversize-entry", "past-timestamp"}
MENDED = {
    "invalid-size", "unknown-magic", "max-timestamp-mismatch", "leader-epoch-regression", "wrapper-offset-mismatch",
    "negative-leader-epoch",
}  # fmt: skip
TRANSACTIONAL = [folder for folder in FOLDERS if any(folder.glob("*.txnindex"))]


def log_of(folder: Path) -> Path:
    (log,) = folder.glob("*.log")
    return log


def errors_in(path: Path, policy: Policy | None = None) -> list[Any]:
    result = validate_segment(SegmentFile(str(path)), Settings(policy=policy or Policy(), max_per_rule=10**6))
    assert result.unread is None
    return [verdict.finding for verdict in result.verdicts if verdict.severity >= Severity.ERROR]


def run(*args: object) -> Result:
    return invoke("repair", *args)


def repaired_bytes(
    data: bytes, folder: Path, name: str = FIRST, policy: Policy | None = None
) -> tuple[bytes, list[LostRange]]:
    """Return the repaired bytes of a segment, checked as every repair is, and the report."""
    source, target = folder / "in" / name, folder / "out" / name
    source.parent.mkdir(exist_ok=True)
    shutil.rmtree(target.parent, ignore_errors=True)
    target.parent.mkdir()
    source.write_bytes(data)
    reported: list[LostRange] = []
    result = repair(str(source), str(target), RepairPlan(policy=policy or Policy()), reported.append)
    assert source.read_bytes() == data
    out = target.read_bytes()
    assert errors_in(target) == []
    (segment,) = result.segments
    gaps = [what for what in reported if isinstance(what, OffsetGap)]
    copies = [what for what in reported if isinstance(what, DuplicateBatch)]
    lost = [what for what in reported if not isinstance(what, CorrectedBatch | OffsetGap | DuplicateBatch)]
    assert result.lost == bool(lost)
    # Every byte is kept, lost, part of a zero tail, or of a batch that is in the result.
    copied = sum(what.end - what.position for what in copies)
    assert len(data) == len(out) + segment.lost_bytes + segment.zeros + copied
    assert segment.lost_bytes == sum(what.end - what.position for what in lost)
    # Lost offsets are reported with lost bytes, which other rows of the report count.
    for gap in gaps:
        within = [what for what in lost if gap.position <= what.position < what.end <= gap.end]
        assert sum(what.end - what.position for what in within) == gap.end - gap.position
    assert segment.duplicates == len(copies)
    changed = len(reported) - len(lost) - len(gaps) - len(copies)
    assert (segment.mended, segment.kept) == (changed, len(entries(out)))
    return out, reported


# --- single segments ---


def test_there_are_damaged_fixtures() -> None:
    """An empty list of cases would let all tests below pass."""
    assert len(REAL) == 13
    assert len(DAMAGED) > 20
    assert {folder.name for folder in DAMAGED} >= MENDED
    assert len(TRANSACTIONAL) >= 4


@pytest.mark.parametrize("folder", DAMAGED, ids=lambda folder: folder.name)
def test_damaged_fixtures(folder: Path, tmp_path: Path) -> None:
    """Each error costs its own bytes and no others, unless it can be corrected."""
    source, target = log_of(folder), tmp_path / log_of(folder).name
    before = digests(folder)
    done = run(source, target, "--format", "jsonl")
    data, out = source.read_bytes(), target.read_bytes()
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    reported = [(row["position"], row["end"], row["rule"]) for row in rows if row["kind"] == "lost"]
    assert digests(folder) == before
    assert errors_in(target) == []
    if folder.name in MENDED | BY_OPTION:
        assert (done.exit_code, reported, len(out)) == (0, [], len(data))
        rule = {"wrapper-offset-mismatch": "non-monotonic-offset"}.get(folder.name, folder.name)
        assert [row["rule"] for row in rows if row["kind"] == "mended"] == [rule] * (folder.name in MENDED)
        return
    findings = [json.loads(line) for line in (folder / "expect.jsonl").read_text("utf-8").splitlines()]
    places = {(row["position"], row["end"]) for row in findings if row.get("severity") == "error"}
    for begin, end in sorted(places, reverse=True):
        data = damage.cut(data, begin, end)
    assert out == data
    if folder.name == "non-monotonic-offset":  # a batch occurs twice
        reported = [(row["position"], row["end"], row["rule"]) for row in rows if row["kind"] == "duplicate"]
    assert done.exit_code == (folder.name != "non-monotonic-offset")
    assert len(reported) == len(places)
    if folder.name != "non-monotonic-offset":  # of two equal batches either can be dropped
        assert {(begin, end) for begin, end, _ in reported} == places
        assert {rule for _, _, rule in reported} <= {folder.name, "nested-compression"}


@pytest.mark.parametrize("folder", HARMLESS, ids=lambda folder: folder.name)
def test_warnings_cost_nothing(folder: Path, tmp_path: Path) -> None:
    """People decide about warnings; repair removes only a zero tail."""
    source, target = log_of(folder), tmp_path / log_of(folder).name
    assert run(source, target).exit_code == 0
    data = source.read_bytes()
    assert target.read_bytes() == (data[:-2048] if folder.name == "zero-tail" else data)
    assert errors_in(target) == []


@pytest.mark.parametrize("name", ["invalid-size", "unknown-magic", "max-timestamp-mismatch"])
def test_corrected_fixtures_equal_their_originals(name: str, tmp_path: Path) -> None:
    """The damage was done to a broker's segment; the repaired file is the original again."""
    repair(str(log_of(FINDINGS / name)), str(tmp_path / FIRST), RepairPlan())
    assert (tmp_path / FIRST).read_bytes() == SOUND.read_bytes()


def test_a_wrapper_gets_its_largest_timestamp_back(tmp_path: Path) -> None:
    """In v1 it is the timestamp of the compressed message, covered by a CRC-32."""
    data = (SEGMENTS / "2.8.2-v1-gzip" / FIRST).read_bytes()
    place = entries(data)[1]
    out, reported = repaired_bytes(damage.alter(data, place.at, timestamp=NOW * 2), tmp_path)
    assert out == data
    assert [what.rule for what in reported] == ["max-timestamp-mismatch"]


@pytest.mark.parametrize(
    ("odd", "epoch"), [(0, 2_000_000_000), (2, 2_000_000_000), (2, 1), (4, 1), (0, -1), (2, -1), (4, -9)]
)
def test_a_wrong_leader_epoch_costs_nothing(odd: int, epoch: int, tmp_path: Path) -> None:
    """A leader epoch is outside the CRC: a wrong one gets its neighbours' epoch, and those after a high one are kept."""
    data = SOUND.read_bytes()
    places = entries(data)
    for place in places:
        data = put(data, place.at, partition_leader_epoch=5)
    damaged = put(data, places[odd].at, partition_leader_epoch=epoch)
    out, reported = repaired_bytes(damaged, tmp_path)
    assert out == data
    assert [(what.position, what.end) for what in reported] == [(places[odd].at, places[odd].end)]


def test_the_offsets_that_are_lost(tmp_path: Path) -> None:
    """The report has exactly the lost offsets."""
    data = SOUND.read_bytes()
    places = entries(data)
    second = places[1]
    last = get(data, second.at, "base_offset") + get(data, second.at, "last_offset_delta")
    _, reported = repaired_bytes(damage.zero(data, second.at, second.end), tmp_path)
    assert [(what.rule, what.offset, what.last_offset) for what in reported] == [
        ("lost-bytes", get(data, second.at, "base_offset"), last)
    ]
    # A duplicate loses nothing.
    _, reported = repaired_bytes(damage.insert(data, second.end, data[second.at : second.end]), tmp_path)
    assert [(what.rule, what.offset, what.last_offset) for what in reported] == [("non-monotonic-offset", None, None)]
    # A wrong base offset does not show which offsets were lost.
    _, reported = repaired_bytes(put(data, second.at, base_offset=1 << 40), tmp_path)
    assert [(what.offset, what.last_offset) for what in reported] == [(get(data, second.at, "base_offset"), last)]


@pytest.mark.parametrize("options", [(), ("--dry-run",)])
def test_after_a_loss_an_undamaged_replica_comes_first(options: tuple[str, ...], tmp_path: Path) -> None:
    """Whoever puts a repaired leader back replicates its loss: the message names what loses nothing."""
    lossy, corrected = (
        run(log_of(FINDINGS / rule), tmp_path / rule, *options) for rule in ("crc-mismatch", "zero-tail")
    )
    assert lossy.exit_code == 1
    assert "move the damaged folder out of the log directory while the broker is stopped" in lossy.stderr
    assert corrected.exit_code == 0
    assert "replica" not in corrected.stderr


def test_damage_of_several_kinds(tmp_path: Path) -> None:
    """Several faults in one segment are repaired independently."""
    data = SOUND.read_bytes()
    first, second, third, *_, last = entries(data)
    damaged = data[: last.end - 10]
    damaged = put(damaged, third.at, size=third.size - LOG_OVERHEAD - 50)
    damaged = damage.flip(damaged, first.end - 3)
    damaged = damage.insert(damaged, second.at, damage.noise(40))
    out, reported = repaired_bytes(damaged, tmp_path)
    assert out == data[second.at : last.at]
    assert [what.rule for what in reported] == ["lost-bytes", "invalid-size", "truncated-tail"]
    assert sum(isinstance(what, CorrectedBatch) for what in reported) == 1


def test_an_entry_past_the_end_of_the_segment(tmp_path: Path) -> None:
    """The last batch lacks a successor that proves its base offset wrong; an index could not hold it."""
    data = SOUND.read_bytes()
    last = entries(data)[-1]
    out, reported = repaired_bytes(put(data, last.at, base_offset=1 << 50), tmp_path)
    assert out == data[: last.at]
    assert [(what.rule, what.offset, what.last_offset) for what in reported] == [("invalid-offset-range", None, None)]


def test_a_wrong_first_offset_does_not_cost_the_rest(tmp_path: Path) -> None:
    """Against such a high offset all others seem to decrease; the next batch does not help here."""
    data = SOUND.read_bytes()
    first, second, third, *_ = entries(data)
    damaged = damage.flip(put(data, first.at, base_offset=3 << 50), second.end - 1)
    out, reported = repaired_bytes(damaged, tmp_path)
    assert out == data[third.at :]
    assert [what.rule for what in reported] == ["invalid-offset-range", "crc-mismatch"]


def _with_high_offsets(batches: list[bytes], high: set[int]) -> tuple[bytes, bytes]:
    """Return the log with some base offsets far too high, within the range of a segment, and the log before that.

    The batches around them prove the offsets of several, too: one flipped bit explains each, and they fill the hole.
    """
    damaged = [
        put(batch, 0, base_offset=get(batch, 0, "base_offset") ^ 1 << 20 + n % 2) if n in high else batch
        for n, batch in enumerate(batches)
    ]
    return b"".join(damaged), b"".join(batches)


@pytest.mark.parametrize("bits", [1, 2, 3, 4, 5, 256, 10**6, 2**61])
@pytest.mark.parametrize("name", ["4.3.0-v2-none", "2.8.2-v1-none", "0.9.0.1-v0-none"])
def test_a_base_offset_that_its_neighbours_prove_wrong(name: str, bits: int, tmp_path: Path) -> None:
    """Repair, convert and validate blame the batch that is wrong, not those after it; repair corrects what is proved."""
    source, good = tmp_path / FIRST, tmp_path / "good" / FIRST
    good.parent.mkdir()
    (tmp_path / "converted").mkdir()
    data = (SEGMENTS / name / FIRST).read_bytes()
    places = entries(data)
    place = places[len(places) // 2]
    source.write_bytes(put(data, place.at, base_offset=get(data, place.at, "base_offset") ^ bits))
    assert [finding.position for finding in errors_in(source)] == [place.at]
    reported: list[LostRange] = []
    assert not repair(str(source), str(good), RepairPlan(), reported.append).lost
    assert [(type(each), each.position) for each in reported] == [(CorrectedBatch, place.at)]
    assert good.read_bytes() == data
    found: list[Finding] = []
    plan = conversion_plan.ConversionPlan.of("any-to-v2", skip_damaged=True)
    convert(str(source), str(tmp_path / "converted" / FIRST), plan, lambda _, finding: found.append(finding))
    assert {finding.position for finding in found} == {place.at}


@pytest.mark.slow
@pytest.mark.parametrize("bit", [9, 10, 14, 18, 27, 35])
@pytest.mark.parametrize("damaged", [(3,), (2, 4), (3, 5)])
@pytest.mark.parametrize("name", ["1.1.1-v2-gzip", "0.11.0.3-v2-none", "2.8.2-v2-zstd"])
def test_no_batch_leaps_over_lost_ones(name: str, damaged: tuple[int, ...], bit: int, tmp_path: Path) -> None:
    """A base offset that one flipped bit raises is not kept where the batches next to it are lost, too.

    Nothing after the last batch would contradict it: the log would end far too high.
    """
    source, good = tmp_path / FIRST, tmp_path / "good" / FIRST
    good.parent.mkdir()
    data = (SEGMENTS / name / FIRST).read_bytes()
    places = entries(data)[:6]
    hurt = data[: places[-1].end]
    for n in damaged:
        hurt = damage.flip(hurt, places[n].end - 3)
    place = places[4 if damaged == (3, 5) else max(damaged) - 1 if len(damaged) > 1 else 4]
    for later in range(places.index(place) + 1, 6):
        hurt = hurt if later in damaged else damage.flip(hurt, places[later].end - 3)
    hurt = put(hurt, place.at, base_offset=get(data, place.at, "base_offset") ^ 1 << bit)
    source.write_bytes(hurt)
    repair(str(source), str(good), RepairPlan())
    kept = good.read_bytes()
    whole = [one for one in places if hurt[one.at : one.end] == data[one.at : one.end]]
    assert all(data[one.at : one.end] in kept for one in whole)
    assert hurt[place.at : place.end] not in kept


@pytest.mark.parametrize("by", [-1, 1, 2])
def test_validate_finds_the_wrapper_that_repair_corrects(by: int, tmp_path: Path) -> None:
    """The header of a compressed v0 or v1 set lacks its first offset: the sets around it show it when they are opened."""
    source = tmp_path / FIRST
    data = (SEGMENTS / "2.8.2-v1-gzip" / FIRST).read_bytes()
    place = entries(data)[2]
    source.write_bytes(put(data, place.at, base_offset=get(data, place.at, "base_offset") + by))
    reported: list[LostRange] = []
    repair(str(source), None, RepairPlan(dry_run=True), reported.append)
    found = errors_in(source)
    assert [finding.rule for finding in found] == [what.rule for what in reported] == ["non-monotonic-offset"]
    assert [finding.position for finding in found] == [what.position for what in reported] == [place.at]


@pytest.mark.parametrize("rebatch", [None, 4096])
@pytest.mark.parametrize("name", ["4.3.0-v2-none", "2.8.2-v1-none", "2.8.2-v1-gzip"])
def test_a_last_entry_past_the_reach_of_the_indexes(name: str, rebatch: int | None, tmp_path: Path) -> None:
    """The indexes of the segment can't hold its offset: an error for validate, damage that convert can skip."""
    source, good, bare = (tmp_path / folder / FIRST for folder in ("source", "good", "bare"))
    for path in (source, good, bare):
        path.parent.mkdir()
    data = (SEGMENTS / name / FIRST).read_bytes()
    last = entries(data)[-1]
    source.write_bytes(put(data, last.at, base_offset=get(data, last.at, "base_offset") + (0x20 << 56)))
    assert [(finding.rule, finding.position) for finding in errors_in(source)] == [("invalid-offset-range", last.at)]
    bare.write_bytes(data)  # the batch before proves the offset
    plan = conversion_plan.ConversionPlan.of("any-to-v2", skip_damaged=True, rebatch=rebatch, force=True)
    convert(str(source), str(good), plan)
    convert(str(bare), str(tmp_path / FIRST), plan)
    assert good.read_bytes() == (tmp_path / FIRST).read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("high", [{n, n + 1, n + 2} for n in range(65, 71)] + [{69}, {70}, {0, 1}, {98}, {95, 97}])
def test_a_high_offset_at_the_boundary_of_windows(high: set[int], tmp_path: Path) -> None:
    """Base offsets are outside the CRC: a few that are too high cost nothing, also at the end of a read window."""
    value = damage.noise(200) * 300
    batches = [build_batch([PlainRecord(n, b"k", value)]) for n in range(100)]
    assert 69 <= WINDOW_SIZE // len(batches[0]) <= 70
    damaged, wanted = _with_high_offsets(batches, high)
    out, reported = repaired_bytes(damaged, tmp_path)
    assert out == wanted
    assert [what.rule for what in reported] == ["non-monotonic-offset"] * len(high)


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_a_high_offset_at_the_boundary_of_chunks(compression: str, tmp_path: Path) -> None:
    """Chunks end after a fixed number of records, inside a window."""
    batches = [
        build_batch([PlainRecord(1000 * n + i, b"k", b"v") for i in range(1000)], compression=compression)
        for n in range(100)
    ]
    borders = {n for border in range(0, 100_000, CHUNK_ROWS) for n in (border // 1000 - 1, border // 1000) if n > 0}
    assert len(borders) == 6
    damaged, wanted = _with_high_offsets(batches, borders)
    assert repaired_bytes(damaged, tmp_path)[0] == wanted


def test_wrong_offsets_are_outvoted(tmp_path: Path) -> None:
    """In a compacted log every offset can precede a gap: the offsets that contradict most others are wrong."""
    batches = [build_batch([PlainRecord(5 * n, b"k", b"v")]) for n in range(40)]
    low, high, far = 20, 10, 30
    damaged = list(batches)
    damaged[high] = put(batches[high], 0, base_offset=5 * high + 1024)
    damaged[low] = put(batches[low], 0, base_offset=5 * low - 16)
    damaged[far] = damage.alter(batches[far], 0, last_offset_delta=5000)
    out, reported = repaired_bytes(b"".join(damaged), tmp_path)
    assert out == b"".join(batch for n, batch in enumerate(batches) if n not in (low, high, far))
    assert len(reported) == 3


def test_every_entry_damaged_leaves_an_empty_log(tmp_path: Path) -> None:
    """A log without a valid batch is reported completely as lost."""
    data = SOUND.read_bytes()
    for place in entries(data):
        data = damage.flip(data, place.end - 1)
    out, reported = repaired_bytes(data, tmp_path)
    assert (out, len(reported)) == (b"", 5)
    assert [path.stat().st_size for path in index_paths(tmp_path / "out" / FIRST)] == [0, 0]


def _one_of_each() -> dict[str, Path]:
    """Real segments of each version and codec, with enough batches to lose one, and without gaps."""
    found: dict[str, Path] = {}
    for folder in (folder for folder in FOLDERS if "compacted" not in folder.name):
        data = (folder / FIRST).read_bytes() if (folder / FIRST).exists() and "live" not in folder.name else b""
        places = entries(data)
        if len(places) > 3:
            second = places[1]
            codec = get(data, second.at, "attributes") & CODEC_MASK
            found.setdefault(f"v{second.magic}-{codec_name(codec)}", folder / FIRST)
    return found


REAL = _one_of_each()
# The value of a message is its content.
NO_FAULT_IN_A_MESSAGE = "noise for records"
# The effect of each kind of damage on a segment's second batch, and whether it costs the batch; else the segment is
# valid afterwards.
TOO_HIGH = "a far too high offset"
VERBS: dict[str, tuple[bool, Callable[[bytes, damage.Place], bytes]]] = {
    "a byte of its CRC flipped": (True, lambda data, place: damage.flip(data, place.end - (place.size - 12) + 6)),
    "its last byte flipped": (True, lambda data, place: damage.flip(data, place.end - 1)),
    "zeros all over it": (True, lambda data, place: damage.zero(data, place.at, place.end)),
    "zeros from its middle on": (True, lambda data, place: damage.zero(data, place.at + place.size // 2, place.end)),
    "some bytes of it gone": (True, lambda data, place: damage.cut(data, place.end - 9, place.end - 4)),
    "noise in its middle": (True, lambda data, place: damage.insert(data, place.end - 9, damage.noise(50))),
    "noise before it": (False, lambda data, place: damage.insert(data, place.at, damage.noise(50))),
    "zeros before it": (False, lambda data, place: damage.insert(data, place.at, bytes(100))),
    "once more": (False, lambda data, place: damage.insert(data, place.end, data[place.at : place.end])),
    "zeros at the end": (False, lambda data, place: data + bytes(5000)),
    "half an entry at the end": (False, lambda data, place: data + data[place.at : place.end - 5]),
    "another size": (False, lambda data, place: put(data, place.at, size=place.size - LOG_OVERHEAD + 40)),
    "a size of 2 GiB": (False, lambda data, place: put(data, place.at, size=(1 << 31) - 1)),
    "another magic": (False, lambda data, place: damage.flip(data, place.at + 16)),
    TOO_HIGH: (True, lambda data, place: damage.flip(data, place.at + 4, 1 << 6)),
    "a codec that there is not": (True, lambda data, place: damage.alter(data, place.at, attributes=7)),
    NO_FAULT_IN_A_MESSAGE: (True, lambda data, place: damage.with_payload(data, place, damage.noise(99))),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("kind", REAL)
def test_every_verb_on_every_version_and_codec(kind: str, tmp_path: Path) -> None:
    """Each kind of damage is repaired in each version and codec."""
    data = REAL[kind].read_bytes()
    place = entries(data)[1]
    for name, (costly, verb) in VERBS.items():
        if name == NO_FAULT_IN_A_MESSAGE and kind in ("v0-none", "v1-none"):
            continue
        damaged = verb(data, place)
        out, reported = repaired_bytes(damaged, tmp_path)
        expected = damage.cut(data, place.at, place.end) if costly and name != TOO_HIGH else data
        if name == NO_FAULT_IN_A_MESSAGE and place.magic < 2:  # the CRC proves it: only its claimed codec is wrong
            expected = damage.alter(damaged, place.at, attributes=0)
        assert out == expected, name
        assert reported or name == "zeros at the end"


@pytest.mark.parametrize("delta", [-100, 5, 1000, 10**8])
@pytest.mark.parametrize("kind", REAL)
def test_wrong_sizes_side_by_side(kind: str, delta: int, tmp_path: Path) -> None:
    """The CRC proves each size, at the next real header."""
    data = damaged = REAL[kind].read_bytes()
    for place in entries(data)[1:3]:
        damaged = put(damaged, place.at, size=place.size - LOG_OVERHEAD + delta)
    out, reported = repaired_bytes(damaged, tmp_path)
    assert out == data
    assert [what.rule for what in reported] == ["invalid-size"] * 2


@pytest.mark.parametrize("rule", sorted(SERVED))
def test_what_brokers_and_consumers_read_is_kept(rule: str, tmp_path: Path) -> None:
    """A batch with such an error is dropped only if the policy says so. A conversion keeps it, too."""
    source = log_of(FINDINGS / rule)
    kept, dropped, converted = (tmp_path / name / source.name for name in ("kept", "dropped", "converted"))
    for target in (kept, dropped, converted):
        target.parent.mkdir()
    assert (run(source, kept).exit_code, kept.read_bytes()) == (0, source.read_bytes())
    done = invoke("convert", "any-to-v2", source, converted)
    assert (done.exit_code, converted.read_bytes()) == (0, source.read_bytes())
    assert rule in done.stderr
    assert run(source, dropped, "--rule", f"{rule}=error").exit_code == 1
    assert errors_in(dropped) == []


def test_many_duplicates_drop_only_themselves(tmp_path: Path) -> None:
    """A dropped batch must not count against its successors."""
    sent = [build_batch([PlainRecord(n, b"k", b"v")], producer_id=7, producer_epoch=1, base_sequence=n)
            for n in range(40)]  # fmt: skip
    again = [put(sent[n - 1], 0, base_offset=n) if n % 4 == 2 else sent[n] for n in range(40)]
    out, reported = repaired_bytes(b"".join(again), tmp_path, policy=Policy({"duplicate-sequence": Severity.ERROR}))
    assert out == b"".join(batch for n, batch in enumerate(sent) if n % 4 != 2)
    assert [what.rule for what in reported] == ["duplicate-sequence"] * 10


@pytest.mark.slow
@pytest.mark.parametrize("segment", [folder / name for folder in FOLDERS for name in expected(folder)
                                     if name.endswith(".log")],
                         ids=lambda path: f"{path.parent.name}/{path.stem.lstrip('0') or 0}")  # fmt: skip
def test_sound_segments_come_out_as_they_are(segment: Path, tmp_path: Path) -> None:
    """Repair of a valid segment is a copy."""
    done = run(segment, tmp_path / segment.name, "--index-interval", INDEX_INTERVAL)
    data = segment.read_bytes()
    out = (tmp_path / segment.name).read_bytes()
    assert done.exit_code == 0
    assert out == (data if "preallocated-live" not in segment.parent.name and "live-pre" not in segment.parent.name
                   else data[: len(out)])  # fmt: skip
    assert data[len(out) :].strip(b"\0") == b""
    assert "mended " not in done.stdout


# Fixtures of Kafka 4.3 with one batch per append: writing and recovery place the same index entries.
SAME_INDEXES = [
    folder for folder in FOLDERS
    if folder.name.startswith("4.3.0")
    and not any(word in folder.name for word in ("live", "kraft", "cluster-metadata", "log-dir"))
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("folder", SAME_INDEXES, ids=lambda folder: folder.name)
def test_indexes_are_the_brokers(folder: Path, tmp_path: Path) -> None:
    """The written indexes equal those of the broker."""
    repair(str(folder), str(tmp_path / "p-0"), RepairPlan(index_interval=INDEX_INTERVAL))
    checked = 0
    for pattern in ("*.index", "*.timeindex", "*.log"):
        for path in folder.glob(pattern):
            assert (tmp_path / "p-0" / path.name).read_bytes() == path.read_bytes(), path.name
            checked += path.stat().st_size > 0
    assert checked >= 2


# --- folders ---


@pytest.mark.parametrize("folder", TRANSACTIONAL, ids=lambda folder: folder.name)
def test_the_transaction_index_is_the_brokers(folder: Path, tmp_path: Path) -> None:
    """The written transaction index equals the broker's."""
    repair(str(folder), str(tmp_path / "p-0"), RepairPlan())
    wanted = {path.name: path.read_bytes() for path in folder.glob("*.txnindex") if path.stat().st_size}
    assert wanted
    assert {path.name: path.read_bytes() for path in (tmp_path / "p-0").glob("*.txnindex")} == wanted


def test_a_transaction_begun_in_an_older_segment(tmp_path: Path) -> None:
    """Retention deleted the segment; the snapshot has the offset where the transaction began, as for the broker."""
    folder = SEGMENTS / "4.3.0-v2-none-transactions"
    kept = tmp_path / "in-0"
    kept.mkdir()
    for path in folder.glob("0*"):
        if int(path.name[:20]) >= 52:
            shutil.copy(path, kept)
    repair(str(kept), str(tmp_path / "out-0"), RepairPlan())
    name = "00000000000000000052.txnindex"
    assert (tmp_path / "out-0" / name).read_bytes() == (folder / name).read_bytes()


def test_overlapping_transactions() -> None:
    """The entry's last stable offset is where the earliest other open transaction began (ProducerStateManager)."""
    txns = AbortedTransactions()
    for producer, first in ((1, 10), (2, 14), (3, 20)):
        txns.begin(producer, first)
    assert list(txns._end(2, 30, True)) == [AbortedTxn(2, 14, 30, 10)]
    assert list(txns._end(1, 31, False)) == []
    assert list(txns._end(3, 32, True)) == [AbortedTxn(3, 20, 32, 33)]
    assert list(txns._end(3, 33, True)) == []
    entry = AbortedTxn(3, 20, 32, 33)
    assert list(read_txn_index(entry.pack())) == [entry]
    assert len(entry.pack()) == ABORTED_TXN.size == 34


def test_a_snapshot_that_does_not_hold_is_not_believed() -> None:
    """A damaged producer snapshot is not used."""
    snapshot = (SEGMENTS / "4.3.0-v2-none-transactions" / "00000000000000000088.snapshot").read_bytes()
    txns = AbortedTransactions()
    txns.add_open(snapshot)
    assert len(txns.open) == 1
    for bad in (damage.flip(snapshot, 20), snapshot[:-1], b"", b"\0" * 10):
        txns = AbortedTransactions()
        txns.add_open(bad)
        assert txns.open == {}


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    folder = tmp_path / "in-0"
    shutil.copytree(SEGMENTS / "4.3.0-v2-none-transactions", folder)
    return folder


def test_a_folder(partition: Path, tmp_path: Path) -> None:
    """A partition is repaired with its side files."""
    before = digests(partition)
    done = run(partition, tmp_path / "out-0")
    assert done.exit_code == 0
    assert digests(partition) == before
    names = {path.name for path in partition.iterdir()} - {"ORIGIN", "expect.jsonl"}
    assert {path.name for path in (tmp_path / "out-0").iterdir()} == names
    assert "not copied: ORIGIN" in done.stderr
    assert "has no end in this log" in done.stderr


def test_a_damaged_folder(partition: Path, tmp_path: Path) -> None:
    """Only the damaged segment changes; snapshots that include lost batches are written again; a lost marker is
    reported.
    """
    log = partition / "00000000000000000052.log"
    data = log.read_bytes()
    place = entries(data)[3]
    first = get(data, place.at, "base_offset")
    log.write_bytes(damage.flip(data, place.end - 1))
    (partition / "00000000000000000073.log").write_bytes(damage.noise(200))
    done = run(partition, tmp_path / "out-0", "--format", "jsonl")
    assert done.exit_code == 1
    out = tmp_path / "out-0"
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(row["rule"], row["offset"], Path(row["file"]).name) for row in rows if row["kind"] == "lost"] == [
        ("crc-mismatch", first, log.name), ("lost-bytes", 73, "00000000000000000073.log")]  # fmt: skip
    assert (out / log.name).read_bytes() == data[: place.at] + data[place.end :]
    assert not (out / "00000000000000000073.log").exists()
    for path in partition.glob("*.snapshot"):
        assert (out / path.name).exists() == (int(path.stem) != 73)  # no segment starts there
        unchanged = path.name in os.listdir(out) and (out / path.name).read_bytes() == path.read_bytes()
        assert unchanged == (int(path.stem) <= first)
    for path in partition.glob("*.log"):
        if path.name not in (log.name, "00000000000000000073.log"):
            assert (out / path.name).read_bytes() == path.read_bytes()
    assert rows[-1]["kind"] == "summary"
    assert (rows[-1]["lost_ranges"], rows[-1]["files"]) == (2, 6)
    assert rows[-1]["lost_bytes"] == place.size + 200


@pytest.fixture
def segments(tmp_path: Path) -> Path:
    """A partition of several consecutive segments."""
    return Path(shutil.copytree(SEGMENTS / "4.3.0-v2-none-segments", tmp_path / "orders-0"))


def test_zeros_in_front_of_a_later_segment_are_a_loss(segments: Path) -> None:
    """A lost page looks like one that was never written; only the offsets that the next segment lacks show the loss."""
    log = segments / FIRST
    data = log.read_bytes()
    reported: list[LostRange] = []
    log.write_bytes(data + bytes(512))  # a preallocated segment: the next one begins where its records end
    assert not repair(str(segments), None, RepairPlan(dry_run=True), reported.append).lost
    assert reported == []
    log.write_bytes(damage.zero(data, entries(data)[1].at, len(data)))
    assert repair(str(segments), None, RepairPlan(dry_run=True), reported.append).lost
    assert [(what.kind, what.rule, what.position, what.offset, what.last_offset) for what in reported] == [
        ("lost", "zero-tail", 357, 8, 23)]  # fmt: skip
    seen = invoke("validate", "--fail-on", "warning", "--format", "jsonl", segments)
    assert seen.exit_code == 1
    (gap,) = [row for row in map(json.loads, seen.stdout.splitlines()) if row.get("rule") == "segment-gap"]
    assert (gap["offset"], gap["last_offset"]) == (8, 23)
    assert "zeros" in gap["message"]


def test_a_missing_segment_is_reported_and_not_damage(segments: Path) -> None:
    """Retention or compaction can explain it; but the partition can't be called free of losses."""
    (segments / f"{24:020}.log").rename(segments / f"{24:020}.log.deleted")
    reported = run(segments, "--dry-run", "--format", "jsonl")
    assert reported.exit_code == 0
    first, *_, summary = map(json.loads, reported.stdout.splitlines())
    assert (first["kind"], first["offset"], first["last_offset"]) == ("missing", 24, 47)
    assert summary["missing"] == 1
    assert "no data lost; offsets missing between segments in 1 place" in run(segments, "--dry-run").stdout


def test_an_ignored_fault_is_reported_for_a_dropped_batch() -> None:
    """A report that no batch begins there would be false."""
    reported: list[LostRange] = []
    policy = Policy.parse(["crc-mismatch=ignore"])
    repair(str(FINDINGS / "crc-mismatch" / FIRST), None, RepairPlan(dry_run=True, policy=policy), reported.append)
    assert [what.rule for what in reported] == ["crc-mismatch"]


def test_side_files_are_no_logs_whatever_their_bytes(tmp_path: Path) -> None:
    """An index is not repaired as a segment."""
    index = SEGMENTS / "2.8.2-v1-none" / f"{0:020}.index"
    for verb in (["repair"], ["convert", "any-to-v2"]):
        result = invoke(*verb, index, tmp_path / "x.log")
        assert result.exit_code == 2
        assert "offset index" in result.stderr


def test_a_batch_in_the_next_segments_range_is_dropped(tmp_path: Path) -> None:
    """The batch with the wrong offset is dropped, and not all of the next segment."""
    source = tmp_path / "in-0"
    source.mkdir()
    low = b"".join(build_message(PlainRecord(n, b"k", b"v", -1), magic=0) for n in range(5))
    wrong = build_message(PlainRecord(70, b"k", b"v", -1), magic=0)
    high = b"".join(build_message(PlainRecord(n, b"k", b"v", -1), magic=0) for n in range(50, 60))
    (source / FIRST).write_bytes(low + wrong)
    (source / "00000000000000000050.log").write_bytes(high)
    assert run(source, tmp_path / "out-0").exit_code == 1
    assert (tmp_path / "out-0" / FIRST).read_bytes() == low
    assert (tmp_path / "out-0" / "00000000000000000050.log").read_bytes() == high


# --- records before a fault ---

# Fixtures with readable records in a faulty batch, and which offsets of it are kept and lost.
READABLE = {
    "inner-crc-mismatch": ((1, 12), (3, 3)),
    "malformed-record": ((13, 16), (17, 24)),
    "record-count-mismatch": ((13, 23), (24, 24)),
    "truncated-wrapper": ((1, 11), (12, 12)),
}


@pytest.mark.parametrize("rule", READABLE)
def test_records_before_a_fault(rule: str, tmp_path: Path) -> None:
    """With the option they are packed again in a batch with the same header; the rest is as without the option."""
    source, target = log_of(FINDINGS / rule), tmp_path / FIRST
    done = run("--salvage-records", source, target, "--format", "jsonl")
    (row,) = [row for row in map(json.loads, done.stdout.splitlines()) if row["kind"] not in ("segment", "summary")]
    data, out = source.read_bytes(), target.read_bytes()
    place = next(place for place in entries(data) if place.at == row["position"])
    fresh = next(place for place in entries(out) if place.at == row["position"])
    assert (done.exit_code, row["kind"], row["rule"], row["end"]) == (1, "salvaged", rule, place.end)
    assert ((row["kept_offset"], row["last_kept_offset"]), (row["offset"], row["last_offset"])) == READABLE[rule]
    assert damage.cut(out, fresh.at, fresh.end) == damage.cut(data, place.at, place.end)
    assert errors_in(target) == []
    folder, _, name = CASES[rule].segment.partition("/")
    lost = range(row["offset"], row["last_offset"] + 1)
    wanted = [one for one in _records(expected(SEGMENTS / folder)[name]) if one["offset"] not in lost]
    assert _records(dumped(target, deep=True)) == wanted
    if place.magic == 2:
        same = (
            "base_offset",
            "last_offset_delta",
            "attributes",
            "producer_id",
            "base_timestamp",
            "partition_leader_epoch",
        )
        assert [get(out, fresh.at, field) for field in same] == [get(data, place.at, field) for field in same]


@pytest.mark.parametrize("rule", ["nested-compression", "undecodable-payload", "unknown-codec",
                                  "malformed-control-record", "record-offset-mismatch", "crc-mismatch"])  # fmt: skip
def test_records_after_an_unproved_fault_are_lost(rule: str, tmp_path: Path) -> None:
    """A fault that does not prove the bytes before it, or that a CRC does not cover."""
    source = log_of(FINDINGS / rule)
    plain, salvaged = tmp_path / "plain" / FIRST, tmp_path / "salvaged" / FIRST
    for target in (plain, salvaged):
        target.parent.mkdir()
        repair(str(source), str(target), RepairPlan(salvage_records=target is salvaged))
    assert plain.read_bytes() == salvaged.read_bytes()


def _set(first: int, end: int, *, without: int = 0, more: bytes = b"") -> bytes:
    """Return a v1 set whose payload lacks its last bytes, or has more."""
    data = build_wrapper([PlainRecord(n, b"k", b"%d" % n, NOW) for n in range(first, end)], magic=1, compression="gzip")
    (place,) = entries(data)
    payload = damage.inflated(data, place)
    return damage.with_inflated(data, place, payload[: len(payload) - without] + more)


_INCOMPLETE = bytes(8) + (100).to_bytes(4) + bytes(8)
#: A cut v1 set of the offsets 8 to 15 after a set of ``before``: its bytes, and the kept offsets, None for none.
CUT_SETS: dict[str, tuple[range, dict[str, Any], range | None]] = {
    "more-bytes": (range(8), {"more": _INCOMPLETE}, range(8, 16)),
    "zeros": (range(8), {"more": bytes(20)}, range(8, 16)),
    "last-cut": (range(8), {"without": 3}, range(8, 15)),
    "last-without-its-offset": (range(8), {"without": 30}, None),
    "more-bytes-after-a-gap": (range(6), {"more": _INCOMPLETE}, None),
    "last-cut-after-a-gap": (range(6), {"without": 3}, None),
}


@pytest.mark.parametrize("case", CUT_SETS)
def test_a_cut_set_is_kept_if_its_offsets_are_proved(case: str, tmp_path: Path) -> None:
    """The offsets of a v1 set are relative to its last message: none gets a wrong one. Doctor prints no other repair."""
    before, change, kept = CUT_SETS[case]
    source = tmp_path / "logs" / "in-0"
    source.mkdir(parents=True)
    whole = [_set(before[0], before[-1] + 1), _set(16, 20)]
    (source / FIRST).write_bytes(whole[0] + _set(8, 16, **change) + whole[1])
    reported: list[LostRange] = []
    repair(str(source), str(tmp_path / "out-0"), RepairPlan(salvage_records=True), reported.append)
    values = {row["offset"]: row["value"] for row in dumped(tmp_path / "out-0" / FIRST, deep=True)}
    assert [*values] == [*before, *(kept or ()), *range(16, 20)]
    assert all(b64decode(value) == b"%d" % offset for offset, value in values.items())
    lost = [(row.offset, row.last_offset) for row in reported if isinstance(row, (PartlyKeptBatch, UnplacedBatch))]
    assert lost == [(None, None) if kept == range(8, 16) else (15, 15) if kept else (before[-1] + 1, 15)]
    *_, summary = map(json.loads, invoke("doctor", "--format", "jsonl", tmp_path / "logs").stdout.splitlines())
    assert any("kseg repair" in line for line in summary["commands"]) == (kept is not None)


@pytest.mark.parametrize("too_long", [1, 3, 8, 40])
@pytest.mark.parametrize("n", [0, 3, 4, 8])
def test_a_batch_ends_with_its_records(n: int, too_long: int, tmp_path: Path) -> None:
    """A last offset that the next batch has, too, in the file or in the next segment, becomes that of the last record."""
    batches = [build_batch([PlainRecord(8 * m + i, b"k", b"v", NOW) for i in range(8)]) for m in range(10)]
    wrong = [*batches]
    wrong[n] = damage.alter(batches[n], 0, last_offset_delta=7 + too_long)
    source, target = tmp_path / "in-0", tmp_path / "out-0"
    source.mkdir()
    for first, stop in ((0, 5), (5, 10)):
        (source / f"{8 * first:020}.log").write_bytes(b"".join(wrong[first:stop]))
    reported: list[LostRange] = []
    repair(str(source), str(target), RepairPlan(), reported.append)
    assert b"".join(path.read_bytes() for path in sorted(target.glob("*.log"))) == b"".join(batches)
    assert [(row.kind, row.rule, row.offset) for row in reported] == [("mended", "last-offset-mismatch", 8 * n)]


def test_a_compacted_batch_keeps_its_last_offset(tmp_path: Path) -> None:
    """No CRC covers the base offset of the next batch: without one that continues it, it proves nothing."""
    thinned = build_batch([PlainRecord(i, b"k", b"v", NOW) for i in range(6)], base_offset=0, last_offset=9)
    batches = [
        thinned,
        *(build_batch([PlainRecord(10 * n + i, b"k", b"v", NOW) for i in range(10)]) for n in (1, 2, 3)),
    ]
    source, target = tmp_path / FIRST, tmp_path / "out.log"
    source.write_bytes(batches[0] + put(batches[1], 0, base_offset=6) + b"".join(batches[2:]))
    reported: list[LostRange] = []
    repair(str(source), str(target), RepairPlan(), reported.append)
    assert target.read_bytes().startswith(thinned)
    assert "last-offset-mismatch" not in [row.rule for row in reported]


def _torn(batch: bytes, keep: int) -> bytes:
    """Return the v2 batch with its records from ``keep`` on made unreadable, and a valid CRC."""
    (place,) = entries(batch)
    records = damage.records(damage.inflated(batch, place))
    return damage.with_inflated(batch, place, b"".join(records[:keep]) + b"\x7e" * len(b"".join(records[keep:])))


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_salvaged_batches_keep_their_place(compression: str, tmp_path: Path) -> None:
    """Offsets and sequences continue after them; a wrong offset that is proved is corrected, too."""

    def build(n: int) -> bytes:
        records = [PlainRecord(10 * n + i, b"k%d" % i, None, NOW - i, (Header("h", b"v"),)) for i in range(10)]
        return build_batch(records, compression=compression, producer_id=5, producer_epoch=0, base_sequence=10 * n)

    batches = [build(n) for n in range(12)]
    torn, torn_and_moved, all_torn = 3, 5, 8
    broken = list(batches)
    broken[torn] = _torn(batches[torn], 6)
    broken[torn_and_moved] = put(_torn(batches[torn_and_moved], 6), 0, base_offset=7000)
    broken[all_torn] = _torn(batches[all_torn], 0)
    source, target = tmp_path / "in.log", tmp_path / FIRST
    source.write_bytes(b"".join(broken))
    reported: list[LostRange] = []
    (segment,) = repair(str(source), str(target), RepairPlan(salvage_records=True), reported.append).segments
    assert [(what.kind, what.offset, what.last_offset) for what in reported] == [
        ("salvaged", 36, 39), ("mended", 50, 59), ("salvaged", 56, 59), ("lost", 80, 89)]  # fmt: skip
    assert (segment.salvaged, segment.dropped, segment.records) == (2, 1, 9 * 10 + 2 * 6)
    offsets = [row["offset"] for row in dumped(target, deep=True)]
    assert offsets == [n for n in range(120) if n not in (*range(36, 40), *range(56, 60)) and n // 10 != 8]


def test_salvaging_and_indexing_only_contradict_each_other(tmp_path: Path) -> None:
    """The options are rejected together."""
    assert run("--salvage-records", "--indexes-only", SOUND, tmp_path / FIRST).exit_code == 2


# --- log dirs, and what lies about in folders ---


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """Two partitions, the second damaged, with a broker's own files, an empty partition and a foreign file."""
    root = tmp_path / "logs"
    shutil.copytree(SEGMENTS / "4.3.0-v2-none-log-dir", root)
    shutil.copytree(SEGMENTS / "4.3.0-v2-none-transactions", root / "pay-0")
    shutil.copytree(SEGMENTS / "4.3.0-v2-lz4", root / "orders-1")
    data = (root / "orders-1" / FIRST).read_bytes()
    (root / "orders-1" / FIRST).write_bytes(damage.flip(data, entries(data)[1].end - 1))
    (root / "empty-3").mkdir()
    (root / "notes").mkdir()
    (root / "notes" / "of-a-night.txt").write_text("?", encoding="utf-8")
    return root


def test_a_log_dir(log_dir: Path, tmp_path: Path) -> None:
    """Each partition gets its folder, as in a repair of one partition; the report names each file that is left out."""
    before, out = digests(log_dir), tmp_path / "out"
    done = run(log_dir, out, "--format", "jsonl")
    assert done.exit_code == 1
    assert digests(log_dir) == before
    assert {path.name for path in out.iterdir()} == {"pay-0", "orders-1"}
    for name in ("pay-0", "orders-1"):
        repair(str(log_dir / name), str(tmp_path / name), RepairPlan())
        alone, together = digests(tmp_path / name), digests(out / name)
        assert {path.name: digest for path, digest in alone.items()} == {
            path.name: digest for path, digest in together.items()
        }
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["kind"] for row in rows] == ["lost", *["segment"] * 7, "summary"]
    assert "orders-1/00000000000000000044.snapshot, " in done.stderr
    assert "pay-0: the transaction of producer" in done.stderr
    assert run(log_dir, out).exit_code == 2
    assert run(log_dir, out, "--force").exit_code == 1
    assert run(log_dir, "--dry-run", "--format", "jsonl").stdout.splitlines()[-1] == done.stdout.splitlines()[-1]
    for inside in (log_dir, log_dir / "new", log_dir / "pay-0", log_dir / "pay-0" / "new", tmp_path):
        assert run(log_dir, inside, "--force").exit_code == 2
    assert digests(log_dir) == before


def test_a_partition_that_can_not_be_done_does_not_stop_the_others(log_dir: Path, tmp_path: Path) -> None:
    """One failed partition must not cost the others."""
    done = run("--indexes-only", log_dir, tmp_path / "out")
    assert done.exit_code == 2
    assert "crc-mismatch at byte" in done.stderr
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["pay-0"]
    shutil.rmtree(log_dir / "pay-0")
    assert run("--indexes-only", log_dir, tmp_path / "none").exit_code == 2
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("name", ["00000000000000000052.log.deleted", "00000000000000000052.log.cleaned",
                                  "00000000000000000052.index.swap", "core.1234"])  # fmt: skip
def test_files_that_a_broker_does_not_read_are_not_copied(name: str, partition: Path, tmp_path: Path) -> None:
    """Segments to be deleted, a cleaner's unfinished files, the index of a segment that is in place, and foreign
    files.
    """
    repair(str(partition), str(tmp_path / "without-0"), RepairPlan())
    (partition / name).write_bytes((partition / "00000000000000000052.log").read_bytes())
    (partition / "nested").mkdir()
    shutil.copy(SOUND, partition / "nested" / FIRST)
    done = run(partition, tmp_path / "out-0")
    assert done.exit_code == 0
    assert name in done.stderr
    assert "nested" in done.stderr
    assert [path.read_bytes() for path in sorted((tmp_path / "out-0").iterdir())] == [
        path.read_bytes() for path in sorted((tmp_path / "without-0").iterdir())
    ]


@pytest.mark.parametrize("scene", [one for one in SCENES if one.name.startswith("swap")], ids=lambda one: one.name)
def test_a_waiting_swap_is_finished(scene: Scene, tmp_path: Path) -> None:
    """The result has the segments that a broker has after its start on the same folder, and validate accepts it."""
    folder = tmp_path / "topic-0"
    shutil.copytree(scene.source, folder)
    scene.put(folder)
    before = digests(folder)
    assert run(folder, tmp_path / "out-0").exit_code == 0
    plan = plan_partition(str(folder), replace(scene.start(), clean=True))
    logs = {int(path.name[:20]): path.stat().st_size for path in (tmp_path / "out-0").glob("*.log")}
    assert sorted(logs.items()) == list(plan.segments)
    assert invoke("validate", tmp_path / "out-0").exit_code == 0
    assert digests(folder) == before


def test_an_empty_swap_is_refused(log_dir: Path, tmp_path: Path) -> None:
    """A broker replaces segments by a .swap file without a look: repair does so only if the file is whole."""
    (log_dir / "pay-0" / "00000000000000000017.log.swap").touch()
    done = run(log_dir / "pay-0", tmp_path / "out")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "start a broker on a copy" in done.stderr
    assert not (tmp_path / "out").exists()
    done = run(log_dir, tmp_path / "out")
    assert done.exit_code == 2
    assert "start a broker on a copy" in done.stderr
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["orders-1"]


# --- ways to call it ---


def test_a_dry_run_writes_nothing(partition: Path, tmp_path: Path) -> None:
    """--dry-run has the report and creates no file."""
    log = partition / "00000000000000000052.log"
    log.write_bytes(log.read_bytes()[:-5])
    before = digests(tmp_path)
    for args in ((partition,), (partition, tmp_path / "out-0"), (log,), (log, tmp_path / log.name)):
        done = run("--dry-run", *args)
        assert done.exit_code == 1
        assert "truncated-tail" in done.stdout
    assert digests(tmp_path) == before
    assert run("--dry-run", SOUND).exit_code == 0
    assert json.loads(run("--dry-run", SOUND, "--format", "jsonl").stdout.splitlines()[0])["target"] is None
    assert run("--dry-run", "--indexes-only", SOUND).exit_code == 0
    wet = run(partition, tmp_path / "out-0", "--format", "jsonl").stdout.splitlines()
    dry = run("--dry-run", partition, "--format", "jsonl").stdout.splitlines()
    kept = ("lost", "mended", "summary")
    assert [line for line in dry if json.loads(line)["kind"] in kept] == [
        line for line in wet if json.loads(line)["kind"] in kept
    ]


def test_a_dry_run_refuses_what_the_repair_refuses(log_dir: Path, tmp_path: Path) -> None:
    """A dry run shows what the repair does: of two replicas without DST, the second is an existing DST for both."""
    copied = tmp_path / "copied"
    shutil.copytree(log_dir / "orders-1", copied / "orders-1")
    for part in ("orders-1", ""):
        paths = log_dir / part, copied / part
        wet, dry = run(*paths), run("--dry-run", *paths)
        assert (wet.exit_code, dry.exit_code) == (2, 2), dry.stdout
        assert "exists: add --force" in dry.stderr
        assert dry.stderr == wet.stderr
        assert run("--dry-run", "--force", *paths).exit_code in (0, 1)
        assert run("--dry-run", paths[0]).exit_code in (0, 1)


def test_only_the_indexes(partition: Path, tmp_path: Path) -> None:
    """--indexes-only leaves the log unchanged, and names what it does not copy."""
    out = tmp_path / "out-0"
    assert run("--indexes-only", "--index-interval", INDEX_INTERVAL, partition, out).exit_code == 0
    left_out = repair(str(partition), str(tmp_path / "again-0"), RepairPlan(indexes_only=True)).left_out
    assert {"leader-epoch-checkpoint", f"{48:020}.snapshot"} <= set(left_out)
    assert not [name for name in left_out if name.endswith((".log", ".index", ".timeindex", ".txnindex"))]
    names = {path.name for path in partition.iterdir() if path.suffix in (".index", ".timeindex", ".txnindex")}
    assert {path.name for path in out.iterdir()} == names
    for name in names:
        assert (out / name).read_bytes() == (partition / name).read_bytes()
    target = tmp_path / FIRST
    assert run("--indexes-only", SOUND, target).exit_code == 0
    assert not target.exists()
    assert all(path.exists() for path in index_paths(target))


@pytest.mark.parametrize("folder", sorted(SEGMENTS.glob("*-segments")), ids=lambda folder: folder.name)
def test_only_the_indexes_reports_the_gaps_of_a_repair(folder: Path) -> None:
    """Segments that follow each other must not be reported as missing offsets; a missing segment must."""
    for args in ([], ["--format", "jsonl"]):
        done = run("--dry-run", "--indexes-only", folder, *args)
        assert "segment-gap" not in done.stdout
        assert done.exit_code == 0


def test_only_the_indexes_reports_a_missing_segment(partition: Path) -> None:
    """The range of missing offsets is the one that a repair reports."""
    (partition / sorted(path.name for path in partition.glob("*.log"))[1]).unlink()
    missing = [
        [line for line in run("--dry-run", *args, partition).stdout.splitlines() if line.startswith("missing")]
        for args in ([], ["--indexes-only"])
    ]
    assert len(missing[0]) == 1
    assert missing[0] == missing[1]


def test_indexes_of_a_damaged_log_are_refused(tmp_path: Path) -> None:
    """They would have positions that a reader does not reach."""
    for name in ("crc-mismatch", "invalid-size"):
        with pytest.raises(DamagedError, match=f"{name} at byte"):
            repair(str(log_of(FINDINGS / name)), str(tmp_path / FIRST), RepairPlan(indexes_only=True))
    assert list(tmp_path.iterdir()) == []


def test_a_partition_without_valid_batches_leaves_no_folder(tmp_path: Path) -> None:
    """An empty folder looks like a repaired partition."""
    folder = tmp_path / "logs" / "orders-0"
    folder.mkdir(parents=True)
    (folder / FIRST).write_bytes(b"junk" * 100)
    assert run(folder, tmp_path / "one").exit_code == 1
    assert run(tmp_path / "logs", tmp_path / "all").exit_code == 1
    assert [path.name for path in tmp_path.iterdir()] == ["logs"]


@pytest.mark.parametrize("exists", [False, True])
def test_an_interrupted_run_leaves_no_empty_folder(exists: bool, log_dir: Path, tmp_path: Path) -> None:
    """An output is complete or absent. A folder that existed before the run is not its output."""
    out = tmp_path / "out"
    if exists:
        out.mkdir()

    def interrupt(partition: PartitionFolder, target: Path) -> None:
        assert out.is_dir()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        each_partition(PartitionFolder(log_dir), out, interrupt)
    assert out.exists() == exists


def test_what_is_there_is_kept_without_force(tmp_path: Path) -> None:
    """An existing target is never replaced by accident."""
    target = tmp_path / FIRST
    assert "is a folder: give the file to write as DST" in run("--force", SOUND, tmp_path).stderr
    assert "is a folder: give the file to write as DST" in run(SOUND, f"{tmp_path}/new/").stderr
    assert list(tmp_path.iterdir()) == []
    stale = target.with_suffix(".txnindex")
    for taken in (target, *index_paths(target)):
        taken.write_bytes(b"mine")
        assert run(SOUND, target).exit_code == 2
        assert taken.read_bytes() == b"mine"
        taken.unlink()
    target.write_bytes(b"mine")
    assert run(SOUND, target, "--force").exit_code == 2, "no result of an earlier run"
    assert target.read_bytes() == b"mine"
    target.unlink()
    assert run(SOUND, target).exit_code == 0
    stale.write_bytes(b"of another log")
    mark_results(tmp_path)
    assert run(SOUND, target, "--force").exit_code == 0
    assert target.read_bytes() == SOUND.read_bytes()
    assert not stale.exists()
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".index", ".log", ".timeindex"]


def test_never_in_place(partition: Path, tmp_path: Path) -> None:
    """The source is never the target."""
    log = partition / "00000000000000000052.log"
    before = digests(tmp_path)
    calls: list[tuple[object, ...]] = [
        (log, log), (partition, partition), (partition, partition / "in"), (partition, tmp_path), (log,), ("-", log),
        (log, partition), (SOUND, tmp_path / FIRST, "-o", SOUND), (partition, tmp_path / "x", "-o", partition / "x"),
        (SOUND, tmp_path / FIRST, "-o", tmp_path / FIRST), (SOUND, tmp_path / FIRST, "-o", index_paths(tmp_path / FIRST)[0]),
    ]  # fmt: skip
    for call in calls:
        done = run("--force", *call)
        assert (done.exit_code, done.stdout) == (2, ""), call
    assert digests(tmp_path) == before


def test_what_can_not_be_done(tmp_path: Path) -> None:
    """Impossible requests are one line and exit code 2."""
    (tmp_path / "noise.log").write_bytes(damage.noise(5000))
    (tmp_path / "empty-0").mkdir()
    with pytest.raises(NotASegmentError):
        repair(str(tmp_path / "noise.log"), str(tmp_path / FIRST), RepairPlan())
    with pytest.raises(UnreadableError):
        repair(str(tmp_path / "empty-0"), str(tmp_path / "out-0"), RepairPlan())
    with pytest.raises(UnreadableError):
        repair(str(tmp_path / "missing"), str(tmp_path / FIRST), RepairPlan())
    with pytest.raises(UsageError):
        repair(str(SOUND), None, RepairPlan())
    with pytest.raises(
        KsegError, match=rf"offsets 0\.\.\d+ do not fit a segment of that name: give DST the name {FIRST}"
    ):
        repair(str(SOUND), str(tmp_path / "00000000000000000100.log"), RepairPlan())
    far = tmp_path / "far.log"
    far.write_bytes(put(build_batch([PlainRecord(0)]), 0, base_offset=5 << 40))
    with pytest.raises(KsegError, match="contradicts 1 batch"):
        repair(str(far), str(tmp_path / FIRST), RepairPlan())
    far.unlink()
    assert {path.name for path in tmp_path.iterdir()} == {"noise.log", "empty-0"}


def test_a_single_segment_reports_missing_context(partition: Path, tmp_path: Path) -> None:
    """The first offsets of transactions are in other segments."""
    name = "00000000000000000052.log"
    done = run(partition / name, tmp_path / name)
    assert done.exit_code == 0
    assert "not copied: 00000000000000000052.txnindex" in done.stderr


@pytest.mark.slow
def test_a_long_run_of_damage_is_reported_during_reading(tmp_path: Path) -> None:
    """Findings must not wait in memory until the next valid batch; each batch is reported once."""
    first, others = ([build_batch([PlainRecord(n, key, b"v" * 2000, n)]) for n in range(8000)] for key in (b"k", b"l"))
    # Others with the same offsets, and one more.
    data = b"".join([*first, *others, build_batch([PlainRecord(8000)])])
    out, reported = repaired_bytes(data, tmp_path)
    assert len(entries(out)) == 8001
    assert len(reported) == 8000
    assert all(before.end == after.position for before, after in pairwise(reported))


def test_an_empty_log(tmp_path: Path) -> None:
    """The newest segment of a partition without a write since it was rolled."""
    assert repaired_bytes(b"", tmp_path) == (b"", [])


def test_the_report_is_written_to_a_file(tmp_path: Path) -> None:
    """The report can be kept separately from the result."""
    report = tmp_path / "report.jsonl"
    done = run(log_of(FINDINGS / "crc-mismatch"), tmp_path / FIRST, "--format", "jsonl", "-o", report)
    assert (done.exit_code, done.stdout) == (1, "")
    rows = [json.loads(line) for line in report.read_text("utf-8").splitlines()]
    assert [row["kind"] for row in rows] == ["lost", "segment", "summary"]
    lost = {name: rows[0][name] for name in ("position", "end", "offset", "last_offset", "rule")}
    assert lost == {"position": 475, "end": 742, "offset": 12, "last_offset": 12, "rule": "crc-mismatch"}


def test_the_modification_time_is_kept(tmp_path: Path) -> None:
    """Retention uses it for records without timestamps."""
    source, target = tmp_path / "in.log", tmp_path / FIRST
    source.write_bytes(SOUND.read_bytes())
    os.utime(source, ns=(10**18, 10**18))
    repair(str(source), str(target), RepairPlan())
    assert {path.stat().st_mtime_ns for path in (target, *index_paths(target))} == {10**18}


def test_windows_of_the_reader_do_not_matter(tmp_path: Path) -> None:
    """Damage and leader epochs on either side of the boundary of two read windows."""
    value = damage.noise(200) * 300
    batches = [build_batch([PlainRecord(n, b"k", value)]) for n in range(200)]
    data = b"".join(batches)
    size = len(batches[0])
    assert len(data) > 10 * 1024 * 1024
    for n in (60, 69, 70, 139, 140):
        data = damage.flip(data, n * size + size - 1)
    damaged = b"".join(
        put(data[n * size : (n + 1) * size], 0, partition_leader_epoch=9 if n == 100 else 3) for n in range(200)
    )
    out, reported = repaired_bytes(damaged, tmp_path)
    assert [what.rule for what in reported] == ["crc-mismatch"] * 3 + ["leader-epoch-regression"] + ["crc-mismatch"] * 2
    assert len(out) == 195 * size
    index = (tmp_path / "out" / FIRST).with_suffix(".index").read_bytes()
    assert len(list(read_offset_index(index, 0))) == 194


@pytest.mark.kafka
def test_kafka_reads_what_was_repaired(tmp_path: Path) -> None:
    """Kafka's reader reads every repaired fixture to its end, and finds the records that were not damaged."""
    from tools.lab import oracle

    targets = {}
    for folder in DAMAGED:
        for salvage_records in (False, True):
            target = tmp_path / folder.name / str(salvage_records) / log_of(folder).name
            target.parent.mkdir(parents=True)
            result = repair(str(log_of(folder)), str(target), RepairPlan(salvage_records=salvage_records))
            targets[target] = result.segments[0]
    read_by_kafka = oracle.rows_of(list(targets))
    for target, segment in targets.items():
        rows = read_by_kafka[target]
        assert [row for row in rows if row["kind"] == "error"] == [], target
        assert sum(row["kind"] == "batch" for row in rows) == segment.kept
        assert sum(row["kind"] == "record" for row in rows) == segment.records


@pytest.mark.kafka
def test_kafka_reads_the_records_that_were_not_damaged(tmp_path: Path) -> None:
    """For every kind of damage, version and codec:

    the repaired file has the records of the valid one, except lost ones.
    """
    from tools.lab import oracle

    wanted: dict[Path, list[dict[str, Any]]] = {}
    noise: dict[Path, int] = {}
    for kind, segment in REAL.items():
        data = segment.read_bytes()
        first, place, *_ = entries(data)
        records = _records(expected(segment.parent)[FIRST])
        for number, (name, (costly, verb)) in enumerate(VERBS.items()):
            if name == NO_FAULT_IN_A_MESSAGE and kind in ("v0-none", "v1-none"):
                continue
            target = tmp_path / kind / str(number) / FIRST
            target.parent.mkdir(parents=True)
            (target.parent / "in.log").write_bytes(verb(data, place))
            repair(str(target.parent / "in.log"), str(target), RepairPlan())
            lost = costly and name != TOO_HIGH
            gone = range(_last_offset(data, first) + 1, _last_offset(data, place) + 1) if lost else range(0)
            wanted[target] = [row for row in records if row["offset"] not in gone]
            if name == NO_FAULT_IN_A_MESSAGE and place.magic < 2:
                noise[target] = gone[-1]
    for target, rows in oracle.rows_of(list(wanted)).items():
        assert [row for row in rows if row["kind"] == "error"] == [], target
        read = _records(add_batch_fields(rows))
        assert sum(row["offset"] == noise.get(target) for row in read) == (target in noise), "kept as a plain message"
        assert [row for row in read if row["offset"] != noise.get(target)] == wanted[target], target


def _records(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return records without their position, which changes with the bytes that are lost before it."""
    return [{**row, "position": None} for row in rows if row["kind"] == "record"]


def _last_offset(data: bytes, place: damage.Place) -> int:
    delta = get(data, place.at, "last_offset_delta") if place.magic == 2 else 0
    return get(data, place.at, "base_offset") + delta


@pytest.mark.kafka
def test_a_broker_trusts_what_was_repaired(tmp_path: Path) -> None:
    """After a clean shutdown it uses log and indexes unchanged, and serves every record that was kept."""
    from tools.lab.serve import serve_and_consume

    source, target, kept = tmp_path / "in-0", tmp_path / "out-0", tmp_path / "kept"
    source.mkdir()
    batches = [build_batch([PlainRecord(3 * n + i, b"%d" % i, b"%d" % n * 60, NOW + (n ^ 5) * 1000 + i)
                            for i in range(3)]) for n in range(90)]  # fmt: skip
    size = [len(batch) for batch in batches]
    data = b"".join(batches)
    data = damage.flip(data, sum(size[:21]) - 1)
    data = put(data, sum(size[:40]), size=77)
    (source / FIRST).write_bytes(data[:-20])
    done = run(source, target, "--index-interval", INDEX_INTERVAL)
    assert done.exit_code == 1
    consumed = serve_and_consume(target, "repaired", trusted=True, keep=kept)
    assert [row["offset"] for row in consumed] == [n for n in range(267) if n not in (60, 61, 62)]
    for suffix in (".log", ".index", ".timeindex"):
        mine = (target / FIRST).with_suffix(suffix).read_bytes()
        assert len(mine) > 100
        assert (kept / FIRST).with_suffix(suffix).read_bytes() == mine


@pytest.mark.kafka
def test_a_broker_alone_would_lose_far_more(tmp_path: Path) -> None:
    """Recovery truncates at the first bad batch and deletes all later segments; of a repaired copy it deletes none.

    Both copies of one damaged partition are in one broker that has crashed.
    """
    from tools.lab.serve import serve_several

    sound, damaged, repaired = tmp_path / "sound-0", tmp_path / "damaged-0", tmp_path / "repaired-0"
    sound.mkdir()
    for base in (0, 200, 400):
        batches = [build_batch([PlainRecord(n + i, b"k", b"%d" % n * 40, NOW + n) for i in range(4)])
                   for n in range(base, base + 200, 4)]  # fmt: skip
        (sound / f"{base:020}.log").write_bytes(b"".join(batches))
    # With its indexes: segments without indexes are recovered one by one, which does not delete segments.
    assert run(sound, damaged, "--index-interval", INDEX_INTERVAL).exit_code == 0
    log = damaged / f"{200:020}.log"
    data = log.read_bytes()
    log.write_bytes(damage.flip(data, entries(data)[10].end - 1))
    assert run(damaged, repaired, "--index-interval", INDEX_INTERVAL).exit_code == 1
    kept = {"damaged": tmp_path / "left-of-damaged", "repaired": tmp_path / "left-of-repaired"}
    rows = serve_several({"damaged": damaged, "repaired": repaired}, crashed=True, keep=kept)
    assert [row["offset"] for row in rows["damaged"]] == list(range(240))
    assert [row["offset"] for row in rows["repaired"]] == [*range(240), *range(244, 600)]
    assert not (kept["damaged"] / f"{400:020}.log").exists()
    for path in repaired.iterdir():
        found, written = (kept["repaired"] / path.name).read_bytes(), path.read_bytes()
        if path.name == "leader-epoch-checkpoint":  # the new leader adds its own epoch
            found, written = found[:0].join(found.splitlines(True)[2:3]), written[:0].join(written.splitlines(True)[2:])
        assert found == written, path.name
    assert sum(path.stat().st_size for path in repaired.glob("*index")) > 300


@pytest.mark.parametrize("rule", ["reserved-attribute-bits", "magic-downgrade", "file-name-mismatch", "offset-gap"])
def test_any_rule_may_be_an_error(rule: str, tmp_path: Path) -> None:
    """A check of validate costs a batch if the policy calls it an error; a gap does not have a batch to leave out."""
    source = log_of(FINDINGS / rule)
    policy = Policy({rule: Severity.ERROR})
    wrong = errors_in(source, policy)
    assert {finding.rule for finding in wrong} == {rule}
    target = tmp_path / source.name
    reported: list[LostRange] = []
    repair(str(source), str(target), RepairPlan(policy=policy or Policy()), reported.append)
    if rule == "offset-gap":
        assert (reported, target.read_bytes()) == ([], source.read_bytes())
        return
    assert {what.rule for what in reported} == {rule}
    assert errors_in(target, policy) == []


def test_salvaged_records_with_another_largest_timestamp(tmp_path: Path) -> None:
    """The record with the largest timestamp is not among those before the fault."""
    like = SOUND.read_bytes()
    good = [damage.record(timestamp_delta=i, offset_delta=i) for i in range(3)]
    data = damage.batch(
        like, b"".join(good) + b"\x10\xff\xff", 4, base_offset=0, base_timestamp=1000, max_timestamp=5000
    )
    source, target = tmp_path / "in" / FIRST, tmp_path / "out" / FIRST
    for path in (source, target):
        path.parent.mkdir()
    source.write_bytes(data)
    reported: list[LostRange] = []
    repair(str(source), str(target), RepairPlan(salvage_records=True), reported.append)
    assert [what.kind for what in reported] == ["salvaged"]
    assert errors_in(target) == []
    assert len(entries(target.read_bytes())) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "code", "words", "others"),
    [
        ("non-monotonic-offset", 0, "1 duplicate batch left out", "unknown"),
        ("file-name-mismatch", 0, "no data lost; 1 segment name corrected", "batches corrected"),
        ("unknown-codec", 1, "1 range lost or left out (310 bytes)", "1 range lost ("),
        ("zero-segment", 2, "all bytes are zeros", "if another replica"),
    ],
)
def test_the_words_agree_with_each_other(name: str, code: int, words: str, others: str) -> None:
    """A copy loses no offsets, a name is no batch, a kept batch is not lost, and the content of zeros is unknown."""
    done = kseg("repair", "--dry-run", FINDINGS / name)
    assert done.returncode == code
    assert words in done.stdout
    assert others not in done.stdout + done.stderr
