"""Output of ``kseg dump --effective``: the state of each partition and its use of space."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any, TextIO

from kseg.format.internal_topics.effective_state import Effective, topic_names
from kseg.format.internal_topics.state import Data, Item, names, status
from kseg.format.storage.naming import CLUSTER_METADATA
from kseg.report.row_formats import cell, is_time
from kseg.report.tables import TableColumn, print_cells
from kseg.schema import Column, Row, RowKind, row_maker
from kseg.text import count_of, escape_controls

#: The number of owners that a table lists per entity.
_LARGEST = 10


@dataclass(frozen=True, slots=True)
class EffectivePartition:
    """A partition folder and its effective state."""

    folder: str
    topic: str
    partition: int | None
    effective: Effective


_PLACE = (
    Column("folder", "text", "the folder of the partition"),
    Column("topic", "text", "the internal topic"),
    Column("partition", "int32?", "the partition"),
)
_STATE = (
    Column("entity", "text", "kind of the item, such as OffsetCommit"),
    Column("key", "json", "the decoded key"),
    Column("data", "json", "the latest value"),
    Column("offset", "int", "offset of the record that changed it last", "at.offset"),
    Column("timestamp", "ms?", "timestamp of that record", "at.timestamp"),
    Column("pending", "bool", "not effective yet: its transaction is open"),
    Column("status", "text?", "status of a transactional id, remote segment or remote partition", status),
)
_TOPIC_NAME = Column("topic_name", "text?", "name of the topic in the key; of __cluster_metadata only")
_SPACE = (
    Column("entity", "text", "kind of the items"),
    Column("owner", "text?", "such as the group"),
    Column("records", "count", "number of records"),
    Column("bytes", "count", "bytes of keys and values, before compression"),
    Column("tombstones", "count", "records without a value"),
    Column("live_records", "count?", "records with the latest values, which the cleaner keeps; null without keys"),
    Column("live_bytes", "count?", "bytes of them"),
)
ROW_KINDS = (
    RowKind("dump", "Effective state", "with `--effective`").of("state", *_PLACE, *_STATE, _TOPIC_NAME),
    RowKind("dump", "Space of internal topics", "with `--effective`").of("space", *_PLACE, *_SPACE),
)


def rows(partitions: Iterable[EffectivePartition]) -> Iterator[Row]:
    """Yield per partition one ``kind="state"`` row per item, then one ``kind="space"`` row per entity and owner."""
    place_of, state, used = row_maker(_PLACE), row_maker(_STATE), row_maker(_SPACE)
    for found in partitions:
        place = place_of(found)
        # Of a coordinator's topic there can be millions of items, without names of topics.
        topics = topic_names(found.effective.items()) if found.topic == CLUSTER_METADATA else {}
        for item in found.effective.items():
            name = topics.get(item.key.get("topicId", ""))
            yield {"kind": "state", **place, **state(item), _TOPIC_NAME.name: name}
        for space in found.effective.spaces():
            yield {"kind": "space", **place, **used(space)}


def write_table(partitions: Iterable[EffectivePartition], out: TextIO) -> None:
    """Write one table per entity, then one of the space used."""
    for found in partitions:
        out.write(escape_controls(found.folder) + "\n\n")
        items = sorted(found.effective.items(), key=lambda item: (item.entity, item.pending))
        spaces = found.effective.spaces()
        if not items:
            out.write(f"no effective state in {count_of(sum(space.records for space in spaces), 'record')}\n\n")
        topics = topic_names(items)
        for entity, group in groupby(items, key=lambda item: item.entity):
            _write(entity, [_cells(item, topics) for item in group], out)
        if spaces:
            _write("space", [asdict(space) for space in spaces[:_LARGEST]], out)
        if len(spaces) > _LARGEST:
            out.write(f"and {len(spaces) - _LARGEST:,} smaller ones\n\n")


def _cells(item: Item, topics: Mapping[str, str]) -> dict[str, Any]:
    key = _flat(item.key)
    if item.entity == "partition":
        key = {"topic": topics.get(item.key["topicId"]), **key}
    # Without a known definition both key and value are bytes.
    key = {f"key.{name}" if name in item.data else name: value for name, value in key.items()}
    pending = {"pending": True} if item.pending else {}
    return {**key, **item.data, **names(item), **pending, "offset in log": item.at.offset}


def _flat(key: Data) -> Data:
    """Flatten the key of a remote segment, which contains its partition."""
    of_segment = key.get("remoteLogSegmentId", key)
    place = of_segment.get("topicIdPartition")
    if place is None:
        return key
    segment = {"segment": of_segment["id"]} if "id" in of_segment else {}
    return {"topic": place["name"], "partition": place["partition"], **segment, "topicId": place["id"]}


def _write(title: str, found: list[dict[str, Any]], out: TextIO) -> None:
    *_, last = found[0]
    names = [*dict.fromkeys(name for row in found for name in row if name != last), last]
    whole = {name for name in names if all(isinstance(row.get(name), (int, type(None))) for row in found)}
    columns = [
        TableColumn(escape_controls(name), name in whole and not is_time(name), "" if name in whole else "cut")
        for name in names
    ]
    print_cells(out, columns, [([cell(row.get(name), name) for name in names], "") for row in found], title=title)
