"""Read an image once, from start to end: runs of batches, headers without their batch, and traces of other files.

The memory is that of one window, or of one batch of up to ``MOST_BATCH`` bytes, 24 bytes for each batch, and 2 KB for each
run.
"""

from __future__ import annotations

import io
import re
import struct
from dataclasses import dataclass, field

from kseg.commands.carve.runs import CarvedRun, Piece
from kseg.errors import UsageError
from kseg.findings import Finding
from kseg.format.record import framing
from kseg.format.record.columns import BatchColumns
from kseg.format.record.layout import CRC_AT, INT32_MAX, LEGACY_CRC_AT, LOG_OVERHEAD, RECORD_BATCH_OVERHEAD, SIZE_AT
from kseg.format.record.offset_evidence import is_wrapper
from kseg.format.segment.batch_evidence import BatchChain, LogBefore
from kseg.format.segment.inner_messages import first_own
from kseg.format.segment.input_buffer import InputBuffer
from kseg.format.segment.resync_search import ScanBudget
from kseg.format.storage.file_access import Progress
from kseg.format.storage.local_files import open_file
from kseg.format.storage.naming import is_url
from kseg.format.storage.source import STDIN, Source

#: ``socket.request.max.bytes`` by default: a broker accepts no larger batch.
MOST_BATCH = 100 * 1024 * 1024
#: The bytes of a header up to the end of its CRC.
CRC_END = CRC_AT + 4
#: Only offsets below 2**48 are searched.
ZEROS_IN_OFFSET = 2
_WINDOW = 2 * 1024 * 1024
_ROWS = 4096
# Two entries of an offset index: offset after the base, position. Then first bytes of a folder and of partition.metadata.
_ENTRIES = struct.Struct(">IIII")
_ENTRY_SIZE = 8
_FEWEST_ENTRIES, _SURE_ENTRIES = 2, 16
_DOT = b"\x0c\x00\x01\x02.\0\0\0"  # ext4: an entry of 12 bytes, a name of 1 byte, a folder
_FOLDER_ENTRY = re.compile(rb"(?s)(.)\x02([a-zA-Z0-9._-]+-[0-9]+)")
_TOPIC_ID = re.compile(rb"version: 0\ntopic_id: ([A-Za-z0-9_-]{22})")
# The bytes of a set that can be before messages at the start of an extent: a block of snappy-java.
_UNKNOWN_SIZE = 32 * 1024
# Damage of any kind makes fewer.
_MOST_NAMES, _MOST_HEADS = 10_000, 1_000_000


def _without_first(lost: int) -> bytes:
    """Return an expression for headers of each version without their first bytes, up to the number of offsets or a key."""
    # A size is below 128 MiB, and a key below 64 KiB. Neither a size nor a CRC is 0.
    offset = b"".join([rb"\0", rb"\0", *[b"."] * 6][lost:])
    start = offset + (rb"(?!\0{4})[\0-\7]..." if lost <= SIZE_AT else b"." * (LOG_OVERHEAD - lost))
    key = rb"(?:\xff{4}|\0\0..)"
    versions = (
        rb".{4}\x02.{4}\0[\0-\x7f][\0-\x7f]",
        rb"(?!\0{4}).{4}\x01[\0-\x0f].{8}" + key,
        rb"(?!\0{4}).{4}\0[\0-\3]" + key,
    )
    return start + b"(?:" + b"|".join(versions) + b")"


#: Expressions for the start of a block in which a batch continues, by the number of its bytes before the block.
REST_AFTER = {lost: re.compile(b"(?s)" + _without_first(lost)) for lost in range(1, LOG_OVERHEAD)}
_REST = re.compile(b"(?s)" + b"|".join(map(_without_first, REST_AFTER)))


@dataclass(frozen=True, slots=True)
class Head:
    """A header whose batch does not follow it as a whole: of ``size`` bytes, with offsets ``first`` to ``last``.

    With ``messages`` the header is missing: as many messages can be of a compressed v1 set, with offsets relative to it.
    """

    position: int
    size: int
    first: int
    last: int
    messages: int = 0


@dataclass(frozen=True, slots=True)
class FoundName:
    """A name in an image: ``what`` is "topic id", of a partition.metadata, or "folder", of a partition in its log dir."""

    image: int
    position: int
    what: str
    name: str


@dataclass(slots=True)
class Image:
    """What one image has. ``index_places`` are positions at which an offset index can begin.

    ``inner`` are messages that can be of a compressed v1 set whose header is not before them. ``cut`` are runs that begin
    shortly before a block, so that their base offset can be of two files: each is one batch, with the run that continues it.
    ``continued`` has the runs which these would continue. ``rest_places`` are blocks that can begin with a batch without its
    first bytes.
    """

    path: str
    number: int
    file: io.FileIO
    size: int
    runs: list[CarvedRun] = field(default_factory=list)
    heads: list[Head] = field(default_factory=list)
    inner: list[Head] = field(default_factory=list)
    cut: dict[CarvedRun, CarvedRun | None] = field(default_factory=dict)
    continued: dict[CarvedRun, CarvedRun] = field(default_factory=dict)
    index_places: list[int] = field(default_factory=list)
    rest_places: list[int] = field(default_factory=list)
    names: list[FoundName] = field(default_factory=list)
    errors: list[Finding] = field(default_factory=list)

    def read(self, position: int, size: int) -> bytes:
        """Return the bytes of a range that is in the image, fewer if reading fails: ``errors`` has why."""
        data = bytearray(size)
        view, done = memoryview(data), 0
        try:
            self.file.seek(position)
            while done < size and (count := self.file.readinto(view[done:])):
                done += count
        except OSError as error:
            why = error.strerror or str(error)
            self.errors.append(Finding("read-error", position=position + done, facts={"why": why}))
        return bytes(data[:done])


def open_image(path: str, number: int) -> Image:
    """Open a file or a block device. Raises UsageError for a pipe, an archive or a URL, and UnreadableError."""
    if is_url(path) or path == STDIN:
        raise UsageError(f"{path}: carve reads files and block devices: copy it to a file first")
    file = open_file(path, named=True)
    if not isinstance(file, io.FileIO):
        raise UsageError(f"{path}: carve does not read archives: unpack it first")
    if not file.seekable():
        file.close()
        raise UsageError(f"{path}: carve reads files and block devices: copy it to a file first")
    return Image(path, number, file, file.seek(0, io.SEEK_END))


class ImageScan:
    """Finds all that an image has. ``block`` is the size of the blocks of its file system in bytes.

    ``progress`` is called with bytes read. A read error ends the scan: ``errors`` has it. Raises UnreadableError.
    """

    def __init__(self, image: Image, block: int, progress: Progress) -> None:
        self._image = image
        self._block = block
        self._progress = progress
        self._buffer = InputBuffer(Source(image.path, image.file, image.size), _WINDOW, image.errors.append)
        self._batches = BatchColumns(_ROWS)
        self._budget = ScanBudget()
        self._run: CarvedRun | None = None

    def run(self) -> None:
        buffer, reported = self._buffer, 0
        self._image.file.seek(0)
        while True:
            more = buffer.fill(_WINDOW)
            self._scan_window(more)
            self._progress(buffer.position - reported)
            reported = buffer.position
            if not more:
                break
            if not any(buffer.view[buffer.start : buffer.end]):
                buffer.skip_hole(None)
        if reported < self._image.size and not self._image.errors:
            self._image.errors.append(Finding("read-error", position=reported, facts={"why": "the image ends here"}))
        self._progress(self._image.size - reported)

    def _scan_window(self, more: bool) -> None:
        """Search the buffered bytes but the last ones, where a header can be cut."""
        buffer = self._buffer
        while buffer.available:
            begin = buffer.start
            at = framing.find_signature(buffer.data, begin, buffer.end, MOST_BATCH)
            if at == buffer.end and more:
                at = max(begin, buffer.end - RECORD_BATCH_OVERHEAD + 1)
            self._look_at_blocks(begin, at)
            buffer.skip_to(buffer.shift + at)
            if at > buffer.end - RECORD_BATCH_OVERHEAD or not buffer.available:
                if not more and buffer.available and at < buffer.end:
                    self._read_batches()
                    continue
                return
            self._read_batches()

    def _read_batches(self) -> None:
        """Append the batches at the buffer's start to a run; without a valid one, note its header."""
        buffer, batches = self._buffer, self._batches
        size = LOG_OVERHEAD + framing.read_int32(buffer.data, buffer.start + SIZE_AT)
        position, good = buffer.position, 0
        if not buffer.ends_before(size) and self._budget.allows(size, position) and buffer.fill(size):
            end = buffer.end if size <= _WINDOW else buffer.start + size
            framing.frame(buffer.data, buffer.start, end, buffer.shift, MOST_BATCH, batches)
            good = framing.check_crcs(buffer.view, batches)
            if not good:
                self._budget.spend(size)
        if not good:
            framing.read_header(
                buffer.data, buffer.start, size - LOG_OVERHEAD, buffer.data[buffer.start + 16], batches, 0
            )
            follows = self._run is not None and position == self._run.end
            if len(self._image.heads) < _MOST_HEADS and (follows or is_producers(batches)):
                self._image.heads.append(Head(position, size, batches.base_offset[0], batches.last_offset[0]))
            self._look_at_blocks(buffer.start, buffer.start + 1)
            buffer.skip_to(position + 1)
            return
        for row in range(self._skip_inner(good), good):
            self._append(row)
        self._skip_run(position + sum(batches.size[:good]))

    def _skip_inner(self, good: int) -> int:
        """Return the first of ``good`` batches at the buffer's start that is proved to be in no compressed v1 set.

        A file begins with a block, and continues where a run ends. Elsewhere, the bytes before are not known: within a block
        they are of the same file, and before it of any file.
        """
        buffer, batches, run, image = self._buffer, self._batches, self._run, self._image
        begin = batches.position[0]
        continues = bool(image.inner) and image.inner[-1].position + image.inner[-1].size == begin
        if (begin % self._block == 0 and not continues) or (run is not None and run.end == begin):
            return 0
        places = tuple(
            (batches.position[row], batches.base_offset[row], batches.last_offset[row]) for row in range(good)
        )
        end = batches.position[good - 1] + batches.size[good - 1]
        bare = next((row for row in range(good) if batches.magic[row] >= 2 or is_wrapper(batches, row)), good)
        lost, before = _UNKNOWN_SIZE, LogBefore(is_unknown=True)
        if run is not None and run.end // self._block == begin // self._block and not continues:
            lost, before = begin - run.end, LogBefore(following=run.last + 1 if run.is_bare else None)
        first = first_own(buffer, BatchChain(places, end, closed=False, bare=bare), lost, before, self._budget)
        if first and len(image.inner) < _MOST_HEADS:
            size = sum(batches.size[:first])
            image.inner.append(Head(begin, size, places[0][1], places[first - 1][2], messages=first))
        return first

    def _skip_run(self, end: int) -> None:
        """Skip batches that end at ``end``, or stop before it, where a batch of another file begins with a block.

        A marker and many records end with zeros, and a base offset begins with zeros. So the first bytes of another file
        can complete a batch whose last bytes are elsewhere. A batch that begins this close to the end of another one ends
        after it, so it is not part of a value.
        """
        buffer = self._buffer
        start = end - end % self._block
        if start < end < start + CRC_END and start > buffer.position:
            buffer.skip_to(start)
            buffer.fill(RECORD_BATCH_OVERHEAD)
            if framing.plausible(buffer.data, buffer.start, buffer.end, MOST_BATCH):
                return
        buffer.skip_to(end)

    def _append(self, row: int) -> None:
        batches, run, image = self._batches, self._run, self._image
        position, size = batches.position[row], batches.size[row]
        before = run if run is not None and position == run.end and self._continues(run, row) else None
        is_cut = self._is_cut(row, before)
        if run is None or before is None or is_cut or before in image.cut:
            run = self._run = CarvedRun([Piece(image.number, position, 0)], batches.base_offset[row])
            image.runs.append(run)
            if before in image.cut:
                image.cut[before] = run
            if is_cut:
                image.cut[run] = None
                if before is not None:
                    image.continued[run] = before
        piece = run.pieces[0]
        run.pieces[0] = Piece(piece.image, piece.position, piece.size + size)
        run.append(batches, row)

    def _is_cut(self, row: int, before: CarvedRun | None) -> bool:
        """Return whether a batch begins shortly before a block, so that its base offset can be of two files.

        A message of v0 or v1 continues the run ``before``, unless zeros between two files can be the bytes before the block.
        """
        batches, in_block = self._batches, -self._batches.position[row] % self._block
        if before is None:
            return ZEROS_IN_OFFSET < in_block < (CRC_END if batches.magic[row] == 2 else LEGACY_CRC_AT + 4)
        return (
            ZEROS_IN_OFFSET < in_block < LOG_OVERHEAD
            and before.last + 1 < batches.base_offset[row] < offsets_after_zeros(in_block)
            and not is_wrapper(batches, row)
        )

    def _continues(self, run: CarvedRun, row: int) -> bool:
        """Return whether a batch directly after a run is of the same file.

        In the next block another file can begin, if the CRC is not before it: ``links`` compares all runs. A message
        set of v0 or v1 has only its last offset, which is not compared: it continues a run unless it begins with a block.
        The offsets of a segment fit into 31 bits after its base (``LogSegment.canConvertToRelativeOffset``): a larger one
        is damaged, as no CRC covers it.
        """
        batches = self._batches
        in_block = -batches.position[row] % self._block
        return (
            in_block >= (CRC_END if batches.magic[row] == 2 else 1)
            and batches.base_offset[row] > run.last
            and batches.last_offset[row] - run.first <= INT32_MAX
        )

    def _look_at_blocks(self, begin: int, end: int) -> None:
        """Note offset indexes and names in the blocks that begin in ``data[begin:end]``, which are not batches."""
        data, shift, image = self._buffer.data, self._buffer.shift, self._image
        for at in range(
            begin + -(begin + shift) % self._block, min(end, self._buffer.end - _ENTRIES.size), self._block
        ):
            first, place, second, later = _ENTRIES.unpack_from(data, at)
            if (
                0 < first < second <= 0x7FFFFFFF
                and place < later <= 0x7FFFFFFF
                and _is_index(bytes(data[at : min(at + self._block, self._buffer.end)]))
            ):
                image.index_places.append(at + shift)
            elif place == 0x0C000102 and data.startswith(_DOT, at + 4) and len(image.names) < _MOST_NAMES:
                for found in _FOLDER_ENTRY.finditer(data[at : at + self._block]):
                    if found[1][0] == len(found[2]):
                        name = found[2].decode()
                        image.names.append(FoundName(image.number, at + shift + found.start(2), "folder", name))
            elif first == 0x76657273 and (name_at := _TOPIC_ID.match(data, at)) and len(image.names) < _MOST_NAMES:
                image.names.append(FoundName(image.number, at + shift, "topic id", name_at[1].decode()))
            elif _REST.match(data, at) and len(image.rest_places) < _MOST_HEADS:
                image.rest_places.append(at + shift)


def is_producers(batches: BatchColumns) -> bool:
    """Return whether the header in the first row has fields as a producer fills them: other structures look like batches."""
    least = min(
        batches.partition_leader_epoch[0], batches.base_timestamp[0], batches.max_timestamp[0], batches.producer_id[0],
        batches.producer_epoch[0], batches.base_sequence[0],
    )  # fmt: skip
    without_id = batches.producer_id[0] < 0
    return (
        batches.magic[0] == 2
        and least >= -1
        and batches.record_count[0] > 0
        and without_id == (batches.producer_epoch[0] < 0)
        and (not without_id or batches.base_sequence[0] < 0)
    )


def offsets_after_zeros(size: int) -> int:
    """Return how many base offsets begin with ``size`` zeros; 1 if all bytes are zeros."""
    return 1 << 8 * max(SIZE_AT - size, 0)


def entries_of(data: bytes) -> list[tuple[int, int]]:
    """Return the entries of an offset index at the start of some bytes: ascending pairs of offset and position."""
    found: list[tuple[int, int]] = []
    for offset, position in struct.iter_unpack(">II", data[: len(data) // _ENTRY_SIZE * _ENTRY_SIZE]):
        if (
            offset > 0x7FFFFFFF
            or position > 0x7FFFFFFF
            or (found and (offset <= found[-1][0] or position <= found[-1][1]))
        ):
            break
        found.append((offset, position))
    return found


def _is_index(block: bytes) -> bool:
    """Return whether a block begins with many entries of an offset index, or with some and then only zeros."""
    found = len(entries_of(block))
    return found >= _SURE_ENTRIES or (found >= _FEWEST_ENTRIES and not any(block[found * _ENTRY_SIZE :]))
