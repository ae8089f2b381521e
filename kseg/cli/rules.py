"""``kseg rules``: the rule table, and the explanation of one rule."""

from __future__ import annotations

import click

from kseg.findings import known_rule
from kseg.report.rules import explain, table


@click.command()
@click.argument("name", required=False)
def rules(name: str | None) -> None:
    """List the rules, or explain one: NAME is a rule's name or code."""
    click.echo(explain(known_rule(name)) if name else table())
