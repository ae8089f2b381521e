"""A small tiered topic of a real broker: its bucket, the log directory with its metadata, and the segments before.

``python -m tools.lab.tiered_fixtures`` writes ``fixtures/tiered/reference``.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource

from tools.lab.internal_fixtures import PLUGINS, SETTINGS, VERSION
from tools.lab.kraft import KraftBroker
from tools.lab.modern_fixtures import create_topic

OUT = Path(__file__).resolve().parents[2] / "fixtures" / "tiered" / "reference"
TOPIC = "tiered"
#: Settings of the broker, without the fast snapshots of ``internal_fixtures``.
TIERED = {name: value for name, value in SETTINGS.items() if name.startswith(("remote.", "rlmm.", "log.retention"))}
TOPIC_SETTINGS = {
    "remote.storage.enable": "true",
    "internal.segment.bytes": "1500",
    "local.retention.bytes": "2000",
    "retention.bytes": "-1",
    "retention.ms": "-1",
}
BUCKET = "kafka-tiered-storage"
_WAIT = 60.0


def fill(broker: KraftBroker, first: int, count: int) -> None:
    """Produce idempotently, one batch per record, so that segments have several batches."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "log_level": 0})
    for number in range(first, first + count):
        producer.produce(TOPIC, b"%d " % number * 30, b"key %d" % number, timestamp=1_700_000_000_000 + number)
        assert not producer.flush(30)


def local_starts(log_dir: Path) -> list[int]:
    """Return the first local offset of each partition."""
    folders = sorted(log_dir.glob(f"{TOPIC}-*"))
    return [min(int(path.stem) for path in folder.glob("*.log")) for folder in folders]


def tier(folder: Path, *, keep: Path | None = None) -> KraftBroker:
    """Run a broker until its old segments are only in the bucket, in two leader epochs, and stop it.

    ``keep`` gets the log directory before segments are deleted from it. The bucket is in ``folder / "tier"``.
    """
    settings = {**TIERED, "rsm.config.dir": str(folder / "tier")}
    broker = KraftBroker(VERSION, folder, settings, plugins=PLUGINS)
    with broker:
        create_topic(broker, TOPIC, TOPIC_SETTINGS | {"local.retention.bytes": "-2"})
        fill(broker, 0, 14)
    with broker:
        fill(broker, 14, 14)
        _wait_for(lambda: _uploaded(folder) == _closed(broker.log_dir))
        if keep:
            shutil.copytree(broker.log_dir / f"{TOPIC}-0", keep)
        change = ConfigEntry("local.retention.bytes", "2000", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, TOPIC, incremental_configs=[change])
        admin = broker.admin()  # a client that is dropped fails its own calls
        admin.incremental_alter_configs([resource])[resource].result(30)
        _wait_for(lambda: max(local_starts(broker.log_dir)) > 0)
        time.sleep(2)  # the metadata of the last uploads
    return broker


def _uploaded(folder: Path) -> int:
    return len([*(folder / "tier").rglob("*.leader_epoch_checkpoint")])


def _closed(log_dir: Path) -> int:
    return sum(len([*folder.glob("*.log")]) - 1 for folder in log_dir.glob(f"{TOPIC}-*"))


def _wait_for(done: object) -> None:
    end = time.monotonic() + _WAIT
    while not done():  # type: ignore[operator]
        if time.monotonic() > end:
            raise TimeoutError("the segments are not tiered")
        time.sleep(0.3)


def make(out: Path) -> None:
    """Write the fixture."""
    with tempfile.TemporaryDirectory(prefix="kseg-lab-") as work:
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True)
        broker = tier(Path(work), keep=out / "before" / f"{TOPIC}-0")
        shutil.copytree(Path(work) / "tier" / BUCKET, out / "bucket")
        for name in (f"{TOPIC}-0", "__remote_log_metadata-0", "__cluster_metadata-0"):
            shutil.copytree(broker.log_dir / name, out / "logs" / name, ignore=shutil.ignore_patterns("*.deleted"))
        for path in (*broker.log_dir.glob("*-checkpoint"), broker.log_dir / "meta.properties"):
            shutil.copy2(path, out / "logs")


if __name__ == "__main__":
    make(OUT)
