"""A real broker serves converted partitions, and builds the same indexes as kseg.

One broker has all partitions. It shuts down cleanly and loads them unchanged, crashes and recovers every segment, and
runs its log cleaner once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from kseg.commands.convert.conversion import convert
from kseg.commands.convert.conversion_plan import ConversionPlan
from kseg.format.writer.records_builder import PlainRecord, build_message, build_wrapper
from tests.support.fixtures import SEGMENTS, expected
from tools.lab.oracle import Row

pytestmark = pytest.mark.kafka
NAME = "00000000000000000000.log"
NOW = 1_700_000_000_000
SETS = 60
# The lab's brokers have this setting: 1200 bytes per index. A log that needs more makes recovery fail.
INDEX_INTERVAL = 512
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
FOLDERS = ("0.8.2.2-v0-lz4", "0.10.2.2-v1-gzip-log-append-time", "2.8.2-v0v1v2-mixed", "2.8.2-v2v1v0v2-downgraded")
SEEN = ("offset", "timestamp", "key", "value", "headers")


@dataclass(frozen=True, slots=True)
class Topic:
    """A converted partition, and the rows of its source that a consumer must get."""

    name: str
    folder: Path
    rows: list[Row]

    @property
    def offsets(self) -> dict[int, int | None]:
        """Offsets to seek, each with the first record there: at records, in gaps, at the start and after the end."""
        known = [row["offset"] for row in self.rows]
        wanted = {known[0], known[-1], known[-1] + 1, *known[:: max(1, len(known) // 5)]}
        wanted |= {offset + 1 for offset in known[:: max(1, len(known) // 3)]}
        return {each: next((offset for offset in known if offset >= each), None) for each in sorted(wanted)}

    @property
    def timestamps(self) -> dict[int, int | None]:
        """Times to look up, each with the first record that is not older:

        the smallest, the largest, some between, and later ones.
        """
        stamps = sorted({row["timestamp"] for row in self.rows if row["timestamp"] is not None}) or [NOW]
        wanted = {stamps[0] - 1, stamps[-1], stamps[-1] + 1, *stamps[:: max(1, len(stamps) // 6)]}
        return {each: self._first_not_older(each) for each in sorted(wanted)}

    def _first_not_older(self, timestamp: int) -> int | None:
        late = (row["offset"] for row in self.rows if row["timestamp"] is not None and row["timestamp"] >= timestamp)
        return next(late, None)


def old_log() -> bytes:
    """v0 and v1, every codec, with timestamps that go back and forth."""
    out = []
    offset = 0
    for n in range(SETS):
        magic = n % 2
        stamps = [NOW + (n ^ 5) * 1000 + i if magic else -1 for i in range(12)]
        records = [PlainRecord(offset + 2 * i, b"k%d" % i, b"%d" % n * 60, stamps[i]) for i in range(12)]
        codec = ("none", "gzip", "snappy", "lz4")[n // 2 % 4]
        if codec == "none":
            out += [build_message(record, magic=magic) for record in records]
        else:
            out.append(build_wrapper(records, magic=magic, compression=codec))
        offset += 24
    return b"".join(out)


def consumed(row: Row) -> dict[str, Any]:
    return {name: row[name] for name in SEEN}


def topics(work: Path) -> Iterator[Topic]:
    """Partitions of each codec, generated, and folders that old brokers wrote."""
    from tools.lab import oracle

    source = work / "source-0"
    source.mkdir()
    (source / NAME).write_bytes(old_log())
    written = [consumed(row) for row in oracle.rows_of([source / NAME])[source / NAME] if row["kind"] == "record"]
    assert len(written) == SETS * 12
    for codec in CODECS:
        target = work / codec
        convert(
            str(source),
            str(target),
            replace(ConversionPlan.of("any-to-v2", compression=codec), index_interval=INDEX_INTERVAL),
        )
        yield Topic(codec, target, written)
    for folder in FOLDERS:
        target = work / folder
        target.mkdir()
        rows: list[Row] = []
        for name, rows_by_kafka in expected(SEGMENTS / folder).items():
            plan = replace(ConversionPlan.of("any-to-v2"), index_interval=INDEX_INTERVAL)
            convert(str(SEGMENTS / folder / name), str(target / name), plan)
            rows += [consumed(row) for row in rows_by_kafka if row["kind"] == "record" and row["control"] is None]
        assert rows
        yield Topic(folder, target, rows)


def test_a_broker_lives_with_it(tmp_path: Path) -> None:
    """A real broker serves converted partitions through shutdown, crash and cleaning."""
    from tools.lab import scenes, serve
    from tools.lab.kraft import KraftBroker
    from tools.lab.modern_fixtures import COMPACT, create_topic
    from tools.lab.oracle import VERSION

    served = list(topics(tmp_path))
    compacted = replace(served[CODECS.index("lz4")], name="compacted")
    with KraftBroker(VERSION, tmp_path / "broker", {"max.message.bytes": str(1 << 27)}) as broker:
        for topic in served:
            create_topic(broker, topic.name, {})
        create_topic(broker, compacted.name, {**COMPACT, "segment.ms": "1000"})
        broker.stop()
        for topic in (*served, compacted):
            serve.put(topic.folder, broker.partition(topic.name), side_files=True)
        broker.start()
        for topic in (*served, compacted):
            check(broker, topic)
        broker.kill()
        serve.forget_clean_stop(broker)
        broker.start()
        for topic in (*served, compacted):
            check(broker, topic)
        # A cleaner never reads the active segment: this rolls it, seconds after the broker loaded it.
        scenes.Writer(broker, compacted.name).batch(((b"last", b"in the active segment"),), NOW + 10**9)
        scenes.wait_for_cleaner(broker, compacted.name)
        check(broker, after_the_cleaner(compacted), spare=1)
        broker.stop()
        for topic in served:
            same_files(topic, broker.partition(topic.name))


def check(broker: Any, topic: Topic, spare: int = 0) -> None:
    """Read every row, and find rows by offset and by time; the last ``spare`` were written since."""
    from tools.lab import serve

    rows = [consumed(row) for row in serve.consume(broker, topic.name)]
    assert rows[: len(rows) - spare] == topic.rows, topic.name
    offsets = {offset: found for offset, found in topic.offsets.items() if found is not None or not spare}
    assert dict(zip(offsets, serve.seek(broker, topic.name, list(offsets)), strict=True)) == offsets, topic.name
    times = {stamp: found for stamp, found in topic.timestamps.items() if found is not None or not spare}
    assert dict(zip(times, serve.find(broker, topic.name, list(times)), strict=True)) == times, topic.name


def after_the_cleaner(topic: Topic) -> Topic:
    last = {row["key"]: row for row in topic.rows}
    assert len(last) == 12
    return replace(topic, rows=sorted(last.values(), key=lambda row: int(row["offset"])))


def same_files(topic: Topic, kept: Path) -> None:
    """Compare the recovered files of the broker with kseg's, including the indexes."""
    logs = sorted(topic.folder.glob("*.log"))
    assert logs
    for log in logs:
        for suffix in (".log", ".index", ".timeindex"):
            mine = log.with_suffix(suffix).read_bytes()
            assert (kept / log.name).with_suffix(suffix).read_bytes() == mine, f"{topic.name}: {log.stem}{suffix}"
    if topic.name in CODECS:
        assert all((topic.folder / NAME).with_suffix(suffix).stat().st_size > 30 for suffix in (".index", ".timeindex"))
