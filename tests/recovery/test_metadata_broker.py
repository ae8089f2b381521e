"""What validate and recovery say of a metadata log is what a real node does with it (Kafka 4.3.0)."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from kseg import validate
from tests.support.cli import kseg
from tests.support.damage import entries, get
from tests.support.metadata_logs import Change, appended, folder_for, uuid

pytestmark = pytest.mark.kafka

VERSION = "4.3.0"
#: Each ends a controller, whose process is also the broker's.
CHANGES: dict[str, Change] = {
    "RemoveTopic": ("RemoveTopic", 0, {"topicId": uuid(5)}),
    "FenceBroker": ("FenceBroker", 0, {"id": 1, "epoch": 4711}),
}


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A node with a topic and snapshots, after a clean stop."""
    pytest.importorskip("confluent_kafka")
    from confluent_kafka.cimpl import NewTopic

    from tools.lab import maven
    from tools.lab.kraft import KraftBroker

    if why := maven.missing():
        pytest.skip(why)
    folder = tmp_path_factory.mktemp("node")
    with KraftBroker(VERSION, folder, {"metadata.log.max.snapshot.interval.ms": "500"}) as node:
        admin = node.admin()
        for created in admin.create_topics([NewTopic("orders", 2, 1)]).values():
            created.result(30)
    return folder


def _failure(folder: Path) -> str | None:
    """Start the node and stop it: the end of its output, if it did not start."""
    from tools.lab.kraft import KraftBroker

    try:
        with KraftBroker(VERSION, folder, plugins="slf4j-simple"):
            return None
    except RuntimeError as failure:
        return str(failure)


def _copy(stopped: Path, tmp_path: Path) -> tuple[Path, Path]:
    node = tmp_path / "node"
    shutil.copytree(stopped, node)
    return node, folder_for(node / "logs")


def _append(metadata: Path, change: Change) -> int:
    """Append a record to the log, and return its offset."""
    log = max(metadata.glob("*.log"))
    data = appended(log.read_bytes(), change)
    log.write_bytes(data)
    return get(data, entries(data)[-1].at, "base_offset")


@pytest.mark.parametrize("record", CHANGES)
def test_a_record_that_ends_a_node_is_named_and_a_later_snapshot_lets_it_start(
    stopped: Path, tmp_path: Path, record: str
) -> None:
    """kseg names the record on which the process ends, and the remedy of the rule starts the node."""
    node, metadata = _copy(stopped, tmp_path)
    offset = _append(metadata, CHANGES[record])

    found = [one for one in validate(metadata).findings if one.rule.name == "metadata-not-replayable"]
    assert [(one.offset, one.finding.facts["record"]) for one in found] == [(offset, record)]
    assert f"the {record} record at offset {offset}" in kseg("recovery", node / "logs").stdout
    assert _failure(node) is not None
    output = (node / "broker.out").read_text()
    assert re.search(rf"fatal fault: .* offset {offset}\b", output), output

    newest = max(metadata.glob("*.checkpoint"))
    shutil.copy(newest, metadata / f"{offset + 1:020d}-{newest.name.split('-')[1]}")
    assert validate(metadata).verdict == "sound"
    assert _failure(node) is None


def test_a_log_without_the_snapshot_of_its_beginning_does_not_start(stopped: Path, tmp_path: Path) -> None:
    node, metadata = _copy(stopped, tmp_path)
    log = metadata / f"{0:020}.log"
    data = log.read_bytes()
    first = entries(data)[5].at
    base = get(data, first, "base_offset")
    for path in (*metadata.glob("*.checkpoint"), *metadata.glob(f"{0:020}.*")):
        path.unlink()
    (metadata / f"{base:020}.log").write_bytes(data[first:])

    assert "metadata-snapshot-missing" in {one.rule.name for one in validate(metadata).findings}
    assert f"the log begins at offset {base}" in kseg("recovery", node / "logs").stdout
    assert _failure(node) is not None
