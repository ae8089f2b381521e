"""`kseg diff` distinguishes equal replicas from diverged ones, however their batches and segments are cut."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kseg.commands.convert.conversion import convert
from kseg.commands.convert.conversion_plan import ConversionPlan
from kseg.commands.diff.comparison import compare
from kseg.commands.diff.differences import Comparison
from kseg.commands.diff.replica import Replica
from kseg.findings import Finding
from kseg.format.log_loader.loaded_files import LeaderEpochCache, truncation_offset
from kseg.format.sidefiles.checkpoints import LeaderEpoch
from kseg.format.writer.records_builder import PlainRecord, build_wrapper
from tests.support import damage
from tests.support.cli import PLAIN, SEGMENTS
from tests.support.cli import kseg as kseg_process
from tests.support.cli import kseg_here as kseg
from tests.support.compared_replicas import NOW, batch, diff, differences, log, record, write
from tests.support.statistics import WITH_LOGS


def ignored(file: str, finding: Finding) -> None:
    """The findings of a replica, which this test ignores."""


BASE = log(range(40))


@pytest.mark.slow
def test_segments_may_be_rolled_elsewhere(tmp_path: Path) -> None:
    """Brokers roll segments at different offsets: the content is still the same."""
    a, b = write(tmp_path / "a", BASE[:3], BASE[3:]), write(tmp_path / "b", BASE[:7], BASE[7:8], BASE[8:])
    code, rows, outcome = diff(a, b)
    assert (code, rows, outcome["verdict"]) == (0, [], "identical")
    assert (outcome["last_common_offset"], outcome["first_difference"]) == (39, None)
    assert diff(a, b, "--shallow")[2]["verdict"] == "identical"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("batches", "detail"),
    [
        (log(range(40), codec="zstd"), "none and zstd"),
        (log(range(40), size=7, codec="lz4"), "different offsets"),
        ([batch([record(offset) for offset in range(40)], "gzip")], "different offsets"),
    ],
    ids=["recompressed", "rebatched", "one batch"],
)  # fmt: skip
def test_the_same_records_in_other_batches_are_the_same_content(
    batches: list[bytes], detail: str, tmp_path: Path
) -> None:
    """Batch boundaries are not a divergence."""
    a, b = write(tmp_path / "a", BASE), write(tmp_path / "b", batches)
    code, rows, outcome = diff(a, b)
    assert (code, outcome["verdict"], outcome["last_common_offset"]) == (0, "same", 39)
    assert {row["difference"] for row in rows} == {"batching"}
    assert rows[0]["detail"].startswith(detail)
    # Headers alone don't show it.
    code, rows, outcome = diff(a, b, "--shallow")
    assert (code, outcome["verdict"], {row["difference"] for row in rows}) == (1, "undetermined", {"unopened"})


def test_leader_epochs_alone_are_the_same_content(tmp_path: Path) -> None:
    """Different epochs of equal records are reported, but are the same content."""
    other = [*BASE[:5], *(damage.put(entry, 0, partition_leader_epoch=3) for entry in BASE[5:])]
    code, rows, outcome = diff(write(tmp_path / "a", BASE), write(tmp_path / "b", other))
    assert (code, outcome["verdict"]) == (0, "same")
    assert differences(rows) == [("leader-epoch", None, 20, 39)]
    assert (rows[0]["count"], rows[0]["detail"], rows[0]["b"]["leader_epoch"]) == (5, "0 and 3", 3)


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["0.8.2.2-v0-lz4", "0.10.2.2-v1-gzip-segments", "2.8.2-v0v1v2-mixed"])
def test_a_converted_replica_is_the_same_content(folder: str, tmp_path: Path) -> None:
    """Compressed v0 and v1 batches, whose first offset is not in the header, against v2;

    v0 lacks timestamps to compare.
    """
    convert(str(SEGMENTS / folder), str(tmp_path / "b"), ConversionPlan.of("any-to-v2"))
    code, rows, outcome = diff(SEGMENTS / folder, tmp_path / "b")
    assert (code, outcome["verdict"]) == (0, "same")
    assert {row["difference"] for row in rows} == {"batching"}


def test_the_first_offset_is_that_of_a_record(tmp_path: Path) -> None:
    """The header of a compressed v0 or v1 set has only the last offset: the set is opened, also for a shallow comparison."""
    records = [PlainRecord(offset, b"k", b"v", NOW) for offset in range(1_000_000, 1_000_010)]
    a, b = (write(tmp_path / name, [build_wrapper(records, magic=1, compression=name)]) for name in ("gzip", "lz4"))
    for options in ((), ("--shallow",)):
        _, (row,), outcome = diff(a, b, *options)
        assert (row["first_offset"], row["last_offset"]) == (1_000_000, 1_000_009)
        assert outcome["a"]["first_offset"] == outcome["b"]["first_offset"] == 1_000_000
        assert outcome["together"]["first_offset"] == 1_000_000


@pytest.mark.slow
def test_a_replica_that_ends_earlier_or_starts_later_did_not_diverge(tmp_path: Path) -> None:
    """A lagging follower is not a divergence."""
    a, b = write(tmp_path / "a", BASE), write(tmp_path / "b", BASE[3:8])
    code, rows, outcome = diff(a, b)
    assert (code, outcome["verdict"], outcome["last_common_offset"]) == (1, "consistent", 31)
    assert differences(rows) == [("starts-later", "b", 0, 11), ("ends-earlier", "b", 32, 39)]
    assert outcome["truncation_offset"] == {"a": 32, "b": 32}
    assert diff(a, b, "--allow", "starts-later")[0] == 1
    assert diff(a, b, "--allow", "starts-later", "--allow", "ends-earlier")[0] == 0
    assert differences(diff(b, a)[1]) == [("starts-later", "a", 0, 11), ("ends-earlier", "a", 32, 39)]


@pytest.mark.slow
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("kept", [slice(0, 2), slice(3, None), slice(0, 0)])
def test_messages_of_compressed_sets_that_one_lacks_are_counted(magic: int, kept: slice, tmp_path: Path) -> None:
    """A set has one entry in the log, and its offsets can have gaps: the number of records says how late a replica is."""
    ranges = [range(first, first + 30, 3) for first in range(0, 150, 30)]
    sets = [
        build_wrapper([PlainRecord(n, b"k", b"v", n if magic else -1) for n in one], magic=magic, compression="gzip")
        for one in ranges
    ]
    a = write(tmp_path / "a", sets)
    b = write(tmp_path / "b", sets[kept])
    lacking = sorted({*range(5)} - {*range(5)[kept]})
    _, rows, _ = diff(a, b)
    assert sum(row["count"] for row in rows if row["kind"] == "difference") == 10 * len(lacking)
    assert [(row["first_offset"], row["last_offset"]) for row in rows if row["kind"] == "difference"] == [
        (ranges[lacking[0]][0], ranges[lacking[-1]][-1])
    ]


def test_replicas_without_a_common_offset_are_reported(tmp_path: Path) -> None:
    a, b = write(tmp_path / "a", BASE[:3]), write(tmp_path / "b", BASE[5:])
    code, _, outcome = diff(a, b, "--allow", "starts-later", "--allow", "ends-earlier")
    assert (code, outcome["verdict"], outcome["last_common_offset"]) == (1, "disjoint", None)


def test_a_replica_without_a_batch_begins_and_ends_at_its_name(tmp_path: Path) -> None:
    """Retention deleted all records, and the newest segment is empty: its name is the start and the end of the log."""
    a = write(tmp_path / "a", BASE)
    b = tmp_path / "b"
    b.mkdir()
    (b / f"{24:020}.log").touch()
    (b / "leader-epoch-checkpoint").write_text("0\n1\n0 24\n")
    _, rows, outcome = diff(a, b)
    assert differences(rows) == [("starts-later", "b", 0, 23), ("ends-earlier", "b", 24, 39)]
    assert (outcome["b"]["end_offset"], outcome["truncation_offset"]) == (24, {"a": 24, "b": 24})


def test_records_that_compaction_removed_at_the_front_are_missing(tmp_path: Path) -> None:
    """The first segment still has the name that it was rolled with: retention would have deleted that segment."""
    a, b = write(tmp_path / "a", BASE), tmp_path / "b"
    b.mkdir()
    (b / f"{0:020}.log").write_bytes(b"".join(BASE[2:]))
    assert differences(diff(a, b)[1]) == [("missing", "b", 0, 7)]


def test_records_that_compaction_removed_from_one_replica_are_missing_there(tmp_path: Path) -> None:
    """Compaction removes whole batches, and records within a batch: in both cases the replicas have not diverged."""
    gone = {9, 10, 16, 17, 18, 19}
    b = write(tmp_path / "b", log([offset for offset in range(40) if offset not in gone]))
    a = write(tmp_path / "a", BASE)
    code, rows, outcome = diff(a, b)
    assert (code, outcome["verdict"], outcome["last_common_offset"]) == (1, "consistent", 39)
    missing = [row for row in rows if row["difference"] == "missing"]
    assert differences(missing) == [("missing", "b", 9, 10), ("missing", "b", 16, 19)]
    assert diff(a, b, "--allow", "missing")[0] == 0


@pytest.mark.parametrize("folder", WITH_LOGS, ids=lambda folder: folder.name)
def test_a_copy_of_what_a_broker_wrote_is_identical(folder: Path) -> None:
    """Wrappers, mixed versions, real holes, empty batches, preallocated tails."""
    outcome = Comparison()
    a, b = (Replica(str(folder), lambda file, finding: None) for _ in "ab")
    assert list(compare(a, b, outcome)) == []
    assert outcome.verdict == "identical"
    assert outcome.last_common_offset == a.last_offset


def test_divergence_is_found_to_the_offset(tmp_path: Path) -> None:
    """As after an unclean election: from offset 22 on, each replica has its own records and its own epoch."""
    mine = [*BASE[:5], batch([record(20), record(21)], leader_epoch=1),
            batch([record(n, b"mine") for n in range(22, 30)], leader_epoch=1)]  # fmt: skip
    theirs = [*BASE[:5], batch([record(20), record(21)], leader_epoch=1),
              batch([record(n, b"theirs") for n in range(22, 26)], leader_epoch=2)]  # fmt: skip
    a, b = write(tmp_path / "a", mine), write(tmp_path / "b", theirs)
    code, rows, outcome = diff(a, b)
    assert (code, outcome["verdict"]) == (1, "diverged")
    assert differences(rows) == [("content", None, 22, 25), ("ends-earlier", "b", 26, 29)]
    assert (rows[0]["detail"], rows[0]["a"]["leader_epoch"], rows[0]["b"]["leader_epoch"]) == ("value", 1, 2)
    assert (outcome["first_difference"], outcome["last_common_offset"]) == (22, 21)
    assert outcome["truncation_offset"] == {"a": 22, "b": 22}


@pytest.mark.slow
def test_the_epoch_checkpoint_is_preferred_to_the_batches(tmp_path: Path) -> None:
    a, b = write(tmp_path / "a", BASE), write(tmp_path / "b", BASE[:8])
    (b / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n1 24\n")
    assert diff(a, b)[2]["truncation_offset"] == {"a": 24, "b": 24}
    (b / "leader-epoch-checkpoint").write_text("0\n1\n0 0\nnonsense\n")
    assert diff(a, b)[2]["b"]["leader_epochs"] == [{"epoch": 0, "start_offset": 0}]
    assert f"{b}/leader-epoch-checkpoint: checkpoint-malformed" in kseg("diff", a, b).stderr


@pytest.mark.slow
@pytest.mark.parametrize("base_offset", [3, -(1 << 63) + 30])
def test_a_damaged_base_offset_starts_no_leader_epoch(base_offset: int, tmp_path: Path) -> None:
    """No CRC covers it. A broker's rules for a lower start would drop the epochs before it."""
    batches = [batch([record(offset)], leader_epoch=offset // 10) for offset in range(50)]
    a, b = write(tmp_path / "a", batches), write(tmp_path / "b", batches)
    batches[30] = damage.put(batches[30], 0, base_offset=base_offset)
    (b / f"{0:020}.log").write_bytes(b"".join(batches))
    outcome = diff(a, b)[2]
    starts = {side: [entry["start_offset"] for entry in outcome[side]["leader_epochs"]] for side in "ab"}
    assert starts == {"a": [0, 10, 20, 30, 40], "b": [0, 10, 20, 31, 40]}


def test_differences_that_replication_does_not_repair_are_reported(tmp_path: Path) -> None:
    """Different bytes with a valid CRC in one leader epoch: a broker would never detect this."""
    b = write(tmp_path / "b", log(range(40), values={13: b"value-!!"}))
    a = write(tmp_path / "a", BASE)
    code, rows, outcome = diff(a, b)
    assert (code, outcome["verdict"], outcome["first_difference"]) == (1, "diverged", 13)
    assert differences(rows) == [("content", None, 13, 13)]
    assert "replication does not correct it" in kseg("diff", a, b).stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("hurt", "lost"),
    [
        (lambda data: damage.flip(data, damage.entries(data)[4].at + 80), (16, 19)),
        (lambda data: damage.cut(data, damage.entries(data)[4].at + 5, damage.entries(data)[5].end), (16, 23)),
        (lambda data: data[:-20], (36, 39)),
    ],
    ids=["crc", "cut", "torn"],
)
def test_damage_in_one_is_no_divergence(hurt: Callable[[bytes], bytes], lost: tuple[int, int], tmp_path: Path) -> None:
    """Damage is reported as damage, so that the healthy replica can be chosen."""
    data = b"".join(BASE)
    a, b = tmp_path / "a.log", tmp_path / "b.log"
    a.write_bytes(data)
    b.write_bytes(hurt(data))
    code, rows, outcome = diff(a, b)
    assert (code, outcome["verdict"], outcome["damaged_places"]["a"]) == (1, "damaged", 0)
    assert differences(rows) == [("damaged", "b", *lost)]
    assert f"kseg: {b}: " in kseg("diff", a, b).stderr


def _swapped(data: bytes) -> bytes:
    one, other = damage.entries(data)[3:5]
    return data[: one.at] + data[other.at : other.end] + data[one.at : one.end] + data[other.end :]


@pytest.mark.slow
@pytest.mark.parametrize("shallow", [False, True])
@pytest.mark.parametrize(
    "hurt",
    [
        _swapped,
        lambda data: damage.flip(data, damage.entries(data)[4].at + 3),
        lambda data: damage.flip(data, damage.entries(data)[4].at + 7, 0x40),
        lambda data: damage.flip(data, damage.entries(data)[0].at + 7, 0x40),
    ],
    ids=["swapped", "offset far ahead", "offset ahead", "first offset"],
)
def test_offsets_that_contradict_their_neighbours_are_damage(
    hurt: Callable[[bytes], bytes], shallow: bool, tmp_path: Path
) -> None:
    """No CRC covers a base offset: such a batch is not a record that the other replica lacks."""
    data = b"".join(BASE)
    a, b = write(tmp_path / "a", BASE), write(tmp_path / "b", BASE)
    (b / f"{0:020}.log").write_bytes(hurt(data))
    allowed = [f"--allow={kind}" for kind in ("starts-later", "ends-earlier", "missing")]
    code, rows, outcome = diff(a, b, *allowed, *(["--shallow"] if shallow else []))
    assert (code, outcome["verdict"], outcome["damaged_places"]) == (1, "damaged", {"a": 0, "b": 1})
    # Of swapped batches the first is in order; that it is in the wrong position is known only after its successor.
    assert [row["difference"] for row in rows] == ["missing" if hurt is _swapped else "damaged"]


def test_damage_in_both_is_not_called_identical(tmp_path: Path) -> None:
    """Unread parts of both replicas can't be compared."""
    data = b"".join(BASE)
    for name in ("a.log", "b.log"):
        (tmp_path / name).write_bytes(damage.flip(data, damage.entries(data)[4].at + 80))
    code, _, outcome = diff(tmp_path / "a.log", tmp_path / "b.log")
    assert (code, outcome["verdict"]) == (1, "damaged")


@pytest.mark.slow
@pytest.mark.parametrize("shallow", [False, True])
def test_every_damaged_fixture_can_be_compared(shallow: bool) -> None:
    """Each fixture is compared with itself and with a valid log, on either side:

    the result is an outcome, never an exception.
    """
    logs = sorted((SEGMENTS.parent / "findings").glob("*/*.log"))
    assert len(logs) > 30
    for segment in logs:
        for pair in ((segment, segment), (segment, PLAIN), (PLAIN, segment)):
            a, b = (Replica(str(path), lambda file, finding: None) for path in pair)
            outcome = Comparison()
            list(compare(a, b, outcome, shallow=shallow))
            if pair == (segment, segment):
                assert (outcome.verdict, outcome.counts) == ("damaged" if a.damage else "identical", {}), segment


def test_differences_shown_are_limited_and_all_are_counted(tmp_path: Path) -> None:
    """A long divergence must not flood the output, but the counts are exact."""
    other = log(range(40), values=dict.fromkeys(range(0, 40, 2), b"x"))
    _, rows, outcome = diff(write(tmp_path / "a", BASE), write(tmp_path / "b", other), "--limit", "3")
    assert len(rows) == 3
    assert (outcome["stretches"]["content"], outcome["counts"]["content"]) == (20, 20)


def test_a_comparison_that_fails_leaves_no_file_open(tmp_path: Path) -> None:
    """Protects against open files that only the garbage collector closes later."""
    other = log(range(40), values=dict.fromkeys(range(0, 40, 2), b"x"))
    replicas = [Replica(str(write(tmp_path / name, batches)), ignored) for name, batches in (("a", BASE), ("b", other))]
    before = os.listdir("/dev/fd")

    def fail() -> None:
        for _ in compare(replicas[0], replicas[1], Comparison()):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert not replicas[0].finished
    assert os.listdir("/dev/fd") == before


@pytest.mark.slow
def test_what_can_not_be_compared_is_2(tmp_path: Path) -> None:
    """Inputs that are not replicas are an error, not a difference."""
    a = write(tmp_path / "a", BASE)
    assert kseg("diff", a, tmp_path / "absent").returncode == 2
    assert kseg("diff", a, tmp_path).returncode == 2  # a log dir: which of its partitions is meant?
    assert kseg_process("diff", "-", "-").returncode == 2
    assert kseg("diff", "-o", a / "00000000000000000000.log", a, a).returncode == 2
    assert kseg_process("diff", a, "-", stdin=b"".join(BASE)).returncode == 0


# A replica as a model: value by offset, cut into batches of random sizes and codecs.
_model = st.dictionaries(st.integers(0, 30), st.sampled_from([b"x", b"y"]), min_size=1, max_size=25)
_cuts = st.lists(st.tuples(st.integers(1, 6), st.sampled_from(["none", "none", "lz4"])), min_size=25, max_size=25)


def _replica(path: Path, model: dict[int, bytes], cuts: list[tuple[int, str]]) -> Replica:
    records = [PlainRecord(offset, b"k", value, NOW) for offset, value in sorted(model.items())]
    batches = []
    for size, codec in cuts:
        if records:
            batches.append(batch(records[:size], codec))
            records = records[size:]
    path.write_bytes(b"".join(batches))
    found: list[Finding] = []
    return Replica(str(path), lambda file, finding: found.append(finding))


@pytest.mark.slow
@given(left=_model, right=_model, left_cuts=_cuts, right_cuts=_cuts)
def test_any_two_replicas_differ_as_their_records_do(
    left: dict[int, bytes],
    right: dict[int, bytes],
    left_cuts: list[tuple[int, str]],
    right_cuts: list[tuple[int, str]],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """The merge reports for each offset the same as a comparison of two dictionaries, however batches overlap."""
    folder = tmp_path_factory.getbasetemp()
    a, b = _replica(folder / "a.log", left, left_cuts), _replica(folder / "b.log", right, right_cuts)
    outcome = Comparison()
    reported = list(compare(a, b, outcome))
    both = left.keys() & right.keys()
    contents = {offset for offset in both if left[offset] != right[offset]}
    alone = {"b": left.keys() - right.keys(), "a": right.keys() - left.keys()}
    assert outcome.counts.get("content", 0) == len(contents)
    assert outcome.first_difference is None or outcome.first_difference.first_offset == min(contents)
    assert sum(one.count for one in reported if one.lacking) == sum(map(len, alone.values()))
    for one in reported:
        span = range(one.first_offset, one.last_offset + 1)
        if one.kind == "content":
            assert contents & {*span}
            assert not (both - contents) & {*span}
        elif one.lacking:
            assert len(alone[one.lacking] & {*span}) == one.count
            other = right if one.lacking == "b" else left
            first, last = min(other), max(other)
            assert (one.kind == "starts-later") == (span[-1] < first)
            assert (one.kind == "ends-earlier") == (span[0] > last)
            assert not other.keys() & {*span} or one.kind == "missing"
    agreed = [offset for offset in both - contents if not contents or offset < min(contents)]
    assert outcome.last_common_offset == max(agreed, default=None)
    assert (outcome.verdict in ("identical", "same")) == (left == right)


@pytest.mark.parametrize(
    ("follower", "leader", "offset"),
    [
        (([(0, 0)], 60), ([(0, 0)], 50), 50),  # the follower is ahead
        (([(0, 0)], 50), ([(0, 0)], 60), 50),  # the follower is shorter: it keeps all its records
        (([(0, 0), (1, 40)], 55), ([(0, 0), (2, 40)], 60), 40),  # an unclean election at 40
        (([(0, 0)], 55), ([(0, 0), (1, 40)], 60), 40),  # KIP-101: after the end of the new leader's log
        (([(0, 0), (1, 5), (3, 20)], 40), ([(0, 0), (2, 10)], 40), 5),  # KIP-279: the follower asks twice
        (([(1, 0), (3, 20)], 40), ([(0, 0), (2, 10)], 40), 0),  # it has no record of an epoch of the leader
        (([(4, 18)], 21), ([(6, 18), (7, 20)], 27), 18),  # the leader's log begins in a later epoch
        (([], 40), ([(0, 0)], 40), None),  # no epochs: the high watermark
        (([(0, 0)], 40), ([(1, 0)], 40), 0),  # an epoch before all of the leader ends where the first of these begins
    ],
)
def test_a_follower_truncates_as_kip_101_and_279_say(
    follower: tuple[list[tuple[int, int]], int], leader: tuple[list[tuple[int, int]], int], offset: int | None
) -> None:
    """The predicted truncation offset is the protocol's."""
    lineages = [
        LeaderEpochCache([LeaderEpoch(*entry) for entry in entries], end) for entries, end in (follower, leader)
    ]
    assert truncation_offset(*lineages) == offset


@pytest.mark.slow
def test_the_verdict_comes_first(tmp_path: Path) -> None:
    """The first line says whether the replicas differ, from where on, and which one is damaged or lacks records."""
    a = write(tmp_path / "a", log(range(40)))
    others = {
        "identical": log(range(40)),
        "same": log(range(40), size=5),
        "consistent": log(range(36)),
        "diverged": log(range(40), values={13: b"value-!!"}),
        "damaged": [*log(range(36)), damage.flip(log(range(36, 40))[0], 70)],
    }
    expected = {
        "consistent": "b lacks 4 records at its end",
        "diverged": "different records from offset 13 on, equal up to offset 12; 1 record differs",
        "damaged": "b is damaged in 1 place; all other records are equal; b lacks 4 records",
    }
    for verdict, batches in others.items():
        b = write(tmp_path / verdict, batches)
        first, _, head, *_ = kseg("diff", a, b).stdout.splitlines()
        assert first.startswith(f"{verdict}: ")
        assert expected.get(verdict, "both replicas have") in first
        assert head.split()[:3] == ["replica", "path", "offsets"]
    assert "What to do: Replace b: " in kseg("diff", a, tmp_path / "damaged").stdout


def test_replicas_without_a_batch_are_not_called_the_same_batches(tmp_path: Path) -> None:
    """Two logs of zeros are equal, and the partition may be lost: the exit code is that of unknown content."""
    for name in ("a-0", "b-0"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "00000000000000000000.log").write_bytes(bytes(1000))
    done = kseg("diff", tmp_path / "a-0", tmp_path / "b-0")
    assert done.returncode == 2
    assert done.stdout.startswith("identical: neither replica has a batch; `kseg validate` shows whether")


@pytest.mark.slow
def test_equal_differences_are_one_row(tmp_path: Path) -> None:
    """Ten holes are one row; -v lists them, -q lists none."""
    a = write(tmp_path / "a", log(range(40), size=1))
    b = write(tmp_path / "b", log([offset for offset in range(40) if offset % 4 != 1], size=1))
    shown = kseg("diff", a, b).stdout
    assert re.search(r"^ b missing ×10 +1\.\.37 +10 ", shown, re.MULTILINE)
    assert len(re.findall("^ b missing ", kseg("diff", "-v", a, b).stdout, re.MULTILINE)) == 10
    assert "b missing" not in kseg("diff", "-q", a, b).stdout
    assert "of them not listed" in kseg("diff", "--limit", "3", a, b).stdout
