"""Ranges of offsets and times as options of the command line and of Spark: half-open, and any bound can be left out."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NUMBER = re.compile(r"-?[0-9]{1,19}")
_MILLISECOND = timedelta(milliseconds=1)


def parse_offsets(text: str) -> tuple[int | None, int | None]:
    """Return the first offset and the end (exclusive) of ``A:B``, ``A:`` or ``:B``. Raises ValueError."""
    first, colon, end = (part.strip() for part in text.partition(":"))
    try:
        bounds = int(first) if first else None, int(end) if end else None
    except ValueError:
        bounds = None, None
    if not colon or bounds == (None, None):
        raise ValueError(f"expected A:B, A: or :B (B is exclusive), got {text!r}")
    if bounds[0] is not None and bounds[1] is not None and bounds[0] >= bounds[1]:
        raise ValueError(f"expected A < B in A:B (B is exclusive), got {text!r}")
    return bounds


def parse_time(text: str) -> int:
    """Return the epoch milliseconds of an ISO 8601 time (UTC without a zone) or of a number. Raises ValueError.

    A time between two milliseconds is the later one: timestamps have milliseconds, and those from then on are the same.
    """
    if _NUMBER.fullmatch(text) and abs(int(text)) < 1 << 63:
        return int(text)
    try:
        return -((_EPOCH - _with_zone(datetime.fromisoformat(text))) // _MILLISECOND)
    except (ValueError, OverflowError):
        raise ValueError(
            f"expected ISO 8601, such as 2024-05-01T12:00:00Z, or epoch milliseconds, got {text!r}"
        ) from None


def milliseconds(moment: datetime) -> int:
    """Return epoch milliseconds, rounded down; a time without a zone is UTC."""
    return (_with_zone(moment) - _EPOCH) // _MILLISECOND


def _with_zone(moment: datetime) -> datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
