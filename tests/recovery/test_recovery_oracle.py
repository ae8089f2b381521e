"""``kseg recovery`` against Kafka's own loader and against real brokers, with random damage."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.support.fuzzing import cases
from tools.lab import load_cases
from tools.lab.load_oracle import predicted_with_snapshots, with_snapshots_of
from tools.lab.load_scenes import Case

CASES = dict(load_cases.cases())
CHUNKS = 4
#: A start of a broker takes as long as loading this number of partitions.
STARTS = 200


def assert_predicted(name: str, made: Case, folder: Path) -> None:
    """The results of Kafka's loader were recorded, so this runs without Kafka."""
    made.put(folder)
    predicted = predicted_with_snapshots(folder, made.start)
    outcome = with_snapshots_of(predicted, load_cases.recorded()[name])
    assert {key: outcome.get(key) for key in predicted} == json.loads(json.dumps(predicted)), name


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_each_way_in_which_loading_ends_is_predicted(name: str, tmp_path: Path) -> None:
    """Log start and end, files and their sizes, leader epochs, producers, and the reason why the process ends."""
    assert_predicted(name, CASES[name], tmp_path / "topic-0")


@pytest.mark.slow
def test_random_damage_ends_as_predicted(tmp_path: Path) -> None:
    """The same for random partitions with random damage."""
    for name, made in load_cases.of_seeds():
        assert_predicted(name, made, tmp_path / name / "topic-0")
        shutil.rmtree(tmp_path / name)


@pytest.mark.kafka
def test_what_is_written_down_is_what_kafka_does() -> None:
    """The recorded outcomes are Kafka's, not kseg's."""
    assert {row.pop("case"): row for row in json.loads(json.dumps([*load_cases.load()]))} == load_cases.recorded()


@pytest.mark.kafka
@pytest.mark.fuzz
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_kafkas_loader_does_what_is_predicted(chunk: int) -> None:
    """Log start and end, files and their sizes, leader epochs, and the reason why the process ends, for each seed."""
    from tools.lab.load_oracle import disagreements

    found = [(made.seed, text) for made, text in disagreements(range(chunk, cases(1000), CHUNKS))]
    assert not found


@pytest.mark.kafka
@pytest.mark.fuzz
def test_a_broker_with_two_log_dirs_does_what_is_predicted() -> None:
    """Whether it starts, which partitions it serves, and where their logs end: a start for each seed."""
    from tools.lab.log_dir_oracle import disagreements

    found = [(seed, done) for seed, done, *_ in disagreements(range(max(1, cases(1000) // STARTS)))]
    assert not found
