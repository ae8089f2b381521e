"""Random damage in values, schemas and records of a registry's topic: never an exception, and an end."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kseg.commands.dump.dump_items import RecordsItem
from kseg.extras.serialization import avro, strict_avro
from kseg.extras.serialization.decoding import NAMES, DecodedValue, FieldDecoder
from kseg.extras.serialization.schema_set import Schema, SchemaSet, schema_of
from kseg.extras.serialization.schemas_topic import RegistryState
from kseg.format.segment.records_chunk import Record
from kseg.text import to_json
from tests.support.fixtures import dump_segment
from tests.support.fuzzing import cases

FIXTURE = Path(__file__).parents[2] / "fixtures" / "serialized"


def records(folder: str) -> list[Record]:
    path = FIXTURE / folder / f"{0:020}.log"
    items = dump_segment(str(path), deep=True)
    return [record for item in items if isinstance(item, RecordsItem) for record in item.records()]


def schemas() -> list[Schema]:
    lines = (FIXTURE / "registry.jsonl").read_text(encoding="utf-8").splitlines()
    return [schema_of(json.loads(line)) for line in lines]


def damaged(dice: random.Random, data: bytes) -> bytes:
    """Return bytes with a few changed, inserted, removed or repeated bytes."""
    found = bytearray(data)
    for _ in range(dice.randint(1, 4)):
        at = dice.randrange(len(found) + 1)
        change = dice.randrange(4)
        if change == 0 and at < len(found):
            found[at] = dice.choice((0, 1, 0x7F, 0x80, 0xFF, dice.randrange(256)))
        elif change == 1:
            found[at:at] = dice.choice((b"\xff" * 9 + b"\1", b"\0" * 4, dice.randbytes(3)))
        elif change == 2:
            del found[at : at + dice.randint(1, 5)]
        else:
            found[at:at] = found[: dice.randrange(len(found) + 1)]
    return bytes(found)


@pytest.mark.fuzz
@pytest.mark.parametrize("seed", range(cases(30)))
def test_damaged_values_decode_or_have_a_reason(seed: int) -> None:
    """Each result is JSON, or has a reason of one line."""
    dice = random.Random(seed)
    source = SchemaSet(schemas())
    decoders = [FieldDecoder("value", name, source) for name in NAMES]
    values = [(folder, record) for folder in ("orders-0", "users-0", "events-0") for record in records(folder)]
    for _ in range(40):
        folder, record = dice.choice(values)
        headers = [
            (header.key, damaged(dice, header.value) if header.value and dice.random() < 0.3 else header.value)
            for header in record.headers
        ]
        check(dice.choice(decoders).decode(folder[:-2], damaged(dice, record.value or b""), headers))


@pytest.mark.fuzz
@pytest.mark.parametrize("seed", range(cases(10)))
def test_damaged_schemas_have_a_reason(seed: int) -> None:
    """Schemas from a topic that nobody has checked; those of Avro change most often, because protoc takes long."""
    dice = random.Random(seed)
    values = records("orders-0")
    for _ in range(20):
        known = [
            Schema(one.type, damaged(dice, one.text.encode()).decode("utf-8", "replace"), one.id, subject=one.subject,
                   version=one.version, references=one.references)
            if one.type == "AVRO" and dice.random() < 0.7 else one
            for one in schemas()
        ]  # fmt: skip
        decoder = FieldDecoder("value", "auto", SchemaSet(known))
        for record in values:
            check(decoder.decode("orders", record.value))


@pytest.mark.fuzz
@pytest.mark.parametrize("seed", range(cases(30)))
def test_damaged_records_of_a_registry_are_described(seed: int) -> None:
    """Damage in one record does not end the replay."""
    dice = random.Random(seed)
    state = RegistryState()
    for record in records("_schemas-0"):
        key = record.key if dice.random() < 0.5 else damaged(dice, record.key or b"")
        value = record.value if dice.random() < 0.5 else damaged(dice, record.value or b"")
        state.apply(record.offset, key, value)
    assert all("\n" not in problem for problem in state.unread)
    for schema in state.all():
        assert schema.label


NUMBERS = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "i", "type": "int"},
        {"name": "u", "type": ["null", "long", {"type": "enum", "name": "E", "symbols": ["A", "B"]}]},
        {"name": "a", "type": {"type": "array", "items": ["int", "string", "boolean"]}},
        {"name": "m", "type": {"type": "map", "values": "E"}},
        {"name": "l", "type": "long"},
    ],
}


@pytest.mark.fuzz
@pytest.mark.parametrize("seed", range(cases(20)))
def test_the_fast_reader_of_avro_accepts_what_the_strict_one_accepts(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values with damage, and bytes that are mostly parts of long numbers."""
    dice = random.Random(seed)
    decode = avro.avro_reader(Schema("AVRO", json.dumps(NUMBERS)), ())
    whole = b"\x02\x04\x02\x04\x02\x06abc\x04\x01\x00\x02\x02k\x00\x00\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"
    parts = (b"\x80", b"\x80" * 4, b"\xff", b"\xff" * 9, b"\0", b"\1", b"\2", b"\4", b"\x8f\0", b"\x7f")
    for _ in range(500):
        data = damaged(dice, whole)
        if dice.random() < 0.5:
            at = dice.randrange(len(whole))
            data = whole[:at] + b"".join(dice.choices(parts, k=dice.randint(1, 6))) + whole[at + dice.randrange(3) :]
        found = outcome(decode, data)
        with monkeypatch.context() as patch:
            patch.setattr(strict_avro, "is_suspect", lambda data: True)
            assert found == outcome(decode, data), data


def outcome(decode: Callable[[bytes], Any], data: bytes) -> Any:
    try:
        return decode(data)
    except ValueError as error:
        return str(error)


def check(found: DecodedValue) -> None:
    assert found.error is None or ("\n" not in found.error and found.value is None)
    json.loads(to_json(found.value).encode("utf-8", "backslashreplace"))
