"""The command line: the group of commands, each imported when it is called.

Exit code 0: nothing found. 1: findings. 2: the command could not do its work. 128 + N: signal N ended it.

The module also reads default options from ``kseg.toml`` or ``[tool.kseg]`` in ``pyproject.toml`` in the working folder,
and makes the settings of the process that save start-up time: importing kseg changes nothing.
"""

from __future__ import annotations

import gc
import os
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

import kseg
from kseg import text  # loads json: few runs have a message
from kseg.cli.messages import FAILED, fail, note, redirect_to_null, show_error
from kseg.engine import how_to_compile, imported, lazy, missing_library
from kseg.errors import KsegError, UsageError
from kseg.format.storage import interrupts
from kseg.format.storage.file_access import file_access
from kseg.text import to_json, unknown_name

if TYPE_CHECKING:
    import tomllib
else:
    tomllib = lazy("tomllib")


class Setting(NamedTuple):
    """A value of a settings file. ``key`` is the name as the file has it, with dashes or underscores."""

    file: str
    key: str
    value: Any


def read_settings(folder: Path, known: set[str]) -> dict[str, Setting]:
    """Return options of ``kseg validate`` by name with dashes, such as those in ``known``; ``rule`` can be a table.

    Raises UsageError for a file that is not TOML and for unknown names.
    """
    for name, place in (("kseg.toml", ()), ("pyproject.toml", ("tool", "kseg"))):
        path = folder / name
        if not path.is_file():
            continue
        try:
            text = path.read_text(encoding="utf-8")
            if place and "kseg" not in text:
                continue  # parsing most projects' files would take 3 ms for nothing
            table: Any = tomllib.loads(text)
        except (OSError, ValueError) as error:
            if place:
                continue  # a broken pyproject.toml is reported by the tools that own it
            raise UsageError(f"{name}: {_reason(error)}") from error
        for key in place:
            table = table.get(key, {})
        if table:
            return _options(table, name, known)
    return {}


def check_type(parameter: click.Parameter, value: Any) -> None:
    """Raise UsageError unless a value of a settings file has the type that an option needs."""
    if isinstance(parameter, click.Option) and parameter.is_flag:
        expected, valid = "true or false", isinstance(value, bool)
    elif parameter.multiple:
        expected, valid = "a list of texts", isinstance(value, list) and all(isinstance(one, str) for one in value)
    elif isinstance(parameter.type, click.IntRange):
        # The range is checked later.
        expected, valid = "a whole number", isinstance(value, int) and not isinstance(value, bool)
    else:
        expected, valid = "a text in quotes", isinstance(value, str)
    if not valid:
        raise UsageError(f"expected {expected}, got {to_json(value) if isinstance(value, (bool, str)) else value}")


def _reason(error: OSError | ValueError) -> str:
    if isinstance(error, UnicodeDecodeError):
        return f"byte {error.start} is not UTF-8: expected a text file in TOML"
    return (isinstance(error, OSError) and error.strerror) or str(error)


def _options(table: dict[str, Any], name: str, known: set[str]) -> dict[str, Setting]:
    options: dict[str, Setting] = {}
    for key, value in table.items():
        option = key.replace("_", "-")
        if option not in known:
            raise UsageError(f"{name}: {unknown_name('setting', key, sorted(known))}")
        if option == "rule" and isinstance(value, dict):
            value = [f"{rule}={severity}" for rule, severity in value.items()]
        options[option] = Setting(name, key, [value] if option == "rule" and isinstance(value, str) else value)
    return options


#: Allocations between two collections. Imported modules stay and the loops leave no cycles: collecting every 700
#: objects, Python's default, takes a tenth of a short run.
GC_THRESHOLD = 50_000


def collect_rarely() -> None:
    """Raise the threshold of the garbage collector."""
    gc.set_threshold(GC_THRESHOLD)


def skip_final_collection() -> None:
    """Keep the interpreter from traversing all imported modules before it exits."""
    if "_duckdb" not in sys.modules:  # it prints those of its objects that are not freed
        gc.freeze()


def _warn_once() -> Callable[[str], object]:
    """Return a function that prints each warning once: some commands list a folder twice."""
    return cache(lambda line: note(f"warning: {line}"))


#: Command -> "module:function" and its line in the list of commands, in the order of that list.
COMMANDS: Mapping[str, tuple[str, str]] = {
    "dump": ("kseg.cli.dump_command:dump", "Show batches, records, or the content of side files."),
    "grep": ("kseg.cli.grep_command:grep", "Find records by patterns, JSON paths or keys."),
    "doctor": ("kseg.cli.doctor_command:doctor", "Say whether a broker starts, what is lost, and what to do."),
    "validate": ("kseg.cli.validate_command:validate", "Check segments and their side files."),
    "explain": ("kseg.cli.explain_command:explain", "Explain a file: versions, fields at their bytes, faults."),
    "rules": ("kseg.cli.rules_command:rules", "List the rules, or explain one rule."),
    "convert": ("kseg.cli.convert_command:convert", "Convert segments to another record version."),
    "repair": ("kseg.cli.repair_command:repair", "Copy the valid batches of segments, and list the losses."),
    "stats": ("kseg.cli.stats_command:stats", "Count the content per segment, partition and log directory."),
    "diff": ("kseg.cli.diff_command:diff", "Compare replicas of partitions offline."),
    "recovery": ("kseg.cli.recovery_command:recovery", "Predict the start of a broker on a log directory."),
    "transactions": ("kseg.cli.transactions_command:transactions", "List the transactions of partitions."),
    "lag": ("kseg.cli.lag_command:lag", "List the lag of consumer groups offline."),
    "schemas": ("kseg.cli.schemas_command:schemas", "List the schemas of a registry, from its topic."),
    "sql": ("kseg.cli.sql_command:sql", "Query segments with SQL."),
    "completion": ("kseg.cli.completion_command:completion", "Print the completion script of a shell, or install it."),
}

#: A command of older versions -> what replaces it.
_GONE = {
    "audit": "there is no audit any more: use kseg sql --recipe NAME, kseg diff for replicas, kseg stats for retention pins"
}


#: A command of older versions, until 1.0 -> the command with its options.
_RENAMED = {"report": ("doctor", "--format", "html")}


class Commands(click.Group):
    """The group of commands. Click exits with 1 on errors and shows tracebacks; here 1 means findings only."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        place, summary = COMMANDS[cmd_name]
        command: click.Command = imported(place)
        command.short_help = summary
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] in _RENAMED:
            args = [*_RENAMED[args[0]], *args[1:]]
        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            ctx.fail(_GONE.get(args[0]) or text.unknown_name("command", args[0], COMMANDS))
        name, command, rest = super().resolve_command(ctx, args)
        if command is not None and not ctx.resilient_parsing:
            _check_given_once(click.Context(command, ctx, name), rest)
        return name, command, rest

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands. Click would import all of them, which takes four times as long."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with interrupts.raised(), file_access(warn=_warn_once()):
                return super().invoke(ctx)
        except BrokenPipeError:
            # The reader exited early (head, less). Click would exit with 1.
            redirect_to_null(sys.stdout)
            return 0
        except interrupts.Interrupted as error:
            if error.ctrl_c:
                raise  # a terminal shows ^C: click ends that line
            raise click.Abort from error

    def main(self, args: Sequence[str] | None = None, *rest: Any, **kwargs: Any) -> Any:
        before = {} if args is None else interrupts.handlers()  # a caller with arguments continues after the command
        kwargs["standalone_mode"] = False
        collect_rarely()
        if sys.stderr is None:
            # stderr is closed: the next opened file must not get its descriptor.
            sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
        code = self._exit_code(args, *rest, **kwargs)
        try:
            if sys.stdout is not None:
                sys.stdout.flush()
        except OSError:
            redirect_to_null(sys.stdout)  # reported before; the interpreter would exit with 120
        skip_final_collection()
        interrupts.restore(before)
        sys.exit(code)

    def _exit_code(self, *args: Any, **kwargs: Any) -> Any:
        """Run the command, and report why it failed."""
        try:
            return super().main(*args, **kwargs)
        except click.exceptions.Exit as error:
            return error.exit_code
        except click.exceptions.NoArgsIsHelpError as error:
            error.show()
            return FAILED
        except click.ClickException as error:
            show_error(error)
            return FAILED
        except click.Abort as error:
            return _report_signal(interrupts.signal_behind(error) or interrupts.Interrupted())
        except KsegError as error:
            return fail(str(error))
        except MemoryError:
            return fail("not enough memory: use fewer processes, such as --jobs 1")
        except OSError as error:
            return fail(text.os_error_text(error))
        except Exception as error:
            if (signal := interrupts.signal_behind(error)) is not None:
                return _report_signal(signal)
            if os.environ.get("KSEG_DEBUG"):
                raise
            if isinstance(error, ModuleNotFoundError):
                return fail(missing_library(error))
            return fail(f"internal error, please report it: {type(error).__name__}: {error} (KSEG_DEBUG=1 shows more)")


def _report_signal(signal: interrupts.Interrupted) -> int:
    note(str(signal))
    return signal.exit_code


def _check_given_once(context: click.Context, args: Sequence[str]) -> None:
    """Raise click.UsageError for an option that is given again: click would use its last value, without a message.

    A flag can be repeated, except with its opposite.
    """
    try:
        _, _, order = context.command.make_parser(context).parse_args(list(args))
    except click.UsageError:
        return  # the command reports it
    for option, count in Counter(order).items():
        if not isinstance(option, click.Option) or count == 1 or option.multiple or option.count:
            continue
        if not option.is_flag:
            raise click.UsageError(f"{option.opts[-1]} is given {count} times: give it once", context)
        given = [name for name in (option.opts[-1], *option.secondary_opts) if name in args]
        if len(given) > 1:
            raise click.UsageError(f"{' and '.join(given)} contradict each other: give one", context)


def _print_version(context: click.Context, parameter: click.Parameter, requested: bool) -> None:
    # Not click.version_option, which needs the text in every run: to find the compiled modules takes time.
    if requested and not context.resilient_parsing:
        click.echo(f"kseg {kseg.version_line()}\n{how_to_compile()}".rstrip())
        context.exit()


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--version", is_flag=True, expose_value=False, is_eager=True, callback=_print_version,
              help="Show the version and exit.")  # fmt: skip
def main() -> None:
    """Inspect, validate, convert and repair Kafka log segments.

    A PATH is a segment (.log), a partition folder, a log directory, an archive (.tar, .zip), a URL, or - for standard input.
    Exit codes: 0 no findings, 1 findings, 2 the command failed.
    """
