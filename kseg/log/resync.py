"""What to do at an entry that does not hold: read it another way, prove its length, or find the next real one.

The damage that is met is mostly a single fault. Where the magic, the size or the base offset is wrong, all of them
outside a v2 CRC, the CRC itself proves what was there, and the entry is read. Where content is wrong, the framing
still holds: the next entry begins where this one says. For the rest there is ``search``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kseg.findings import Finding
from kseg.format import kernel
from kseg.format.log_format import (
    CODEC_MASK,
    CRC_AT,
    HEADER_SIZE_UP_TO_MAGIC,
    INT32_MAX,
    LEGACY_CRC_AT,
    LOG_OVERHEAD,
    MAGIC_AT,
    RECORD_BATCH_OVERHEAD,
    SIZE_AT,
)
from kseg.log import heads
from kseg.log.search import (
    LIKELY,
    LOOK_AHEAD,
    NOTHING,
    PROOF_REACH,
    Chain,
    Effort,
    Proof,
    Search,
    begins,
    holds_as,
    is_wrapper,
    last_offset_of,
    legacy_crc_holds,
)
from kseg.log.tape import Tape

KEY_REACH = 256 * 1024
# Fewer zeros at an entry's end are a matter of chance.
TORN_ZEROS = 8
# A run of zeros worth telling: a page or a sector that was never written.
TOLD_ZEROS = 512


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was made of a broken place.

    ``resume`` is the file position to read on from. When the entry itself can be had, ``entry_size`` is its whole
    size in bytes, ``magic`` and ``crc_state`` how to read it. ``lost`` are bytes that no one can use. ``torn`` is
    set where the file ends inside an entry, ``recognised`` where the place at least began as an entry does, is all
    zeros, or has an entry behind it. ``gave_up`` is set where a stream was not searched to its end. ``if_last`` is
    what to say instead where nothing but zeros follows.
    """

    findings: tuple[Finding, ...]
    resume: int
    lost: int = 0
    entry_size: int | None = None
    magic: int = 0
    crc_state: int = kernel.CRC_BAD
    torn: bool = False
    recognised: bool = False
    gave_up: bool = False
    if_last: Finding | None = None


@dataclass(frozen=True, slots=True)
class Broken:
    """The broken place by its own header.

    ``size`` is its size field, None where the file ends before it. ``likely`` says whether, its size aside, the header
    is one that a broker writes; then ``offset`` and ``last_offset`` are its offsets. ``legal`` is whether an entry of
    that version may have that size.
    """

    position: int
    size: int | None
    magic: int
    likely: bool
    legal: bool
    most: int
    offset: int | None
    last_offset: int | None


def resynchronise(
    tape: Tape, max_size: int, expected: int | None, floor: int | None, effort: Effort, reach: int | None
) -> Outcome:
    """Judge the entry at the tape's start, which was not framed or whose CRC is wrong.

    ``expected`` is the offset that should come next, ``floor`` the least one that may, ``reach`` how many bytes to
    search at most (None: to the end).
    """
    broken = _look_at(tape, max_size)
    whole = _declared_size(tape, broken, max_size)
    if whole:
        outcome = _read_as_another(tape, whole)
        if outcome:
            return outcome
    outcome = _prove_legacy(tape, broken)
    if outcome:
        return outcome
    follows = begins(tape, whole, max_size) if whole else NOTHING
    if follows:
        end = tape.position + whole
        # Or the size is a little too small for the last entry, or as large as that of two, or bytes of it are gone.
        search = _search(tape, max_size, floor, effort, broken, keep=True, around=end)
        ahead = LOOK_AHEAD if follows == LIKELY and effort.allows(LOOK_AHEAD, tape.position) else RECORD_BATCH_OVERHEAD
        search.run(end + ahead)
        effort.spend(ahead)
        if search.proved:
            return _proved(tape, broken, search.proved)
        if search.best and _contradicts(search.best, broken, end):
            return _lost(tape, broken, search, search.best, expected)
        return _bad_content(tape, broken, whole)
    search = _search(tape, max_size, floor, effort, broken, keep=False)
    search.run(reach and tape.position + reach)
    if search.proved:
        return _proved(tape, broken, search.proved)
    if search.best and not (search.ended and _may_contain(broken, search.best, expected)):
        return _lost(tape, broken, search, search.best, expected)
    if not search.ended and reach is not None:
        return Outcome((), search.at, gave_up=True)
    return _tail(tape, broken, search)


def _contradicts(chain: Chain, broken: Broken, end: int) -> bool:
    """Return whether a chain that begins inside the broken entry proves that this does not end at byte ``end``."""
    if not chain.begins_batch(end):
        return True
    # The value of a v0 or v1 message may end with a batch, a v2 batch has at least a count of headers after it.
    if broken.magic == 2 or not broken.likely:
        return True
    return broken.last_offset is not None and chain.offset == broken.last_offset + 1


def _may_contain(broken: Broken, chain: Chain, expected: int | None) -> bool:
    """Return whether the last entry of the file, torn or not, seems to have that chain in a value.

    It does if its header is the one expected, nothing that continues the log follows the chain, and the chain's
    offsets are not those that would follow soon.
    """
    if chain.closed or not (broken.likely and broken.legal) or broken.size is None or broken.last_offset is None:
        return False
    if broken.offset != expected or chain.end > broken.position + LOG_OVERHEAD + broken.size:
        return False
    return not 0 < chain.offset - broken.last_offset <= chain.end - broken.position


def doubt(tape: Tape, max_size: int, expected: int | None, effort: Effort) -> Outcome | None:
    """Look into an entry of a doubtful size before room is made for it. None where nothing speaks against it."""
    broken = _look_at(tape, max_size)
    outcome = _prove_legacy(tape, broken)
    if outcome:
        return outcome
    following = _next_offset(broken, expected)
    search = _search(tape, max_size, following, effort, broken, keep=True)
    search.run(tape.position + PROOF_REACH)
    if search.proved:
        return _proved(tape, broken, search.proved)
    if search.best and search.best.closed and search.best.offset == following:
        return _lost(tape, broken, search, search.best, expected)
    return None


def _look_at(tape: Tape, max_size: int) -> Broken:
    if not tape.fill(HEADER_SIZE_UP_TO_MAGIC):
        return Broken(tape.position, None, 0, False, False, max_size, None, None)
    # Enough for the key of a v0 or v1 message, which tells where the value's length stands.
    tape.fill(KEY_REACH)
    data, at = tape.data, tape.start
    size, magic = kernel.read_int32(data, at + SIZE_AT), data[at + MAGIC_AT]
    legal = kernel.smallest(min(magic, 2)) <= size <= max_size
    if magic >= 2:
        likely = heads.likely_header(data, at, tape.end)
    else:
        implied = heads.implied_size(data, at, tape.end, magic)
        likely = kernel.plausible(data, at, tape.end, max_size) or (implied > 0 and begins(tape, implied, max_size) > 0)
        data, at = tape.data, tape.start
    if not likely and tape.available < RECORD_BATCH_OVERHEAD:
        likely = legal and magic <= 2  # torn inside its header
    offset = last = None
    if likely:
        offset = last = kernel.read_int64(data, at)
        if magic >= 2 and tape.available >= RECORD_BATCH_OVERHEAD:
            last = last_offset_of(data, at)
        elif magic >= 2:
            last = None
        elif is_wrapper(data, at):
            offset = None
    return Broken(tape.position, size, magic, likely, legal, max_size, offset, last)


def _declared_size(tape: Tape, broken: Broken, max_size: int) -> int:
    """The whole size that the entry declares, if that many bytes are there, else 0."""
    size = broken.size
    if size is None or not kernel.smallest(0) <= size <= max_size or (size > PROOF_REACH and not broken.likely):
        return 0
    whole = LOG_OVERHEAD + size
    return whole if not tape.lacks(whole) and tape.fill(whole) else 0


def _next_offset(broken: Broken, expected: int | None) -> int | None:
    """The offset that should follow the broken entry, where its header can be believed."""
    last = broken.last_offset
    if expected is None or last is None or not expected <= last < expected + INT32_MAX:
        return expected
    return last + 1


def _search(
    tape: Tape,
    max_size: int,
    floor: int | None,
    effort: Effort,
    broken: Broken,
    *,
    keep: bool,
    around: int | None = None,
) -> Search:
    provable = broken.magic == 2 and broken.likely and tape.available >= RECORD_BATCH_OVERHEAD
    proof = Proof(tape) if provable else None
    return Search(tape, max_size, _next_offset(broken, floor), floor, effort, proof, keep=keep, around=around)


def _read_as_another(tape: Tape, size: int) -> Outcome | None:
    """The entry under another magic than it names, if its CRC holds so."""
    named = tape.data[tape.start + MAGIC_AT]
    for magic in (2, 1, 0):
        if magic != named and holds_as(tape, size, magic):
            facts = {"magic": signed_byte(named), "why": f"its CRC holds as v{magic}, and it is read so"}
            return _readable("unknown-magic", tape, size, magic, facts)
    return None


def _prove_legacy(tape: Tape, broken: Broken) -> Outcome | None:
    """A v0 or v1 entry whose size is wrong: its key and value lengths tell the right one, and the CRC proves it."""
    if broken.size is None or broken.magic > 1:
        return None
    size = heads.implied_size(tape.data, tape.start, tape.end, broken.magic)
    if not 0 < size <= PROOF_REACH or size == LOG_OVERHEAD + broken.size or not legacy_crc_holds(tape, 0, size):
        return None
    return _proved(tape, broken, size)


def _proved(tape: Tape, broken: Broken, size: int) -> Outcome:
    facts = {
        "size": broken.size,
        "proved_size": size - LOG_OVERHEAD,
        "why": f"the CRC holds with {size - LOG_OVERHEAD}, and it is read so",
    }
    return _readable("invalid-size", tape, size, broken.magic, facts)


def _readable(rule: str, tape: Tape, size: int, magic: int, facts: dict[str, Any]) -> Outcome:
    """The entry can be had: ``size`` bytes, read as that version."""
    finding = _about(rule, tape, size, magic, facts)
    end = tape.position + size
    return Outcome((finding,), end, entry_size=size, magic=magic, crc_state=kernel.CRC_GOOD, recognised=True)


def _about(rule: str, tape: Tape, size: int, magic: int, facts: dict[str, Any]) -> Finding:
    """A finding on the entry at the tape's start, with the offsets that its header names."""
    row = kernel.BatchColumns(1)
    kernel.read_header(tape.data, tape.start, size - LOG_OVERHEAD, magic, row, 0)
    wrapper = magic < 2 and row.attributes[0] & CODEC_MASK
    first = None if wrapper else row.base_offset[0]
    return Finding(rule, tape.position, tape.position + size, first, row.last_offset[0], facts)


def _bad_content(tape: Tape, broken: Broken, size: int) -> Outcome:
    """The framing holds, since another entry begins right behind, and only the content is wrong."""
    end = tape.position + size
    if broken.magic > 2:
        facts = {"magic": signed_byte(broken.magic), "why": "its CRC holds as no known version"}
        finding = Finding("unknown-magic", tape.position, end, broken.offset, broken.last_offset, facts)
        return Outcome((finding,), end, lost=size, recognised=True)
    if size - LOG_OVERHEAD < kernel.smallest(broken.magic):
        # Too small for its version, and yet something begins behind it.
        facts = {"size": broken.size, "why": f"a v{broken.magic} entry has at least {kernel.smallest(broken.magic)}"}
        finding = Finding("invalid-size", tape.position, end, broken.offset, broken.last_offset, facts)
        return Outcome((finding,), end, lost=size, recognised=True)
    zeros = _zeros_at_end(tape, size)
    note = ""
    if zeros >= TORN_ZEROS:
        note = f"; zeros fill its last {zeros} bytes{tape.of_zeros(tape.position + size - zeros, tape.position + size)}"
    stored = kernel.read_uint32(tape.data, tape.start + (CRC_AT if broken.magic == 2 else LEGACY_CRC_AT))
    computed = kernel.entry_crc(tape.view, tape.start, tape.start + size, broken.magic)
    mismatch = _about("crc-mismatch", tape, size, broken.magic, {"stored": stored, "computed": computed, "note": note})
    torn = None
    behind = tape.available - size
    if note and behind and heads.zero_run(tape.data, tape.start + size, tape.end) >= min(heads.ZERO_RUN, behind):
        why = f"{size - zeros} of its {size} bytes were written, then come zeros"
        torn = _about("truncated-tail", tape, size, broken.magic, {"bytes": size - zeros, "why": why})
    return Outcome((mismatch,), end, lost=size, entry_size=size, magic=broken.magic, recognised=True, if_last=torn)


def _zeros_at_end(tape: Tape, size: int) -> int:
    """How many zeros the entry at the tape's start ends with."""
    entry = tape.view[tape.start : tape.start + size]
    return size - len(bytes(entry).rstrip(b"\0"))


def _lost(tape: Tape, broken: Broken, search: Search, best: Chain, expected: int | None) -> Outcome:
    """The bytes up to the next entry that could be found are of no use."""
    wrapper = is_wrapper(tape.data, best.position - tape.shift)
    last = best.offset - 1 if not wrapper and expected is not None and best.offset > expected else None
    lost = best.position - broken.position
    found = Finding(
        "lost-bytes",
        position=broken.position,
        end=best.position,
        offset=expected if last is not None else None,
        last_offset=last,
        facts={"bytes": lost, "why": _why(tape, broken, search, best.position)},
    )
    findings = (*_size_findings(broken, best.position, None), found)
    return Outcome(findings, best.position, lost=lost, recognised=True)


def _size_findings(broken: Broken, end: int, rest: int | None) -> tuple[Finding, ...]:
    """An ``invalid-size``, where the rest of the header is an entry's; ``rest`` is what the file has left, if known."""
    if not broken.likely or broken.size is None:
        return ()
    if broken.legal and (rest is None or broken.size + LOG_OVERHEAD <= rest):
        return ()
    why = f"the file has {(rest or 0) - LOG_OVERHEAD} bytes for it" if broken.legal else _illegal(broken)
    facts = {"size": broken.size, "why": why}
    return (Finding("invalid-size", broken.position, end, broken.offset, broken.last_offset, facts),)


def _illegal(broken: Broken) -> str:
    """What sizes the version of that header can have."""
    return f"a v{min(broken.magic, 2)} entry has {kernel.smallest(min(broken.magic, 2))} to {broken.most}"


def _why(tape: Tape, broken: Broken, search: Search, end: int) -> str:
    begin, stop = search.zeros
    if begin <= broken.position and stop >= end:
        return f"zeros{tape.of_zeros(broken.position, end)}"
    zeros = ""
    if stop - begin >= TOLD_ZEROS:
        zeros = f"; {stop - begin} of them, from byte {begin} on, are zeros{tape.of_zeros(begin, stop)}"
    if not broken.likely:
        at_size = "" if broken.legal or broken.size is None else f": its size field would say {broken.size}"
        return f"no entry begins there{at_size}{zeros}"
    if broken.legal:
        return "an entry begins there, but its CRC does not hold, nor does another follow it" + zeros
    return f"an entry begins there whose size field says {broken.size}{zeros}"


def _tail(tape: Tape, broken: Broken, search: Search) -> Outcome:
    """The ends of a file: zeros, a torn entry, a torn header, either of them with zeros behind, garbage."""
    began, end = broken.position, tape.shift + tape.end
    size = end - began
    zeros = search.last_zeros[0] if search.last_zeros[1] == end else end
    # Fewer zeros are the torn beginning of an offset and a size.
    if zeros <= began and size >= LOG_OVERHEAD:
        return Outcome((_zero_tail(tape, began, end),), end, recognised=True)
    if size < LOG_OVERHEAD:
        zeros = end
    written = zeros - began
    if broken.size is None or (zeros < end and written <= RECORD_BATCH_OVERHEAD):
        why = f"{written} bytes, fewer than the {LOG_OVERHEAD + kernel.smallest(2)} of a v2 entry's header"
        facts: dict[str, Any] = {"bytes": written, "why": why}
        if size >= LOG_OVERHEAD:
            facts["size"] = kernel.read_int32(tape.data, began - tape.shift + SIZE_AT)
        torn = Finding("truncated-tail", began, zeros, facts=facts)
        return _torn(tape, (torn,), zeros, written, recognised=zeros < end)
    whole = broken.size + LOG_OVERHEAD
    if broken.likely and broken.legal and whole > size:
        why = f"{written} of its {whole} bytes are here"
        if zeros < end:
            why += f", then come zeros{tape.of_zeros(zeros, end)}"
        facts = {"bytes": size, "why": why}
        torn = Finding("truncated-tail", began, end, broken.offset, broken.last_offset, facts)
        return Outcome((torn,), end, lost=size, torn=True, recognised=True)
    why = _why(tape, broken, search, end)
    lost = Finding("lost-bytes", began, zeros, broken.offset, broken.last_offset, {"bytes": written, "why": why})
    findings = (*_size_findings(broken, zeros, size), lost)
    return _torn(tape, findings, zeros, written, recognised=broken.likely)


def _torn(tape: Tape, findings: tuple[Finding, ...], zeros: int, lost: int, *, recognised: bool) -> Outcome:
    """A torn end, and the zeros behind it, if there are any, as what they are."""
    end = tape.shift + tape.end
    if zeros < end:
        findings += (_zero_tail(tape, zeros, end),)
    return Outcome(findings, end, lost=lost, torn=True, recognised=recognised)


def _zero_tail(tape: Tape, begin: int, end: int) -> Finding:
    return Finding("zero-tail", begin, end, facts={"bytes": end - begin, "note": tape.of_zeros(begin, end)})


def signed_byte(value: int) -> int:
    """A byte as Java's int8."""
    return value - 256 if value >= 128 else value
