"""A real broker starts with the names that kseg writes next to its files, and not with those that kseg refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cli import invoke
from tests.support.repairing import SOUND

pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")

from tools.lab.kraft import KraftBroker
from tools.lab.modern_fixtures import create_topic

pytestmark = pytest.mark.kafka


def test_a_broker_and_unknown_names(tmp_path: Path) -> None:
    """A report and hidden files do not matter in a partition folder. A log without a number ends the start of a broker."""
    broker = KraftBroker("4.3.0", tmp_path / "broker")
    with broker:
        create_topic(broker, "t", {})
        folder = broker.partition("t")
    copy = tmp_path / "copy.log"
    copy.write_bytes(SOUND.read_bytes())
    allowed = [
        folder / name for name in ("out.txt", ".out.txt.a1b2c3d4.tmp", ".00000000000000000000.log.a1b2c3d4e5f6.old")
    ]
    for path in allowed:
        assert invoke("dump", copy, "-o", path).exit_code == 0
    with broker:
        pass
    assert all(path.exists() for path in allowed)
    refused = [
        (copy, folder / "new.log"),
        (folder, broker.log_dir / "repaired"),
        (folder, broker.log_dir / ".repaired.a1b2c3d4.tmp"),
    ]
    for source, path in refused:
        done = invoke("repair", source, path)
        assert done.exit_code == 2
        assert not path.exists()
        if source.is_dir():
            path.mkdir()
        else:
            path.write_bytes(b"")
        with pytest.raises(RuntimeError), broker:
            pass
        if source.is_dir():
            path.rmdir()
        else:
            path.unlink()
    with broker:
        pass
