"""Pictures of the first bytes of real batches: v0, v1 and v2, each field in a colour."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from html import escape
from pathlib import Path

SEGMENTS = Path(__file__).parents[2] / "fixtures" / "segments"
_CELL, _ROW, _LEFT, _TOP = 46, 54, 56, 34
_COLORS = ("#cfe3ff", "#ffe2c2", "#d5f0d0", "#f6d5e8", "#e3dbfa", "#fff3b8", "#cdeff0", "#e6e6e6")
_FONT = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace"


#: Names for fields of one byte.
_SHORT = {
    "attributes": "attr", "length": "len", "timestampDelta": "time", "offsetDelta": "offset", "keyLength": "key",
    "valueLength": "value", "headerCount": "headers",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a batch: its name, its size in bytes, and its value as text."""

    name: str
    size: int
    value: str


#: name, struct code; the layouts of Kafka's LegacyRecord and DefaultRecordBatch.
LEGACY = (("offset", "q"), ("size", "i"), ("crc", "I"), ("magic", "b"), ("attributes", "b"))
V2 = (
    ("baseOffset", "q"), ("batchLength", "i"), ("partitionLeaderEpoch", "i"), ("magic", "b"), ("crc", "I"),
    ("attributes", "h"), ("lastOffsetDelta", "i"), ("baseTimestamp", "q"), ("maxTimestamp", "q"), ("producerId", "q"),
    ("producerEpoch", "h"), ("baseSequence", "i"), ("recordCount", "i"),
)  # fmt: skip


def legacy_fields(data: bytes) -> Iterator[Field]:
    """Yield the fields of the v0 or v1 message at the start of ``data``."""
    magic = data[16]
    layout = (*LEGACY, ("timestamp", "q")) if magic else LEGACY
    at = 0
    for field in _fixed(layout, data):
        at += field.size
        yield field
    for name in ("key", "value"):
        (size,) = struct.unpack_from(">i", data, at)
        yield Field(f"{name}Length", 4, str(size))
        at += 4
        if size > 0:
            yield Field(name, size, _text(data[at : at + size]))
            at += size


def v2_fields(data: bytes) -> Iterator[Field]:
    """Yield the fields of the v2 batch at the start of ``data``, and of its first record, which must be without headers."""
    yield from _fixed(V2, data)
    at, size = 61, 0
    for name in ("length", "attributes", "timestampDelta", "offsetDelta", "keyLength", "key", "valueLength", "value",
                 "headerCount"):  # fmt: skip
        if name == "attributes":
            yield Field("attributes", 1, str(data[at]))
            at += 1
        elif name in ("key", "value"):
            if size > 0:
                yield Field(name, size, _text(data[at : at + size]))
                at += size
        else:
            size, width = _varint(data, at)
            yield Field(name, width, str(size))
            at += width


def _fixed(layout: tuple[tuple[str, str], ...], data: bytes) -> Iterator[Field]:
    at = 0
    for name, code in layout:
        (value,) = struct.unpack_from(f">{code}", data, at)
        yield Field(name, struct.calcsize(f">{code}"), f"0x{value:08x}" if name == "crc" else str(value))
        at += struct.calcsize(f">{code}")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the zig-zag varint at ``at`` and its number of bytes."""
    value = width = 0
    while True:
        byte = data[at + width]
        value |= (byte & 0x7F) << (7 * width)
        width += 1
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), width


def _text(data: bytes) -> str:
    text = data.decode("utf-8", "replace")
    return f'"{text}"'


def draw(fixture: str, title: str, position: int = 0) -> str:
    """Return a picture of the batch at ``position`` of a segment of a fixture."""
    data = (SEGMENTS / fixture / "00000000000000000000.log").read_bytes()[position:]
    fields = list((v2_fields if data[16] == 2 else legacy_fields)(data))
    size = sum(field.size for field in fields)
    rows = -(-size // 16)
    width, height = _LEFT + 16 * _CELL + 12, _TOP + rows * _ROW + 10
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)}">',
        '<rect width="100%" height="100%" rx="8" fill="#ffffff"/>',
        f'<g font-family="{_FONT}" fill="#20242c">',
        *(f'<text x="{_LEFT + _CELL * (at + 0.5):.0f}" y="22" font-size="11" fill="#70757f" text-anchor="middle">+{at}'
          "</text>"
          for at in range(16)),
        *(f'<text x="{_LEFT - 10}" y="{_TOP + _ROW * row + 34}" font-size="12" fill="#70757f" text-anchor="end">{16 * row}'
          "</text>" for row in range(rows)),
    ]  # fmt: skip
    at = 0
    for number, field in enumerate(fields):
        parts += _field(field, at, data, _COLORS[number % len(_COLORS)])
        at += field.size
    return "\n".join([*parts, "</g>", "</svg>", ""])


def _field(field: Field, start: int, data: bytes, color: str) -> Iterator[str]:
    """Yield the boxes of a field, one per row that it covers; the longest box has the name and the value."""
    boxes = []
    at = start
    while at < start + field.size:
        end = min(start + field.size, (at // 16 + 1) * 16)
        boxes.append((at, end))
        at = end
    named = max(boxes, key=lambda box: (box[1] - box[0], -box[0]))
    for first, end in boxes:
        x, y = _LEFT + _CELL * (first % 16), _TOP + _ROW * (first // 16)
        yield (
            f'<rect x="{x + 1}" y="{y + 1}" width="{_CELL * (end - first) - 2}" height="{_ROW - 4}" rx="4" fill="{color}">'
            f"<title>{escape(field.name)} at byte {start}, {field.size} bytes: {escape(field.value)}</title></rect>"
        )
        for byte in range(first, end):
            yield (
                f'<text x="{_LEFT + _CELL * (byte % 16 + 0.5):.0f}" y="{y + 20}" font-size="14" text-anchor="middle">'
                f"{data[byte]:02x}</text>"
            )
        if (first, end) == named:
            yield _label(field, x, y + 40, _CELL * (end - first))


def _label(field: Field, x: int, y: int, width: int) -> str:
    """Return the name of a field and its value, as far as they fit."""
    texts = (f"{field.name} {field.value}", field.name, f"{_SHORT.get(field.name, field.name)} {field.value}")
    text = next((text for text in texts if len(text) * 6.1 < width), texts[-1])
    size = min(10.0, (width - 4) / len(text) / 0.6)
    return f'<text x="{x + width / 2:.0f}" y="{y}" font-size="{size:.1f}" text-anchor="middle">{escape(text)}</text>'


#: Name of a picture -> the function that draws it.
PICTURES: Mapping[str, Callable[[], str]] = {
    "batch-v0": partial(draw, "0.8.2.2-v0-none", "The bytes of a v0 message", 43),
    "batch-v1": partial(draw, "0.10.2.2-v1-none", "The bytes of a v1 message"),
    "batch-v2": partial(draw, "4.3.0-v2-none", "The bytes of a v2 batch with its first record"),
}
