"""Records of internal topics in the columns of a chunk: the same as their keys and values decoded one by one."""

from __future__ import annotations

import struct
from pathlib import Path
from random import Random

import pytest

from kseg.format.internal_topics.decode import RecordsDecoder, decode, record_types
from kseg.format.messages.definitions import RECORDS, MessageField, definition
from kseg.format.record.columns import RecordColumns
from kseg.format.storage.naming import CLUSTER_METADATA, INTERNAL_TOPICS, KEYED
from kseg.text import to_json
from tests.support.fuzzing import cases

_SIZES = {"bool": 1, "int8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8, "float64": 8, "uuid": 16}
_TEXTS = (
    b"",
    b"group-1",
    b'a"b',
    b"tab\t",
    "größe".encode(),
    "\u2028".encode(),
    b"\x7f",
    b"\xff",
    b"x" * 300,
    b"consumer",
)


def _uvarint(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


#: The numbers of statuses that Kafka knows are 0 to 2, or more.
_STATUSES = ("transactionStatus", "remoteLogSegmentState", "remotePartitionDeleteState")


def _structure(random: Random, fields: tuple[MessageField, ...], version: int, flexible: bool) -> bytes:
    """Return the bytes of a random structure, sometimes with an unknown tagged field."""
    present = [field for field in fields if version in field.versions and version not in field.tagged]
    data = b"".join(_value(random, field, version, flexible) for field in present)
    tags = b"\1\x63\2ab" if random.random() < 0.2 else b"\0"
    return data + (tags if flexible else b"")


def _value(random: Random, field: MessageField, version: int, message_flexible: bool) -> bytes:
    flexible = message_flexible if field.flexible is None else version in field.flexible
    nullable = version in field.nullable
    null = nullable and random.random() < 0.3
    item = field.type.removeprefix("[]")

    def length(size: int, code: str) -> bytes:
        return _uvarint(size + 1) if flexible else struct.pack(">" + code, size)

    def one() -> bytes:
        if item in _SIZES:
            size = _SIZES[item]
            if field.name in _STATUSES and random.random() < 0.9:
                return bytes([random.randrange(3)])
            return random.choice((bytes(size), b"\xff" * size, b"\x80" + bytes(size - 1), random.randbytes(size)))
        if item in ("string", "bytes"):
            data = random.choice(_TEXTS)
            return length(len(data), "h" if item == "string" else "i") + data
        return _structure(random, field.fields, version, flexible)

    if item != field.type:
        count = -1 if null else random.choice((0, 1, 3))
        return length(count, "i") + b"".join(one() for _ in range(count))
    if item in ("string", "bytes"):
        return length(-1, "h" if item == "string" else "i") if null else one()
    if item in _SIZES or not nullable:
        return one()
    return b"\xff" if null else b"\1" + one()


def _pairs(random: Random, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    """Return keys and values of all types and versions, a third of them damaged."""
    found: list[tuple[bytes | None, bytes | None]] = [(None, None), (None, b"x"), (b"", None), (b"\0\1", b"")]
    for number, kind in record_types(topic).items():
        of_key = definition(RECORDS, f"{kind.name}Key", 0)
        for version in range(8):
            suffix = "Value" if topic in KEYED else "Record"
            of_value = definition(RECORDS, f"{kind.name}{suffix}", version)
            for _ in range(cases(20) if of_value else 1):
                key = struct.pack(">h", number) + (
                    _structure(random, of_key.fields, 0, 0 in of_key.flexible) if of_key else b""
                )
                head = struct.pack(">h", version) if topic in KEYED else b"\1" + _uvarint(number) + _uvarint(version)
                value = head + (
                    _structure(random, of_value.fields, version, version in of_value.flexible) if of_value else b"x"
                )
                if random.random() < 0.3:
                    at = random.randrange(len(value))
                    value = random.choice(
                        (value[:at], value + b"\0", value[:at] + random.randbytes(2) + value[at + 2 :])
                    )
                found.append((key[: random.choice((len(key), len(key), 3))], None if random.random() < 0.05 else value))
    return found


@pytest.mark.fuzz
@pytest.mark.parametrize("topic", INTERNAL_TOPICS)
def test_a_column_is_decoded_as_its_bytes(topic: str) -> None:
    """Of every type and version, valid and damaged: same object, same JSON, and the check finds the same faults."""
    pairs = _pairs(Random(topic), topic)
    records, payload = RecordColumns(len(pairs)), bytearray(b"before")
    for i, (key, value) in enumerate(pairs):
        records.key_at[i], records.key_size[i] = len(payload), -1 if key is None else len(key)
        payload += key or b""
        records.value_at[i], records.value_size[i] = len(payload), -1 if value is None else len(value)
        payload += value or b""
    decoder = RecordsDecoder(topic, bytes(payload))
    faulty = []
    for i, pair in enumerate(pairs):
        wanted, found = decode(topic, *pair), decoder.decode(records, i)
        assert found.as_dict() == wanted.as_dict()
        assert found.as_json() == wanted.as_json() == to_json(wanted.as_dict())
        faulty += [i] if wanted.fault else []
    at = -1
    checked = []
    while (at := decoder.first_fault(records, at + 1, len(pairs))) < len(pairs):
        checked.append(at)
    assert checked == faulty
    assert len(pairs) * 0.05 < len(faulty) < len(pairs) * 0.75


def test_a_record_outside_of_its_batch_is_an_error() -> None:
    """The decoder reads no byte beyond the payload, whatever the columns say."""
    records = RecordColumns(1)
    records.key_at[0], records.key_size[0] = 2, 4
    with pytest.raises(IndexError):
        RecordsDecoder(INTERNAL_TOPICS[0], b"12345").decode(records, 0)


@pytest.mark.kafka
@pytest.mark.fuzz
def test_faults_are_those_of_kafkas_classes(tmp_path: Path) -> None:
    """``validate`` reports a record exactly if Kafka 4.3 fails on it, not if it skips the record or ignores a part of it.

    Records of KRaft of unknown types and versions, and null, are left to the replay of the whole log.
    """
    from tools.lab import maven
    from tools.lab.internal_oracle import verdicts

    if why := maven.missing():
        pytest.skip(why)
    records = [(topic, *pair) for topic in INTERNAL_TOPICS for pair in _pairs(Random(topic), topic)]
    different = []
    for (topic, key, value), kafka in zip(records, verdicts(records, tmp_path / "classes"), strict=True):
        found = decode(topic, key, value)
        is_left = (
            topic == CLUSTER_METADATA
            and found.fault is None
            and (found.value is None or found.value.data is None or "Unknown metadata id" in kafka)
        )
        if (found.fault is not None) != kafka.startswith("failed") and not is_left:
            different.append((topic, key, value, found.fault, kafka))
    assert different == []
