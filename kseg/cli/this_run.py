"""What reports say about this run: its command line, the host and the time."""

from __future__ import annotations

import platform
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

import click
from click.core import ParameterSource

import kseg
from kseg.report.run import Run


def this_run(context: click.Context, started: int, options: Mapping[str, Any] | None = None) -> Run:
    """Return the run of a command that started at an epoch millisecond.

    ``options`` are those of the command line together with those of a settings file; None if there are no settings.
    """
    given = context.params
    words = ["kseg", str(context.info_name), *_words(context)]
    settings = [
        f"{name.replace('_', '-')} = {value}" for name, value in (options or {}).items() if given.get(name) != value
    ]
    return Run(
        shlex.join(words),
        tuple(given["paths"]),
        platform.node() or "unknown",
        started,
        kseg.__version__,
        tuple(settings),
    )


def _words(context: click.Context) -> Iterator[str]:
    """Yield the options of the command line in the order of the help, then the paths."""
    for option in context.command.params:
        name = str(option.name)
        if context.get_parameter_source(name) is not ParameterSource.COMMANDLINE or not isinstance(
            option, click.Option
        ):
            continue
        value = context.params.get(name)
        if isinstance(value, bool):
            yield (option.opts if value else option.secondary_opts)[-1]
            continue
        for one in value or () if option.multiple else [value]:
            yield from (option.opts[-1], str(one))
    yield from context.params["paths"]
