"""What a group coordinator has after loading ``__consumer_offsets``: Kafka's own classes are the judge."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest

from kseg.findings import do_nothing
from kseg.format.internal_topics.effective_state import effective
from kseg.format.internal_topics.state import OFFSET_COMMIT, Item
from kseg.format.storage.naming import CONSUMER_OFFSETS
from tests.support.group_logs import write_random_log

_CASES = int(os.environ.get("KSEG_FUZZ_CASES", "500"))
FIRST = f"{0:020}.log"


def _items(folder: Path) -> list[Item]:
    return list(effective(CONSUMER_OFFSETS, [str(folder / FIRST)], lambda path: do_nothing).items())


def _row(item: Item) -> tuple[Any, ...]:
    data = {"leaderEpoch": -1, "expireTimestamp": -1, "topicId": None, **item.data}
    return (
        *item.key.values(), data["offset"], item.at.offset, data["metadata"], data["leaderEpoch"],
        data["commitTimestamp"], data["expireTimestamp"], data["topicId"],
    )  # fmt: skip


def _rows(items: list[Item], *, pending: bool) -> list[tuple[Any, ...]]:
    return sorted((_row(item) for item in items if item.entity == OFFSET_COMMIT and item.pending == pending), key=str)


@pytest.mark.kafka
@pytest.mark.fuzz
def test_effective_offsets_equal_those_of_kafkas_coordinator(tmp_path: Path) -> None:
    """Committed offsets, those that wait for the end of a transaction, and classic groups are those of a broker."""
    from tools.lab import maven
    from tools.lab.internal_oracle import loaded_groups

    if why := maven.missing():
        pytest.skip(why)
    folders = [
        write_random_log(tmp_path / str(seed) / "__consumer_offsets-0", random.Random(seed)) for seed in range(_CASES)
    ]
    different, committed, pending, several = [], 0, 0, 0
    # Kafka's log makes files of its own in the folder.
    kseg = [_items(folder) for folder in folders]
    for folder, items, kafka in zip(folders, kseg, loaded_groups(folders, tmp_path / "classes"), strict=True):
        groups = {item.key["group"]: item.data["generation"] for item in items if item.entity == "GroupMetadata"}
        found = (_rows(items, pending=False), _rows(items, pending=True), groups)
        wanted = (
            *(sorted((tuple(row.values())[1:] for row in kafka[name]), key=str) for name in ("committed", "pending")),
            kafka["groups"],
        )
        if found != wanted or "error" in kafka:
            different.append((folder, found, kafka))
        committed += len(kafka["committed"])
        pending += len(kafka["pending"])
        several += len(kafka["pending"]) > len({tuple(row.values())[1:4] for row in kafka["pending"]})
    assert different == []
    # The logs are worth the comparison.
    assert committed > 2 * _CASES
    assert pending > _CASES
    assert several > 0.05 * _CASES
