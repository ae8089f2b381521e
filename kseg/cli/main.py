"""The command line: the group of commands, each imported when it is called.

Exit code 0: nothing found. 1: findings. 2: the command could not do its work. 128 + N: signal N ended it.

The module also makes the settings of the process that save start-up time: importing kseg changes nothing.
"""

from __future__ import annotations

import gc
import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache, partial
from itertools import takewhile
from typing import TYPE_CHECKING, Any, NoReturn, cast

import click

import kseg
from kseg import text  # loads json: few runs have a message
from kseg.cli import option_rules
from kseg.cli.messages import FAILED, INPUTS, check_stdout, fail, note, note_after, redirect_to_null, show_error
from kseg.engine import check_engine, how_to_compile, imported, lazy, missing_library
from kseg.errors import KsegError
from kseg.format.sidefiles import log_end
from kseg.format.storage import interrupts
from kseg.format.storage.file_access import file_access

if TYPE_CHECKING:
    from kseg.cli import option_table, other_tools
    from kseg.cli.typed_command import TypedCommand
else:
    option_table, other_tools = lazy("kseg.cli.option_table"), lazy("kseg.cli.other_tools")

#: Allocations between two collections. Imported modules stay and the loops leave no cycles: collecting every 700
#: objects, Python's default, takes a tenth of a short run.
GC_THRESHOLD = 50_000


def skip_final_collection() -> None:
    """Keep the interpreter from traversing all imported modules before it exits."""
    if "_duckdb" not in sys.modules:  # it prints those of its objects that are not freed
        gc.freeze()


#: Command -> "module:function", its line in the list of commands, and its group there, in the order of that list.
COMMANDS: Mapping[str, tuple[str, str, str]] = {
    "dump": ("kseg.cli.dump_command:dump", "Show batches, records, or the content of side files.", "Look"),
    "grep": ("kseg.cli.grep_command:grep", "Find records by patterns, JSON paths or keys.", "Look"),
    "explain": ("kseg.cli.explain_command:explain", "Explain a file: versions, fields at their bytes, faults.", "Look"),
    "stats": ("kseg.cli.stats_command:stats", "Count the content per segment, partition and log directory.", "Look"),
    "schemas": ("kseg.cli.schemas_command:schemas", "List the schemas of a registry, from its topic.", "Look"),
    "sql": ("kseg.cli.sql_command:sql", "Query segments with SQL.", "Look"),
    "pipeline": ("kseg.cli.pipeline_command:pipeline", "Load new records into tables, night by night.", "Load"),
    "doctor": ("kseg.cli.doctor_command:doctor", "Say whether a broker starts, what is lost, and what to do.", "Check"),
    "validate": ("kseg.cli.validate_command:validate", "Check segments and their side files.", "Check"),
    "rules": ("kseg.cli.rules_command:rules", "List the rules, or explain one rule.", "Check"),
    "diff": ("kseg.cli.diff_command:diff", "Compare replicas of partitions offline.", "Check"),
    "transactions": ("kseg.cli.transactions_command:transactions", "List the transactions of partitions.", "Check"),
    "lag": ("kseg.cli.lag_command:lag", "List the lag of consumer groups offline.", "Check"),
    "convert": ("kseg.cli.convert_command:convert", "Convert segments to another record version.", "Change"),
    "repair": ("kseg.cli.repair_command:repair", "Copy the valid batches of segments, and list the losses.", "Rescue"),
    "adopt": ("kseg.cli.adopt_command:adopt", "Make a cluster that starts, from its log directories alone.", "Rescue"),
    "tier": ("kseg.cli.tier_command:tier", "Bring partitions back from tiered storage, or check it.", "Rescue"),
    "carve": (
        "kseg.cli.carve_command:carve",
        "Find record batches in images of disks, by their bytes.",
        "Rescue",
    ),
    "recovery": ("kseg.cli.recovery_command:recovery", "Predict the start of a broker on a log directory.", "Rescue"),
    "demo": ("kseg.cli.demo_command:demo", "Write example files to try the commands with.", "Other"),
    "completion": (
        "kseg.cli.completion_command:completion",
        "Print the completion script of a shell, or install it.",
        "Other",
    ),
}

#: A command of older versions -> what takes its place.
_FORMER = {
    "audit": "there is no audit any more: use kseg sql --recipe NAME, kseg diff for replicas, kseg stats for retention pins",
    "version": "write kseg -V",
}
#: A command of older versions, until 1.0 -> the command with its options.
_RENAMED = {"report": ("doctor", "--format", "html")}


#: Command lines for the help, as those of each command.
EXAMPLES = ("kseg demo example", "kseg doctor example/kafka-logs", "kseg help dump time")

# The commands that return 0 if there is nothing in their inputs; validate, repair and recovery have findings for zeros.
_READERS = frozenset(
    {"convert", "diff", "dump", "explain", "grep", "repair", "schemas", "sql", "stats", "transactions"}
)


class Commands(click.Group):
    """The group of commands. Click exits with 1 on errors and shows tracebacks; here 1 means findings only."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        place, summary, _ = COMMANDS[cmd_name]
        command: click.Command = imported(place)
        command.short_help = summary
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args[:1] == ["help"]:
            if len(args) > 2 or (len(args) == 2 and args[1] not in {*COMMANDS, *_RENAMED, *other_tools.OTHER_COMMANDS}):
                click.echo(self._help_about(ctx, args[1:2] if len(args) > 2 else list(COMMANDS), args[-1]), nl=False)
                ctx.exit()
            args = [*args[1:2], "--help"]
        own = {name for param in self.get_params(ctx) for name in (*param.opts, *param.secondary_opts)}
        if args and args[0].startswith("-") and args[0] not in own:
            self._fail_for_options(ctx, "dump", args)  # kafka-dump-log has no commands
        return super().parse_args(ctx, args)

    def get_help(self, ctx: click.Context) -> str:
        check_stdout()
        return super().get_help(ctx)

    def _help_about(self, ctx: click.Context, names: list[str], word: str) -> str:
        """Return the options and the examples of commands that contain a word. Raises click.UsageError if none does."""
        check_stdout()
        formatter = ctx.make_formatter()
        found = False
        for name in names:
            if (command := self.get_command(ctx, name)) is None:
                ctx.fail(text.unknown_name("command", name, COMMANDS))
            own = click.Context(command, ctx, name, help_option_names=["-h", "--help"])
            part = own.make_formatter()
            if cast("TypedCommand", command).format_about(word.lower(), own, part):
                formatter.write(f"{'' if not found else chr(10)}kseg {name}\n{part.getvalue()}")
                found = True
        rules = imported("kseg.rule_table:RULES") if not found else {}
        if word in rules or any(rule.code == word.upper() for rule in rules.values()):
            return f"{word} is a rule: `kseg rules {word}` explains it\n"
        if not found:
            of = f"kseg {names[0]}" if len(names) == 1 else "kseg"
            ctx.fail(
                f"no option or example of {of} contains {word!r}: `{of.replace('kseg', 'kseg help', 1)}` lists all"
            )
        return formatter.getvalue()

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] in _RENAMED:
            args = [*_RENAMED[args[0]], *args[1:]]
        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            self._fail_for_word(ctx, args[0], args[1:])
        name, command, rest = super().resolve_command(ctx, args)
        if command is not None and not ctx.resilient_parsing:
            rest = option_rules.current_names(command, rest)
            _check_given_once(click.Context(command, ctx, name), rest)
            self._check_words(ctx, command, rest)
        return name, command, rest

    def _fail_for_word(self, ctx: click.Context, word: str, args: list[str]) -> NoReturn:
        """Raise click.UsageError for a word that is not a command, with the command line that a user can mean."""
        if word in _FORMER:
            ctx.fail(f"{word}: {_FORMER[word]}")
        if (words := other_tools.command_words(word, args)) is None:
            ctx.fail(text.unknown_name("command", word, COMMANDS))
        found = other_tools.replaced_words(words[0], words[1:], partial(self._options_of, ctx))
        line = found[1] if found else text.shell_command(["kseg", *words])
        raise click.UsageError(f"{word!r} is not a command: write\n{line}")

    def _check_words(self, ctx: click.Context, command: click.Command, args: list[str]) -> None:
        """Raise click.UsageError for options of other tools, with the command line of kseg."""
        own = option_rules.option_names(command)
        if command.name == "convert" and len(args) > 1 and os.path.isdir(args[0]):
            raise click.UsageError(
                f"the conversion comes first: write\n{text.shell_command(['kseg', 'convert', 'any-to-v2', *args])}"
            )
        if all(word.partition("=")[0] in own for word in args if word.startswith((*"-.",))) and not {
            "-o",
            "--offsets",
        } & {*args}:
            return  # without the import
        self._fail_for_options(ctx, str(command.name), args)
        for word in (word.partition("=")[0] for word in takewhile(lambda word: word != "--", args)):
            if word.startswith("--") and word not in own and (field := option_rules.field_of(word)):
                having = [name for name in COMMANDS if word in self._options_of(ctx, name)]
                why = option_table.why_absent(str(command.name), field)
                raise click.UsageError(f"kseg {command.name} has no {word}{why}. {_have(having)} it.")

    def _fail_for_options(self, ctx: click.Context, name: str, args: list[str]) -> None:
        """Raise click.UsageError if the arguments of a command have options of other tools."""
        if found := other_tools.replaced_words(name, args, partial(self._options_of, ctx)):
            others = list(dict.fromkeys(found[0]))
            noun = "option" if len(others) == 1 else "options"
            raise click.UsageError(f"no {noun} {', '.join(others)}: write\n{found[1]}")

    def _options_of(self, ctx: click.Context, name: str) -> dict[str, bool]:
        command = self.get_command(ctx, name)
        return option_rules.option_names(command) if command else {}

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands. Click would import all of them, which takes four times as long."""
        for group in dict.fromkeys(group for _, _, group in COMMANDS.values()):
            with formatter.section(group):
                formatter.write_dl([(name, row[1]) for name, row in COMMANDS.items() if row[2] == group])
        with formatter.section("Examples"):
            formatter.write("".join(f"{'':>{formatter.current_indent}}{line}\n" for line in EXAMPLES))

    def invoke(self, ctx: click.Context) -> Any:
        try:
            # Each warning once: some commands list a folder twice.
            warn, deleted = cache(lambda line: note_after(f"warning: {line}")), set[str]()
            with interrupts.raised(), file_access(warn=warn, deleted=deleted.add):
                code = self._unless_unknown(ctx, super().invoke(ctx))
            if deleted:
                which = "it" if len(deleted) == 1 else "them"
                note(f"a broker deleted {text.count_of(len(deleted), 'file')} before kseg could read {which}")
            return code
        except BrokenPipeError:
            # The reader exited early (head, less). Click would exit with 1.
            redirect_to_null(sys.stdout)
            return 0
        except interrupts.Interrupted as error:
            if error.ctrl_c:
                raise  # a terminal shows ^C: click ends that line
            raise click.Abort from error

    @staticmethod
    def _unless_unknown(ctx: click.Context, code: int) -> int:
        """Return the exit code. It is FAILED if a command found nothing in a segment of which nobody knows the content."""
        if ctx.invoked_subcommand not in _READERS or (code and (ctx.invoked_subcommand, code) != ("grep", 1)):
            return code
        for path in dict.fromkeys(ctx.meta.get(INPUTS, ())):
            for log in log_end.unknown_segments(path):
                code = fail(f"{log}: {log_end.ALL_ZEROS}: its content is unknown")
        return code

    def main(self, args: Sequence[str] | None = None, *rest: Any, **kwargs: Any) -> Any:
        before = {} if args is None else interrupts.handlers()  # a caller with arguments continues after the command
        kwargs["standalone_mode"] = False
        gc.set_threshold(GC_THRESHOLD)
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
            check_engine()
            return super().main(*args, **kwargs)
        except click.exceptions.Exit as error:
            return error.exit_code
        except click.exceptions.NoArgsIsHelpError as error:
            error.show()
            return FAILED
        except Exception as error:
            if (signal := interrupts.signal_behind(error)) is not None:
                return _report_signal(signal)
            return self._failure(error)

    @staticmethod
    def _failure(error: Exception) -> int:
        """Report why a command failed, and return its exit code. Raises the error again if KSEG_DEBUG is set."""
        try:
            raise error
        except click.ClickException as error:
            show_error(error)
            return FAILED
        except click.Abort:
            return _report_signal(interrupts.Interrupted())
        except KsegError as error:
            return fail(str(error))
        except MemoryError:
            return fail("not enough memory: use fewer processes, such as --jobs 1")
        except OSError as error:
            return fail(text.os_error_text(error))
        except Exception as error:
            if os.environ.get("KSEG_DEBUG"):
                raise
            if isinstance(error, ModuleNotFoundError):
                return fail(missing_library(error))
            return fail(f"internal error, please report it: {type(error).__name__}: {error} (KSEG_DEBUG=1 shows more)")


def _have(commands: Sequence[str]) -> str:
    """Return which commands have something, as the beginning of a sentence."""
    *others, last = (f"kseg {name}" for name in commands)
    return f"{', '.join(others)} and {last} have" if others else f"{last} has"


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
        check_stdout()
        click.echo(f"kseg {kseg.version_line()}\n{how_to_compile()}".rstrip())
        context.exit()


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("-V", "--version", is_flag=True, expose_value=False, is_eager=True, callback=_print_version,
              help="Show the version and exit.")  # fmt: skip
def main() -> None:
    """Inspect, validate, convert and repair Kafka log segments.

    A PATH is a segment (.log), a partition folder, a log directory, an archive (.tar, .zip), a URL, or - for standard input.
    Exit codes: 0 no findings, 1 findings, 2 the command failed.
    """
