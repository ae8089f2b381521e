"""The faults that end a broker, or take a log directory offline, while it loads its logs."""

from __future__ import annotations


class RefusedError(Exception):
    """A fault that ends the broker. ``why`` is the reason in one line; ``file`` is a name, None for the current
    file.
    """

    def __init__(self, why: str, file: str | None = None) -> None:
        super().__init__(why)
        self.why = why
        self.file = file


class OfflineError(RefusedError):
    """A fault that takes the log dir offline. Without another log dir the broker ends."""
