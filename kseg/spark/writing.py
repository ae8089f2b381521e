"""Write a DataFrame as segments: sealed v2 logs with their indexes in one folder per partition, as a broker has them.

    write_segments(df, "/data/replay")    # /data/replay/orders-3/00000000000000000000.log, .index, .timeindex

It is ``df.write.format("kseg")`` for rows in any order: it sorts them if the plan does not show that they are in order, and
tells from the plan whether all rows are records.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from kseg.errors import UsageError
from kseg.spark import register
from kseg.spark.jobs.arrow_columns import NEEDED, OF_LOG, OF_PLACE
from kseg.spark.jobs.pool import one_line_errors
from kseg.spark.jobs.row_kinds import check_kinds, is_read_of_segments, items_of, proved_data, reads_of_segments
from kseg.spark.jobs.segment_sink import BATCH_BYTES, SEGMENT_BYTES, SinkOptions, finish_interrupted, local_folder

_ORDER = ("topic", "partition", "offset")
_OF_KIND = ("damage", "control", "transaction_state", "transactional")


def write_segments(
    df: DataFrame,
    path: str,
    *,
    compression: str = "none",
    segment_bytes: int = SEGMENT_BYTES,
    batch_bytes: int = BATCH_BYTES,
    overwrite: bool = False,
    drop: Collection[str] = (),
    as_data: Collection[str] = (),
    same_log: bool = False,
    ordered: bool | None = None,
) -> None:
    """Write rows of topic, partition, offset, key and value (optional: timestamp or timestamp_ms, headers) as segments.

    Offsets may have gaps but no duplicates. A batch has about ``batch_bytes`` before compression. ``path`` is a local
    folder, or its ``file:`` URL. Existing partitions are refused or, with ``overwrite``, replaced when all new ones are
    written. If an earlier write was killed while its partitions got their names, this one first finishes that.

    ``ordered``: the rows of each task are in the order of their offsets; None: as the plan shows. Otherwise tasks get ranges
    of offsets, and sort them. With ``same_log`` the result has the producers, transactions and times of the source.

    Rows that are not records are refused (``row_kinds.KINDS``), unless their kind is in ``drop``, which leaves them
    out, or in ``as_data``, which writes them as plain records. Raises UsageError for invalid columns and options,
    KsegError for invalid rows. No partition is written then.
    """
    check_kinds(drop, as_data)
    folder = local_folder(path)
    proved = frozenset() if same_log else frozenset(proved_data(df, as_data))
    options = SinkOptions(folder, compression, segment_bytes, batch_bytes, frozenset(drop), proved, same_log)
    options.check()
    options.check_columns(df.columns)
    if same_log and any(read.get("isolation") == "read_committed" for read in reads_of_segments(df)):
        raise UsageError("same_log: rows that are read with isolation=read_committed lack the markers of transactions")
    finish_interrupted(folder)
    register(df.sparkSession)
    rows = df.select(*_columns(df, same_log))
    if not (ordered if ordered is not None else is_ordered(df)):
        rows = rows.repartitionByRange(*_ORDER).sortWithinPartitions(*_ORDER)
    with one_line_errors():
        rows.write.format("kseg").options(**options.to_spark()).mode("overwrite" if overwrite else "append").save(
            str(folder)
        )


def _columns(df: DataFrame, same_log: bool) -> Iterator[Any]:
    """Yield the columns for the tasks. Numbers are cast here, so that tasks get ranges of their real order."""
    kinds = {"topic": "string", "partition": "int", "offset": "bigint"}
    stamp = next((name for name in ("timestamp_ms", "timestamp") if name in df.columns), None)
    types = dict(df.dtypes)
    optional = [*([stamp] if stamp else []), "headers", *_OF_KIND, *((*OF_LOG, *OF_PLACE) if same_log else ())]
    for name in dict.fromkeys((*NEEDED, *(one for one in optional if one in df.columns))):
        right = types[name] == kinds.get(name, types[name])
        yield f.col(name) if right else f.col(name).cast(kinds[name]).alias(name)


def is_ordered(df: DataFrame) -> bool:
    """Return whether the plan shows that the rows of each task are in the order of their offsets.

    That is so if they are of reads of segments, one after the other, and neither offsets nor partitions are computed.
    """
    if not hasattr(df, "_jdf"):
        return False  # Spark Connect
    plan = df._jdf.queryExecution().analyzed()
    output = {one.name(): one for one in items_of(plan.output())}
    return all(_origin(plan, output[name]) in (_READ, _CONSTANT)[: 1 if name == "offset" else 2] for name in _ORDER)


_READ, _CONSTANT = "read", "constant"


def _origin(plan: Any, attribute: Any) -> str | None:
    """Return whether an output of a plan is a column of a read of segments or a constant; None for all others."""
    kind = plan.getClass().getSimpleName()
    if is_read_of_segments(plan):
        return _READ
    children = list(items_of(plan.children()))
    if kind == "Union":
        position = next(i for i, one in enumerate(items_of(plan.output())) if _is_same(one, attribute))
        found = {_origin(child, list(items_of(child.output()))[position]) for child in children}
        return next(iter(found)) if len(found) == 1 else None
    if kind == "Project":
        own = next(one for one in items_of(plan.projectList()) if _is_same(one, attribute))
        if own.getClass().getSimpleName() == "Alias":
            inner = own.child()
            if inner.foldable():
                return _CONSTANT
            return _origin(children[0], inner) if inner.getClass().getSimpleName() == "AttributeReference" else None
        return _origin(children[0], own)
    if kind in ("Filter", "SubqueryAlias", "View"):
        inside = next((one for one in items_of(children[0].output()) if _is_same(one, attribute)), None)
        return None if inside is None else _origin(children[0], inside)
    return None


def _is_same(one: Any, other: Any) -> bool:
    return bool(one.exprId().equals(other.exprId()))
