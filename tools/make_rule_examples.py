"""Write ``kseg/rule_examples.jsonl``: for each rule a command and its output for the rule's file in ``fixtures/findings``.

python -m tools.make_rule_examples
"""

from __future__ import annotations

import json
import shlex
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kseg.rule_help import EXAMPLES
from kseg.rule_table import RULES
from tools.docs.terminal import Terminal
from tools.make_findings import CASES, WITHOUT_FILE, made, settings_of
from tools.make_findings import FINDINGS as FIXTURES

#: The folder name that the example shows for a partition, and for a log directory.
PARTITION, LOG_DIRECTORY = "orders-0", "kafka-logs"
#: The columns of an example: it is shown with an indent of two on terminals of 80.
WIDTH = 78


def command_of(rule: str) -> list[str]:
    """Return the arguments of kseg that report the rule, for the folder that ``unpack`` writes."""
    case, settings = CASES[rule], settings_of(FIXTURES / rule)
    folder = folder_of(rule)
    if "requests" in settings:
        return ["validate", "--as", "requests", "--as", "responses",
                f"{folder}/{settings['requests']}", f"{folder}/{case.name}"]  # fmt: skip
    single = not case.beside or "framing" in settings
    options = [
        text
        for name, value in settings.items()
        for each in (value if isinstance(value, list) else [value])
        for text in _option(name, each)
    ]
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


def example(rule: str, terminal: Terminal) -> Mapping[str, str]:
    """Return the row of a rule."""
    command = shlex.join(["kseg", *command_of(rule)])
    with tempfile.TemporaryDirectory() as folder:
        unpack(rule, Path(folder))
        output = terminal.run(command, Path(folder), width=WIDTH, quiet=True).text
    assert f" {RULES[rule].code} {rule}" in output, (rule, output)
    return {"rule": rule, "command": command, "damage": CASES[rule].what, "output": output}


def main() -> None:
    with Terminal() as terminal:
        rows = [example(rule, terminal) for rule in RULES if rule != WITHOUT_FILE]
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    EXAMPLES.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
