"""What to do at an entry that does not hold: prove it, or find the next real one.

Length and base offset stand outside the CRC, so a wrong length can be *proved*: if the next real header begins at
byte q, length = q - start - 12 makes the CRC hold. Where nothing can be proved, a candidate must be likely, hold its
CRC, be followed by another entry or the end, and continue the offsets: a record's value may well hold whole batches
of another log, and those must not be taken for entries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kseg import kernel
from kseg.findings import Finding
from kseg.log_format import HEADER_SIZE_UP_TO_MAGIC, INT32_MAX, LOG_OVERHEAD, RECORD_BATCH_OVERHEAD, SIZE_AT
from kseg.tape import Tape

# A search keeps the broken entry at hand this far, to prove its length; past it, only the next entry is looked for.
PROOF_REACH = 16 * 1024 * 1024
PROOF_CANDIDATES = 64
STEP = 256 * 1024


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was made of a broken place.

    ``resume`` is the file position to read on from. When the entry itself can be had, ``entry_size`` is its whole
    size in bytes, ``magic`` and ``crc_state`` how to read it. ``lost`` are bytes that no one can use. ``torn`` is
    set where the file ends inside an entry, ``recognised`` where the place at least began as an entry does, or is
    all zeros.
    """

    findings: tuple[Finding, ...]
    resume: int
    lost: int = 0
    entry_size: int | None = None
    magic: int = 0
    crc_state: int = kernel.CRC_BAD
    torn: bool = False
    recognised: bool = False


def resynchronise(tape: Tape, max_size: int, expected: int | None, reach: int | None) -> Outcome:
    """Judge the entry at the tape's start, which was not framed or whose CRC is wrong.

    ``expected`` is the offset that should come next, ``reach`` how many bytes to search at most (None: to the end).
    """
    whole = _whole_entry(tape, max_size)
    if whole:
        outcome = _read_as_another(tape, whole) or _bad_content(tape, whole, max_size)
        if outcome:
            return outcome
    return _search(tape, max_size, expected, reach)


def _header(tape: Tape) -> tuple[int, int] | None:
    """(size field, magic byte) at the tape's start, None when the file ends before."""
    if not tape.fill(HEADER_SIZE_UP_TO_MAGIC):
        return None
    at = tape.start
    return kernel.read_int32(tape.data, at + SIZE_AT), tape.data[at + 16]


def _whole_entry(tape: Tape, max_size: int) -> int:
    """The declared whole size of the entry at the start if that many bytes are there, else 0."""
    header = _header(tape)
    if header is None or not kernel.smallest(0) <= header[0] <= max_size:
        return 0
    size = LOG_OVERHEAD + header[0]
    return size if tape.fill(size) else 0


def _read_as_another(tape: Tape, size: int) -> Outcome | None:
    """The entry under another magic than it names, if its CRC holds so: the magic byte is outside a v2 CRC."""
    at = tape.start
    named = tape.data[at + 16]
    for magic in (2, 1, 0):
        if magic == named or not _holds(tape, at, size, magic):
            continue
        finding = Finding(
            "unknown-magic",
            position=tape.position,
            end=tape.position + size,
            offset=kernel.read_int64(tape.data, at),
            facts={"magic": signed_byte(named), "why": f"its CRC holds as v{magic}, and it is read so"},
        )
        return Outcome(
            (finding,), tape.position + size, entry_size=size, magic=magic, crc_state=kernel.CRC_GOOD, recognised=True
        )
    return None


def _bad_content(tape: Tape, size: int, max_size: int) -> Outcome | None:
    """The entry where its framing holds, since another begins right behind it, and only its content is wrong."""
    magic = _magic(tape)
    if not _begins(tape, size, max_size):
        return None
    at = tape.start
    position = tape.position
    if magic > 2:
        unknown = Finding(
            "unknown-magic",
            position=position,
            end=position + size,
            offset=kernel.read_int64(tape.data, at),
            facts={"magic": signed_byte(magic), "why": "its CRC holds as no known version"},
        )
        return Outcome((unknown,), position + size, lost=size, recognised=True)
    if size - LOG_OVERHEAD < kernel.smallest(magic):
        return None
    return Outcome(
        (crc_mismatch(tape, size, magic),),
        position + size,
        lost=size,
        entry_size=size,
        magic=magic,
        recognised=True,
    )


def crc_mismatch(tape: Tape, size: int, magic: int) -> Finding:
    """The finding for the entry at the tape's start, with the offsets its header claims."""
    row = kernel.BatchColumns(1)
    kernel.read_header(tape.data, tape.start, size - LOG_OVERHEAD, magic, row, 0)
    wrapper = magic < 2 and row.attributes[0] & 7
    first, last = row.base_offset[0], row.last_offset[0]
    computed = kernel.entry_crc(tape.view, tape.start, tape.start + size, magic)
    return Finding(
        "crc-mismatch",
        position=tape.position,
        end=tape.position + size,
        offset=None if wrapper else first,
        last_offset=last,
        facts={"stored": row.crc[0], "computed": computed, "note": ""},
    )


def _holds(tape: Tape, at: int, size: int, magic: int) -> bool:
    """Whether the CRC of the ``size`` bytes at buffer byte ``at`` holds when they are read as that version."""
    if size - LOG_OVERHEAD < kernel.smallest(magic):
        return False
    row = kernel.BatchColumns(1)
    kernel.read_header(tape.data, at, size - LOG_OVERHEAD, magic, row, 0)
    return kernel.entry_crc(tape.view, at, at + size, magic) == row.crc[0]


def _begins(tape: Tape, distance: int, max_size: int) -> bool:
    """Whether an entry, the end of the file, or a run of zeros begins that many bytes behind the tape's start."""
    tape.fill(distance + RECORD_BATCH_OVERHEAD)
    at = tape.start + distance
    rest = tape.end - at
    if rest <= 0:
        return rest == 0
    if rest < HEADER_SIZE_UP_TO_MAGIC or kernel.plausible(tape.data, at, tape.end, max_size):
        return True
    return not any(tape.view[at : at + RECORD_BATCH_OVERHEAD])


def _search(tape: Tape, max_size: int, expected: int | None, reach: int | None) -> Outcome:
    """Look behind the tape's start for the next real entry, and for proof of the broken one's length."""
    began = tape.position
    cause = _cause(tape, max_size)
    zeros = _Zeros()
    accepted: int | None = None
    candidates = 0
    at = began + 1
    while True:
        # `at` is a file position: the buffer slides under the search.
        if at - began > PROOF_REACH and accepted is None:
            tape.skip_to(at)
        more = tape.fill(at - tape.position + STEP)
        zeros.look(tape, at)
        at = _after_zeros(tape, at)
        horizon = tape.end if not more else tape.end - RECORD_BATCH_OVERHEAD
        found = kernel.find_plausible(tape.data, at - tape.shift, max(horizon, at - tape.shift), max_size)
        at = found + tape.shift
        if found >= horizon:
            if not more or (reach is not None and at - began > reach):
                break
            if accepted is not None and at - began > PROOF_REACH:
                break
            continue
        kept = tape.position == began
        if _is_entry(tape, at - tape.position, max_size, expected):
            if kept and cause.provable and _proves(tape, at - began):
                return _proved(tape, at - began, cause)
            accepted = at if accepted is None else accepted
            candidates += 1
            if not kept or not cause.provable or candidates >= PROOF_CANDIDATES:
                break
        at += 1
    if accepted is not None:
        return _lost(tape, began, accepted, cause, expected, zeros.only_before(accepted))
    if tape.position == began and cause.provable and _proves(tape, tape.available):
        return _proved(tape, tape.available, cause)
    return _tail(tape, began, at if reach is not None and more else tape.shift + tape.end, cause, zeros)


@dataclass(frozen=True, slots=True)
class _Cause:
    """What the broken place looks like by its own header."""

    size: int | None
    magic: int | None
    provable: bool
    why: str
    offset: int | None
    entry: bool


def _cause(tape: Tape, max_size: int) -> _Cause:
    header = _header(tape)
    if header is None:
        return _Cause(None, None, False, "fewer bytes than an entry's header", None, False)
    size, magic = header
    if magic > 2:
        return _Cause(size, magic, False, "no entry begins there", None, False)
    tape.fill(RECORD_BATCH_OVERHEAD)
    body = bytearray(tape.view[tape.start : min(tape.end, tape.start + RECORD_BATCH_OVERHEAD)])
    offset = kernel.read_int64(body, 0)
    legal = size >= kernel.smallest(magic) and size <= max_size
    # With a legal size in its place, is the rest a header? Only that of v2 can be judged apart from its size.
    if len(body) < (RECORD_BATCH_OVERHEAD if magic == 2 else LOG_OVERHEAD + kernel.smallest(magic)):
        entry = legal  # torn inside its header
    else:
        entry = _header_is_likely(body, magic) if magic == 2 else kernel.plausible(body, 0, len(body), max_size)
    provable = entry if magic == 2 else 0 <= offset and len(body) >= 26 and body[17] & 0xF0 == 0
    why = "it fits no entry, and neither does its CRC" if legal else "no entry has that size"
    return _Cause(size, magic, provable, why, offset if entry else None, entry)


def _header_is_likely(body: bytearray, magic: int) -> bool:
    repaired = bytearray(body)
    repaired[SIZE_AT : SIZE_AT + 4] = (kernel.smallest(magic)).to_bytes(4, "big")
    return kernel.plausible(repaired, 0, len(repaired), INT32_MAX)


def _is_entry(tape: Tape, distance: int, max_size: int, expected: int | None) -> bool:
    """Whether a real entry begins ``distance`` bytes behind the tape's start: CRC, chain and offsets."""
    at = tape.start + distance
    size = LOG_OVERHEAD + kernel.read_int32(tape.data, at + SIZE_AT)
    if not tape.fill(distance + size):
        return False
    at = tape.start + distance
    if not _holds(tape, at, size, tape.data[at + 16]):
        return False
    offset = kernel.read_int64(tape.data, at)
    if expected is not None and not expected <= offset <= expected + INT32_MAX:
        return False
    return _begins(tape, distance + size, max_size)


def _magic(tape: Tape) -> int:
    return tape.data[tape.start + 16]


def _proves(tape: Tape, size: int) -> bool:
    """Whether the broken entry's CRC holds when it is taken to be ``size`` bytes in all."""
    return size <= tape.available and size > RECORD_BATCH_OVERHEAD // 2 and _holds(tape, tape.start, size, _magic(tape))


def _proved(tape: Tape, size: int, cause: _Cause) -> Outcome:
    position = tape.position
    facts = {
        "size": cause.size,
        "proved_size": size - LOG_OVERHEAD,
        "why": f"the CRC holds with {size - LOG_OVERHEAD}, and it is read so",
    }
    finding = Finding("invalid-size", position=position, end=position + size, offset=cause.offset, facts=facts)
    return Outcome(
        (finding,),
        position + size,
        entry_size=size,
        magic=_magic(tape),
        crc_state=kernel.CRC_GOOD,
        recognised=True,
    )


def _lost(tape: Tape, began: int, resume: int, cause: _Cause, expected: int | None, zeros: bool) -> Outcome:
    at = resume - tape.shift
    found = kernel.read_int64(tape.data, at)
    wrapper = tape.data[at + 16] < 2 and tape.data[at + 17] & 7
    last = found - 1 if not wrapper and expected is not None and found > expected else None
    why = "zeros: a hole in the file" if zeros else cause.why
    findings = [
        Finding(
            "lost-bytes",
            position=began,
            end=resume,
            offset=expected if last is not None else None,
            last_offset=last,
            facts={"bytes": resume - began, "why": why},
        )
    ]
    if not zeros and cause.entry and cause.size is not None:
        size_finding = Finding(
            "invalid-size",
            position=began,
            end=resume,
            offset=cause.offset,
            facts={"size": cause.size, "why": cause.why},
        )
        findings.insert(0, size_finding)
    return Outcome(tuple(findings), resume, lost=resume - began, recognised=cause.entry)


def _tail(tape: Tape, began: int, end: int, cause: _Cause, zeros: _Zeros) -> Outcome:
    """The four ends of a file: zeros, a torn entry, a torn header, garbage."""
    size = end - began
    facts: dict[str, Any] = {"bytes": size}
    if zeros.only_before(end):
        return Outcome((Finding("zero-tail", position=began, end=end, facts=facts),), end, recognised=True)
    if cause.size is None:
        facts["why"] = f"{size} bytes, fewer than an entry's header"
        return Outcome((Finding("truncated-tail", position=began, end=end, facts=facts),), end, lost=size, torn=True)
    if cause.entry and cause.size + LOG_OVERHEAD > size:
        facts["why"] = f"{size} of its {cause.size + LOG_OVERHEAD} bytes are here"
        finding = Finding("truncated-tail", position=began, end=end, offset=cause.offset, facts=facts)
        return Outcome((finding,), end, lost=size, torn=True, recognised=True)
    facts["why"] = f"{cause.why}, up to the end of the file"
    findings = [Finding("lost-bytes", position=began, end=end, offset=cause.offset, facts=facts)]
    if cause.entry:
        findings.insert(0, Finding("invalid-size", position=began, end=end, offset=cause.offset,
                                   facts={"size": cause.size, "why": cause.why}))  # fmt: skip
    return Outcome(tuple(findings), end, lost=size, torn=True, recognised=cause.entry)


class _Zeros:
    """Keeps track of how far the broken place is nothing but zeros."""

    def __init__(self) -> None:
        self._until: int | None = None
        self._broken = False

    def look(self, tape: Tape, at: int) -> None:
        """Take in what the tape holds; called before anything of it is skipped."""
        if self._broken:
            return
        begin = tape.start if self._until is None else max(self._until - tape.shift, tape.start)
        length = zero_run(tape.data, begin, tape.end)
        self._until = tape.shift + begin + length
        self._broken = begin + length < tape.end

    def only_before(self, position: int) -> bool:
        """Whether every byte from the beginning up to there was zero."""
        # An entry's own offset begins with zeros, and a search finds it where its header does: exact enough.
        return self._until is not None and self._until >= position


def zero_run(data: bytearray, at: int, end: int) -> int:
    """How many zero bytes ``data[at:end]`` begins with."""
    begin = at
    while at < end:
        stop = min(at + 4096, end)
        if data.count(0, at, stop) != stop - at:
            return at - begin + next(i for i in range(stop - at) if data[at + i])
        at = stop
    return at - begin


def _after_zeros(tape: Tape, at: int) -> int:
    """Where to look on: a run of zeros holds no entry, except that an entry's offset and size begin with some."""
    run = zero_run(tape.data, at - tape.shift, tape.end)
    return at + max(0, run - HEADER_SIZE_UP_TO_MAGIC - LOG_OVERHEAD)


def signed_byte(value: int) -> int:
    """A byte as Java's int8."""
    return value - 256 if value >= 128 else value
