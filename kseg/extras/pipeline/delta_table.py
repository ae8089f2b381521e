"""Delta tables, by deltalake and without a JVM. The next offsets are transactions of the table's own log.

Each partition is an application of Delta's ``txn`` actions (``kseg.orders-0``), whose version is the next offset: it is in
the commit of the rows, and checkpoints keep it. The ids of topics and the rows of the run are in the metadata of the commit.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from kseg.engine import lazy
from kseg.errors import UnreadableError, UsageError
from kseg.extras.pipeline.data_files import DataFile, RowRange, as_expression, as_sql, parquet_batches, remove_files
from kseg.extras.pipeline.lake_table import LakeTable, TableState, names_of_folder, store_address
from kseg.extras.pipeline.source_replicas import Loaded
from kseg.extras.pipeline.table_rows import check_evolution
from kseg.format.storage.naming import is_url
from kseg.report.arrow_table import pa

if TYPE_CHECKING:
    import deltalake
    from deltalake import exceptions, transaction
else:
    _NEEDED = "Delta tables need a library: pip install 'kseg[delta]', which has deltalake"
    deltalake = lazy("deltalake", needed=_NEEDED)
    exceptions = lazy("deltalake.exceptions", needed=_NEEDED)
    transaction = lazy("deltalake.transaction", needed=_NEEDED)

#: The key of the state in the metadata of commits, and the application whose version is the number of partitions.
STATE, PARTITIONS = "kseg.state", "kseg.partitions"
#: The column by which a table is partitioned.
DAY = "timestamp_day"
#: The newest commits that are searched first.
_RECENT = 100


class DeltaLakeTable(LakeTable):
    """A Delta table at a folder or URL. The files of killed runs are left to Delta's ``vacuum``."""

    _table: Any = None
    _longest_error = 200

    @property
    def _options(self) -> dict[str, str] | None:
        if not is_url(self.settings.path):
            return None
        address = store_address() or ""
        options = {"aws_conditional_put": "etag", "allow_http": str(address.startswith("http://")).lower()}
        return {**options, "aws_endpoint_url": address} if address else options

    def _load(self) -> Any:
        """Return the table as it is now, None if it does not exist. Raises UnreadableError."""
        with self._one_line_errors(UnreadableError):
            try:
                self._table = deltalake.DeltaTable(self.settings.path, storage_options=self._options)
            except exceptions.TableNotFoundError:
                self._table = None
        return self._table

    def _application(self, partition: int) -> str:
        return f"kseg.{self.settings.topic}-{partition}"

    def read_state(self) -> TableState | None:
        table = self._load()
        if table is None:
            if names := names_of_folder(self.settings.path):
                raise UsageError(
                    f"{self.settings.shown} is not a Delta table: it has {min(names)}: give another folder"
                )
            return None
        count = table.transaction_version(PARTITIONS)
        if count is None:
            if table.file_uris():
                raise UsageError(f"{self.settings.shown} has rows that no pipeline has loaded: give another folder")
            return TableState()
        known = self._last_commit()
        offsets = {}
        for partition in range(count):
            version = table.transaction_version(self._application(partition))
            if version is not None:
                name = f"{self.settings.topic}-{partition}"
                same = known.offsets.get(name, Loaded(version))
                offsets[name] = same if same.next_offset == version else Loaded(version, same.topic_id)
        return replace(known, offsets=offsets)

    def _last_commit(self) -> TableState:
        """Return the state in the metadata of the last commit of a pipeline; an empty one if the log no longer has it.

        Raises UsageError if the table was restored to an older version after it: transactions stay, and rows are gone.
        """
        for limit in (_RECENT, None):
            for commit in self._table.history(limit):
                if commit.get("operation") == "RESTORE":
                    raise UsageError(
                        f"{self.settings.shown} was restored to an older version after its last load, so nothing shows "
                        "which rows it has: give another folder"
                    )
                if commit.get(STATE):
                    try:
                        return TableState.of_json(commit[STATE])
                    except (ValueError, KeyError, TypeError):
                        raise UsageError(f"{self.settings.shown}: its {STATE} is not kseg's") from None
        return TableState()

    @cached_property
    def schema(self) -> Any:
        """The Arrow schema of the data files. Numbers have the widest type: Delta's columns keep their types."""
        return pa.schema([_widened(field) if field.name != "partition" else field for field in self.rows.schema])

    def create(self) -> None:
        settings = self.settings
        day = [pa.field(DAY, pa.date32())] if settings.by_day else []
        if self._load() is None:
            self.read_state()
            with self._one_line_errors():
                try:
                    deltalake.DeltaTable.create(
                        settings.path, pa.schema([*self.schema, *day]), mode="ignore",
                        partition_by=[one.name for one in day], storage_options=self._options,
                    )  # fmt: skip
                except Exception:
                    if self._load() is None:  # if not, only the answer of the store was lost
                        raise
            self._load()
        partitioned = self._table.metadata().partition_columns
        if partitioned != [one.name for one in day]:
            shown = ", ".join(partitioned) or "none"
            raise UsageError(f"table {settings.shown} is partitioned by {shown}: set partition, or give another folder")
        if self.lacks_columns():
            self._add_fields(day)

    def _stored(self) -> Any:
        return None if self._table is None else pa.schema(self._table.schema().to_arrow())

    def _add_fields(self, day: list[Any]) -> None:
        with self._one_line_errors():
            empty = pa.schema([*self.schema, *day]).empty_table()
            deltalake.write_deltalake(self._table, empty, mode="append", schema_mode="merge")
        self._load()
        if check_evolution(self._stored(), self.schema, "add", self.settings.shown):
            raise UsageError(f"table {self.settings.shown}: a column would need a wider type: load into a new table")

    def commit(self, files: Sequence[DataFile], before: TableState, after: TableState) -> None:
        self.check_state(before)
        with self._committing(exceptions.CommitFailedError, after):
            self._table.create_write_transaction(
                list(map(self._action, files)),
                "append",
                self._table.schema(),
                [DAY] if self.settings.by_day else [],
                commit_properties=self._properties(after, app_transactions=list(self._transactions(after))),
            )

    @staticmethod
    def _properties(after: TableState, **more: Any) -> Any:
        # A retry of deltalake would commit again without a look at the offsets.
        metadata = {STATE: after.to_json()}
        return transaction.CommitProperties(custom_metadata=metadata, max_commit_retries=0, **more)

    def _transactions(self, state: TableState) -> Iterator[Any]:
        numbers = {int(name.rpartition("-")[2]): loaded for name, loaded in state.offsets.items()}
        yield transaction.Transaction(PARTITIONS, max(numbers, default=-1) + 1)
        for partition, loaded in numbers.items():
            yield transaction.Transaction(self._application(partition), loaded.next_offset)

    def _action(self, file: DataFile) -> Any:
        path = file.place.removeprefix(f"{self.settings.path}/")
        values = {DAY: None if file.day is None else str(file.day)} if self.settings.by_day else {}
        stats = json.dumps({"numRecords": file.rows})
        return transaction.AddAction(path, file.bytes, values, int(time.time() * 1000), True, stats)

    def replace_rows(
        self, files: Sequence[DataFile], ranges: Sequence[RowRange], before: TableState, after: TableState
    ) -> None:
        """Have deltalake overwrite the rows, which writes those of the files again: only so both are one commit."""
        try:
            self.check_state(before)
            with self._committing(exceptions.CommitFailedError, None):
                deltalake.write_deltalake(
                    self._table, self._reader(files), mode="overwrite", predicate=as_sql(ranges),
                    commit_properties=self._properties(after),
                )  # fmt: skip
        finally:
            remove_files(files)

    def _reader(self, files: Sequence[DataFile]) -> Any:
        """Return the rows of data files with the columns of the table, in its order."""
        stored = self._stored()

        def rows() -> Iterator[Any]:
            for file in files:
                for batch in parquet_batches(file.place, self.schema.names):
                    columns = {name: batch.column(name) for name in self.schema.names}
                    columns[DAY] = pa.array([file.day] * batch.num_rows, pa.date32())
                    missing = [pa.nulls(batch.num_rows, one.type) for one in stored]
                    arrays = [
                        columns[one.name].cast(one.type) if one.name in columns else null
                        for one, null in zip(stored, missing, strict=True)
                    ]
                    yield pa.RecordBatch.from_arrays(arrays, schema=stored)

        return pa.RecordBatchReader.from_batches(stored, rows())

    def batches(self, columns: Sequence[str], ranges: Sequence[RowRange] | None = None) -> Iterator[Any]:
        if self._load() is not None:
            wanted = None if ranges is None else as_expression(ranges)
            yield from self._table.to_pyarrow_dataset().to_batches(columns=list(columns), filter=wanted)


def _widened(field: Any) -> Any:
    kind = field.type
    if pa.types.is_struct(kind):
        kind = pa.struct([_widened(one) for one in kind])
    elif pa.types.is_list(kind):
        kind = pa.list_(_widened(kind.value_field))
    elif pa.types.is_map(kind):
        kind = pa.map_(kind.key_type, _widened(kind.item_field))
    kinds: Mapping[Any, Any] = {pa.int32(): pa.int64(), pa.float32(): pa.float64()}
    return pa.field(field.name, kinds.get(kind, kind), nullable=field.nullable)
