"""The few exceptions a caller of kseg may see. Damage in a file is never one of them: it is a finding."""

from __future__ import annotations


class KsegError(Exception):
    """Something could not be done. ``str(error)`` is one line, fit for a person; the CLI ends with 2."""


class UnreadableError(KsegError):
    """A path that can't be opened or read: missing, forbidden, a failing disk, an unknown kind of file."""


class VanishedError(UnreadableError):
    """A path at which nothing is, or no more: beside a live broker segments come and go."""


class NotASegmentError(KsegError):
    """A file in which not one entry of a log could be found."""


class LimitError(KsegError):
    """More of something than is held in memory, where leaving some out would be wrong."""


class UsageError(KsegError):
    """Arguments that contradict each other or name what does not exist."""
