"""What was noted last of each of many numbers, as of producers by their ids, in memory that does not grow with them.

Two tables: where the young one is full it becomes the old one, and what was the old one is forgotten. So the last
``LIMIT`` numbers that were noted are always known, up to twice as many are held, and noting one takes the same time
however many there were.
"""

from __future__ import annotations

from typing import Any

#: Numbers that are remembered for certain. A broker forgets a producer that was idle for a day, and its default quota
#: of memory does not bear as many producers of one partition.
LIMIT = 100_000

# A C global when compiled (see the .pxd).
FULL = LIMIT


class BoundedMap:
    """Values by number. ``old`` is empty as long as there were no more than LIMIT numbers.

    ``forgot`` is whether a number that was noted is no longer known.
    """

    def __init__(self) -> None:
        self.young: dict[int, Any] = {}
        self.old: dict[int, Any] = {}
        self.forgot = False

    def get(self, number: int) -> Any:
        """The value noted last of a number, None if there is none or it was forgotten."""
        found = self.young.get(number)
        if found is None and self.old:
            found = self.old.get(number)
        return found

    def put(self, number: int, value: Any) -> None:
        """Note a value."""
        if len(self.young) >= FULL and number not in self.young:
            self.forgot = self.forgot or not self.old.keys() <= self.young.keys()
            self.old = self.young
            self.young = {}
        self.young[number] = value

    def drop(self, number: int) -> None:
        """Unlearn a number."""
        self.young.pop(number, None)
        self.old.pop(number, None)

    def forget(self) -> None:
        """Unlearn all."""
        self.forgot = self.forgot or bool(self.young or self.old)
        self.young = {}
        self.old = {}

    def all(self) -> dict[int, Any]:
        """All that is known, in a table of its own."""
        return {**self.old, **self.young}

    def copy(self) -> BoundedMap:
        """Return another one that knows the same."""
        copied = BoundedMap()
        copied.young, copied.old, copied.forgot = dict(self.young), dict(self.old), self.forgot
        return copied
