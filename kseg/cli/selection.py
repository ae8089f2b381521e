"""Options that select rows by offset and time, for the commands that show records."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import click

from kseg.ranges import parse_offsets, parse_time

_Value = TypeVar("_Value")


def parsed(parse: Callable[[str], _Value]) -> Callable[[click.Context, click.Parameter, str | None], _Value | None]:
    """Return the callback of an option whose text ``parse`` converts."""

    def callback(context: click.Context, parameter: click.Parameter, text: str | None) -> _Value | None:
        try:
            return None if text is None else parse(text)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    return callback


def each_parsed(
    parse: Callable[[str], _Value],
) -> Callable[[click.Context, click.Parameter, tuple[str, ...]], tuple[_Value | None, ...]]:
    """Return the callback of an option that can be repeated, whose texts ``parse`` converts."""
    one = parsed(parse)
    return lambda context, parameter, texts: tuple(one(context, parameter, text) for text in texts)


offsets = click.option(
    "--offsets",
    metavar="A:B",
    callback=parsed(parse_offsets),
    help="Show offsets from A to before B; also A: or :B.",
)
since = click.option(
    "--since",
    metavar="TIME",
    callback=parsed(parse_time),
    help="Show rows from TIME: ISO 8601 or epoch milliseconds.",
)
until = click.option("--until", metavar="TIME", callback=parsed(parse_time), help="Show rows before TIME.")
