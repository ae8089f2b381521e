"""Typed tables: the columns are what other libraries read, schemas evolve, and no record is dropped."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed")

import pyarrow.parquet as pq

from kseg.extras.pipeline import load_rows
from kseg.extras.pipeline.pipeline_settings import read_settings
from tests.support.evolving_values import KINDS, Topic, framed, write_log, write_schemas, write_topic
from tests.support.pipelines import config, killed, run_here, split_log, table_rows
from tests.support.pipelines import run_in_process as run

SCHEMAS = 'schemas = "registry/_schemas-0"'


def check_table(home: Path, kind: str, topic: Topic) -> None:
    """Compare the table and its side table with the truth."""
    found = {row["offset"]: row for row in table_rows(home, kind)}
    assert found.keys() == topic.truth.keys()
    for offset, value in topic.truth.items():
        row = {name: content for name, content in found[offset].items() if name not in RECORD}
        assert row == (value or dict.fromkeys(row)), offset
    rejected = table_rows(home, kind, "__rejects") if topic.undecodable else []
    assert sorted(row["offset"] for row in rejected) == sorted(topic.undecodable)
    for row in rejected:
        assert topic.undecodable[row["offset"]] in row["reason"]
        assert row["value"] is not None
        assert (row["topic"], row["partition"], row["key"]) == ("orders", 0, f"k{row['offset']}".encode())


RECORD = ("topic", "partition", "offset", "timestamp", "key", "timestamp_day")


@pytest.mark.slow
@pytest.mark.parametrize("values", KINDS)
def test_a_table_has_the_fields_of_the_schema(tmp_path: Path, values: str) -> None:
    """Without columns: a column for each field; records that cannot be decoded are in the side table with their bytes."""
    topic = write_topic(tmp_path, values)
    path = config(tmp_path, more=SCHEMAS)
    done = run(path)
    assert done.returncode == 1, done.stderr
    assert f"{len(topic.undecodable)} records without a typed row" in done.stdout
    check_table(tmp_path, "parquet", topic)
    assert run(path, "verify").returncode == 0
    again = run_here(path)
    assert (again.code, again.rejected) == (0, {})


@pytest.mark.slow
def test_a_new_version_adds_columns_or_stops(tmp_path: Path, kind: str) -> None:
    """Two nights: the second has version 3, with new fields, also in structs, and a wider id."""
    topic = write_topic(tmp_path / "all", "AVRO", count=90)
    registry = tmp_path / "registry" / "_schemas-0"
    write_schemas(registry, "AVRO", topic.texts[:2], "orders-value")
    path = config(tmp_path, kind, more=SCHEMAS)
    early = sorted({*topic.truth, *topic.undecodable})[:60]
    log = split_log(topic.log, tmp_path / "split" / "orders-0")
    (tmp_path / "source" / "orders-0").mkdir(parents=True)
    for segment in log[:6]:
        shutil.copy(segment, tmp_path / "source" / "orders-0")
    assert run_here(path).code == 1
    assert sorted(row["offset"] for row in table_rows(tmp_path, kind)) == [one for one in early if one in topic.truth]
    write_schemas(registry, "AVRO", topic.texts, "orders-value")
    for segment in log[6:]:
        shutil.copy(segment, tmp_path / "source" / "orders-0")
    stopped = run(config(tmp_path, kind, more=SCHEMAS, table='evolve = "stop"\n'))
    assert stopped.returncode == 2
    assert "has no column" in stopped.stderr
    for action in ("plan", "status"):  # as the next run
        before = run(tmp_path / "night.toml", action, "-v")
        assert (before.returncode, "has no column" in " ".join(before.stdout.split())) == (2, True), action
    assert run_here(config(tmp_path, kind, more=SCHEMAS)).code == 1
    rows = {row["offset"]: row for row in table_rows(tmp_path, kind)}
    assert rows.keys() == topic.truth.keys()
    for offset, value in topic.truth.items():
        if offset >= 60 and value is not None:
            assert {name: content for name, content in rows[offset].items() if name not in RECORD} == value, offset
        elif value is not None:  # written before the new fields were known
            assert (rows[offset]["id"], rows[offset]["note"], rows[offset].get("count")) == (
                value["id"],
                value["note"],
                None,
            )
    assert run(path, "verify").returncode == 0


def test_columns_by_paths_and_casts(tmp_path: Path) -> None:
    """A column is a path with a type; what cannot have the type is in the side table, and a wrong path is one line."""
    topic = write_topic(tmp_path, "AVRO", count=30, bad=False)
    paths = (
        'order_id = "value.id::bigint", total = "value.total.amount::decimal(8,2)", note = "value.note", raw = "value"'
    )
    columns = f"columns = {{ {paths} }}\n"
    path = config(tmp_path, more=SCHEMAS, table=columns)
    run_here(path)
    truth = {offset: value for offset, value in topic.truth.items() if value}
    fits = {offset for offset, value in truth.items() if abs(value["total"]["amount"]) < 10**6}
    found = {row["offset"]: row for row in table_rows(tmp_path, "parquet")}
    rejected = {row["offset"]: row["reason"] for row in table_rows(tmp_path, "parquet", "__rejects")}
    assert 0 < len(fits) < 30
    assert found.keys() == fits
    assert rejected.keys() == truth.keys() - fits
    assert all(reason.startswith("column total: Decimal(") for reason in rejected.values())
    assert list(found[min(fits)]) == ["partition", "offset", "timestamp", "order_id", "total", "note", "raw"]
    for offset in fits:
        assert (found[offset]["order_id"], found[offset]["total"]) == (
            truth[offset]["id"],
            truth[offset]["total"]["amount"],
        )
    assert run(path, "verify").returncode == 0
    for wrong, message in (
        ('columns = { total = "value.total.amont" }', "unknown field 'amont': did you mean amount?"),
        ('columns = { total = "value.total::money" }', "expected a type among bigint"),
        ('columns = { offset = "value.id" }', "expected the column offset of the records under its name"),
        ('undecoded = "column"\ncolumns = { id = "value.id" }', "expected value_error among them"),
    ):
        shutil.rmtree(tmp_path / "lake")
        done = run(config(tmp_path, more=SCHEMAS, table=wrong))
        (tmp_path / "lake").mkdir(exist_ok=True)
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
        assert message in done.stderr
    for table in ('columns = { total = "value.total" }', 'undecoded = "column"'):
        done = run(config(tmp_path, table=table))
        assert "source.schemas, source.schema_files or source.registry for decoded columns" in done.stderr


def test_schemas_are_in_the_folder_of_the_configuration(tmp_path: Path) -> None:
    """Schema files can have a name before a ``=``, and every path can have one of its own."""
    (tmp_path / "day=1").mkdir()
    (tmp_path / "day=1" / "a.avsc").write_text('"string"')
    given = 'schemas = "day=1/_schemas-0"\nschema_files = ["day=1/a.avsc", "7=day=1/a.avsc", "a-value=b.avsc"]'
    path = config(tmp_path, more=given)
    file = f"{tmp_path}/day=1/a.avsc"
    files = (file, f"7={file}", f"a-value={tmp_path}/b.avsc")
    assert read_settings(str(path)).schemas == (files, (f"{tmp_path}/day=1/_schemas-0",), None)


def test_errors_in_a_column_or_as_the_end_of_the_load(tmp_path: Path) -> None:
    """undecoded = column keeps the rows with the reason; stop loads nothing behind it and exits with 2."""
    topic = write_topic(tmp_path, "JSON", count=20)
    names = 'columns = ["partition", "offset", "timestamp", "value", "value_decoded", "value_error"]\nundecoded = "column"\n'
    assert run_here(config(tmp_path, more=SCHEMAS, table=names)).code == 0
    rows: list[dict[str, Any]] = table_rows(tmp_path, "parquet")
    assert {row["offset"] for row in rows if row["value_error"]} == set(topic.undecodable)
    assert len(rows) == 20
    assert not (tmp_path / "lake" / "orders__rejects").exists()
    shutil.rmtree(tmp_path / "lake")
    done = run(config(tmp_path, more=SCHEMAS, table='undecoded = "stop"\n'))
    assert done.returncode == 2
    assert "orders-0: offset 7: no schema id, and undecoded is stop" in done.stderr


@pytest.mark.slow
def test_errors_in_a_column_of_a_table_by_the_schema(tmp_path: Path, kind: str) -> None:
    """The page says: a table with a column for each field has ``value_error``, too. A newer schema adds its fields, and a
    replay with it replaces the rows with a reason; a record that can never be decoded keeps its reason.
    """
    topic = write_topic(tmp_path, "AVRO", count=30)
    registry = tmp_path / "registry" / "_schemas-0"
    shutil.rmtree(registry)
    write_schemas(registry, "AVRO", topic.texts[:2], "orders-value")
    path = config(tmp_path, kind, more=SCHEMAS, table='undecoded = "column"\n')
    outcome = run_here(path)
    assert (outcome.code, outcome.rejected) == (0, {})
    rows = {row["offset"]: row for row in table_rows(tmp_path, kind)}
    later = {offset for offset in range(30) if offset >= 20 and topic.truth.get(offset)}
    assert {offset for offset, row in rows.items() if row["value_error"]} == later | set(topic.undecodable)
    assert len(rows) == 30
    write_schemas(registry, "AVRO", topic.texts, "orders-value")
    assert run(path, "replay", "--topic", "orders", "--offsets", "0:20:30").returncode == 0
    assert run(path, "verify").returncode == 0
    found = {row["offset"]: row for row in table_rows(tmp_path, kind)}
    for offset, row in found.items():
        reason = row.pop("value_error")
        value = {name: content for name, content in row.items() if name not in RECORD}
        if offset in topic.undecodable:
            assert topic.undecodable[offset] in reason
            assert not any(value.values())
        else:
            assert reason is None
            expected = topic.truth[offset] or dict.fromkeys(value)
            assert value == expected if offset >= 20 else value.items() >= {"id": expected["id"]}.items(), offset
    assert len(found) == 30
    assert not list((tmp_path / "lake").glob("*__rejects"))


@pytest.mark.slow
def test_a_typed_load_killed_at_steps_three_times(tmp_path: Path) -> None:
    """SIGKILL around the commits of the table and its side table: no row and no rejected record is lost or twice."""
    topic = write_topic(tmp_path / "whole", "JSON", count=90)
    steps = killed(config(tmp_path / "whole", more=SCHEMAS), 0, "parquet")
    assert steps > 20
    for step in range(2, steps + 1, 4):
        home = tmp_path / str(step)
        shutil.copytree(tmp_path / "whole" / "source", home / "source")
        shutil.copytree(tmp_path / "whole" / "registry", home / "registry")
        path = config(home, more=SCHEMAS)
        codes = [killed(path, step, "parquet") for _ in range(3)]
        assert codes[0] == -9, step
        run_here(path)
        check_table(home, "parquet", topic)


def test_a_value_of_an_unknown_version_is_not_dropped(tmp_path: Path) -> None:
    """The registry's copy is older than the log: the record is in the side table with its bytes."""
    topic = write_topic(tmp_path, "JSON", count=3, bad=False)
    write_log(topic.log, [framed(9, b'{"id":1}')], 3)
    outcome = run_here(config(tmp_path, more=SCHEMAS))
    assert (outcome.code, list(outcome.rejected.values())) == (1, [1])
    (row,) = table_rows(tmp_path, "parquet", "__rejects")
    assert (row["value"], row["schema_id"], row["reason"]) == (framed(9, b'{"id":1}'), 9, "schema 9 is not known")
    (data,) = (tmp_path / "lake" / "orders__rejects").rglob("*.parquet")
    assert pq.ParquetFile(data).metadata.num_rows == 1


def test_rejected_records_are_in_files_before_a_call_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that commits holds none of them: results of calls have the names of files, and each record is in one."""
    topic = write_topic(tmp_path, "JSON", count=3, bad=False)
    write_log(topic.log, [framed(9, b"x" * 5000)] * 400, 3)
    sizes = []
    real = load_rows.load_parts

    def load_parts(task: load_rows.PartsTask) -> load_rows.LoadedParts:
        found = real(task)
        sizes.append(len(pickle.dumps(found)))
        return found

    monkeypatch.setattr(load_rows, "load_parts", load_parts)
    outcome = run_here(config(tmp_path, more=SCHEMAS))
    assert list(outcome.rejected.values()) == [400]
    assert max(sizes) < 2000
    rejected = table_rows(tmp_path, "parquet", "__rejects")
    assert [(row["offset"], row["value"]) for row in rejected] == [
        (offset, framed(9, b"x" * 5000)) for offset in range(3, 403)
    ]


def test_fields_whose_names_tables_do_not_distinguish(tmp_path: Path, kind: str) -> None:
    """Tables ignore case, and have columns of their own: each field has a column nevertheless, each night the same one, also
    in structs. A newer field renames no column, even one before the others in its schema.
    """
    first = {"Id": 1, "offset": 2, "id": "x", "in": {"a": 3, "A": ["y"]}, "timestamp_day": 4, "date": 5}
    second = {"ID": 6, "value_offset": "z", **first, "in": {"a_2": 7, "a": 8, "A": ["v"]}}
    write_schemas(tmp_path / "registry" / "_schemas-0", "JSON", [_json_schema(first)], "orders-value")
    log = tmp_path / "source" / "orders-0"
    write_log(log, [_json(1, first)])
    path = config(tmp_path, kind, more=SCHEMAS)
    assert run_here(path).code == 0
    write_schemas(
        tmp_path / "registry" / "_schemas-0", "JSON", list(map(_json_schema, (first, second))), "orders-value"
    )
    write_log(log, [_json(1, first), _json(2, second)], 1)
    done = run(path)
    assert done.returncode == 0, done.stderr
    days = {"timestamp_day": 4, "value_date": 5} if kind == "parquet" else {"value_timestamp_day": 4, "date": 5}
    own = {"Id": 1, "value_offset": 2, "id_2": "x", **days, "ID_3": None, "value_offset_2": None}
    old = {**own, "in": {"a": 3, "A_2": ["y"], "a_2_2": None}}
    new = {**own, "in": {"a": 8, "A_2": ["v"], "a_2_2": 7}, "ID_3": 6, "value_offset_2": "z"}
    for again in (("verify",), ("replay", "--topic", "orders", "--offsets", "0:0:3"), ("verify",)):
        rows = {row["offset"]: row for row in table_rows(tmp_path, kind)}
        found = {offset: {name: row.get(name) for name in (*own, "in")} for offset, row in rows.items()}
        if kind == "parquet":  # the file of the first night has the columns of that night
            rows[0]["in"].setdefault("a_2_2", None)
        assert found == {0: old, 1: old, 2: new}
        assert run(path, *again).returncode == 0


def test_names_of_fields_with_dots(tmp_path: Path, kind: str) -> None:
    """JSON has any name: such a topic loads without columns, and brackets name the field in columns, also in structs."""
    value = {"user.id": 7, "a::b": "8", "in": {"x.y": {"z": 5}, "it's": 6, "[k]": "q"}, "a b": 2}
    write_schemas(tmp_path / "registry" / "_schemas-0", "JSON", [_json_schema(value)], "orders-value")
    write_log(tmp_path / "source" / "orders-0", [_json(1, value)])
    path = config(tmp_path, kind, more=SCHEMAS)
    for action in (("run",), ("run",), ("replay", "--topic", "orders", "--offsets", "0:0:1"), ("verify",)):
        done = run(path, *action)
        assert done.returncode == 0, done.stderr
    (row,) = table_rows(tmp_path, kind)
    assert {name: row[name] for name in value} == value
    paths = {
        "value['user.id']": 7,
        'value["a::b"] :: bigint': 8,
        "value.in['x.y'].z::text": "5",
        r"value.in['it\'s']": 6,
        "value.in['[k]']": "q",
        "value['in']": value["in"],
        "value.a b": 2,
    }
    columns = ", ".join(f"c{number} = {json.dumps(text)}" for number, text in enumerate(paths))
    state, lake = {"state": "other", "lake": str(tmp_path / "other-lake")}, tmp_path / "other-lake"
    other = config(tmp_path, more=SCHEMAS, table=f"columns = {{ {columns} }}\n", **state)
    assert run_here(other).code == 0
    (data,) = lake.rglob("*.parquet")
    (row,) = pq.ParquetFile(data).read().to_pylist()
    assert [row[f"c{number}"] for number in range(len(paths))] == list(paths.values())


def test_paths_that_name_no_field(tmp_path: Path) -> None:
    """The message has the spelling that works."""
    write_schemas(tmp_path / "registry" / "_schemas-0", "JSON", [_json_schema({"user.id": 7})], "orders-value")
    write_log(tmp_path / "source" / "orders-0", [_json(1, {"user.id": 7})])
    for text, message in (
        ("value.user.id", "value.user.id: unknown field 'user': did you mean ['user.id']?"),
        ("value['user.id'].x", "value['user.id'].x: unknown field 'x': it is in no struct"),
        ("value['user.id'", "expected .FIELD, ['FIELD'] or ::TYPE after value in value['user.id', got"),
        ("value.", "expected .FIELD, ['FIELD'] or ::TYPE after value in value., got"),
        ("value.id::", "expected a type after value.id in value.id::, got"),
    ):
        done = run(config(tmp_path, more=SCHEMAS, table=f"columns = {{ a = {json.dumps(text)} }}\n"))
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
        assert message in done.stderr


@pytest.mark.parametrize(
    "values",
    [
        ({"id": 1, "n": 2}, {"ID": 3, "n": 4}),
        ({"Id": 1, "id": 2}, {"id": 3, "Id": 4}),
        ({"in": {"a": 1}}, {"in": {"A": 2}}),
    ],
)
def test_a_column_is_never_filled_from_a_field_of_other_case(tmp_path: Path, kind: str, values: Any) -> None:
    """A schema file that is replaced says nothing of older fields: the table stays as it is. With both files it loads."""
    log = tmp_path / "source" / "orders-0"
    for name, value in zip(("first", "second"), values, strict=True):
        (tmp_path / f"{name}.json").write_text(_json_schema(value))
    write_log(log, [_json(1, values[0])])
    path = config(tmp_path, kind, more='schema_files = ["1=first.json"]')
    assert run_here(path).code == 0
    before = table_rows(tmp_path, kind)
    write_log(log, [_json(2, values[1])], 1)
    config(tmp_path, kind, more='schema_files = ["2=second.json"]')
    for action in ("plan", "run"):
        done = run(path, action, "-v")
        shown = " ".join((done.stdout + done.stderr).split())
        assert (done.returncode, "and tables ignore case: list the older schema before" in shown) == (2, True), shown
    assert table_rows(tmp_path, kind) == before
    config(tmp_path, kind, more='schema_files = ["1=first.json", "2=second.json"]')
    assert run(path).returncode == 0
    assert len(table_rows(tmp_path, kind)) == 2
    assert run(path, "verify").returncode == 0


def _json(number: int, value: Any) -> bytes:
    return framed(number, json.dumps(value).encode())


def _json_schema(value: Any) -> str:
    """Return the JSON Schema of a value."""

    def of(one: Any) -> Any:
        if isinstance(one, dict):
            return {"type": "object", "properties": {name: of(inner) for name, inner in one.items()}}
        return {"type": "array", "items": of(one[0])} if isinstance(one, list) else {"type": _TYPES[type(one)]}

    return json.dumps(of(value))


_TYPES = {int: "integer", str: "string"}


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ('{ A = "value.Id", a = "value.id" }', "names that tables distinguish, unlike A and a"),
        ('{ Offset = "value.id" }', "names that tables distinguish, unlike offset and Offset"),
        ('{ date = "value.id" }', "another name than date, by which the table has its days"),
    ],
)
def test_columns_that_tables_do_not_distinguish_are_refused(tmp_path: Path, columns: str, message: str) -> None:
    """Before any work, and with both names: such a table would load once, and never again."""
    write_topic(tmp_path, "JSON", count=3)
    path = config(tmp_path, more=SCHEMAS, table=f"columns = {columns}\n")
    for action in ("plan", "run"):
        done = run(path, action)
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
        assert message in done.stderr
    assert not (tmp_path / "lake").exists()
