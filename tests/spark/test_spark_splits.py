"""Splits of Spark's data source give the rows of one reading, with damage at their boundaries, in every mode.

The source plans and reads in this process, without Spark.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from kseg.errors import KsegError
from tests.support.damaged_cases import Case, chunks, damaged, seeds, written

pytest.importorskip("pyspark", reason="pyspark is not installed")

from kseg.spark.data_source import KsegReader
from kseg.spark.options import parse

pytestmark = [pytest.mark.spark, pytest.mark.fuzz]
WHOLE = 1 << 30


def rows_of(path: Path, split_bytes: int, options: dict[str, str]) -> tuple[list[dict[str, Any]] | None, int]:
    """Return the rows (None if there was an error) and the number of splits."""
    reader = KsegReader(parse({"path": str(path), "splitbytes": str(split_bytes), **options}))
    splits = list(reader.partitions())
    pieces = sum(len(split.value) for split in splits)
    try:
        found = [row for split in splits for batch in reader.read(split) for row in batch.to_pylist()]
    except KsegError:
        return None, pieces
    # Of the rows of one split, those of damage come first.
    return sorted(
        found, key=lambda row: (row["position"] or 0, row.get("offset") or 0, row.get("damage") or "")
    ), pieces


def source_of(folder: Path, random: Random, case: Case) -> Path:
    path = written(folder, case)
    if random.random() < 0.3:
        path.with_suffix(".index").unlink()
    return path


@chunks
def test_rows_of_splits(chunk: int, tmp_path: Path) -> None:
    """Splits give the rows of one reading."""
    split = 0
    for seed in seeds(chunk, 40):
        random = Random(seed)
        path = source_of(tmp_path / f"orders-{seed}", random, damaged(seed))
        options = {
            "view": random.choice(("records", "records", "batches")),
            "columns": "*,damage",
            "mode": random.choice(("permissive", "permissive", "dropmalformed", "failfast")),
            "verifycrc": random.choice(("true", "true", "true", "false")),
        }
        whole, _ = rows_of(path, WHOLE, options)
        for split_bytes in (3_000, 9_000):
            rows, pieces = rows_of(path, split_bytes, options)
            assert rows == whole, (seed, split_bytes)
            split += pieces > 1
    assert split
