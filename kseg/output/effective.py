"""What ``kseg dump --effective`` writes: the state of each partition, and what takes its space."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any, TextIO

from kseg.dumping.record_lines import to_json
from kseg.escapes import escape_controls
from kseg.internal.effective import Effective, status
from kseg.internal.state import Item
from kseg.output.dump import cell
from kseg.output.formats import console

#: Of an entity's owners, how many a table names.
_LARGEST = 10


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition's folder, and what it comes to."""

    folder: str
    topic: str
    partition: int | None
    effective: Effective


def write_jsonl(partitions: Iterable[Partition], out: TextIO) -> None:
    """``kind="state"`` for each item, ``kind="space"`` for each entity and owner behind those of the partition."""
    for found in partitions:
        place = {"folder": found.folder, "topic": found.topic, "partition": found.partition}
        for item in found.effective.items():
            out.write(to_json({"kind": "state", **place, **_row(item)}) + "\n")
        for space in found.effective.spaces():
            out.write(to_json({"kind": "space", **place, **asdict(space)}) + "\n")


def _row(item: Item) -> dict[str, Any]:
    return {
        "entity": item.entity,
        "key": item.key,
        "data": item.data,
        "offset": item.at.offset,
        "timestamp": item.at.timestamp,
        "pending": item.pending,
        "status": status(item),
    }


def write_table(partitions: Iterable[Partition], out: TextIO) -> None:
    """A table for each entity, and one of what takes the space."""
    for found in partitions:
        out.write(escape_controls(found.folder) + "\n")
        items = sorted(found.effective.items(), key=lambda item: (item.entity, item.pending))
        for entity, group in groupby(items, key=lambda item: item.entity):
            _write(entity, [_cells(item) for item in group], out)
        spaces = found.effective.spaces()
        _write("space", [asdict(space) for space in spaces[:_LARGEST]], out)
        if len(spaces) > _LARGEST:
            out.write(f"and {len(spaces) - _LARGEST} smaller\n")


def _cells(item: Item) -> dict[str, Any]:
    more = {"status": status(item), "pending": "yes" if item.pending else None}
    known = {name: value for name, value in more.items() if value is not None}
    return {**item.key, **known, **item.data, "offset in log": item.at.offset}


def _write(title: str, found: list[dict[str, Any]], out: TextIO) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    names = list(dict.fromkeys(name for row in found for name in row))
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=Text(title), title_justify="left")
    for name in names:
        numbers = all(isinstance(row.get(name, 0), int) for row in found)
        table.add_column(Text(escape_controls(name)), justify="right" if numbers else "left", overflow="fold")
    for row in found:
        table.add_row(*(Text(cell(row.get(name))) for name in names))
    console(out).print(table)
