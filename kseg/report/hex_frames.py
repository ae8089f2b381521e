"""Output of ``kseg dump --as NAME --format hex``: each field of requests, responses and messages next to its bytes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TextIO

from kseg.commands.dump.rows import DamagedBytes, FileStart, WireRow
from kseg.errors import KsegError
from kseg.findings import Severity, Verdict
from kseg.format.storage.source import open_range
from kseg.format.wire.framings import framing
from kseg.lazy import imported
from kseg.report.formats import View
from kseg.report.hex import MAX_SHOWN, colours_of, field_lines, hex_lines
from kseg.report.tables import print_text
from kseg.schema import Column
from kseg.text import count_of, escape_controls

#: Findings of bytes that begin as a frame or a message does.
_CUT = ("frame-cut", "frame-size", "truncated-tail", "invalid-size")


def write_frames(
    dumped: Iterable[FileStart | WireRow | DamagedBytes], columns: Sequence[Column], out: TextIO, view: View
) -> None:
    """Write frames or messages, and the bytes between them, as far as they can be decoded."""
    colours = colours_of(view)
    for item in dumped:
        if isinstance(item, FileStart):
            print_text(out, f"file {escape_controls(item.file)}")
            continue
        kind = framing(item.framing)
        if isinstance(item, WireRow):
            row, position = item.row, item.row["position"]
            size = kind.size_field + row["size"]
            print_text(out, escape_controls(f"{_title(row)} at {position}, {count_of(size, 'byte')}"), indent=2)
        else:
            row, position, size = None, item.position, item.end - item.position
            print_text(out, f"{count_of(size, 'byte')} at {position} that cannot be read")
            for finding in item.findings:
                message = Verdict(item.file, Severity.ERROR, finding).message
                print_text(out, f"  {escape_controls(message)}", indent=4)
        shown = size if row else min(size, MAX_SHOWN)
        try:
            stored = _read(item.file, position, shown)
        except (KsegError, OSError):
            out.write("  The bytes are shown of local files only.\n")
            continue
        if isinstance(item, DamagedBytes) and not any(finding.rule in _CUT for finding in item.findings):
            out.writelines(f"{line}\n" for line in hex_lines([stored], position))
            continue
        for part in imported(kind.parts)(memoryview(stored), position, row):
            if part.title:
                print_text(out, f"  {part.title}", indent=4)
            out.writelines(field_lines(part.fields, part.data, part.shift, colours))
        if shown < size:
            out.write(f"{'':12}... {count_of(size - shown, 'more byte')}\n")


def _title(row: dict[str, object]) -> str:
    if row["kind"] not in ("request", "response"):
        return "message"
    api = f" {row['api_name']} version {row['api_version']}" if row["api_name"] else " of an unknown API"
    return f"{row['kind']}{api}, correlation id {row['correlation_id']},"


def _read(file: str, position: int, size: int) -> bytes:
    """Return bytes of a file. Raises KsegError or OSError."""
    with open_range(file, position, position + size) as source:
        buffer = memoryview(bytearray(size))
        return bytes(buffer[: source.readinto(buffer)])
