"""What several commands share: options, and work on partitions by several processes.

Options that several commands share.

Work on partitions in this process or, if there is enough of it, in several processes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kseg.cli.messages import note
from kseg.engine import lazy
from kseg.errors import UsageError
from kseg.format.segment import split_points
from kseg.format.storage.file_access import Progress, file_access, parse_rate
from kseg.format.storage.process_pool import map_ordered, process_pool, progress_to
from kseg.format.storage.source import STDIN
from kseg.format.wire.framings import FRAMINGS
from kseg.format.writer import output_rule  # loads the registry; few runs have an output file
from kseg.report.formats import ResultKind
from kseg.text import unknown_name

if TYPE_CHECKING:
    from click import shell_completion
    from click.shell_completion import CompletionItem
else:
    shell_completion = lazy("click.shell_completion")


_MAX_JOBS = 1024


class Choice(click.Choice[str]):
    """A choice of names that suggests the nearest one for a wrong name."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            self.fail(unknown_name("value", str(value), self.choices), param, ctx)


class WholeNumber(click.IntRange):
    """A whole number from ``min`` to ``max``, both inclusive."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            number = int(value) if isinstance(value, str) else value
            return super().convert(number, param, ctx)
        except (ValueError, click.BadParameter):
            least = "" if self.min is None else f" of at least {self.min}"
            limits = least if self.max is None else f" from {self.min} to {self.max}"
            self.fail(f"expected a whole number{limits}, got {value!r}", param, ctx)


class PathText(click.types.StringParamType):
    """A path or a URL, as it was given. The shell completes it. Its subclasses state what the command does with it.

    ``named``: the text is ``NAME=PATH``, or the path alone.
    """

    def __init__(self, *, named: bool = False) -> None:
        self._named = named

    def path(self, text: str) -> str:
        """Return the path in a value of the parameter."""
        return text.partition("=")[2] or text if self._named else text

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [shell_completion.CompletionItem(incomplete, type="file")]


class InputPath(PathText):
    """A path that is read."""


class OutputPath(PathText):
    """A file that is written. The command calls ``check_outputs`` before its work."""


class OutputFolder(OutputPath):
    """A folder in which files are written. The command calls ``check_outputs`` before its work."""


class ResultPath(PathText):
    """DST of ``convert`` and ``repair``, which check it themselves."""


def check_outputs(*inputs: str) -> None:
    """Raise UsageError if an output of the current command could harm a file of Kafka, or an input.

    ``inputs`` are inputs that no parameter of type InputPath has.
    """
    context = click.get_current_context()
    given: list[tuple[click.Parameter, str]] = []
    for parameter in context.command.params:
        value = context.params.get(parameter.name or "")
        if isinstance(parameter.type, PathText) and value is not None:
            texts = (value,) if isinstance(value, str) else value
            given += [(parameter, parameter.type.path(text)) for text in texts]
    read = [*inputs, *(path for parameter, path in given if isinstance(parameter.type, InputPath))]
    for parameter, path in given:
        if isinstance(parameter.type, OutputFolder):
            output_rule.check_output_folder(path, read, parameter.opts[0])
        elif isinstance(parameter.type, OutputPath) and path != STDIN:
            output_rule.check_output(path, read, parameter.opts[0])


def _once(context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    if given.count(STDIN) > 1:
        raise click.BadParameter("standard input can be read only once: give one -")
    return given


def _or_current_folder(context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    if not given and not context.resilient_parsing:
        note(f"no PATH: checking the current folder, {Path.cwd()}")
    return _once(context, parameter, given or (".",))


paths = click.argument("paths", metavar="PATH...", nargs=-1, required=True, callback=_once, type=InputPath())
paths_or_current_folder = click.argument("paths", metavar="[PATH]...", nargs=-1, callback=_or_current_folder,
                                         type=InputPath())  # fmt: skip
output = click.option("-o", "--output", metavar="FILE", type=OutputPath(),
                      help="Write to FILE instead of stdout, atomically.")  # fmt: skip
no_crc = click.option("--no-crc", is_flag=True, help="Do not check CRCs.")


def _cores() -> int:
    """Return the number of processors that this process may use, at most _MAX_JOBS."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(usable, _MAX_JOBS)


jobs = click.option(
    "--jobs",
    type=WholeNumber(1, _MAX_JOBS),
    default=_cores,
    metavar="N",
    help="Run N processes. Default: number of cores.",
)
spark = click.option(
    "--spark",
    metavar="MASTER",
    help="Run on Spark: local[*], spark://… or yarn.",
)


def _limit_rate(context: click.Context, parameter: click.Parameter, text: str | None) -> None:
    try:
        if text is not None:
            context.with_resource(file_access(max_rate=parse_rate(text)))
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


max_rate = click.option(
    "--max-rate",
    metavar="BYTES/s",
    callback=_limit_rate,
    expose_value=False,
    help="Limit reading, in all processes together, such as 50M.",
)


framings = click.option(
    "--as",
    "framings",
    type=Choice(list(FRAMINGS)),
    multiple=True,
    help="Read PATHs as this kind of file. Once, or once per PATH.",
)


def output_format(kind: ResultKind, text: str | None = None) -> Callable[[Any], Any]:
    """Return the option ``--format`` with the formats of a kind of results; the first is the default."""
    known = list(kind.writers)
    return click.option("--format", "format_name", type=Choice(known), default=known[0], show_default=True, help=text)


def details(verbose: str, quiet: str) -> Callable[[Any], Any]:
    """Return the options ``-v`` and ``-q`` of a table, with these help texts; ``detail_of`` reads them."""

    def add(command: Any) -> Any:
        command = click.option("-q", "--quiet", is_flag=True, help=quiet)(command)
        return click.option("-v", "--verbose", is_flag=True, help=verbose)(command)

    return add


def detail_of(verbose: bool, quiet: bool) -> int:
    """Return the detail of a table: 1 with ``-v``, -1 with ``-q``, else 0. Raises UsageError for both."""
    if verbose and quiet:
        raise UsageError("--verbose and --quiet contradict each other: choose one")
    return int(verbose) - int(quiet)


@contextmanager
def parallel_map(jobs: int, parts: int, size: int, progress: Progress) -> Iterator[Callable[..., Iterator[Any]]]:
    """Yield ``map``, or a function like it that runs in ``jobs`` processes.

    One process is enough for a single part, and for a few bytes: ``parts`` with ``size`` bytes in all. ``progress`` is
    called with the bytes that the calls pass to ``add_progress``.
    """
    if jobs == 1 or parts < 2 or size < 4 * split_points.RANGE_SIZE:
        with progress_to(progress):
            yield map
        return
    with process_pool(jobs, progress) as pool:
        yield partial(map_ordered, pool)
