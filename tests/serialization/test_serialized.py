"""Bytes of confluent-kafka's serializers, decoded with the schemas in the registry's own topic."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow.parquet
import pytest
from click.testing import Result

import kseg
from kseg.extras.serialization.record_decoder import DecodeSettings
from kseg.extras.serialization.schema_sources import named_file
from kseg.extras.views.planning import Request, check_paths
from tests.support.cli import invoke

FIXTURE = Path(__file__).parents[2] / "fixtures" / "serialized"
EXPECTED = [json.loads(line) for line in (FIXTURE / "expect.jsonl").read_text(encoding="utf-8").splitlines()]
#: The deserializers of keys without a schema id.
KEYS = {"orders": "string", "users": "int32", "events": "auto"}


def dump(topic: str, *arguments: str) -> Result:
    """Run ``kseg dump`` on a topic of the fixture, with the schemas of the fixture."""
    schemas = ["--schemas", str(FIXTURE / "_schemas-0"), "--key-as", KEYS[topic]]
    return invoke("dump", FIXTURE / f"{topic}-0", *schemas, *arguments)


def expected(topic: str) -> list[dict[str, Any]]:
    return [row for row in EXPECTED if row["topic"] == topic]


def contents(row: dict[str, Any]) -> dict[str, Any]:
    """Return the columns of a row that expect.jsonl has, by the names there."""
    names = {"offset": "offset", "key": "key_decoded", "value": "value_decoded", "value_kind": "value_kind"}
    return {name: row[column] for name, column in names.items()}


@pytest.mark.parametrize("topic", KEYS)
def test_real_serializers_bytes_are_decoded(topic: str) -> None:
    """Avro with references, versions, decimals and times; Protobuf with imports, nested messages and the short form of
    indexes; JSON Schema; ids in prefixes and GUIDs in headers.
    """
    done = dump(topic, "--format", "jsonl")
    assert done.exit_code == 0, done.output
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [{"topic": topic, **contents(row)} for row in rows] == expected(topic)
    assert [row["value_error"] for row in rows] == [None] * len(rows)
    assert all((row["value_schema_id"] is None) == (row["value_decoded"] is None) for row in rows)


@pytest.mark.parametrize("topic", KEYS)
def test_parquet_and_csv_have_the_decoded_columns(topic: str, tmp_path: Path) -> None:
    """In Parquet decoded contents are JSON; in CSV a text is as it is."""
    done = dump(topic, "--format", "parquet", "-o", str(tmp_path / "x"))
    assert done.exit_code == 0, done.output
    table = pyarrow.parquet.read_table(tmp_path / "x").to_pylist()
    for row in table:
        for side in ("key", "value"):
            text = row[f"{side}_decoded"]
            row[f"{side}_decoded"] = None if text is None else json.loads(text)
    assert [{"topic": topic, **contents(row)} for row in table] == expected(topic)
    rows = list(csv.DictReader(io.StringIO(dump(topic, "--format", "csv").stdout)))
    assert [row["key_decoded"] for row in rows] == [str(row["key"]) for row in expected(topic)]
    assert [json.loads(row["value_decoded"] or "null") for row in rows] == [row["value"] for row in expected(topic)]


def test_tables_and_text_show_the_decoded_value() -> None:
    """A table marks the kind and the schema; kafka-dump-log's text has the value as its payload."""
    text = dump("orders").stdout
    assert 'schema 3 avro {"id":1,"placed":"2023-11-14T22:13:21.000Z"' in text
    assert "value (schema id)" not in text
    lines = dump("orders", "--format", "text").stdout.splitlines()
    assert lines[3].endswith(
        'keySize: 7 valueSize: 15 sequence: -1 headerKeys: [] key: order-0 payload: {"id":0,"placed":'
        '"2023-11-14T22:13:20.000Z","total":{"amount":"-0.25","currency":"CHF"}}'
    )
    assert lines[-1].endswith("keySize: 7 valueSize: -1 sequence: -1 headerKeys: [] key: deleted")


def test_a_value_that_does_not_decode_stays_with_the_reason() -> None:
    """Nothing is lost and nothing fails: the stored bytes are there, and next to them the reason."""
    done = invoke("dump", FIXTURE / "orders-0", "--value-as", "auto", "--format", "jsonl")
    row = json.loads(done.stdout.splitlines()[0])
    assert (row["value_decoded"], row["value_error"], row["value_schema_id"]) == (None, "schema 2 is not known", 2)
    assert row["value"]
    done = invoke("dump", FIXTURE / "orders-0", "--value-as", "int64")
    assert "[expected 8 bytes, got 15] 0x00000000020080" in done.stdout
    assert done.exit_code == 0
    done = invoke("dump", FIXTURE / "orders-0", "--value-as", "int64", "--format", "text")
    assert "payload: \0\0\0\0\2" in done.stdout


def test_a_file_with_a_uuid_is_for_no_other_schema(tmp_path: Path) -> None:
    """Two versions of a schema differ: a value of the other one could be decoded to a wrong value."""
    (tmp_path / "order.avsc").write_text('"bytes"', encoding="utf-8")
    for name in "ab":
        (tmp_path / f"{name}.json").write_text("{}", encoding="utf-8")
    files = [f"{UUID(int=n)}={tmp_path / name}" for n, name in enumerate(("order.avsc", "a.json", "b.json"))]
    given = [text for file in files for text in ("--schema-file", file)]
    for more in ([], ["--value-as", "avro"]):
        done = invoke("dump", FIXTURE / "orders-0", *given, *more, "--format", "jsonl")
        row = json.loads(done.stdout.splitlines()[0])
        assert (row["value_decoded"], row["value_error"]) == (None, "schema 2 is not known")


@pytest.mark.parametrize("name", ["2", "orders-value", str(UUID(int=7))])
def test_each_reader_of_schema_files_accepts_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """NAME=FILE, in folders with a ``=``, too: in commands, kseg.scan, the plan of Spark, and in pipelines."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "day=1").mkdir()
    (tmp_path / "day=1" / "order.json").write_text("{}", encoding="utf-8")
    statement = "select value_decoded from records"
    for given in (f"{name}=day=1/order.json", "day=1/order.json"):
        options = ("--schema-file", given, "--value-as", "json", FIXTURE / "orders-0")
        for command in (("dump",), ("grep", "order"), ("sql", statement)):
            done = invoke(*command, *options)
            assert (done.exit_code, done.stderr) == (0, ""), command
        assert invoke("dump", *options, "-o", "day=1/order.json", "--format", "csv").exit_code == 2
        schemas = kseg.Schemas(files=[given])
        assert kseg.scan(FIXTURE / "orders-0", schemas=schemas, columns=["value_decoded"]).to_table().num_rows
        request = Request((str(FIXTURE / "orders-0"),), decoding=DecodeSettings(schema_files=(given,)))
        check_paths(request)
    assert named_file("8=order.json", str(tmp_path / "day=1")) == ("8", "order.json")
    assert named_file("a=b=absent.json") == ("a=b", "absent.json")


@pytest.mark.parametrize(
    ("files", "arguments", "message"),
    [
        ({"a.avsc": "{"}, ["--schema-file", "a.avsc"], "--schema-file a.avsc: the schema: not JSON"),
        ({"a.proto": 'syntax "'}, ["--schema-file", "9=a.proto"], "--schema-file 9=a.proto: schema 9 is not valid Protobuf"),
        ({"a.desc": "x"}, ["--schema-file", "a.desc"], "is not a set of Protobuf descriptors"),
        ({"a.json": "["}, ["--schema-file", "a.json"], "--schema-file a.json: the schema is not JSON"),
        ({"a.json": "1"}, ["--schema-file", "a.json"], "the schema is not a JSON Schema: expected an object"),
        ({"a.json": "{}", "b.json": "{}"}, ["--schema-file", "a.json", "--schema-file", "b.json"],
         "--schema-file a.json and b.json: give each as ID=FILE, UUID=FILE or SUBJECT=FILE"),
        ({}, ["--schemas", str(FIXTURE / "orders-0")], "orders-0: there are no schemas; offset 0: not JSON"),
        ({}, ["--registry", ""], "--registry: expected http://HOST"),
        ({}, ["--registry", "http://host:port"], "--registry: Port could not be cast"),
        ({}, ["--registry-ca", "ca.pem"], "--registry-ca needs --registry"),
    ],
)  # fmt: skip
def test_sources_without_schemas_end_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], arguments: list[str], message: str
) -> None:
    """A source that cannot have a schema is one clear line before the first row, and not a reason at each value."""
    monkeypatch.chdir(tmp_path)
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    done = invoke("dump", FIXTURE / "orders-0", *arguments)
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert message in done.stderr


def test_damage_of_the_topic_with_schemas_is_reported(tmp_path: Path) -> None:
    """A schema is not lost without a word."""
    data = bytearray((FIXTURE / "_schemas-0" / f"{0:020}.log").read_bytes())
    data[500] ^= 1
    (tmp_path / f"{0:020}.log").write_bytes(data)
    done = invoke("dump", FIXTURE / "orders-0", "--schemas", tmp_path)
    assert "crc-mismatch" in done.stderr
    assert (done.exit_code, done.stdout) == (2, "")
    assert f"--schemas {tmp_path}: there are no schemas\n" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--value-as", "arvo"], "unknown deserializer 'arvo': did you mean avro"),
        (["--value-as", "avro"], "--value-as avro needs --schemas, --schema-file or --registry"),
        (["--key-as", "time-windowed:protobuf:M"], "--key-as time-windowed:protobuf:M needs --schemas"),
        (["--value-as", "struct", "--decoder", "json:loads"], "--value-as struct needs --schemas"),
        (["--value-as", "json", "--shallow"], "cannot be combined with --shallow"),
        (["--value-as", "json", "--format", "hex"], "cannot be combined with --format hex"),
        (["--value-as", "json", "--template", "%v"], "cannot be combined with --template"),
        (["--value-as", "json", "--effective"], "--effective cannot be combined with --value-as"),
        (["--value-as", "json", "--as", "message"], "cannot be combined with --as"),
        (["--schema-file", "absent.avsc"], "absent.avsc: No such file or directory"),
        (["--schema-file", "absent.txt"], "expected a name that ends with .avsc"),
        (["--schemas", "absent"], "absent: No such file or directory"),
    ],
)
def test_wrong_options_have_one_clear_line(arguments: list[str], message: str) -> None:
    """Contradictions end before the first row, with exit code 2."""
    done = invoke("dump", FIXTURE / "orders-0", *arguments)
    assert done.exit_code == 2
    assert message in done.output
    assert "Traceback" not in done.output
