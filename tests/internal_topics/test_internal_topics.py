"""Records of Kafka's internal topics, decoded as kafka-dump-log decodes them, and equal in every format.

A 4.3.0 broker wrote the folders ``…-internal-…`` with all kinds of groups, transactions, tiered storage and
administrators; ORIGIN describes them.
"""

from __future__ import annotations

import csv
import io
import json
import re
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kseg.commands.dump.dump_items import RecordsItem
from kseg.format.internal_topics.decode import decode
from kseg.format.internal_topics.state import CLUSTER, RecordPlace, State
from kseg.format.internal_topics.topic_lines import decoded_parts, jackson
from kseg.format.storage.naming import INTERNAL_TOPICS
from tests.support.cli import invoke
from tests.support.fixtures import dump_segment
from tests.support.internal_topics import FOLDERS, SEGMENTS, placed


@pytest.fixture(params=FOLDERS)
def partition(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Copy a folder under the name of an internal topic."""
    return placed(request.param, tmp_path)


def dump(*arguments: object) -> str:
    done = invoke("dump", "--deep", *arguments)
    assert done.exit_code == 0, done.output
    return done.stdout


def rows(*arguments: object) -> list[dict[str, Any]]:
    return [json.loads(line) for line in dump("--format", "jsonl", *arguments).splitlines()]


@pytest.mark.kafka
def test_text_equals_what_kafkas_decoders_print(partition: Path) -> None:
    """The text format equals kafka-dump-log's with its decoders."""
    from tools.lab.oracle import dump_log_segments

    files = sorted([*partition.glob("*.log"), *partition.glob("*.checkpoint")])
    option = FOLDERS[partition.name.removesuffix("-0")][1]
    wanted = dump_log_segments([option, "--files", ",".join(map(str, files))])
    assert dump("--format", "text", *files).split("\n") == wanted.split("\n")


@pytest.mark.parametrize("topic", INTERNAL_TOPICS)
def test_every_record_is_decoded(topic: str, tmp_path: Path) -> None:
    """Every record that a broker of this release writes is decoded; control records keep their own column."""
    found = rows(*placed(topic, tmp_path).glob("*.log"))
    assert found
    for row in found:
        if row["control"]:
            assert row["decoded"] is None
        else:
            halves = [half for half in row["decoded"].values() if half is not None]
            assert halves
            assert all("data" in half for half in halves)


def test_formats_say_the_same(partition: Path) -> None:
    """All formats have the same decoded content."""
    (file,) = partition.glob("*.log")
    wanted = [row["decoded"] for row in rows(file)]
    table = csv.DictReader(io.StringIO(dump("--format", "csv", file)))
    assert [json.loads(row["decoded"]) if row["decoded"] else None for row in table] == wanted
    parquet = pytest.importorskip("pyarrow.parquet")
    target = partition.parent / "rows.parquet"
    dump("--format", "parquet", "-o", target, file)
    column = parquet.read_table(target)["decoded"].to_pylist()
    assert [text and json.loads(text) for text in column] == wanted


def test_the_column_is_there_only_where_records_are_decoded(tmp_path: Path) -> None:
    """Rows of other topics keep their columns."""
    folder = placed("__transaction_state", tmp_path)
    assert all("decoded" not in row for row in rows("--no-decode", folder))
    raw = SEGMENTS / FOLDERS["__transaction_state"][0]
    assert all("decoded" not in row for row in rows(raw))
    named = rows("--decode", "__transaction_state", raw)
    assert [row["decoded"] for row in named] == [row["decoded"] for row in rows(folder)]
    plain = SEGMENTS / "4.3.0-v2-none"
    assert "decoded" not in dump("--format", "csv", plain).splitlines()[0]
    mixed = dump("--format", "csv", folder, plain).splitlines()
    assert mixed[0].endswith(",decoded")


def test_a_classic_groups_subscription_is_opened() -> None:
    """As kafka-dump-log does it, if the protocol is that of consumers; a null value is a tombstone."""
    folder = SEGMENTS / FOLDERS["__consumer_offsets"][0]
    items = (item for item in dump_segment(str(next(folder.glob("*.log"))), deep=True, decode_as="__consumer_offsets"))
    decoded = [item.decoded(i) for item in items if isinstance(item, RecordsItem) for i in item.kept]
    members = [
        member
        for row in decoded
        if row and row["key"]["name"] == "GroupMetadata" and row["value"]
        for member in row["value"]["data"]["members"]
    ]
    assert {tuple(member["subscription"]["topics"]) for member in members} == {("plain",)}
    assert any(row and row["value"] is None for row in decoded)


KEY = struct.pack(">h", 0) + b"\x00\x02id"


@pytest.mark.parametrize(
    ("topic", "key", "value", "wanted"),
    [
        ("__transaction_state", b"\x00\x09z", b"", {"key": {"type": 9, "raw": "AAl6"}, "value": {"raw": ""}}),
        ("__transaction_state", KEY, b"\x00\x63zz", {"value": {"version": 99, "raw": "AGN6eg=="}}),
        ("__transaction_state", KEY, None, {"value": None}),
        ("__cluster_metadata", None, b"\x01\x7f\x00", {"value": {"type": 127, "version": 0, "raw": "AX8A"}}),
        (
            "__cluster_metadata",
            None,
            b"\x01\x02\x07",
            {"value": {"type": 2, "name": "Topic", "version": 7, "raw": "AQIH"}},
        ),
        ("__cluster_metadata", None, None, {"value": None}),
    ],
)
def test_unknown_records_are_kept_raw(
    topic: str, key: bytes | None, value: bytes | None, wanted: dict[str, Any]
) -> None:
    """Records of a newer broker are not damage: only ``fault`` marks damage."""
    found = decode(topic, key, value).as_dict()
    assert {name: found[name] for name in wanted} == wanted


@pytest.mark.parametrize(
    ("topic", "key", "value", "fault"),
    [
        ("__transaction_state", None, b"x", "key: null instead of a record type"),
        ("__transaction_state", b"\x00", None, "key: expected 2 bytes at byte 0 of 1"),
        (
            "__cluster_metadata",
            None,
            b"\x01\x18\x00\x00!",
            "value: EndTransactionRecord: 1 byte after the end of version 0",
        ),
        ("__transaction_state", KEY, b"\x00\x01", "value: producerId: expected 8 bytes at byte 2 of 2"),
        ("__cluster_metadata", None, b"\x02\x01\x00", "value: frame version 2, expected 1"),
    ],
)
def test_a_fault_has_its_position(topic: str, key: bytes | None, value: bytes | None, fault: str) -> None:
    decoded = decode(topic, key, value)
    assert decoded.fault == fault
    stored = value if fault.startswith("value") else key
    half = decoded.value if fault.startswith("value") else decoded.key
    assert half is not None
    assert half.raw == stored


@given(st.sampled_from(sorted(INTERNAL_TOPICS)), st.none() | st.binary(max_size=40), st.none() | st.binary(max_size=60))
def test_no_bytes_raise_anything(topic: str, key: bytes | None, value: bytes | None) -> None:
    """Damaged records are decoded to a fault, never an exception."""
    decoded = decode(topic, key, value)
    json.dumps(decoded.as_dict(), allow_nan=False).encode()
    assert any(decoded_parts(topic, decoded, 7))


@pytest.mark.parametrize(
    "number", [0.0, 0.001, 0.00012, 12.5, 123456.0, 1e7, 1.0e-5, 123456789.125, 1e21, -2.5e8, 5e-324]
)
def test_doubles_are_written_as_java_writes_them(number: float) -> None:
    """``Double.toString``: decimal from 0.001 to 10,000,000, else with an exponent, and a digit after the point."""
    text = jackson({"value": number})[9:-1]
    assert float(text) == number
    assert ("E" in text) == (number != 0 and not 0.001 <= abs(number) < 1e7)
    assert re.fullmatch(r"-?\d+\.\d+(E-?\d+)?", text)
    assert "E" not in text or len(text.split(".")[0].lstrip("-")) == 1


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--decode", "__consumer_offset"], "did you mean __consumer_offsets?"),
        (["--decode", "__consumer_offsets", "--no-decode"], "--decode cannot be combined with --no-decode"),
        (["--shallow", "--decode", "__consumer_offsets"], "--decode needs --deep or --effective: it decodes records"),
    ],
)
def test_options_that_make_no_sense_are_refused(arguments: list[str], line: str) -> None:
    """Contradicting options are one line."""
    done = invoke("dump", SEGMENTS / "4.3.0-v2-none", *arguments)
    assert done.exit_code == 2
    assert line in done.stderr


def test_a_controller_that_was_unregistered_is_not_in_the_state() -> None:
    """Kafka 4.4 added the record (type 29)."""
    decoded = decode("__cluster_metadata", None, bytes.fromhex("01 1d 00 00000007 00")).value
    assert decoded
    assert decoded.as_dict() == {"type": 29, "name": "UnregisterController", "version": 0, "data": {"controllerId": 7}}
    state, place = State(), RecordPlace(0, None, 8)
    for controller in (7, 8):
        CLUSTER["RegisterController"](state, {"controllerId": controller}, place)
    CLUSTER["UnregisterController"](state, {"controllerId": 7}, place)
    assert [item.key for item in state] == [{"controllerId": 8}]


def test_the_order_of_a_quotas_entity_has_no_meaning() -> None:
    """Kafka makes a map of it (``ClientQuotasImage.dataToEntity``): another order replaces and removes the same quota."""
    user, client = ({"entityType": kind, "entityName": kind[0]} for kind in ("user", "client-id"))
    state, place = State(), RecordPlace(0, None, 8)
    for entity, remove in (([user, client], False), ([client, user], False), ([user], False), ([user, client], True)):
        data = {"entity": entity, "key": "producer_byte_rate", "value": 1.0, "remove": remove}
        CLUSTER["ClientQuota"](state, data, place)
    assert [item.key["entity"] for item in state] == [[user]]
