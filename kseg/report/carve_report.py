"""Output of ``kseg carve``: groups of batches, and the evidence for them, as a table or JSON Lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TextIO

from kseg.commands.carve.carving import CarvedGroup, Carving
from kseg.commands.carve.links import GUESSES, KINDS, STRENGTHS, Link
from kseg.commands.carve.runs import CarvedRun, Piece
from kseg.format.compress.codecs import CODECS
from kseg.report.ranking import MOST_ROWS, names_text
from kseg.report.tables import TableColumn, print_cells, print_text
from kseg.schema import Column, Row, RowKind, row_maker
from kseg.text import count_of, escape_controls, iso_time


@dataclass(frozen=True, slots=True)
class CarveResult:
    """A carving, and the folder to which it was written; None if nothing was."""

    carving: Carving
    target: str | None


_GROUP = (
    Column("kind", "text", "group"),
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
    Column("codecs", "texts", "codecs of the batches", lambda group: _codecs(group)),
    Column("producers", "count", "number of producer ids and epochs", lambda group: len(_producers(group))),
    Column("first_timestamp", "ms?", "timestamp of the first batch", "first_time"),
    Column("last_timestamp", "ms?", "largest timestamp", "last_time"),
)
_PLACE = (Column("image", "text", "path of the image"), Column("position", "count", "byte of the image"))
_LINK = (
    Column("kind", "text", "link"),
    Column("group", "text?", "the group; null if the link is not used"),
    Column("evidence", "text", "what shows that two runs are of one partition", values=KINDS),
    Column(
        "strength",
        "text",
        "proof: by a CRC; strong: wrong only for two partitions that one producer filled alike, if each "
        "lost what the other kept; guess: used with --guess only, or within a run whose blocks touch",
        values=STRENGTHS,
    ),
    Column("why", "text", "the evidence"),
    Column("before", "object", "start of the first run, or of a torn batch", of=_PLACE),
    Column("after", "object", "start of the second run, or of the rest of the batch", of=_PLACE),
)
_COPY = (
    Column("kind", "text", "a run with only batches that its group has from another place", values=("copy",)),
    Column("group", "text", "the group"),
    *_PLACE,
    Column("batches", "count", "number of batches"),
    Column("first_offset", "count", "first offset"),
    Column("last_offset", "count", "last offset"),
)
_TORN = (
    Column("kind", "text", "a batch that is not there as a whole: its header, or the rest of it", values=("torn",)),
    *_PLACE,
    Column("size", "count", "bytes that the batch should have; 0 if unknown"),
    Column("first_offset", "count", "its first offset, 0 if unknown; of messages, counted from the start of their set"),
    Column("messages", "count", "messages that can be of a compressed v1 set whose header is missing; 0 for a header"),
)
_NAME = (
    Column("kind", "text", "a name in one of Kafka's files, or of a folder", values=("name",)),
    *_PLACE,
    Column("what", "text", "what has the name", values=("folder", "topic id")),
    Column("name", "text", "name of a partition's folder, or id of a topic"),
)
_SUMMARY = (
    Column("kind", "text", "summary"),
    Column("groups", "count", "number of groups"),
    Column("runs", "count", "number of runs"),
    Column("batches", "count", "number of batches in groups"),
    Column("records", "count", "their records"),
    Column("size", "count", "their bytes"),
    Column("torn_joined", "count", "torn batches that are joined"),
    Column("torn_left", "count", "batches that are not there as a whole"),
    Column("copies", "count", "runs that are copies"),
    Column("guesses", "count", "guesses that are not used"),
    Column("image_bytes", "count", "bytes of the images"),
    Column("read_errors", "texts", "read errors: what follows them was not read"),
)
ROW_KINDS = (
    RowKind("carve", "Groups of carved batches", _GROUP),
    RowKind("carve", "Links between runs", _LINK, "also in evidence.jsonl, as the next three"),
    RowKind("carve", "Copies", _COPY),
    RowKind("carve", "Torn batches", _TORN),
    RowKind("carve", "Names in an image", _NAME),
    RowKind("carve", "Summary of carved images", _SUMMARY, "the last row"),
)


def rows(result: CarveResult) -> Iterator[Row]:
    """Yield a row per group, the evidence, and a summary."""
    carving = result.carving
    yield from map(row_maker(_GROUP), carving.groups)
    yield from evidence_rows(carving)
    yield {
        "kind": "summary",
        "groups": len(carving.groups),
        "runs": len(carving.runs),
        "batches": sum(group.batches for group in carving.groups),
        "records": sum(group.records for group in carving.groups),
        "size": sum(group.size for group in carving.groups),
        "torn_joined": sum(run.joined for run in carving.runs),
        "torn_left": len(carving.torn),
        "copies": sum(len(group.copies) for group in carving.groups),
        "guesses": len(_guesses(carving)),
        "image_bytes": sum(image.size for image in carving.images),
        "read_errors": _errors(carving),
    }


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
    return {
        "kind": "link",
        "group": group,
        "evidence": link.kind,
        "strength": link.strength,
        "why": link.why,
        "before": _place(carving, link.pieces[0] if link.pieces else link.before),
        "after": _place(carving, link.pieces[1] if link.pieces else link.after),
    }


def _place(carving: Carving, run: CarvedRun | Piece) -> Mapping[str, object]:
    return {"image": carving.images[run.image].path, "position": run.position}


def _kinds(group: CarvedGroup) -> list[str]:
    used = {link.kind for link in group.links}
    return [kind for kind in KINDS if kind in used]


def _bits(group: CarvedGroup, name: str) -> list[int]:
    bits = 0
    for run, _ in group.parts:
        bits |= getattr(run, name)
    return [bit for bit in range(8) if bits & 1 << bit]


def _codecs(group: CarvedGroup) -> list[str]:
    return [CODECS[bit].name if bit in CODECS else str(bit) for bit in _bits(group, "codecs")]


def _producers(group: CarvedGroup) -> set[tuple[int, int]]:
    return {producer for run, _ in group.parts for producer in run.lanes}


def _errors(carving: Carving) -> list[str]:
    return [
        f"{image.path}: byte {finding.position or 0:,}: {finding.facts['why']}"
        for image in carving.images
        for finding in image.errors
    ]


def _guesses(carving: Carving) -> list[Link]:
    return [link for link in carving.unused if link.is_guess]


COLUMNS = (
    TableColumn("group"),
    TableColumn("offsets", right=True),
    TableColumn("missing", right=True, priority=2),
    TableColumn("batches", right=True),
    TableColumn("bytes", right=True, priority=1),
    TableColumn("runs", right=True, priority=3),
    TableColumn("first time", priority=2),
    TableColumn("joined by", text="wrap", priority=1),
)


def write_table(result: CarveResult, out: TextIO, *, detail: int = 0) -> None:
    """Write the answer, the groups, and the next step.

    Of many groups the largest ones are shown, with ``detail`` 1 all; -1 shows only the answer and numbers.
    """
    carving = result.carving
    _line(out, summary_line(result))
    for error in _errors(carving):
        _line(out, f"read error: {error}: nothing after it was read; copy the disk with ddrescue first")
    joined = sum(run.joined for run in carving.runs)
    if joined or carving.torn:
        left = f"; {len(carving.torn):,} are torn or damaged" if carving.torn else ""
        if messages := sum(head.messages for _, head in carving.torn):
            left += f"; {count_of(messages, 'message')} of v1 can be of compressed sets, with unknown offsets"
        _line(out, f"torn batches: {joined:,} joined, each proved by its CRC{left}")
    shown = carving.groups if detail > 0 else carving.groups[: MOST_ROWS * (detail == 0)]
    if shown:
        print_cells(out, COLUMNS, [(_cells(group), "") for group in shown])
    if 0 < len(shown) < len(carving.groups):
        _line(out, f"and {count_of(len(carving.groups) - len(shown), 'smaller group')}: -v lists them")
    if detail >= 0:
        _write_hints(result, out)


def summary_line(result: CarveResult) -> str:
    """Return the answer in one line."""
    carving = result.carving
    read = f"in {sum(image.size for image in carving.images):,} bytes"
    if not carving.groups:
        return f"no record batch {read}"
    batches = sum(group.batches for group in carving.groups)
    found = f"{count_of(batches, 'batch')} in {count_of(len(carving.groups), 'group')}"
    return f"{f'written to {result.target}' if result.target else 'found'}: {found}, {read}"


def _cells(group: CarvedGroup) -> list[str]:
    return [
        group.name,
        f"{group.first:,} to {group.last:,}",
        f"{group.missing:,}",
        f"{group.batches:,}",
        f"{group.size:,}",
        f"{len(group.parts):,}",
        "" if group.first_time is None else iso_time(group.first_time),
        ", ".join(f"{kind} (guess)" if kind in GUESSES else kind for kind in _kinds(group)),
    ]


def _write_hints(result: CarveResult, out: TextIO) -> None:
    carving = result.carving
    copies = sum(len(group.copies) for group in carving.groups)
    if copies:
        _line(out, f"copies: {count_of(copies, 'run')} with batches that a group has from another place")
    for what, title in (("folder", "folders of partitions"), ("topic id", "ids of topics")):
        names = _different(one.name for image in carving.images for one in image.names if one.what == what)
        if names:
            _line(out, f"{title} named in the images: {names_text(names)}")
    guesses = _guesses(carving)
    if guesses:
        _line(out, f"{count_of(len(guesses), 'guess')} not used: --guess joins what is only likely one partition")
    if carving.groups and result.target is None:
        _line(out, "next: the same command with -o NEW writes the groups; nothing was written")
    elif carving.groups:
        _line(out, f"next: kseg validate {result.target}/{carving.groups[0].name}")


def _different(names: Iterable[str]) -> Sequence[str]:
    return list(dict.fromkeys(names))


def _line(out: TextIO, text: str) -> None:
    print_text(out, escape_controls(text), indent=2)
