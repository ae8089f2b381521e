"""The exceptions that kseg raises. Damage in a file is a finding, never an exception."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar


class KsegError(Exception):
    """The base of all errors. ``str(error)`` is one readable line; the command line ends with exit code 2."""


class UnreadableError(KsegError):
    """A path that can't be opened or read: missing, forbidden, a failing disk, an unknown kind of file."""


class VanishedError(UnreadableError):
    """A path that does not exist, or no longer: a live broker creates and deletes segments."""


class NotASegmentError(KsegError):
    """A file without any batch."""


class LimitError(KsegError):
    """A limit of memory is exceeded, and dropping data would be wrong."""


class UsageError(KsegError):
    """Arguments that contradict each other or name what does not exist."""


_Reason = TypeVar("_Reason", KsegError, str)

#: Called with the error of a file that cannot be read. If it returns, results that need the file are unknown.
ReportUnread = Callable[[KsegError], object]


def each_once(report: Callable[[_Reason], object]) -> Callable[[_Reason], None]:
    """Return a function that reports each reason once: several readers can need one file."""
    reported: set[str] = set()

    def tell(reason: _Reason) -> None:
        if str(reason) not in reported:
            report(reason)
            reported.add(str(reason))

    return tell


def raise_unread(error: KsegError) -> None:
    """Raise the error: the result would depend on unknown data."""
    raise error
