"""A partition from several damaged replicas has every batch that one of them has, and no batch of another history."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from random import Random

import pytest

from kseg.format.writer.records_builder import PlainRecord, build_batch
from tests.support import damage
from tests.support.cli import invoke
from tests.support.cli import kseg_here as kseg
from tests.support.fuzzing import cases
from tests.support.records import NOW

NAMES = ("broker1", "broker2", "broker3")


def _batch(first: int, count: int, epoch: int, word: str = "v", *, without: int | None = None) -> bytes:
    records = [
        PlainRecord(n, b"k%d" % n, b"%s%d" % (word.encode(), n) * 20, NOW + n) for n in range(first, first + count)
    ]
    kept = [record for record in records if record.offset != without]
    return build_batch(kept, base_offset=first, last_offset=first + count - 1, partition_leader_epoch=epoch)


class _Log:
    """A partition of some segments: its batches by segment and offset, and its leader epochs."""

    def __init__(self, random: Random) -> None:
        self.segments: dict[int, list[tuple[int, bytes]]] = {}
        self.end = self.epoch = 0
        for _ in range(random.randrange(1, 4)):
            batches = self.segments.setdefault(self.end, [])
            for _ in range(random.randrange(4, 20)):
                self.epoch += random.random() < 0.1
                count = random.randrange(1, 5)
                batches.append((self.end, _batch(self.end, count, self.epoch)))
                self.end += count

    @property
    def batches(self) -> dict[int, bytes]:
        return {first: data for batches in self.segments.values() for first, data in batches}

    def write(self, folder: Path, until: int | None = None) -> None:
        folder.mkdir(parents=True)
        (folder / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n")
        for base, batches in self.segments.items():
            kept = [data for first, data in batches if until is None or first < until]
            if kept:
                (folder / f"{base:020}.log").write_bytes(b"".join(kept))
        starts: dict[int, int] = {}
        for first, data in self.batches.items():
            if until is None or first < until:
                starts.setdefault(int.from_bytes(data[12:16]), first)
        lines = ["0", str(len(starts)), *(f"{epoch} {start}" for epoch, start in starts.items())]
        (folder / "leader-epoch-checkpoint").write_text("\n".join(lines) + "\n")


def _damage(random: Random, folder: Path, log: _Log) -> set[int]:
    """Zero, flip or cut bytes of a replica, or delete a segment; return the first offsets of the batches that are left."""
    left: set[int] = set()
    for base, batches in log.segments.items():
        path = folder / f"{base:020}.log"
        if not path.exists():
            continue
        original = path.read_bytes()
        data = bytearray(original)
        for _ in range(random.choice((0, 0, 1, 1, 2))):
            at, size = random.randrange(len(data)), random.choice((1, 1, 40, 400))
            data[at : at + size] = bytes(byte ^ 0x5A for byte in data[at : at + size])
        if random.random() < 0.1:
            data = data[: random.randrange(len(data))]
        path.write_bytes(data)
        at = 0
        for first, batch in batches:
            if bytes(data[at : at + len(batch)]) == batch and at + len(batch) <= len(original):
                left.add(first)
            at += len(batch)
        if random.random() < 0.07 and len([*folder.glob("*.log")]) > 1:
            path.unlink()
            left -= {first for first, _ in batches}
    return left


def _written(folder: Path) -> dict[int, bytes]:
    """Return the batches of an undamaged log by their first offset."""
    return {int.from_bytes(data[:8]): data for data in damage.batches_of(folder)}


@pytest.mark.slow
@pytest.mark.fuzz
def test_what_one_replica_has_is_in_the_result(tmp_path: Path) -> None:
    """Random damage at three replicas, of which one is behind: the union, byte for byte, and an honest exit code."""
    whole = partly = 0
    for case in range(cases(60)):
        random, home = Random(case), tmp_path / str(case)
        log = _Log(random)
        left: set[int] = set()
        for name in NAMES:
            until = random.choice((None, None, log.end - random.randrange(1, 6)))
            log.write(home / name / "t-0", until)
            left |= _damage(random, home / name / "t-0", log)
        if not all([*(home / name / "t-0").glob("*.log")] for name in NAMES) or not left:
            continue
        done = invoke("repair", "--format", "jsonl", *(home / name / "t-0" for name in NAMES), home / "t-0")
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        assert done.exit_code in (0, 1), (case, done.stderr)
        found = _written(home / "t-0")
        # A wrong size or offset can be proved: then the result has a batch that no replica has as it was.
        assert left <= found.keys(), case
        assert found == {first: data for first, data in log.batches.items() if first in found}, case
        taken = [row for row in rows if row["kind"] == "taken"]
        assert sum(row["batches"] for row in taken) == len(found), case
        inner = {first for first in log.batches if first < max(found)}
        if inner - found.keys():
            assert done.exit_code == 1, (case, done.stdout)
            partly += 1
        elif log.batches.keys() == found.keys():
            assert done.exit_code == 0, (case, done.stdout)
            assert invoke("validate", "-q", home / "t-0").exit_code == 0, case
            whole += 1
    assert whole > 3
    assert partly > 3


def test_another_history_is_excluded_by_its_epoch(tmp_path: Path) -> None:
    """After an unclean election, the batches that the old leader alone has are not in the result, and this is said."""
    shared = [_batch(n, 4, 1) for n in range(0, 40, 4)]
    old = [_batch(n, 4, 1, "old") for n in range(40, 60, 4)]
    new = [_batch(n, 4, 2, "new") for n in range(40, 48, 4)]
    for name, batches in (("broker1", [*shared, *old]), ("broker2", [*shared, *new])):
        folder = tmp_path / name / "t-0"
        folder.mkdir(parents=True)
        data = bytearray(b"".join(batches))
        data[500 if name == "broker2" else 900] ^= 1
        (folder / f"{0:020}.log").write_bytes(data)
    done = kseg("repair", tmp_path / "broker1" / "t-0", tmp_path / "broker2" / "t-0", tmp_path / "t-0")
    assert done.returncode == 0, done.stderr
    assert _written(tmp_path / "t-0") == {4 * n: data for n, data in enumerate([*shared, *new])}
    assert "broker1/t-0: from offset 40 on it has another history" in done.stdout
    assert (tmp_path / "t-0" / "leader-epoch-checkpoint").read_text().split() == ["0", "2", "1", "0", "2", "40"]


@pytest.mark.parametrize(("cut", "offsets"), [(40, None), (30, (40, None)), (20, (40, None)), (0, (40, None))])
def test_a_log_that_is_cut_before_its_last_epoch_lets_no_stale_batch_in(
    cut: int, offsets: tuple[int, None] | None, tmp_path: Path
) -> None:
    """Its checkpoint shows where that epoch began, and nothing shows whether it had records."""
    shared = [_batch(n, 10, 0) for n in range(0, 40, 10)]
    stale = [*shared, _batch(40, 10, 0, "stale")]
    for name, batches in (("broker1", shared[: cut // 10]), ("broker2", stale)):
        (tmp_path / name / "t-0").mkdir(parents=True)
        (tmp_path / name / "t-0" / f"{0:020}.log").write_bytes(b"".join(batches))
    (tmp_path / "broker1" / "t-0" / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n1 40\n")
    replicas = [tmp_path / name / "t-0" for name in NAMES[:2]]
    done = invoke("repair", "--format", "jsonl", *replicas, tmp_path / "t-0")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    lost = [(row["offset"], row["last_offset"]) for row in rows if row["kind"] == "lost"]
    assert (done.exit_code, lost) == ((0, []) if offsets is None else (1, [offsets]))
    assert _written(tmp_path / "t-0") == {10 * n: data for n, data in enumerate(shared)}
    assert (tmp_path / "t-0" / "leader-epoch-checkpoint").read_text().split()[2:] == ["0", "0", "1", "40"]


def test_an_epoch_at_the_start_of_an_empty_log_is_no_loss(tmp_path: Path) -> None:
    """Retention has removed all records of one replica, and moved its last epoch to the log start."""
    for name, base, data in (
        ("broker1", 40, b""),
        ("broker2", 0, b"".join(_batch(n, 10, 0) for n in range(0, 40, 10))),
    ):
        (tmp_path / name / "t-0").mkdir(parents=True)
        (tmp_path / name / "t-0" / f"{base:020}.log").write_bytes(data)
    (tmp_path / "broker1" / "t-0" / "leader-epoch-checkpoint").write_text("0\n1\n1 40\n")
    done = invoke("repair", *(tmp_path / name / "t-0" for name in NAMES[:2]), tmp_path / "t-0")
    assert done.exit_code == 0, done.stdout
    assert [*_written(tmp_path / "t-0")] == [0, 10, 20, 30]


def test_a_history_without_a_batch_is_refused(tmp_path: Path) -> None:
    """The checkpoint of an emptied log excludes all batches of the other replica, unless that one is preferred."""
    replicas = [tmp_path / name / "t-0" for name in NAMES[:2]]
    for replica, data in zip(replicas, (b"", _batch(0, 1, 0)), strict=True):
        replica.mkdir(parents=True)
        (replica / f"{0:020}.log").write_bytes(data)
    (replicas[0] / "leader-epoch-checkpoint").write_text("0\n1\n3 0\n")
    done = invoke("repair", *replicas, tmp_path / "t-0")
    assert done.exit_code == 2
    assert "no replica has a valid batch of the history of leader epoch 3" in done.stderr
    chosen = invoke("repair", "--prefer", replicas[1], *replicas, tmp_path / "t-0")
    assert chosen.exit_code == 0
    assert "offset 0 from" in chosen.stdout
    assert [*_written(tmp_path / "t-0")] == [0]


def test_a_damaged_epoch_decides_nothing(tmp_path: Path) -> None:
    """No CRC covers an epoch: a higher one at the end of a replica must not exclude the later batches of another."""
    batches = [_batch(n, 4, 1) for n in range(0, 40, 4)]
    wrong = bytearray(batches[6])
    wrong[13] ^= 0x40
    for name, some in (("broker1", [*batches[:6], bytes(wrong)]), ("broker2", [batches[0], *batches[2:]])):
        (tmp_path / name / "t-0").mkdir(parents=True)
        (tmp_path / name / "t-0" / f"{0:020}.log").write_bytes(b"".join(some))
    done = kseg("repair", tmp_path / "broker1" / "t-0", tmp_path / "broker2" / "t-0", tmp_path / "t-0")
    assert done.returncode == 0, done.stderr
    assert _written(tmp_path / "t-0") == {4 * n: data for n, data in enumerate(batches)}


_NEW = [_batch(n, 5, 1) for n in range(0, 30, 5)] + [_batch(n, 5, 2, "new") for n in range(30, 50, 5)]
_STALE = [_batch(n, 5, 1) for n in range(0, 30, 5)] + [_batch(n, 5, 1, "stale") for n in range(30, 40, 5)]


@pytest.mark.parametrize("checkpoint", [None, "0\n2\n1 0\nxx\n", "0\n2\n1 0\n2 30\n"])
@pytest.mark.parametrize("stale_end", [33, 35, 40])
def test_a_lost_start_of_an_epoch_lets_no_stale_batch_in(
    checkpoint: str | None, stale_end: int, tmp_path: Path
) -> None:
    """The batches where an epoch began are lost: those of a replica without that epoch may be of another history."""
    stale = [*_STALE[:6], _batch(30, 3, 1, "stale")] if stale_end == 33 else _STALE[: stale_end // 5]
    damaged = b"".join([*_NEW[:6], _NEW[6][:-1] + bytes([_NEW[6][-1] ^ 1]), *_NEW[7:]])
    for name, data in (("broker1", damaged), ("broker2", b"".join(stale))):
        (tmp_path / name / "t-0").mkdir(parents=True)
        (tmp_path / name / "t-0" / f"{0:020}.log").write_bytes(data)
    if checkpoint is not None:
        (tmp_path / "broker1" / "t-0" / "leader-epoch-checkpoint").write_text(checkpoint)
    replicas = [tmp_path / name / "t-0" for name in NAMES[:2]]
    done = invoke("repair", "--format", "jsonl", *replicas, tmp_path / "t-0")
    assert done.exit_code == 1
    assert _written(tmp_path / "t-0") == {5 * n: data for n, data in enumerate(_NEW) if n != 6}
    (lost,) = [row for row in map(json.loads, done.stdout.splitlines()) if row["kind"] == "lost"]
    assert (lost["file"], lost["offset"], lost["last_offset"]) == (str(replicas[0] / f"{0:020}.log"), 30, 34)
    known = checkpoint is not None and "xx" not in checkpoint
    assert ("may be of another history" in lost["why"]) is not known
    malformed = f'{replicas[0]}/leader-epoch-checkpoint (checkpoint-malformed: "xx"'
    assert (malformed in done.stderr.replace("\n  ", " ")) is (checkpoint is not None and "xx" in checkpoint)


def test_a_third_replica_shows_where_an_epoch_began(tmp_path: Path) -> None:
    """Its batch of the new epoch is in the result, and a batch of the old epoch before it counts in each replica."""
    first, *rest = _NEW[5:8]
    damaged = b"".join([*_NEW[:5], *(one[:-1] + b"?" for one in (first, rest[0])), *_NEW[7:]])
    behind, third = b"".join(_NEW[:6]), b"".join([*_NEW[:5], first[:-1] + b"?", rest[0]])
    for name, data in zip(NAMES, (damaged, behind, third), strict=True):
        (tmp_path / name / "t-0").mkdir(parents=True)
        (tmp_path / name / "t-0" / f"{0:020}.log").write_bytes(data)
    checkpoint = "0\n2\n1 0\n2 30\n"
    (tmp_path / NAMES[2] / "t-0" / "leader-epoch-checkpoint").write_text(checkpoint)
    done = invoke("repair", *(tmp_path / name / "t-0" for name in NAMES), tmp_path / "t-0")
    assert done.exit_code == 0, done.stdout
    assert _written(tmp_path / "t-0") == {5 * n: data for n, data in enumerate(_NEW)}
    assert (tmp_path / "t-0" / "leader-epoch-checkpoint").read_text() == checkpoint


@pytest.mark.parametrize("names", ["ab", "ac", "abc", "cba"])
def test_an_epoch_is_in_the_history_of_a_leader_that_lost_its_batches(names: str, tmp_path: Path) -> None:
    """A batch of a later epoch that another replica has, too, proves it, or the damaged bytes of the leader."""
    log = [_batch(4 * n, 4, epoch) for n, epoch in enumerate((1, 1, 2, 2, 3, 3))]
    stale = _batch(8, 4, 1, "stale")
    first, second = (damage.flip(one, len(one) - 9) for one in log[2:4])
    replicas = {
        "a": log[:4],
        "b": [*log[:2], first, *log[3:5]],
        "c": [*log[:2], first, second, *log[4:]],
        "d": [*log[:2], stale],
    }
    for name in (*names, "d"):
        (tmp_path / name / "t-0").mkdir(parents=True)
        (tmp_path / name / "t-0" / f"{0:020}.log").write_bytes(b"".join(replicas[name]))
    done = invoke("repair", *(tmp_path / name / "t-0" for name in (*names, "d")), tmp_path / "t-0")
    assert done.exit_code == 0, done.stdout
    assert _written(tmp_path / "t-0") == {4 * n: one for n, one in enumerate(log) if n < 5 or "c" in names}
    assert (tmp_path / "t-0" / "leader-epoch-checkpoint").read_text().split() == [
        "0",
        "3",
        "1",
        "0",
        "2",
        "8",
        "3",
        "16",
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    "other", [_batch(4, 4, 1, "w"), damage.alter(_batch(4, 4, 1), 0, producer_id=8)], ids=["records", "producer"]
)
def test_replicas_that_diverge_without_an_epoch(other: bytes, tmp_path: Path) -> None:
    """Other records at the same offset and epoch, or another producer: nothing is written, unless one side is chosen."""
    batches = {"broker1": [_batch(0, 4, 1), _batch(4, 4, 1)], "broker2": [_batch(0, 4, 1), other]}
    for name, both in batches.items():
        (tmp_path / name / "t-0").mkdir(parents=True)
        (tmp_path / name / "t-0" / f"{0:020}.log").write_bytes(b"".join(both))
    replicas = [tmp_path / name / "t-0" for name in batches]
    done = kseg("repair", *replicas, tmp_path / "t-0")
    assert (done.returncode, (tmp_path / "t-0").exists()) == (2, False)
    assert "different records at offset 4" in done.stderr
    for replica in replicas:
        chosen = kseg("repair", "--prefer", replica, *replicas, tmp_path / "t-0")
        assert chosen.returncode == 0, chosen.stderr
        assert _written(tmp_path / "t-0") == _written(replica)
        shutil.rmtree(tmp_path / "t-0")


def test_replicas_that_were_compacted_by_themselves(tmp_path: Path) -> None:
    """The cleaner of one broker removed records that another still has: this is no divergence, and no loss."""
    full, cleaned = (
        [_batch(n, 4, 1) for n in range(0, 40, 4)],
        [_batch(n, 4, 1, without=n + 1) for n in range(0, 20, 4)],
    )
    for name, batches in (("broker1", full), ("broker2", [*cleaned[:2], *cleaned[3:], *full[5:]])):
        (tmp_path / name / "t-0").mkdir(parents=True)
        data = bytearray(b"".join(batches))
        data[len(batches[0]) + 70] ^= 1
        (tmp_path / name / "t-0" / f"{0:020}.log").write_bytes(data)
    done = kseg("repair", tmp_path / "broker1" / "t-0", tmp_path / "broker2" / "t-0", tmp_path / "t-0")
    assert done.returncode == 1, done.stderr
    assert _written(tmp_path / "t-0") == {4 * n: data for n, data in enumerate(full) if n != 1}
    assert "offsets 4..7" in done.stdout


def _replicas_of(home: Path, logs: dict[str, list[bytes]], checkpoints: dict[str, str]) -> list[Path]:
    """Write replicas of one segment each, and return their folders."""
    folders = []
    for name, batches in logs.items():
        folders.append(home / name / "t-0")
        folders[-1].mkdir(parents=True)
        (folders[-1] / f"{0:020}.log").write_bytes(b"".join(batches))
        if name in checkpoints:
            (folders[-1] / "leader-epoch-checkpoint").write_text(checkpoints[name])
    return folders


def test_batches_around_lost_ones_keep_their_offsets(tmp_path: Path) -> None:
    """They meet in the merged log: that a leader epoch began at an offset between them moves none of them there."""
    batches = [_batch(0, 4, 1), _batch(4, 4, 3), _batch(8, 4, 5), _batch(12, 4, 5)]
    lost = [b"\7" * len(batch) for batch in batches]
    logs = {"a": [batches[0], lost[1], lost[2], batches[3]], "b": [batches[0], lost[1]]}
    folders = _replicas_of(tmp_path, logs, {"a": "0\n3\n1 0\n3 4\n5 8\n", "b": "0\n2\n1 0\n3 4\n"})
    assert invoke("repair", *folders, tmp_path / "t-0").exit_code == 1
    assert [*damage.batches_of(tmp_path / "t-0")] == [batches[0], batches[3]]


@pytest.mark.parametrize("later", [False, True])
def test_batches_where_a_lost_epoch_began_can_be_stale(later: bool, tmp_path: Path) -> None:
    """The other replica has no batch of that epoch. That it has one of a later, wrong history proves nothing."""
    stale = [_batch(0, 1, 1), _batch(1, 1, 1, "stale"), *([_batch(2, 3, 3, "stale")] if later else [])]
    leader = [stale[0], b"\7" * len(_batch(1, 2, 2)), _batch(3, 3, 2), _batch(6, 4, 5)]
    done = invoke("repair", *_replicas_of(tmp_path, {"a": stale, "b": leader}, {}), tmp_path / "t-0")
    assert done.exit_code == 1
    assert [*damage.batches_of(tmp_path / "t-0")] == [leader[0], *leader[2:]]


@pytest.mark.slow
def test_what_is_refused(tmp_path: Path) -> None:
    """Folders of different topics or partitions, a replica twice, a segment, DST among the replicas."""
    for place, topic in (
        ("a/t-0", "AAAAAAAAAAAAAAAAAAAAAQ"),
        ("b/t-0", "BAAAAAAAAAAAAAAAAAAAAQ"),
        ("c/t-1", "AAAAAAAAAAAAAAAAAAAAAQ"),
    ):
        _Log(Random(1)).write(tmp_path / place)
        (tmp_path / place / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic}\n")
    a, b, c = (tmp_path / place for place in ("a/t-0", "b/t-0", "c/t-1"))
    for paths, why in (
        ((a, b, tmp_path / "new"), "topic id"),
        ((a, c, tmp_path / "new"), "partition"),
        ((a, a, tmp_path / "new"), "twice"),
        ((a, b, a), "SRC"),
        ((a / f"{0:020}.log", b, tmp_path / "new"), "folder"),
        ((a, tmp_path / "absent", tmp_path / "new"), "absent"),
        (("--prefer", c, a, b, tmp_path / "new"), "--prefer"),
        (("--prefer", a, a, tmp_path / "new"), "several"),
    ):
        done = kseg("repair", *paths)
        assert done.returncode == 2, why
        assert why in done.stderr, done.stderr
        assert not (tmp_path / "new").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "c"]


@pytest.mark.parametrize("option", ["--indexes-only", "--salvage-records"])
def test_options_of_one_replica_are_refused(option: str, tmp_path: Path) -> None:
    """Each of them changes one replica. Nothing is written."""
    replicas = [tmp_path / name / "orders-0" for name in NAMES[:2]]
    for replica in replicas:
        replica.mkdir(parents=True)
        (replica / f"{0:020}.log").write_bytes(_batch(0, 2, 0))
    done = invoke("repair", option, *replicas, tmp_path / "out" / "orders-0")
    assert done.exit_code == 2
    assert "several replicas are repaired as a whole" in done.stderr
    assert not (tmp_path / "out").exists()
