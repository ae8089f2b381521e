"""Partitions whose life Kafka's own classes have run: kseg agrees with them, and the tools notice if it does not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import kseg
from kseg.errors import UnreadableError
from kseg.findings import READ_ERROR, Severity
from tests.support.read_faults import local_faults
from tools.proof import mutants, world_checks
from tools.proof.fuzz import REGRESSIONS
from tools.proof.world import Step, steps_of
from tools.proof.worlds import shrunk


def _bad(log_dir: Path) -> list[kseg.Verdict]:
    return [one for one in kseg.validate(log_dir).findings if one.severity > Severity.INFO]


@pytest.mark.parametrize("log_dir", sorted(REGRESSIONS.glob("reader-world-*")), ids=lambda path: path.name)
def test_what_kafka_wrote_has_no_finding(log_dir: Path) -> None:
    """Log dirs of worlds in which kseg had a false finding: transactions and leader epochs below the log start."""
    assert not _bad(log_dir)


@pytest.mark.slow
@pytest.mark.parametrize("log_dir", sorted(REGRESSIONS.glob("reader-world-*")), ids=lambda path: path.name)
def test_a_read_error_in_a_folder_is_no_other_finding(log_dir: Path) -> None:
    """Each call of the storage fails once: an index of which the log was not read to its end contradicts nothing."""
    with local_faults(log_dir) as counted:
        kseg.validate(log_dir)
    reached = 0
    for number in range(counted.calls):
        with local_faults(log_dir, "EIO", range(number, number + 1)):
            try:
                found = _bad(log_dir)
            except UnreadableError:
                continue
        reached += 1
        assert [one for one in found if one.finding.rule != READ_ERROR] == []
    assert reached


def test_a_failing_world_is_shrunk_to_the_steps_that_matter() -> None:
    """The steps that are left fail together, and no smaller number of tries finds fewer."""
    steps = steps_of(3, 200)
    needed = {steps[7], steps[120], steps[121]}
    assert set(shrunk(steps, lambda fewer: needed <= set(fewer))) == needed
    assert steps_of(3, 200) == steps
    assert steps_of(4, 200) != steps


def test_mutants_are_changes_of_behaviour() -> None:
    """Each mutant is valid Python and another text; annotations and docstrings are left alone."""
    text = 'def f(a: int = 3) -> int:\n    """At 7."""\n    if a < 2 and not a:\n        a += 1\n    return a - 1\n'
    found = mutants.mutants_of("f.py", text)
    assert {one.old for one in found} == {
        "a < 2 and not a",
        "a < 2",
        "2",
        "not a",
        "a += 1",
        "1",
        "return a - 1",
        "a - 1",
    }
    for one in found:
        changed = text[: one.begin] + one.new + text[one.end :]
        compile(changed, "f.py", "exec")
        assert changed != text


@pytest.mark.kafka
def test_kafka_and_kseg_agree_on_worlds() -> None:
    """Appends, elections, truncation, compaction, transactions, crashes and damage, from fixed seeds."""
    from tools.lab.load_log import LoadLog
    from tools.proof.worlds import run_world

    with LoadLog() as kafka:
        assert [run_world(seed, steps_of(seed, 120), kafka) for seed in (1, 2, 3)] == [None, None, None]


def _last_stable_off_by_one(change: pytest.MonkeyPatch) -> None:
    found: Callable[..., Any] = kseg.transactions

    def wrong(folder: Path) -> list[Any]:
        *rest, last = found(folder)
        return [*rest, _replaced(last, last_stable_offset=(last.last_stable_offset or 0) + 1)]

    change.setattr(kseg, "transactions", wrong)


def _replaced(row: Any, **changed: Any) -> Any:
    from dataclasses import replace

    return replace(row, **changed)


def _lost_batch(change: pytest.MonkeyPatch) -> None:
    from kseg.reading import LogDir

    found = LogDir.records
    change.setattr(LogDir, "records", lambda self, **named: (one for one in found(self, **named) if one.offset != 5))


def _late_prediction(change: pytest.MonkeyPatch) -> None:
    predicted = world_checks.predicted
    change.setattr(
        world_checks, "predicted", lambda *given: {**predicted(*given), "log_end": predicted(*given)["log_end"] + 1}
    )


@pytest.mark.kafka
@pytest.mark.parametrize("fault", [_last_stable_off_by_one, _lost_batch, _late_prediction])
def test_a_planted_fault_is_found(fault: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """A last stable offset that is off by one, a lost record and a wrong prediction fail within a few worlds."""
    from tools.lab.load_log import LoadLog
    from tools.proof.worlds import run_world

    fault(monkeypatch)
    with LoadLog() as kafka:
        assert any(run_world(seed, steps_of(seed, 100), kafka) for seed in range(5))


@pytest.mark.kafka
def test_kafkas_cleaner_writes_batches_that_followers_reject(tmp_path: Path) -> None:
    """The cause of negative-leader-epoch: compacted batches of v1 become v2 without an epoch."""
    from tools.lab.load_log import LoadLog
    from tools.proof.world import World

    with LoadLog() as kafka:
        seed = next(n for n in range(100) if (one := World(n, kafka, tmp_path / f"{n}")).compacted and one.magic == 1)
        world = World(seed, kafka, tmp_path / "world")
        world.config["compression.type"] = "producer"
        steps: Sequence[Step] = [Step(number, "append") for number in range(40)]
        world.run(steps, 100, lambda *_: None)
        leader, follower = world.replicas
        world._ask(leader, "roll")
        leader.first_dirty = world._ask(leader, "clean", first_dirty=0)["first_dirty"]
        world._ask(follower, "truncate", to=0)
        answer = world._ask(follower, "fetch", leader=str(leader.folder))
    assert answer["error"] == "IllegalArgumentException", answer
    assert {one.finding.rule for one in _bad(leader.log_dir)} == {"negative-leader-epoch"}
