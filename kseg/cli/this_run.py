"""Describe this run for its report: the command line, the host and the time."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

import kseg
from kseg.cli.typed_command import SETTINGS
from kseg.engine import lazy
from kseg.report.spool import Run

if TYPE_CHECKING:
    import platform
else:
    platform = lazy("platform")


def this_run(started: int | None = None) -> Run:
    """Return the run of the current command, which ``started`` at an epoch millisecond; None is now."""
    context = click.get_current_context()
    started = time.time_ns() // 1_000_000 if started is None else started
    words = ["kseg", str(context.info_name), *_words(context)]
    return Run(
        shlex.join(words),
        tuple(context.params["paths"]),
        platform.node() or "unknown",
        started,
        kseg.__version__,
        tuple(context.meta.get(SETTINGS, ())),
    )


def _words(context: click.Context) -> Iterator[str]:
    """Yield the options of the command line in the order of the help, then the paths."""
    for option in context.command.params:
        name = str(option.name)
        given = name in context.params and context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if not given or not isinstance(option, click.Option):
            continue
        value = context.params[name]
        if isinstance(value, bool):
            yield (option.opts if value else option.secondary_opts)[-1]
            continue
        for one in value if option.multiple else [value]:
            yield from (option.opts[-1], str(one))
    yield from context.params["paths"]
