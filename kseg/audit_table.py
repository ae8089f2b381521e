"""The table of audits: their columns, the functions that answer them, and which rows are problems.

An audit reads its parts, such as segments, in any process or on any machine, and makes rows from the results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from kseg.errors import KsegError, VanishedError
from kseg.lazy import imported
from kseg.schema import Row

#: The number of rows of top-producers and top-keys.
TOP = 20


@dataclass(frozen=True, slots=True)
class Audit:
    """An audit. ``columns`` has the Spark type of each column. The three functions are "module:function":

    ``parts`` returns the parts of the files, ``read`` the result of one part, and ``rows`` the rows of all results, in the
    order of the parts. ``problem`` returns whether a row is a problem. The results of an audit that ``streams`` are too
    large to be passed between processes: its ``read`` is a generator.
    """

    columns: Mapping[str, str]
    parts: str
    read: str
    rows: str
    problem: Callable[[Row], bool]
    streams: bool = False


_SEGMENT = {"topic": "string", "partition": "int", "file": "string"}

AUDITS: Mapping[str, Audit] = {
    "replicas": Audit(
        {
            "topic": "string", "partition": "int", "a": "string", "b": "string", "verdict": "string",
            "first_offset": "bigint", "a_epoch": "int", "b_epoch": "int", "stale": "string",
            "last_common_offset": "bigint", "a_truncates_to": "bigint", "b_truncates_to": "bigint", "unread": "string",
        },
        "kseg.commands.diff.replica_audit:pairs",
        "kseg.commands.diff.replica_audit:compare_pair",
        "kseg.commands.diff.replica_audit:replicas",
        lambda row: row["verdict"] not in ("identical", "same", "consistent"),
    ),
    "gaps": Audit(
        {
            "kind": "string", "topic": "string", "partition": "int", "file": "string", "next_file": "string",
            "first_offset": "bigint", "last_offset": "bigint",
        },
        "kseg.commands.audit.segments:each_file",
        "kseg.commands.audit.segments:extent",
        "kseg.commands.audit.segments:gaps",
        lambda row: row["kind"] == "overlap",
    ),
    "duplicates": Audit(
        {
            "kind": "string", **_SEGMENT, "position": "bigint", "first_offset": "bigint", "last_offset": "bigint",
            "producer_id": "bigint", "producer_epoch": "int", "base_sequence": "int", "earlier_offset": "bigint",
        },
        "kseg.commands.audit.repeated:each_folder",
        "kseg.commands.audit.repeated:repeated_batches",
        "kseg.commands.audit.repeated:duplicates",
        lambda row: True,
    ),
    "legacy": Audit(
        {
            **_SEGMENT, "magic": "int", "batches": "bigint", "bytes": "bigint", "last_offset": "bigint",
            "max_timestamp_ms": "bigint",
        },
        "kseg.commands.audit.segments:each_file",
        "kseg.commands.audit.sums:legacy_sums",
        "kseg.commands.audit.sums:legacy",
        lambda row: False,
    ),
    "top-producers": Audit(
        {
            "topic": "string", "producer_id": "bigint", "bytes": "bigint", "batches": "bigint", "records": "bigint",
            "partitions": "bigint",
        },
        "kseg.commands.audit.segments:each_file",
        "kseg.commands.audit.sums:producer_sums",
        "kseg.commands.audit.sums:top_producers",
        lambda row: False,
    ),
    "top-keys": Audit(
        {"topic": "string", "key": "binary", "bytes": "bigint", "records": "bigint", "tombstones": "bigint"},
        "kseg.commands.audit.segments:each_file",
        "kseg.commands.audit.keys:key_sums",
        "kseg.commands.audit.keys:top_keys",
        lambda row: False,
        streams=True,
    ),
    "retention-pins": Audit(
        {
            **_SEGMENT, "timestamp_ms": "bigint", "position": "bigint", "offset": "bigint", "producer_id": "bigint",
            "held_segments": "bigint", "held_bytes": "bigint", "future": "boolean",
        },
        "kseg.commands.audit.segments:each_file",
        "kseg.commands.audit.segments:extent",
        "kseg.commands.audit.segments:retention_pins",
        lambda row: bool(row["future"]),
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Unread:
    reason: str


def rows_of(
    audit: Audit,
    parts: Iterable[Any],
    each: Callable[..., Iterable[Any]],
    unread: Callable[[str], object],
    **options: Any,
) -> Iterator[Row]:
    """Yield the rows of an audit. ``each`` is ``map`` or like it; ``unread`` is called with the reason for an unread part.

    ``options`` are those of the function that makes the rows.
    """

    def readable() -> Iterator[Any]:
        if audit.streams:
            yield from (_stream(audit.read, part, unread) for part in parts)
            return
        for result in each(partial(_attempt, audit.read), parts):
            if isinstance(result, _Unread):
                unread(result.reason)
            elif result is not None:
                yield result

    rows: Iterator[Row] = imported(audit.rows)(readable(), **options)
    return rows


def _attempt(read: str, part: Any) -> Any:
    """Return the result of a part, None if a broker has deleted it meanwhile."""
    try:
        return imported(read)(part)
    except KsegError as error:
        return _unread(part, error)


def _stream(read: str, part: Any, unread: Callable[[str], object]) -> Iterator[Any]:
    """Yield the results of a part."""
    try:
        yield from imported(read)(part)
    except KsegError as error:
        if failed := _unread(part, error):
            unread(failed.reason)


def _unread(part: Any, error: KsegError) -> _Unread | None:
    deleted = isinstance(error, VanishedError) and getattr(part, "listed", False)
    return None if deleted else _Unread(str(error))
