"""Logs of replicas in batches of any size, and what `kseg diff` reports of two of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kseg.format.writer.records_builder import PlainRecord, build_batch
from tests.support import damage
from tests.support.cli import kseg_here as kseg

NOW = 1_700_000_000_000


def record(offset: int, value: bytes | None = None) -> PlainRecord:
    return PlainRecord(offset, b"key-%d" % offset, b"value-%d" % offset if value is None else value, NOW + offset)


def batch(records: Sequence[PlainRecord], codec: str = "none", leader_epoch: int = 0, **fields: Any) -> bytes:
    built = build_batch(records, base_offset=records[0].offset, compression=codec, **fields)
    return damage.put(built, 0, partition_leader_epoch=leader_epoch)


def log(
    offsets: Sequence[int], size: int = 4, codec: str = "none", values: Mapping[int, bytes] | None = None
) -> list[bytes]:
    """Batches of ``size`` records each; ``values`` by offset if they differ from the usual ones."""
    records = [record(offset, (values or {}).get(offset)) for offset in offsets]
    return [batch(records[i : i + size], codec) for i in range(0, len(records), size)]


def write(folder: Path, *segments: list[bytes]) -> Path:
    """Write a partition folder; a segment's name is the offset of its first batch."""
    folder.mkdir(parents=True, exist_ok=True)
    for batches in segments:
        base = damage.get(batches[0], 0, "base_offset") if batches else 0
        (folder / f"{base:020}.log").write_bytes(b"".join(batches))
    return folder


def diff(a: Path, b: Path, *options: object) -> tuple[int, list[dict[str, Any]], dict[str, Any]]:
    """Return exit code, differences and outcome."""
    run = kseg("diff", "--format", "jsonl", *options, a, b)
    rows = [json.loads(line) for line in run.stdout.splitlines()]
    assert [row["kind"] for row in rows] == ["difference"] * (len(rows) - 1) + ["diff"], run.stderr
    return run.returncode, rows[:-1], rows[-1]


def differences(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(row["difference"], row["lacking"], row["first_offset"], row["last_offset"]) for row in rows]
