"""Keeps the generated parts of README.md equal to the code: ``python -m tests.docs`` checks, ``--write`` mends."""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from kseg.beside.side_files import SIDE_FILES
from kseg.cli.main import COMMANDS, main
from kseg.frames.streams import FRAME_COLUMNS
from kseg.log import rows
from kseg.output import rule_docs
from tests.test_layers import ENTRIES, HOUSE
from tools import man_pages

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
FIXTURES = ROOT / "fixtures"


def commands() -> str:
    """The help of every command, as a terminal of 100 columns shows it."""
    blocks = []
    for name in COMMANDS:
        command = main.get_command(click.Context(main), name)
        assert command is not None
        context = click.Context(command, info_name=f"kseg {name}", terminal_width=100, max_content_width=100)
        blocks.append(f"```\n$ kseg {name} --help\n{command.get_help(context)}\n```")
    return "\n\n".join(blocks)


def row_tables() -> str:
    """The columns of batch and record rows, of frames, and of side files."""
    lines = []
    for title, columns in (
        ("batch", rows.BATCH_COLUMNS),
        ("record", (*rows.RECORD_COLUMNS, rows.DECODED)),
        ("request, response; of their records, behind the above", FRAME_COLUMNS),
    ):
        lines += [f"| {title} | type | |", "|---|---|---|"]
        lines += [f"| `{column.name}` | {column.type} | {column.meaning} |" for column in columns]
        lines.append("")
    lines += ["| row of a side file | file | its columns, behind `kind`, `file` and `position` |", "|---|---|---|"]
    for side in SIDE_FILES:
        meanings = "; ".join(f"`{column.name}` {column.meaning}" for column in side.columns)
        lines.append(f"| `{side.kind}` | {side.title} | {meanings} |")
    return "\n".join(lines)


def modules() -> str:
    """Every room from the ground up, and in it every module in its order: the first line of each docstring."""
    lines = ["| module | |", "|---|---|"]
    for room, names in HOUSE.items():
        folder = ROOT / "kseg" / room
        if room:
            lines.append(f"| **`{room}/`** | **{_first_line(folder / '__init__.py')}** |")
        lines += [
            f"| `{name}` | {_first_line(folder / f'{name}.py')} |" for name in names.split() if name != "__init__"
        ]
    lines.append("| **front doors** | |")
    lines += [f"| `{name}` | {_first_line(ROOT / 'kseg' / f'{name}.py')} |" for name in ENTRIES]
    return "\n".join(lines)


def _first_line(source: Path) -> str:
    docstring = ast.get_docstring(ast.parse(source.read_text(encoding="utf-8"))) or ""
    return docstring.partition("\n")[0]


def peers() -> str:
    """What kafka-dump-log and kseg say of each damaged fixture; ``make peers`` asks kafka-dump-log anew."""
    lines = [
        "| damage | exit | kafka-dump-log 4.3 `--deep-iteration` | exit | kseg validate |",
        "|---|---|---|---|---|",
    ]
    for line in (FIXTURES / "kafka-dump-log.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        expected = (FIXTURES / "findings" / row["folder"] / "expect.jsonl").read_text(encoding="utf-8").splitlines()
        found = [one for one in map(json.loads, expected) if one["kind"] == "finding"]
        told = dict.fromkeys(f"{one['severity']} `{one['rule']}` {_place(one)}".rstrip() for one in found)
        says = row["says"].replace("|", "\\|") or "–"
        code = int(any(one["severity"] == "error" for one in found))
        lines.append(f"| {row['folder']} | {row['exit']} | {says} | {code} | {'; '.join(told)} |")
    return "\n".join(lines)


def _place(finding: Mapping[str, Any]) -> str:
    if finding["position"] is None:
        return ""
    return f"at byte {finding['position']}" if finding["offset"] is None else f"at offset {finding['offset']}"


PARTS: Mapping[str, Callable[[], str]] = {
    "commands": commands,
    "rows": row_tables,
    "rules": rule_docs.markdown,
    "modules": modules,
    "peers": peers,
}


def render(text: str) -> str:
    """The README with its generated parts made anew."""
    for name, make in PARTS.items():
        pattern = re.compile(rf"(<!-- {name}:begin[^>]*-->\n).*?(<!-- {name}:end -->)", re.DOTALL)
        part = make()
        text, count = pattern.subn(lambda match, part=part: f"{match[1]}{part}\n{match[2]}", text)  # type: ignore[misc]
        assert count == 1, f"README.md has {count} places for {name}"
    return text


if __name__ == "__main__":
    current = README.read_text(encoding="utf-8")
    wanted = render(current)
    if sys.argv[1:] == ["--write"]:
        README.write_text(wanted, encoding="utf-8")
        man_pages.write()
    elif wanted != current:
        sys.exit("README.md is not what the code says: run `make docs`")
    elif differing := man_pages.differences():
        sys.exit(f"packaging/man: {', '.join(differing)}: not what the help texts say: run `make docs`")
