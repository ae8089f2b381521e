"""Write ``kseg/rule_examples.jsonl``: for each rule a command and its output for the rule's file in ``fixtures/findings``.

python -m tools.make_rule_examples
"""

from __future__ import annotations

import json
import os
import shlex
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from kseg.cli.main import main as main_command
from kseg.rule_help import EXAMPLES
from kseg.rule_table import RULES
from tools.make_findings import CASES, WITHOUT_FILE, made, settings_of
from tools.make_findings import FINDINGS as FIXTURES

#: The folder name that the example shows for a partition, and for a log directory.
PARTITION, LOG_DIRECTORY = "orders-0", "kafka-logs"


def command_of(rule: str) -> list[str]:
    """Return the arguments of kseg that report the rule, for the folder that ``unpack`` writes."""
    case, settings = CASES[rule], settings_of(FIXTURES / rule)
    folder = folder_of(rule)
    if "requests" in settings:
        return ["validate", "--as", "requests", "--as", "responses",
                f"{folder}/{settings['requests']}", f"{folder}/{case.name}"]  # fmt: skip
    single = not case.beside or "framing" in settings
    options = [text for name, value in settings.items() for text in _option(name, value)]
    return ["validate", *options, f"{folder}/{case.name}" if single else folder]


def _option(name: str, value: Any) -> Iterator[str]:
    yield "--as" if name == "framing" else f"--{name.replace('_', '-')}"
    if value is not True:
        yield str(value)


def folder_of(rule: str) -> str:
    """Return the name of the folder that the example shows."""
    names = made(CASES[rule])
    return LOG_DIRECTORY if any("/" in name or name.endswith("-offset-checkpoint") for name in names) else PARTITION


def unpack(rule: str, target: Path) -> None:
    """Write the damaged file of a rule, and the files next to it, below ``target``."""
    for name, data in made(CASES[rule]).items():
        path = target / folder_of(rule) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def run(arguments: list[str], folder: Path) -> str:
    """Return what kseg prints on stdout with these arguments, in a folder."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        result = CliRunner().invoke(main_command, arguments)
    finally:
        os.chdir(before)
    assert result.exit_code in (0, 1), result.output
    return result.stdout


def example(rule: str) -> Mapping[str, str]:
    """Return the row of a rule."""
    arguments = command_of(rule)
    with tempfile.TemporaryDirectory() as folder:
        unpack(rule, Path(folder))
        output = run(arguments, Path(folder))
    assert f" {RULES[rule].code} {rule} " in output, (rule, output)
    return {"rule": rule, "command": shlex.join(["kseg", *arguments]), "damage": CASES[rule].what, "output": output}


def main() -> None:
    rows = [example(rule) for rule in RULES if rule != WITHOUT_FILE]
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    EXAMPLES.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
