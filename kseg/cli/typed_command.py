"""Commands whose options are the fields of one frozen class, so that only the command line reads a mapping.

``command`` makes the options from the rows of ``option_table``. A run reads the command line and the settings file, checks
the rules of ``option_rules``, and calls the command's function with one object of the class.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import click
from click.core import ParameterSource

import kseg
from kseg.cli import common, messages, settings_file
from kseg.cli.messages import check_stdout
from kseg.cli.option_rules import check_rules
from kseg.cli.option_table import ABSENT, CELLS, ROWS, group_of
from kseg.engine import lazy
from kseg.format.storage.file_access import file_access
from kseg.format.storage.segment_files import check_exists
from kseg.report import formats
from kseg.text import shell_command

if TYPE_CHECKING:
    import platform

    from kseg.format.storage.file_access import Progress
    from kseg.report.formats import ResultKind, Run
else:
    platform = lazy("platform")

_Asked = TypeVar("_Asked")

#: Under this key the context has the lines of the settings file that differ from the command line.
SETTINGS = "kseg.settings"


def this_run(started: int | None = None) -> Run:
    """Return the run of the current command, which ``started`` at an epoch millisecond; None is now."""
    context = click.get_current_context()
    return formats.Run(
        shell_command(["kseg", str(context.info_name), *_words(context)]),
        tuple(context.params["paths"]),
        platform.node() or "unknown",
        time.time_ns() // 1_000_000 if started is None else started,
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class FileOptions:
    """The options of the commands that read files and write results."""

    output: str | None = None
    max_rate: float | None
    kek: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReadOptions(FileOptions):
    """The options of the commands that read paths."""

    paths: tuple[str, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class DetailOptions(FileOptions):
    """The options of a table."""

    format: str
    verbose: bool
    quiet: bool
    columns: tuple[str, ...] | None = None

    @property
    def detail(self) -> int:
        """The detail of a table: 1 with ``-v``, -1 with ``-q``, else 0."""
        return int(self.verbose) - int(self.quiet)

    def write(self, kind: ResultKind, out: TextIO, *results: Any, run: Callable[[], Run] = this_run) -> None:
        """Write results in the format, the detail and the columns that the options say."""
        formats.write(kind, self.format, out, *results, detail=self.detail, run=run, columns=self.columns)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableOptions(DetailOptions, ReadOptions):
    """The options of the commands that write tables about paths."""

    jobs: int = 1

    @contextmanager
    def work(self, parts: int, size: int) -> Iterator[tuple[TextIO, Callable[..., Iterator[Any]], Progress]]:
        """Open the output and a progress bar for ``parts`` with ``size`` bytes; yield them and ``parallel_map``."""
        with (
            formats.destination(self.output) as out,
            messages.progress_bar(size) as done,
            common.parallel_map(self.jobs, parts, size, done) as each,
        ):
            yield out, each, done


@dataclasses.dataclass(frozen=True, kw_only=True)
class SparkOptions:
    """The options of the commands that can run on Spark."""

    spark: str | None
    spark_conf: tuple[str, ...]
    packages: tuple[str, ...]

    @property
    def spark_settings(self) -> dict[str, str]:
        """Spark's own settings by name, those of the command line."""
        settings = dict(text.split("=", 1) for text in self.spark_conf)
        return {"spark.jars.packages": ",".join(self.packages), **settings} if self.packages else settings


class TypedCommand(click.Command):
    """A command with the options that are fields of the class ``options``. ``examples`` are command lines for the help."""

    def __init__(self, name: str, options: type, examples: Sequence[str], **given: Any) -> None:
        super().__init__(name, **given)
        self.options = options
        self.examples = examples

    def get_help(self, ctx: click.Context) -> str:
        check_stdout()
        return super().get_help(ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options in their groups, and the examples."""
        self.format_about("", ctx, formatter)

    def format_about(self, word: str, ctx: click.Context, formatter: click.HelpFormatter) -> bool:
        """Write the options and the examples that contain a word; return whether there are any."""
        records: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx) if isinstance(parameter, click.Option) else None
            if record is not None and word in " ".join(record).lower():
                records.setdefault(group_of(parameter.name), []).append(record)
        for group, lines in records.items():
            with formatter.section(group):
                formatter.write_dl(lines)
        if examples := [line for line in self.examples if word in line.lower()]:
            with formatter.section("Examples"):
                for line in examples:
                    formatter.write(f"{'':>{formatter.current_indent}}{line}\n")
        return bool(records or examples)


def command(
    options: type[_Asked],
    *,
    results: ResultKind | None = None,
    arguments: Sequence[click.Argument] = (common.PATHS,),
    settings: bool = False,
    examples: Sequence[str] = (),
) -> Callable[[Callable[[_Asked], int | None]], TypedCommand]:
    """Return the decorator that makes a command of a function with one parameter, an object of ``options``.

    The options are the fields of the class but the ``arguments`` and those that ``ABSENT`` has with a reason for this
    command, whose default stays. ``results`` has the choices of ``--format``, the first
    one is the default. With ``settings`` a settings file can set options, too.
    """

    def decorate(function: Callable[[_Asked], int | None]) -> TypedCommand:
        name = function.__name__
        own = {field.name for field in dataclasses.fields(options)} - {one.name for one in arguments}  # type: ignore[arg-type]
        own -= {field for field in own if name in ABSENT.get(field, ())}
        made = [option_of(name, field, results) for field in ROWS if field in own]
        assert len(made) == len(own), own - {one.name for one in made}

        def asked_for(given: Mapping[str, Any], set_by_user: Collection[str]) -> _Asked:
            if "columns" in set_by_user and "format" not in set_by_user:
                given = {**given, "format": "table"}
            asked = options(**given)
            check_rules(name, asked, set_by_user)
            return asked

        def run(**given: Any) -> int | None:
            context = click.get_current_context()
            set_by_user = {key for key in given if context.get_parameter_source(key) is ParameterSource.COMMANDLINE}
            file, read = settings_file.read(context, asked_for) if settings else ("", {})
            set_by_user |= read.keys()
            given |= read
            context.meta[SETTINGS] = [
                f"{key.replace('_', '-')} = {value}" for key, value in read.items() if context.params[key] != value
            ]
            with settings_file.naming_file(file, read) if read else nullcontext():
                asked = asked_for(given, set_by_user)
                for key in given.get("kek", ()):  # it is read only where an object is encrypted
                    check_exists(key)
                if given.get("max_rate") is not None or given.get("kek"):
                    context.with_resource(file_access(max_rate=given["max_rate"], keys=given.get("kek", ())))
                if given.get("function") is not None:
                    context.with_resource(formats.print_to_stderr())
                return function(asked)

        return TypedCommand(name, options, examples, callback=run, params=[*arguments, *made], help=function.__doc__)

    return decorate


def option_of(command_name: str, field: str, results: ResultKind | None = None) -> click.Option:
    """Return the option of a command that a row and a cell of the table describe."""
    row, cell = ROWS[field], CELLS.get((command_name, field))
    default = row.default if cell is None or cell.default is ... else cell.default
    settings: dict[str, Any] = {}
    if field == "format" and results is not None:
        settings["type"] = common.Choice(list(results.writers))
        default = next(iter(results.writers))
    elif cell is not None and cell.least is not None:
        settings["type"] = common.WholeNumber(cell.least)
    elif kind := (cell and cell.type) or row.type:
        settings["type"] = kind()
    if row.is_flag:
        settings["is_flag"] = True
    else:
        settings["multiple"] = row.multiple if cell is None or cell.multiple is None else cell.multiple
    if default is not None or "/" in row.names:
        settings["default"] = default
    return click.Option(
        [*row.names.split(), field],
        metavar=(cell and cell.metavar) or row.metavar,
        help=(cell and cell.help) or row.help,
        show_default=row.show_default or (field == "limit" and default is not None),
        hidden=row.hidden,
        **settings,
    )
