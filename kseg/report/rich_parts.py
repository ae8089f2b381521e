"""The parts of rich that kseg uses, imported at their first use: rich takes 0.1 s to import."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, TextIO

from kseg.lazy import lazy

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
