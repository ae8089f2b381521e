"""A state by key, as records make it: put, changed, removed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

Data = dict[str, Any]


class At(NamedTuple):
    """Where a record is: its ``offset`` and ``timestamp`` (epoch ms or None), and the bytes of its key and value."""

    offset: int
    timestamp: int | None
    size: int


@dataclass(frozen=True, slots=True)
class Item:
    """What holds for a key. ``entity`` is its kind, ``at`` the last record that said something of it.

    ``pending``: it does not hold yet, since its transaction is open.
    """

    entity: str
    key: Data
    data: Data
    at: At
    pending: bool = False


class State:
    """Items by entity and key, in the order in which they came to be."""

    def __init__(self) -> None:
        self._items: dict[tuple[str, str], Item] = {}

    def put(self, entity: str, key: Data, data: Data, at: At) -> None:
        """Let it hold, unless a later record says otherwise: what a transaction wrote comes to hold at its end."""
        place = _place(entity, key)
        known = self._items.get(place)
        if known is None or known.at.offset <= at.offset:
            self._items[place] = Item(entity, key, data, at)

    def merge(self, entity: str, key: Data, data: Data, at: At) -> None:
        """Change some fields of what is there."""
        place = _place(entity, key)
        known = self._items.get(place)
        self._items[place] = Item(entity, key, {**known.data, **data} if known else data, at)

    def remove(self, entity: str, key: Data) -> Item | None:
        """Forget it; what it was, if anything."""
        return self._items.pop(_place(entity, key), None)

    def get(self, entity: str, key: Data) -> Item | None:
        """What holds for a key."""
        return self._items.get(_place(entity, key))

    def remove_where(self, entity: str, unwanted: Callable[[Item], bool]) -> None:
        """Forget those of an entity."""
        for place in [place for place, item in self._items.items() if item.entity == entity and unwanted(item)]:
            del self._items[place]

    def change_where(self, entity: str, wanted: Callable[[Item], bool], change: Callable[[Data], Data]) -> None:
        """Change those of an entity."""
        for place, item in self._items.items():
            if item.entity == entity and wanted(item):
                self._items[place] = replace(item, data=change(item.data))

    def __iter__(self) -> Iterator[Item]:
        return iter(self._items.values())


def _place(entity: str, key: Data) -> tuple[str, str]:
    # Fields of a key have one order, that of its definition.
    return entity, repr(key)
