"""Keep the generated parts of README.md equal to the code: ``python -m tools.docs`` checks, ``--write`` updates them."""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from kseg import schema
from kseg.cli.main import COMMANDS, main
from kseg.format.sidefiles.registry import SIDE_FILES
from kseg.format.wire.connections import FRAME_COLUMNS
from kseg.report import rules
from tests.support.rooms import ROOMS
from tools import man_pages

ROOT = Path(__file__).parents[1]
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
        ("batch", schema.BATCH_COLUMNS),
        ("record", (*schema.RECORD_COLUMNS, schema.DECODED)),
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


def rooms() -> str:
    """Return every room from the ground up with the first line of its docstring."""
    lines = ["| room | |", "|---|---|"]
    for room in filter(None, ROOMS):
        folder = Path("kseg", *room.split("."))
        lines.append(f"| `{folder}/` | {_first_line(ROOT / folder / '__init__.py')} |")
    return "\n".join(lines)


def _first_line(source: Path) -> str:
    docstring = ast.get_docstring(ast.parse(source.read_text(encoding="utf-8"))) or ""
    return docstring.partition("\n")[0]


def peers() -> str:
    """Return the table of kafka-dump-log's and kseg's answers for each damaged fixture;

    ``make peers`` updates kafka-dump-log's.
    """
    lines = [
        "| damage | exit | kafka-dump-log 4.3 `--deep-iteration` | exit | kseg validate |",
        "|---|---|---|---|---|",
    ]
    for line in (FIXTURES / "kafka-dump-log.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        expected = (FIXTURES / "findings" / row["folder"] / "expect.jsonl").read_text(encoding="utf-8").splitlines()
        found = [one for one in map(json.loads, expected) if one["kind"] == "finding"]
        reported = dict.fromkeys(f"{one['severity']} `{one['rule']}` {_place(one)}".rstrip() for one in found)
        says = row["says"].replace("|", "\\|") or "–"
        code = int(any(one["severity"] == "error" for one in found))
        lines.append(f"| {row['folder']} | {row['exit']} | {says} | {code} | {'; '.join(reported)} |")
    return "\n".join(lines)


def _place(finding: Mapping[str, Any]) -> str:
    if finding["position"] is None:
        return ""
    return f"at byte {finding['position']}" if finding["offset"] is None else f"at offset {finding['offset']}"


#: The generated parts of each document.
PARTS: Mapping[str, Mapping[str, Callable[[], str]]] = {
    "README.md": {"commands": commands, "rows": row_tables, "rules": rules.markdown, "peers": peers},
    "CONTRIBUTING.md": {"rooms": rooms},
}


def render(document: str) -> str:
    """Return the document with its generated parts made again."""
    text = (ROOT / document).read_text(encoding="utf-8")
    for name, make in PARTS[document].items():
        pattern = re.compile(rf"(<!-- {name}:begin[^>]*-->\n).*?(<!-- {name}:end -->)", re.DOTALL)
        part = make()
        text, count = pattern.subn(lambda match, part=part: f"{match[1]}{part}\n{match[2]}", text)  # type: ignore[misc]
        assert count == 1, f"{document} has {count} places for {name}"
    return text


if __name__ == "__main__":
    wanted = {ROOT / document: render(document) for document in PARTS}
    if sys.argv[1:] == ["--write"]:
        for path, text in wanted.items():
            path.write_text(text, encoding="utf-8")
        man_pages.write()
    elif stale := [path.name for path, text in wanted.items() if path.read_text(encoding="utf-8") != text]:
        sys.exit(f"{', '.join(stale)}: not what the code says: run `make docs`")
    elif differing := man_pages.differences():
        sys.exit(f"packaging/man: {', '.join(differing)}: not what the help texts say: run `make docs`")
