"""Run the commands and programs of a Markdown document, and put their output into it.

A block ``console`` holds lines ``$ command``, each followed by its output. A block ``python`` that is followed by a block
``text`` is a program and its output. A comment before a block sets how it runs::

    <!-- run: lines=8 now=2023-11-15T01:13:00Z -->

``lines`` keeps only the first lines of each output, ``width`` is the width of the terminal, ``now`` is the time,
``needs`` names a module without which the block stays as it is, ``tier=spark`` leaves it to the tests with Spark,
``fails`` allows exit codes other than 0 and 1, and ``no``
marks a block that is not run here: it may not hold output, unless another test compares it (``by``).
"""

from __future__ import annotations

import re
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path

from tools.docs.frozen import NOW
from tools.docs.terminal import Printed, Terminal

_BLOCK = re.compile(
    r"(?:^<!-- run: (?P<options>[^\n]*) -->\n)?"
    r"(?:^```console\n(?P<console>.*?)^```$|^```python\n(?P<python>[^`]*?)^```\n\n```text\n(?P<printed>.*?)^```$)",
    re.MULTILINE | re.DOTALL,
)
_COMMAND = re.compile(r"^\$ (.*(?:\\\n.*)*)$", re.MULTILINE)


class DocumentError(Exception):
    """A document holds something that the generator does not allow."""


def render(text: str, terminal: Terminal, folder: Path, tier: str = "") -> str:
    """Return the document with the present output of its commands, which run in ``folder`` one after another.

    Only the blocks of ``tier`` run; by default those without a tier.
    """

    def replace(match: re.Match[str]) -> str:
        options = options_of(match["options"] or "")
        if "no" in options:
            if "by" not in options and match["console"] and _outputs(match["console"]):
                raise DocumentError(f"a block that is not run has output:\n{match[0]}")
            return match[0]
        if options.get("tier", "") != tier or not all(
            find_spec(module) for module in options.get("needs", "").split(",") if module
        ):
            return match[0]
        if match["python"] is not None:
            printed = _run(terminal, match["python"], folder, options, python=True)
            if printed.code:
                raise DocumentError(f"a program failed:\n{match['python']}\n{printed.text}")
            return _between(match, "printed", _shown(printed, options))
        return _between(match, "console", _session(match["console"], terminal, folder, options))

    return _BLOCK.sub(replace, text)


def _between(match: re.Match[str], group: str, text: str) -> str:
    start, end = match.span(group)
    return match.string[match.start() : start] + text + match.string[end : match.end()]


def options_of(text: str) -> dict[str, str]:
    """Return the options of a comment; an option without a value has an empty one."""
    return {name: value for name, _, value in (part.partition("=") for part in text.split())}


def _outputs(console: str) -> str:
    return _COMMAND.sub("", console).strip()


def _session(console: str, terminal: Terminal, folder: Path, options: dict[str, str]) -> str:
    lines = []
    code = 0
    for command in _COMMAND.findall(console):
        lines.append(f"$ {command}\n")
        if command == "echo $?":
            lines.append(f"{code}\n")
            continue
        printed = _run(terminal, command, folder, options)
        code = printed.code
        if code not in (0, 1) and "fails" not in options:
            raise DocumentError(f"exit code {code}: {command}\n{printed.text}")
        lines.append(_shown(printed, options))
    return "".join(lines)


def _run(terminal: Terminal, command: str, folder: Path, options: dict[str, str], *, python: bool = False) -> Printed:
    now = datetime.fromisoformat(options["now"]) if "now" in options else NOW
    return terminal.run(
        command, folder, now=now, python=python, width=int(options.get("width", 0)), quiet="tier" in options
    )


def _shown(printed: Printed, options: dict[str, str]) -> str:
    lines = printed.text.splitlines()
    if len(lines) > int(options.get("lines", len(lines))):
        lines = [*lines[: int(options["lines"])], "…"]
    return "".join(f"{line}\n" for line in lines)
