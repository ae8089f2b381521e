"""The last proof: a real broker serves converted partitions, and its own indexes are the ones that kseg built."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kseg.conversion_plan import Plan
from kseg.convert import convert
from kseg.records_builder import PlainRecord, build_message, build_wrapper
from tests.lab import maven
from tests.test_fixtures import SEGMENTS, expected

pytestmark = pytest.mark.interop
NAME = "00000000000000000000.log"
NOW = 1_700_000_000_000
SETS = 60
# As the lab's brokers have it, whose indexes hold 1200 bytes: a log that needs more makes recovery fail for good.
INDEX_INTERVAL = 512


@pytest.fixture(autouse=True)
def _real_kafka() -> None:
    reason = maven.missing()
    if reason:
        pytest.skip(reason)


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


@pytest.mark.parametrize("trusted", [False, True], ids=["recovered", "trusted"])
def test_a_broker_serves_it(trusted: bool, tmp_path: Path) -> None:
    """After a crash the broker recovers the segments; after a clean stop it takes log and indexes as they are."""
    from tests.lab.serve import serve_and_consume

    source, target, kept = tmp_path / "old-0", tmp_path / "new-0", tmp_path / "kept"
    source.mkdir()
    (source / NAME).write_bytes(old_log())
    convert(str(source), str(target), replace(Plan.of("any-to-v2"), index_interval=INDEX_INTERVAL))
    consumed = serve_and_consume(target, "converted", trusted=trusted, keep=kept)
    assert len(consumed) == SETS * 12
    assert [row["offset"] for row in consumed] == [24 * n + 2 * i for n in range(SETS) for i in range(12)]
    assert (kept / NAME).read_bytes() == (target / NAME).read_bytes()
    for suffix in (".index", ".timeindex"):
        mine = (target / NAME).with_suffix(suffix).read_bytes()
        assert len(mine) > 100
        assert (kept / NAME).with_suffix(suffix).read_bytes() == mine


@pytest.mark.parametrize(
    "folder", ["0.8.2.2-v0-lz4", "0.10.2.2-v1-gzip-log-append-time", "2.8.2-v0v1v2-mixed", "2.8.2-v2v1v0v2-downgraded"]
)
def test_a_broker_serves_real_old_segments(folder: str, tmp_path: Path) -> None:
    from tests.lab.serve import serve_and_consume

    target = tmp_path / "new-0"
    target.mkdir()
    wanted: list[dict[str, Any]] = []
    for name, rows in expected(SEGMENTS / folder).items():
        convert(str(SEGMENTS / folder / name), str(target / name), Plan.of("any-to-v2"))
        wanted += [row for row in rows if row["kind"] == "record" and row["control"] is None]
    assert wanted
    consumed = serve_and_consume(target, "converted")
    for name in ("offset", "timestamp", "key", "value", "headers"):
        assert [row[name] for row in consumed] == [row[name] for row in wanted]
