"""Messages without offset and size: read whole or not at all, at every length of the buffer and at the ends of ranges."""

from __future__ import annotations

import struct
import zlib

import pytest

from kseg.format.record import bare_message, wide_message
from kseg.format.record.wide_message import MAX_LENGTH, Fault, NeedMoreBytes

PARTS = (None, b"", b"k", b"value")


def part(data: bytes | None) -> bytes:
    return struct.pack(">i", -1 if data is None else len(data)) + (data or b"")


def bare(magic: int, key: bytes | None, value: bytes | None, *, attributes: int = 0) -> bytes:
    """Return a message as ``LegacyRecord`` lays it out."""
    rest = bytes([magic, attributes]) + (struct.pack(">q", 1) if magic == 1 else b"") + part(key) + part(value)
    return struct.pack(">I", zlib.crc32(rest)) + rest


def wide(key: bytes | None, value: bytes | None, *, magic: int = 0) -> bytes:
    return struct.pack(">qbb", zlib.crc32(value or b""), magic, 0) + part(key) + part(value)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("key", PARTS)
@pytest.mark.parametrize("value", PARTS)
def test_a_bare_message_is_read_if_it_is_whole(magic: int, key: bytes | None, value: bytes | None) -> None:
    """The smallest one has no key and no value. A cut one asks for no more bytes than the message has."""
    message = bare(magic, key, value)
    data = b"xy" + message + b"z"
    end = 2 + len(message)
    for stop in (end, len(data)):
        found = bare_message.read_message(data, 2, stop)
        assert found == (2, struct.unpack_from(">I", message)[0], magic, 0, end)
        assert bare_message.is_proved(data, 2, stop)
    for stop in range(2, end):
        wanted = bare_message.read_message(data, 2, stop)
        assert isinstance(wanted, NeedMoreBytes)
        assert stop - 2 < wanted.bytes <= len(message)
        assert not bare_message.is_proved(data, 2, stop)
        assert not bare_message.is_all(data[2:stop])
    assert bare_message.is_all(message)
    assert not bare_message.is_all(message + b"z")


@pytest.mark.parametrize("magic", [0, 1])
def test_attributes_and_magics_that_no_broker_writes_prove_no_message(magic: int) -> None:
    """v0 has three bits for the codec, v1 also one for the type of its timestamp."""
    made = [bare(magic, b"k", b"v", attributes=attributes) for attributes in range(256)]
    known = {attributes for attributes, one in enumerate(made) if bare_message.is_proved(one, 0, len(one))}
    assert known == set(range(16 if magic else 8))
    other = bare(2, b"k", b"v")
    assert not bare_message.is_proved(other, 0, len(other))
    assert not bare_message.is_proved(bare(magic, b"k", b"v")[:-1] + b"w", 0, len(bare(magic, b"k", b"v")))


@pytest.mark.parametrize("key", PARTS)
@pytest.mark.parametrize("value", PARTS)
def test_a_wide_message_is_read_if_it_is_whole(key: bytes | None, value: bytes | None) -> None:
    """Only a value that is not empty has a CRC that proves the message."""
    message = wide(key, value)
    data = b"xy" + message + b"z"
    end = 2 + len(message)
    for stop in (end, len(data)):
        found = wide_message.read_message(data, 2, stop)
        assert isinstance(found, wide_message.WideMessage)
        assert found.end == end
        assert (data[found.key_at :][: max(found.key_size, 0)], found.key_size) == (
            key or b"",
            -1 if key is None else len(key),
        )
        assert (data[found.value_at : found.end], found.value_size) == (
            value or b"",
            -1 if value is None else len(value),
        )
        assert wide_message.is_proved(data, 2, stop) == bool(value)
    for stop in range(2, end):
        wanted = wide_message.read_message(data, 2, stop)
        assert isinstance(wanted, NeedMoreBytes)
        assert stop - 2 < wanted.bytes <= max(len(message), wide_message.OVERHEAD)
        assert not wide_message.is_proved(data, 2, stop)


def test_a_wide_message_of_another_magic_or_crc_is_not_proved() -> None:
    """The upper half of the CRC is 0."""
    proved = {magic for magic in range(-2, 4) if wide_message.is_proved(m := wide(b"k", b"v", magic=magic), 0, len(m))}
    assert proved == {0, 1}
    message = wide(b"k", b"v")
    for at in range(8):
        changed = message[:at] + bytes([message[at] ^ 1]) + message[at + 1 :]
        assert not wide_message.is_proved(changed, 0, len(changed))


@pytest.mark.parametrize(("size", "valid"), [(-2, False), (MAX_LENGTH, True), (MAX_LENGTH + 1, False)])
@pytest.mark.parametrize("field", ["key", "value"])
def test_lengths_have_a_limit(size: int, valid: bool, field: str) -> None:
    """A larger length is a fault: no such message is waited for."""
    lengths = struct.pack(">i", size) if field == "key" else struct.pack(">ii", -1, size)
    for head, read in ((bytes(6), bare_message.read_message), (bytes(10), wide_message.read_message)):
        data = head + lengths + bytes(8)
        assert isinstance(read(data, 0, len(data)), NeedMoreBytes if valid else Fault)
