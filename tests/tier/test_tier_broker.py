"""A broker with Kafka's ``LocalTieredStorage``: a healthy bucket has no problem, and a fetched partition is loaded again."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")

from tests.support.cli import invoke
from tests.support.cluster_content import produce, read_all, strays
from tools.lab import tiered_fixtures
from tools.lab.kraft import KraftBroker

pytestmark = pytest.mark.kafka


def problems(*arguments: object) -> list[str]:
    done = invoke("tier", "check", *arguments, "--format", "jsonl")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    found = [row["problem"] for row in rows if row["kind"] == "tier_problem"]
    assert done.exit_code == bool(found), done.output
    return found


def test_a_tiered_partition_is_checked_and_brought_back(tmp_path: Path) -> None:
    """The records that only the bucket had are those that consumers of the first cluster read through it."""
    broker = tiered_fixtures.tier(tmp_path / "old", keep=tmp_path / "before")
    bucket = tmp_path / "old" / "tier" / tiered_fixtures.BUCKET
    assert problems(bucket, broker.log_dir, broker.log_dir) == []
    with broker:
        seen = {one for one in read_all(broker.bootstrap) if one[0] == tiered_fixtures.TOPIC}
    assert len(seen) == 28
    target = tmp_path / "logs"
    done = invoke("tier", "fetch", bucket, "-o", target)
    assert done.exit_code == 0, done.output
    for path in (target / "tiered-0").iterdir():
        assert path.read_bytes() == (tmp_path / "before" / path.name).read_bytes(), path.name
    done = invoke("adopt", "--node", f"1={target}", "--no-metadata", "--release", "4.3", "-o", tmp_path / "new")
    assert done.exit_code == 0, done.output
    with KraftBroker("4.3.0", tmp_path / "new" / "node-1") as again:
        end = max(int(path.stem) for path in (target / "tiered-0").glob("*.snapshot"))
        assert read_all(again.bootstrap) == {one for one in seen if (one[2] or 0) < end}
        produce(again.bootstrap, tiered_fixtures.TOPIC, 10, idempotent=True)
        assert not strays(again.log_dir)
    # Faults of the bucket, one after the other.
    (folder,) = bucket.iterdir()
    first = next(folder.glob(f"{0:020}*.log"))
    copy = folder / f"{0:020}-zzzzzzzzzzzzzzzzzzzzzw.log"
    shutil.copyfile(first, copy)
    os.utime(copy, (0, 0))
    assert problems(bucket, broker.log_dir, broker.log_dir) == ["orphan"]
    os.truncate(first, first.stat().st_size - 10)
    assert problems(bucket, broker.log_dir, broker.log_dir) == ["size-mismatch", "orphan"]
    first.unlink()
    assert problems(bucket, broker.log_dir, broker.log_dir) == ["lost-object", "orphan"]
