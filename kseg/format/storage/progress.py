"""Progress callbacks."""

from __future__ import annotations

from collections.abc import Callable

#: Called with the bytes read since the last call.
Progress = Callable[[int], None]


def no_progress(count: int) -> None:
    """Ignore progress."""
