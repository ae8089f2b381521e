"""Offsets that one replica lacks and another one lost: they are lost, or may be, and deleted records stay deleted."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

import kseg
from kseg.format.writer.records_builder import PlainRecord, build_batch
from tests.support.cli import invoke
from tests.support.damage import flip
from tests.support.records import NOW

#: Offset, key and value of the records of a batch.
Batch = Sequence[tuple[int, bytes | None, bytes | None]]


def _batch(records: Batch, first: int | None = None, last: int | None = None) -> bytes:
    """Return a batch; with ``first`` and ``last`` it had records at these offsets before the cleaner came."""
    return build_batch(
        [PlainRecord(offset, key, value, NOW + offset) for offset, key, value in records],
        base_offset=records[0][0] if first is None else first,
        last_offset=records[-1][0] if last is None else last,
        partition_leader_epoch=0,
    )


def _replica(folder: Path, *batches: bytes, base: int = 0) -> Path:
    folder.mkdir(parents=True)
    (folder / f"{base:020}.log").write_bytes(b"".join(batches))
    (folder / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    return folder


def _broken(batch: bytes) -> bytes:
    return flip(batch, len(batch) - 1)


def _repair(*paths: Path) -> tuple[int, list[dict[str, object]], dict[int, tuple[bytes | None, bytes | None]]]:
    """Return the exit code, the rows about lost offsets, and the records of the result by offset."""
    done = invoke("repair", "--format", "jsonl", *paths)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    found = {one.offset: (one.key, one.value) for one in kseg.open_partition(paths[-1]).records()}
    return done.exit_code, [row for row in rows if row["kind"] == "lost"], found


@pytest.mark.parametrize("swapped", [False, True])
def test_a_gap_of_an_earlier_repair_hides_no_loss(swapped: bool, tmp_path: Path) -> None:
    """One replica lacks offsets since an earlier repair, the other has a CRC error there: data was lost, exit code 1."""
    batches = [_batch([(n + i, None, b"%d" % (n + i)) for i in range(5)]) for n in range(0, 50, 5)]
    repaired = _replica(tmp_path / "a" / "t-0", *batches[:6], *batches[7:])
    damaged = _replica(tmp_path / "b" / "t-0", *batches[:6], _broken(batches[6]), *batches[7:])
    sources = (damaged, repaired) if swapped else (repaired, damaged)
    code, lost, found = _repair(*sources, tmp_path / "t-0")
    assert code == 1
    assert [(row["file"], row["offset"], row["last_offset"]) for row in lost] == [
        (str(damaged / f"{0:020}.log"), 30, 34)
    ]
    assert f"{repaired} lacks records there, too, and nothing proves compaction" in str(lost[0]["why"])
    assert set(found) == set(range(50)) - set(range(30, 35))


def test_only_offsets_that_a_replica_lost_are_reported(tmp_path: Path) -> None:
    """A gap that is larger than the damaged batch: only the offsets of that batch are a loss of this repair."""
    batches = [_batch([(n + i, None, b"%d" % (n + i)) for i in range(5)]) for n in range(0, 30, 5)]
    repaired = _replica(tmp_path / "a" / "t-0", batches[0], *batches[4:])
    damaged = _replica(tmp_path / "b" / "t-0", *batches[:2], _broken(batches[2]), *batches[3:])
    code, lost, found = _repair(repaired, damaged, tmp_path / "t-0")
    assert (code, set(found)) == (1, set(range(30)) - set(range(10, 15)))
    assert [(row["offset"], row["last_offset"]) for row in lost] == [(10, 14)]


#: k is written, then deleted, in a batch with a record that stays; x and y are written.
_OLD = [(0, b"k", b"SECRET"), (1, b"x", b"1")]
_DELETION = [(2, b"k", None), (3, b"y", b"1")]
_LAST = [(4, b"x", b"2")]


def test_a_compacted_replica_counts_alone_up_to_a_lost_deletion(tmp_path: Path) -> None:
    """The only batch with a tombstone is damaged, and one replica was compacted after it: the record stays deleted."""
    cleaned = _replica(tmp_path / "a" / "t-0", _batch(_DELETION[1:], 2), _batch(_LAST))
    full = _replica(tmp_path / "b" / "t-0", _batch(_OLD), _broken(_batch(_DELETION)), _batch(_LAST))
    code, lost, found = _repair(full, cleaned, tmp_path / "t-0")
    assert code == 1
    assert [(row["offset"], row["last_offset"]) for row in lost] == [(2, 3)]
    assert "may be lost" in str(lost[0]["why"])
    assert found == {3: (b"y", b"1"), 4: (b"x", b"2")}


def test_the_checkpoint_of_the_cleaner_shows_compaction(tmp_path: Path) -> None:
    """All of a batch can be compacted away: cleaner-offset-checkpoint shows how far the cleaner came."""
    cleaned = _replica(tmp_path / "a" / "t-0", _batch(_LAST))
    (tmp_path / "a" / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 4\n")
    full = _replica(tmp_path / "b" / "t-0", _batch(_OLD), _broken(_batch(_DELETION)), _batch(_LAST))
    code, lost, found = _repair(full, cleaned, tmp_path / "t-0")
    assert (code, found) == (1, {4: (b"x", b"2")})
    assert [(row["offset"], row["last_offset"]) for row in lost] == [(2, 3)]


def test_a_lost_deletion_is_named_without_signs_of_compaction(tmp_path: Path) -> None:
    """Nothing decides whether a gap is of the cleaner or of a repair: the union is written, and the risk is named."""
    gap = _replica(tmp_path / "a" / "t-0", _batch(_LAST))
    full = _replica(tmp_path / "b" / "t-0", _batch(_OLD), _broken(_batch(_DELETION)), _batch(_LAST))
    code, lost, found = _repair(gap, full, tmp_path / "t-0")
    assert (code, sorted(found)) == (1, [0, 1, 4])
    assert [(row["offset"], row["last_offset"]) for row in lost] == [(2, 3)]
    assert "older records are valid again" in str(lost[0]["why"])


def test_a_lost_marker_is_named(tmp_path: Path) -> None:
    """The only copy of an abort marker is damaged: the aborted record is readable as committed, so the exit code is 1."""

    def sent(offset: int, sequence: int, value: bytes) -> bytes:
        record = PlainRecord(offset, b"k%d" % offset, value, NOW + offset)
        return build_batch(
            [record],
            producer_id=5, producer_epoch=0, base_sequence=sequence, transactional=True, partition_leader_epoch=0,
        )  # fmt: skip

    def marker(offset: int, kind: int) -> bytes:
        record = PlainRecord(offset, bytes((0, 0, 0, kind)), bytes(6), NOW + offset)
        return build_batch(
            [record], producer_id=5, producer_epoch=0, transactional=True, control=True, partition_leader_epoch=0
        )  # fmt: skip

    last = _batch([(4, b"z", b"1")])
    kept = [sent(2, 1, b"committed"), marker(3, 1)]
    cleaned = _replica(tmp_path / "a" / "t-0", *kept, _broken(last))
    full = _replica(tmp_path / "b" / "t-0", sent(0, 0, b"aborted"), _broken(marker(1, 0)), *kept, last)
    code, lost, found = _repair(cleaned, full, tmp_path / "t-0")
    assert (code, sorted(found)) == (1, [0, 2, 3, 4])
    assert [(row["file"], row["offset"], row["last_offset"]) for row in lost] == [(str(full / f"{0:020}.log"), 1, 1)]
    assert "marker of a transaction" in str(lost[0]["why"])


def test_records_without_a_key_were_not_compacted(tmp_path: Path) -> None:
    """``--salvage-records`` leaves batches like those of the cleaner: other replicas keep their records all the same."""
    old = [(0, None, b"0"), (1, None, b"1")]
    salvaged = _replica(tmp_path / "a" / "t-0", _batch([(2, None, b"2")], 2, 3), _batch([(4, None, b"4")]))
    both = [(2, None, b"2"), (3, None, b"3")]
    full = _replica(tmp_path / "b" / "t-0", _batch(old), _broken(_batch(both)), _batch([(4, None, b"4")]))
    code, lost, found = _repair(salvaged, full, tmp_path / "t-0")
    assert (code, sorted(found)) == (1, [0, 1, 2, 4])
    assert [(row["offset"], row["last_offset"]) for row in lost] == [(2, 3)]


def test_a_gap_between_segments_is_no_loss_of_one_replica(tmp_path: Path) -> None:
    """Both replicas lack the same offsets, one of them between two segments: neither had batches there, as for validate."""
    folders = [tmp_path / name / "t-0" for name in ("a", "b")]
    first, second = _batch([(0, b"k", b"1")]), _batch([(9, b"x", b"1")])
    _replica(folders[0], first, second)
    _replica(folders[1], first)
    (folders[1] / f"{9:020}.log").write_bytes(second)
    code, lost, found = _repair(*folders, tmp_path / "t-0")
    assert (code, lost, sorted(found)) == (1, [], [0, 9])
    assert invoke("validate", tmp_path / "t-0").exit_code == 1


def test_a_lost_end_is_named_next_to_other_losses(tmp_path: Path) -> None:
    """The last segment of both replicas cannot be read, and an earlier batch is lost: two rows, not one."""
    batches = [_batch([(n, b"k%d" % n, b"v")]) for n in range(4)]
    folders = [tmp_path / name / "t-0" for name in ("a", "b")]
    for folder in folders:
        _replica(folder, batches[0], _broken(batches[1]), batches[2])
        (folder / f"{3:020}.log").write_bytes(b"\x55" * 200)
    code, lost, found = _repair(*folders, tmp_path / "t-0")
    assert (code, sorted(found)) == (1, [0, 2])
    assert [(row["offset"], row["last_offset"]) for row in lost] == [(1, 1), (3, None)]


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize(("copied", "code"), [(1, 1), (2, 1), (3, 0)])
def test_a_shorter_replica_proves_nothing_about_a_lost_end(
    copied: int, code: int, swapped: bool, tmp_path: Path
) -> None:
    """Exit code 0 means that nothing was lost: bytes that no other replica has are, though a sound one ends before them."""
    batches = [_batch([(n, b"k", b"v")]) for n in range(3)]
    damaged = _replica(tmp_path / "a" / "t-0", batches[0], b"\xa5" * len(batches[1] + batches[2]))
    shorter = _replica(tmp_path / "b" / "t-0", *batches[:copied])
    folders = (shorter, damaged) if swapped else (damaged, shorter)
    found, lost, records = _repair(*folders, tmp_path / "t-0")
    assert (found, sorted(records)) == (code, [*range(copied)])
    assert [(row["file"], row["offset"], row["last_offset"]) for row in lost] == [
        (str(damaged / f"{0:020}.log"), None, None)
    ] * code


def test_two_replicas_together_have_a_lost_end(tmp_path: Path) -> None:
    """All batches after the end of a damaged replica are in the result, each from another replica: nothing is lost."""
    batches = [_batch([(n, b"k", b"v")]) for n in range(3)]
    damaged = _replica(tmp_path / "a" / "t-0", batches[0], b"\xa5" * len(batches[1] + batches[2]))
    others = [
        _replica(tmp_path / "b" / "t-0", batches[0], batches[1]),
        _replica(tmp_path / "c" / "t-0", batches[0], _broken(batches[1]), batches[2]),
    ]
    code, lost, found = _repair(damaged, *others, tmp_path / "t-0")
    assert (code, lost, sorted(found)) == (0, [], [0, 1, 2])


def test_undamaged_replicas_that_were_compacted_lose_nothing(tmp_path: Path) -> None:
    """Compaction alone is no loss: exit code 0 if no replica lost a batch where records are missing."""
    cleaned = _replica(tmp_path / "a" / "t-0", _batch(_DELETION[1:], 2), _batch(_LAST))
    full = _replica(tmp_path / "b" / "t-0", _batch(_OLD), _batch(_DELETION), _broken(_batch(_LAST)))
    code, lost, found = _repair(full, cleaned, tmp_path / "t-0")
    assert (code, lost) == (0, [])
    assert found[4] == (b"x", b"2")


@pytest.mark.parametrize("swapped", [False, True])
def test_segments_that_the_cleaner_emptied_are_no_loss(swapped: bool, tmp_path: Path) -> None:
    """Sound replicas of a compacted topic, of which one begins later: a repair of them lost nothing, exit code 0."""
    old, new = (
        [_batch([(n, b"k", b"%d" % n)]) for n in (0, 8)],
        [_batch([(n, b"k%d" % n, b"1")]) for n in range(20, 23)],
    )
    whole = _replica(tmp_path / "a" / "t-0", old[1])
    (whole / f"{20:020}.log").write_bytes(b"".join(new))
    (tmp_path / "a" / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 20\n")
    later = _replica(tmp_path / "b" / "t-0", *new, base=20)
    code, lost, found = _repair(*((later, whole) if swapped else (whole, later)), tmp_path / "t-0")
    assert (code, lost, sorted(found)) == (0, [], [8, 20, 21, 22])


def test_another_replica_has_the_content_of_a_segment_of_zeros(tmp_path: Path) -> None:
    """Nothing is unknown where a replica has the records: exit code 0. Of one replica alone it is 2."""
    batches = [_batch([(n, b"k", b"%d" % n)]) for n in range(4)]
    zeros = _replica(tmp_path / "a" / "t-0", bytes(200))
    whole = _replica(tmp_path / "b" / "t-0", *batches)
    assert _repair(zeros, whole, tmp_path / "t-0")[0] == 0
    assert invoke("repair", zeros, tmp_path / "t-1").exit_code == 2


def test_a_replica_that_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    """Its disk fails, and the others are whole: DST has what they have, and the exit code says that more may be lost."""
    batches = [_batch([(n, b"k", b"%d" % n)]) for n in range(4)]
    failing = _replica(tmp_path / "a" / "t-0", *batches)
    log = failing / f"{0:020}.log"
    log.unlink()
    log.symlink_to(log.name)
    whole = [_replica(tmp_path / name / "t-0", *batches) for name in "bc"]
    code, lost, found = _repair(failing, *whole, tmp_path / "t-0")
    assert (code, lost, sorted(found)) == (1, [], [0, 1, 2, 3])
    done = invoke("repair", "--dry-run", failing, *whole)
    assert f"{failing} is not used" in " ".join(done.stderr.split())
    assert "1 replica unreadable" in done.stdout
    assert invoke("repair", failing, failing.rename(tmp_path / "a" / "t-1"), tmp_path / "t-2").exit_code == 2


def test_replicas_without_a_batch_are_an_empty_log(tmp_path: Path) -> None:
    """Most partitions of __consumer_offsets are empty: nothing is lost, and DST has the partition."""
    replicas = [_replica(tmp_path / name / "t-0") for name in "ab"]
    assert _repair(*replicas, tmp_path / "t-0") == (0, [], {})
    assert (tmp_path / "t-0" / f"{0:020}.log").stat().st_size == 0


#: Bytes of a v2 batch that damage inverts, and whether the others prove that it is the batch of another replica.
_DAMAGED = {
    "records": (range(80, 84), True),
    "CRC": (range(17, 21), True),
    "leader epoch": ([12, 80], True),
    "size": ([10, 70], True),
    "CRC and records": ([17, 80], False),
    "base offset": ([5, 80], False),
}


@pytest.mark.parametrize(("places", "is_proved"), _DAMAGED.values(), ids=_DAMAGED)
@pytest.mark.parametrize("swapped", [False, True])
def test_a_damaged_batch_of_an_intact_replica_is_not_lost(
    places: Sequence[int], *, is_proved: bool, swapped: bool, tmp_path: Path
) -> None:
    """It has the base offset, and the CRC or all that the CRC covers: records that the cleaner removed in it are not lost.

    Without this proof it can be another batch. The lost bytes are of the source, too.
    """
    compacted = _batch([(5, b"a", b"1" * 20), (6, b"b", b"2"), (8, b"c", b"3")])
    around = _batch([(0, b"x", b"0"), (4, b"y", b"1")]), _batch([(9, b"z", b"9")])
    damaged = bytearray(compacted)
    for place in places:
        damaged[place] ^= 255
    intact = _replica(tmp_path / "a" / "t-0", around[0], compacted, around[1])
    other = _replica(tmp_path / "b" / "t-0", around[0], bytes(damaged), around[1])
    sources = (other, intact) if swapped else (intact, other)
    done = invoke("repair", "--format", "jsonl", *sources, tmp_path / "t-0")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert (done.exit_code, any(row["kind"] == "lost" for row in rows)) == ((0, False) if is_proved else (1, True))
    assert (tmp_path / "t-0" / f"{0:020}.log").read_bytes() == (intact / f"{0:020}.log").read_bytes()
    (segment,) = (row for row in rows if row["kind"] == "segment")
    assert segment["lost_bytes"] == (0 if is_proved else len(compacted))
    assert segment["bytes_before"] - segment["lost_bytes"] == segment["bytes_after"]


@pytest.mark.parametrize("is_last", [True, False])
def test_an_incomplete_batch_of_another_replica_is_not_lost(*, is_last: bool, tmp_path: Path) -> None:
    """If its offsets are all that are left up to the next segment: otherwise a removed batch can have been after it."""
    compacted = _batch([(5, b"a", b"1" * 20), (6, b"b", b"2"), (8, b"c", b"3")])
    first = _batch([(0, b"x", b"0"), (4, b"y", b"1")])
    following = 9 if is_last else 12
    intact = _replica(tmp_path / "a" / "t-0", first, compacted)
    cut = _replica(tmp_path / "b" / "t-0", first, compacted[:-10])
    for folder in (intact, cut):
        (folder / f"{following:020}.log").write_bytes(_batch([(following, b"z", b"9")]))
    code, lost, found = _repair(intact, cut, tmp_path / "t-0")
    assert (len(lost), sorted(found)) == (0 if is_last else 1, [0, 4, 5, 6, 8, following])
    assert code == (not is_last)


@pytest.mark.parametrize("end", [0, 90])
@pytest.mark.parametrize("headers", [False, True])
def test_adjacent_losses_have_their_own_bytes(headers: bool, end: int, tmp_path: Path) -> None:
    """Two replicas lost the same batches: the rows are those of the repair of one, and their bytes those that are lost."""
    batches = [_batch([(n + i, b"k", b"%d" % (n + i)) for i in range(5)]) for n in range(0, 50, 5)]
    for n in (2, 3, 4, 6):
        batches[n] = bytes([n]) * len(batches[n]) if headers and n < 4 else _broken(batches[n])
    replicas = [_replica(tmp_path / name / "t-0", *batches, b"\7" * end) for name in "ab"]
    done = invoke("repair", "--dry-run", "--format", "jsonl", replicas[0])
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    alone = [(row["position"], row["end"], row["offset"], row["last_offset"]) for row in rows if row["kind"] == "lost"]
    done = invoke("repair", "--format", "jsonl", *replicas, tmp_path / "t-0")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.exit_code == 1
    found = [(row["position"], row["end"], row["offset"], row["last_offset"]) for row in rows if row["kind"] == "lost"]
    assert found == alone
    lost = sum(len(batches[n]) for n in (2, 3, 4, 6)) + end
    assert (
        [row["lost_bytes"] for row in rows if row["kind"] == "summary"] == [lost] == [sum(b - a for a, b, *_ in found)]
    )
    assert not [row for row in rows if row["kind"] == "missing"]
