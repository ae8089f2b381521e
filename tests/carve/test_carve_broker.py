"""A broker serves what ``kseg carve`` found in an image: the records that producers wrote, at their offsets."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cli import invoke

pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")


from tests.support.cluster_content import produce, read_all, strays
from tests.support.cut_images import cut, unpack_twins
from tools.lab.carve_fixtures import TOPICS, batches
from tools.lab.kraft import KraftBroker

pytestmark = pytest.mark.kafka


def run(*arguments: object) -> int:
    return invoke(*arguments).exit_code


def test_carved_groups_are_partitions_of_a_broker(tmp_path: Path) -> None:
    """Groups that are named and adopted: consumers get each record that has a batch, and producers can go on."""
    files = {name: data for name, data in unpack_twins(tmp_path / "twins").items() if name.endswith(".log")}
    image = cut(files, 2)
    found = image.carve(tmp_path / "image")
    assert run("carve", tmp_path / "image", "-o", tmp_path / "carved") in (0, 1)
    (tmp_path / "logs").mkdir()
    expected = set()
    written = {(topic, n): written_to(topic, n) for topic in TOPICS for n in range(3)}
    for group in found.groups:
        (name,) = image.partitions([part for part, _ in group.parts])
        place = tmp_path / "logs" / name
        if place.exists():  # a part that nothing joins to the first one
            continue
        (tmp_path / "carved" / group.name).rename(place)
        topic, _, number = name.rpartition("-")
        records = written[topic, int(number)]
        for part, at in group.parts:
            begin = part.first if not at else part.lasts[at - 1] + 1
            expected |= {(topic, int(number), offset, *records[offset]) for offset in range(begin, part.last + 1)}
    assert len(expected) > 0.8 * sum(map(len, written.values()))
    assert run("adopt", "--node", f"1={tmp_path / 'logs'}", "--release", "4.3", "-o", tmp_path / "new") == 0
    with KraftBroker("4.3.0", tmp_path / "new" / "node-1") as broker:
        seen = {
            (topic, n, offset, key, value, stamp)
            for topic, n, offset, key, value, _, stamp in read_all(broker.bootstrap)
        }
        assert seen == expected
        produce(broker.bootstrap, TOPICS[0], 30, idempotent=True)
        assert not strays(broker.log_dir)


def written_to(topic: str, number: int) -> list[tuple[bytes, bytes, int]]:
    """Return the records of a partition by offset."""
    return [
        record
        for phase in range(2)
        for partition, records in batches(topic, phase)
        if partition == number
        for record in records
    ]
