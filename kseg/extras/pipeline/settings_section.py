"""A table of a configuration file, whose values are read by their kind."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from kseg.errors import UsageError
from kseg.text import one_of, unknown_name

_NUMBER = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]+)")


class SettingsSection:
    """A table of the file. It remembers the keys that were asked for, so that all others are errors."""

    def __init__(self, path: str, name: str, values: Any) -> None:
        self._path, self._name = path, name
        if not isinstance(values, dict):
            raise UsageError(f"{path}: {name}: expected a table, [{name}]")
        self._values: dict[str, Any] = values
        self._known: set[str] = set()

    def has(self, key: str) -> bool:
        """Return whether the file has the key."""
        return key in self._values

    def value(self, key: str) -> Any:
        """Return a value of any type, None without one."""
        self._known.add(key)
        return self._values.get(key)

    def wrong(self, key: str, expected: str) -> UsageError:
        """Return the error of a value."""
        place = f"{self._name}.{key}".strip(".")
        return UsageError(f"{self._path}: {place}: expected {expected}, got {self._values.get(key)!r}")

    def section(self, key: str) -> SettingsSection:
        """Return the table of a key, an empty one without it. Raises UsageError if the value is not a table."""
        return SettingsSection(self._path, key, self.value(key) or {})

    def tables(self, key: str) -> dict[str, Any]:
        """Return the tables in the table of a key, by name. Raises UsageError."""
        return self.section(key)._values

    def text(self, key: str, default: str = "", *, required: bool = False) -> str:
        """Return a text. Raises UsageError for another type, an empty text, and a ``required`` key that is missing."""
        value = self.value(key)
        if value is None and required:
            if get_close_matches(key, self._values):
                self.check_known()
            raise UsageError(f"{self._path}: {self._name}.{key} is missing")
        if value is not None and (not isinstance(value, str) or not value):
            raise self.wrong(key, "a text in quotes")
        return default if value is None else value

    def texts(self, key: str) -> list[str]:
        """Return a list of texts, or the one text that is there instead. Raises UsageError for other types."""
        value = self.value(key)
        found = [value] if isinstance(value, str) else value or []
        if not isinstance(found, list) or not all(isinstance(one, str) and one for one in found):
            raise self.wrong(key, "a list of texts")
        return found

    def choice(self, key: str, choices: Sequence[str]) -> str:
        """Return a text that is one of ``choices``, the first of them without a value. Raises UsageError."""
        value = self.text(key, choices[0])
        if value not in choices:
            raise self.wrong(key, one_of(list(choices)))
        return value

    def amount(self, key: str, units: Mapping[str, int], example: str, default: float) -> float:
        """Return a number times its unit, such as ``10 min``. Raises UsageError, which shows the ``example``."""
        match = _NUMBER.fullmatch(text := self.text(key))
        if text and (match is None or (match[2] not in units and match[2].upper() not in units)):
            raise self.wrong(key, f'an amount such as "{example}"')
        return float(match[1]) * (units.get(match[2]) or units[match[2].upper()]) if match else default

    def check_known(self) -> None:
        """Raise UsageError for a key that nothing has asked for."""
        for key in self._values:
            if key not in self._known:
                where = f" in [{self._name}]" if self._name else ""
                raise UsageError(f"{self._path}: {unknown_name('key', key, sorted(self._known))}{where}")
