"""Control records against the bytes and the JSON of Kafka 4.3.0's own generated classes.

The tests protect the field names and layouts of every published version, and that a damaged marker raises
MalformedControlRecord only.
"""

from __future__ import annotations

import json
import re
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kseg.format.record.control_records import ControlRecord, MalformedControlRecord, decode

# name: (type id, hex of the value, the output of the message's JsonConverter)
CASES = {
    "leader-change-0": (
        2,
        "000000000bb8040000000100000000020000000bb8000200000bb80000",
        (
            '{"version":0,"leaderId":3000,"voters":[{"voterId":1},{"voterId":2},{"voterId":3000}],"grantingVoters'
            '":[{"voterId":3000}]}'
        ),
    ),
    "leader-change-0-empty": (2, "0000ffffffff010100", '{"version":0,"leaderId":-1,"voters":[],"grantingVoters":[]}'),
    "leader-change-0-unknown-tags": (
        2,
        "000000000bb8040000000101ac02c801" + "00" * 203 + "020000000bb8000200000bb800010703010203",
        (
            '{"version":0,"leaderId":3000,"voters":[{"voterId":1},{"voterId":2},{"voterId":3000}],"grantingVoters'
            '":[{"voterId":3000}]}'
        ),
    ),
    "leader-change-1": (
        2,
        (
            "000100000bb804000000010102030405060708fffefdfcfbfaf9f80000000002ffffffffffffffff000000000000003e0000"
            "000bb80102030405060708fffefdfcfbfaf9f8000200000bb80102030405060708fffefdfcfbfaf9f80000"
        ),
        (
            '{"version":1,"leaderId":3000,"voters":[{"voterId":1,"voterDirectoryId":"AQIDBAUGBwj__v38-_r5-A"},{"v'
            'oterId":2,"voterDirectoryId":"__________8AAAAAAAAAPg"},{"voterId":3000,"voterDirectoryId":"AQIDBAUGB'
            'wj__v38-_r5-A"}],"grantingVoters":[{"voterId":3000,"voterDirectoryId":"AQIDBAUGBwj__v38-_r5-A"}]}'
        ),
    ),
    "leader-change-1-empty": (2, "0001ffffffff010100", '{"version":1,"leaderId":-1,"voters":[],"grantingVoters":[]}'),
    "leader-change-1-unknown-tags": (
        2,
        "000100000bb804000000010102030405060708fffefdfcfbfaf9f801ac02c801"
        + "00" * 203
        + (
            "02ffffffffffffffff000000000000003e0000000bb80102030405060708fffefdfcfbfaf9f8000200000bb8010203040506"
            "0708fffefdfcfbfaf9f800010703010203"
        ),
        (
            '{"version":1,"leaderId":3000,"voters":[{"voterId":1,"voterDirectoryId":"AQIDBAUGBwj__v38-_r5-A"},{"v'
            'oterId":2,"voterDirectoryId":"__________8AAAAAAAAAPg"},{"voterId":3000,"voterDirectoryId":"AQIDBAUGB'
            'wj__v38-_r5-A"}],"grantingVoters":[{"voterId":3000,"voterDirectoryId":"AQIDBAUGBwj__v38-_r5-A"}]}'
        ),
    ),
    "snapshot-header-0": (3, "00000000019b76daa87b00", '{"version":0,"lastContainedLogTimestamp":1767225600123}'),
    "snapshot-footer-0": (4, "000000", '{"version":0}'),
    "kraft-version-0": (5, "0000000100", '{"version":0,"kRaftVersion":1}'),
    "voters-0-empty": (6, "00000100", '{"version":0,"voters":[]}'),
    "voters-0": (
        6,
        (
            "000003000000010102030405060708fffefdfcfbfaf9f8030b434f4e54524f4c4c4552126272c3b66b65722d312e6578616d"
            "706c65ffff00018301"
        )
        + "78" * 130
        + "23850000000001000000000002ffffffffffffffff000000000000003e0100000001000000",
        (
            '{"version":0,"voters":[{"voterId":1,"voterDirectoryId":"AQIDBAUGBwj__v38-_r5-A","endpoints":[{"name"'
            ':"CONTROLLER","host":"bröker-1.example","port":65535},{"name":"","host":"'
        )
        + "x" * 130
        + (
            '","port":9093}],"kRaftVersionFeature":{"minSupportedVersion":0,"maxSupportedVersion":1}},{"voterId":'
            '2,"voterDirectoryId":"__________8AAAAAAAAAPg","endpoints":[],"kRaftVersionFeature":{"minSupportedVer'
            'sion":0,"maxSupportedVersion":1}}]}'
        ),
    ),
    "commit": (1, "000000000011", '{"coordinatorEpoch":17}'),
}

TYPES = ("ABORT", "COMMIT", "LEADER_CHANGE", "SNAPSHOT_HEADER", "SNAPSHOT_FOOTER", "KRAFT_VERSION", "KRAFT_VOTERS")


def key(type_id: int, version: int = 0) -> bytes:
    return struct.pack(">hh", version, type_id)


def snake_cased(node: Any) -> Any:
    if isinstance(node, dict):
        return {re.sub(r"([A-Z])", r"_\1", name).lower(): snake_cased(value) for name, value in node.items()}
    return [snake_cased(item) for item in node] if isinstance(node, list) else node


@pytest.mark.parametrize("case", CASES)
def test_fields_are_those_of_kafkas_json_converter(case: str) -> None:
    """Names and values equal Kafka's JSON."""
    type_id, value, written = CASES[case]
    expected = snake_cased(json.loads(written))
    record = decode(key(type_id), bytes.fromhex(value))
    assert record == ControlRecord(TYPES[type_id], type_id, 0, expected)
    # The order of the fields is Kafka's as well: `--format text` prints them.
    assert json.dumps(record.fields) == json.dumps(expected)


def test_the_version_of_the_message_wins_over_the_version_of_the_key() -> None:
    """Kafka reads a value by its own version."""
    _, value, _ = CASES["leader-change-1-empty"]
    shown = decode(key(2, version=5), bytes.fromhex(value)).as_dict()
    assert shown == {"type": "LEADER_CHANGE", "version": 1, "leader_id": -1, "voters": [], "granting_voters": []}


def test_a_transaction_marker_shows_the_version_of_the_key() -> None:
    """The version of a marker is in its key."""
    assert decode(key(0), bytes.fromhex("00000000002a")).as_dict() == {
        "type": "ABORT",
        "version": 0,
        "coordinator_epoch": 42,
    }


def test_newer_and_longer_transaction_markers_are_read_as_kafka_reads_them() -> None:
    """Kafka ignores additional bytes of newer versions."""
    record = decode(key(1, version=3) + b"more", bytes.fromhex("0007 0000002a ffff"))
    assert record == ControlRecord("COMMIT", 1, 3, {"coordinator_epoch": 42})


@pytest.mark.parametrize("type_id", [-1, 7, 32767])
@pytest.mark.parametrize("value", [None, b"", b"anything"])
def test_an_unknown_type_is_shown_by_number(type_id: int, value: bytes | None) -> None:
    """A type of a newer Kafka is shown, not rejected."""
    record = decode(key(type_id), value)
    assert record == ControlRecord(f"UNKNOWN-{type_id}", type_id, 0, {})


@pytest.mark.parametrize("type_id", [2, 3, 4, 5, 6])
def test_a_value_newer_than_its_layout_is_not_guessed_at(type_id: int) -> None:
    """Fields of an unknown version are not invented."""
    record = decode(key(type_id), bytes.fromhex("7fff ffffffff"))
    assert record.fields == {"version": 0x7FFF}


@pytest.mark.parametrize(
    ("marker_key", "value", "why"),
    [
        (None, b"\0" * 6, "null key"),
        (b"", b"\0" * 6, "key of 0 bytes"),
        (b"\0\0\1", b"\0" * 6, "key of 3 bytes"),
        (key(1, version=-1), b"\0" * 6, "key version -1"),
        (key(1), None, "COMMIT: null value"),
        (key(2), None, "LEADER_CHANGE: null value"),
        (key(1), bytes.fromhex("ffff00000000"), "COMMIT: value version -1"),
        (key(4), bytes.fromhex("800000"), "SNAPSHOT_FOOTER: value version -32768"),
        (key(2), bytes.fromhex("0000 00000001 00 01 00"), "voters: null at byte 7"),
        (key(2), bytes.fromhex("0000 00000001 ffffffff0f 01 00"), "voters: length 4294967294"),
        (key(2), bytes.fromhex("0000 00000001 ffffffffff01 01 00"), "varint of more than 5 bytes"),
        (key(6), bytes.fromhex("0000 02 00000001" + "00" * 16 + "02 00 00"), "endpoints: name: null"),
        (
            key(6),
            bytes.fromhex("0000 02 00000001" + "00" * 16 + "02 7f 61"),
            "length 126 at byte 25, but only 1 byte left",
        ),
        (key(4), bytes.fromhex("0000 01 00 05 61"), "expected 5 bytes"),
        (key(4), bytes.fromhex("0000 ffffffff0f 00"), "expected 1 byte"),
        (key(4), bytes.fromhex("0000 00 00"), "1 byte after the end"),
    ],
)
def test_an_error_is_one_line(marker_key: bytes | None, value: bytes | None, why: str) -> None:
    with pytest.raises(MalformedControlRecord) as raised:
        decode(marker_key, value)
    assert why in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("case", CASES)
def test_no_shorter_value_passes(case: str) -> None:
    """A cut value is an error."""
    type_id, value, _ = CASES[case]
    whole = bytes.fromhex(value)
    for size in range(len(whole)):
        with pytest.raises(MalformedControlRecord):
            decode(key(type_id), whole[:size])


@pytest.mark.parametrize("case", CASES)
def test_any_byte_may_be_flipped(case: str) -> None:
    """A flipped byte gives a record or the documented error."""
    type_id, value, _ = CASES[case]
    whole = bytes.fromhex(value)
    for at in range(len(whole)):
        for flip in (0x01, 0x80, 0xFF):
            damaged = whole[:at] + bytes([whole[at] ^ flip]) + whole[at + 1 :]
            assert_decoded_or_malformed(key(type_id), damaged)


@given(st.none() | st.binary(max_size=6), st.none() | st.binary(max_size=60))
def test_no_bytes_raise_anything_else(marker_key: bytes | None, value: bytes | None) -> None:
    """Damaged bytes raise the documented error only."""
    assert_decoded_or_malformed(marker_key, value)


@given(st.integers(0, 6), st.sampled_from([b"\0\0", b"\0\1"]), st.binary(max_size=60))
def test_no_value_of_a_known_type_raises_anything_else(type_id: int, version: bytes, rest: bytes) -> None:
    """Any value raises the documented error only."""
    assert_decoded_or_malformed(key(type_id), version + rest)


def assert_decoded_or_malformed(marker_key: bytes | None, value: bytes | None) -> None:
    try:
        shown = decode(marker_key, value).as_dict()
    except MalformedControlRecord:
        return
    # Decoded values can always be written as JSON: no bytes, no surrogates.
    json.dumps(shown, ensure_ascii=False).encode()
