"""``kseg rules``: the rule table, and the explanation of one rule."""

from __future__ import annotations

import click

from kseg.cli.common import output_format
from kseg.report.formats import RULES, destination, write


@click.command()
@click.argument("name", metavar="[RULE]", required=False)
@output_format(RULES)
def rules(name: str | None, format_name: str) -> None:
    """List the rules, or explain one rule.

    RULE is a name or a code, such as crc-mismatch or K201.
    """
    with destination(None) as out:
        write(RULES, format_name, out, name)
