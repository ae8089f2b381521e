"""The data source that Spark calls: options and schema on the driver, splits and filters, rows in the tasks.

A problem with a path or an option is raised by ``schema`` (or ``reader``, where a schema is given), so that it comes
at ``load()`` and not from a task that a cluster would try four times.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from kseg.spark import options as reader_options
from kseg.spark.options import Limits, Options, narrowed
from kseg.spark.planning import Split, check_paths, plan
from kseg.spark.reading import read
from kseg.spark.streaming import KsegStreamReader
from kseg.spark.views import ddl

# With what a worker has imported frozen, its collections, one a task, take 10 ms less; frozen in every task, what the
# tasks leave behind would never be freed.
_FREEZES = 3
_freezes = 0


class KsegDataSource(DataSource):
    """``spark.read.format("kseg")``, and ``readStream``."""

    @classmethod
    def name(cls) -> str:
        return "kseg"

    def schema(self) -> str:
        """The view's columns. Raises UsageError and UnreadableError."""
        options = self._options(None)
        check_paths(options)
        return ddl(options.columns)

    def reader(self, schema: StructType) -> KsegReader:
        """Raises UsageError and UnreadableError."""
        return KsegReader(self._checked(schema))

    def streamReader(self, schema: StructType) -> KsegStreamReader:  # noqa: N802
        """Raises UsageError and UnreadableError."""
        return KsegStreamReader(self._checked(schema))

    def _checked(self, schema: StructType) -> Options:
        options = self._options([(field.name, field.dataType.simpleString()) for field in schema.fields])
        check_paths(options)
        return options

    def _options(self, schema: list[tuple[str, str]] | None) -> Options:
        return reader_options.parse(dict(self.options), schema)


class _PushFilters:
    """A reader's ``pushFilters``.

    With spark.sql.python.filterPushdown.enabled off, as it is by default, Spark refuses readers that override the
    method, and tells them by its ``__func__``. This one has the base's: filters are taken where they are offered, and
    the query runs where they are not.
    """

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, reader: KsegReader) -> None:
        self._reader = reader

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        return self._reader.push(filters)


class KsegReader(DataSourceReader):
    """Plans a read, and reads its splits. ``limits`` are the options' and those of the filters pushed down."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.limits: Limits = options.limits

    @property
    def pushFilters(self) -> Callable[[list[Filter]], Iterable[Filter]]:  # noqa: N802
        return _PushFilters(self)

    def push(self, filters: list[Filter]) -> list[Filter]:
        """Narrow the limits, if that was asked for. All filters are given back: rows may still hold what they exclude."""
        if self.options.pushdown:
            self.limits = narrowed(self.options.limits, filters)
        return filters

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(split) for split in plan(self.options, self.limits)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows of a split as Arrow record batches; nothing for Spark's own partition of an empty plan."""
        global _freezes
        if _freezes < _FREEZES:
            _freezes += 1
            gc.freeze()
        return read(self.options, self.limits, partition.value or Split())
