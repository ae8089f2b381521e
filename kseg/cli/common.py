"""Options that several commands have, written once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import click

from kseg.files import pace
from kseg.frames.framings import FRAMINGS


def _once(context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    if given.count("-") > 1:
        raise click.BadParameter("standard input can be read once: give - once")
    return given


paths = click.argument("paths", metavar="PATH...", nargs=-1, required=True, callback=_once)
output = click.option(
    "-o", "--output", metavar="FILE", help="Write there instead of stdout; it appears whole or not at all."
)
no_crc = click.option("--no-crc", is_flag=True, help="Don't check CRCs, as a consumer with check.crcs=false.")
jobs = click.option(
    "--jobs", type=click.IntRange(1, 1024), default=None, metavar="N", help="Processes to use (default: the cores)."
)
spark = click.option(
    "--spark", metavar="MASTER", help="Have Spark do it: local[*], spark://…, yarn. Executors must see the PATHs."
)


def _limit_pace(context: click.Context, parameter: click.Parameter, text: str | None) -> None:
    try:
        pace.limit(None if text is None else pace.parse_rate(text))
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


max_rate = click.option(
    "--max-rate",
    metavar="BYTES/s",
    callback=_limit_pace,
    expose_value=False,
    help="Read at most so many bytes a second, as 50M, all processes together.",
)


framings = click.option(
    "--as",
    "framings",
    type=click.Choice(list(FRAMINGS)),
    multiple=True,
    help="PATHs are no segments, but that; once for all of them, or once for each.",
)


def output_format(names: Iterable[str]) -> Callable[[Any], Any]:
    """``--format`` with the names of a table of writers; the first is the default."""
    known = list(names)
    return click.option("--format", "format_name", type=click.Choice(known), default=known[0], show_default=True)
