"""The stream reader that Spark calls: offsets for its checkpoint, splits of new data, rows in the tasks.

Spark guarantees exactly-once processing if the source returns the same rows for the same pair of offsets.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from kseg.errors import UsageError
from kseg.spark.source.advance import LogEnds, check_there, limited, splits
from kseg.spark.source.options import Options
from kseg.views.planning import Split
from kseg.views.reading import read

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadMaxBytes,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
except ImportError:  # before Spark 4.2 every trigger reads all available data
    HAS_LIMITS = False
else:
    HAS_LIMITS = True


class KsegStreamReader(DataSourceStreamReader):
    """Follows the partitions of a log dir. Raises UsageError for options that streams do not support."""

    def __init__(self, options: Options) -> None:
        if options.view not in ("records", "batches"):
            raise UsageError(f"view {options.view} cannot be streamed: use records or batches")
        if options.framing:
            raise UsageError("option as cannot be streamed: a stream reads logs")
        limits = (options.stream.max_offsets, options.stream.max_bytes)
        if None not in limits:
            raise UsageError("give maxOffsetsPerTrigger or maxBytesPerTrigger, not both")
        if limits != (None, None) and not HAS_LIMITS:
            raise UsageError("limits of a trigger need Spark 4.2 or newer")
        self.options = options
        self._ends = LogEnds(options)
        self._target: dict[str, int] | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        """Return the start of a query without a checkpoint; a missing partition means the beginning of its log."""
        return self._ends.now({}) if self.options.stream.starting == "latest" else {}

    def latestOffset(self, start: dict[str, int] | None = None, limit: Any = None) -> dict[str, int]:  # noqa: N802
        """Return the end of the next trigger. Spark before 4.2 passes neither start nor limit. Raises DataLost."""
        begun = start or {}
        end = self._ends.now(begun)
        if self._target is not None:
            target = self._target
            end = {
                name: max(begun.get(name, 0), min(offset, target.get(name, 0)))
                for name, offset in end.items()
                if name in begun or name in target
            }
        if limit is not None and not isinstance(limit, ReadAllAvailable):
            rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
            size = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None
            end = limited(self.options, begun, end, rows=rows, size=size)
        return dict(sorted(end.items()))  # Spark compares offsets as text

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        stream = self.options.stream
        if stream.max_offsets is not None:
            return ReadMaxRows(stream.max_offsets)
        return ReadAllAvailable() if stream.max_bytes is None else ReadMaxBytes(stream.max_bytes)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the end of this query: later data belongs to the next query."""
        self._target = self._ends.now({})

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition(split) for split in splits(self.options, start, end)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the rows of a split as Arrow record batches. Raises DataLost if a file has changed since planning."""
        split = partition.value or Split()
        if self.options.stream.fail_on_data_loss:
            check_there(split)
        return read(self.options, self.options.limits, split)


if HAS_LIMITS:
    SupportsTriggerAvailableNow.register(KsegStreamReader)
