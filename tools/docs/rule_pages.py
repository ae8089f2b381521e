"""A page for each rule, with a real example and its bytes; and the list of all rules."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from kseg.remedies import PLACEHOLDERS
from kseg.report.rules_report import message_of
from kseg.rule_help import rule_help
from kseg.rule_table import RULES, Rule, Severity
from tools.docs.terminal import Terminal
from tools.lab.remedy_record import proof
from tools.make_findings import CASES, FINDINGS, WITHOUT_FILE
from tools.make_rule_examples import command_of, unpack

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
_HEX_LINES = 20
_HEX = re.compile(r" *(\d+)  ((?:[0-9a-f]{2} )*[0-9a-f]{2})(?: |$)")


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
    help_ = rule_help(rule.name)
    lines = [f"# {rule.name}", "", f"{rule.code}, severity **{rule.severity.label}**"]
    lines[-1] += " (cannot be lowered)" if rule.severity is Severity.FATAL else ""
    lines[-1] += ". [All rules](index.md)"
    lines += ["", f"Message: {_escape(message_of(rule))}"]
    for title, text in (("Cause", help_.cause), ("Effect on a broker", rule.broker), ("What to do", rule.remedy)):
        lines += ["", f"## {title}", "", _escape(text)] if text else []
    lines += _commands(rule)
    if rule.name == WITHOUT_FILE:
        return (
            "\n".join([*lines, "", "No file can show this rule: the operating system reports it when reading fails."])
            + "\n"
        )
    folder = home / rule.name
    unpack(rule.name, folder)
    command = f"kseg {shlex.join(command_of(rule.name))}"
    printed = terminal.run(command, folder)
    assert rule.name in printed.text, f"{command} does not report {rule.name}"
    lines += [
        "",
        "## Example",
        "",
        f"The files are in `fixtures/findings/{rule.name}` of the repository. Damage: {CASES[rule.name].what.rstrip('.')}.",
        "",
        f"```console\n$ {command}\n{printed.text}\n$ echo $?\n{printed.code}\n```",
        *_bytes(rule.name, terminal, folder),
    ]
    shutil.rmtree(folder)
    return "\n".join(lines) + "\n"


def _commands(rule: Rule) -> Sequence[str]:
    """Return the remedies of single files, and the commands of all actions with where they were carried out."""
    lines = []
    for file, remedy in rule.remedies():
        lines += ["", f"### {file}", "", _escape(remedy.text)] if file else []
        for action in remedy.actions:
            case = f"If {action.case}:" if action.case else "Commands:"
            lines += ["", case, "", "```sh", *action.commands, "```", "", proof(rule.name, file, action)]
    if lines:
        lines += ["", PLACEHOLDERS]
    return lines


def _bytes(name: str, terminal: Terminal, folder: Path) -> Sequence[str]:
    """Return the bytes of the batch or entry that the rule's first finding is about."""
    expected = (FINDINGS / name / "expect.jsonl").read_text(encoding="utf-8").splitlines()
    row = next(row for row in map(json.loads, expected) if row.get("rule") == name)
    position = row["position"] or 0
    file = str(next((path for path in folder.rglob(Path(row["file"]).name) if path.is_file()), "."))
    if not Path(file).is_file():
        return []
    shown = str(Path(file).relative_to(folder))
    listing = _listing(terminal, folder, shown, position) or _plain(Path(file).read_bytes(), position)
    return ["", "## The bytes", "", f"From byte {position:,} of `{shown}`:", "", "```text", *listing, "```"]


def _listing(terminal: Terminal, folder: Path, file: str, position: int) -> list[str]:
    """Return the part of ``kseg dump --format hex`` that has ``position``; empty if it shows none."""
    lines = terminal.run(f"kseg dump --format hex {shlex.quote(file)}", folder).text.splitlines()
    starts = [
        (int(found[1]), len(found[2].split()), at) for at, line in enumerate(lines) if (found := _HEX.match(line))
    ]
    begin = next((at for start, size, at in starts if start <= position < start + size), None)
    if begin is None:
        return []
    if re.match(r"(batch|entry|message|record) at ", lines[begin - 1]):
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
