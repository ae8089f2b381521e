"""``kseg schemas``: the state of a registry from its topic, what data use, and the export."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from kseg.extras.serialization.schemas_topic import RegistryState
from kseg.format.segment.records_chunk import Header
from kseg.format.writer.records_builder import PlainRecord, build_batch
from tests.support.cli import invoke, rows_of
from tests.support.schema_registry import Registry

FIXTURE = Path(__file__).parents[2] / "fixtures" / "serialized"
Topic = list[tuple[Any, Any]]


def schemas(*arguments: object) -> Result:
    return invoke("schemas", *arguments)


rows = partial(rows_of, "schemas")


def data(value: Any) -> bytes | None:
    return value if value is None or isinstance(value, bytes) else json.dumps(value).encode()


def write(folder: Path, records: Iterable[tuple[Any, Any]], headers: tuple[Header, ...] = ()) -> Path:
    """Write records, given as JSON or bytes, as a partition."""
    folder.mkdir(parents=True)
    plain = [PlainRecord(n, data(key), data(value), 1, headers) for n, (key, value) in enumerate(records)]
    (folder / f"{0:020}.log").write_bytes(build_batch(plain, base_offset=0))
    return folder


def schema(subject: str, version: int, number: int, text: str = '"int"', **more: Any) -> tuple[Any, Any]:
    """Return a record that registers a schema."""
    key = {"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1}
    return key, {"subject": subject, "version": version, "id": number, "schema": text, "deleted": False, **more}


def states(topic: Topic) -> list[tuple[str | None, int | None, str]]:
    """Return the versions after the records, with their state."""
    state = RegistryState()
    for offset, (key, value) in enumerate(topic):
        state.apply(offset, data(key), data(value))
    assert state.unread == []
    return [(one.subject, one.version, one.deleted) for one in state.all()]


def gone(subject: str, version: int) -> tuple[Any, Any]:
    return schema(subject, version, 0)[0], None


def delete_subject(subject: str, version: int) -> tuple[Any, Any]:
    return {"keytype": "DELETE_SUBJECT", "subject": subject, "magic": 0}, {"subject": subject, "version": version}


def test_soft_and_hard_deletions() -> None:
    """A version is deleted with a separate record, a subject with one record; a tombstone deletes for good."""
    two = [schema("a", 1, 1), schema("a", 2, 2), schema("b", 1, 1)]
    assert states(two) == [("a", 1, ""), ("a", 2, ""), ("b", 1, "")]
    assert states([*two, schema("a", 1, 1, deleted=True)])[0] == ("a", 1, "soft")
    assert states([*two, delete_subject("a", 1)]) == [("a", 1, "soft"), ("a", 2, ""), ("b", 1, "")]
    assert states([*two, delete_subject("a", 2), gone("a", 1)]) == [("a", 1, "hard"), ("a", 2, "soft"), ("b", 1, "")]
    clear = {"keytype": "CLEAR_SUBJECT", "subject": "a", "magic": 0}, {"subject": "a"}
    assert states([*two, delete_subject("a", 1), clear]) == [("a", 1, "hard"), ("a", 2, ""), ("b", 1, "")]
    assert states([*two, schema("a", 1, 1, deleted=True), schema("a", 1, 1)])[0] == ("a", 1, "")


def test_other_records_of_a_registry_are_known() -> None:
    """Settings, modes, contexts and the records that a registry writes to find the end of its topic."""
    state = RegistryState()
    topic: Topic = [
        ({"keytype": "NOOP", "magic": 0}, None),
        ({"keytype": "CONFIG", "subject": None, "magic": 0}, {"compatibilityLevel": "FULL"}),
        ({"keytype": "CONFIG", "subject": "a", "magic": 0}, {"compatibilityLevel": "NONE"}),
        ({"keytype": "CONFIG", "subject": "a", "magic": 0}, None),
        ({"keytype": "MODE", "subject": "b", "magic": 0}, {"mode": "IMPORT"}),
        ({"keytype": "CONTEXT", "tenant": "default", "context": ".x", "magic": 0}, {"tenant": "default"}),
    ]
    for offset, (key, value) in enumerate(topic):
        state.apply(offset, data(key), data(value))
    assert state.configs == {None: {"compatibilityLevel": "FULL"}}
    assert state.modes == {"b": "IMPORT"}
    assert state.unread == []


def test_the_variants_of_redpanda_and_karapace() -> None:
    """Redpanda's keys have ``seq`` and ``node``; a record at another offset than its ``seq`` lost a race, and does not
    count. Karapace's keys have another order, and an empty value is a tombstone.
    """
    redpanda = [
        ({**schema("a", 1, 1)[0], "seq": 0, "node": 1}, schema("a", 1, 1)[1]),
        ({**schema("a", 2, 2)[0], "seq": 0, "node": 2}, schema("a", 2, 2)[1]),
        ({**schema("a", 2, 2)[0], "seq": 2, "node": 2}, schema("a", 2, 2, '"long"')[1]),
        ({**schema("a", 1, 1)[0], "seq": 0, "node": 1}, None),
    ]
    assert states(redpanda) == [("a", 1, "hard"), ("a", 2, "")]
    karapace = [
        ({"subject": "a", "version": 1, "magic": 1, "keytype": "SCHEMA"}, schema("a", 1, 1)[1]),
        ({"subject": "a", "version": 1, "magic": 1, "keytype": "SCHEMA"}, b""),
    ]
    assert states(karapace) == [("a", 1, "hard")]


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        (None, {}, "the key is null"),
        (b"\0", None, "not JSON: Expecting value at character 0"),
        ([], {}, "the record is not a JSON object"),
        ({"keytype": "OTHER"}, {}, "the key type 'OTHER' is not known"),
        ({"keytype": "SCHEMA", "subject": "a", "version": 1}, {"subject": "a"}, "'schema' is missing"),
        (schema("a", 1, 1)[0], schema("a", 1, 1, references=7)[1], "'int' object is not iterable"),
        (schema("a", 1, 1)[0], schema("a", 1, 1, md5="eA")[1], "Incorrect padding"),
    ],
)
def test_other_records_are_described(key: Any, value: Any, reason: str) -> None:
    """Damage, or a topic that is not a registry's, does not hide the other schemas."""
    state = RegistryState()
    state.apply(7, data(key), data(value))
    state.apply(8, *map(data, schema("b", 1, 1)))
    assert state.unread == [f"offset 7: {reason}"]
    assert [one.subject for one in state.all()] == ["b"]


def test_the_list_has_what_data_use_and_what_is_missing(tmp_path: Path) -> None:
    """An id that no schema has counts where other values have known ids; other bytes that begin with zero do not."""
    topic = write(tmp_path / "_schemas-0", [schema("a-value", 1, 1), schema("a-value", 2, 2), schema(":.c:b", 1, 2)])
    prefix = [bytes(4) + bytes([number]) + b"\2" for number in (1, 1, 2, 9)]
    write(tmp_path / "data" / "a-0", [(bytes(3) + b"\1" + bytes(4), value) for value in (*prefix, None)])
    write(tmp_path / "data" / "b-0", [(b"k", b"text"), (b"k", b"text"), (b"k", b"\0\0\0\0\7")])
    found = rows(topic, "--used-by", tmp_path / "data", code=1)
    used = [(row["subject"], row["id"], row["state"], row["used_by"]) for row in found]
    assert used == [
        (":.c:b", 2, "active", []),
        ("a-value", 1, "active", [{"topic": "a", "side": "value", "records": 2}]),
        ("a-value", 2, "active", [{"topic": "a", "side": "value", "records": 1}]),
        (None, 9, "missing", [{"topic": "a", "side": "value", "records": 1}]),
    ]
    text = schemas(topic, "--used-by", tmp_path / "data").stdout
    assert text.startswith("1 id in the data without a schema\n")
    assert "a value (2)" in text


def test_the_id_in_the_last_header_counts(tmp_path: Path) -> None:
    """It decodes the value. One without a valid id does not count, even if the value begins like one with an id."""
    topic = write(tmp_path / "_schemas-0", [schema("a-value", 1, 1), schema("a-value", 2, 2)])
    both = tuple(Header("__value_schema_id", b"\0\0\0\0" + bytes([number])) for number in (1, 2))
    write(tmp_path / "data" / "a-0", [(None, b"\2"), (None, b"\2")], both)
    write(tmp_path / "data" / "a-1", [(None, b"\0\0\0\0\1\2")], (*both, Header("__value_schema_id", b"")))
    found = rows(topic, "--used-by", tmp_path / "data")
    assert [row["used_by"] for row in found] == [[], [{"topic": "a", "side": "value", "records": 2}]]


def test_a_conflict_is_found(tmp_path: Path) -> None:
    """Two schemas of a context with one id: a value can be decoded with the wrong one. Contexts have ids of their own."""
    topic = write(tmp_path / "x", [schema("a", 1, 1), schema("b", 1, 1, '"long"'), schema(":.c:b", 1, 1, '"bytes"')])
    assert [row["conflict"] for row in rows(topic, code=1)] == [False, True, True]


def test_the_export_registers_the_same_schemas(tmp_path: Path) -> None:
    """Each body has the id and the version; a schema comes after those that it refers to."""
    done = schemas(FIXTURE, "--export")
    assert done.exit_code == 0
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    other = Registry()
    for line in lines:
        known = {(one["subject"], one["version"]) for one in other.schemas}
        assert {(one["subject"], one["version"]) for one in line["body"].get("references", ())} <= known
        other.schemas.append({"subject": line["subject"], **line["body"]})
    topic = write(tmp_path / "_schemas-0", other.topic())
    assert rows(topic) == rows(FIXTURE)
    deleted = write(tmp_path / "d", [schema("a", 1, 1, deleted=True), schema("b", 1, 1), gone("b", 1)])
    (line,) = schemas(deleted, "--export").stdout.splitlines()
    assert json.loads(line) == {
        "subject": "a", "deleted": True, "body": {"version": 1, "id": 1, "schemaType": "AVRO", "schema": '"int"'}
    }  # fmt: skip


def test_used_guids_are_those_of_the_topic() -> None:
    """Headers have GUIDs, which the registry derives from the schema; the topic does not have them."""
    found = {row["subject"]: row["used_by"] for row in rows(FIXTURE / "_schemas-0", "--used-by", FIXTURE)}
    assert found["events-value"] == [{"topic": "events", "side": "value", "records": 2}]
    assert found["users-value"] == [{"topic": "users", "side": "value", "records": 2}]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([FIXTURE / "absent"], 2, "No such file or directory"),
        ([FIXTURE / "orders-0"], 0, "not a record of a registry: offset 0: not JSON"),
        ([FIXTURE, "--used-by", FIXTURE / "absent"], 2, "No such file or directory"),
        ([FIXTURE, "--export", "--format", "csv"], 2, "--export cannot be combined with --format csv"),
        ([FIXTURE, "--format", "parquet"], 2, "expected table, jsonl or csv"),
    ],
)
def test_wrong_arguments(arguments: list[object], code: int, message: str) -> None:
    """One clear line each."""
    done = schemas(*arguments)
    assert (done.exit_code, "Traceback" in done.output) == (code, False), done.output
    assert message in done.output


def test_ids_of_other_registries_are_counted(tmp_path: Path) -> None:
    """Apicurio's ids have 8 bytes, those of AWS Glue are UUIDs."""
    formats = dict(line.split(" ")[:2] for line in (FIXTURE / "formats.txt").read_text("utf-8").splitlines())
    values = [(None, bytes.fromhex(formats[name])) for name in ("apicurio", "apicurio-protobuf:Apple", "glue-none")]
    write(tmp_path / "data" / "orders-0", values)
    topic = write(tmp_path / "_schemas-0", [schema("orders-value", 1, 42)])
    known, missing = rows(topic, "--used-by", tmp_path / "data", code=1)
    assert known["used_by"] == [{"topic": "orders", "side": "value", "records": 2}]
    assert (missing["state"], missing["guid"]) == ("missing", "b7b4a7f0-9c96-4e4a-a687-fb5de9ef0c63")
