"""Random lives of a log between runs: the table has the records of the log, or the run fails and the previews say so."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed")

from kseg.format.writer.records_builder import PlainRecord, build_batch
from tests.support.pipelines import config, rows, run_in_process, statuses

pytestmark = pytest.mark.slow


class Log:
    """A partition: batches (first offset, leader epoch, values), the first offsets of its segments, and its folder."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self.folder, self.chance = folder, chance
        self.batches: list[tuple[int, int, list[bytes]]] = []
        self.cuts, self.epoch, self.count = [0], 0, 0
        self.epochs = {0: 0}
        self.kept = 0  # the offsets before it are those of the last load

    @property
    def end(self) -> int:
        return self.batches[-1][0] + len(self.batches[-1][2]) if self.batches else self.cuts[0]

    @property
    def values(self) -> dict[int, bytes]:
        return {first + n: value for first, _, values in self.batches for n, value in enumerate(values)}

    def append(self) -> None:
        for _ in range(self.chance.randint(1, 4)):
            if self.batches and self.chance.random() < 0.4:
                self.cuts.append(self.end)
            values = [b"%d" % (self.count + n) for n in range(self.chance.randint(1, 4))]
            self.count += len(values)
            self.batches.append((self.end, self.epoch, values))

    def elect(self) -> None:
        """Truncate the log, and let a new leader continue it."""
        keep = self.chance.randint(1, len(self.batches))
        del self.batches[keep:]
        self.cuts = [cut for cut in self.cuts if cut < self.end]
        self.epoch += 1
        self.kept = min(self.kept, self.end)
        self.epochs = {epoch: first for epoch, first in self.epochs.items() if first < self.end} | {
            self.epoch: self.end
        }

    def delete(self) -> None:
        """Delete the oldest segments."""
        self.cuts = self.cuts[self.chance.randrange(len(self.cuts)) :]
        self.batches = [one for one in self.batches if one[0] >= self.cuts[0]]

    def write(self, checkpoint: bool) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        for first, end in zip(self.cuts, [*self.cuts[1:], self.end], strict=True):
            data = b"".join(
                build_batch([PlainRecord(at + n, b"k", value) for n, value in enumerate(values)], base_offset=at,
                            partition_leader_epoch=epoch)
                for at, epoch, values in self.batches if first <= at < end
            )  # fmt: skip
            (self.folder / f"{first:020}.log").write_bytes(data)
        if checkpoint:
            lines = [f"{epoch} {first}" for epoch, first in self.epochs.items()]
            (self.folder / "leader-epoch-checkpoint").write_text("\n".join(["0", str(len(lines)), *lines, ""]))


def in_table(home: Path) -> dict[int, bytes]:
    return {row[1]: row[2] for row in rows(home, "parquet")} if (home / "lake" / "orders" / "_kseg").exists() else {}


@pytest.mark.parametrize("seed", range(16))
def test_a_life_of_appends_truncations_and_deletions(seed: int, tmp_path: Path) -> None:
    """A log that was truncated below the loaded offsets, and continued, fails the run until a replay has loaded it."""
    chance = random.Random(seed)
    log, checkpoint = Log(tmp_path / "source" / "orders-0", chance), chance.random() < 0.5
    path, end = config(tmp_path), 0
    table: dict[int, bytes] = {}
    for step in range(8):
        for change in chance.choices((log.append, log.elect, log.delete), (4, 2, 2), k=3) if step else ():
            change()
        log.append()
        log.write(checkpoint)
        now, differs = log.values, log.kept < end
        wrong = log.end < end or (differs and (checkpoint or log.cuts[0] < end)) or (end > 0 and log.cuts[0] > end)
        before = statuses(path, "plan")[0], statuses(path, "status")[0]
        code, found = statuses(path, "run")
        assert (code, found == ["failed"]) == ((2, True) if wrong else (0, False)), (step, found)
        assert before == (code, code), step
        again = "failed" if wrong else "current"
        assert [statuses(path, action) for action in ("status", "plan", "run")] == 3 * [(code, [again])], step
        if wrong and differs and log.end >= end >= log.cuts[0]:
            start = log.kept if checkpoint else max(log.kept, log.cuts[0])  # what was deleted shows no leader epoch
            asked = ("--topic", "orders", "--offsets", f"0:{start}:{end}")
            told = run_in_process(path, "status", "--format", "jsonl").stdout
            assert f"`kseg pipeline replay {path} {' '.join(asked)}`" in told, step
            assert [run_in_process(path, "replay", *asked, *more).returncode for more in (["--dry-run"], [])] == [0, 0]
            assert statuses(path, "run")[0] == 0, step
            table, wrong = {at: value for at, value in table.items() if at < start}, False
        if not wrong:
            table, end, log.kept = table | now, log.end, log.end
        assert in_table(tmp_path) == {at: table[at] for at in sorted(table)}, step
