"""Long tables of ranked rows: the worst first, and equal ones folded, so that the answer fits on a screen."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)

#: The number of ranked items up to which each has its own row, and the most rows of groups.
MOST_ROWS = 12
MOST_GROUPS = 8
#: The most names of a list in a cell.
MOST_NAMES = 5


def grouped(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """Return the items by their key, in the order in which the keys occur."""
    found: dict[Key, list[Item]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return found


def fold(
    items: Sequence[Item], key: Callable[[Item], tuple[Hashable, ...]], *, whole: bool = False, most: int = MOST_ROWS
) -> list[list[Item]]:
    """Return ranked items as groups, one per row.

    At most ``most`` items, or with ``whole`` all, are a group each. Of many, those with an equal ``key`` are one group.
    The first value of a key is the rank: groups after the first ``MOST_GROUPS`` are joined with those of their rank only.
    """
    if whole or len(items) <= most:
        return [[item] for item in items]
    equal = grouped(items, key)
    keys = list(equal)
    alone, ranks = len(keys), set[Hashable]()
    while alone and alone + len(ranks) > MOST_GROUPS:
        alone -= 1
        ranks.add(keys[alone][0])
    joined: dict[tuple[Hashable, ...], list[Item]] = {}
    for n, one in enumerate(keys):
        joined.setdefault(one if n < alone else one[:1], []).extend(equal[one])
    return list(joined.values())


def times(text: str, count: int) -> str:
    """Return the cell of ``count`` equal things in one row."""
    return text + (f" ×{count:,}" if count > 1 else "")


def first_text(text: str, count: int) -> str:
    """Return the text of the first of ``count`` things in one row."""
    return f"the first: {text}" if text and count > 1 else text


def names_text(names: Iterable[str]) -> str:
    """Return the first of some names of files or folders, and the number of the others; empty without names."""
    first, *others = [*names] or [""]
    return first + (f" and {len(others):,} more" if others else "")


def some_text(names: Sequence[str]) -> str:
    """Return the first ``MOST_NAMES`` of some names with commas, and the number of the others."""
    more = len(names) - MOST_NAMES
    return ", ".join(names) if more < 2 else f"{', '.join(names[:MOST_NAMES])} and {more:,} more"


def common_text(texts: Iterable[str]) -> str:
    """Return the different ones of some texts, or ``several`` if they are many."""
    different = dict.fromkeys(texts)
    return ", ".join(different) if len(different) <= 2 else "several"
