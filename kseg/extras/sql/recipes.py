"""The statements of ``kseg sql --recipe``: questions to a log directory or to many. DuckDB and Spark run the same text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from textwrap import dedent

from kseg.schema import Row


@dataclass(frozen=True, slots=True)
class Recipe:
    """A statement with its purpose in one sentence. ``problem``: each row is a problem, which sets exit code 1."""

    purpose: str
    statement: str
    problem: bool = False


def _recipe(purpose: str, *parts: str, problem: bool = False) -> Recipe:
    return Recipe(purpose, "\n".join(dedent(part).strip() for part in parts), problem)


# Batches with a wrong CRC are not used: their fields can be wrong. KRaft snapshots repeat offsets of the log.
_VALID = "crc_valid is not false and file not like '%.checkpoint'"

# A batch that cannot be opened has at least its last offset.
_SEGMENTS = f"""
with segment as (
    select topic, partition, file, regexp_replace(file, '[^/]*$', '') as folder,
        min(coalesce(first_offset, last_offset)) as first_offset, max(last_offset) as last_offset
    from batches
    where {_VALID}
    group by topic, partition, file
), neighbours as (
    select topic, partition, file, first_offset, last_offset,
        lead(file) over in_folder as next_file, lead(first_offset) over in_folder as next_offset
    from segment
    window in_folder as (partition by folder order by file)
)
"""

RECIPES: Mapping[str, Recipe] = {
    "duplicates": _recipe(
        "Find batches that repeat offsets of their folder, or sequences of their producer.",
        # A group coordinator writes the offset commits of each transaction from sequence 0 on: no batch is repeated. Where
        # the topic's name is unknown, a marker before such a batch shows it.
        f"""
        with batch as (
            select topic, partition, file, position, coalesce(first_offset, last_offset) as first_offset, last_offset,
                producer_id, producer_epoch, base_sequence, control, regexp_replace(file, '[^/]*$', '') as folder
            from batches
            where {_VALID}
        ), in_folder as (
            select *, max(last_offset) over (
                partition by folder order by file, position rows between unbounded preceding and 1 preceding
            ) as earlier_offset
            from batch
        ), of_producer as (
            select *, lag(control) over (partition by folder, producer_id order by file, position) as after_marker
            from batch
            where producer_id >= 0 and (
                control or base_sequence > 0
                or base_sequence = 0 and (topic is null or topic <> '__consumer_offsets')
            )
        ), begun as (
            select *, count(case when base_sequence = 0 and after_marker then 1 end) over (
                partition by folder, producer_id, producer_epoch order by file, position
            ) as beginnings
            from of_producer
            where not control
        ), of_sequence as (
            select *, first_value(last_offset) over (
                partition by folder, producer_id, producer_epoch, beginnings, base_sequence order by file, position
            ) as earlier_offset
            from begun
        )
        select 'offset' as repeated, topic, partition, file, position, first_offset, last_offset,
            producer_id, producer_epoch, base_sequence, earlier_offset
        from in_folder
        where first_offset <= earlier_offset
        union all
        select 'sequence' as repeated, topic, partition, file, position, first_offset, last_offset,
            producer_id, producer_epoch, base_sequence, earlier_offset
        from of_sequence
        where last_offset <> earlier_offset
        order by file, position, repeated
        """,
        problem=True,
    ),
    "gaps": _recipe(
        "Find offsets between two segments that neither has, as after compaction or a loss.",
        _SEGMENTS,
        """
        select topic, partition, file, next_file, last_offset + 1 as first_offset, next_offset - 1 as last_offset
        from neighbours
        where next_offset > last_offset + 1
        order by file
        """,
    ),
    "overlaps": _recipe(
        "Find offsets that a segment and the next one both have.",
        _SEGMENTS,
        """
        select topic, partition, file, next_file, next_offset as first_offset, last_offset
        from neighbours
        where next_offset <= last_offset
        order by file
        """,
        problem=True,
    ),
    "legacy": _recipe(
        "Count batches of v0 and v1 by segment: the segments to convert.",
        f"""
        select topic, partition, file, magic, count(*) as batches, cast(sum(size) as bigint) as bytes,
            max(last_offset) as last_offset, max(max_timestamp) as max_timestamp
        from batches
        where magic < 2 and {_VALID}
        group by topic, partition, file, magic
        order by file, magic
        """,
    ),
    "codecs": _recipe(
        "Sum the bytes of batches by topic and codec: which topics are not compressed.",
        f"""
        select topic, compression, count(*) as batches, cast(sum(size) as bigint) as bytes
        from batches
        where {_VALID}
        group by topic, compression
        order by bytes desc, topic nulls first, compression
        """,
    ),
    "top-producers": _recipe(
        "List the 20 producer ids with the most bytes in batches, by topic.",
        f"""
        select topic, producer_id, cast(sum(size) as bigint) as bytes, count(*) as batches,
            cast(sum(greatest(record_count, 0)) as bigint) as records, count(distinct partition) as partitions
        from batches
        where producer_id >= 0 and {_VALID}
        group by topic, producer_id
        order by bytes desc, topic nulls first, producer_id
        limit 20
        """,
    ),
    "top-keys": _recipe(
        "List the 20 keys with the most bytes in keys and values, by topic.",
        """
        select topic, key, key_encoding, cast(sum(coalesce(key_size, 0) + coalesce(value_size, 0)) as bigint) as bytes,
            count(*) as records, count(*) - count(value_size) as tombstones
        from records
        where control is null and file not like '%.checkpoint'
        group by topic, key, key_encoding
        order by bytes desc, topic nulls first, key nulls first, key_encoding nulls first
        limit 20
        """,
    ),
    "cleaner": _recipe(
        "Count what the log cleaner would drop of each segment of a compacted topic now, and why others stay.",
        # Source: LogCleanerManager.cleanableOffsets, Cleaner. The checkpoint of the cleaner is not in the log: it is the
        # last hole in the offsets or later, so the dirty ratio is an upper bound.
        f"""
        with settings as (
            select 0.5 as min_cleanable_dirty_ratio, current_timestamp - interval '0' second as compacted_before
        ), batch as (
            select topic, partition, file, position, size, magic, record_count, base_offset, first_offset, last_offset,
                max_timestamp, delete_horizon, regexp_replace(file, '[^/]*$', '') as folder
            from batches
            where {_VALID}
        ), ordered as (
            select *, lag(last_offset) over (partition by folder order by file, position) as earlier_offset from batch
        ), cleaned as (
            select folder, max(case
                when magic >= 2 and record_count < last_offset - base_offset + 1 then last_offset + 1
                when first_offset > earlier_offset + 1 then first_offset
            end) as first_dirty_offset
            from ordered
            group by folder
        ), segment as (
            select topic, partition, folder, file, cast(sum(size) as bigint) as bytes, max(max_timestamp) as newest
            from batch
            group by topic, partition, folder, file
        ), opened as (
            select file from records where transaction_state = 'open' group by file
        ), judged as (
            select segment.*, lead(segment.file) over (partition by folder order by segment.file) is null as is_active,
                newest >= compacted_before and compacted_before < current_timestamp as is_recent,
                opened.file is not null as is_open
            from segment cross join settings left join opened on segment.file = opened.file
        ), uncleanable as (
            select folder, min(file) as first_file from judged where is_active or is_recent or is_open group by folder
        ), ratio as (
            select batch.folder, cast(sum(case
                when first_dirty_offset is null or last_offset >= first_dirty_offset then size else 0
            end) as double) / sum(size) as dirty_ratio
            from batch join cleaned on batch.folder = cleaned.folder
                join uncleanable on batch.folder = uncleanable.folder
            where file < first_file
            group by batch.folder
        ), data as (
            select records.file, records.offset, records.key_bytes, uncleanable.folder,
                coalesce(key_size, 0) + coalesce(value_size, 0) as bytes, value_size is null as is_tombstone,
                coalesce(transaction_state, '') = 'aborted' as is_aborted,
                coalesce(batch.delete_horizon < current_timestamp, false) as is_expired
            from records join batch on records.file = batch.file and records.position = batch.position
                join uncleanable on batch.folder = uncleanable.folder
            where control is null and records.file < first_file
        ), latest as (
            select folder, key_bytes, max(offset) as offset from data where not is_aborted group by folder, key_bytes
        ), decided as (
            select data.*, data.key_bytes is null as is_keyless, is_aborted or data.offset < latest.offset as is_old,
                is_tombstone and not is_aborted and data.offset = latest.offset as is_last_tombstone
            from data left join latest on data.folder = latest.folder and data.key_bytes = latest.key_bytes
        ), counted as (
            select file, count(*) as records, count(case when is_keyless then 1 end) as without_key,
                count(case when is_old and not is_keyless then 1 end) as superseded,
                count(case when is_last_tombstone and is_expired then 1 end) as expired_tombstones,
                count(case when is_last_tombstone and not is_expired then 1 end) as waiting_tombstones,
                cast(sum(case
                    when is_keyless or is_old or is_last_tombstone and is_expired then bytes else 0
                end) as bigint) as droppable_bytes
            from decided
            group by file
        )
        select topic, partition, judged.file, judged.bytes, records, without_key, superseded, expired_tombstones,
            waiting_tombstones, droppable_bytes, round(dirty_ratio, 3) as most_dirty_ratio,
            case
                when is_active then 'active segment'
                when is_recent then 'min.compaction.lag.ms'
                when is_open then 'open transaction'
                when judged.file > first_file then 'after a segment that stays'
                when records is null then 'no record'
                when without_key + superseded + expired_tombstones = 0 then case
                    when waiting_tombstones > 0 then 'delete.retention.ms' else 'nothing to drop'
                end
                when dirty_ratio < min_cleanable_dirty_ratio then 'min.cleanable.dirty.ratio'
            end as stays_because
        from judged cross join settings join uncleanable on judged.folder = uncleanable.folder
            left join ratio on judged.folder = ratio.folder left join counted on judged.file = counted.file
        order by judged.file
        """,
    ),
    "largest-records": _recipe(
        "List the 20 records with the most bytes in key and value.",
        """
        select topic, partition, offset, coalesce(key_size, 0) + coalesce(value_size, 0) as bytes, file, position
        from records
        order by bytes desc, topic nulls first, partition nulls first, offset, file
        limit 20
        """,
    ),
}


def recipe_rows(*, statements: bool) -> list[Row]:
    """Return a row for each recipe, with its statement if requested."""
    return [
        {"recipe": name, "problem": one.problem, "purpose": one.purpose}
        | ({"statement": one.statement} if statements else {})
        for name, one in RECIPES.items()
    ]
