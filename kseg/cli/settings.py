"""Default options from ``kseg.toml`` or ``[tool.kseg]`` in ``pyproject.toml`` in the working folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from kseg.errors import UsageError
from kseg.lazy import lazy
from kseg.text import unknown_name

if TYPE_CHECKING:
    import tomllib
else:
    tomllib = lazy("tomllib")


def read_settings(folder: Path, known: set[str]) -> dict[str, Any]:
    """Return options of ``kseg validate`` by name, with dashes or underscores; ``rule`` can be a table.

    Raises UsageError for a file that is not TOML and for unknown names.
    """
    for name, place in (("kseg.toml", ()), ("pyproject.toml", ("tool", "kseg"))):
        path = folder / name
        if not path.is_file():
            continue
        try:
            table: Any = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            if place:
                continue  # a broken pyproject.toml is reported by the tools that own it
            raise UsageError(f"{name}: {error}") from error
        for key in place:
            table = table.get(key, {})
        if table:
            return _options(table, name, known)
    return {}


def _as_written(known: set[str]) -> list[str]:
    """Return the names with dashes, as the options of the command line."""
    return [name.replace("_", "-") for name in sorted(known)]


def _options(table: dict[str, Any], name: str, known: set[str]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for key, value in table.items():
        option = key.replace("-", "_")
        if option not in known:
            raise UsageError(f"{name}: {unknown_name('setting', key, _as_written(known))}")
        if option == "rule" and isinstance(value, dict):
            value = [f"{rule}={severity}" for rule, severity in value.items()]
        options[option] = [value] if option == "rule" and isinstance(value, str) else value
    return options
