"""``kseg rules``: the rule table, and the explanation of one rule."""

from __future__ import annotations

from dataclasses import dataclass

import click

from kseg.cli.common import Parsed, rule_names_and_codes
from kseg.cli.typed_command import command
from kseg.report.formats import RULES, destination, write


@dataclass(frozen=True, kw_only=True)
class RulesOptions:
    name: str | None
    format: str


@command(
    RulesOptions,
    results=RULES,
    arguments=(click.Argument(["name"], metavar="[RULE]", required=False, type=Parsed(str, rule_names_and_codes)),),
    examples=("kseg rules", "kseg rules crc-mismatch", "kseg rules K201 --format jsonl"),
)
def rules(asked: RulesOptions) -> None:
    """List the rules, or explain one rule.

    RULE is a name or a code, such as crc-mismatch or K201.
    """
    with destination(None) as out:
        write(RULES, asked.format, out, asked.name)
