"""A field of a record has one name wherever a user writes it or reads it."""

from __future__ import annotations

import csv
import io
import json

import pytest

from kseg import schema
from kseg.report.dump_report import MARKS
from tests.support.cli import SEGMENTS
from tests.support.cli import kseg_here as kseg

pytestmark = pytest.mark.slow

FOLDER = SEGMENTS / "4.3.0-v2-none-transactions"
#: The fields of JSON's rows, without the kind of the row, and without those that only a search has.
NAMES = [column.name for column in schema.RECORD_COLUMNS[1:]]
#: Fields that are texts as they are, or whole numbers, in each of the five places.
SAME = [name for name in NAMES if name not in ("timestamp", "headers", "control", "key", "value")]


def test_the_names_of_fields_are_the_same_in_five_places() -> None:
    """In JSON Lines, --columns, --template, --where and SQL: what was learned in one place is right in another."""
    pytest.importorskip("duckdb", reason="duckdb is not installed")
    done = kseg("dump", "--deep", "--no-control", "--format", "jsonl", FOLDER)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert set(NAMES) <= rows[0].keys()
    wanted = [["" if row[name] is None else str(row[name]) for name in SAME] for row in rows]
    assert len({tuple(row[1:]) for row in wanted}) > 10
    arguments = ("--deep", "--no-control", FOLDER)
    template = "\t".join(f"%{{{name}}}" for name in SAME)
    lines = kseg("dump", "--template", template, *arguments).stdout.splitlines()
    assert [line.split("\t") for line in lines] == wanted
    columns = csv.reader(io.StringIO(kseg("dump", "--format", "csv", "--columns", ",".join(SAME), *arguments).stdout))
    assert list(columns) == [SAME, *wanted]
    statement = f'select {", ".join(SAME)} from records order by "offset"'
    selected = [json.loads(line) for line in kseg("sql", "--format", "jsonl", statement, FOLDER).stdout.splitlines()]
    assert selected == [{name: row[name] for name in SAME} for row in rows]
    last = rows[-1]
    same = " and ".join(f"{name} is not distinct from {_sql(last[name])}" for name in SAME)
    found = kseg("grep", "--format", "jsonl", "--where", same, FOLDER).stdout.splitlines()
    assert [json.loads(line)["offset"] for line in found] == [last["offset"]]
    place = ("topic", "partition")
    dumped = kseg("dump", "--format", "csv", "--columns", "topic,partition,offset", *arguments).stdout.splitlines()
    statement = 'select topic, partition, min("offset") from records group by all'
    assert dumped[1] == kseg("sql", "--format", "csv", statement, FOLDER).stdout.splitlines()[1]
    for name in (*place, *NAMES):  # those with another text, too
        for option in (("--where", f"{name} is null or {name} is not null"), ("--template", f"%{{{name}}}")):
            assert len(kseg("dump", "--deep", *option, FOLDER).stdout) > 1


def test_an_unknown_name_of_a_template_has_the_near_one() -> None:
    for template, reason in (
        ("%{ofset}", "did you mean offset?"),
        ("%{o}", "unknown field 'o'"),
        ("%{}", "unknown mark"),
    ):
        done = kseg("dump", "--template", template, FOLDER)
        assert (done.returncode, done.stdout) == (2, "")
        assert reason in done.stderr
    assert "%{NAME}" in MARKS


def _sql(value: object) -> str:
    return "null" if value is None else f"'{value}'" if isinstance(value, str) else str(value)
