"""The table of rules, and the explanation of one rule, for the terminal and as JSON Lines."""

from __future__ import annotations

import string
import textwrap
from typing import TextIO

from kseg.findings import known_rule
from kseg.remedies import PLACEHOLDERS, Action
from kseg.report.row_formats import RowSet
from kseg.report.tables import TableColumn, cell_rows, print_cells, terminal_width
from kseg.report.wording import STYLES
from kseg.rule_help import RuleHelp, rule_help
from kseg.rule_table import RULES, Rule, Severity
from kseg.schema import Column, RowKind
from kseg.text import count_of

#: Facts that extend a message if they are not empty.
_OPTIONAL = {"note", "where"}


def message_of(rule: Rule, brackets: tuple[str, str] = ("{", "}")) -> str:
    """Return the message of a rule with the names of its facts, in brackets, in place of their values."""
    opening, closing = brackets
    text = ""
    for literal, name, spec, _ in string.Formatter().parse(rule.message):
        text += literal
        if name is not None and name not in _OPTIONAL:
            noun = count_of(2, spec)[1:] if spec and spec[0].isalpha() and spec not in ("time", "excerpt") else ""
            text += f"{opening}{name}{closing}{noun}"
    return text


def explain(one: RuleHelp, width: int = 100) -> str:
    """Return the explanation of one rule in lines of at most ``width`` characters, except those of the example."""
    rule = one.rule
    fixed = ", cannot be lowered" if rule.severity is Severity.FATAL else ""
    parts = [f"{rule.code} {rule.name} ({rule.severity.label}{fixed})\n  {message_of(rule)}"]
    sections = {"Cause": one.cause, "What a broker does": rule.broker, "What to do": rule.remedy}
    parts += [f"{title}\n{_indented(text, width)}" for title, text in sections.items()]
    for file, remedy in rule.remedies():
        parts += [f"What to do about {file}\n{_indented(remedy.text, width)}"] if file else []
        parts += map(_commands, remedy.actions)
    if any(remedy.actions for _, remedy in rule.remedies()):
        parts.append(textwrap.fill(PLACEHOLDERS.replace("`", ""), width, break_on_hyphens=False))
    if one.example:
        command = _indented(f"$ {one.example.command}", width)
        output = (f"  {line}".rstrip() for line in one.example.output.splitlines())
        damage = textwrap.fill(f"Example (damage: {one.example.damage})", width, break_on_hyphens=False)
        parts.append("\n".join([damage, command, *output]))
    return "\n\n".join(parts)


def _commands(action: Action) -> str:
    """Return commands with a line for each of their parts: a shell reads on after ``&&``."""
    title = f"Commands, if {action.case}" if action.case else "Commands"
    return "\n".join([title, *("  " + line.replace(" && ", " &&\n      ") for line in action.commands)])


def _indented(text: str, width: int) -> str:
    return textwrap.fill(text, width, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)


def write_text(name: str | None, out: TextIO) -> None:
    """Write the explanation of one rule, or a table of all rules."""
    if name:
        out.write(explain(rule_help(name), min(terminal_width(out), 100)) + "\n")
        return
    print_cells(out, _COLUMNS, cell_rows(_COLUMNS, RULES.values(), lambda rule: STYLES[rule.severity]))


_COLUMNS = (
    TableColumn("code", cell=lambda rule: rule.code),
    TableColumn("rule", cell=lambda rule: rule.name),
    TableColumn("severity", cell=lambda rule: rule.severity.label),
    TableColumn("message", text="wrap", cell=message_of),
)


FIELDS = RowKind("rules", "Rules").of(
    "rule",
    Column("code", "text", "code of the rule", "rule.code"),
    Column("rule", "text", "name of the rule", "rule.name"),
    Column(
        "severity", "text", "default severity; fatal cannot be lowered", "rule.severity.label",
        values=tuple(severity.label for severity in Severity),
    ),
    Column("message", "text", "the message, with the names of facts", lambda one: message_of(one.rule)),
    Column("cause", "text", "the cause"),
    Column("broker", "text", "the consequence on a broker", "rule.broker"),
    Column("remedy", "text", "the remedy", "rule.remedy"),
    Column(
        "actions", "objects", "commands of the remedy",
        lambda one: [{"file": file or None, **each._asdict()} for file, remedy in one.rule.remedies()
                     for each in remedy.actions],
        of=(
            Column("file", "text?", "kind of file; null for all"),
            Column("case", "text", "the case that they are for; empty for every case"),
            Column("commands", "texts", "lines for a shell"),
        ),
    ),
    Column(
        "example", "object?", "null for a rule that no file can show",
        of=(
            Column("command", "text", "the command"),
            Column("damage", "text", "how the file was damaged"),
            Column("output", "text", "output of the command"),
        ),
    ),
)  # fmt: skip
ROW_KINDS = (FIELDS,)


def rows(name: str | None) -> RowSet:
    """Return the explanation of one rule, or of all rules."""
    return RowSet.made(FIELDS.columns, map(rule_help, [known_rule(name).name] if name else RULES))


def markdown() -> str:
    lines = [
        "| code | rule | severity | message | what a broker does | what to do |",
        "|---|---|---|---|---|---|",
    ]
    rows = (
        f"| {rule.code} | `{rule.name}` | {rule.severity.label} | {message_of(rule)} | {rule.broker} | {rule.remedy} |"
        for rule in RULES.values()
    )
    return "\n".join([*lines, *rows])
