"""The names that users rely on: exit codes, rules, fields of rows, options, and the names of the library.

``python -m tools.promise`` compares them with ``tools/promise.json``, which has the names of the last release. A removed or
changed name is an error, a new name is not. ``--write`` stores the names of today, as a step of each release.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

import kseg
from kseg.cli.main import COMMANDS, main
from kseg.report.row_schema import row_schema
from kseg.rule_table import RULES

ROOT = Path(__file__).parents[1]
FILE = Path(__file__).with_suffix(".json")
EXIT_CODES = ROOT / "docs" / "reference" / "exit-codes.md"

#: Path of a name, as `broken` writes it -> the release that announced its end, and the name to use instead. It may be
#: removed in the release after that one. Options that still work under an old name are in ``option_rules.OLD_NAMES``.
DEPRECATED: Mapping[str, tuple[str, str]] = {}


def promises() -> dict[str, Any]:
    """Return all names of today, by kind. Lists are sets, and grow; a text or a number is compared as a whole."""
    return {
        "exit codes": re.findall(r"^\| (\d+) \|", EXIT_CODES.read_text(encoding="utf-8"), re.MULTILINE),
        "rules": {name: {"code": rule.code, "severity": rule.severity.name} for name, rule in RULES.items()},
        "rows": dict(_rows()),
        "options": {name: dict(_options(name)) for name in COMMANDS},
        "library": {name: _member(getattr(kseg, name)) for name in kseg.__all__},
    }


def _rows() -> Iterator[tuple[str, Any]]:
    """Yield each kind of row with the types of its fields."""
    for kind, schema in row_schema()["$defs"].items():
        for field, about in schema.get("properties", {}).items():
            types = about.get("type", [])
            values = [str(one) for one in about.get("enum", ())]
            found = {"type": types if isinstance(types, str) else " or ".join(sorted(types))}
            yield f"{kind}: {field}", {**found, "values": values} if values else found


def _options(command: str) -> Iterator[tuple[str, Any]]:
    """Yield each option of a command with its values, if these have names."""
    found = main.get_command(click.Context(main), command)
    assert found is not None
    for one in found.params:
        if isinstance(one, click.Option):
            values = [str(value) for value in getattr(one.type, "choices", ())]
            for name in (*one.opts, *one.secondary_opts):
                yield name, {"takes a value": not one.is_flag and not one.count, "values": values}


def _member(member: Any) -> Any:
    """Return the parameters of a function with their types, or the public members of a class; else its type."""
    if inspect.isclass(member):
        own = [one for one in member.__mro__ if one.__module__.startswith("kseg.")]
        found = {name for one in own for name in (*vars(one), *vars(one).get("__annotations__", ()))}
        return sorted(name for name in found if not name.startswith("_"))
    if not callable(member):
        return type(member).__name__
    signature = inspect.signature(member)
    parameters = {name: f"{one.kind.description}: {one.annotation}" for name, one in signature.parameters.items()}
    return {**parameters, "return": str(signature.return_annotation)}


def broken(before: Any, now: Any, path: str = "") -> Iterator[str]:
    """Yield the path of each name of ``before`` that ``now`` lacks or has differently."""
    if isinstance(before, dict):
        for name, value in before.items():
            if name in now:
                yield from broken(value, now[name], f"{path}/{name}")
            else:
                yield f"{path}/{name}"
    elif isinstance(before, list):
        yield from (f"{path}/{name}" for name in before if name not in now)
    elif before != now:
        yield f"{path}: {before!r} is now {now!r}"


def differences() -> list[str]:
    """Return the broken promises, without those of names whose end was announced."""
    released = json.loads(FILE.read_text(encoding="utf-8"))
    last = _numbers(released["release"])
    announced = {path for path, (release, _) in DEPRECATED.items() if _numbers(release) <= last}
    return [one for one in broken(released["names"], json.loads(json.dumps(promises()))) if one not in announced]


def _numbers(release: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", release)]


def written() -> str:
    """Return the names of today as JSON, one name of a kind per line."""
    kinds = []
    for kind, names in promises().items():
        pairs = names.items() if isinstance(names, dict) else ()
        lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}" for name, value in pairs)
        kinds.append(f" {json.dumps(kind)}: " + (f"{{\n{lines}\n }}" if pairs else json.dumps(names)))
    return f'{{"release": "{kseg.__version__}", "names": {{\n' + ",\n".join(kinds) + "\n}}\n"


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        FILE.write_text(written(), encoding="utf-8")
    elif found := differences():
        sys.exit("changed since the last release:\n" + "\n".join(found))
