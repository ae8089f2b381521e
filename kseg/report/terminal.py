"""The terminal: its one owner at a time, and the parts of rich that draw on it.

The progress bar disappears while results or messages are written.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TextIO

from kseg.engine import lazy

#: Seconds without other output before the bar is drawn again.
QUIET = 0.3


class Drawing(Protocol):
    """The methods of a progress bar: to appear on the line of the cursor, and to disappear from it."""

    def start(self) -> None: ...
    def stop(self) -> None: ...


class Screen:
    """Decides when the bar is drawn. All writers to the terminal of one process use the same screen."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._bar: Drawing | None = None
        self._written_at = 0.0
        self._at_line_start = True

    @contextmanager
    def writing(self, data: Any) -> Iterator[None]:
        """Hide the bar while ``data`` (text or bytes) is written in this block."""
        with self._lock:
            self.hide()
            yield
            if len(data):
                self._written_at = time.monotonic()
                self._at_line_start = data[-1:] in ("\n", b"\n")

    def hide(self) -> None:
        """Remove the bar from the terminal."""
        with self._lock:
            if self._bar is not None:
                self._bar.stop()
                self._bar = None

    @contextmanager
    def drawing(self, bar: Drawing) -> Iterator[bool]:
        """Yield whether the bar may be drawn in this block: not in the middle of a line, nor between lines that follow
        each other fast.
        """
        with self._lock:
            if self._bar is None and self._at_line_start and time.monotonic() - self._written_at >= QUIET:
                bar.start()
                self._bar = bar
            yield self._bar is bar


#: The screen of this process.
screen = Screen()


if TYPE_CHECKING:
    from rich import progress as progress
    from rich.cells import cell_len as cell_len
    from rich.console import Console as Console
    from rich.segment import Segment as Segment
else:
    _NEEDED = "tables and the progress bar need rich: pip install rich"
    progress = lazy("rich.progress", needed=_NEEDED)
    cell_len = lazy("rich.cells", "cell_len", needed=_NEEDED)
    Console = lazy("rich.console", "Console", needed=_NEEDED)
    Segment = lazy("rich.segment", "Segment", needed=_NEEDED)


def console(out: TextIO) -> Any:
    """Return a rich console that writes text to a terminal without markup or highlighting."""
    shown: Any = Console(file=out, highlight=False, markup=False, emoji=False)
    shown.on_broken_pipe = _broken_pipe
    return shown


def _broken_pipe() -> NoReturn:
    """Raise BrokenPipeError; rich itself would exit with code 1."""
    raise BrokenPipeError
