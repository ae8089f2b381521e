"""Carve images: runs, their links, and groups of runs that are one partition.

The groups are written into a folder each, with segments whose batches are byte-equal to those in the images.
"""

from __future__ import annotations

import io
import itertools
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO

from kseg.commands.carve.image_scan import CRC_END, Head, Image, ImageScan
from kseg.commands.carve.links import (
    DAMAGED,
    TORN,
    Link,
    find_copies,
    guessed_links,
    index_links,
    seam_links,
    sequence_links,
    unclear_links,
    unclear_places,
)
from kseg.commands.carve.runs import CarvedRun
from kseg.commands.carve.torn_batches import TornBatches
from kseg.errors import UnreadableError
from kseg.format.record.layout import INT32_MAX, LOG_OVERHEAD, timestamp_or_none
from kseg.format.segment.deep_reader import DeepIterator
from kseg.format.segment.segment_reader import SegmentReader
from kseg.format.storage.atomic_write import NewFile, sync_folder, whole_folder, writing
from kseg.format.storage.file_access import Progress
from kseg.format.storage.source import open_source

#: The sizes of blocks of file systems, the default first.
BLOCKS = (4096, 512, 1024, 2048, 8192, 16384, 32768, 65536)


@dataclass(slots=True)
class CarvedGroup:
    """Runs of one partition. ``parts`` are (run, number of its first batch that no run before has), by offsets.

    ``links`` are the links within the group, ``copies`` the runs whose batches the group has, too.
    """

    name: str
    parts: list[tuple[CarvedRun, int]]
    links: list[Link] = field(default_factory=list)
    copies: list[CarvedRun] = field(default_factory=list)

    @property
    def first(self) -> int:
        """The first offset."""
        return self.parts[0][0].first

    @property
    def last(self) -> int:
        """The last offset."""
        return self.parts[-1][0].last

    @property
    def records(self) -> int:
        """The number of records of v2 batches; runs with batches of both are counted whole."""
        return sum(run.records for run, _ in self.parts)

    @property
    def joined(self) -> int:
        """The number of batches that were torn."""
        return sum(run.joined for run, _ in self.parts)

    @property
    def first_time(self) -> int | None:
        """The timestamp of the first batch in epoch milliseconds, None without one."""
        return timestamp_or_none(self.parts[0][0].first_time)

    @property
    def last_time(self) -> int | None:
        """The largest timestamp in epoch milliseconds, None without one."""
        return timestamp_or_none(max(run.last_time for run, _ in self.parts))

    @property
    def batches(self) -> int:
        """The number of batches, each once."""
        return sum(len(run.marks) - first for run, first in self.parts)

    @property
    def size(self) -> int:
        """The bytes of these batches."""
        return sum(run.size - run.starts[first] for run, first in self.parts)

    @property
    def missing(self) -> int:
        """The number of offsets between the batches that no batch has."""
        runs = [run for run, _ in self.parts]
        between = sum(max(0, after.first - before.last - 1) for before, after in itertools.pairwise(runs))
        return between + sum(size for run, first in self.parts for at, size in run.gaps if at > first)


@dataclass(slots=True)
class Carving:
    """What images have. ``unused`` are guesses and contradicted links. ``copies`` has the run that has a run's batches, too.

    ``torn`` are headers without their batch, batches without their first bytes, and messages without their set's header.
    """

    images: list[Image]
    block: int
    runs: list[CarvedRun]
    torn: list[tuple[Image, Head]]
    copies: Mapping[CarvedRun, CarvedRun]
    groups: list[CarvedGroup] = field(default_factory=list)
    unused: list[Link] = field(default_factory=list)

    @property
    def is_whole(self) -> bool:
        """Whether batches were found, the images were read, and no batch is torn or damaged."""
        return bool(self.runs) and not self.torn and not any(image.errors for image in self.images)


def carve_images(images: list[Image], block: int, progress: Progress, *, guess: bool = False) -> Carving:
    """Scan images and group the batches in them. With ``guess`` guessed links are used, too. Raises UnreadableError."""
    runs: list[CarvedRun] = []
    links: list[Link] = []
    torn: list[tuple[Image, Head]] = []
    found: list[TornBatches] = []
    for image in images:
        ImageScan(image, block, progress).run()
        found.append(TornBatches(image, block))
    pieces = [run for image, joints in zip(images, found, strict=True) for run in (*image.runs, *joints.joined)]
    heads = (head for joints in found for head in joints.left)
    unclear = unclear_places(pieces, heads, block)
    seams = {link.before: link for link in seam_links(pieces, unclear, block)}
    for image, joints in zip(images, found, strict=True):
        torn += [(image, head) for head in joints.left]
        certain = _next_of_torn(image.runs, joints.joined, block)
        whole, joined = _join_runs((*image.runs, *joints.joined), certain, seams)
        runs += whole
        links += [*joined, *_damaged_links(whole, joints.left, block)]
    copies, of_copies = find_copies(runs)
    own = [run for run in runs if run not in copies]
    links = [link for link in links if link.before not in copies and link.after not in copies]
    torn_ends = {(image.number, head.position) for image, head in torn}
    links += [*index_links(images, own, block), *sequence_links(own, block, torn_ends), *of_copies]
    for image, joints in zip(images, found, strict=True):
        torn += [(image, head) for head in (*joints.left_rests, *image.inner)]
    carving = Carving(images, block, runs, torn, copies)
    used = [link for link in links if not link.is_guess]
    guesses = [link for link in links if link.is_guess]
    for more in (unclear_links(own), guessed_links(own)):
        known = {(link.before, link.after) for link in (*used, *guesses)}
        guesses += [link for link in more if (link.before, link.after) not in known]
    _make_groups(carving, own, used, guesses, guess)
    return carving


def _next_of_torn(runs: Sequence[CarvedRun], torn: Sequence[CarvedRun], block: int) -> dict[CarvedRun, CarvedRun]:
    """Return the runs of an image that continue in torn batches, and torn batches that continue in runs, by the one before.

    A batch that begins or ends with a block is next to its neighbour by its place only, as any run that touches another one.
    So is a batch whose start lacks the CRC: the same batch of another partition can begin with the same bytes.
    """
    by_end = {run.end: run for run in runs}
    by_begin = {run.position: run for run in (*runs, *torn)}
    next_of: dict[CarvedRun, CarvedRun] = {}
    for batch in torn:
        before = by_end.get(batch.position)
        proved = batch.pieces[0].size >= CRC_END and batch.position % block
        if proved and before is not None and before.last < batch.first and before not in next_of:
            next_of[before] = batch
        if batch.end % block:
            next_of[batch] = by_begin[batch.end]
    return next_of


def _join_runs(
    runs: Sequence[CarvedRun], certain: Mapping[CarvedRun, CarvedRun], seams: Mapping[CarvedRun, Link]
) -> tuple[list[CarvedRun], list[Link]]:
    """Return the runs of an image with their next ones: the ``certain`` ones, and those of ``seams``, by the run before.

    There is a link for each torn batch and each seam.
    """
    inner = set(certain.values())
    joins = {run: seams[run] for run in runs if run in seams and run not in certain and seams[run].after not in inner}
    next_of = {**certain, **{run: seam.after for run, seam in joins.items()}}
    inner = set(next_of.values())
    whole: list[CarvedRun] = []
    links: list[Link] = []
    for run in sorted((one for one in runs if one not in inner), key=lambda one: one.position):
        whole.append(run)
        following: CarvedRun | None = run
        while following is not None:
            if following.joined:
                links.append(_torn_link(run, following))
            if following in joins:
                links.append(replace(joins[following], before=run, after=run))
            following = next_of.get(following)
            if following is not None:
                run.extend(following)
    return whole, links


def _torn_link(run: CarvedRun, batch: CarvedRun) -> Link:
    """Return the link of a torn batch, which is the start of ``run`` or of another run that is joined to it."""
    front, rest = batch.pieces[:2]
    why = f"offsets {batch.first:,} to {batch.lasts[0]:,}: the CRC is valid for "
    start, end = (f"{piece.size:,} bytes at {piece.position:,}" for piece in (front, rest))
    why += f"{end}, and {start} fit its offset" if front.size < LOG_OVERHEAD else f"{start} and {end}"
    why += ", and a batch of another partition can be equal" * bool(batch.unsequenced)
    return Link(TORN, run, run, why, (front, rest), unsequenced=bool(batch.unsequenced))


def _damaged_links(runs: Sequence[CarvedRun], heads: Iterable[Head], block: int) -> Iterable[Link]:
    """Yield a link where one batch with a wrong CRC, by its size and offsets, is all between two runs.

    Where a block ends in it, the extent of another file can begin: then a producer is in both runs, at the right distance.
    """
    by_end = {run.end: run for run in runs}
    by_begin = {run.position: run for run in runs}
    for head in heads:
        before, after = by_end.get(head.position), by_begin.get(head.position + head.size)
        if not (before and after and before.last + 1 == head.first and head.last + 1 == after.first):
            continue
        if head.position // block == after.position // block or _same_distance(before, after):
            yield Link(DAMAGED, before, after, f"only the damaged batch at byte {head.position:,} is between them")


def _same_distance(before: CarvedRun, after: CarvedRun) -> bool:
    """Return whether a producer's sequences are as far from the offsets at the start of a run as at the end of another."""
    common = before.lanes.keys() & after.lanes.keys()
    return any(before.lanes[one].keys[1] == after.lanes[one].keys[0] for one in common)


class _Partitions:
    """A union-find of runs."""

    def __init__(self, runs: Iterable[CarvedRun]) -> None:
        self._of = {run: run for run in runs}

    def find(self, run: CarvedRun) -> CarvedRun:
        while (of := self._of[run]) is not run:
            self._of[run] = run = self._of[of]
        return run

    def join(self, link: Link) -> None:
        self._of[self.find(link.after)] = self.find(link.before)


def _make_groups(
    carving: Carving, runs: Sequence[CarvedRun], used: list[Link], guesses: list[Link], guess: bool
) -> None:
    partitions = _Partitions(runs)
    for link in used + guesses * guess:
        partitions.join(link)
    members: dict[CarvedRun, list[CarvedRun]] = {}
    for run in runs:
        members.setdefault(partitions.find(run), []).append(run)
    groups: list[CarvedGroup] = []
    for one in members.values():
        groups += _placed(one)
    groups.sort(key=lambda group: -group.size)
    group_of: dict[CarvedRun, CarvedGroup] = {}
    for number, group in enumerate(groups, 1):
        group.name = f"group-{number:03d}"
        group_of |= dict.fromkeys((run for run, _ in group.parts), group)
    for link in used + guesses:
        if group_of[link.before] is group_of[link.after] and (guess or not link.is_guess):
            group_of[link.before].links.append(link)
        else:
            carving.unused.append(link)
    for copy, original in carving.copies.items():
        while original in carving.copies:
            original = carving.copies[original]
        group_of[original].copies.append(copy)
    carving.groups = groups


def _placed(runs: Iterable[CarvedRun]) -> list[CarvedGroup]:
    """Return runs as one group, or as several if they have different batches at the same offsets."""
    groups: list[CarvedGroup] = []
    for run in sorted(runs, key=lambda one: (one.first, -one.last)):
        for group in groups:
            last = group.parts[-1][0]
            if run.first > last.last:
                group.parts.append((run, 0))
                break
            if last.same_from(run):
                if run.last > last.last:
                    group.parts.append((run, bisect_right(run.lasts, last.last)))
                else:
                    group.copies.append(run)
                break
        else:
            groups.append(CarvedGroup("", [(run, 0)]))
    return groups


#: ``log.segment.bytes`` by default.
_SEGMENT_BYTES = 1 << 30
_COPIED = 1 << 20
EVIDENCE = "evidence.jsonl"


def write_groups(carving: Carving, target: Path, evidence: Callable[[IO[bytes]], object], progress: Progress) -> None:
    """Write a folder per group and the file EVIDENCE into the new folder ``target``, all or nothing.

    ``evidence`` writes the content of that file, ``progress`` is called with the bytes written. Raises KsegError.
    """
    with whole_folder(target, replace=False) as folder, writing(target):
        for group in carving.groups:
            _write_group(carving.images, group, folder / group.name, progress)
        with NewFile(folder / EVIDENCE) as out:
            evidence(out.file)
            out.sync()


def _write_group(images: list[Image], group: CarvedGroup, folder: Path, progress: Progress) -> None:
    folder.mkdir()
    for run, first in group.parts:
        for begin, end in _segments(run, first):
            with NewFile(folder / f"{_base_offset(images, run, begin):020d}.log") as out:
                start = run.starts[begin]
                stop = run.starts[end] if end < len(run.starts) else run.size
                for data in _bytes_of(images, run, start, stop):
                    out.file.write(data)
                    progress(len(data))
                out.sync()
    sync_folder(folder)


def _segments(run: CarvedRun, first: int) -> Iterator[tuple[int, int]]:
    """Yield the batches of each segment as (first, after the last): a broker's segment has limits of size and offsets."""
    while first < len(run.starts):
        base = run.first if not first else run.lasts[first - 1] + 1
        end = min(
            bisect_right(run.starts, run.starts[first] + _SEGMENT_BYTES), bisect_right(run.lasts, base + INT32_MAX)
        )
        yield first, (end := max(end, first + 1))
        first = end


def _base_offset(images: list[Image], run: CarvedRun, batch: int) -> int:
    """Return the name of the segment that begins with a batch: no offset in it is lower."""
    if batch:
        return run.lasts[batch - 1] + 1
    if not run.magics & 3 or not run.codecs & ~1:
        return run.first
    # The header of a compressed message set of v0 and v1 has its last offset.
    data = b"".join(_bytes_of(images, run, 0, run.starts[1] if len(run.starts) > 1 else run.size))
    with SegmentReader(open_source(io.BytesIO(data))) as reader:
        for window in reader.windows():
            for chunk in DeepIterator().chunks(window):
                return int(chunk.records.offset[0])
    return run.first


def _bytes_of(images: list[Image], run: CarvedRun, start: int, stop: int) -> Iterator[bytes]:
    """Yield the bytes ``start`` to ``stop`` of a run."""
    at = 0
    for piece in run.pieces:
        begin, end = max(start, at), min(stop, at + piece.size)
        while begin < end:
            data = images[piece.image].read(piece.position + begin - at, min(_COPIED, end - begin))
            if not data:
                raise UnreadableError(
                    f"{images[piece.image].path}: byte {piece.position + begin - at:,} cannot be read again"
                )
            yield data
            begin += len(data)
        at += piece.size
