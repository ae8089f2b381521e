"""A registry restored as ``docs/how-to/decode-values.md`` says has the same ids, or the restore stops with an error."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from kseg.extras.serialization.schemas_topic import RegistryState, read_schemas_topic
from kseg.format.segment.records_chunk import Record
from kseg.format.writer.records_builder import PlainRecord, build_batch
from kseg.reading import open_partition
from tests.support.cli import ROOT
from tests.support.cli import kseg_here as kseg
from tests.support.schema_registry import Registry

PAGE = ROOT / "docs" / "how-to" / "decode-values.md"
INT, LONG, TEXT = '"int"', '"long"', '"string"'


def key(kind: str, subject: str | None, version: int | None = None, **more: Any) -> bytes:
    found = {"keytype": kind, "subject": subject, "magic": 0, **more}
    return json.dumps(found if version is None else {**found, "version": version}).encode()


def registered(subject: str, version: int, number: int, text: str, **more: Any) -> tuple[bytes, bytes]:
    value = {"subject": subject, "version": version, "id": number, "schema": text, "deleted": False, **more}
    return key("SCHEMA", subject, version), json.dumps(value).encode()


#: Ids with gaps, which a registry that chooses them itself does not get; deletions of all kinds; settings and modes.
RECORDS: list[tuple[bytes, bytes | None]] = [
    (key("NOOP", None), None),
    (key("CONFIG", None), b'{"compatibilityLevel":"FULL"}'),
    registered("a-value", 1, 3, INT),
    registered("b-value", 1, 7, '{"type": "record",\n\t"name": "R", "fields": []}'.replace("\n\t", " ")),
    registered("a-value", 2, 9, LONG, references=[{"name": "R", "subject": "b-value", "version": 1}]),
    registered("c-value", 1, 12, TEXT),
    registered("c-value", 1, 12, TEXT, deleted=True),
    registered("d-value", 1, 13, '"bytes"'),
    (key("DELETE_SUBJECT", "d-value"), b'{"subject":"d-value","version":1}'),
    registered("e-value", 1, 14, '"float"'),
    (key("SCHEMA", "e-value", 1), None),
    (b'{\n\t"keytype": "CONFIG",\n\t"subject": "a-value"}', b'{\n\t"compatibilityLevel": "NONE"\n}'),
    (key("MODE", "a-value"), b'{"mode":"READONLY"}'),
    registered("\u00e9-\u2603", 1, 21, '{"type": "enum", "name": "\u00e9", "symbols": ["\\t"]}'),
]


def topic(folder: Path, records: Sequence[tuple[bytes, bytes | None]]) -> Path:
    folder.mkdir(parents=True)
    plain = [PlainRecord(n, name, value, 1) for n, (name, value) in enumerate(records)]
    (folder / f"{0:020}.log").write_bytes(build_batch(plain, base_offset=0))
    return folder


def state_of(folder: Path) -> RegistryState:
    found = read_schemas_topic([str(folder)])
    assert found.unread == []
    return found


def script(language: str, contains: str) -> str:
    """Return the block of the page that contains a text."""
    blocks = re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    (found,) = (block for block in blocks if contains in block)
    return str(found)


@pytest.mark.slow
def test_the_exported_records_are_those_of_the_topic(tmp_path: Path) -> None:
    """In their order, with tombstones. White space between tokens does not break a line."""
    source = topic(tmp_path / "a" / "_schemas-0", RECORDS)
    run = kseg("schemas", source, "--export-records")
    assert (run.returncode, run.stderr) == (0, "")
    pairs = [line.split("\t") for line in run.stdout.splitlines()]
    parsed = [(json.loads(name), json.loads(value) if value else None) for name, value in pairs]
    assert parsed == [(json.loads(name), None if value is None else json.loads(value)) for name, value in RECORDS]
    again = topic(tmp_path / "b" / "_schemas-0", [(name.encode(), value.encode() or None) for name, value in pairs])
    assert state_of(again) == state_of(source)
    assert kseg("schemas", again, "--format", "jsonl").stdout == kseg("schemas", source, "--format", "jsonl").stdout


def test_records_that_a_registry_does_not_apply_are_not_exported(tmp_path: Path) -> None:
    """Redpanda's keys have an offset that the record loses; what is not a registry's makes the exit code 1."""
    name, value = registered("a", 1, 1, INT)
    redpanda = [(json.dumps({**json.loads(name), "seq": n, "node": 1}).encode(), value) for n in (0, 0, 2)]
    run = kseg("schemas", topic(tmp_path / "r" / "_schemas-0", redpanda), "--export-records")
    assert run.returncode == 0
    assert [json.loads(line.split("\t")[0]) for line in run.stdout.splitlines()] == [json.loads(name)] * 2
    other = kseg(
        "schemas", topic(tmp_path / "o" / "_schemas-0", [(b"other", value), (name, value)]), "--export-records"
    )
    assert (other.returncode, len(other.stdout.splitlines())) == (1, 1)
    assert "offset 0: not JSON" in other.stderr


def restored(tmp_path: Path, registry: Registry) -> subprocess.CompletedProcess[str]:
    """Run the script of the page against a registry."""
    topic(tmp_path / "_schemas-0", RECORDS)
    with registry.serve() as url:
        place = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        return subprocess.run(
            ["bash", "-c", script("bash", "--export")],
            env={**os.environ, "URL": url, "PATH": place}, cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip


needs_tools = pytest.mark.skipif(not (shutil.which("jq") and shutil.which("curl")), reason="needs curl and jq")


@pytest.mark.slow
@needs_tools
def test_the_script_restores_ids_and_deletions(tmp_path: Path) -> None:
    """The registry then equals the topic, as the command on the page says."""
    registry = Registry()
    run = restored(tmp_path, registry)
    assert run.returncode == 0, run.stderr
    assert registry.mode == "READWRITE"
    with registry.serve() as url:
        same = kseg("schemas", "--registry", url, tmp_path / "_schemas-0")
    assert (same.returncode, same.stderr) == (0, "")
    assert {(one["subject"], one["id"]) for one in registry.schemas if one.get("deleted")} == {
        ("c-value", 12),
        ("d-value", 13),
    }


@pytest.mark.slow
@needs_tools
def test_the_script_stops_at_another_id(tmp_path: Path) -> None:
    """A registry that chooses ids itself, in IMPORT mode too, would decode values with other schemas."""
    registry = Registry()
    registry.imports = False
    run = restored(tmp_path, registry)
    assert run.returncode == 1
    assert "the registry chose id 1, not 3: restore the records of the topic" in run.stderr


@pytest.mark.slow
def test_a_registry_is_compared_with_the_topic(tmp_path: Path) -> None:
    """Ids, schemas, deletions, and what only one of both has. White space is no difference."""
    source = topic(tmp_path / "_schemas-0", RECORDS)
    registry = Registry()
    found = {
        "a-value": (1, 4, INT), "b-value": (1, 7, '{"name":"R","type":"record","fields":[]}'), "c-value": (1, 12, TEXT),
        "d-value": (1, 13, '"double"'), "x-value": (5, 40, INT),
    }  # fmt: skip
    for subject, (version, number, text) in found.items():
        registry.schemas.append({"subject": subject, "version": version, "id": number, "schema": text})
    registry.schemas[3]["deleted"] = True
    with registry.serve() as url:
        run = kseg("schemas", "--registry", url, source, "--format", "jsonl")
        table = kseg("schemas", "--registry", url, source)
        missing = kseg("schemas", "--registry", f"{url}/absent", source)
    assert (run.returncode, table.returncode) == (1, 1)
    rows = [json.loads(line) for line in run.stdout.splitlines()]
    assert {(row["subject"], row["version"]): row["registry"] for row in rows} == {
        ("a-value", 1): "id 4", ("a-value", 2): "absent", ("b-value", 1): "same", ("c-value", 1): "active",
        ("d-value", 1): "another schema", ("e-value", 1): None, ("\u00e9-\u2603", 1): "absent", ("x-value", 5): "only there",
    }  # fmt: skip
    assert [row["kind"] for row in rows if row["subject"] == "x-value"] == ["extra"]
    assert table.stdout.startswith("6 versions ")
    assert (missing.returncode, "expected the URL of a registry" in missing.stderr) == (2, True)
    absent = kseg("schemas", "--registry", "http://127.0.0.1:1", source)
    assert (absent.returncode, absent.stdout, len(absent.stderr.splitlines())) == (2, "", 1)


def test_a_replaced_version_is_not_called_deleted(tmp_path: Path) -> None:
    """The version is still there, with another schema."""
    source = topic(tmp_path / "_schemas-0", [registered("a", 1, 1, INT), registered("a", 1, 2, LONG)])
    rows = [json.loads(line) for line in kseg("schemas", source, "--format", "jsonl").stdout.splitlines()]
    assert [(row["id"], row["state"]) for row in rows] == [(2, "active"), (1, "replaced")]
    (line,) = kseg("schemas", source, "--export").stdout.splitlines()
    assert json.loads(line)["body"]["id"] == 2


@pytest.mark.kafka
def test_the_records_are_restored_by_kafkas_console_producer(tmp_path: Path) -> None:
    """With the options of the page, on a real broker: keys, tombstones and their order."""
    from tools.lab import maven
    from tools.lab.kraft import KraftBroker
    from tools.lab.modern_fixtures import create_topic

    source = topic(tmp_path / "old" / "_schemas-0", RECORDS)
    lines = kseg("schemas", source, "--export-records").stdout
    program = [
        "java",
        *maven.JVM,
        "-Xmx200m",
        "-cp",
        f"{maven.libs('4.3.0')}/*",
        "org.apache.kafka.tools.ConsoleProducer",
    ]
    command = script("sh", "kafka-console-producer.sh").partition("kafka-console-producer.sh")[2]
    with KraftBroker("4.3.0", tmp_path / "broker") as broker:
        create_topic(broker, "_schemas", {"cleanup.policy": "compact"})
        (tmp_path / "records.txt").write_text(lines, encoding="utf-8")
        subprocess.run(
            ["bash", "-c", f'"$@" {command}', "-", *program], cwd=tmp_path, check=True, stdout=subprocess.DEVNULL,
            env={**os.environ, "BROKER": broker.bootstrap, "LC_ALL": "C.UTF-8"},
        )  # fmt: skip
        folder = broker.partition("_schemas")
    found = [(record.key, record.value) for record in records(folder)]
    spaces = bytes.maketrans(b"\n\t", b"  ")
    assert found == [(name.translate(spaces), value and value.translate(spaces)) for name, value in RECORDS]
    assert kseg("schemas", folder, "--format", "jsonl").stdout == kseg("schemas", source, "--format", "jsonl").stdout


def records(folder: Path) -> Iterator[Record]:
    yield from open_partition(folder).records()
