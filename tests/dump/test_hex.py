"""``kseg dump --format hex``: every byte is shown once, with the field that it belongs to."""

import zlib
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from unittest.mock import ANY

import pytest

from kseg.commands.dump.dump_items import BatchItem, DamagedBytes, RecordsItem
from kseg.format.compress.codecs import CodecError, decompress
from kseg.format.record.fields import StoredField, batch_fields, message_set_fields, record_fields
from kseg.format.record.layout import CODEC_MASK, CONTROL, MAGIC_AT, RECORD_BATCH_OVERHEAD
from tests.support.cli import DAMAGED
from tests.support.cli import kseg_here as kseg
from tests.support.fixtures import SEGMENTS, dump_segment

LOGS = sorted(SEGMENTS.glob("*/*.log"))
FINDINGS = DAMAGED.parent


def assert_contiguous(fields: list[StoredField], at: int, end: int) -> None:
    for field in fields:
        assert field.at == at, field
        at += field.size
    assert at == end


def fields_of(item: BatchItem) -> tuple[bytes, list[list[StoredField]]]:
    """Return the payload of a batch, decompressed, and the fields of its records."""
    stored = bytes(item.stored)
    header = batch_fields(stored)
    if item.batch.magic < 2:
        assert_contiguous(header, 0, len(stored))
        if item.batch.compression == "none":
            return stored, [header]
        value = stored[header[-1].at :]
        payload = bytes(decompress(stored[17] & CODEC_MASK, value, limit=1 << 24, magic=item.batch.magic))
        return payload, list(message_set_fields(payload))
    assert_contiguous(header, 0, RECORD_BATCH_OVERHEAD)
    attributes = int.from_bytes(stored[21:23], "big")
    payload = bytes(decompress(attributes & CODEC_MASK, stored[RECORD_BATCH_OVERHEAD:], limit=1 << 24))
    first, base = item.batch.base_offset or 0, int.from_bytes(stored[27:35], "big", signed=True)
    return payload, list(record_fields(payload, 0, first, base, control=bool(attributes & CONTROL)))


@pytest.mark.parametrize("path", LOGS, ids=lambda path: f"{path.parent.name}/{path.stem.lstrip('0') or 0}")
def test_fields_cover_every_byte_and_equal_the_reader(path: Path) -> None:
    """The fields are decoded apart from the fast loops. Both must find the same keys, values and headers."""
    payload = b""
    walked: Iterator[list[StoredField]] = iter(())
    for item in dump_segment(str(path), deep=True, headings=True):
        if isinstance(item, BatchItem):
            payload, found = fields_of(item)
            if item.batch.magic >= 2 or item.batch.compression != "none":
                assert_contiguous([field for fields in found for field in fields], 0, len(payload))
            walked = iter(found)
        elif isinstance(item, RecordsItem):
            for record in item.records():
                fields = next(walked)
                data = {field.name: payload[field.at : field.at + field.size] for field in fields}
                if record.control is None:
                    assert data.get("key", b"") == (record.key or b"")
                    assert data.get("value", b"") == (record.value or b"")
                keys = [payload[field.at : field.at + field.size] for field in fields if field.name == "headerKey"]
                assert keys == [h.key.encode("utf-8", "surrogateescape") for h in record.headers if h.key]
                assert not any("not decoded" in field.meaning for field in fields)
    assert next(walked, None) is None


@pytest.mark.parametrize("path", sorted(FINDINGS.glob("*/*.log")), ids=lambda path: path.parent.name)
def test_batches_and_damage_are_the_whole_file(path: Path) -> None:
    """No byte of a damaged segment is left out: each is in a batch or in damaged bytes."""
    if path.stat().st_size == 0:
        return
    end = 0
    for item in dump_segment(str(path), headings=True, damaged=True):
        if isinstance(item, (BatchItem, DamagedBytes)):
            position = item.batch.position if isinstance(item, BatchItem) else item.position
            assert position == end
            end = item.batch.position + item.batch.size if isinstance(item, BatchItem) else item.end
    assert end == path.stat().st_size


@pytest.mark.slow
@pytest.mark.parametrize("path", [*LOGS, *sorted(FINDINGS.glob("*/*.log"))], ids=lambda path: path.parent.name)
def test_each_wrong_byte_of_a_header_is_shown(path: Path) -> None:
    """Also a negative version, in a batch or in a message of a compressed set: the fields still cover every byte."""
    if path.stat().st_size == 0:
        return
    for item in islice(dump_segment(str(path), headings=True, damaged=True), 2):
        if isinstance(item, BatchItem):
            stored, inner = bytes(item.stored[:400]), b""
            if item.batch.magic < 2 and item.batch.compression != "none":
                value = bytes(item.stored[batch_fields(bytes(item.stored))[-1].at :])
                with suppress(CodecError):
                    inner = bytes(decompress(stored[17] & CODEC_MASK, value, limit=1 << 20, magic=item.batch.magic))[
                        :400
                    ]
            for at in range(min(RECORD_BATCH_OVERHEAD + 4, len(stored))):
                for byte in range(256) if at == MAGIC_AT else (0x80, 0xFF):
                    fields = batch_fields(_with(stored, at, byte))
                    assert_contiguous(fields, 0, fields[-1].at + fields[-1].size)
                    found = [field for some in message_set_fields(_with(inner, at, byte)) for field in some]
                    assert_contiguous(found, 0, len(inner))


def _with(data: bytes, at: int, byte: int) -> bytes:
    return data[:at] + bytes([byte]) + data[at + 1 :] if at < len(data) else data


def test_a_negative_version_in_a_compressed_set_is_shown(tmp_path: Path) -> None:
    """The readers report it; the rest of the set is not taken for fields of a version that it does not have."""
    inner = bytes.fromhex("0000000000000000000000165a5a5a5afb00000000036b65790000000576616c7565")
    value = zlib.compress(inner, wbits=31)
    body = b"\x00\x01" + b"\xff" * 4 + len(value).to_bytes(4, "big") + value
    message = bytes(8) + (4 + len(body)).to_bytes(4, "big") + zlib.crc32(body).to_bytes(4, "big") + body
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(message)
    shown = kseg("dump", "--format", "hex", "--no-crc", path)
    assert "internal error" not in shown.stderr
    found = [field for fields in message_set_fields(inner) for field in fields]
    assert [field.meaning for field in found[3:]] == ["-5: not a record version", ANY]
    assert found[-1].meaning == "not decoded: magic: expected 0 or 1, found -5"


def test_a_wrong_crc_and_a_cut_batch_say_what_was_expected() -> None:
    """Damage is shown next to its bytes, with the numbers."""
    wrong = kseg("dump", "--format", "hex", DAMAGED / "00000000000000000000.log").stdout
    assert "crc 0x3908ce52, WRONG: computed 0x65c5962c" in wrong
    cut = kseg("dump", "--format", "hex", FINDINGS / "truncated-tail" / "00000000000000000000.log").stdout
    assert "4,000 bytes at 2940 that are not in a batch" in cut
    assert "10640: bytes after this field" in cut
    assert "not decoded: " in cut


def test_a_value_that_is_not_compressed_as_claimed(tmp_path: Path) -> None:
    """Readers accept such a message, and the batches after it are shown, too."""
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(
        bytes.fromhex(
            "000000000000000000000016a4f00a740001000000036b65790000000576616c7565"
            "0000000000000001000000162356c1370000000000036b65790000000576616c7565"
        )
    )
    shown = kseg("dump", "--format", "hex", path).stdout
    assert "record 0, whose value is not compressed" in shown
    assert "record 1\n" in shown


def test_bytes_that_are_not_decoded_are_content() -> None:
    """They are shown as text, too, as keys and values are: what they are, only a reader can see."""
    data = b"junk" * 5
    (fields,) = record_fields(data, 0, 1, 0, control=False)
    assert fields[-1].meaning == "not decoded: key: expected 53 bytes, found 15"
    assert [field.content for field in fields] == [False] * (len(fields) - 1) + [True]


def test_position_chooses_the_batch_or_the_damage() -> None:
    """An error message names a byte; this shows the bytes there."""
    path = FINDINGS / "lost-bytes" / "00000000000000000000.log"
    shown = kseg("dump", "--format", "hex", "--position", "1240", path).stdout
    assert "37 bytes at 1230 that are not in a batch" in shown
    assert "batch at" not in shown
    shown = kseg("dump", "--format", "hex", "--position", "1267", path).stdout
    assert "batch at 1267" in shown
    assert shown.count("batch at") == 1


@pytest.mark.slow
def test_lines_have_at_most_80_columns() -> None:
    """Hex is read on a terminal of 80 columns; file names are as long as they are."""
    paths = [*SEGMENTS.glob("*/*.log"), *SEGMENTS.glob("*/*.snapshot"), *SEGMENTS.glob("*/*.index")]
    lines = kseg("dump", "--format", "hex", *paths).stdout.splitlines()
    assert len(lines) > 10_000
    assert [line for line in lines if len(line) > 80 and not line.startswith("file ")] == []
