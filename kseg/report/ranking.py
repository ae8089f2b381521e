"""Long tables of ranked rows: the worst first, and equal ones folded, so that the answer fits on a screen."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

from kseg.text import escape_controls

Item = TypeVar("Item")

#: The number of ranked items up to which each has its own row, and the most rows of groups.
MOST_ROWS = 12
MOST_GROUPS = 8


def fold(items: Sequence[Item], key: Callable[[Item], Hashable], *, whole: bool = False) -> list[list[Item]]:
    """Return ranked items as groups, one per row.

    Few items, or with ``whole`` all, are a group each. Of many, those with an equal ``key`` are one group; the last of
    ``MOST_GROUPS`` groups has all that are left.
    """
    if whole or len(items) <= MOST_ROWS:
        return [[item] for item in items]
    equal: dict[Hashable, list[Item]] = {}
    for item in items:
        equal.setdefault(key(item), []).append(item)
    groups = list(equal.values())
    first, others = groups[: MOST_GROUPS - 1], groups[MOST_GROUPS - 1 :]
    return first + ([[item for group in others for item in group]] if others else [])


def names_text(names: Iterable[str]) -> str:
    """Return the first of some names of files or folders, escaped, and the number of the others."""
    first, *others = names
    return escape_controls(first) + (f" and {len(others):,} more" if others else "")


def common_text(texts: Iterable[str]) -> str:
    """Return the different ones of some texts, or ``several`` if they are many."""
    different = dict.fromkeys(texts)
    return ", ".join(different) if len(different) <= 2 else "several"
