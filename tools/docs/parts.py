"""The tables that documents have between marks such as ``<!-- rooms:begin -->`` and ``<!-- rooms:end -->``."""

from __future__ import annotations

import ast
import html
import inspect
import json
import re
import shutil
import tempfile
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click

import kseg
from kseg import schema
from kseg.cli.main import COMMANDS, main
from kseg.cli.settings_file import setting_names
from kseg.cli.validate_command import validate
from kseg.extras.views.view_table import VIEWS
from kseg.format.record.field_facts import FACTS
from kseg.report.row_schema import row_kinds
from tests.support.rooms import ROOMS
from tests.support.statements import STATEMENTS, STATEMENTS_FOLDER
from tools.docs import benchmark_bars, option_tables
from tools.docs.terminal import Terminal
from tools.proof import figures

ROOT = Path(__file__).parents[2]
FIXTURES = ROOT / "fixtures"


def proof() -> str:
    """Return the table of promises with their figures."""
    lines = ["| promise | measured | on | shown by | command |", "|---|---|---|---|---|"]
    for row in figures.figures():
        lines.append(f"| {row.promise} | {row.figure} | {row.date} | `{row.test}` | `{row.command}` |")
    return "\n".join(lines)


def row_tables() -> str:
    """Return a table of the columns of each kind of row."""
    kinds = row_kinds()
    return "\n\n".join(_columns(kind, kinds[:n]) for n, kind in enumerate(kinds))


def _columns(kind: schema.RowKind, before: Iterable[schema.RowKind]) -> str:
    text = f"`kseg {kind.command}`{kind.text and ': '}{kind.text}."
    columns = kind.columns
    for one in before:  # of records that a search found, only what other records lack
        if columns[: len(one.columns)] == one.columns:
            text, columns = (
                f"{text} The columns of [{one.title}](#{one.title.lower()}), and:",
                columns[len(one.columns) :],
            )
    lines = [f"## {kind.title}", "", text, "", "| column | type | meaning |", "|---|---|---|"]
    return "\n".join([*lines, *_column_lines(columns, "")])


def _column_lines(columns: Iterable[schema.Column], parent: str) -> Iterator[str]:
    """Yield a line for each column, and after an object those of its fields."""
    for column in columns:
        name = parent + (column.name or "*")
        texts = () if isinstance(column.values, range) else column.values
        values = [value for value in texts if value not in column.meaning]
        yield f"| `{name}` | {column.json} | {': '.join(filter(None, (column.meaning, ', '.join(values))))} |"
        inner = {"objects": "[].", "map": ".*."}.get(column.json.strip("[?]"), ".")
        yield from _column_lines(column.of, name + inner)


def rooms() -> str:
    """Return every room from the ground up with the first line of its docstring. A small room is one module."""
    lines = ["| room | |", "|---|---|"]
    for room in filter(None, ROOMS):
        place = Path("kseg", *room.split("."))
        name, source = (
            (f"{place}/", place / "__init__.py") if (ROOT / place).is_dir() else (f"{place}.py", f"{place}.py")
        )
        lines.append(f"| `{name}` | {_first_line(ROOT / source)} |")
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


def output_formats() -> str:
    """Return a table of the output formats of each command."""
    lines = ["| command | `--format` (the first is the default) |", "|---|---|"]
    for name in COMMANDS:
        command = main.get_command(click.Context(main), name)
        assert command is not None
        for option in command.params:
            if option.name == "format" and isinstance(option.type, click.Choice):
                lines.append(f"| `kseg {name}` | {', '.join(f'`{choice}`' for choice in option.type.choices)} |")
    return "\n".join(lines)


def settings() -> str:
    """Return the names of the options of ``kseg validate`` that a settings file can set."""
    exposed = (option.name or "" for option in validate.params)
    return "\n".join(textwrap.wrap(", ".join(f"`{name}`" for name in setting_names(exposed)), 120)) + "."


def spark_views() -> str:
    """Return a table of the columns of each Spark view."""
    lines = ["| view | columns |", "|---|---|"]
    for name, view in VIEWS.items():
        lines.append(f"| `{name}` | {', '.join(f'`{column.name}`' for column in view.columns)} |")
    return "\n".join(lines)


def library() -> str:
    """Return the public names of the library with their signatures and the first lines of their documentation."""
    functions, classes, lines = [], [], []
    for name in kseg.__all__:
        value = getattr(kseg, name)
        summary = (inspect.getdoc(value) or "").partition("\n\n")[0].replace("\n", " ")
        if inspect.isclass(value):
            classes.append(f"| `{name}` | {_plain_code(summary)} |")
        elif callable(value):
            functions.append((name, _signature(value), inspect.getdoc(value) or ""))
    for name, signature, documentation in functions:
        summary = documentation.partition("\n\n")[0].replace("\n", " ")
        lines += [f"### {name}", "", f"```python\n{name}{signature}\n```", "", _plain_code(summary), ""]
    return "\n".join(["## Functions", "", *lines, "## Classes", "", "| name | meaning |", "|---|---|", *classes])


def _signature(function: Callable[..., Any]) -> str:
    return re.sub(r"<function (\w+) at 0x\w+>", r"\1", str(inspect.signature(function)).replace("'", ""))


def statements() -> str:
    """Return the table of the statements about formats, with the lines that their commands print."""
    lines = ["| # | statement | command | what kseg prints |", "|--:|---|---|---|"]
    with tempfile.TemporaryDirectory() as temporary, Terminal() as terminal:
        folder = shutil.copytree(STATEMENTS_FOLDER, Path(temporary) / "statements")
        for one in STATEMENTS:
            if not one.command:
                lines.append(f"| {one.number} | {one.text} | – | {one.seen[0]} |")
                continue
            commands = "<br>".join(map(code, one.command.split("; ")))
            shown = "<br>".join(map(code, one.lines(one.run(terminal, folder))))
            lines.append(f"| {one.number} | {one.text} | {commands} | {shown} |")
    return "\n".join(lines)


def code(text: str) -> str:
    """Return text as code in a cell of a table: a backtick would end Markdown's own, a bar the cell."""
    return f"<code>{html.escape(text, quote=False).replace('|', '&#124;')}</code>"


def _plain_code(text: str) -> str:
    return text.replace("``", "`").replace("|", "\\|")


def speed() -> str:
    """Return the times to validate the corpora of each codec, from the table that ``make bench`` wrote."""
    page = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    times: dict[str, dict[str, str]] = {}
    for codec, own, peer, time in re.findall(
        r"^\| validate (none|gzip|snappy|lz4|zstd) \| kseg \| ([\d.]+ s) \| ([\w-]+) \| ([\d.]+ s) \|",
        page,
        re.MULTILINE,
    ):
        times.setdefault(codec, {"kseg": own})[peer] = time
    peers = ["kseg", "kafka-dump-log", "franz-go", "aiokafka"]
    lines = [f"| codec | {' | '.join(peers)} |", "|---" + "|--:" * len(peers) + "|"]
    for codec, row in times.items():
        best = min(float(row[peer][:-2]) for peer in peers)
        shown = [f"**{row[peer]}**" if float(row[peer][:-2]) == best else row[peer] for peer in peers]
        lines.append(f"| {codec} | {' | '.join(shown)} |")
    return "\n".join(lines)


_GROUPS = {"message": "A message of v0 or v1", "batch": "The header of a v2 batch", "record": "A record of v2"}


def field_facts() -> str:
    """Return the tables of the fields of batches and records: the KIP of each and its meaning."""
    tables = []
    for group, title in _GROUPS.items():
        lines = [f"### {title}", "", "| field | from | meaning |", "|---|---|---|"]
        lines += [f"| `{name}` | {fact.source} | {fact.meaning} |" for name, fact in FACTS[group].items()]
        tables.append("\n".join(lines))
    return "\n\n".join(tables)


def dependencies() -> str:
    """Return the table of the libraries that kseg needs, from pyproject.toml with its comments."""
    section = (
        (ROOT / "pyproject.toml").read_text(encoding="utf-8").partition("\ndependencies = [\n")[2].partition("\n]")[0]
    )
    found: dict[str, list[str]] = {}
    above = ""
    for line in section.splitlines():
        match = re.fullmatch(r'\s*(?:"([\w-]+)(>=[\d.]+)[^"]*",)?\s*(?:# (.*))?', line)
        assert match, line
        if not match[1]:
            above = match[3]
        else:
            found.setdefault(match[1], [match[2], match[3] or above])
    lines = ["| library | version | purpose |", "|---|---|---|"]
    return "\n".join([*lines, *(f"| {name} | {least} | {why} |" for name, (least, why) in found.items())])


#: The generated parts, by the name in their marks. A document can have any of them.
PARTS: Mapping[str, Callable[[], str]] = {
    "dependencies": dependencies,
    "field-facts": field_facts,
    "library": library,
    "proof": proof,
    "rooms": rooms,
    "rows": row_tables,
    "peers": peers,
    "formats": output_formats,
    "settings": settings,
    "options": option_tables.all_options,
    "option-exceptions": option_tables.exceptions,
    "benchmark-answer": benchmark_bars.sentence,
    "old-names": option_tables.old_names,
    "speed": speed,
    "spark-views": spark_views,
    "statements": statements,
}


def render(text: str) -> str:
    """Return the document with its generated parts made again."""

    def replace(match: re.Match[str]) -> str:
        return f"{match[1]}{PARTS[match['name']]()}\n{match[3]}"

    names = "|".join(PARTS)
    return re.sub(
        rf"(<!-- (?P<name>{names}):begin[^>]*-->\n).*?(<!-- (?P=name):end -->)", replace, text, flags=re.DOTALL
    )
