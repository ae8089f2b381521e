"""Default options from ``kseg.toml`` or ``[tool.kseg]`` in ``pyproject.toml`` in the working folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from kseg.errors import UsageError
from kseg.lazy import lazy
from kseg.text import to_json, unknown_name

if TYPE_CHECKING:
    import tomllib
else:
    tomllib = lazy("tomllib")


class Setting(NamedTuple):
    """A value of a settings file. ``key`` is the name as the file has it, with dashes or underscores."""

    file: str
    key: str
    value: Any


def read_settings(folder: Path, known: set[str]) -> dict[str, Setting]:
    """Return options of ``kseg validate`` by name with dashes, such as those in ``known``; ``rule`` can be a table.

    Raises UsageError for a file that is not TOML and for unknown names.
    """
    for name, place in (("kseg.toml", ()), ("pyproject.toml", ("tool", "kseg"))):
        path = folder / name
        if not path.is_file():
            continue
        try:
            text = path.read_text(encoding="utf-8")
            if place and "kseg" not in text:
                continue  # parsing most projects' files would take 3 ms for nothing
            table: Any = tomllib.loads(text)
        except (OSError, ValueError) as error:
            if place:
                continue  # a broken pyproject.toml is reported by the tools that own it
            raise UsageError(f"{name}: {_reason(error)}") from error
        for key in place:
            table = table.get(key, {})
        if table:
            return _options(table, name, known)
    return {}


def check_type(parameter: click.Parameter, value: Any) -> None:
    """Raise UsageError unless a value of a settings file has the type that an option needs."""
    if isinstance(parameter, click.Option) and parameter.is_flag:
        expected, valid = "true or false", isinstance(value, bool)
    elif parameter.multiple:
        expected, valid = "a list of texts", isinstance(value, list) and all(isinstance(one, str) for one in value)
    elif isinstance(parameter.type, click.IntRange):
        # The range is checked later.
        expected, valid = "a whole number", isinstance(value, int) and not isinstance(value, bool)
    else:
        expected, valid = "a text in quotes", isinstance(value, str)
    if not valid:
        raise UsageError(f"expected {expected}, got {to_json(value) if isinstance(value, (bool, str)) else value}")


def _reason(error: OSError | ValueError) -> str:
    if isinstance(error, UnicodeDecodeError):
        return f"byte {error.start} is not UTF-8: expected a text file in TOML"
    return (isinstance(error, OSError) and error.strerror) or str(error)


def _options(table: dict[str, Any], name: str, known: set[str]) -> dict[str, Setting]:
    options: dict[str, Setting] = {}
    for key, value in table.items():
        option = key.replace("_", "-")
        if option not in known:
            raise UsageError(f"{name}: {unknown_name('setting', key, sorted(known))}")
        if option == "rule" and isinstance(value, dict):
            value = [f"{rule}={severity}" for rule, severity in value.items()]
        options[option] = Setting(name, key, [value] if option == "rule" and isinstance(value, str) else value)
    return options
