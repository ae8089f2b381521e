"""The limits that a filter of an Arrow reader implies, so that files and bytes without matching rows are not read.

Arrow simplifies a filter under a guarantee, to skip files of a dataset. Here it is asked whether rows below or above a value
can match, and a binary search finds the value. A filter of any form can be used, and what Arrow can't prove is read.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass, fields
from typing import Any

from kseg.format.record.layout import FIRST_MILLISECOND, INT64_MAX, LAST_MILLISECOND
from kseg.report.arrow_parts import dataset, pa
from kseg.report.arrow_table import Place
from kseg.views.request import RowLimits

_WORD = re.compile(r"\w+")
#: Column -> the limits that bound it, the smallest and the largest value, and Arrow's type and its units per value.
_RANGES = {
    "offset": ("first_offset", "end_offset", 0, INT64_MAX, None, 1),
    "timestamp": ("since", "until", FIRST_MILLISECOND, LAST_MILLISECOND, "us", 1000),
    "timestamp_ms": ("since", "until", FIRST_MILLISECOND, LAST_MILLISECOND, None, 1),
}


@dataclass(frozen=True, slots=True)
class FilterLimits(RowLimits):
    """Limits that also reject the files of partitions in which no row can match ``filter``."""

    schema: Any = None
    filter: Any = None

    def accepts_file(self, topic: str | None, partition: int | None) -> bool:
        if not RowLimits.accepts_file(self, topic, partition):
            return False
        place = Place("", topic, partition).escaped()
        same = (_equals(name, getattr(place, name)) for name in ("topic", "partition"))
        return all(_can_match(self.filter, self.schema, guarantee) for guarantee in same)


def limits_of(condition: Any, schema: Any, limits: RowLimits, *, ranges: bool) -> RowLimits:
    """Return the limits of a pyarrow filter over columns of the schema, within other limits.

    With ``ranges`` the columns of _RANGES are those of records.
    """
    for name in names_in(condition) & _RANGES.keys() if ranges else ():
        limits = limits.both(_range_of(condition, schema, name))
    given = {field.name: getattr(limits, field.name) for field in fields(RowLimits)}
    return FilterLimits(**given, schema=schema, filter=condition)


def names_in(condition: Any) -> set[str]:
    """Return the words of a pyarrow expression, which has no list of its columns: their names, and other words."""
    return set(_WORD.findall(str(condition)))


def _range_of(condition: Any, schema: Any, name: str) -> RowLimits:
    first_name, end_name, smallest, largest, unit, factor = _RANGES[name]
    column = dataset.field(name)

    def scalar(value: int) -> Any:
        return pa.scalar(value * factor, pa.timestamp(unit, tz="UTC") if unit else pa.int64())

    def can_be_below(value: int) -> bool:
        return _can_match(condition, schema, (column < scalar(value)) | column.is_null())

    def can_be_from(value: int) -> bool:
        return _can_match(condition, schema, (column >= scalar(value)) | column.is_null())

    values = range(smallest, largest)
    first = values[0] + bisect_left(values, True, key=lambda value: can_be_below(value + 1))
    end = values[0] + bisect_left(values, True, key=lambda value: not can_be_from(value))
    return RowLimits(
        **{first_name: first if first > smallest else None, end_name: end if end < largest else None}  # type: ignore[arg-type]
    )


def _equals(name: str, value: Any) -> Any:
    column = dataset.field(name)
    return column.is_null() if value is None else column == value


def _can_match(condition: Any, schema: Any, guarantee: Any) -> bool:
    """Return False if Arrow proves that no row for which the guarantee is true matches the condition."""
    file_format = dataset.IpcFileFormat()
    fragment = file_format.make_fragment(pa.BufferReader(b""), partition_expression=guarantee)
    matching = dataset.FileSystemDataset([fragment], schema, file_format).get_fragments(filter=condition)
    return next(iter(matching), None) is not None
