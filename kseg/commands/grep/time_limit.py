"""A limit on the time that a regular expression may search one text.

Python's matcher tries all ways to match: ``(a+)+$`` needs twice as long for each further character of a text like ``aaaa!``.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kseg.errors import UsageError

#: Seconds of processor time.
SECONDS = 10


class SlowPattern(UsageError):
    """A regular expression that searched one text for too long."""


class MatchClock:
    """Notices a match that takes too long.

    ``text`` is the searched text, None between searches. ``steps`` grows with each text and each match in it.
    """

    def __init__(self) -> None:
        self.text: str | None = None
        self.steps = 0
        self._steps_before = -1
        self._ticks = 0

    def tick(self, *_: Any) -> None:
        """Compare with a second ago. Raises SlowPattern."""
        same = self.text is not None and self.steps == self._steps_before
        self._ticks = self._ticks + 1 if same else 0
        self._steps_before = self.steps
        if self._ticks >= SECONDS:
            raise SlowPattern(
                f"the pattern has searched one text of {len(self.text or ''):,} characters for {SECONDS} s of processor "
                "time: write it without a repeat in a repeat, such as (a+)+, or search for a text with -F"
            )


@contextmanager
def limited(clock: MatchClock) -> Iterator[None]:
    """Call ``clock.tick`` after each second of processor time.

    A signal does it, since the matcher lets no other thread run. Python calls its handler in the main thread alone, and
    Windows lacks the timer: there is no limit then.
    """
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGVTALRM, clock.tick)
    signal.setitimer(signal.ITIMER_VIRTUAL, 1, 1)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
