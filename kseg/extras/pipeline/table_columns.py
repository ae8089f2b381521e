"""The tables of a configuration file: values by their kind, and the columns of a table of rows.

The columns have names, and the paths of records and of fields that fill them.

A path is a column of the view of records, or a field of a decoded key or value: ``value.total.amount``. A name with other
characters is in brackets, as in a path of JSON: ``value['user.id']``. A type can follow: ``value.total::decimal(18,2)``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import count
from typing import Any

from kseg.commands.grep.matches import QUOTED, unquoted
from kseg.errors import UsageError
from kseg.extras.views.view_table import VIEWS
from kseg.schema import CONTENT_COLUMNS, Column
from kseg.text import one_of, unknown_name

#: An amount with its unit.
_NUMBER = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]+)")


class SettingsSection:
    """A table of the configuration. It remembers the keys that were asked for, so that all others are errors."""

    def __init__(self, path: str, name: str, values: Any) -> None:
        self._path, self._name = path, name
        if not isinstance(values, dict):
            raise UsageError(f"{path}: {name}: expected a table, [{name}]")
        self._values: dict[str, Any] = values
        self._known: set[str] = set()

    def has(self, key: str) -> bool:
        return key in self._values

    def value(self, key: str) -> Any:
        """Return a value of any type, None without one."""
        self._known.add(key)
        return self._values.get(key)

    def wrong(self, key: str, expected: str) -> UsageError:
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


#: The columns of a table without ``columns``.
DEFAULT_COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
#: Those of a table with the fields of its topic's schema.
TYPED_COLUMNS = ("topic", "partition", "offset", "timestamp", "key")
#: The columns that each table has: without them a row cannot be found again.
REQUIRED_COLUMNS = ("partition", "offset")
_CASTS = {
    "bigint": "int", "int": "int32", "double": "float", "float": "float32", "boolean": "bool", "text": "text",
    "timestamp": "timestamp", "date": "date",
}  # fmt: skip
_DECIMAL = re.compile(r"decimal\((?:[1-9]|[12]\d|3[0-8]),(?:[12]?\d|3[0-8])\)")
_RECORD_NAMES = [column.name for column in VIEWS["records"].columns]

#: A field in a path: up to a dot, a bracket or a type; or in quotes.
_FIELD = re.compile(rf"\.(?P<name>(?:(?!::)[^.\[])+)|\[(?:{QUOTED})\]", re.DOTALL)


@dataclass(frozen=True, slots=True)
class TablePath:
    """A column of a table: its name, the column of the view, the names of the fields in it, and a type to ``cast`` to."""

    name: str
    column: str
    fields: tuple[str, ...] = ()
    cast: str = ""

    @property
    def path(self) -> str:
        """The path as the configuration has it."""
        first = self.column.removesuffix("_decoded") if self.fields else self.column
        return "".join((first, *map(shown_field, self.fields)))


def shown_field(name: str) -> str:
    """Return the name of a field as it follows in a path, in quotes if it needs them."""
    plain = f".{name}"
    if (match := _FIELD.fullmatch(plain)) and match["name"] == name.strip():
        return plain
    return "['{}']".format(re.sub(r"([\\'])", r"\\\1", name))


def paths_of(section: SettingsSection, day: str, *, typed: bool, with_errors: bool) -> tuple[TablePath, ...]:
    """Return the columns of a table: a list of names, or a table of names and paths; those that a table needs come first.

    ``day`` is the column of its days, "" in a table without them. A table ``with_errors`` has the column ``value_error``,
    also if the configuration has no columns. Raises UsageError.
    """
    given = section.value("columns")
    if isinstance(given, dict):
        needed = (*REQUIRED_COLUMNS, "timestamp") if day else REQUIRED_COLUMNS
        texts = {**dict(zip(needed, needed, strict=True)), **given}
        if wrong := [name for name in needed if texts[name] != name]:
            raise section.wrong("columns", f"the column {wrong[0]} of the records under its name")
    else:
        names = section.texts("columns") or (TYPED_COLUMNS if typed else DEFAULT_COLUMNS)
        if with_errors and not section.has("columns"):
            names = (*names, "value_error")
        texts = {name: name for name in names}
    found = tuple(_path(section, name, text) for name, text in texts.items())
    if missing := [column for column in REQUIRED_COLUMNS if column not in texts]:
        raise section.wrong("columns", f"{' and '.join(missing)} among the names")
    if day and "timestamp" not in texts:
        raise section.wrong("columns", 'timestamp among the names, or partition = "none"')
    _check_distinct(section, texts, day)
    return found


def _check_distinct(section: SettingsSection, names: Iterable[str], day: str) -> None:
    """Raise UsageError for two names that tables do not distinguish, and for the name of the column of days."""
    known: dict[str, str] = {}
    for name in names:
        other = known.setdefault(name.lower(), name)
        if other != name:
            raise section.wrong("columns", f"names that tables distinguish, unlike {other} and {name}")
        if name.lower() == day:
            raise section.wrong("columns", f"another name than {name}, by which the table has its days")


def _path(section: SettingsSection, name: str, text: Any) -> TablePath:
    if not isinstance(text, str):
        raise section.wrong("columns", "a list of names, or a table with texts such as value.total::decimal(18,2)")
    first, fields, cast = _parsed(section, text.strip())
    kind = _CASTS.get(cast, cast if _DECIMAL.fullmatch(cast) else "")
    if cast and not kind:
        raise section.wrong("columns", f"a type among {', '.join(_CASTS)}, decimal(p,s) after ::")
    known = [*_RECORD_NAMES, *(column.name for columns in CONTENT_COLUMNS.values() for column in columns)]
    if first not in known:
        shown = [*known, "value.FIELD", "key.FIELD"]
        raise section.wrong("columns", f"names of records; {unknown_name('column', first, shown)}")
    return TablePath(name, first, fields, kind)


def _parsed(section: SettingsSection, text: str) -> tuple[str, tuple[str, ...], str]:
    """Return the column of the view, the fields in it, and the type of a text. Raises UsageError."""
    first = re.split(r"\.|\[|::", text, maxsplit=1)[0]
    fields, at = [], len(first)
    while match := _FIELD.match(text, at):
        quoted = unquoted(match)
        fields.append(match["name"].strip() if quoted is None else quoted)
        at = match.end()
    path, separator, cast = text[:at], text[at:].strip()[:2], "".join(text[at:].lower().split())[2:]
    if separator not in ("", "::") or (separator and not cast):
        expected = "a type" if separator == "::" else ".FIELD, ['FIELD'] or ::TYPE"
        raise section.wrong("columns", f"{expected} after {path} in {text}")
    return f"{first.strip()}_decoded" if fields else first.strip(), tuple(fields), cast


def names_of_fields(fields: Iterable[Column], taken: Iterable[str] = ()) -> Iterator[str]:
    """Yield the names of columns for fields: no table distinguishes two of them, or one and those that are ``taken``.

    A field has its name; ``value_NAME`` if another column of the record has it, and a number if an earlier field has it. So
    a name depends on the fields before it only: a field that is added after them renames no column.
    """
    own = {name.lower() for name in taken}
    used = set(own)
    for field in fields:
        plain = f"value_{field.name}" if field.name.lower() in own else field.name
        tries = (plain if number == 1 else f"{plain}_{number}" for number in count(1))
        name = next(one for one in tries if one.lower() not in used)
        used.add(name.lower())
        yield name


def with_distinct_fields(column: Column) -> Column:
    """Return a column whose structs have no two fields with names that tables do not distinguish."""
    inner = tuple(map(with_distinct_fields, column.of))
    if column.type == "struct":
        names = names_of_fields(inner)
        inner = tuple(field._replace(name=name) for field, name in zip(inner, names, strict=True))
    return column._replace(of=inner)
