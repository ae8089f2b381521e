"""Options that several commands share."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import click

from kseg.errors import UsageError
from kseg.format.storage.file_access import file_access, parse_rate
from kseg.format.storage.source import STDIN
from kseg.format.wire.framings import FRAMINGS
from kseg.lazy import lazy
from kseg.report.formats import ResultKind
from kseg.text import unknown_name

if TYPE_CHECKING:
    from kseg.format.sidefiles import segment_files
else:
    segment_files = lazy("kseg.format.sidefiles.segment_files")  # loads the registry; few runs have an output file


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


def check_output(output: str | None, inputs: Iterable[str]) -> None:
    """Raise UsageError if the output is an input, a side file of an input, in an input folder, or in no folder."""
    if output is None or output == "-":
        return
    segment_files.check_output(output, inputs)
    folder = os.path.dirname(output)
    if folder and not os.path.isdir(folder):
        raise UsageError(f"{output}: {folder} is not a folder")


def _once(context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    if given.count(STDIN) > 1:
        raise click.BadParameter("standard input can be read only once: give one -")
    return given


paths = click.argument("paths", metavar="PATH...", nargs=-1, required=True, callback=_once)
output = click.option("-o", "--output", metavar="FILE", help="Write to FILE instead of stdout, atomically.")
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
