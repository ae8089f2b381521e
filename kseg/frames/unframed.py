"""Messages one after another with nothing that marks where the next begins, read on after damage.

After a length that is wrong the next message is where a CRC proves it. Each layout of such messages says how one is read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from kseg.findings import Finding, Report
from kseg.format.wide_message import Fault, Wanted
from kseg.log.tape import MAX_UNKNOWN_STREAM, Tape

#: Bytes of the buffer that messages are read from.
ROOM = 1024 * 1024
#: The next message behind a broken one is looked for in so many bytes at a time, with so many bytes of CRCs at most.
SEARCH_REACH = 1024 * 1024
_SEARCH_EFFORT = 16 * 1024 * 1024
_OVERLAP = 64 * 1024
# They would be empty messages whose CRC holds: so many in a row are preallocated, or never written.
_ZEROS = bytes(512)


class _Ends(Protocol):
    @property
    def end(self) -> int: ...


M = TypeVar("M", bound=_Ends)


@dataclass(frozen=True, slots=True)
class Layout(Generic[M]):
    """A layout of messages: the smallest one's bytes, how one is read, whether one is proved at a byte of a buffer.

    ``candidate`` matches, without taking any byte, wherever a message may begin.
    """

    overhead: int
    read: Callable[[bytes | bytearray, int, int], M | Wanted | Fault]
    is_proved: Callable[[bytes | bytearray, int, int], bool]
    candidate: re.Pattern[bytes]


def walk(tape: Tape, layout: Layout[M], report: Report) -> Iterator[M]:
    """Yield each message in order with the tape at its first byte, also those whose CRC is wrong; report what is none."""
    while tape.fill(layout.overhead) or tape.available:
        if tape.fill(len(_ZEROS)) and tape.data.startswith(_ZEROS, tape.start):
            _pass_over_zeros(tape, layout, report)
            continue
        found = _next(tape, layout)
        if isinstance(found, (Wanted, Fault)):
            _pass_over(tape, layout, found, report)
        else:
            yield found
            tape.start = found.end


def _next(tape: Tape, layout: Layout[M]) -> M | Wanted | Fault:
    """What stands at the tape's start, with as much at hand as that takes; Wanted is what the file doesn't have."""
    while True:
        found = layout.read(tape.data, tape.start, tape.end)
        if not isinstance(found, Wanted) or tape.lacks(found.bytes) or not tape.fill(found.bytes):
            return found


def _pass_over(tape: Tape, layout: Layout[M], broken: Wanted | Fault, report: Report) -> None:
    """Report what can't be read, and go on where the next message is proved, or nowhere."""
    began = tape.position
    found = _seek(tape, layout)
    lost = tape.position - began
    place, facts = (began, began + lost), {"bytes": lost}
    if isinstance(broken, Fault):
        report(Finding("invalid-size", *place, facts={"size": broken.size, "why": broken.why, **facts}))
    elif found:
        report(Finding("lost-bytes", *place, facts={**facts, "why": "a message whose CRC holds is found behind them"}))
    elif not tape.failed:
        why = f"{lost} bytes are left of the {broken.bytes} that it needs at least"
        report(Finding("truncated-tail", *place, facts={**facts, "why": why}))


def _pass_over_zeros(tape: Tape, layout: Layout[M], report: Report) -> None:
    began = tape.position
    # As many are kept as a message's header has, which begins with zeros itself.
    while tape.fill(layout.overhead + 1) and tape.position - began < MAX_UNKNOWN_STREAM:
        rest = len(bytes(tape.view[tape.start : tape.end]).lstrip(b"\0"))
        tape.start = tape.end - rest - layout.overhead
        if rest:
            _seek(tape, layout)
            facts = {"bytes": tape.position - began, "why": "zeros, and what follows them up to the next message"}
            report(Finding("lost-bytes", began, tape.position, facts=facts))
            return
    tape.use_up()
    end = tape.position
    report(Finding("zero-tail", began, end, facts={"bytes": end - began, "note": tape.of_zeros(began, end)}))


def _seek(tape: Tape, layout: Layout[M]) -> bool:
    """Have the tape begin where the next message is proved, or at the file's end; whether one is."""
    while True:
        tape.fill(SEARCH_REACH)
        behind = _next_proved(tape, layout)
        if behind is not None:
            tape.start = behind
            return True
        if tape.available < SEARCH_REACH:
            tape.use_up()
            return False
        tape.start = tape.end - _OVERLAP


def _next_proved(tape: Tape, layout: Layout[M]) -> int | None:
    """Where in the buffer the next message that is proved begins."""
    data, end, effort = tape.data, tape.end, _SEARCH_EFFORT
    for match in layout.candidate.finditer(data, tape.start + 1, end):
        at = match.start()
        effort -= layout.overhead
        found = layout.read(data, at, end)
        effort -= 0 if isinstance(found, (Wanted, Fault)) else found.end - at
        if layout.is_proved(data, at, end):
            return at
        if effort <= 0:
            break
    return None
