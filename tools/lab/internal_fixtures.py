"""The internal topics of a broker with every kind of group, transactions, tiered storage and administrators.

``none-consumer-offsets`` and other folders of ``modern_fixtures`` have the internal records that its scenes cause.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from kseg.commands.dump.dump_items import BatchItem
from kseg.commands.dump.dumped_rows import DumpRequest
from kseg.format.storage.naming import CONSUMER_OFFSETS, INTERNAL_TOPICS, REMOTE_LOG_METADATA
from kseg.format.storage.segment_files import SegmentFile
from tools.lab import scenes
from tools.lab.kraft import KraftBroker
from tools.lab.modern_fixtures import create_topic, save
from tools.lab.oracle import ANSWERS, run_java

VERSION = "4.3.0"
#: Jars of clients and plugins in addition to the broker's own.
PLUGINS = "4.3.0-internal"
WHAT = "classic, consumer, share and streams groups, transactions, tiered storage, administrators"
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "group.share.min.record.lock.duration.ms": "1000",
    "share.coordinator.snapshot.update.records.per.snapshot": "3",
    "metadata.log.max.record.bytes.between.snapshots": "6000",
    "remote.log.storage.system.enable": "true",
    "remote.log.storage.manager.class.name": "org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
    "remote.log.storage.manager.impl.prefix": "rsm.config.",
    "remote.log.metadata.manager.impl.prefix": "rlmm.config.",
    "remote.log.metadata.manager.listener.name": "PLAINTEXT",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
    "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
    "remote.log.manager.task.interval.ms": "500",
    "log.retention.check.interval.ms": "1000",
}


def make(out: Path) -> list[Path]:
    """Writes a folder for each of INTERNAL_TOPICS into `out`."""
    with tempfile.TemporaryDirectory(prefix="kseg-lab-") as work:
        settings = {**SETTINGS, "rsm.config.dir": f"{work}/tier"}
        with KraftBroker(VERSION, Path(work), settings, plugins=PLUGINS) as broker:
            create_topic(broker, "plain", {})
            create_topic(broker, "tiered", {"remote.storage.enable": "true", "internal.segment.bytes": "1500"})
            scenes.mixed(broker, "plain")
            scenes.groups(broker, "plain")
            scenes.segments(broker, "tiered")
            program = str(Path(__file__).with_name("InternalTopics.java"))
            run_java(VERSION, program, [broker.bootstrap, "plain"], plugins=PLUGINS)
            alive = [scenes.transactions(broker, "plain"), scenes.open_commit(broker, "plain")]
            # Each copied segment has two records, started and finished; so has each deleted one, and the topic.
            scenes.wait_for(lambda: _told(broker) >= 4, "segments in the tier")
            copied = _told(broker)
            admin = broker.admin()
            admin.delete_topics(["tiered"])["tiered"].result(30)
            scenes.wait_for(lambda: _told(broker) > copied + 2, "the end of the tiered topic")
            answers = scenes.committed_offsets(broker)
        del alive
        (broker.partition(CONSUMER_OFFSETS) / ANSWERS).write_text(
            json.dumps(answers, indent=1) + "\n", encoding="utf-8"
        )
        return [
            save(broker.partition(topic), out, VERSION, f"none-internal{topic.replace('_', '-')[1:]}", WHAT)
            for topic in INTERNAL_TOPICS
        ]


def _told(broker: KraftBroker) -> int:
    """Records of the tier's metadata."""
    log = SegmentFile(str(broker.partition(REMOTE_LOG_METADATA) / f"{0:020}.log"))
    items = DumpRequest().items(log, check=False)
    return sum(item.batch.record_count or 0 for item in items if isinstance(item, BatchItem))
