"""Which records of a metadata log end the nodes that load it: Kafka's own classes are the judge."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from kseg import validate
from kseg.format.internal_topics.metadata_loading import replayed
from kseg.format.internal_topics.metadata_replay import ReplayFault
from tests.support.internal_topics import placed
from tests.support.metadata_logs import (
    FEATURE,
    Change,
    RandomLog,
    broker,
    folder_for,
    partition,
    topic,
    uuid,
    write_log,
)

_CASES = int(os.environ.get("KSEG_FUZZ_CASES", "500"))


def _fault(tmp_path: Path, *changes: Change) -> ReplayFault | None:
    return replayed([str(write_log(folder_for(tmp_path) / f"{0:020}.log", (FEATURE, *changes)))]).fault


@pytest.mark.kafka
@pytest.mark.fuzz
def test_faults_equal_those_of_kafkas_classes(tmp_path: Path) -> None:
    """The same offset ends a controller, and brokers end at it exactly if kseg says so."""
    from tools.lab import maven
    from tools.lab.metadata_oracle import verdicts

    if why := maven.missing():
        pytest.skip(why)
    changes = [RandomLog(seed).changes() for seed in range(_CASES)]
    logs = [write_log(tmp_path / str(seed) / f"{0:020}.log", one) for seed, one in enumerate(changes)]
    offsets, brokers, faults = [], [], 0
    for log, one, kafka in zip(logs, changes, verdicts(logs, tmp_path / "classes"), strict=True):
        found = replayed([str(log)]).fault
        if (found.offset if found else None) != kafka["controller"]:
            offsets.append((one, found, kafka))
        faults += found is not None
        # The oracle's image of a broker passes over transactions.
        if found and not any(name.endswith("Transaction") for name, _, _ in one):
            brokers += [(one, found, kafka)] if found.brokers != (kafka["broker"] == found.offset) else []
    assert offsets == []
    assert 0.1 * _CASES < faults < 0.6 * _CASES
    # A broker applies a whole batch at once, so that it misses contradictions within it.
    assert len(brokers) <= 0.005 * faults


@pytest.mark.parametrize(
    ("changes", "why", "brokers"),
    [
        ((topic("a", 1), topic("a", 2)), f'topic "a" exists with the topic id {uuid(1)}, not {uuid(2)}', False),
        ((partition(1, [1]),), f"no topic has the id {uuid(1)}", True),
        ((topic("a", 1), partition(1, [1, 2], [uuid(5)])), "2 replicas, but 1 directories", True),
        ((("FenceBroker", 0, {"id": 3, "epoch": 7}),), "broker 3 is not registered", True),
        ((broker(3, 8), ("UnfenceBroker", 0, {"id": 3, "epoch": 7})), "broker 3 has epoch 8, not 7", True),
        ((broker(3, 8, [uuid(9)]), broker(4, 9, [uuid(9)])), f"directory {uuid(9)} belongs to broker 3", False),
        ((("EndTransaction", 0, {}),), "no transaction is open", True),
    ],
)
def test_the_reason_names_what_contradicts(
    tmp_path: Path, changes: tuple[Change, ...], why: str, brokers: bool
) -> None:
    """The offset is that of the last record, and the message says what it contradicts."""
    found = _fault(tmp_path, *changes)
    assert found is not None
    assert (found.offset, found.why, found.brokers) == (len(changes), why, brokers)


def test_an_aborted_transaction_is_undone(tmp_path: Path) -> None:
    """KIP-868: after an abort, the topic of the transaction does not exist."""
    aborted: tuple[Change, ...] = (("BeginTransaction", 0, {}), topic("a", 1), ("AbortTransaction", 0, {}))
    assert _fault(tmp_path, *aborted, topic("a", 2)) is None
    found = _fault(tmp_path, *aborted, partition(1, [1]))
    assert found
    assert found.offset == 4


def test_the_log_of_a_broker_has_no_fault_and_a_part_of_it_says_nothing(tmp_path: Path) -> None:
    """No false alarm: with its snapshot, without its snapshot, and for one file of several."""
    folder = placed("__cluster_metadata", tmp_path)
    assert not {one.rule.name for one in validate(folder).findings if one.rule.code.startswith("K7")}
    for path in folder.glob("*.checkpoint"):
        path.unlink()
    assert not {one.rule.name for one in validate(folder).findings if one.rule.code.startswith("K7")}
    shutil.copy(folder / f"{0:020}.log", folder / f"{163:020}.log")
    assert not {one.rule.name for one in validate(folder / f"{163:020}.log").findings if one.rule.code.startswith("K7")}


def test_records_after_damage_say_nothing(tmp_path: Path) -> None:
    """No node loads them, so a missing topic before them is no contradiction."""
    log = write_log(folder_for(tmp_path) / f"{0:020}.log", (FEATURE, topic("a", 1), partition(1, [1])), per_batch=1)
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 0xFF
    log.write_bytes(data)
    assert replayed([str(log)]).fault is None
