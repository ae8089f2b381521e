"""The tables of options in the documentation, as ``kseg.cli`` has them."""

from __future__ import annotations

from collections.abc import Iterator

import click

from kseg.cli.main import COMMANDS, main
from kseg.cli.option_rules import OLD_NAMES, RULES, Excludes, field_of
from kseg.cli.option_table import ABSENT, CELLS, GROUPS, OTHERS, ROWS, group_of


def fields_of(command: str) -> set[str]:
    """Return the fields of the options of a command."""
    found = main.get_command(click.Context(main), command)
    assert found is not None
    return {str(one.name) for one in found.params if isinstance(one, click.Option)}


def code(text: str) -> str:
    """Return a text as code in a cell of a table."""
    return f"`{text.replace('|', chr(92) + '|')}`"


def all_options() -> str:
    """Return a table of all options for each group, with the commands that have them."""
    having = {name: fields_of(name) for name in COMMANDS}
    parts = []
    for group in GROUPS:
        lines = [f"### {group}", "", "| option | meaning | commands |", "|---|---|---|"]
        for field, row in ROWS.items():
            if group_of(field) == group and not row.hidden:
                names = ", ".join(code(name) for name in row.names.replace("/", " ").split())
                commands = [name for name in COMMANDS if field in having[name]]
                told = "all but " + ", ".join(n for n in COMMANDS if n not in commands) if len(commands) > 8 else ""
                lines.append(f"| {names} | {row.help} | {told or ', '.join(commands)} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def exceptions() -> str:
    """Return a table of what commands have differently, and one of the options that they lack."""
    lines = ["| command | option | there | reason |", "|---|---|---|---|"]
    for (command, field), cell in CELLS.items():
        default = "" if cell.default in (..., None) or isinstance(cell.default, bool) else f" Default: {cell.default}."
        text = f"{cell.help or ROWS[field].help}{default}"
        lines.append(f"| {command} | {code(ROWS[field].names.split()[-1])} | {text} | {cell.why} |")
    lines += ["", "| option | not in | reason |", "|---|---|---|"]
    for field, reasons in ABSENT.items():
        by_reason: dict[str, list[str]] = {}
        for name, why in absences(field).items():
            by_reason.setdefault(why, []).append(name)
        shown = code(ROWS[field].names.split()[-1])
        others = reasons.get(OTHERS)
        for why, names in by_reason.items():
            listed = "other commands" if why == others and len(names) > 3 else ", ".join(names)
            lines.append(f"| {shown} | {listed} | {why} |")
    return "\n".join(lines)


def absences(field: str) -> dict[str, str]:
    """Return the commands without an option that several commands have, with the reason for each."""
    reasons = ABSENT.get(field, {})
    without = [name for name in COMMANDS if field not in fields_of(name)]
    return {name: why for name in without if (why := reasons.get(name, reasons.get(OTHERS)))}


def rules_of(command: str) -> Iterator[str]:
    """Yield a line for each rule about the options of a command."""
    having = fields_of(command)
    for rule in RULES:
        if rule.command not in ("", command):
            continue
        options, others = (
            [code(one.replace("=", " ")) for one in names.split() if field_of(one) in having]
            for names in (rule.options, rule.others)
        )
        if options and others:
            verb = "cannot be combined with" if isinstance(rule, Excludes) else "need" if len(options) > 1 else "needs"
            ending = f": {rule.why}" if rule.why else ""
            yield f"- {_joined(options, 'and')} {verb} {_joined(others, 'or')}{ending}."


def _joined(names: list[str], word: str) -> str:
    return f" {word} ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def old_names() -> str:
    """Return a table of the names of older versions."""
    lines = ["| command | old name | name |", "|---|---|---|"]
    return "\n".join([*lines, *(f"| {name} | {code(old)} | {code(new)} |" for (name, old), new in OLD_NAMES.items())])
