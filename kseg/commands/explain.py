"""Read one file for ``kseg explain``: its counts, the first entry of each kind, and the findings of a quick check.

An entry is a batch, a frame, a message, or an entry of a side file.
"""

from __future__ import annotations

import io
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

from kseg.engine import imported
from kseg.errors import UnreadableError
from kseg.extras.wire.frame_fields import FramePart, set_parts
from kseg.findings import do_nothing
from kseg.format.checks.record_set_checks import RecordSetChecks, check_record_set
from kseg.format.checks.run_checks import new_collector, run_checks, side_file_of
from kseg.format.record import layout
from kseg.format.record.field_facts import FILES
from kseg.format.record.fields import StoredFieldReader, UnexpectedBytesError, describe_time
from kseg.format.segment.framed_files import ReadSettings, RecordSet, framing
from kseg.format.segment.segment_reader import Window
from kseg.format.sidefiles.producer_snapshot import STORED_FIELDS, StoredFields
from kseg.format.sidefiles.registry import Recognised, recognise
from kseg.format.storage.naming import BOOTSTRAP, base_offset_of, is_snapshot
from kseg.format.storage.segment_files import SegmentFile, check_complete, walk_folders
from kseg.format.storage.source import STDIN, Source, internal_topic, open_range, open_source
from kseg.results import FileResult, FindingCollector, Settings
from kseg.schema import Row

#: The check is deep for files up to this size; the records of larger ones are not read.
DEEP_SIZE = 32 * 1024 * 1024
#: The most bytes of an entry, and of requests on standard input, that are kept.
MAX_KEPT, MAX_STDIN = 1 << 20, 64 << 20


@dataclass(frozen=True, slots=True)
class Section:
    """Fields of an entry. ``group`` is their key in FACTS, empty without facts."""

    part: FramePart
    group: str


@dataclass(frozen=True, slots=True)
class Entry:
    """The first entry of a kind: bytes ``position`` to ``end`` of the file. ``rest`` are its bytes without a section."""

    title: str
    position: int
    end: int
    sections: Sequence[Section]
    rest: int = 0


@dataclass(slots=True)
class Lesson:
    """The content of one file. ``counts`` are the batches by magic, the frames by name, or the entries of a side file.

    ``side`` is the kind of a side file, None for others, and ``first`` its first entry's values. ``topic`` is the internal
    topic of a segment. ``size`` is in bytes.
    """

    path: str
    kind: str
    counts: Counter[Any] = field(default_factory=Counter)
    entries: list[Entry] = field(default_factory=list)
    result: FileResult | None = None
    side: Recognised | None = None
    first: tuple[Any, ...] = ()
    topic: str | None = None
    deep: bool = False
    codecs: set[int] = field(default_factory=set)
    size: int = 0


def lesson_of(file: SegmentFile) -> Lesson:
    """Read one file to its end. Raises UnreadableError, and NotASegmentError if kseg does not know the kind of file."""
    side = None if file.framing else side_file_of(file.path)
    with open_source(file.path, listed=file.listed) as source:
        deep = source.size is not None and source.size <= DEEP_SIZE
        collector = new_collector(file, Settings(deep=deep))
        lesson = Lesson(file.path, file.framing or "segment", deep=deep)
        if side:
            _read_side_file(source, side, lesson, collector)
        elif file.framing not in (None, "message-set"):
            _read_frames(source, file, lesson, collector)
        else:
            _read_segment(source, lesson, collector)
        lesson.size = lesson.size or source.position
    lesson.result = collector.result()
    return lesson


def _in_memory(source: Source) -> tuple[Source, bytes]:
    """Return standard input as a source in memory, and its bytes: those of its first frame are read again."""
    buffer = memoryview(bytearray(MAX_STDIN + 1))
    size = 0
    while size < len(buffer) and (count := source.readinto(buffer[size:])):
        size += count
    if size > MAX_STDIN:
        raise UnreadableError(f"standard input: more than {MAX_STDIN >> 20} MiB: save it to a file")
    kept = bytes(buffer[:size])
    return Source(STDIN, io.BytesIO(kept), size), kept


def _read_segment(source: Source, lesson: Lesson, collector: FindingCollector) -> None:
    found: dict[tuple[int, bool, bool], Entry] = {}

    def see(window: Window, _: object) -> None:
        batches = window.batches
        for row in range(batches.count):
            magic, attributes = batches.magic[row], batches.attributes[row]
            magic = magic if magic in (0, 1) else 2
            lesson.counts[magic] += 1
            lesson.codecs.add(attributes & layout.CODEC_MASK)
            kind = magic, bool(attributes & layout.CODEC_MASK), magic == 2 and bool(attributes & layout.CONTROL)
            if kind not in found:
                at = batches.at[row]
                stored = bytes(window.view[at : at + min(batches.size[row], MAX_KEPT)])
                found[kind] = batch_entry(stored, batches.position[row], batches.size[row])

    lesson.topic = internal_topic(lesson.path)
    name = source.name
    record_set = RecordSetChecks(sent=False) if lesson.kind == "message-set" else None
    if record_set and name != STDIN:
        source.name += " (message-set)"  # so that its name is not read as an offset
    settings = Settings(deep=lesson.deep)
    run_checks(source, settings, collector, after_window=see, topic=lesson.topic, record_set=record_set)
    lesson.entries = list(found.values())


def batch_entry(stored: bytes, position: int, size: int) -> Entry:
    """Return the fields of a batch and of its first record. ``stored`` are the first of its ``size`` bytes."""
    legacy = stored[layout.MAGIC_AT] < 2
    attributes = stored[layout.LEGACY_ATTRIBUTES_AT if legacy else layout.ATTRIBUTES_AT + 1]
    control = not legacy and attributes & layout.CONTROL
    compressed = attributes & layout.CODEC_MASK
    title = "control batch" if control else "message set" if legacy and compressed else "batch"
    title = f"v{stored[layout.MAGIC_AT]} {'compressed ' if compressed else ''}{title}"
    parts = set_parts("", memoryview(stored), position)
    sections = [Section(next(parts), "message" if legacy else "batch")]
    end = _end_of(sections[0].part)
    for part in islice(parts, int(not legacy) + bool(compressed)):
        if part.title.startswith("batch"):
            break
        sections.append(Section(part, "message" if legacy else "record"))
        end = max(end, _end_of(part)) if part.data is sections[0].part.data else end
    return Entry(title, position, position + size, sections, size - end)


def _end_of(part: FramePart) -> int:
    return max((one.at + one.size for one in part.fields), default=0)


def _read_frames(source: Source, file: SegmentFile, lesson: Lesson, collector: FindingCollector) -> None:
    """Count the frames or messages. Keep the first one, and the first one with records."""
    kept = b""
    if file.path == STDIN:
        source, kept = _in_memory(source)
    kind, settings = framing(str(file.framing)), Settings(deep=lesson.deep)
    found: dict[str, Row] = {}
    row: Row = {}
    for part in kind.walk(source, collector, ReadSettings(requests=file.requests)):
        if isinstance(part, RecordSet):
            check_record_set(part, new_collector(file, settings), settings, collector)
            if "frame" in part.place:
                found.setdefault("with records", row)
                continue
        row = dict(part.place) if isinstance(part, RecordSet) else part
        lesson.counts[(row["api_name"] or "unknown API") if "api_key" in row else f"v{row['magic']}"] += 1
        found.setdefault("first", row)
    source.check_not_empty()
    lesson.size = source.position
    for position, row in sorted({row["position"]: row for row in found.values()}.items()):
        size = row["size"] + kind.size_field
        kept_bytes = memoryview(kept[position : position + size])
        stored = kept_bytes if kept else _bytes_of(file.path, position, min(size, MAX_KEPT))
        title = f"{row['kind']} {row['api_name'] or 'of an unknown API'}" if "api_key" in row else "message"
        title = f"{title} with records" if row is found.get("with records") else title
        parts = imported(kind.parts)(stored, position, row)
        group = "frame" if "api_key" in row else f"single {file.framing}"
        sections = [Section(part, group if n == 0 else _group_of(part)) for n, part in enumerate(islice(parts, 4))]
        lesson.entries.append(Entry(title, position, position + size, _one_record(sections)))


def _one_record(sections: list[Section]) -> list[Section]:
    """Return the sections up to the first record: others have the same fields."""
    records = [n for n, one in enumerate(sections) if one.part.title.startswith(("record ", "message "))]
    return sections[: records[0] + 1] if records else sections


def _group_of(part: FramePart) -> str:
    """Return the group of a part of a record set in a frame or a message."""
    names = {field.name for field in part.fields}
    return "message" if "messageSize" in names else "batch" if "baseOffset" in names else "record"


def _bytes_of(path: str, position: int, size: int) -> memoryview:
    buffer = memoryview(bytearray(size))
    with open_range(path, position, position + size) as source:
        return buffer[: source.readinto(buffer)]


def _read_side_file(source: Source, side: Recognised, lesson: Lesson, collector: FindingCollector) -> None:
    lesson.side, lesson.kind = side, side.side.title
    first = second = None
    for position, entry in side.side.walk(source, side.base_offset, collector):
        if first is None:
            first, lesson.first = position, tuple(entry)
        elif second is None:
            second = position
        lesson.counts[side.side.kind] += 1
    known = STORED_FIELDS.get(side.side.kind)
    if first is None:
        return
    size = sum(size for size, _ in known.entry) if known else 0
    with open_source(lesson.path, listed=True) as again:
        lesson.entries.append(_side_entry(again, side.side.kind, known, first + size if known else second))


def _side_entry(source: Source, group: str, known: StoredFields | None, end: int | None) -> Entry:
    """Return the bytes of a side file up to ``end``, None for all: its header and its first entry."""
    buffer = memoryview(bytearray(min(MAX_KEPT if end is None else end, MAX_KEPT)))
    stored = bytes(buffer[: source.readinto(buffer)])
    reader = StoredFieldReader(stored, 0, len(stored))
    try:
        for size, name in (*known.header, *known.entry) if known else ():
            reader.integer(size, name, describe_time if name == "timestamp" else str, signed=name != "crc")
    except UnexpectedBytesError:
        pass
    reader.rest("the text of the file" if end is None else "the first lines")
    return Entry("entry", 0, len(stored), [Section(FramePart("", reader.fields, stored, 0), group)])


class FileKind(NamedTuple):
    """A kind of file: its title, its purpose (empty if it is unknown), the number of ``files``, and the path of the
    first."""

    title: str
    purpose: str
    files: int
    example: str


def kinds_in(path: str) -> Iterator[FileKind]:
    """Yield the kinds of files in a folder and all folders below it, segments first.

    Raises UnreadableError if a folder cannot be listed or without any file.
    """
    found: dict[tuple[str, str], list[str]] = {}
    counts: dict[tuple[str, str], int] = {}
    for folder, names in walk_folders(path, do_nothing):
        for name in names:
            kind = _kind_of(name)
            counts[kind] = counts.get(kind, 0) + 1
            found.setdefault(kind, [os.path.join(folder, name)])
    check_complete(path)
    if not counts:
        raise UnreadableError(f"{path}: the folder has no file")
    for kind in sorted(counts, key=lambda kind: (kind != _SEGMENT, kind == _OTHER, -counts[kind])):
        yield FileKind(*kind, counts[kind], found[kind][0])


_SEGMENT = ("log segment", "the batches of records, in the order of their offsets")
_SNAPSHOT = ("KRaft snapshot", "the state of the cluster's metadata up to an offset (KIP-630)")
_OTHER = ("file of another kind", "")


def _kind_of(name: str) -> tuple[str, str]:
    if base_offset_of(name) is not None:
        return _SEGMENT
    if is_snapshot(name) or name == BOOTSTRAP:
        return _SNAPSHOT
    known = recognise(name)
    return (known.side.title, FILES[known.side.kind].purpose) if known else _OTHER
