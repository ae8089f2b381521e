"""Read a stream of the data source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql.streaming.datasource import ReadAllAvailable

from kseg.spark.options import parse
from kseg.spark.streaming import KsegStreamReader

ALL = ReadAllAvailable()


def reader(path: Path, **options: object) -> KsegStreamReader:
    """Return the reader of a stream of the records with their damage, or of another view."""
    if "view" not in options:
        options.setdefault("columns", "*,damage")
    return KsegStreamReader(parse({"path": str(path), **{name: str(value) for name, value in options.items()}}))


def rows(stream: KsegStreamReader, start: dict[str, int], end: dict[str, int]) -> list[dict[str, Any]]:
    found = [
        row for split in stream.partitions(start, end) for batch in stream.read(split) for row in batch.to_pylist()
    ]
    return sorted(found, key=lambda row: (row["file"], row["position"], row["offset"]))
