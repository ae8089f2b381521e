"""A map from numbers to values in bounded memory, such as the state of producers by their ids.

It has two tables. When the young table is full, it becomes the old table, and the previous old table is dropped. So the
``LIMIT`` numbers that were stored last are always known, at most twice as many are held, and the time to store one is
constant.
"""

from __future__ import annotations

from typing import Any

#: Numbers that are never dropped. A broker drops a producer that was idle for a day, and with default settings its memory
#: does not hold as many producers of one partition.
LIMIT = 100_000

# A C constant when compiled.
FULL = LIMIT


class BoundedMap:
    """Values by number. ``old`` is empty until more than LIMIT numbers were stored.

    ``forgot`` is whether a number was dropped.
    """

    def __init__(self) -> None:
        self.young: dict[int, Any] = {}
        self.old: dict[int, Any] = {}
        self.forgot = False

    def get(self, number: int) -> Any:
        """Return the last value of a number, or None if the number is unknown or was dropped."""
        found = self.young.get(number)
        if found is None and self.old:
            found = self.old.get(number)
        return found

    def put(self, number: int, value: Any) -> None:
        """Store a value."""
        if len(self.young) >= FULL and number not in self.young:
            self.forgot = self.forgot or not self.old.keys() <= self.young.keys()
            self.old = self.young
            self.young = {}
        self.young[number] = value

    def drop(self, number: int) -> None:
        """Remove a number."""
        self.young.pop(number, None)
        self.old.pop(number, None)

    def forget(self) -> None:
        """Remove all numbers."""
        self.forgot = self.forgot or bool(self.young or self.old)
        self.young = {}
        self.old = {}

    def all(self) -> dict[int, Any]:
        """Return all known values as a new dict."""
        return {**self.old, **self.young}

    def copy(self) -> BoundedMap:
        """Return an independent copy."""
        copied = BoundedMap()
        copied.young, copied.old, copied.forgot = dict(self.young), dict(self.old), self.forgot
        return copied
