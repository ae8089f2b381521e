"""Iceberg tables, by pyiceberg and without a JVM. The next offsets are in each snapshot, and in the table's properties.

The snapshot decides: after a rollback its older offsets are those of the rows that are left. The properties remain where
snapshots have expired.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kseg.engine import lazy
from kseg.errors import KsegError, UnreadableError, UsageError
from kseg.extras.pipeline.data_files import DataFile, NewPlace, RowRange, as_sql, has_rows
from kseg.extras.pipeline.lake_table import ChangedTableError, LakeTable, TableState, store_address
from kseg.extras.pipeline.pipeline_settings import TableSettings
from kseg.extras.pipeline.table_rows import TableRows
from kseg.report.arrow_table import pa

if TYPE_CHECKING:
    from pyiceberg import catalog as catalogs
    from pyiceberg import exceptions, transforms
    from pyiceberg import table as tables
else:
    _NEEDED = "Iceberg tables need a library: pip install 'kseg[iceberg]', which has pyiceberg"
    catalogs = lazy("pyiceberg.catalog", needed=_NEEDED)
    exceptions = lazy("pyiceberg.exceptions", needed=_NEEDED)
    tables = lazy("pyiceberg.table", needed=_NEEDED)
    transforms = lazy("pyiceberg.transforms", needed=_NEEDED)

#: It warns of each column without statistics, in each file: those of keys and values would only make the table larger.
logging.getLogger("pyiceberg.io.pyarrow").setLevel(logging.ERROR)

#: The key of the state in the summary of a snapshot, and in the properties of a table.
STATE = "kseg.state"
_RETRIES = "commit.retry.num-retries"


class IcebergTable(LakeTable):
    """A table in a catalog of pyiceberg. ``properties`` None are those of pyiceberg's own configuration."""

    def __init__(self, settings: TableSettings, rows: TableRows, properties: Mapping[str, str] | None) -> None:
        super().__init__(settings, rows)
        address = store_address()  # pyiceberg ignores it
        self._properties = {**({"s3.endpoint": address} if address else {}), **(properties or {})}
        self._catalog: Any = None
        self._table: Any = None

    def _connected(self) -> Any:
        if self._catalog is None:
            name = self.settings.catalog
            try:
                self._catalog = catalogs.load_catalog(name, **self._properties)
            except KsegError:
                raise
            except Exception as error:
                missing = "" if self._properties else f"no [catalog.{name}] in the configuration: "
                raise UsageError(f"catalog {name}: {missing}{self._line(error)}") from error
        return self._catalog

    def close(self) -> None:
        """Close the catalog: one in a database can keep its lock otherwise, until the connection is collected."""
        super().close()
        if self._catalog is not None:
            self._catalog.close()

    def _load(self) -> Any:
        """Return the table as it is now, None if it does not exist. Raises UnreadableError."""
        catalog = self._connected()
        with self._one_line_errors(UnreadableError):
            try:
                self._table = catalog.load_table(self.settings.name)
            except (exceptions.NoSuchTableError, exceptions.NoSuchNamespaceError):
                self._table = None
        return self._table

    def read_state(self) -> TableState | None:
        table = self._load()
        if table is None:
            return None
        text = _state_of(table)
        if text is None and table.current_snapshot() is not None:
            raise UsageError(
                f"table {self.settings.name} has rows that no pipeline has loaded: give another name, or an empty table"
            )
        try:
            return TableState.of_json(text) if text else TableState()
        except (ValueError, KeyError, TypeError):
            raise UsageError(f"table {self.settings.name}: its property {STATE} is not kseg's") from None

    def create(self) -> None:
        if self._load() is None:
            self._create()
        self._evolve()
        schema, spec = self._table.schema(), self._table.spec()
        missing = [one.name for one in schema.fields if one.required and one.name not in self.rows.schema.names]
        if missing:
            raise UsageError(f"table {self.settings.name}: column {missing[0]} is required, and nothing fills it")
        stamp = schema.find_field("timestamp").field_id if "timestamp" in schema.column_names else -1
        known = [(one.source_id, str(one.transform)) for one in spec.fields]
        if known != ([(stamp, "day")] if self.settings.by_day else []):
            shown = ", ".join(str(one) for one in spec.fields) or "none"
            raise UsageError(
                f"table {self.settings.name} is partitioned by {shown}: set partition to that, or another name"
            )

    def _evolve(self) -> None:
        """Add the fields that the table lacks, also in structs. Raises UsageError if the configuration forbids it."""
        if not self.lacks_columns():
            return
        with self._one_line_errors(), self._table.update_schema() as update:
            update.union_by_name(self.rows.schema)
        self._load()

    def _stored(self) -> Any:
        return None if self._table is None else self._table.schema().as_arrow()

    @property
    def _wanted(self) -> Any:
        return self.rows.schema

    def _create(self) -> None:
        catalog, name = self._connected(), self.settings.name
        with self._one_line_errors(), suppress(exceptions.TableAlreadyExistsError):
            catalog.create_namespace_if_not_exists(name.rpartition(".")[0])
            with catalog.create_table_transaction(name, self.schema) as transaction:
                if self.settings.by_day:
                    with transaction.update_spec() as spec:
                        spec.add_field("timestamp", transforms.DayTransform(), "timestamp_day")
        self._load()

    @property
    def schema(self) -> Any:
        """The Arrow schema of the data files, with the field ids of the table if it exists."""
        plain = super().schema
        if self._table is None:
            return plain
        stored = self._table.schema().as_arrow()
        return pa.schema([_with_ids(one, stored.field(one.name)) for one in plain if one.name in stored.names])

    @property
    def new_place(self) -> NewPlace:
        return replace(super().new_place, folder=f"{self._table.location().rstrip('/')}/data")

    def commit(self, files: Sequence[DataFile], before: TableState, after: TableState) -> None:
        self.check_state(before)
        summary = {STATE: after.to_json()}
        with self._transaction(summary, after) as transaction:
            if files:
                places = [one.place for one in files]
                transaction.add_files(places, snapshot_properties=summary, check_duplicate_files=False)
            else:
                with transaction.update_snapshot(snapshot_properties=summary).fast_append():
                    pass

    def replace_rows(
        self, files: Sequence[DataFile], ranges: Sequence[RowRange], before: TableState, after: TableState
    ) -> None:
        """Write the files with such rows again without them, in one snapshot with the new files."""
        self.check_state(before)
        found = list(self._table.scan(row_filter=as_sql(ranges)).plan_files())
        if any(one.delete_files for one in found):
            raise UsageError(f"table {self.settings.name} has files of deleted rows: rewrite its data files first")
        old = [one.file for one in found if has_rows(one.file.file_path, ranges)]
        kept = self._rewritten([one.file_path for one in old], ranges)
        if not (old or files or after != before):
            return
        summary, places = {STATE: after.to_json()}, [one.place for one in (*kept, *files)]
        with (
            self._transaction(summary, None) as transaction,
            transaction.update_snapshot(snapshot_properties=summary).overwrite() as overwrite,
        ):
            for one in old:
                overwrite.delete_data_file(one)
            for one in tables._parquet_files_to_data_files(transaction.table_metadata, places, self._table.io):
                overwrite.append_data_file(one)

    @contextmanager
    def _transaction(self, summary: Mapping[str, str], after: TableState | None) -> Iterator[Any]:
        """Yield a transaction that is committed, which leads to the state ``after`` if it leads to another one."""
        # A retry of pyiceberg would add the files again without a look at the offsets. This changes only this object.
        self._table.metadata.properties[_RETRIES] = "0"
        with self._committing(exceptions.CommitFailedException, after), self._table.transaction() as transaction:
            transaction.set_properties(summary)
            yield transaction

    def changed(self, why: str) -> ChangedTableError:
        return ChangedTableError(f"table {self.settings.name}: {why}")

    def batches(self, columns: Sequence[str], ranges: Sequence[RowRange] | None = None) -> Iterator[Any]:
        if self._load() is not None:
            wanted = {} if ranges is None else {"row_filter": as_sql(ranges)}
            yield from self._table.scan(selected_fields=tuple(columns), **wanted).to_arrow_batch_reader()


def _state_of(table: Any) -> str | None:
    """Return the state of the newest snapshot of kseg's that the current one contains, else that of the properties."""
    snapshot = table.current_snapshot()
    while snapshot is not None:
        text = snapshot.summary[STATE] if snapshot.summary else None
        if text:
            return str(text)
        parent = snapshot.parent_snapshot_id
        snapshot = table.snapshot_by_id(parent) if parent is not None else None
    found: str | None = table.properties.get(STATE)
    return found


def _with_ids(own: Any, stored: Any) -> Any:
    """Return a field with the field ids of the table's, also in lists and structs."""
    kind = own.type
    if pa.types.is_list(kind):
        kind = pa.list_(_with_ids(kind.value_field, stored.type.value_field))
    elif pa.types.is_map(kind):
        kind = pa.map_(
            _with_ids(kind.key_field, stored.type.key_field), _with_ids(kind.item_field, stored.type.item_field)
        )
    elif pa.types.is_struct(kind):
        kind = pa.struct([_with_ids(one, stored.type.field(one.name)) for one in kind])
    return pa.field(own.name, kind, nullable=own.nullable, metadata=stored.metadata)
