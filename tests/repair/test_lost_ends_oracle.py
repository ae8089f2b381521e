"""Logs that lost their end, or a segment to a copy of another: validate and repair say the same of the lost offsets.

The true log is known. An incomplete batch at the end changes nothing of what side files say about the offsets after it.
"""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from kseg.format.sidefiles.producer_snapshot import packed
from kseg.format.writer.records_builder import PlainRecord, build_batch, build_message
from tests.support.cli import invoke
from tests.support.fuzzing import cases
from tests.support.records import NOW

RECOVERY_POINTS, HIGH_WATERMARKS = "recovery-point-offset-checkpoint", "replication-offset-checkpoint"
#: The rules about the end that side files name.
NAMED_ENDS = ("snapshot-behind-log", "checkpoint-behind-log", "stale-high-watermark", "epoch-mismatch")
MISSING = ("missing-batches", "segment-gap")
#: The bytes of a batch header.
HEADER = 61


class _TrueLog:
    """A random log directory with one partition. ``segments`` are (base offset, batches), ``end`` is its end."""

    def __init__(self, dice: random.Random, least: int = 1) -> None:
        self.segments: list[tuple[int, list[bytes]]] = []
        self.end = dice.choice((0, 0, 1000))
        key, magic = dice.choice((None, b"k")), dice.choice((2, 2, 2, 1))
        for _ in range(dice.randrange(least, least + 3)):
            base, batches = self.end, list[bytes]()
            # The offset of a single batch can be wrong: nothing shows whether it is a copy.
            for _ in range(dice.randrange(2, 8)):
                count = 1 if magic < 2 else dice.randrange(1, 9)
                offsets = range(self.end, self.end + count)
                records = [PlainRecord(offset, key, dice.randbytes(100), NOW + offset) for offset in offsets]
                self.end += count
                batches.append(
                    build_message(records[0], magic=1) if magic < 2 else build_batch(records, partition_leader_epoch=0)
                )
            self.segments.append((base, batches))

    def write(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        for n, (base, batches) in enumerate(self.segments):
            (folder / f"{base:020}.log").write_bytes(b"".join(batches))
            if n:
                (folder / f"{base:020}.snapshot").write_bytes(packed([]))


def _rows(*arguments: object) -> tuple[int, list[dict[str, Any]]]:
    done = invoke(*arguments)
    assert done.exit_code in (0, 1), done.stderr
    return done.exit_code, [*map(json.loads, done.stdout.splitlines())]


def _found(log_dir: Path) -> tuple[int, set[tuple[Any, ...]], set[int]]:
    """Return the exit code of validate, its findings about the end of the log, and the offsets that it calls lost."""
    code, rows = _rows("validate", "--format", "jsonl", log_dir)
    found = [row for row in rows if row["kind"] == "finding"]
    named = {(row["rule"], row["message"]) for row in found if row["rule"] in NAMED_ENDS}
    lost: set[int] = set()
    for row in found:
        if row["rule"] in MISSING:
            lost |= set(range(row["facts"]["first"], row["facts"]["last"] + 1))
        elif row["rule"] == "snapshot-behind-log":
            lost |= set(range(row["facts"]["end"], row["facts"]["offset"]))
    return code, named, lost


def _lost(log_dir: Path, target: Path) -> tuple[int, set[int]]:
    """Return the exit code of repair, and the offsets that it calls lost; with and without ``--dry-run`` they are equal."""
    results = []
    target.parent.mkdir()
    for options in (["--dry-run", log_dir / "t-0"], [log_dir / "t-0", target]):
        code, rows = _rows("repair", "--format", "jsonl", *options)
        lost: set[int] = set()
        for row in rows:
            if row["kind"] in ("lost", "missing") and row["rule"] != "offset-gap" and row["last_offset"] is not None:
                lost |= set(range(row["offset"], row["last_offset"] + 1))
        results.append((code, lost))
    assert results[0] == results[1]
    return results[0]


@pytest.mark.slow
@pytest.mark.fuzz
def test_an_incomplete_batch_hides_no_lost_end(tmp_path: Path) -> None:
    """The end is cut between batches, in a header and in records, with and without side files that name the true end."""
    hidden = 0
    for case in range(cases(15)):
        dice = random.Random(case)
        log = _TrueLog(dice)
        base, batches = log.segments[-1]
        kept = dice.randrange(len(batches))
        valid_end = int.from_bytes(batches[kept][:8])
        last = batches[kept]
        snapshot, checkpoints, clean = (dice.random() < 0.6 for _ in range(3))
        cuts = [0, dice.randrange(20, min(HEADER, len(last))), dice.randrange(HEADER, len(last))]
        outcomes = []
        for cut in cuts:
            log_dir = tmp_path / f"{case}-{cut}"
            log.write(log_dir / "t-0")
            (log_dir / "t-0" / f"{base:020}.log").write_bytes(b"".join(batches[:kept]) + last[:cut])
            # Without a clean shutdown, a broker has only written what was flushed.
            end = log.end if clean else dice.randrange(valid_end + 1)
            if snapshot and clean:
                (log_dir / "t-0" / f"{end:020}.snapshot").write_bytes(packed([]))
            for name in (RECOVERY_POINTS, HIGH_WATERMARKS) if checkpoints else ():
                (log_dir / name).write_text(f"0\n1\nt 0 {end}\n")
            if clean:
                (log_dir / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":1}')
            _, named, called_lost = _found(log_dir)
            code, lost = _lost(log_dir, tmp_path / f"{case}-{cut}-repaired" / "t-0")
            assert code == int(cut > 0 or bool(called_lost)), (case, cut)
            proved = set(range(valid_end, log.end)) if snapshot and clean else set()
            assert called_lost == proved, (case, cut)
            assert lost == proved or (not proved and cut), (case, cut)
            assert bool(named) == (clean and (snapshot or checkpoints)), (case, cut, named)
            outcomes.append(named)
            hidden += bool(cut and proved)
        assert outcomes[0] == outcomes[1] == outcomes[2], case
    assert hidden > 5


@pytest.mark.slow
@pytest.mark.fuzz
def test_a_segment_that_a_copy_of_another_replaced_is_lost(tmp_path: Path) -> None:
    """Each segment of a log can be overwritten, with a whole copy or with one that is cut.

    In case 89 a copy has one whole batch, whose offset differs from the name in one bit, as after damage to a header.
    """
    for case in {*range(cases(25)), 89}:
        dice = random.Random(case)
        log = _TrueLog(dice, least=2)
        log_dir = tmp_path / str(case)
        folder = log_dir / "t-0"
        log.write(folder)
        (folder / f"{log.end:020}.snapshot").write_bytes(packed([]))
        lost, copied = dice.sample(range(len(log.segments)), 2)
        path, other = (folder / f"{log.segments[n][0]:020}.log" for n in (lost, copied))
        shutil.copyfile(other, path)
        torn = dice.random() < 0.3
        if torn:
            path.write_bytes(path.read_bytes()[: -dice.randrange(1, 50)])
        ends = [*(base for base, _ in log.segments), log.end]
        code, _, called_lost = _found(log_dir)
        assert code == 1, case
        done, found = _lost(log_dir, tmp_path / f"{case}-repaired" / "t-0")
        assert done == 1, case
        assert found == set(range(ends[lost], ends[lost + 1])), case
        assert called_lost <= found, case
