"""List a bucket and plan a read of it: seconds, segments and splits as JSON. The bucket is simulated, and answers at once.

Usage: ``python -m bench.programs.plan_bucket SEGMENTS``
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import fsspec
from fsspec.spec import AbstractFileSystem

from kseg.extras.views.planning import Request, plan
from kseg.format.segment.row_filter import RowFilter

#: The segments of a partition, each with an index and a time index, and the offsets of a segment.
SEGMENTS, OFFSETS = 100, 1_000_000
_FILES = ((".index", 40_000), (".log", 1 << 30), (".timeindex", 60_000))


class Bucket(AbstractFileSystem):  # type: ignore[misc]
    """A bucket with ``partitions`` folders. Each answer has new objects with the properties that S3 lists."""

    protocol = "simulated"
    cachable = False
    partitions = 0

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        return _folder(self._strip_protocol(path))

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[dict[str, Any]]:
        if path.endswith("topics"):
            return [_folder(f"{path}/orders.{number // 50}-{number % 50}") for number in range(self.partitions)]
        return [
            _object(f"{path}/{number * OFFSETS:020d}{suffix}", size, number * 3 + kind)
            for number in range(SEGMENTS)
            for kind, (suffix, size) in enumerate(_FILES)
        ]


def _folder(path: str) -> dict[str, Any]:
    return {"name": path, "Key": path, "size": 0, "type": "directory", "StorageClass": "DIRECTORY"}


def _object(path: str, size: int, number: int) -> dict[str, Any]:
    tag = f'"{hash((path, number)) & (1 << 128) - 1:032x}"'
    return {"name": path, "Key": path, "size": size - number, "type": "file", "ETag": tag, "StorageClass": "STANDARD"}


def main() -> None:
    Bucket.partitions = int(sys.argv[1]) // SEGMENTS
    fsspec.register_implementation(Bucket.protocol, Bucket)
    begin = time.perf_counter()
    splits = plan(Request(("simulated://bucket/topics",)), RowFilter())
    seconds = time.perf_counter() - begin
    segments = sum(piece.start == 0 for split in splits for piece in split)
    print(json.dumps({"seconds": seconds, "segments": segments, "splits": len(splits)}))


if __name__ == "__main__":
    main()
