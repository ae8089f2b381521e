"""``value_as="struct"``: typed columns by the union of the versions of a schema, equal to what other libraries read."""

from __future__ import annotations

import io
import json
import struct
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import invoke

pytest.importorskip("pyarrow", reason="pyarrow is not installed")

import pyarrow as pa
import pyarrow.parquet as pq

import kseg as library
from kseg.errors import UsageError
from kseg.extras.serialization.schema_set import AVRO, JSON, PROTOBUF, Schema, SchemaError, SchemaSet
from kseg.extras.serialization.struct_types import column_of, united
from kseg.report.arrow_table import arrow_field
from kseg.schema import Column
from tests.support.evolving_values import KINDS, Topic, framed, write_log, write_schemas, write_topic

COLUMNS = ["offset", "value", "value_decoded", "value_error"]


def scan(topic: Topic, **options: Any) -> Any:
    return library.scan(topic.log, schemas=topic.schemas, value_as="struct", **options)


def check_rows(topic: Topic, rows: list[dict[str, Any]]) -> None:
    """Compare rows with the truth: a typed value, or the stored bytes with a reason."""
    assert [row["offset"] for row in rows] == sorted(topic.truth.keys() | topic.undecodable.keys())
    for row in rows:
        offset = row["offset"]
        if offset in topic.undecodable:
            assert row["value_decoded"] is None
            assert row["value"] is not None
            assert topic.undecodable[offset] in row["value_error"]
        else:
            assert row["value_error"] is None, row
            assert row["value_decoded"] == topic.truth[offset], offset


@pytest.mark.parametrize("kind", KINDS)
def test_the_columns_are_what_other_libraries_read(tmp_path: Path, kind: str) -> None:
    """Three versions: fields that came, went and became wider; values that cannot be decoded keep bytes and reason."""
    topic = write_topic(tmp_path, kind)
    check_rows(topic, scan(topic, columns=COLUMNS).to_table().to_pylist())
    assert len(topic.undecodable) >= 5


@pytest.mark.parametrize("kind", KINDS)
def test_parquet_and_sql_have_the_same_columns(tmp_path: Path, kind: str) -> None:
    """``kseg dump --format parquet`` and ``kseg sql`` return the structs of ``kseg.scan``."""
    topic = write_topic(tmp_path, kind, count=60)
    options = ["--schemas", topic.schemas, "--value-as", "struct"]
    done = invoke("dump", topic.log, *options, "--format", "parquet", "-o", tmp_path / "x.parquet")
    assert done.exit_code == 0, done.output
    found = pq.ParquetFile(tmp_path / "x.parquet").read(columns=COLUMNS)
    assert found.schema.field("value_decoded").type == scan(topic).schema.field("value_decoded").type
    check_rows(topic, found.to_pylist())
    statement = "select count(*) n, sum(value_decoded.id::hugeint)::varchar s from records where value_error is null"
    done = invoke("sql", statement, topic.log, *options, "--format", "jsonl")
    assert done.exit_code == 0, done.output
    ids = [row["id"] for row in topic.truth.values() if row and row["id"] is not None]
    assert json.loads(done.stdout) == {"n": len(topic.truth), "s": str(sum(ids))}


def test_an_error_is_known_without_the_value(tmp_path: Path) -> None:
    """A query of ``value_error`` alone has the reasons of values that do not fit into the columns."""
    topic = write_topic(tmp_path, "JSON", count=3, bad=False)
    write_log(
        topic.log, [framed(1, b'{"id":"text"}'), framed(1, b'{"other":1}'), framed(1, b'{"total":{"amount":[]}}')], 3
    )
    errors = scan(topic, columns=["value_error"]).to_table().column(0).to_pylist()
    assert errors == [None] * 3 + [
        'field id: expected a whole number, got "text"',
        "field other: not in the columns: a newer schema, or one that allows any field",
        "field total.amount: expected a number, got []",
    ]


def test_numbers_at_their_limits() -> None:
    """A value that a column cannot hold is an error, and never another number."""
    from kseg.extras.serialization.struct_values import converter

    for kind, good, bad in (
        ("int32", [2**31 - 1, -(2**31)], [2**31, 1.5, True, "1", None]),
        ("int", [2**63 - 1, 3.0], [2**63, 1e300, float("inf")]),
        ("decimal(5,2)", ["999.99", "-0.01", "0", "1E+2"], ["1000", "0.001", "NaN", "x", 1.5]),
        ("float", [1, 0.5], ["NaN", True, 10**400]),
        ("bool", [True], [1, "yes", "true", "false"]),
        ("date", ["2024-02-29"], ["2023-02-29", 19_000_000]),
        ("timestamp", ["0001-01-01T00:00:00.000Z"], [253402300800000, "x"]),
    ):
        convert = converter(Column("x", kind, ""), texts=False)
        field = arrow_field(Column("x", kind, ""))
        assert len(pa.array([convert(value) for value in good], field.type)) == len(good)
        for value in bad:
            with pytest.raises(ValueError, match=r"."):
                convert(value)


def test_half_of_a_surrogate_pair_is_the_replacement_character(tmp_path: Path) -> None:
    """JSON can have such texts as escapes, in values, map values and keys; a text of Arrow cannot, also not as a name."""
    one, half = chr(0xFFFD), r"\ud83d"
    fields = {"c": {"type": "string"}, "m": {"type": "object", "additionalProperties": {"type": "string"}}}
    named = {"type": "object", "properties": {f"x{chr(0xD83D)}": {"type": "integer"}}}
    schema = {"type": "object", "properties": {**fields, "n": named}}
    write_schemas(tmp_path / "_schemas-0", "JSON", [json.dumps(schema)], "t-value")
    values = [
        f'{{"c":"{half}","m":{{"{half}":"{half}"}},"n":{{"x{half}":1}}}}',
        rf'{{"m":{{"{half}":"1","\ud83e":"2"}}}}',
    ]
    write_log(tmp_path / "t-0", [framed(1, value.encode()) for value in values])
    options = ["--schemas", tmp_path / "_schemas-0", "--value-as", "struct", "--format", "jsonl"]
    rows = invoke("sql", "select value_decoded as v, value_error as e from records", tmp_path / "t-0", *options)
    assert [json.loads(line) for line in rows.stdout.splitlines()] == [
        {"v": {"c": one, "m": {one: one}, "n": f'{{"x{one}":1}}'}, "e": None},
        {"v": None, "e": "field m: two entries of a map have the same name"},
    ]
    table = library.scan(tmp_path / "t-0", schemas=tmp_path / "_schemas-0", value_as="struct").to_table()
    assert table.column("value_decoded").to_pylist()[0]["c"] == one


def test_the_keys_of_a_map_are_texts_of_their_type() -> None:
    """Protobuf's JSON has booleans and numbers as texts there, and nowhere else."""
    from kseg.extras.serialization.struct_values import converter

    for kind, keys in (("bool", {"true": 1, "false": 0}), ("int", {"1": 1, "-2": 0})):
        of_map = Column("x", "map_of", "", of=(Column("key", kind, ""), Column("element", "int", "")))
        found = converter(of_map, texts=False)(keys)
        assert found == [(json.loads(key), value) for key, value in keys.items()]
        with pytest.raises(ValueError, match="expected"):
            converter(of_map, texts=False)({"yes": 1})


def test_versions_unite_to_types_that_hold_both() -> None:
    """Numbers become wider as Avro promotes them; types without a common one are JSON; no field is lost."""

    def kind_of(*kinds: str) -> str:
        columns = [Column("x", kind, "") for kind in kinds]
        return united(*columns).json

    assert kind_of("int32", "int") == "int"
    assert kind_of("int", "float32") == "float"
    assert kind_of("decimal(5,2)", "decimal(4,3)") == "decimal(6,3)"
    assert kind_of("decimal(38,0)", "decimal(38,38)") == "text"
    assert kind_of("text", "int") == kind_of("bytes", "text") == kind_of("object", "bool") == "object"
    inner = Column("x", "struct", "", of=(Column("a", "int32", ""), Column("b", "text", "")))
    other = Column("x", "struct", "", of=(Column("c", "bool", ""), Column("a", "int", "")))
    assert [(one.name, one.json) for one in united(inner, other).of] == [("a", "int"), ("b", "text"), ("c", "bool")]


def test_hostile_schemas_end_in_bounded_time() -> None:
    """Types that double at each level, and types in themselves: a reason or JSON, soon."""
    fields = '{"name":"a","type":"T%d"},{"name":"b","type":"T%d"}'
    node: Any = {"type": "record", "name": "T0", "fields": [{"name": "x", "type": "int"}]}
    for level in range(1, 30):
        pair = json.loads(f"[{fields % (level - 1, level - 1)}]")
        pair[0]["type"] = node
        node = {"type": "record", "name": f"T{level}", "fields": pair}
    schema = Schema(AVRO, json.dumps(node), 1)
    with pytest.raises(SchemaError, match=r"."):
        column_of("x", [schema], SchemaSet([schema]))
    loop = {
        "$ref": "#/definitions/A",
        "definitions": {"A": {"type": "object", "properties": {"a": {"$ref": "#/definitions/A"}}}},
    }
    for text in (json.dumps(loop), '{"$ref":"#"}', "true", '{"type":"array","items":{"$ref":"#"}}'):
        schema = Schema(JSON, text, 1)
        assert arrow_field(column_of("x", [schema], SchemaSet([schema])))
    schema = Schema(
        PROTOBUF, 'syntax = "proto3"; message A { A a = 1; repeated B b = 2; } message B { map<bool, A> m = 1; }', 1
    )
    assert "string" in str(arrow_field(column_of("x", [schema], SchemaSet([schema]))).type)


def test_topics_without_a_common_schema_are_one_clear_line(tmp_path: Path) -> None:
    """No schema, or several topics with different ones: the error names the subjects."""
    topic = write_topic(tmp_path, "JSON", count=3, bad=False)
    write_log(tmp_path / "source" / "users-0", [struct.pack(">bI", 0, 1) + b"{}"])
    with pytest.raises(UsageError, match="no schema of users-value"):
        library.scan(tmp_path / "source" / "users-0", schemas=topic.schemas, value_as="struct")
    both = library.scan(tmp_path / "source", schemas=topic.schemas, value_as="struct", columns=["value_error"])
    assert both.to_table().column(0).to_pylist() == [None] * 3 + [None]
    write_schemas(tmp_path / "more" / "_schemas-0", "JSON", ['{"type":"integer"}'], "users-value")
    options = ["--value-as", "struct", "--schemas", topic.schemas, "--schemas", tmp_path / "more"]
    done = invoke("sql", "select 1", tmp_path / "source", *options)
    assert done.exit_code == 2
    assert "orders-value, users-value have different schemas: read one topic at a time" in done.stderr


def _renamed(name: str, **more: Any) -> Any:
    """Return a schema with a field of this name, and one in a record."""
    inner = {"type": "record", "name": "I", "fields": [{"name": name, "type": "string", **more}]}
    fields = [{"name": name, "type": "string", **more}, {"name": "i", "type": inner}]
    return {"type": "record", "name": "R", "fields": fields}


def test_a_renamed_field_has_the_value_of_its_older_name(tmp_path: Path) -> None:
    """Avro's aliases, also of a record in a record: as a consumer with the newest schema reads, which fastavro is."""
    fastavro = pytest.importorskip("fastavro", reason="fastavro is not installed")
    versions = [_renamed("b"), _renamed("c", aliases=["x", "b"], default="none")]
    values = []
    for version, fields in zip(versions, ({"b": "old", "i": {"b": "1"}}, {"c": "new", "i": {"c": "2"}}), strict=True):
        out = io.BytesIO()
        fastavro.schemaless_writer(out, version, fields)
        values.append(out.getvalue())
    write_schemas(tmp_path / "_schemas-0", "AVRO", list(map(json.dumps, versions)), "t-value")
    write_log(tmp_path / "t-0", [framed(number, value) for number, value in enumerate(values, 1)])
    rows = library.scan(tmp_path / "t-0", schemas=tmp_path / "_schemas-0", value_as="struct", columns=["value_decoded"])
    found = [row["value_decoded"] for row in rows.to_table().to_pylist()]
    for value, writer, row in zip(values, versions, found, strict=True):
        expected = fastavro.schemaless_reader(io.BytesIO(value), writer, versions[-1])
        assert {"c": row["c"], "i": {"c": row["i"]["c"]}} == expected
    assert [row["b"] for row in found] == ["old", None]
