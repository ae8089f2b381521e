"""The data source that Spark calls: options and schema on the driver, splits and filters, rows in the tasks.

``schema`` (or ``reader``, if the user gives a schema) raises problems with paths and options, so that they appear at
``load()`` and not in a task that a cluster would try four times.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from kseg.extras.views.planning import Split, check_paths, plan
from kseg.extras.views.split_rows import Task, read
from kseg.format.segment.row_filter import RowFilter
from kseg.format.storage import remote_files
from kseg.spark import options as reader_options
from kseg.spark.jobs.segment_sink import SegmentSink, SinkOptions
from kseg.spark.options import Options, apply_filters, ddl
from kseg.spark.streaming import KsegStreamReader

# gc.freeze after the imports saves 10 ms per task, because each task runs a collection. Frozen in every task, the garbage
# of the tasks would never be freed.
_FREEZES = 3
_freezes = 0


class KsegDataSource(DataSource):
    """``spark.read.format("kseg")``, ``readStream``, and ``df.write``."""

    @classmethod
    def name(cls) -> str:
        return "kseg"

    def schema(self) -> str:
        """Return the columns of the view. Raises UsageError and UnreadableError."""
        return ddl(self._checked(None).columns)

    def reader(self, schema: StructType) -> KsegReader:
        """Return the reader of a batch query. Raises UsageError and UnreadableError."""
        return KsegReader(self._checked(schema))

    def streamReader(self, schema: StructType) -> KsegStreamReader:  # noqa: N802
        """Return a stream reader. Raises UsageError and UnreadableError."""
        return KsegStreamReader(self._checked(schema))

    def writer(self, schema: StructType, overwrite: bool) -> SegmentSink:
        """Return the writer of segments. Raises UsageError."""
        options = SinkOptions.of_spark(dict(self.options))
        options.check_columns(schema.fieldNames())
        return SegmentSink(options, overwrite)

    def _checked(self, schema: StructType | None) -> Options:
        """Return the options for a user's schema, None without one."""
        given = None if schema is None else [(one.name, one.dataType.simpleString()) for one in schema.fields]
        options = reader_options.parse(dict(self.options), given)
        with options.file_access():
            check_paths(options)
        return options


class _PushFilters:
    """A reader's ``pushFilters``.

    If spark.sql.python.filterPushdown.enabled is off, which is the default, Spark rejects readers that override the
    method; it compares ``__func__`` with the one of the base class. This object has the ``__func__`` of the base: it
    accepts filters if Spark offers them, and the query also runs if it does not.
    """

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, reader: KsegReader) -> None:
        self._reader = reader

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        return self._reader.push(filters)


class KsegReader(DataSourceReader):
    """Plans a read and reads its splits. ``limits`` combine the options and the pushed filters."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.limits: RowFilter = options.limits

    @property
    def pushFilters(self) -> Callable[[list[Filter]], Iterable[Filter]]:  # noqa: N802
        return _PushFilters(self)

    def push(self, filters: list[Filter]) -> list[Filter]:
        """Narrow the limits, if pushdown is enabled. Returns all filters: Spark must still apply them to the rows."""
        if self.options.pushdown:
            self.limits = apply_filters(self.options.limits, filters)
        return filters

    def partitions(self) -> list[InputPartition]:
        with self.options.file_access():
            return [InputPartition(split) for split in plan(self.options, self.limits)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the rows of a split as Arrow record batches; none for the partition that Spark adds to an empty plan."""
        global _freezes
        if _freezes < _FREEZES:
            _freezes += 1
            gc.freeze()
        remote_files.forget()  # the worker may have run a task of an earlier query
        with self.options.file_access():
            yield from read(Task(self.options, self.limits, self.options.notices), partition.value or Split())
