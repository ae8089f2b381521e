"""Write the man pages from the help texts: ``python -m tools.man_pages`` writes packaging/man/*.1, which the wheel holds."""

from __future__ import annotations

from pathlib import Path

import click

from kseg.cli.main import COMMANDS, EXAMPLES, main
from kseg.cli.option_table import group_of
from kseg.cli.typed_command import TypedCommand

FOLDER = Path(__file__).parents[1] / "packaging" / "man"

EXIT_STATUS = """.SH EXIT STATUS
.TP
.B 0
There are no findings at or above
.BR \\-\\-fail\\-on .
.TP
.B 1
There are findings.
.TP
.B 2
The command could not do its work.
.TP
.B 130
The command was interrupted.
"""


def pages() -> dict[str, str]:
    """Return the text of each page by its file name."""
    commands = {name: main.get_command(click.Context(main), name) for name in COMMANDS}
    made = {"kseg.1": _page("kseg", main, [f"kseg-{name}" for name in commands])}
    for name, command in commands.items():
        assert command is not None
        made[f"kseg-{name}.1"] = _page(f"kseg-{name}", command, ["kseg"])
    return made


def _page(name: str, command: click.Command, related: list[str]) -> str:
    """Return one page. It does not contain a date: the same help texts result in the same bytes."""
    context = click.Context(command, info_name=name.replace("-", " ", 1), help_option_names=["-h", "--help"])
    paragraphs = [" ".join(part.replace("\b", "").split()) for part in (command.help or "").split("\n\n")]
    lines = [
        f'.TH {_escape(name).upper()} 1 "" "kseg" "User Commands"',
        ".SH NAME",
        f"{_escape(name)} \\- {_escape(command.get_short_help_str(200).rstrip('.'))}",
        ".SH SYNOPSIS",
        f".B {_escape(context.command_path)}",
        " ".join(_escape(piece) for piece in command.collect_usage_pieces(context)),
        ".SH DESCRIPTION",
        *[line for paragraph in paragraphs for line in (".PP", _text(paragraph))][1:],
        ".SH OPTIONS",
    ]
    group = "Options"
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context) if isinstance(parameter, click.Option) else None
        if record and group_of(parameter.name) != group:
            group = group_of(parameter.name)
            lines.append(f".SS {group}")
        if record:
            lines += [".TP", f".B {_escape(record[0])}", _text(record[1])]
    if isinstance(command, click.Group):
        lines.append(".SH COMMANDS")
        for each in command.list_commands(context):
            found = command.get_command(context, each)
            lines += [".TP", f".BR kseg\\-{_escape(each)} (1)", _text(found.get_short_help_str(200) if found else "")]
    examples = command.examples if isinstance(command, TypedCommand) else EXAMPLES
    lines += [".SH EXAMPLES", ".nf", *map(_text, examples), ".fi"]
    see_also = ",\n".join(f".BR {_escape(each)} (1)" for each in related)
    return "\n".join(lines) + f"\n{EXIT_STATUS}.SH SEE ALSO\n{see_also}\n".replace(",\n.BR", " ,\n.BR")


def _escape(text: str) -> str:
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("…", "...").replace("–", "\\(en").replace("'", "\\(aq")
    return text.replace("≥", "\\(>=")


def _text(text: str) -> str:
    """Return a text line; a dot or a quote at its start would be a request."""
    escaped = _escape(" ".join(text.split()))
    return f"\\&{escaped}" if escaped.startswith(".") else escaped


def differences() -> list[str]:
    """Return the names of the files that differ from the help texts."""
    made = pages()
    kept = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.1")}
    return sorted(name for name in made.keys() | kept.keys() if made.get(name) != kept.get(name))


def write() -> None:
    """Write all pages, and remove those of commands that are gone."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    made = pages()
    for path in FOLDER.glob("*.1"):
        if path.name not in made:
            path.unlink()
    for name, text in made.items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write()
