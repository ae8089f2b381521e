"""CSV and ``--columns`` of the commands that write tables: the declared fields, with the values of JSON Lines."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from tests.support import fleet
from tests.support.cli import kseg_here as kseg

#: Command -> the kind of its rows in CSV.
KINDS = {
    "stats a": "stats",
    "recovery --unclean a": "partition",
    "transactions --state committed a": "transaction",
    "diff a b": "diff",
    "diff a/orders-0 b/orders-0": "difference",
    "lag a": "lag",
    "validate a": "finding",
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two log dirs, one of them damaged, with committed offsets."""
    home = tmp_path_factory.mktemp("columns")
    fleet.make_many(home / "a", 9, 4)
    fleet.make_many(home / "b", 9, 0)
    (home / "a" / "orders-0" / f"{120:020}.log").unlink()
    offsets = home / "a" / "__consumer_offsets-3"
    offsets.mkdir()
    for file in (fleet.SEGMENTS / "4.3.0-v2-none-internal-consumer-offsets").glob("*.log"):
        (offsets / file.name).write_bytes(file.read_bytes())
    return home


def text_of(value: object) -> str:
    """Return a value of JSON as a cell of CSV."""
    if isinstance(value, (dict, list)):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


@pytest.mark.slow
@pytest.mark.parametrize("command", KINDS)
def test_csv_has_the_values_of_json_lines(command: str, home: Path) -> None:
    """Both are made of one declaration of the fields."""
    shown = kseg(*command.split(), "--format", "csv", cwd=home).stdout
    table = list(csv.DictReader(shown.splitlines()))
    rows = [json.loads(line) for line in kseg(*command.split(), "--format", "jsonl", cwd=home).stdout.splitlines()]
    rows = [row for row in rows if row["kind"] == KINDS[command]]
    assert len(table) == len(rows) > 0
    for line, row in zip(table, rows, strict=True):
        same = [name for name in line if name not in ("age_ms", "abort")]
        assert [line[name].removeprefix("'") for name in same] == [text_of(row.get(name)) for name in same]


@pytest.mark.slow
@pytest.mark.parametrize("command", KINDS)
def test_columns_are_those_of_the_user(command: str, home: Path) -> None:
    """In their order, in a table and in CSV; an unknown name is an error with the nearest one."""
    header = kseg(*command.split(), "--format", "csv", cwd=home).stdout.splitlines()[0].split(",")
    names = [header[-1], header[1]]
    columns = ("--columns", ",".join(names))
    assert kseg(*command.split(), *columns, "--format", "csv", cwd=home).stdout.splitlines()[0].split(",") == names
    assert kseg(*command.split(), *columns, cwd=home).stdout.split("\n")[0].split() == names
    wrong = kseg(*command.split(), "--columns", names[0] + "x", cwd=home)
    assert (wrong.returncode, f"did you mean {names[0]}" in wrong.stderr) == (2, True), wrong.stderr
