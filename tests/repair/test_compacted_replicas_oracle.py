"""Replicas that were compacted to different points: deleted records stay deleted in their repair, or are named."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kseg.findings import joined_ranges
from kseg.format.record.layout import INT64_MAX
from tests.support.cli import invoke
from tests.support.compacted_replicas import Batch, cleaned, random_log, until, write
from tests.support.fuzzing import cases


def _replica(log: list[Batch], magic: int, random: Random) -> list[Batch]:
    """Return a replica: it ends somewhere, and was cleaned up to some offsets."""
    end = log[-1].last + 1
    found = until(log, random.choice((end, end, random.randrange(log[0].last + 1, end + 1))))
    stop = 0
    for _ in range(random.randrange(4)):
        stop = random.randrange(stop, max(stop, found[-1].base) + 1)  # the active segment is not cleaned
        found = cleaned(found, stop, magic, expired=random.random() < 0.6)
    return found


def _names(rows: list[dict[str, Any]], kinds: tuple[str, ...], offset: int) -> bool:
    """Return whether a row of these kinds is about an offset; one of unknown offsets can be about any."""
    return any(
        (row["offset"] or 0) <= offset and (row["last_offset"] is None or offset <= row["last_offset"])
        for row in rows
        if row["kind"] in kinds
    )


def _offsets(rows: list[dict[str, Any]], kind: str) -> list[tuple[int, int]]:
    """Return the offsets that rows of a kind are about. How many rows have them depends on the losses of a replica."""
    named = ((row["offset"], row["last_offset"]) for row in rows if row["kind"] == kind and row["offset"] is not None)
    return joined_ranges((first, INT64_MAX if last is None else last) for first, last in named)


def _ended(rows: list[dict[str, Any]], batch: Batch) -> bool:
    """Return whether a row says that the marker of a batch is lost."""
    return batch.ended is not None and _names(rows, ("lost", "missing"), batch.ended)


def _valid(batch: Batch) -> bool:
    return batch.kind == "data" and batch.state in (None, "committed")


def _shown(folder: Path) -> list[dict[str, Any]]:
    """Return the data records of a log, with the states of their transactions."""
    done = invoke("dump", "--deep", "--no-control", "--format", "jsonl", folder)
    what = "offset", "key", "value", "transaction_state"
    return [{one: row[one] for one in what} for row in map(json.loads, done.stdout.splitlines())]


def _wrong(log: list[Batch], rows: list[dict[str, Any]], shown: list[dict[str, Any]], intact: set[int]) -> int:
    """Return how many keys and states of records differ from those of the log; a row must be about each of them."""
    wrong = 0
    batch_of = {one.offset: batch for batch in log for one in batch.records if batch.kind == "data"}
    last = {row["key"]: row["offset"] for row in shown if row["transaction_state"] in (None, "committed")}
    true = {one.key: one for batch in log if _valid(batch) for one in batch.records}
    for key, record in true.items():
        found = last.get((key or b"").decode())
        decided = _names(rows, ("lost", "missing"), record.offset) or _ended(rows, batch_of[record.offset])
        if found != record.offset and not (found is None and record.value is None):
            wrong += 1
            revived = found is not None and (_names(rows, ("uncertain",), found) or _ended(rows, batch_of[found]))
            assert revived or decided, (key, found, record.offset)
        if record.value is not None and record.offset in intact:
            assert found == record.offset or decided, (key, found, record.offset)
    for row in shown:
        batch = batch_of[row["offset"]]
        if row["transaction_state"] not in (batch.state, "unknown"):
            wrong += 1
            assert _ended(rows, batch) or _names(rows, ("uncertain",), row["offset"]), row
    return wrong


def _repair(case: int, magic: int, home: Path) -> int | None:
    """Repair the replicas of one case, in both orders; return how much is wrong, or None without a valid batch."""
    random = Random(case)
    log, end = random_log(random, magic), 0
    replicas = [home / f"{n}" / "t-0" for n in range(random.choice((2, 2, 3)))]
    intact: set[int] = set()
    for folder in replicas:
        batches = _replica(log, magic, random)
        intact |= write(folder, batches, magic, random)
        end = max([end, *(batch.last + 1 for batch in batches)])
    if not intact:
        return None
    reports = []
    for name, sources in (("a", replicas), ("b", replicas[::-1])):
        (home / name).mkdir()
        done = invoke("repair", "--format", "jsonl", *sources, home / name / "t-0")
        assert done.exit_code in (0, 1), done.stderr
        reports.append([json.loads(line) for line in done.stdout.splitlines()])
        shown = _shown(home / name / "t-0")
        wrong = _wrong(until(log, end), reports[-1], shown, intact)
        assert done.exit_code == 1 or not wrong
    assert shown == _shown(home / "a" / "t-0")
    for kind in ("lost", "uncertain"):
        first, second = (_offsets(rows, kind) for rows in reports)
        assert first == second, kind
    return wrong


@pytest.mark.slow
@pytest.mark.fuzz
@pytest.mark.parametrize("magic", [1, 2])
def test_nothing_that_was_deleted_comes_back_in_silence(magic: int, tmp_path: Path) -> None:
    """By key, the result is the log's, whatever each replica has lost, or the report names what decides about the key.

    No valid record that an intact batch of a replica has is missing, and the order of the replicas changes nothing.
    """
    exact = wrong = 0
    for case in range(cases(40)):
        try:
            found = _repair(case, magic, tmp_path / str(case))
        except AssertionError as error:
            raise AssertionError(f"case {case}") from error
        exact, wrong = exact + (found == 0), wrong + bool(found)
    assert exact > 2 * wrong
