"""Searches, compared with a look at every record of a dump."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from kseg.commands.dump.dump_items import RecordsItem
from kseg.commands.dump.neighbours import first_found
from kseg.commands.grep.matches import GrepQuery, JsonPath, RecordGrep
from kseg.errors import NotASegmentError
from kseg.format.segment.records_chunk import Record
from kseg.format.segment.row_filter import HasHeader, KeyIsOneOf, RecordCondition, RowFilter, ValueIsNull
from kseg.text import to_json
from tests.support import searched_logs
from tests.support.fixtures import dump_segment
from tests.support.fuzzing import cases

_PARTS = 4


def matches(query: GrepQuery, record: Record) -> bool:
    """Return whether a record matches, by its objects and without any prefilter."""
    fields = list(_fields(query, record))
    found = any(_text_matches(query, text) for data in fields for text in _texts(query, data))
    found = found and all(any(_selected(path, data) for data in fields) for path in query.json_paths)
    return found is not query.invert


def is_searched(query: GrepQuery, record: Record) -> bool:
    """Return whether a record has one of the keys, a null value and a header, if these are wanted."""
    return all(_fulfils(condition, record) for condition in query.conditions)


def _fulfils(condition: RecordCondition, record: Record) -> bool:
    if isinstance(condition, KeyIsOneOf):
        return record.key in condition.keys
    if isinstance(condition, HasHeader):
        wanted = condition.name.decode(), condition.value
        return wanted in [(header.key, header.value) for header in record.headers]
    assert isinstance(condition, ValueIsNull)
    return record.value is None


def _text_matches(query: GrepQuery, text: str) -> bool:
    if not query.patterns:
        return True
    for pattern in query.patterns:
        expression = re.compile(
            re.escape(pattern) if query.literal else pattern, re.IGNORECASE if query.ignore_case else 0
        )
        if expression.fullmatch(text) if query.whole else expression.search(text):
            return True
    return False


def _fields(query: GrepQuery, record: Record) -> Iterator[bytes]:
    keys: list[bytes | None] = [header.key.encode("utf-8", "surrogateescape") for header in record.headers]
    parts: dict[str, list[bytes | None]] = {
        "key": [record.key],
        "value": [record.value],
        "header-key": keys,
        "header-value": [header.value for header in record.headers],
    }
    for name in query.fields:
        yield from (data for data in parts[name] if data is not None)


def _texts(query: GrepQuery, data: bytes) -> Iterator[str]:
    if not query.json_paths:
        yield data.decode("utf-8", "surrogateescape")
    for path in query.json_paths:
        yield from _selected(path, data)


def _selected(path: JsonPath, data: bytes) -> list[str]:
    try:
        parsed = json.loads(data.decode("utf-8", "surrogateescape"))
    except ValueError:
        return []
    return [value if isinstance(value, str) else to_json(value) for value in path.select(parsed)]


def records(
    path: Path, keep: RowFilter, before: int = 0, after: int = 0, most: int | None = None
) -> list[tuple[Record, bool]]:
    """Return the records of a dump, each with whether it is a neighbour."""
    items = dump_segment(str(path), deep=True, keep=keep, before=before, after=after, wrong_crc=True)
    found = []
    for item in first_found(items, most, after):
        if isinstance(item, RecordsItem):
            found += [(item.chunk.record(i), i in item.neighbours) for i in item.kept]
    return found


def group_starts(path: Path, query: GrepQuery, before: int, after: int) -> list[int]:
    """Return which of the shown records, but the first, start a group."""
    keep = RowFilter(control=False, conditions=query.conditions, search=RecordGrep(query))
    items = dump_segment(str(path), deep=True, keep=keep, before=before, after=after, wrong_crc=True)
    starts = [i in item.group_starts for item in items if isinstance(item, RecordsItem) for i in item.kept]
    return [n for n, start in enumerate(starts) if n and start]


@pytest.mark.slow
@pytest.mark.fuzz
@pytest.mark.parametrize("part", range(_PARTS))
def test_a_search_finds_what_a_look_at_every_record_finds(tmp_path: Path, part: int) -> None:
    """In all versions and codecs, with damage, for all kinds of queries and with neighbours."""
    found_in_all = 0
    for seed in range(part, cases(160), _PARTS):
        random = Random(seed)
        path = searched_logs.written(tmp_path / str(seed), random)
        try:
            every = [record for record, _ in records(path, RowFilter(control=False))]
        except NotASegmentError:
            continue
        for _ in range(6):
            query = searched_logs.query(random)
            expected = [is_searched(query, record) for record in every]
            if query.has_pattern:
                expected = [wanted and matches(query, record) for wanted, record in zip(expected, every, strict=True)]
            keep = RowFilter(control=False, conditions=query.conditions, search=RecordGrep(query))
            found = records(path, keep)
            assert [record for record, _ in found] == [
                record for wanted, record in zip(expected, every, strict=True) if wanted
            ], (seed, query)
            found_in_all += len(found)
            before, after = random.choice((0, 1, 4)), random.choice((0, 2, 30))
            shown = records(path, keep, before, after)
            indexes = [n for n in range(len(every)) if any(expected[max(n - after, 0) : n + before + 1])]
            assert shown == [(every[n], not expected[n]) for n in indexes], (seed, query, before, after)
            groups = [n for n, wanted in enumerate(indexes) if n and wanted - indexes[n - 1] > 1]
            expected_starts = groups if before or after else []  # without neighbours there are no groups
            assert group_starts(path, query, before, after) == expected_starts, (seed, query, before, after)
            most = random.choice((1, 2, 5))
            limited = records(path, keep, before, after, most)
            places = [n for n, (_, is_neighbour) in enumerate(shown) if not is_neighbour]
            last = places[most - 1] if len(places) >= most else len(shown)
            context = [(record, True) for record, _ in shown[last + 1 : last + 1 + after]]
            assert limited == [*shown[: last + 1], *context], (seed, query, before, after, most)
    assert found_in_all
