"""Output of ``kseg carve``: groups of batches, and the evidence for them, as a table or JSON Lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TextIO

from kseg.commands.carve.carving import CarvedGroup, Carving
from kseg.commands.carve.links import GUESSES, KINDS, STRENGTHS, Link
from kseg.commands.carve.runs import CarvedRun, Piece
from kseg.format.compress.codecs import CODECS
from kseg.report.tables import TableColumn, cell_rows, print_cells, print_text
from kseg.report.wording import MOST_ROWS, names_text
from kseg.schema import Column, Row, RowKind
from kseg.text import count_of, iso_time

_GROUP = RowKind("carve", "Groups of carved batches").of(
    "group",
    Column("group", "text", "name of the group: its folder", "name"),
    Column("first_offset", "count", "first offset", "first"),
    Column("last_offset", "count", "last offset", "last"),
    Column("missing_offsets", "count", "offsets in between that no batch has", "missing"),
    Column("batches", "count", "number of batches, each once"),
    Column("records", "count", "their records; 0 for v0 and v1"),
    Column("size", "count", "their bytes"),
    Column("runs", "count", "number of runs, each in one file", lambda group: len(group.parts)),
    Column("torn", "count", "batches that were torn, and are joined", "joined"),
    Column("links", "texts", "the kinds of evidence between the runs", lambda group: _kinds(group)),
    Column("copies", "count", "runs that are copies of what the group has", lambda group: len(group.copies)),
    Column("versions", "ints", "versions of the batches: 0, 1 and 2", lambda group: _bits(group, "magics")),
    Column("codecs", "texts", "codecs of the batches", lambda group: [
        CODECS[bit].name if bit in CODECS else str(bit) for bit in _bits(group, "codecs")]),
    Column("producers", "count", "number of producer ids and epochs", lambda group: len(
        {producer for run, _ in group.parts for producer in run.lanes})),
    Column("first_timestamp", "ms?", "timestamp of the first batch", "first_time"),
    Column("last_timestamp", "ms?", "largest timestamp", "last_time"),
)  # fmt: skip
_PLACE = (Column("image", "text", "path of the image"), Column("position", "count", "byte of the image"))
_LINK = RowKind("carve", "Links between runs", "also in evidence.jsonl, as the next three").of(
    "link",
    Column("group", "text?", "the group; null if the link is not used"),
    Column("evidence", "text", "what shows that two runs are of one partition", values=KINDS),
    Column(
        "strength",
        "text",
        "proof: by the CRC of a torn batch with a producer's sequence; strong: wrong only for two partitions that one "
        "producer filled alike, if each lost what the other kept or both are torn in the same bytes; guess: used with "
        "--guess only, or within a run whose blocks touch",
        values=STRENGTHS,
    ),
    Column("why", "text", "the evidence"),
    Column("before", "object", "start of the first run, or of a torn batch", of=_PLACE),
    Column("after", "object", "start of the second run, or of the rest of the batch", of=_PLACE),
)
_COPY = RowKind("carve", "Copies").of(
    Column("kind", "text", "a run with only batches that its group has from another place", values=("copy",)),
    Column("group", "text", "the group"),
    *_PLACE,
    Column("batches", "count", "number of batches"),
    Column("first_offset", "count", "first offset"),
    Column("last_offset", "count", "last offset"),
)
_TORN = RowKind("carve", "Torn batches").of(
    Column("kind", "text", "a batch that is not there as a whole: its header, or the rest of it", values=("torn",)),
    *_PLACE,
    Column("size", "count", "bytes that the batch should have; 0 if unknown"),
    Column("first_offset", "count", "its first offset, 0 if unknown; of messages, counted from the start of their set"),
    Column("messages", "count", "messages that can be of a compressed v1 set whose header is missing; 0 for a header"),
)
_NAME = RowKind("carve", "Names in an image").of(
    Column("kind", "text", "a name in one of Kafka's files, or of a folder", values=("name",)),
    *_PLACE,
    Column("what", "text", "what has the name", values=("folder", "topic id")),
    Column("name", "text", "name of a partition's folder, or id of a topic"),
)
_SUMMARY = RowKind("carve", "Summary of carved images", "the last row").of(
    "summary",
    Column("groups", "count", "number of groups", lambda found: len(found.groups)),
    Column("runs", "count", "number of runs", lambda found: len(found.runs)),
    Column("batches", "count", "number of batches in groups", lambda found: _sum(found, lambda group: group.batches)),
    Column("records", "count", "their records", lambda found: _sum(found, lambda group: group.records)),
    Column("size", "count", "their bytes", lambda found: _sum(found, lambda group: group.size)),
    Column("torn_joined", "count", "torn batches that are joined", lambda found: _joined(found)),
    Column("torn_left", "count", "batches that are not there as a whole", lambda found: len(found.torn)),
    Column("copies", "count", "runs that are copies", lambda found: _sum(found, lambda group: len(group.copies))),
    Column("guesses", "count", "guesses that are not used", lambda found: _guesses(found)),
    Column("image_bytes", "count", "bytes of the images", lambda found: _image_bytes(found)),
    Column("read_errors", "texts", "read errors: what follows them was not read", lambda found: _errors(found)),
)
ROW_KINDS = (_GROUP, _LINK, _COPY, _TORN, _NAME, _SUMMARY)


def rows(carving: Carving, target: str | None) -> Iterator[Row]:
    """Yield a row per group, the evidence, and a summary."""
    yield from _GROUP.rows(carving.groups)
    yield from evidence_rows(carving)
    yield _SUMMARY.maker()(carving)


def evidence_rows(carving: Carving) -> Iterator[Row]:
    """Yield the rows of evidence.jsonl: links, copies, torn batches, names."""
    for group in carving.groups:
        for link in group.links:
            yield _link_row(carving, link, group.name)
    for link in carving.unused:
        yield _link_row(carving, link, None)
    for group in carving.groups:
        for run in group.copies:
            yield {
                "kind": "copy", "group": group.name, **_place(carving, run), "batches": len(run.marks),
                "first_offset": run.first, "last_offset": run.last,
            }  # fmt: skip
    for image, head in carving.torn:
        yield {
            "kind": "torn", "image": image.path, "position": head.position, "size": head.size,
            "first_offset": max(head.first, 0), "messages": head.messages,
        }  # fmt: skip
    for image in carving.images:
        for one in image.names:
            yield {"kind": "name", "image": image.path, "position": one.position, "what": one.what, "name": one.name}


def _link_row(carving: Carving, link: Link, group: str | None) -> Row:
    before, after = link.pieces or (link.before, link.after)
    return {
        "kind": "link", "group": group, "evidence": link.kind, "strength": link.strength, "why": link.why,
        "before": _place(carving, before), "after": _place(carving, after),
    }  # fmt: skip


def _place(carving: Carving, run: CarvedRun | Piece) -> Row:
    return {"image": carving.images[run.image].path, "position": run.position}


def _kinds(group: CarvedGroup) -> list[str]:
    used = {link.kind for link in group.links}
    return [kind for kind in KINDS if kind in used]


def _bits(group: CarvedGroup, name: str) -> list[int]:
    bits = 0
    for run, _ in group.parts:
        bits |= getattr(run, name)
    return [bit for bit in range(8) if bits & 1 << bit]


def _errors(carving: Carving) -> list[str]:
    return [
        f"{image.path}: byte {finding.position or 0:,}: {finding.facts['why']}"
        for image in carving.images
        for finding in image.errors
    ]


def _guesses(carving: Carving) -> int:
    return sum(link.is_guess for link in carving.unused)


def _joined(carving: Carving) -> int:
    return sum(run.joined for run in carving.runs)


def _image_bytes(carving: Carving) -> int:
    return sum(image.size for image in carving.images)


def _sum(carving: Carving, count: Callable[[CarvedGroup], int]) -> int:
    return sum(map(count, carving.groups))


def _joined_by(group: CarvedGroup) -> str:
    return ", ".join(f"{kind} (guess)" if kind in GUESSES else kind for kind in _kinds(group))


COLUMNS = (
    TableColumn("group", cell=lambda group: group.name),
    TableColumn("offsets", right=True, cell=lambda group: f"{group.first:,} to {group.last:,}"),
    TableColumn("missing", right=True, priority=2, cell=lambda group: group.missing),
    TableColumn("batches", right=True, cell=lambda group: group.batches),
    TableColumn("bytes", right=True, priority=1, cell=lambda group: group.size),
    TableColumn("runs", right=True, priority=3, cell=lambda group: len(group.parts)),
    TableColumn(
        "first time", priority=2, cell=lambda group: "" if group.first_time is None else iso_time(group.first_time)
    ),
    TableColumn("joined by", text="wrap", priority=1, cell=_joined_by),
)


def write_table(carving: Carving, target: str | None, out: TextIO, *, detail: int = 0) -> None:
    """Write the answer, the groups, and the next step.

    Of many groups the largest ones are shown, with ``detail`` 1 all; -1 shows only the answer and numbers.
    """
    print_text(out, summary_line(carving, target))
    for error in _errors(carving):
        print_text(out, f"read error: {error}: nothing after it was read; copy the disk with ddrescue first")
    joined = _joined(carving)
    if joined or carving.torn:
        left = f"; {len(carving.torn):,} are torn or damaged" if carving.torn else ""
        if messages := sum(head.messages for _, head in carving.torn):
            left += f"; {count_of(messages, 'message')} of v1 can be of compressed sets, with unknown offsets"
        print_text(out, f"torn batches: {joined:,} joined, each with a valid CRC{left}")
    shown = carving.groups if detail > 0 else carving.groups[: MOST_ROWS * (detail == 0)]
    if shown:
        print_cells(out, COLUMNS, cell_rows(COLUMNS, shown))
    if 0 < len(shown) < len(carving.groups):
        print_text(out, f"and {count_of(len(carving.groups) - len(shown), 'smaller group')}: -v lists them")
    for line in _hints(carving, target) if detail >= 0 else ():
        print_text(out, line)


def summary_line(carving: Carving, target: str | None) -> str:
    read = f"in {_image_bytes(carving):,} bytes"
    if not carving.groups:
        return f"no record batch {read}"
    batches = _sum(carving, lambda group: group.batches)
    found = f"{count_of(batches, 'batch')} in {count_of(len(carving.groups), 'group')}"
    return f"{f'written to {target}' if target else 'found'}: {found}, {read}"


def _hints(carving: Carving, target: str | None) -> Iterator[str]:
    if copies := _sum(carving, lambda group: len(group.copies)):
        yield f"copies: {count_of(copies, 'run')} with batches that a group has from another place"
    for what, title in (("folder", "folders of partitions"), ("topic id", "ids of topics")):
        names = dict.fromkeys(one.name for image in carving.images for one in image.names if one.what == what)
        if names:
            yield f"{title} named in the images: {names_text(names)}"
    if guesses := _guesses(carving):
        yield f"{count_of(guesses, 'guess')} not used: --guess joins what is only likely one partition"
    if carving.groups and target is None:
        yield "next: the same command with -o NEW writes the groups; nothing was written"
    elif carving.groups:
        yield f"next: kseg validate {target}/{carving.groups[0].name}"
