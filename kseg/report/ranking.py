"""Long tables of ranked rows: the worst first, and equal ones folded, so that the answer fits on a screen."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

from kseg.report.tables import TableColumn
from kseg.text import escape_controls

Item = TypeVar("Item")

#: The number of ranked items up to which each has its own row, and the most rows of groups.
MOST_ROWS = 12
MOST_GROUPS = 8
#: The most names of a list in a cell.
MOST_NAMES = 5


def fold(
    items: Sequence[Item], key: Callable[[Item], tuple[Hashable, ...]], *, whole: bool = False, most: int = MOST_ROWS
) -> list[list[Item]]:
    """Return ranked items as groups, one per row.

    At most ``most`` items, or with ``whole`` all, are a group each. Of many, those with an equal ``key`` are one group.
    The first value of a key is the rank: groups after the first ``MOST_GROUPS`` are joined with those of their rank only.
    """
    if whole or len(items) <= most:
        return [[item] for item in items]
    equal: dict[tuple[Hashable, ...], list[Item]] = {}
    for item in items:
        equal.setdefault(key(item), []).append(item)
    keys = list(equal)
    alone, ranks = len(keys), set[Hashable]()
    while alone and alone + len(ranks) > MOST_GROUPS:
        alone -= 1
        ranks.add(keys[alone][0])
    joined: dict[tuple[Hashable, ...], list[Item]] = {}
    for n, one in enumerate(keys):
        joined.setdefault(one if n < alone else one[:1], []).extend(equal[one])
    return list(joined.values())


def rule_columns(first: str, count: str) -> tuple[TableColumn, ...]:
    """Return the columns of a table with a row per rule: ``first``, the rule, a number, and the first place."""
    return (
        TableColumn(first),
        TableColumn("rule", text="wrap"),
        TableColumn(count, right=True),
        TableColumn("the first", text="wrap"),
    )


def times(text: str, count: int) -> str:
    """Return the cell of ``count`` equal things in one row."""
    return text + (f" ×{count:,}" if count > 1 else "")


def names_text(names: Iterable[str]) -> str:
    """Return the first of some names of files or folders, escaped, and the number of the others."""
    first, *others = names
    return escape_controls(first) + (f" and {len(others):,} more" if others else "")


def some_text(names: Sequence[str]) -> str:
    """Return the first ``MOST_NAMES`` of some names with commas, and the number of the others."""
    more = len(names) - MOST_NAMES
    return ", ".join(names) if more < 2 else f"{', '.join(names[:MOST_NAMES])} and {more:,} more"


def common_text(texts: Iterable[str]) -> str:
    """Return the different ones of some texts, or ``several`` if they are many."""
    different = dict.fromkeys(texts)
    return ", ".join(different) if len(different) <= 2 else "several"
