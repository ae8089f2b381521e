"""A keyed state, to which records are applied: put, merge, remove."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

Data = dict[str, Any]


class RecordPlace(NamedTuple):
    """The place of a record: ``offset``, ``timestamp`` (epoch ms or None), and ``size``: bytes of its key and value."""

    offset: int
    timestamp: int | None
    size: int


@dataclass(frozen=True, slots=True)
class Item:
    """The value of a key. ``entity`` is its kind, ``at`` the place of the last record that changed it.

    ``pending``: the value is not effective yet, because its transaction is open.
    """

    entity: str
    key: Data
    data: Data
    at: RecordPlace
    pending: bool = False


class State:
    """Items by entity and key, in the order of their creation."""

    def __init__(self) -> None:
        self._items: dict[tuple[str, str], Item] = {}

    def put(self, entity: str, key: Data, data: Data, at: RecordPlace) -> None:
        """Set a value unless a later record has already set it.

        The order matters because values of a transaction are applied at its commit.
        """
        place = _place(entity, key)
        known = self._items.get(place)
        if known is None or known.at.offset <= at.offset:
            self._items[place] = Item(entity, key, data, at)

    def merge(self, entity: str, key: Data, data: Data, at: RecordPlace) -> None:
        """Change some fields of an item, or create it."""
        place = _place(entity, key)
        known = self._items.get(place)
        self._items[place] = Item(entity, key, {**known.data, **data} if known else data, at)

    def remove(self, entity: str, key: Data) -> Item | None:
        """Remove an item and return it, or None."""
        return self._items.pop(_place(entity, key), None)

    def get(self, entity: str, key: Data) -> Item | None:
        """Return the item of a key, or None."""
        return self._items.get(_place(entity, key))

    def remove_where(self, entity: str, unwanted: Callable[[Item], bool]) -> None:
        """Remove the items of an entity for which ``unwanted`` returns true."""
        for place in [place for place, item in self._items.items() if item.entity == entity and unwanted(item)]:
            del self._items[place]

    def change_where(self, entity: str, wanted: Callable[[Item], bool], change: Callable[[Data], Data]) -> None:
        """Replace the data of the items of an entity for which ``wanted`` returns true."""
        for place, item in self._items.items():
            if item.entity == entity and wanted(item):
                self._items[place] = replace(item, data=change(item.data))

    def __iter__(self) -> Iterator[Item]:
        return iter(self._items.values())


def _place(entity: str, key: Data) -> tuple[str, str]:
    # The fields of a key are in the order of its definition.
    return entity, repr(key)
