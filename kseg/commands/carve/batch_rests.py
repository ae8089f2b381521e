"""Batches whose first bytes are in another block: which base offset they have, and where their rests are.

No CRC covers the base offset. A file can be cut within the first bytes of a batch, and the block before its next extent can
end in zeros, or in bytes of another file. Then these bytes and the rest are a batch with a valid CRC and a wrong offset, or
no batch at all. In both cases only the rest is proved.
"""

from __future__ import annotations

import struct
from collections.abc import Container, Sequence
from dataclasses import dataclass
from zlib import crc32

from kseg.commands.carve.image_scan import REST_AFTER, Image, is_producers, offsets_after_zeros
from kseg.commands.carve.runs import CarvedRun
from kseg.format.record import framing, layout
from kseg.format.record.columns import BatchColumns
from kseg.format.record.crc import crc32c
from kseg.format.segment.batch_evidence import LOOK_AHEAD, is_likely_header
from kseg.format.segment.resync_search import ScanBudget

#: Larger batches are not joined: the number of possible joints grows with the size.
MOST_TORN = 16 * 1024 * 1024
#: Base offset and size, which begin each batch.
START = struct.Struct(">qi")
# The last bytes of another offset are so near to the offset before them once in this number.
_CHANCE = 256
# More than any offset: the last offset of a rest is not known.
_UNKNOWN = 1 << 64


@dataclass(frozen=True, slots=True)
class BatchRest:
    """A batch of ``size`` bytes without its first ``lost`` ones: the others begin with a block at ``position``.

    ``header`` has the bytes from there to the end of the header, and more of a short header.
    """

    position: int
    lost: int
    size: int
    header: bytes

    @property
    def end(self) -> int:
        """The byte after the batch."""
        return self.position - self.lost + self.size

    @property
    def records(self) -> int:
        """The number of its offsets; 1 for a message set of v0 or v1, whose header has its last offset."""
        if self.header[layout.MAGIC_AT - self.lost] < 2:
            return 1
        return framing.read_int32(self.header, layout.LAST_OFFSET_DELTA_AT - self.lost) + 1

    def first_before(self, after: CarvedRun) -> int | None:
        """Return the base offset with which the batch leads to a run, None if other bytes of it are here."""
        if len(self.header) < min(layout.RECORD_BATCH_OVERHEAD, self.size) - self.lost:  # a read error
            return None
        first = after.first - self.records
        if first < 0 or after.begins_with_set:
            return None
        known = START.pack(first, self.size - layout.LOG_OVERHEAD)[self.lost :]
        return first if self.header.startswith(known) else None


def find_rests(image: Image, block: int) -> list[BatchRest]:
    """Return the rests in an image that are proved by a CRC, and remove runs whose base offset is not proved."""
    budget = ScanBudget()
    rests = [rest for at in image.rest_places if (rest := _rest_at(image, at, budget))]
    if image.cut:
        unproved = _Unproved(image, block, rests)
        rests += unproved.rests
        image.runs = [run for run in image.runs if run not in unproved.removed]
    starts = {rest.position - rest.lost for rest in rests}
    image.heads = [head for head in image.heads if head.position not in starts]
    return rests


class _Unproved:
    """Decides which of the runs that begin shortly before a block have a proved base offset.

    The others are ``rests``. ``removed`` are these runs, and those that are joined to others.
    """

    def __init__(self, image: Image, block: int, rests: Sequence[BatchRest]) -> None:
        self.rests: list[BatchRest] = []
        self.removed: set[CarvedRun] = set()
        self._image = image
        self._block = block
        self._begins = {run.position: run for run in image.runs}
        self._ends = {rest.end: _UNKNOWN for rest in rests}
        self._ends |= {head.position + head.size: head.last for head in image.heads}
        self._ends |= {run.end: run.last for run in image.runs}
        begins = {run.position for run in image.runs if run not in image.cut or self._leads(run)}
        self._heads = open_starts(image, image.runs, begins, block)
        # The run after each one is decided first.
        for run, after in reversed(image.cut.items()):
            self._decide(run, after)

    def _decide(self, run: CarvedRun, continued_by: CarvedRun | None) -> None:
        lost = -run.position % self._block
        place = run.position + lost
        rest = BatchRest(
            place, lost, run.size, self._image.read(place, min(layout.RECORD_BATCH_OVERHEAD, run.size) - lost)
        )
        after = self._after(run)
        if not self._is_proved(run, after, lost) or (after and self._begins_elsewhere(run, after, rest)):
            self.removed.add(run)
            self.rests.append(rest)
            return
        if continued_by is not None and continued_by not in self.removed:
            run.extend(continued_by)
            self.removed.add(continued_by)
        before = self._image.continued.get(run)
        if before is not None and before not in self._image.cut:
            before.extend(run)
            self.removed.add(run)

    def _after(self, run: CarvedRun) -> CarvedRun | None:
        """Return the run that begins where a run ends, within a block: it is of the same file."""
        after = self._begins.get(run.end) if run.end % self._block else None
        return None if after in self.removed else after

    def _leads(self, run: CarvedRun) -> bool:
        """Return whether the offset after a run begins the run after it."""
        after = self._after(run)
        return after is not None and after.first == run.last + 1

    def _is_proved(self, run: CarvedRun, after: CarvedRun | None, lost: int) -> bool:
        """Return whether the batches around a batch leave its base offset no other value, as far as its rest allows.

        Where the bytes before the block are zeros, the true offset can be larger, if the batch after it leaves room. A batch
        that ends where this one begins is of the same file, unless that file ends there: then zeros follow.
        """
        if lost >= layout.LOG_OVERHEAD or self._leads(run):
            return True
        before = self._ends.get(run.position)
        below = offsets_after_zeros(lost)
        if run.first >= below:
            return before is not None
        if after:
            return after.first <= run.last + below
        return before is not None and 0 < run.first - before <= max(below // _CHANCE, 1)

    def _begins_elsewhere(self, run: CarvedRun, after: CarvedRun, rest: BatchRest) -> bool:
        """Return whether a batch does not lead to the one after it, and would if it began at the end of another run."""
        if self._leads(run):
            return False
        first = rest.first_before(after)
        at = None if first is None else self._heads.get((rest.lost, first))
        if at is None or at == run.position:
            return False
        start = START.pack(first, run.size - layout.LOG_OVERHEAD)[: rest.lost]
        return self._image.read(at, len(start)) == start


def open_starts(
    image: Image, runs: Sequence[CarvedRun], begins: Container[int], block: int
) -> dict[tuple[int, int], int]:
    """Return where a run ends within the last bytes of a block, before the end of a CRC, and no batch ``begins``.

    Keys are the number of these bytes, and the offset that begins there: the next one, and the one in these bytes.
    """
    places: dict[tuple[int, int], int] = {}
    for run in runs:
        rest = -run.end % block
        if not 0 < rest < layout.ATTRIBUTES_AT or run.end in begins:
            continue
        places[rest, run.last + 1] = run.end
        data = image.read(run.end, layout.SIZE_AT) if rest >= layout.SIZE_AT else b""
        if len(data) == layout.SIZE_AT and framing.read_int64(data, 0) > run.last:
            places[rest, framing.read_int64(data, 0)] = run.end
    return places


def _rest_at(image: Image, at: int, budget: ScanBudget) -> BatchRest | None:
    """Return the batch whose first bytes are not before the block at ``at``, if its CRC is valid."""
    data = image.read(at, min(layout.RECORD_BATCH_OVERHEAD, image.size - at))
    for lost in (lost for lost, expression in REST_AFTER.items() if expression.match(data)):
        if size := _proved_size(image, at, bytearray(lost) + data, lost, budget):
            return BatchRest(at, lost, size, data[: layout.RECORD_BATCH_OVERHEAD - lost])
    return None


def _proved_size(image: Image, at: int, header: bytearray, lost: int, budget: ScanBudget) -> int:
    """Return the size for which the CRC of a batch without its first bytes is valid, 0 if there is none."""
    sizes = _sizes(image, at, header, lost)
    most = min(sizes[-1], image.size - at + lost) if sizes else 0
    if not sizes or sizes[0] > most or not budget.allows(most, at):
        return 0
    budget.spend(most)
    data = memoryview(image.read(at, most - lost))
    is_v2 = header[layout.MAGIC_AT] == 2
    checksum, done = 0, layout.ATTRIBUTES_AT if is_v2 else layout.MAGIC_AT
    expected = framing.read_uint32(header, layout.CRC_AT if is_v2 else layout.LEGACY_CRC_AT)
    for size in sizes:
        if size > len(data) + lost:
            break
        part = data[done - lost : size - lost]
        checksum, done = crc32c(part, checksum) if is_v2 else crc32(part, checksum), size
        if checksum == expected:
            return size
    return 0


def _sizes(image: Image, at: int, header: bytearray, lost: int) -> Sequence[int]:
    """Return the sizes that a batch without its first bytes can have, ascending: the size can have lost bytes, too."""
    if header[layout.MAGIC_AT] < 2:
        size = _message_size(image, at, header, lost)
        known = START.pack(0, max(size - layout.LOG_OVERHEAD, 0))[max(lost, layout.SIZE_AT) :]
        return [size] if size and header.startswith(known, max(lost, layout.SIZE_AT)) else []
    if not is_likely_header(header, 0, len(header)):
        return []
    size = layout.LOG_OVERHEAD + framing.read_int32(header, layout.SIZE_AT)
    if lost <= layout.SIZE_AT:
        return [size] if layout.RECORD_BATCH_OVERHEAD <= size <= MOST_TORN else []
    batches = BatchColumns(1)
    framing.read_header(header, 0, 0, 2, batches, 0)
    if not is_producers(batches):
        return []
    step = 1 << 8 * (layout.LOG_OVERHEAD - lost)
    return range(size if size >= layout.RECORD_BATCH_OVERHEAD else size + step, LOOK_AHEAD, step)


def _message_size(image: Image, at: int, header: bytearray, lost: int) -> int:
    """Return the size of a message of v0 or v1 by the lengths of its key and value, 0 if they are not plausible."""
    key_at = layout.V1_KEY_AT if header[layout.MAGIC_AT] else layout.V0_KEY_AT
    value_at = key_at + 4 + max(framing.read_int32(header, key_at), 0)
    place = at - lost + value_at
    if value_at > MOST_TORN or place + 4 > image.size:
        return 0
    value = bytes(header[value_at : value_at + 4])
    value = value if len(value) == 4 else image.read(place, 4)
    size = value_at + 4 + max(framing.read_int32(value, 0), 0) if len(value) == 4 else 0
    return size if size <= MOST_TORN else 0
