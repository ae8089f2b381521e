"""``kseg tier fetch`` of segments that several leaders uploaded: each record of the newest history once, and no other.

The histories are simulated with an encoder that shares nothing with kseg. Each batch has a value of its own: the batches of
the true log that any upload has are what must be written.
"""

from __future__ import annotations

import json
import random
import shutil
import struct
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import invoke
from tests.support.tiered_objects import REFERENCE
from tests.support.transactional_logs import ABORT, COMMIT, CONTROL, TRANSACTIONAL, batch

TOPIC_ID = "MDEyMzQ1Njc4OWFiY2RlZg"
#: An offset of the log, the offset after it, and the bytes.
Batch = tuple[int, int, bytes]
Epochs = Sequence[tuple[int, int]]


def plain(first: int, count: int, epoch: int, value: str) -> Batch:
    records = [(first + n, b"k", value.encode()) for n in range(count)]
    return first, first + count, batch(first, first + count - 1, records, leader_epoch=epoch)


def tens(begin: int, end: int, epoch: int, value: str = "v") -> list[Batch]:
    """Return batches of 10 records."""
    return [plain(first, 10, epoch, value) for first in range(begin, end, 10)]


def upload(bucket: Path, batches: Sequence[Batch], epochs: Epochs) -> Path:
    """Write the objects of a segment, with the epochs before its end, as ``RemoteLogManager`` does; return its log."""
    folder = bucket / f"t-0-{TOPIC_ID}"
    folder.mkdir(parents=True, exist_ok=True)
    number = len(list(folder.glob("*.log")))
    stem = f"{batches[0][0]:020}-{number:021d}A"
    kept = [(epoch, first) for epoch, first in epochs if first < batches[-1][1]]
    text = "".join(f"{epoch} {first}\n" for epoch, first in kept)
    (folder / f"{stem}.leader_epoch_checkpoint").write_text(f"0\n{len(kept)}\n{text}")
    (folder / f"{stem}.log").write_bytes(b"".join(data for *_, data in batches))
    return folder / f"{stem}.log"


def fetch(bucket: Path, target: Path, *options: str) -> tuple[int, dict[str, Any], bytes]:
    """Return the exit code, the row, and the written logs, one after the other."""
    done = invoke("tier", "fetch", bucket, "-o", target, "--format", "jsonl", *options)
    assert done.exit_code in (0, 1), done.output
    logs = sorted((target / "t-0").glob("*.log"))
    for log in logs:
        assert struct.unpack_from(">q", log.read_bytes()) == (int(log.stem),)
    return done.exit_code, json.loads(done.stdout), b"".join(log.read_bytes() for log in logs)


def joined(*batches: Batch) -> bytes:
    return b"".join(data for *_, data in batches)


@pytest.mark.parametrize("more", [False, True])
def test_overlapping_uploads_are_cut_at_a_batch(more: bool, tmp_path: Path) -> None:
    """A new leader uploads from the segment that has the end of the last upload (KAFKA-15168): no record is dropped."""
    old, new = tens(0, 60, 0), tens(60, 100, 1)
    last = tens(100, 110, 1) * more
    epochs = [(0, 0), (1, 60)]
    upload(tmp_path / "bucket", old, epochs[:1])
    upload(tmp_path / "bucket", old[5:] + new, epochs)
    if more:
        upload(tmp_path / "bucket", last, epochs)
    code, row, written = fetch(tmp_path / "bucket", tmp_path / "new")
    assert (code, row["holes"], row["left_out"], row["log_end"]) == (0, [], [], 110 if more else 100)
    assert written == joined(*old, *new, *last)
    assert (tmp_path / "new" / "t-0" / f"{60:020}.log").read_bytes() == joined(*new)
    assert (tmp_path / "new" / "t-0" / "leader-epoch-checkpoint").read_text() == "0\n2\n0 0\n1 60\n"


def test_the_newest_leader_epoch_decides(tmp_path: Path) -> None:
    """After an unclean election the records of the old leader are not those of the partition, though it has more of them."""
    old, new = tens(0, 100, 0, "old"), tens(50, 90, 1, "new")
    epochs = [(0, 0), (1, 50)]
    upload(tmp_path / "bucket", old, epochs[:1])
    upload(tmp_path / "bucket", old[:5] + new[:3], epochs)
    upload(tmp_path / "bucket", new[3:], epochs)
    code, row, written = fetch(tmp_path / "bucket", tmp_path / "new")
    assert (code, row["holes"], row["log_end"], written) == (0, [], 90, joined(*old[:5], *new))
    (line,) = row["left_out"]
    assert "offsets 50 to 99 belong to another history: of leader epoch 0" in line
    assert (tmp_path / "new" / "t-0" / "leader-epoch-checkpoint").read_text() == "0\n2\n0 0\n1 50\n"


def test_a_batch_in_which_another_history_begins_is_named_with_it(tmp_path: Path) -> None:
    """A batch cannot be cut: its first offsets are missing, too, and the line says where the other history begins."""
    old, new = [*tens(0, 30, 0, "old"), plain(30, 20, 0, "old")], tens(40, 70, 1, "new")
    upload(tmp_path / "bucket", old, [(0, 0)])
    upload(tmp_path / "bucket", new, [(0, 0), (1, 40)])
    code, row, written = fetch(tmp_path / "bucket", tmp_path / "new")
    assert (code, row["holes"], written) == (1, ["30..39"], joined(*old[:3], *new))
    (line,) = row["left_out"]
    assert "offsets 30 to 49 belong to another history, which begins at offset 40 inside a batch" in line
    assert line.endswith("of leader epoch 0, while the newest history has leader epoch 1 from offset 40")


def test_a_dead_history_fills_no_hole(tmp_path: Path) -> None:
    """Offsets that only the dead history has are missing, and its start, which both histories have, is written."""
    old, new = tens(0, 100, 0, "old"), tens(50, 120, 1, "new")
    upload(tmp_path / "bucket", old, [(0, 0)])
    upload(tmp_path / "bucket", new[3:], [(0, 0), (1, 50)])
    code, row, written = fetch(tmp_path / "bucket", tmp_path / "new")
    assert (code, row["holes"], written) == (1, ["50..79"], joined(*old[:5], *new[3:]))
    assert "offsets 50 to 99 belong to another history" in row["left_out"][0]


def test_the_start_of_a_lineage_can_be_cut(tmp_path: Path) -> None:
    """A broker removes the epochs before the log start: objects before it are still of the history."""
    log, epochs = tens(0, 30, 0) + tens(30, 60, 1) + tens(60, 90, 2), [(0, 0), (1, 30), (2, 60)]
    upload(tmp_path / "bucket", log[:5], epochs)
    upload(tmp_path / "bucket", log[4:8], [(1, 50), (2, 60)])
    upload(tmp_path / "bucket", log[8:], [(2, 60)])
    code, row, written = fetch(tmp_path / "bucket", tmp_path / "new")
    assert (code, row["left_out"], written) == (0, [], joined(*log))
    assert (tmp_path / "new" / "t-0" / "leader-epoch-checkpoint").read_text() == "0\n3\n0 0\n1 30\n2 60\n"


def test_damaged_epochs_come_from_the_batches(tmp_path: Path) -> None:
    """The object is named, and the history is still the newest one."""
    old, new = tens(0, 100, 0, "old"), tens(50, 80, 1, "new")
    upload(tmp_path / "bucket", old, [(0, 0)])
    log = upload(tmp_path / "bucket", old[:5] + new, [(0, 0), (1, 50)])
    log.with_suffix(".leader_epoch_checkpoint").write_bytes(b"garbage")
    code, row, written = fetch(tmp_path / "bucket", tmp_path / "new")
    assert (code, written) == (1, joined(*old[:5], *new))
    assert "it is damaged: the leader epochs are those of the batches" in row["left_out"][0]
    log.with_suffix(".leader_epoch_checkpoint").unlink()
    assert fetch(tmp_path / "bucket", tmp_path / "newer")[::2] == (0, joined(*old[:5], *new))


def random_history(bucket: Path, chance: random.Random) -> list[Batch]:
    """Upload segments of several leaders, clean and unclean; return the batches of the newest history that are uploaded."""
    log: list[Batch] = []
    epochs: list[tuple[int, int]] = []
    logs: dict[int, list[Batch]] = {}
    uploaded: set[bytes] = set()
    newest = -1
    epoch = 0
    for _ in range(chance.randrange(1, 6)):
        epoch += chance.randrange(1, 3)
        if log and chance.random() < 0.5:  # a leader that lacks the last batches
            log = log[: chance.randrange(len(log))]
        end = log[-1][1] if log else 0
        epochs = [one for one in epochs if one[1] < end] + [(epoch, end)]
        for _ in range(chance.randrange(1, 9)):
            log = [*log, plain(log[-1][1] if log else 0, chance.randrange(1, 9), epoch, f"{chance.random()}")]
        logs[epoch] = log
        at = chance.randrange(len(log))
        while at < len(log) and chance.random() < 0.9:
            stop = min(at + chance.randrange(1, 6), len(log))
            upload(bucket, log[at:stop], epochs)
            uploaded.update(data for *_, data in log[at:stop])
            last = max(one for one, first in epochs if first < log[stop - 1][1])
            newest = max(newest, last)
            at = stop
    return [one for one in logs.get(newest, ()) if one[2] in uploaded]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60))
def test_random_histories(seed: int, tmp_path: Path) -> None:
    """Every uploaded record of the newest history is written once, and missing offsets between them are named."""
    expected = random_history(tmp_path / "bucket", random.Random(seed))
    if not expected:
        return
    code, row, written = fetch(tmp_path / "bucket", tmp_path / "new")
    assert written == joined(*expected)
    holes = [f"{one[1]}..{other[0] - 1}" for one, other in pairwise(expected) if one[1] < other[0]]
    assert (code, row["holes"], row["log_end"]) == (bool(holes), holes, expected[-1][1])
    if not holes:
        assert invoke("validate", tmp_path / "new").exit_code == 0


def test_a_cut_segment_has_the_files_of_a_broker(tmp_path: Path) -> None:
    """It has the name, the batches and the snapshot of the segment that a broker began there, and indexes that fit."""
    (source,) = (REFERENCE / "bucket").iterdir()
    folder = tmp_path / "bucket" / source.name
    shutil.copytree(source, folder)
    first, second = sorted(folder.glob("*.log"))
    data, at = first.read_bytes(), 0
    while struct.unpack_from(">q", data, at)[0] < 5:
        at += 12 + struct.unpack_from(">i", data, at + 8)[0]
    second.write_bytes(data[at:] + second.read_bytes())
    for path in sorted(folder.glob(f"{second.stem}*")):
        path.rename(folder / f"{5:020}{path.name[20:]}")
    assert invoke("tier", "fetch", tmp_path / "bucket", "-o", tmp_path / "new").exit_code == 0
    written = {path.name: path for path in (tmp_path / "new" / "tiered-0").iterdir()}
    assert len(written) == 10
    rebuilt = {f"{10:020}.index", f"{10:020}.timeindex"}  # the broker had another index.interval.bytes
    assert rebuilt <= written.keys()
    for name in written.keys() - rebuilt:
        assert written[name].read_bytes() == (REFERENCE / "before" / "tiered-0" / name).read_bytes(), name
    assert "0 errors, 0 warnings" in " ".join(invoke("validate", "--deep", tmp_path / "new").stdout.split())


def transaction(first: int, producer: int, result: int | None, sequence: int = 0) -> Batch:
    """Return a batch of one record of a transaction, or its marker."""
    if result is None:
        return first, first + 1, batch(first, first, [(first, b"k", b"v")], TRANSACTIONAL, producer, 0, sequence)
    marker = (first, struct.pack(">hh", 0, result), struct.pack(">hi", 0, 0))
    return first, first + 1, batch(first, first, [marker], TRANSACTIONAL | CONTROL, producer, 0)


def test_a_cut_segment_keeps_the_transactions_that_end_in_it(tmp_path: Path) -> None:
    """A transaction that was aborted before the cut is not in its index, one that began before it and ends after it is."""
    log = [
        transaction(0, 1, None),
        transaction(1, 1, ABORT),
        transaction(2, 2, None),
        transaction(3, 3, None),
        transaction(4, 2, ABORT),
        transaction(5, 3, COMMIT),
    ]
    upload(tmp_path / "bucket", log[:4], [(0, 0)])
    stem = upload(tmp_path / "bucket", log[1:], [(0, 0)])
    entries = [struct.pack(">hqqqq", 0, 1, 0, 1, 2), struct.pack(">hqqqq", 0, 2, 2, 4, 3)]
    stem.with_suffix(".txnindex").write_bytes(b"".join(entries))
    code, _, written = fetch(tmp_path / "bucket", tmp_path / "new")
    assert (code, written) == (0, joined(*log))
    assert [path.read_bytes() for path in (tmp_path / "new").rglob("*.txnindex")] == [entries[1]]
    assert invoke("validate", tmp_path / "new").exit_code == 0
