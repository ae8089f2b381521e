"""``--format hex`` of requests, responses and messages: every byte is shown once, with its field, also after damage."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kseg.commands.dump.dump_items import DamagedBytes, WireRow
from kseg.commands.dump.framed_dump import framed_bytes
from kseg.engine import imported
from kseg.findings import Finding
from kseg.format.segment.framed_files import framing
from kseg.format.storage.segment_files import SegmentFile
from tests.support import damage
from tests.support.cli import ROOT
from tests.support.cli import kseg as kseg_process
from tests.support.cli import kseg_here as kseg

STREAMS = ROOT / "fixtures" / "streams"
FRAMED = ROOT / "fixtures" / "framed"
REQUESTS = sorted(STREAMS.glob("*/*.requests"))
#: Names of fields that a decoded body does not have: lengths, counts and the marks of tagged fields.
_OF_ENCODING = re.compile(r".* (?:length|count)|.*\.(?:numTaggedFields|tag|taggedFieldSize)|size|header\..*")


def integers(body: Any) -> Iterator[int]:
    """Yield the integers of a decoded body, without those that stand for the size of records."""
    if isinstance(body, dict):
        for name, value in body.items():
            if not name.endswith("SizeInBytes"):
                yield from integers(value)
    elif isinstance(body, list):
        for value in body:
            yield from integers(value)
    elif isinstance(body, int) and not isinstance(body, bool):
        yield body


@pytest.mark.parametrize("path", REQUESTS, ids=lambda path: f"{path.parent.name}/{path.stem}")
@pytest.mark.parametrize("kind", ["requests", "responses"])
def test_fields_of_frames_cover_every_byte_and_equal_the_reader(path: Path, kind: str) -> None:
    """The fields are decoded apart from the reader of messages. Both must find the same numbers."""
    file = SegmentFile(str(path.with_suffix(f".{kind}")), framing=kind, requests=str(path))
    stored = memoryview(Path(file.path).read_bytes())
    parts_of, end = imported(framing(kind).parts), 0
    findings: list[Finding] = []
    for item in framed_bytes(file, findings.append, verify_crc=True):
        assert not isinstance(item, DamagedBytes)
        if not isinstance(item, WireRow):
            continue
        row, position = item.row, item.row["position"]
        assert position == end
        end = position + 4 + row["size"]
        first, *records = parts_of(stored[position:end], position, row)
        at = 0
        for field in first.fields:
            assert field.at == at, field
            at += field.size
        assert at == 4 + row["size"]
        assert not [part for part in records if "not decoded" in part.title]
        undecoded = [field for part in (first, *records) for field in part.fields if "not decoded" in field.meaning]
        # librdkafka sends bytes after the body of a Metadata request.
        assert len(undecoded) == sum(found.position == position for found in findings)
        found = Counter(
            int(field.meaning)
            for field in first.fields
            if re.fullmatch(r"-?\d+", field.meaning) and not _OF_ENCODING.fullmatch(field.name)
        )
        if row.get("body_encoding") is None:
            assert found == Counter(integers(row["body"])), row["api_name"]
    assert end == len(stored)


def shown_bytes(text: str) -> bytes:
    """Return the bytes of all lines at their positions; positions of decompressed records are left out."""
    found = bytearray()
    for line in text.splitlines():
        if match := re.match(r" *(\d+)  (?:([\d,]+) bytes? of zeros|((?:[0-9a-f]{2} )*[0-9a-f]{2})(?: |$))", line):
            data = bytes(int(match[2].replace(",", ""))) if match[2] else bytes.fromhex(match[3])
            if int(match[1]) == len(found):
                found += data
    return bytes(found)


@pytest.mark.slow
@pytest.mark.parametrize("folder", sorted(FRAMED.iterdir()), ids=lambda folder: folder.name)
def test_hex_of_messages_has_every_byte(folder: Path) -> None:
    """Damaged and incomplete messages, too, with what was expected."""
    kind = "message" if folder.name.startswith("message-") else "wide-crc"
    done = kseg("dump", "--as", kind, "--format", "hex", folder / "data")
    assert shown_bytes(done.stdout) == (folder / "data").read_bytes()
    assert kseg("dump", "--as", kind, "--format", "jsonl", folder / "data").returncode == done.returncode
    if "wrong-crc" in folder.name:
        assert "WRONG: computed 0x" in done.stdout
    if folder.name == "truncated":
        assert "not decoded: value: expected 21 bytes, found 16" in " ".join(done.stdout.split())


def test_a_cut_request_names_its_fields(tmp_path: Path) -> None:
    """The fields of an incomplete request are named up to its end, and a wrong CRC of records in a request is shown."""
    stored = (STREAMS / "4.3.0-java" / "06.requests").read_bytes()
    path = tmp_path / "cut"
    path.write_bytes(stored[:150])
    done = kseg("dump", "--as", "requests", "--format", "hex", path)
    assert shown_bytes(done.stdout) == stored[:150]
    assert "header.requestApiKey 11: JoinGroup" in done.stdout
    text = " ".join(done.stdout.split())
    assert "94 bytes at 56 that cannot be read" in text
    assert "not decoded: protocols[0].metadata: expected 28 bytes, found 13" in text


def test_a_wrong_crc_in_a_request_is_shown(tmp_path: Path) -> None:
    """The batches of a Produce request have fields, too, with the state of their CRC."""
    produce = next(path for path in REQUESTS if path.read_bytes()[4:6] == bytes(2))
    stored = damage.flip(produce.read_bytes(), len(produce.read_bytes()) - 3)
    (tmp_path / "flipped").write_bytes(stored)
    shown = kseg("dump", "--as", "requests", "--format", "hex", tmp_path / "flipped")
    assert shown.returncode == 1
    assert "WRONG: computed 0x" in shown.stdout
    assert "header.requestApiKey 0: Produce" in shown.stdout


def test_standard_input_is_not_shown() -> None:
    """A pipe cannot be read a second time: a line says so."""
    stored = (STREAMS / "4.3.0-java" / "06.requests").read_bytes()
    done = kseg_process("dump", "--as", "requests", "--format", "hex", "-", stdin=stored)
    assert "of local files only" in done.stdout
