"""Random produce requests: all versions, codecs and flags, and the faults of clients."""

from __future__ import annotations

import base64
import random
import struct
import zlib
from dataclasses import asdict, dataclass, field
from typing import Any

from crc32c import crc32c

from kseg.extras.wire.produce_verdict import COMPRESSION_TYPES
from kseg.extras.wire.set_validation import TopicSettings
from kseg.format.compress.codecs import compress

NOW = 1_700_000_000_000
_CODEC = 7
_APPEND_TIME, _TRANSACTIONAL, _CONTROL = 8, 16, 32


@dataclass(slots=True)
class Case:
    """A produce request and the settings of its topic; ``done`` names its faults."""

    seed: int
    version: int
    acks: int
    transactional_id: str | None
    topic: TopicSettings
    sets: list[bytes]
    done: list[str] = field(default_factory=list)

    def as_row(self) -> dict[str, Any]:
        """Return the case as a JSON object."""
        return {**asdict(self), "sets": [base64.b64encode(data).decode() for data in self.sets]}

    @classmethod
    def of_row(cls, row: dict[str, Any]) -> Case:
        """Return the case of ``as_row``."""
        sets = [base64.b64decode(data) for data in row["sets"]]
        return cls(**{**row, "sets": sets, "topic": TopicSettings(**row["topic"])})

    def topic_settings(self) -> dict[str, str]:
        """Return the settings of the topic by their Kafka names. A default that differs between brokers is that of 3.9."""
        topic = {name: value for name, value in asdict(self.topic).items() if name not in ("now", "compacted")}
        if self.version < 3 and topic["timestamp_after_max_ms"] is None:
            topic["timestamp_after_max_ms"] = (1 << 63) - 1
        names = {"timestamp_before_max_ms": "message.timestamp.before.max.ms"}
        names |= {"timestamp_after_max_ms": "message.timestamp.after.max.ms"}
        found = {names.get(name, name.replace("_", ".")): str(v) for name, v in topic.items() if v is not None}
        return found | {"cleanup.policy": "compact" if self.topic.compacted else "delete"}


class _Maker:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.done: list[str] = []

    def rarely(self, what: str, share: float = 0.04) -> bool:
        """Return True in a share of the calls, and record ``what``."""
        if self.random.random() >= share:
            return False
        self.done.append(what)
        return True

    def pick(self, *values: Any) -> Any:
        return self.random.choice(values)

    def case(self, seed: int) -> Case:
        version = self.pick(*range(14), 2, 2, 2, 9, 9)
        topic = TopicSettings(
            NOW,
            max_message_bytes=self.pick(1_048_588, 1_048_588, 1_048_588, 1_048_588, 80, 200, 500, 5000),
            compression_type=self.pick("producer", "producer", "producer", *COMPRESSION_TYPES),
            timestamp_before_max_ms=self.pick(None, None, 0, 1000, 86_400_000),
            timestamp_after_max_ms=self.pick(None, None, 0, 1000, (1 << 63) - 1),
            compacted=self.random.random() < 0.2,
        )
        sets = [self.record_set(version) for _ in range(self.pick(1, 1, 1, 1, 2, 3))]
        acks = self.pick(2, -2) if self.rarely("acks", 0.02) else self.pick(-1, 0, 1)
        transactional_id = "txn" if self.random.random() < 0.5 and version >= 3 else None
        return Case(seed, version, acks, transactional_id, topic, sets, self.done)

    def record_set(self, version: int) -> bytes:
        if self.rarely("empty"):
            return b""
        magic = self.pick(0, 1) if version < 3 else 2
        if self.rarely("other-magic"):
            magic = self.pick(0, 1, 2)
        count = 1
        if (magic < 2 and self.random.random() < 0.5) or self.rarely("several"):
            count = self.random.randint(2, 4)
        codec = self.pick(0, 1, 2, 3) if magic < 2 else self.pick(0, 0, 1, 2, 3, 4)
        batches = []
        for offset in range(count):
            if self.rarely("mixed-magic"):
                magic = self.pick(0, 1, 2)
            if count > 1 and codec and self.random.random() < 0.6:
                codec = 0
            if self.rarely("other-codec", 0.03):
                codec = self.random.randrange(8)
            batches.append(self.batch(magic, codec, offset))
        data = b"".join(batches)
        if self.rarely("flip", 0.03):
            at = self.random.randrange(min(len(data), 70))
            data = data[:at] + bytes([data[at] ^ 1 << self.random.randrange(8)]) + data[at + 1 :]
        if self.rarely("cut", 0.03):
            data = data[: self.random.randrange(len(data))]
        if self.rarely("tail", 0.03):
            data += self.random.randbytes(self.random.randint(1, 40)) if self.random.random() < 0.5 else bytes(20)
        return data

    def batch(self, magic: int, codec: int, offset: int) -> bytes:
        return self.v2(codec) if magic == 2 else self.wrapper(magic, codec) if codec else self.message(magic, offset)

    def timestamp(self) -> int:
        if self.rarely("timestamp", 0.03):
            odd = (-1, -2, -1, 0, 1, NOW * 1000, (1 << 63) - 1, -(1 << 63), NOW - 2_000, NOW + 2_000)
            return self.random.choice(odd)
        return NOW + self.random.randint(-900, 900)

    def key(self) -> bytes | None:
        return None if self.random.random() < 0.1 else b"key%d" % self.random.randrange(100)

    def value(self) -> bytes | None:
        if self.random.random() < 0.05:
            return None
        size = self.random.choice((0, 5, 20, 20, 60, 300))
        return self.random.randbytes(size) if self.random.random() < 0.3 else b"v" * size

    # Versions 0 and 1

    def message(self, magic: int, offset: int, codec: int = 0, body: bytes | None = None) -> bytes:
        """Return a message. ``body`` is the value of a wrapper."""
        attributes = codec
        if magic == 1 and self.rarely("append-time", 0.03):
            attributes |= _APPEND_TIME
        if self.rarely("attributes", 0.01):
            attributes |= self.pick(8, 16, 128)
        key, value = (None, body) if codec else (self.key(), self.value())
        if codec and self.rarely("null-wrapper", 0.02):
            value = None
        fields = struct.pack(">bB", magic, attributes)
        if magic == 1:
            fields += struct.pack(">q", self.timestamp())
        for data in (key, value):
            size = -1 if data is None else len(data)
            if self.rarely("length", 0.01):
                size = self.pick(-2, size + 1, size - 1, 1000, 1 << 30)
            fields += struct.pack(">i", size) + (data or b"")
        if self.rarely("left-over", 0.01):
            fields += b"??"
        crc = zlib.crc32(fields)
        if self.rarely("crc", 0.015):
            crc ^= 1
        return struct.pack(">qiI", offset, len(fields) + 4, crc) + fields

    def wrapper(self, magic: int, codec: int) -> bytes:
        count = self.pick(1, 2, 3, 8)
        inner = b""
        for index in range(count):
            inner_magic = self.pick(0, 1, 2, 5) if self.rarely("inner-magic", 0.02) else magic
            offset = self.pick(0, 7, -1) if self.rarely("inner-offset", 0.05) else index
            if inner_magic > 1:
                data = self.message(1, offset)
                fields = bytes([inner_magic]) + data[17:]
                inner += data[:12] + struct.pack(">I", zlib.crc32(fields)) + fields
            elif self.rarely("nested", 0.02):
                inner += self.message(inner_magic, offset, self.pick(1, 2, 4, 5), self.message(inner_magic, 0))
            else:
                inner += self.message(inner_magic, offset)
        if self.rarely("inner-size", 0.01):
            inner = inner[:8] + struct.pack(">i", self.pick(0, 13, -1, 14, 21, 1000)) + inner[12:]
        if self.rarely("inner-cut", 0.03):
            inner = inner[: self.random.randrange(len(inner))]
        offset = self.pick(0, 0, count - 1, count - 1, 100)
        if self.rarely("wrapper-offset", 0.03):
            offset = self.pick(-1, 1, count - 2)
        return self.message(magic, offset, codec, self.compressed(codec, inner, magic))

    def compressed(self, codec: int, data: bytes, magic: int) -> bytes:
        if codec > (4 if magic > 1 else 3):
            return data
        packed = compress(codec, data, magic=magic)
        if self.rarely("payload-flip", 0.015) and packed:
            at = self.random.randrange(len(packed))
            packed = packed[:at] + bytes([packed[at] ^ 1 << self.random.randrange(8)]) + packed[at + 1 :]
        if self.rarely("payload-cut", 0.015):
            packed = packed[: self.random.randrange(len(packed) + 1)]
        if self.rarely("not-compressed", 0.01):
            packed = data
        if self.rarely("payload-tail", 0.01):
            packed += bytes(3)
        return packed

    # Version 2

    def v2(self, codec: int) -> bytes:
        count = self.pick(1, 1, 2, 5, 20)
        base = self.timestamp()
        stamps = [base] + [self.timestamp() for _ in range(count - 1)]
        payload = b"".join(self.record(index, stamp - base) for index, stamp in enumerate(stamps))
        if self.rarely("payload-damage", 0.03) and payload:
            at = self.random.randrange(len(payload))
            payload = payload[:at] + self.random.randbytes(1) + payload[at + self.pick(0, 1, 2) :]
        if self.rarely("records-cut", 0.02):
            payload = payload[: self.random.randrange(len(payload) + 1)]
        if self.rarely("records-tail", 0.02):
            payload += b"\0"
        attributes = codec
        for name, bit in (("append-time", _APPEND_TIME), ("control", _CONTROL), ("bits", 0x140)):
            attributes |= bit if self.rarely(name, 0.02) else 0
        producer, epoch, sequence = -1, -1, -1
        if self.random.random() < 0.3:
            producer, epoch, sequence = self.pick(7, 7, 7, 0, 8), self.pick(0, 3), self.pick(0, 100)
        if self.rarely("producer", 0.04):
            producer, epoch, sequence = self.pick(-1, -2, 5), self.pick(-1, -2, 0), self.pick(-1, -2, 0)
        if self.random.random() < 0.1:
            attributes |= _TRANSACTIONAL
        last, base_offset, header_count, largest = count - 1, 0, count, max(stamps)
        if self.rarely("count", 0.03):
            header_count = self.pick(0, -1, count + 1, count - 1)
        if self.rarely("last", 0.03):
            last = self.pick(-1, -2, count, header_count - 1)
        if self.rarely("base-offset", 0.02):
            base_offset = self.pick(1, -1)
        if self.rarely("largest", 0.05):
            largest = self.pick(-1, 0, -2, NOW * 1000, NOW - 5)
        rest = struct.pack(
            ">hiqqqhii", attributes, last, base, largest, producer, epoch, sequence, header_count
        ) + self.compressed(codec, payload, 2)
        crc = crc32c(rest)
        if self.rarely("crc", 0.02):
            crc ^= 1
        if self.rarely("short", 0.01):
            rest = rest[: self.random.randrange(49)]
            crc = crc32c(rest)
        size = 9 + len(rest)
        if self.rarely("other-size", 0.01):
            size = self.pick(0, 13, 14, 40, size + 1, -5, (1 << 31) - 1)
        return struct.pack(">qiibI", base_offset, size, self.pick(-1, 0, 5), 2, crc) + rest

    def record(self, index: int, delta: int) -> bytes:
        if self.rarely("offset-delta", 0.01):
            index = self.pick(0, index + 1, -1)
        body = bytes([1 if self.rarely("record-attributes", 0.01) else 0])
        body += _varint(delta) + _varint(index) + _sized(self.key()) + _sized(self.value())
        headers = self.pick(0, 0, 0, 1, 3)
        body += _varint(self.pick(-1, headers + 1, 200) if self.rarely("headers", 0.01) else headers)
        for _ in range(headers):
            body += _sized(b"header") + _sized(self.key())
        size = len(body)
        if self.rarely("record-size", 0.01):
            size += self.pick(-1, 1, -size - 1, 1 << 20, -size)
        return _varint(size) + body


def _sized(data: bytes | None) -> bytes:
    return _varint(-1) if data is None else _varint(len(data)) + data


def _varint(value: int) -> bytes:
    raw = (value << 1 ^ value >> 64) & (1 << 64) - 1
    out = bytearray()
    while raw > 127:
        out.append(raw & 127 | 128)
        raw >>= 7
    return bytes([*out, raw])


def case(seed: int) -> Case:
    """Return the request of a seed."""
    return _Maker(seed).case(seed)
