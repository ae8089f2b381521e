"""The pages of the commands: usage, options and defaults, as Click has them."""

from __future__ import annotations

from collections.abc import Mapping

import click

from kseg.cli.main import COMMANDS, main
from kseg.cli.option_table import group_of
from kseg.cli.typed_command import TypedCommand
from tools.docs.option_tables import rules_of
from tools.docs.parts import code

#: Command -> pages that show it at work: title and path below docs/.
SEE: Mapping[str, tuple[tuple[str, str], ...]] = {
    "dump": (
        ("Look at a segment", "how-to/look-at-a-segment.md"),
        ("Find a record", "how-to/find-a-record.md"),
        ("Decode Avro, Protobuf and JSON values", "how-to/decode-values.md"),
        ("Read internal topics", "how-to/read-internal-topics.md"),
    ),
    "grep": (("Find a record", "how-to/find-a-record.md"),),
    "doctor": (
        ("A broker does not start", "tutorials/broker-does-not-start.md"),
        ("Read an HTML report", "how-to/read-an-html-report.md"),
    ),
    "validate": (
        ("Check backups in CI", "tutorials/check-backups-in-ci.md"),
        ("Check a running broker every night", "how-to/check-every-night.md"),
    ),
    "explain": (
        ("The message format by example", "explanation/message-format-by-example.md"),
        ("The log format", "explanation/log-format.md"),
    ),
    "rules": (("All rules", "reference/rules/index.md"),),
    "convert": (("Upgrade old segments to v2", "tutorials/upgrade-old-segments.md"),),
    "repair": (("Repair a partition", "how-to/repair-a-partition.md"),),
    "stats": (("Count the content", "how-to/count-the-content.md"),),
    "diff": (("Compare replicas", "how-to/compare-replicas.md"),),
    "adopt": (("Bring a cluster back from its disks", "how-to/bring-a-cluster-back.md"),),
    "tier": (("Read tiered storage", "how-to/read-tiered-storage.md"),),
    "carve": (("Find record batches on a disk", "how-to/carve-a-disk.md"),),
    "recovery": (("A broker does not start", "tutorials/broker-does-not-start.md"),),
    "transactions": (("Find hanging transactions", "how-to/find-hanging-transactions.md"),),
    "lag": (("List the lag of consumer groups", "how-to/list-the-lag-of-groups.md"),),
    "schemas": (("Decode Avro, Protobuf and JSON values", "how-to/decode-values.md"),),
    "sql": (("Query segments with SQL", "how-to/query-with-sql.md"),),
    "pipeline": (("Load segments into tables every night", "how-to/load-into-tables.md"),),
    "demo": (("Which command for which symptom", "how-to/choose-a-command.md"),),
    "completion": (("Install kseg", "how-to/install.md"),),
}


def pages() -> dict[str, str]:
    """Return the text of each page by its file name."""
    return {"index.md": _index(), **{f"{name}.md": _page(name) for name in COMMANDS}}


def _index() -> str:
    lines = ["# Commands", "", *(f"{text}\n" for text in _paragraphs(main)), "| command | purpose |", "|---|---|"]
    for name in COMMANDS:
        command = main.get_command(click.Context(main), name)
        assert command is not None
        lines.append(f"| [`kseg {name}`]({name}.md) | {_escape(command.get_short_help_str(200))} |")
    return "\n".join(lines) + "\n"


def _paragraphs(command: click.Command) -> list[str]:
    return [_escape(part.replace("\b", "")) for part in (command.help or "").split("\n\n")]


def _page(name: str) -> str:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    context = click.Context(command, info_name=f"kseg {name}", help_option_names=["-h", "--help"])
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    lines = [f"# kseg {name}", "", *(f"{text}\n" for text in _paragraphs(command)), f"```text\nUsage: {usage}\n```", ""]
    lines += ["## Options", ""]
    group = ""
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context) if isinstance(parameter, click.Option) else None
        if record and group_of(parameter.name) != group:
            group = group_of(parameter.name)
            lines += [*[""] * (lines[-1] != ""), f"### {group}", "", "| option | meaning |", "|---|---|"]
        if record:
            lines.append(f"| {code(record[0])} | {_escape(record[1])} |")
    if rules := list(rules_of(name)):
        lines += ["", "## Combinations", "", *rules]
    assert isinstance(command, TypedCommand)
    lines += ["", "## Examples", "", *(f"- {code(line)}" for line in command.examples)]
    lines += ["", "[Exit codes](../exit-codes.md) are the same for all commands, unless the text above says more.", ""]
    lines += ["## See also", "", *(f"- [{title}](../../{path})" for title, path in SEE[name])]
    return "\n".join(lines) + "\n"


def _escape(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("[", "\\[").replace("<", "&lt;").replace("*", "\\*")
