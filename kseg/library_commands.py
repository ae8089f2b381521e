"""The commands grep, lag, transactions, stats, diff and recovery as functions."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING

from kseg.commands import recovery as recovery_plans
from kseg.commands.diff.replica_pairs import UNREAD, PairOutcome, PartitionPair, compare_pair, compare_replicas
from kseg.commands.dump.dump_items import RecordsItem
from kseg.commands.dump.dumped_rows import DumpRequest
from kseg.commands.grep.matches import FIELDS, GrepQuery, parse_json_path
from kseg.commands.grep.text_patterns import MatchClock
from kseg.commands.lag.committed_offsets import GroupLag, LogDirs, lags, partitions_of, read_commits
from kseg.commands.stats.levels import Level, levels, sorted_by_folder, stats_of
from kseg.commands.transactions import MAX_TRANSACTION_MS, PartitionTransactions, Transaction, items_of
from kseg.errors import KsegError, NotASegmentError, UnreadableError, UsageError, each_once
from kseg.extras.sql import statement
from kseg.extras.sql import where as conditions
from kseg.extras.views.grep_request import GrepRequest
from kseg.findings import READ_ERROR, Finding, do_nothing, unreadable
from kseg.format.internal_topics.state import Moment
from kseg.format.log_loader.plan import LogDirPlan, PartitionPlan
from kseg.format.log_loader.recovery_plan import BrokerStart
from kseg.format.record.layout import ISOLATIONS, READ_COMMITTED, READ_UNCOMMITTED
from kseg.format.segment.records_chunk import Record
from kseg.format.segment.row_filter import HasHeader, KeyIsOneOf, RecordCondition, RowFilter
from kseg.format.sidefiles.transaction_states import TransactionLogs
from kseg.format.storage.log_dir_places import is_log_dir, partition_replicas, replicas_of_one
from kseg.format.storage.naming import CONSUMER_OFFSETS, is_url
from kseg.format.storage.segment_files import (
    SegmentFile,
    check_exists,
    find_segments,
    once_each,
    unless_deleted,
    without_unused,
)
from kseg.format.storage.source import STDIN, topic_partition
from kseg.library import (
    Path,
    Schemas,
    check_name,
    decode_settings,
    offset_range,
    paths_of,
    raise_unreadable,
    texts,
    undecoded,
)
from kseg.results import Settings
from kseg.text import Time, as_bytes, check_number, epoch_time

if TYPE_CHECKING:
    from kseg.commands.stats.counted_file import SegmentStats

#: Called with the path of a file and each Finding.
ReportFinding = Callable[[str, Finding], object]
#: Called with a line for each file that cannot be read.
ReportUnread = Callable[[str], object]


def grep(
    path: Path | Sequence[Path],
    *patterns: str,
    literal: bool = False,
    ignore_case: bool = False,
    whole: bool = False,
    invert: bool = False,
    fields: Sequence[str] = (),
    json_paths: Sequence[str] = (),
    key: bytes | str | None = None,
    headers: Mapping[str, str | bytes] | None = None,
    where: str | None = None,
    schemas: Path | Sequence[Path] | Schemas | None = None,
    key_as: str | None = None,
    value_as: str | None = None,
    offsets: str | tuple[int | None, int | None] | None = None,
    since: Time | None = None,
    until: Time | None = None,
    isolation: str = READ_UNCOMMITTED,
    limit: int | None = None,
    verify_crc: bool = True,
    report: ReportFinding = do_nothing,
    unread: ReportUnread | None = None,
) -> Iterator[Record]:
    """Iterate over the records that match, by path and offset: the search of ``kseg grep``, by one process.

    Parameters:
        path: a segment, a partition folder, a log directory, a URL, or a list of these.
        patterns: Python's regular expressions, or with ``literal`` texts; one of them must match one of ``fields``.
        fields: of key, value, header-key and header-value; all by default, and only values with ``json_paths``.
        json_paths: such as ``$.order.id=17``; all of them must lead to a value.
        key, headers: the exact key, and header values by name.
        where: a condition in SQL, such as ``value.total > 100``. It needs DuckDB.
        schemas, key_as, value_as: decode keys and values before they are searched, as in ``kseg.scan``.
        offsets, since, until, isolation: the records that are searched, as in ``kseg.scan``.
        limit: the largest number of records.
        report, unread: as in ``kseg.scan``.

    Raises UsageError for wrong arguments and UnreadableError for a missing path.
    """
    fields, json_paths = texts(fields), texts(json_paths)
    for field in fields:
        check_name("field", field, FIELDS)
    check_name("isolation", isolation, ISOLATIONS)
    check_number("limit", limit, 0)
    for pattern in patterns:
        if not isinstance(pattern, str):
            raise UsageError(f"patterns: expected texts, got {pattern!r}")
    decoding = decode_settings(schemas, key_as, value_as)
    own: list[RecordCondition] = [KeyIsOneOf((as_bytes("key", key),))] if key is not None else []
    own += (HasHeader(as_bytes("headers", name), as_bytes("headers", value)) for name, value in (headers or {}).items())
    limits = RowFilter(
        *offset_range(offsets),
        epoch_time("since", since),
        epoch_time("until", until),
        committed=isolation == READ_COMMITTED,
    )
    sides = decoding.sides if decoding else ()
    if where is not None:
        statement.import_libraries("where")  # before that module, whose classes are those of pyarrow
    limits = limits.with_conditions(own, None if where is None else conditions.parse_where(where, sides))
    query = GrepQuery(
        patterns,
        literal,
        ignore_case,
        whole,
        invert,
        fields or (("value",) if json_paths else FIELDS),
        tuple(map(parse_json_path, json_paths)),
        limits.conditions,
    )
    files = [file for file in _files(path) if limits.accepts_file(*topic_partition(file.path))]
    tell = each_once(unread or raise_unreadable)

    def unknown(error: KsegError) -> None:
        tell(str(error))

    logs = TransactionLogs(unread=unknown)
    if isolation == READ_COMMITTED:
        logs = TransactionLogs.at_stable_offsets([file.path for file in files], unknown)
    dump = DumpRequest(True, limits.of_rows, verify_crc=verify_crc, wrong_crc=True, logs=logs)
    request = GrepRequest(query, decoding, dump).asking(undecoded(unread))
    request.search_in(SegmentFile(""), MatchClock())  # raises UsageError for a wrong pattern now
    return islice(_found(request, files, report, tell), limit)


def _found(
    request: GrepRequest, files: Sequence[SegmentFile], report: ReportFinding, unread: ReportUnread
) -> Iterator[Record]:
    for file in files:

        def reported(finding: Finding, path: str = file.path) -> None:
            if finding.rule == READ_ERROR:
                unread(str(unreadable(path, finding)))
            else:
                report(path, finding)

        try:
            for item in request.items(file, request.search_in(file, MatchClock()), reported):
                if isinstance(item, RecordsItem):
                    yield from item.records()
        except (UnreadableError, NotASegmentError) as error:
            if failed := unless_deleted(error, file):
                unread(str(failed))


def lag(
    path: Path | Sequence[Path],
    *,
    groups: Collection[str] = (),
    at: Time | None = None,
    report: ReportFinding = do_nothing,
    unread: ReportUnread | None = None,
) -> Iterator[GroupLag]:
    """Iterate over the committed offsets of consumer groups with their lag, by group, topic and partition.

    Parameters:
        path: the local log directories of all brokers.
        groups: the names of groups, all by default.
        at: the time of the commits, the newest by default.
        report, unread: as in ``kseg.scan``.

    Raises UsageError for URLs, and UnreadableError for a missing path.
    """
    for one in paths_of(path):
        if is_url(one):
            raise UsageError(f"{one}: lag reads local log directories only: give a folder")
    groups = texts(groups)
    found, tell = LogDirs(_files(path), report), unread or raise_unreadable
    moment = None if at is None else Moment(timestamp=epoch_time("at", at))
    commits = []
    for read in (read_commits(replica, moment) for replica in partitions_of(found, CONSUMER_OFFSETS)):
        for file, finding in read.findings:
            report(file, finding)
        if read.unread:
            tell(read.unread)
        commits += [commit for commit in read.commits if not groups or commit.group in groups]
    return lags(found, commits, moment)


def transactions(
    path: Path | Sequence[Path],
    *,
    max_age: timedelta = timedelta(milliseconds=MAX_TRANSACTION_MS),
    report: ReportFinding = do_nothing,
    unread: ReportUnread | None = None,
) -> Iterator[Transaction | PartitionTransactions]:
    """Iterate over the transactions of each partition, followed by its PartitionTransactions, with the last stable offset.

    Parameters:
        path: a segment, a partition folder, a log directory, a URL, or a list of these.
        max_age: an open transaction that is older is hanging.
        report, unread: as in ``kseg.scan``.

    Raises UsageError for a negative age and UnreadableError for a missing path.
    """
    if max_age < timedelta():
        raise UsageError(f"max_age: expected a time that is not negative, got {max_age!r}")
    tell = unread or raise_unreadable
    now = time.time_ns() // 1_000_000
    return items_of(_files(path), now, max_age // timedelta(seconds=1), report, lambda error: tell(str(error)))


def stats(
    path: Path | Sequence[Path],
    *,
    deep: bool = True,
    verify_crc: bool = True,
    jobs: int = 1,
    report: ReportFinding = do_nothing,
    unread: ReportUnread | None = None,
) -> Iterator[Level]:
    """Iterate over the counts of segments, each partition after its segments, each log directory, and last the total.

    Parameters:
        path: a segment, a partition folder, a log directory, a URL, or a list of these.
        deep: False counts by headers alone, and decompresses nothing.
        jobs: the largest number of processes.
        report, unread: as in ``kseg.scan``.

    Raises UnreadableError for a missing path.
    """
    check_number("jobs", jobs, 1)
    tell = unread or raise_unreadable
    files = sorted_by_folder(_files(path))

    def counted() -> Iterator[SegmentStats]:
        for one in stats_of(files, Settings(deep=deep, verify_crc=verify_crc), jobs):
            for verdict in one.result.verdicts:
                report(verdict.file, verdict.finding)
            if one.result.unread:
                tell(one.result.unread)
            yield one

    return levels(counted(), deep)


def diff(a: Path, b: Path, *others: Path, deep: bool = True, limit: int = 100) -> Iterator[PairOutcome]:
    """Compare replicas of a partition, or the partitions of log directories.

    Parameters:
        a, b: segments, partition folders, or log directories; ``others`` are more folders or log directories.
        deep: False compares headers and CRCs, and does not open batches.
        limit: the largest number of listed differences of each kind; all are counted.

    Returns an outcome for each pair that is compared. Raises UsageError for paths of several kinds, and UnreadableError if
    one of two replicas cannot be read; of log directories, such a pair has the verdict ``unread``.
    """
    check_number("limit", limit, 0)
    paths = [os.fspath(one) for one in (a, b, *others)]
    for one in paths:
        check_exists(one)
    log_dirs = [one for one in paths if is_log_dir(one)]
    if len(log_dirs) == len(paths):
        partitions = partition_replicas(paths)
        return (outcome for one in partitions for outcome in compare_replicas(one, limit, shallow=not deep))
    if log_dirs:
        raise UsageError("expected replicas of one partition, or only log directories")
    if others:
        return iter(compare_replicas(replicas_of_one(paths), limit, shallow=not deep))
    topic, partition = topic_partition(next(find_segments(paths[0])).path)
    outcome = compare_pair(PartitionPair(topic, partition, *paths), limit, shallow=not deep)
    if outcome.verdict == UNREAD:
        raise UnreadableError(outcome.reason)
    return iter((outcome,))


def recovery(
    path: Path | Sequence[Path], *, clean: bool | None = None, unread: ReportUnread | None = None
) -> Iterator[LogDirPlan | PartitionPlan]:
    """Predict the start of a broker: iterate over the plan of each log directory, followed by those of its partitions.

    Parameters:
        path: local log directories of one broker, or partition folders.
        clean: whether the last shutdown was clean, None if the log directory decides it.
        unread: as in ``kseg.scan``.

    Raises UsageError for URLs, and UnreadableError for a missing path.
    """
    if clean not in (None, True, False):
        raise UsageError(f"clean: expected True, False or None, got {clean!r}")
    paths = paths_of(path)
    for one in paths:
        if is_url(one):
            raise UsageError(f"{one}: recovery reads local log directories only: give a folder")
        check_exists(one)
    return recovery_plans.plans_of(paths, BrokerStart(clean), unread or raise_unreadable)


def _files(path: Path | Sequence[Path]) -> list[SegmentFile]:
    for one in paths_of(path):
        if one != STDIN:  # it can be read only once
            check_exists(one)
    return once_each(file for one in without_unused(paths_of(path)) for file in find_segments(one))
