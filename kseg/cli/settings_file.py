"""Default options from ``kseg.toml`` or ``[tool.kseg]`` in ``pyproject.toml`` in the working folder."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from click.core import ParameterSource

from kseg.cli.messages import note
from kseg.cli.option_rules import OLD_NAMES
from kseg.engine import lazy
from kseg.errors import UsageError
from kseg.findings import Policy
from kseg.text import to_json, unknown_name

if TYPE_CHECKING:
    import tomllib
else:
    tomllib = lazy("tomllib")

# Options that a settings file cannot set.
_OF_ONE_RUN = {"paths", "output", "inventory", "cache", "framings", "reports", "write_baseline", "compression_type"}


class Setting(NamedTuple):
    """A value of a settings file. ``key`` is the name as the file has it, with dashes or underscores."""

    file: str
    key: str
    value: object


def setting_names(options: Iterable[str]) -> list[str]:
    """Return the names of those options that a settings file can set, with dashes."""
    return sorted(name.replace("_", "-") for name in options if name not in _OF_ONE_RUN)


#: Raises UsageError for the values of options, and the fields among them that are set, that cannot be used together.
_Check = Callable[[Mapping[str, Any], set[str]], object]


def read(context: click.Context, check: _Check) -> tuple[str, dict[str, Any]]:
    """Return the settings file, and its options that are used together with those of the command line, by field.

    Raises UsageError.
    """
    found = _read_settings(Path.cwd(), set(setting_names(context.params)))
    options: dict[str, Any] = {}
    for parameter in context.command.params:
        name = parameter.name or ""
        setting = found.get(name.replace("_", "-"))
        if setting and context.get_parameter_source(name) is not ParameterSource.COMMANDLINE:
            try:
                _check_type(parameter, setting.value)
                options[name] = parameter.type_cast_value(context, setting.value)
                if name == "rule":
                    Policy.parse(options[name])
            except (click.BadParameter, UsageError) as error:
                why = error.message if isinstance(error, click.BadParameter) else str(error)
                raise UsageError(f"{setting.file}: {setting.key}: {why}") from error
    file = next((setting.file for setting in found.values()), "")
    return file, _beside_command_line(context, file, options, check)


def _beside_command_line(context: click.Context, file: str, read: Mapping[str, Any], check: _Check) -> dict[str, Any]:
    """Return those options of the settings file that can be used with the options of the command line.

    Raises UsageError if options of the file cannot be used together, whatever the command line has.
    """
    options = [one for one in context.command.params if isinstance(one, click.Option)]
    by_user = {one.name for one in options if context.get_parameter_source(one.name) is ParameterSource.COMMANDLINE}
    without = {one.name: one.process_value(context, one.get_default(context)) for one in options if one.name in by_user}
    kept: dict[str, Any] = {}
    for field, value in read.items():
        try:
            check({**context.params, **kept, field: value}, {*by_user, *kept, field})
        except UsageError:
            with naming_file(file, read):
                check({**context.params, **without, **read}, {*read})
        else:
            kept[field] = value
    return kept


@contextmanager
def naming_file(file: str, fields: Collection[str]) -> Iterator[None]:
    """Name the settings file in a UsageError about options that it sets: the user has not given them."""
    try:
        yield
    except UsageError as error:
        names = "|".join(field.replace("_", "-") for field in fields)
        text, found = re.subn(rf"--({names})(?![\w-])", r"\1", str(error))
        if not found:
            raise
        raise UsageError(f"{file}: {text}") from error


def _read_settings(folder: Path, known: set[str]) -> dict[str, Setting]:
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
            raise UsageError(f"{name}: {_reason(error)}") from error
        for depth, key in enumerate(place, 1):
            table = table.get(key, {})
            if not isinstance(table, dict):
                raise UsageError(f"{name}: {'.'.join(place[:depth])}: expected a table, got {table!r}")
        if table:
            return _options(table, name, known)
    return {}


def _check_type(parameter: click.Parameter, value: object) -> None:
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
        new = OLD_NAMES.get(("validate", f"--{option}"), "").removeprefix("--")
        if new in known:
            option = new
            note(f"{name}: {key} is {option} now: the old name works until version 1.0")
        if option not in known:
            raise UsageError(f"{name}: {unknown_name('setting', key, sorted(known))}")
        if option in options:
            raise UsageError(f"{name}: {options[option].key} and {key} are one setting: give it once")
        if option == "rule" and isinstance(value, dict):
            value = [f"{rule}={severity}" for rule, severity in value.items()]
        options[option] = Setting(name, key, [value] if option == "rule" and isinstance(value, str) else value)
    return options
