"""``df.write.format("kseg")``: tasks write sealed segments, and the commit puts those of a partition together.

Each task writes the runs of its rows that belong to one partition and have increasing offsets, as segments of their own in a
hidden folder. So several tasks can write offset ranges of one partition. The commit refuses ranges that overlap, and gives
all partitions their names, or none: a run that is killed meanwhile is finished by the next one, by its journal.
"""

from __future__ import annotations

import glob
import json
import os
import re
import shutil
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from pathlib import Path
from urllib.parse import unquote, urlsplit

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from kseg.errors import UsageError
from kseg.format.log_loader.loaded_files import RefusedError
from kseg.format.record.layout import INT32_MAX
from kseg.format.sidefiles.indexes import AbortedTransactions
from kseg.format.storage.atomic_write import (
    SUFFIX,
    check_absent,
    hidden_prefix,
    mark_results,
    publish,
    sync_folder,
    whole_file,
    writing,
)
from kseg.format.writer import written_side_files
from kseg.format.writer.output_guards import check_earlier_result, txn_index_path
from kseg.format.writer.output_rule import check_not_of_broker
from kseg.format.writer.records_builder import codec_id
from kseg.report.arrow_table import pa
from kseg.spark.jobs.arrow_columns import Rows, check_schema, rows_of
from kseg.spark.jobs.row_kinds import NEVER_DATA, check_columns, check_kinds, records_only
from kseg.spark.jobs.segment_run import SegmentRun, WrittenRun
from kseg.text import unknown_name

#: Kafka's default of ``segment.bytes``, and about the default of the largest batch that producers send.
SEGMENT_BYTES = 1024 * 1024 * 1024
BATCH_BYTES = 16 * 1024
#: The most runs of a task. Small files that share a task have one each; rows in no order would have one per row.
MOST_RUNS = 1000

_OVERWRITE = 'overwrite=True, or mode("overwrite")'
# A Windows drive has one letter.
_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+:")


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The options of a write. Sizes are in bytes, that of a batch before compression.

    ``drop`` and ``as_data`` are kinds of rows (``row_kinds.KINDS``) that are left out, or written as plain records.
    ``same_log`` writes producers, transactions with their markers, types of timestamps and leader epochs as the rows have
    them.
    """

    folder: Path
    compression: str = "none"
    segment_bytes: int = SEGMENT_BYTES
    batch_bytes: int = BATCH_BYTES
    drop: frozenset[str] = frozenset()
    as_data: frozenset[str] = frozenset()
    same_log: bool = False

    def check(self) -> None:
        """Raise UsageError for invalid values, and for a folder of a broker."""
        codec_id(self.compression)
        check_kinds(self.drop, self.as_data)
        if not 0 < self.batch_bytes <= self.segment_bytes <= INT32_MAX:
            raise UsageError("expected 0 < batchBytes <= segmentBytes < 2 GiB")
        if self.same_log and (self.as_data or self.drop - {NEVER_DATA}):
            raise UsageError(
                "sameLog writes all records and markers as they are: give no drop but damage, and no asData"
            )
        check_not_of_broker(Path(os.path.realpath(self.folder)), self.folder)

    def check_columns(self, names: Collection[str]) -> None:
        """Raise UsageError for a column that is missing."""
        check_schema(names, self.same_log)
        if not self.same_log:
            check_columns(names, self.as_data)

    @classmethod
    def of_spark(cls, given: Mapping[str, str]) -> SinkOptions:
        """Return the checked options of ``df.write``. Raises UsageError."""
        options = {name.lower(): value for name, value in given.items()}
        for name in options:
            if name != "path" and name not in map(str.lower, _OPTIONS):
                raise UsageError(unknown_name("option", name, _OPTIONS))
        if "path" not in options:
            raise UsageError("no path: give save() the folder of the partitions")
        found = cls(
            local_folder(options["path"]),
            options.get("compression", "none"),
            _number(options, "segmentbytes", SEGMENT_BYTES),
            _number(options, "batchbytes", BATCH_BYTES),
            _names(options, "drop"),
            _names(options, "asdata"),
            _flag(options, "samelog"),
        )
        found.check()
        return found

    def to_spark(self) -> dict[str, str]:
        """Return the options for ``df.write``, without the folder."""
        return {
            "compression": self.compression,
            "segmentBytes": str(self.segment_bytes),
            "batchBytes": str(self.batch_bytes),
            "drop": ",".join(sorted(self.drop)),
            "asData": ",".join(sorted(self.as_data)),
            "sameLog": str(self.same_log).lower(),
        }


_OPTIONS = ("compression", "segmentBytes", "batchBytes", "drop", "asData", "sameLog")


def _number(options: Mapping[str, str], name: str, default: int) -> int:
    try:
        return int(options.get(name, default))
    except ValueError:
        raise UsageError(f"option {name}: expected a number of bytes, got {options[name]!r}") from None


def _names(options: Mapping[str, str], name: str) -> frozenset[str]:
    return frozenset(one.strip() for one in options.get(name, "").split(",") if one.strip())


def _flag(options: Mapping[str, str], name: str) -> bool:
    value = options.get(name, "false").lower()
    if value not in ("true", "false"):
        raise UsageError(f"option {name}: expected true or false, got {value!r}")
    return value == "true"


def local_folder(path: str | os.PathLike[str]) -> Path:
    """Return the folder of a path or a ``file:`` URL. Raises UsageError for other URLs."""
    text = os.fspath(path)
    scheme = _SCHEME.match(text)
    if scheme is None:
        return Path(os.path.abspath(text))
    parts = urlsplit(text)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost") or parts.query or parts.fragment:
        raise UsageError(f"{text}: expected a local folder: copy the segments from there")
    return Path(os.path.abspath(unquote(parts.path)))


@dataclass
class WrittenRuns(WriterCommitMessage):
    """The runs that a task has written."""

    runs: list[WrittenRun] = field(default_factory=list)


class SegmentSink(DataSourceArrowWriter):
    """The writer of ``format("kseg")``. If an earlier write was killed in its commit, it first finishes that."""

    def __init__(self, options: SinkOptions, overwrite: bool) -> None:
        self._options = options
        self._overwrite = overwrite
        self._staging = options.folder / f".{uuid.uuid4().hex}.spark.tmp"
        finish_interrupted(options.folder)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenRuns:
        """Write the rows of a task. A repeated or duplicate task gets another folder."""
        options, own, written = self._options, self._staging / uuid.uuid4().hex, WrittenRuns()
        with writing(options.folder), closing(_Runs(own, options)) as runs:
            for batch in iterator:
                if options.same_log:
                    known = records_only(batch, options.drop, _ALL_OF_LOG) if "damage" in batch.schema.names else batch
                else:
                    known = records_only(batch, options.drop, options.as_data)
                for rows in rows_of(known, options.same_log):
                    runs.append(rows)
            written.runs = runs.finish()
        return written

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Put the runs of each partition together, and give all partitions their names."""
        target = self._options.folder
        runs = [run for message in messages if isinstance(message, WrittenRuns) for run in message.runs]
        try:
            with writing(target):
                moves = []
                for name, own in groupby(sorted(runs, key=lambda run: (run.name, run.first)), lambda run: run.name):
                    folder = self._staging / "partitions" / name
                    self._assemble(folder, list(own))
                    moves.append((folder, target / name))
                for folder, path in moves:
                    check_earlier_result(path)
                    mark_results(folder)
                if not self._overwrite:
                    check_absent([path for _, path in moves], option=_OVERWRITE)
                if moves:
                    give_names(target, self._staging, moves, replace=self._overwrite, option=_OVERWRITE)
        finally:
            shutil.rmtree(self._staging, ignore_errors=True)

    def _assemble(self, folder: Path, runs: Sequence[WrittenRun]) -> None:
        """Move the segments of a partition into one folder, and write the side files that describe all of them."""
        for before, after in pairwise(runs):
            if after.first <= before.last:
                raise UsageError(
                    f"{folder.name}: offset {after.first} after {before.last}: offsets must increase, and two tasks have "
                    "rows of the same offsets: remove duplicates, such as those of replicas, or sort the rows"
                )
        folder.mkdir(parents=True)
        for run in runs:
            for file in run.folder.iterdir():
                file.rename(folder / file.name)
        epochs = written_side_files.merged_runs(run.epochs for run in runs)
        written_side_files.write(folder, written_side_files.merged([], epochs, None))
        if any(run.has_producers for run in runs):
            _write_producers(folder, runs[-1].last + 1)
        sync_folder(folder)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove what the tasks have written."""
        shutil.rmtree(self._staging, ignore_errors=True)
        with suppress(OSError):
            self._options.folder.rmdir()  # nothing came to be in it


_ALL_OF_LOG = frozenset(("control", "aborted", "transactional"))


def _write_producers(folder: Path, end: int) -> None:
    """Write the transaction indexes and the producer snapshots of a new log that ends before offset ``end``.

    After a clean shutdown a broker trusts these files: without them it forgets producers and serves aborted records.
    """
    txns = AbortedTransactions()
    for log in sorted(folder.glob("*.log")):
        written_side_files.write_txn_index(txn_index_path(log), written_side_files.aborted_transactions(log, txns))
    try:
        written_side_files.write_snapshots(folder, end, {})
    except RefusedError as error:
        raise UsageError(f"{folder.name}: a broker cannot read the producers: {error.why}") from error


class _Runs:
    """The runs of a task, one after the other."""

    def __init__(self, home: Path, options: SinkOptions) -> None:
        self._home = home
        self._options = options
        self._current: SegmentRun | None = None
        self._done: list[WrittenRun] = []

    def append(self, rows: Rows) -> None:
        """Write rows to the current run, or begin one for another partition or lower offsets. Raises UsageError."""
        current, place = self._current, (rows.topic, rows.partition)
        if current is None or current.place != place or rows.offsets[0] < current.last:
            self._end()
            options = self._options
            if len(self._done) >= MOST_RUNS:
                raise UsageError(
                    f"{rows.topic}-{rows.partition}, offset {rows.offsets[0]}: the rows of a task change between "
                    f"partitions or go back more than {MOST_RUNS} times: sort them by topic, partition and offset, as "
                    "write_segments(…, ordered=False) does"
                )
            self._current = SegmentRun(
                self._home / str(len(self._done)),
                place,
                options.compression,
                options.segment_bytes,
                options.batch_bytes,
            )
        assert self._current is not None
        self._current.append(rows)

    def _end(self) -> None:
        if self._current is not None:
            self._done.append(self._current.finish())
            self._current = None

    def finish(self) -> list[WrittenRun]:
        self._end()
        return self._done

    def close(self) -> None:
        """Close the open files, whether the run is complete or not."""
        if self._current is not None:
            self._current.close()


#: The name of the journal of a commit in the folder of the results. Its suffix is that of unfinished files. When a commit
#: begins, all new folders are complete and synced. So an interrupted commit is always finished, never undone.
_JOURNAL = f".kseg-commit{SUFFIX}"


def give_names(target: Path, staging: Path, moves: Sequence[tuple[Path, Path]], *, replace: bool, option: str) -> None:
    """Rename synced folders in ``staging`` to their names in ``target`` as ``publish`` does, under a journal.

    A second run waits. The staging folder is removed at the end. Raises UsageError and OSError, and then no folder has a new
    name.
    """
    journal = target / _JOURNAL
    rows = [[str(path.relative_to(target)) for path in move] for move in moves]
    with _alone(target):
        with whole_file(journal) as out:
            out.write(json.dumps({"staging": staging.name, "moves": rows}).encode())
        try:
            publish(moves, replace=replace, option=option)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
            journal.unlink(missing_ok=True)


@contextmanager
def _alone(target: Path) -> Iterator[None]:
    """Wait until no other run on this machine gives its results their names in a folder, and keep others out.

    The lock is that of the open folder: it leaves no file, and ends with the process.
    """
    try:
        import fcntl  # Windows has no such module
    except ImportError:
        yield
        return
    handle = os.open(target, os.O_RDONLY)
    try:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def finish_interrupted(target: Path) -> bool:
    """Finish a commit that was killed, and return whether there was one. Raises KsegError if that fails."""
    journal = target / _JOURNAL
    if not target.is_dir():
        return False
    with writing(target), _alone(target):
        try:
            found = json.loads(journal.read_bytes())
        except FileNotFoundError:
            return False
        moves = [(target / new, target / name) for new, name in found["moves"]]
        publish([move for move in moves if os.path.lexists(move[0])], replace=True)
        for _, path in moves:
            for old in target.glob(f"{glob.escape(hidden_prefix(path))}*.old"):
                shutil.rmtree(old)
        shutil.rmtree(target / found["staging"], ignore_errors=True)
        for left in (journal, *target.glob(f".{_JOURNAL}.*{SUFFIX}")):
            left.unlink()
        sync_folder(target)
    return True
