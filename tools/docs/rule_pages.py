"""A page for each rule, with a real example and its bytes; and the list of all rules."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from kseg.findings import RULES, Rule
from kseg.report.rules import message_of
from tools.docs.sandbox import EXTRA, FIXTURES
from tools.docs.terminal import Terminal
from tools.make_findings import CASES, WITHOUT_FILE, made, settings_of

#: The folder names that the examples show for a partition and for a log directory.
PARTITION, LOG_DIR = "orders-0", "kafka-logs"
LAYERS: Mapping[str, str] = {
    "K1": "Framing: where a batch begins and ends",
    "K2": "Batches",
    "K3": "Records",
    "K4": "Compression",
    "K5": "Side files",
    "K6": "Across files",
    "K7": "Conversion",
    "K8": "Requests and responses",
}
#: The largest number of lines of a hexadecimal listing on a page.
_HEX_LINES = 24


def pages(terminal: Terminal, home: Path) -> dict[str, str]:
    """Return the text of each page by its file name. The examples are run in ``home``."""
    texts = {f"{rule.name}.md": _page(rule, terminal, home) for rule in RULES.values()}
    return {"index.md": _index(), **texts}


def _index() -> str:
    lines = [
        "# Rules",
        "",
        "Each finding names its rule. `kseg rules NAME` prints the explanation of a rule in the terminal.",
        "The severity can be changed with [`--rule NAME=SEVERITY`](../settings.md).",
    ]
    for layer, title in LAYERS.items():
        rules = [rule for rule in RULES.values() if rule.code.startswith(layer)]
        if rules:
            lines += ["", f"## {title}", "", "| code | rule | severity | message |", "|---|---|---|---|"]
            lines += [
                f"| {rule.code} | [{rule.name}]({rule.name}.md) | {rule.severity.label} | {_escape(message_of(rule))} |"
                for rule in rules
            ]
    return "\n".join(lines) + "\n"


def _escape(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "\\<")


def _page(rule: Rule, terminal: Terminal, home: Path) -> str:
    lines = [f"# {rule.name}", "", f"**{rule.code}**, severity **{rule.severity.label}**"]
    lines[-1] += " (cannot be lowered)." if rule.severity.name == "FATAL" else "."
    lines += [f"Message: {_escape(message_of(rule))}", "", "## What a broker does", "", _escape(rule.broker), ""]
    if rule.name == WITHOUT_FILE:
        return (
            "\n".join([*lines, "No file can show this rule: the operating system reports it when reading fails."])
            + "\n"
        )
    folder = home / rule.name
    _unpack(rule.name, folder)
    command = command_of(rule.name)
    printed = terminal.run(command, folder)
    lines += [
        "## Example",
        "",
        f"`fixtures/findings/{rule.name}` in the repository has the files of this example: {_damage(rule.name)}.",
        "",
        f"```console\n$ {command}\n{printed.text}\n$ echo $?\n{printed.code}\n```",
        *_bytes(rule.name, command, terminal, folder),
    ]
    shutil.rmtree(folder)
    return "\n".join(lines) + "\n"


def _damage(name: str) -> str:
    return CASES[name].what.rstrip(".")


def _folder(name: str) -> str:
    names = made(CASES[name])
    return LOG_DIR if any("/" in one or one.endswith("-offset-checkpoint") for one in names) else PARTITION


def _unpack(name: str, home: Path) -> None:
    """Copy the damaged files of a rule, under the names of the example."""
    shutil.copytree(FIXTURES / "findings" / name, home / _folder(name), ignore=shutil.ignore_patterns(*EXTRA))


def command_of(name: str) -> str:
    """Return the command that reports the rule in the files of its example."""
    case, settings = CASES[name], settings_of(FIXTURES / "findings" / name)
    folder = _folder(name)
    if "requests" in settings:
        return f"kseg validate --as requests --as responses {folder}/{settings['requests']} {folder}/{case.name}"
    options: list[str] = []
    for option, value in settings.items():
        options.append("--as" if option == "framing" else f"--{option.replace('_', '-')}")
        options += [] if value is True else [str(value)]
    alone = not case.beside or "framing" in settings
    return shlex.join(["kseg", "validate", *options, f"{folder}/{case.name}" if alone else folder])


def _bytes(name: str, command: str, terminal: Terminal, folder: Path) -> Sequence[str]:
    """Return the bytes of the batch or entry that the first finding is about."""
    case = CASES[name]
    file = f"{_folder(name)}/{case.name}"
    path = folder / file
    rows = terminal.run(f"{command} --format jsonl", folder).text
    place = re.search(rf'"rule":"{name}".*?"file":"([^"]*)","position":(\d+)', rows) or re.search(
        rf'"file":"([^"]*)","position":(\d+).*"rule":"{name}"', rows
    )
    if place:
        file, position = place[1], int(place[2])
        path = folder / file
    else:
        position = 0
    if not path.is_file():
        return []
    listing = _listing(terminal, folder, file, position) or _plain(path.read_bytes(), position)
    return ["", "## The bytes", "", f"From byte {position:,} of `{file}`:", "", "```text", *listing, "```"]


def _listing(terminal: Terminal, folder: Path, file: str, position: int) -> list[str]:
    """Return the part of ``kseg dump --format hex`` that begins at or before ``position``; empty if it shows none."""
    lines = terminal.run(f"kseg dump --format hex {shlex.quote(file)}", folder).text.splitlines()
    starts = [(int(found[1]), at) for at, line in enumerate(lines) if (found := re.match(r" +(\d+)  ", line))]
    begin = next((at for start, at in reversed(starts) if start <= position), None)
    if begin is None:
        return []
    if begin and not lines[begin - 1].startswith(" ") and not lines[begin - 1].startswith(("kseg:", "file ")):
        begin -= 1
    shown = [line for line in lines[begin : begin + _HEX_LINES] if not line.startswith("kseg:")]
    return [*shown, "…"] if len(lines) > begin + _HEX_LINES else shown


def _plain(data: bytes, position: int) -> list[str]:
    end = min(len(data), position + 16 * _HEX_LINES)
    lines = []
    for start in range(position, end, 16):
        block = data[start : min(start + 16, end)]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in block)
        lines.append(f"{start:>10}  {block.hex(' '):<47}  {text}")
    return [*lines, "…"] if end < len(data) else lines
