"""The tables that a pipeline loads: what all formats have in common, and the table of Parquet files.

A commit makes data files and the next offsets visible together. So a run that was killed continues at the offsets of the
last commit, and no row is loaded twice. Files of a run that was killed before its commit belong to no table.
"""

from __future__ import annotations

import json
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from kseg.engine import imported
from kseg.errors import KsegError, UnreadableError, UsageError
from kseg.extras.pipeline.data_files import (
    DataFile,
    NewPlace,
    RowRange,
    files_without,
    has_rows,
    parquet_batches,
    remove_files,
)
from kseg.extras.pipeline.pipeline_settings import PipelineSettings, TableSettings
from kseg.extras.pipeline.pipeline_state import PipelineState, new_file, read_if_exists, remove_file
from kseg.extras.pipeline.source_replicas import Loaded, Place
from kseg.extras.pipeline.table_rows import RejectedRows, TableRows, check_evolution
from kseg.format.storage import atomic_write, local_files, remote_files
from kseg.format.storage.naming import is_url
from kseg.format.storage.remote_listing import text_of
from kseg.format.storage.segment_files import path_in
from kseg.report.arrow_table import pa, parquet

#: What libraries write before and after a coloured word.
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class ChangedTableError(KsegError):
    """Another program has committed to the table meanwhile. Nothing was committed."""


@dataclass(frozen=True, slots=True)
class TableState:
    """The state of a table: the next offsets by partition; and the run of the last commit, with its rows so far."""

    offsets: Mapping[str, Loaded] = field(default_factory=dict)
    run: str | None = None
    rows: int = 0

    def loaded(self, place: Place) -> Loaded | None:
        """Return the loaded part of a partition, None for one without."""
        return self.offsets.get("{}-{}".format(*place))

    def topic_id(self, place: Place) -> str | None:
        """Return the id of the topic that the rows are from, also of another partition; None if it is not known."""
        own = self.loaded(place)
        every = (own, *self.offsets.values()) if own else self.offsets.values()
        return next((one.topic_id for one in every if one.topic_id), None)

    def to_json(self) -> str:
        offsets = {name: [one.next_offset, one.topic_id, one.leader_epoch] for name, one in self.offsets.items()}
        return json.dumps({"run": self.run, "rows": self.rows, "offsets": offsets}, separators=(",", ":"))

    @classmethod
    def of_json(cls, text: str) -> TableState:
        """Return the state of JSON text. Raises ValueError, KeyError or TypeError for other text."""
        found = json.loads(text)
        offsets = {name: Loaded(int(one[0]), *one[1:3]) for name, one in found["offsets"].items()}
        return cls(offsets, found["run"], int(found["rows"]))


class LakeTable(ABC):
    """A table. ``rows`` makes its rows. ``rejected`` is the side table of records without a row, None without one."""

    #: The most characters of an error of the table's library.
    _longest_error: int | None = None

    def __init__(self, settings: TableSettings, rows: TableRows) -> None:
        self.settings = settings
        self.rows = rows
        self.rejected: LakeTable | None = None

    @property
    def schema(self) -> Any:
        """The Arrow schema of the data files."""
        return self.rows.schema

    def close(self) -> None:
        """Close the connections of the table and of its side table."""
        if self.rejected is not None:
            self.rejected.close()

    @abstractmethod
    def read_state(self) -> TableState | None:
        """Return the state of the table, None if it does not exist. Raises UsageError for a table of somebody else."""

    def state(self) -> TableState:
        """Return the state of the table, an empty one if it does not exist. Raises as ``read_state``."""
        return self.read_state() or TableState()

    def check_state(self, before: TableState) -> None:
        """Raise ChangedTableError if the state is not ``before``."""
        if self.state() != before:
            raise self.changed("another run has committed meanwhile")

    def changed(self, why: str) -> ChangedTableError:
        """Return the error of a commit that another program prevents."""
        return ChangedTableError(f"{self.settings.shown}: {why}")

    @contextmanager
    def _one_line_errors(self, kind: type[KsegError] = KsegError) -> Iterator[None]:
        """Turn the errors of the table's library into one of a kind, as one line."""
        try:
            yield
        except KsegError:
            raise
        except Exception as error:
            raise kind(f"table {self.settings.shown}: {self._line(error)}") from error

    def _line(self, error: Exception) -> str:
        """Return an error as one line without colours; a long one has both ends: what failed, and the cause."""
        text = " ".join(_COLOUR.sub("", text_of(error)).split()).replace(" ↳ ", ": ")
        most = self._longest_error or len(text)
        if len(text) <= most:
            return text
        return f"{text[: most // 2 - 2]} … {text[1 - most // 2 :]}"

    @contextmanager
    def _committing(self, conflict: type[Exception], after: TableState | None) -> Iterator[None]:
        """Raise ChangedTableError for the error ``conflict`` of a library, and KsegError for its other errors.

        If the state is ``after``, the store has the commit, and its answer was lost: that is not an error.
        """
        try:
            yield
        except conflict as error:
            raise self.changed(self._line(error)) from error
        except Exception as error:
            if after is None or self.state() != after:
                raise KsegError(f"table {self.settings.shown}: {self._line(error)}") from error

    @abstractmethod
    def create(self) -> None:
        """Create the table if it does not exist. Raises UsageError if it has other columns."""

    @abstractmethod
    def _stored(self) -> Any:
        """Return the Arrow schema of the table as it was last read, None if it does not exist."""

    def lacks_columns(self) -> bool:
        """Return whether the table, as it was last read, lacks columns. Raises UsageError if they cannot be added."""
        stored = self._stored()
        return stored is not None and check_evolution(stored, self._wanted, self.settings.evolve, self.settings.shown)

    @property
    def _wanted(self) -> Any:
        """The Arrow schema that the table is to have."""
        return self.schema

    @property
    def new_place(self) -> NewPlace:
        """Returns the path or URL of a new data file, whose rows have the columns of the table."""
        return NewPlace(self.settings.path, self.settings.by_day, self.settings.file_bytes, self.schema)

    @abstractmethod
    def commit(self, files: Sequence[DataFile], before: TableState, after: TableState) -> None:
        """Add files and the state as one commit. Raises ChangedTableError if the state is not ``before``."""

    @abstractmethod
    def replace_rows(
        self, files: Sequence[DataFile], ranges: Sequence[RowRange], before: TableState, after: TableState
    ) -> None:
        """Replace the rows of ranges by those of files as one commit with the state ``after``.

        Raises ChangedTableError if the state is not ``before``. Files that the table does not need are removed.
        """

    @abstractmethod
    def batches(self, columns: Sequence[str], ranges: Sequence[RowRange] | None = None) -> Iterator[Any]:
        """Yield the rows of the table as Arrow batches with the named columns: all, or those of ``ranges``."""

    def _rewritten(self, places: Sequence[str], ranges: Sequence[RowRange]) -> list[DataFile]:
        """Write the rows of data files again without those of the ranges. Raises KsegError; then no new file is left."""
        kept: list[DataFile] = []
        try:
            for place in places:
                kept += files_without(place, ranges, self.new_place)
        except KsegError:
            remove_files(kept)
            raise
        return kept

    def remove_orphans(self, before: TableState, run: str) -> TableState:
        """Remove the data files that no commit has, and return the state. Raises ChangedTableError if it is not ``before``.

        They are those of killed runs, and of calls whose results were lost with an executor of Spark and which ran again.

        Another run that nevertheless works now cannot commit a file that is removed: its commit fails.
        """
        return before

    def leased(self) -> AbstractContextManager[object]:
        """Keep other runs, also those with another state, from the files of the table. Raises UsageError if one works."""
        return nullcontext()

    def describe(self) -> str:
        """Return the definition of the table as text, for a table that does not exist yet."""
        columns = ", ".join(f"{one.name} {one.type}" for one in self.schema)
        by_day = ", by day of timestamp" if self.settings.by_day else ""
        return f"{self.settings.format} {self.settings.shown} ({columns}){by_day}"


def store_address() -> str | None:
    """Return the address of the object store that AWS's tools and the reader of segments use, None for that of AWS."""
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")


def open_table(settings: PipelineSettings, topic: str) -> LakeTable:
    """Return the table of a topic. Raises UsageError if a library is missing."""
    table = settings.tables[topic]
    kind: type[LakeTable] = imported(_KINDS[table.format])
    more = (settings.catalogs.get(table.catalog),) if table.catalog else ()
    found = kind(table, TableRows(settings, table), *more)
    if table.sides and table.undecoded == "side_table":
        found.rejected = kind(table.rejected, RejectedRows(settings, table.rejected), *more)
    return found


_KINDS = {
    "parquet": "kseg.extras.pipeline.lake_table:ParquetTable",
    "iceberg": "kseg.extras.pipeline.iceberg_table:IcebergTable",
    "delta": "kseg.extras.pipeline.delta_table:DeltaLakeTable",
}


@dataclass(frozen=True, slots=True)
class _Commit:
    """A commit of a Parquet table: its state, and the data files that it adds and removes."""

    state: TableState
    files: Sequence[str]
    removed: Sequence[str] = ()


_META = "_kseg"
_COMMITS = f"{_META}/commits"
#: How the names of data files begin, also of those that are not complete.
_OWN = ("kseg-", ".kseg-")


class ParquetTable(LakeTable):
    """A folder of Parquet files, with a list of commits in ``_kseg/commits``.

    Each commit is a file with the next number, and is created only if no file has that number. It lists the data files
    that it adds and removes. Readers skip folders whose name begins with an underscore.
    """

    def read_state(self) -> TableState | None:
        last = self._commits()
        if not last:
            self._check_own()
            return None
        return self._commit_of(last[-1]).state

    def create(self) -> None:
        self._check_own()
        self.lacks_columns()  # each data file has the columns that it was written with

    def _stored(self) -> Any:
        files = self.files()
        if not files:
            return None
        with local_files.open_file(files[-1], named=False) as raw:
            return parquet.read_schema(pa.PythonFile(raw, mode="r"))

    def _check_own(self) -> None:
        """Raise UsageError if the folder has something in it that no pipeline has written."""
        names = names_of_folder(self.settings.path)
        if names and _META not in names and not all(name.startswith(("date=", *_OWN)) for name in names):
            raise UsageError(
                f"{self.settings.shown} has files that no pipeline has written, such as {min(names)}: give another folder"
            )

    def _commits(self) -> list[int]:
        names = names_of_folder(path_in(self.settings.path, _COMMITS))
        return sorted(int(name[:-5]) for name in names if name.endswith(".json") and name[:-5].isdigit())

    def _commit_place(self, number: int) -> str:
        return path_in(self.settings.path, f"{_COMMITS}/{number:020}.json")

    def _commit_of(self, number: int) -> _Commit:
        place = self._commit_place(number)
        try:
            found = json.loads(read_if_exists(place) or b"")
            files = [one["place"] for one in found["files"]]
            return _Commit(TableState.of_json(found["state"]), files, found.get("removed", []))
        except (ValueError, KeyError, TypeError):
            raise UnreadableError(f"{place}: not a commit of kseg's") from None

    def commit(self, files: Sequence[DataFile], before: TableState, after: TableState) -> None:
        self._commit(self._commits(), files, before, after)

    def _commit(
        self,
        last: list[int],
        files: Sequence[DataFile],
        before: TableState,
        after: TableState,
        removed: Sequence[str] = (),
    ) -> None:
        """Write the commit after ``last``. Raises ChangedTableError if that has another state, or another one follows."""
        if (self._commit_of(last[-1]).state if last else TableState()) != before:
            raise self.changed("another run has committed meanwhile")
        listed = [{**asdict(one), "place": self._within(one.place), "day": str(one.day or "")} for one in files]
        content = {"state": after.to_json(), "files": listed}
        if removed:
            content["removed"] = list(map(self._within, removed))
        try:
            with new_file(self._commit_place(last[-1] + 1 if last else 1), new=True) as out:
                out.write(json.dumps(content, indent=1).encode())
        except UsageError as error:
            raise self.changed("another run has committed meanwhile") from error

    def _within(self, place: str) -> str:
        return place.removeprefix(f"{self.settings.path}/")

    def replace_rows(
        self, files: Sequence[DataFile], ranges: Sequence[RowRange], before: TableState, after: TableState
    ) -> None:
        """Write the files with such rows again without them. Readers of the folder see the old ones until the commit."""
        last = self._commits()
        old = [place for place in self.files() if has_rows(place, ranges)]
        kept = self._rewritten(old, ranges)
        try:
            self._commit(last, [*kept, *files], before, after, old)
        except KsegError:
            remove_files(kept)
            raise
        for place in old:
            remove_file(place)

    def files(self) -> list[str]:
        """Return the paths or URLs of the data files of all commits."""
        found: dict[str, None] = {}
        for number in self._commits():
            commit = self._commit_of(number)
            found |= dict.fromkeys(commit.files)
            for place in commit.removed:
                found.pop(place, None)
        return [path_in(self.settings.path, one) for one in found]

    def batches(self, columns: Sequence[str], ranges: Sequence[RowRange] | None = None) -> Iterator[Any]:
        for place in self.files():
            yield from parquet_batches(place, columns, ranges)

    def remove_orphans(self, before: TableState, run: str) -> TableState:
        orphans = self._data_files() - set(self.files())
        if not orphans:
            return before
        # A commit without files: whoever has written the orphans and still works finds another state than its own.
        after = replace(before, run=run, rows=before.rows if before.run == run else 0)
        self.commit((), before, after)
        for place in orphans - set(self.files()):
            remove_file(place)
        return after

    def _data_files(self) -> set[str]:
        """Return the paths or URLs of the data files in the folder, also of those that are not complete."""
        folder = self.settings.path
        folders = [folder, *(path_in(folder, name) for name in names_of_folder(folder) if name.startswith("date="))]
        return {
            path_in(one, name)
            for one in folders
            for name in names_of_folder(one)
            if name.startswith(_OWN) and name.endswith((".parquet", atomic_write.SUFFIX))
        }

    def leased(self) -> AbstractContextManager[object]:
        return PipelineState(path_in(self.settings.path, _META)).leased()


def names_of_folder(folder: str) -> list[str]:
    """Return the names in a folder, none if it does not exist. Raises UnreadableError."""
    if is_url(folder):
        remote_files.forget(folder)
    return local_files.names_in(folder) if local_files.is_folder(folder) else []
