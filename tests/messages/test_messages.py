"""Every version of Kafka's messages, as Kafka's own generated classes write them.

The tests protect the tables of definitions (generated again, they are the same), the encoding of every type, and that
other bytes raise MalformedMessage and no other exception.
"""

from __future__ import annotations

import base64
import json
import random
import re
import struct
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kseg.format.messages.definitions import APIS, RECORDS, Definition, MessageField, Versions, definition
from kseg.format.messages.message_reader import UNKNOWN_TAGS, MalformedMessage, decode, jsonable, known
from kseg.format.messages.message_writer import encode
from tools.lab import maven

PACKAGES = {
    None: "org.apache.kafka.common.message",
    "__cluster_metadata": "org.apache.kafka.common.metadata",
    "__consumer_offsets": "org.apache.kafka.coordinator.group.generated",
    "__transaction_state": "org.apache.kafka.coordinator.transaction.generated",
    "__share_group_state": "org.apache.kafka.coordinator.share.generated",
    "__remote_log_metadata": "org.apache.kafka.server.log.remote.metadata.storage.generated",
}
#: Its classes have the names of their definitions, with "Data" appended.
KINDS_OF_DATA = {"request", "response", "header"}
RANDOM = random.Random(8)
SIMPLE: Mapping[str, Callable[[], Any]] = {
    "bool": lambda: True,
    "int8": lambda: RANDOM.randrange(1, 128),
    "int16": lambda: RANDOM.randrange(-(1 << 15), -1),
    "uint16": lambda: RANDOM.randrange(1 << 15, 1 << 16),
    "int32": lambda: RANDOM.randrange(1 << 24, 1 << 31),
    "int64": lambda: RANDOM.randrange(-(1 << 63), -1),
    "float64": lambda: RANDOM.uniform(1, 1e6),
    "uuid": lambda: base64.urlsafe_b64encode(RANDOM.randbytes(16)).rstrip(b"=").decode(),
    "string": lambda: RANDOM.choice(["some", "ünïcödé ✓", "x" * RANDOM.randrange(126, 300)]),
    "bytes": lambda: base64.b64encode(RANDOM.randbytes(RANDOM.randrange(1, 200))).decode(),
    "records": lambda: base64.b64encode(RANDOM.randbytes(70)).decode(),
}


def filled(fields: tuple[MessageField, ...], version: int, nulls: bool) -> dict[str, Any]:
    """Return a message's JSON with a value in every field of a version; with ``nulls``, null where it is allowed."""
    found: dict[str, Any] = {}
    for field in fields:
        if version not in field.versions:
            continue
        # A tagged field with its default is not written. The default is null if allowed, except for one structure.
        tagged = version in field.tagged and field.name != "classicMemberMetadata"
        if nulls and version in field.nullable and not tagged:
            found[field.name] = None
            continue
        item = field.type.removeprefix("[]")
        make: Callable[[], Any] = SIMPLE.get(item) or partial(filled, field.fields, version, nulls)
        found[field.name] = make() if item == field.type else [make() for _ in range(RANDOM.randrange(1, 3))]
    return found


def messages(release: str) -> Iterator[tuple[Definition, int]]:
    """Return every version of every message that the tables have of a release of Kafka."""
    for file in (RECORDS, APIS):
        _origin, *lines = (files("kseg.format.messages") / file).read_text().splitlines()
        for row in map(json.loads, lines):
            versions = Versions.parse(row["versions"])
            for version in range(versions.low, versions.high + 1):
                one = definition(file, row["name"], version)
                assert one is not None
                if row.get("release", "4.4.0") == release:
                    yield one, version


def written(release: str, cases: Sequence[tuple[Definition, int, dict[str, Any]]]) -> list[bytes]:
    """Return the bytes of Kafka's own classes."""
    names = [PACKAGES[one.topic] + "." + one.name + "Data" * (one.kind in KINDS_OF_DATA) for one, _, _ in cases]
    lines = (f"{name}\t{case[1]}\t{json.dumps(case[2])}\n" for name, case in zip(names, cases, strict=True))
    command = [
        "java",
        *maven.JVM,
        "-cp",
        f"{maven.libs(release)}/*",
        str(Path(__file__).parents[2] / "tools" / "lab" / "Messages.java"),
    ]
    done = subprocess.run(command, check=False, input="".join(lines).encode(), capture_output=True)
    assert not done.returncode, done.stderr.decode()
    return list(map(bytes.fromhex, done.stdout.decode().split("\n")[:-1]))


@pytest.mark.parametrize("release", ["4.4.0", "3.9.1"])
@pytest.mark.kafka
def test_every_message_is_read_and_written_as_kafka_does(release: str) -> None:
    """Every field of every version is read, and written with the bytes that Kafka writes."""
    cases = [(*one, filled(one[0].fields, one[1], nulls)) for one in messages(release) for nulls in (False, True)]
    assert len(cases) > 100
    for (one, version, wanted), data in zip(cases, written(release, cases), strict=True):
        # Compared as text, because the order is Kafka's, too.
        assert json.dumps(jsonable(decode(one, version, data))) == json.dumps(wanted), (one.name, version)
        assert encode(one, version, wanted) == data, (one.name, version)


@pytest.mark.kafka
def test_the_tables_are_those_of_kafkas_jars() -> None:
    """The stored definitions are Kafka's own."""
    from tools.lab.make_definitions import tables

    for file, text in tables().items():
        assert (files("kseg.format.messages") / file).read_text() == text


#: A transaction's state: producer 9, epoch 1, timeout, status 1, a topic "t" with partition 3, two times.
STATE = struct.pack(">qhib", 9, 1, 60_000, 1) + bytes.fromhex("02 0274 02 00000003 00") + struct.pack(">qq", 7, 8)
#: Of its tagged fields: the version of transactions that the client uses, and an unknown one.
TAGS = bytes.fromhex("02 02 02 0002 09 03 aabbcc")


def state() -> Definition:
    found = definition(RECORDS, "TransactionLogValue", 1)
    assert found is not None
    return found


def test_unknown_tags_are_kept_as_they_are() -> None:
    """Fields of a newer broker (KIP-482): the record is read, and the unknown fields are kept."""
    message = decode(state(), 1, STATE + TAGS)
    assert message["clientTransactionVersion"] == 2
    assert "previousProducerId" not in message
    assert message["transactionPartitions"] == [{"topic": "t", "partitionIds": [3]}]
    assert jsonable(message)[UNKNOWN_TAGS] == [{"tag": 9, "data": "qrvM"}]
    assert known(message) == {name: value for name, value in message.items() if name != UNKNOWN_TAGS}


def test_no_shorter_message_passes_and_no_longer() -> None:
    """A cut message and one with bytes left over are errors."""
    whole = STATE + TAGS
    for size in range(len(whole)):
        with pytest.raises(MalformedMessage):
            decode(state(), 1, whole[:size])
    with pytest.raises(MalformedMessage, match="1 byte after the end of version 1"):
        decode(state(), 1, whole + b"\0")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (STATE[:15] + bytes.fromhex("ffffffff0f"), "transactionPartitions: length 4294967294 at byte 20"),
        (STATE[:15] + bytes.fromhex("ffffffffff01"), "transactionPartitions: varint of more than 5 bytes"),
        (
            STATE[:15] + bytes.fromhex("02 00"),
            "transactionPartitions: topic: null at byte 17 in a field that is not nullable",
        ),
        (STATE[:15] + bytes.fromhex("02 0374"), "topic: length 2 at byte 17, but only 1 byte left"),
        (STATE + bytes.fromhex("01 02 03 000200"), "clientTransactionVersion: 1 byte after its end"),
        (STATE + bytes.fromhex("01 02 01 00"), "clientTransactionVersion: expected 2 bytes"),
    ],
)
def test_an_error_has_its_position(data: bytes, why: str) -> None:
    with pytest.raises(MalformedMessage, match=re.escape(why)):
        decode(state(), 1, data)


@given(st.sampled_from([*messages("4.4.0")]), st.binary(max_size=80))
def test_no_bytes_raise_anything_else(message: tuple[Definition, int], data: bytes) -> None:
    """Damaged bytes raise the documented error only."""
    with suppress(MalformedMessage):
        json.dumps(jsonable(decode(*message, data)), allow_nan=False).encode()
