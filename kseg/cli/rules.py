"""``kseg rules``: the rule table, and the explanation of one rule."""

from __future__ import annotations

import shutil

import click

from kseg.cli.common import output_format
from kseg.findings import known_rule
from kseg.report.rules import explain, rows, table
from kseg.rule_help import rule_help
from kseg.rule_table import RULES


@click.command()
@click.argument("name", metavar="[RULE]", required=False)
@output_format(("text", "jsonl"))
def rules(name: str | None, format_name: str) -> None:
    """List the rules, or explain one rule.

    RULE is a name or a code, such as crc-mismatch or K201.
    """
    if format_name == "jsonl":
        click.echo("\n".join(rows([known_rule(name).name] if name else list(RULES))))
    elif name:
        click.echo(explain(rule_help(name), min(shutil.get_terminal_size((100, 24)).columns, 100)))
    else:
        click.echo(table())
