"""The command line: the group of commands, each imported when it is called.

Exit code 0: nothing found. 1: findings. 2: the command could not do its work.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import click

import kseg
from kseg.cli import startup
from kseg.cli.messages import FAILED, fail, ignore_stderr_errors, note, redirect_to_null
from kseg.engine import how_to_compile
from kseg.errors import KsegError
from kseg.format.storage.file_access import file_access
from kseg.lazy import imported
from kseg.text import unknown_name


def _warn_once() -> Callable[[str], object]:
    """Return a function that prints each warning once: some commands list a folder twice."""
    return cache(lambda line: note(f"warning: {line}"))


#: Command -> "module:function", in the order of the help.
COMMANDS: Mapping[str, str] = {
    "dump": "kseg.cli.dump:dump",
    "validate": "kseg.cli.validate:validate",
    "rules": "kseg.cli.rules:rules",
    "convert": "kseg.cli.convert:convert",
    "repair": "kseg.cli.repair:repair",
    "stats": "kseg.cli.stats:stats",
    "diff": "kseg.cli.diff:diff",
    "recovery": "kseg.cli.recovery:recovery",
    "transactions": "kseg.cli.transactions:transactions",
    "audit": "kseg.cli.audit:audit",
    "completion": "kseg.cli.completion:completion",
}


class Commands(click.Group):
    """The group of commands. Click exits with 1 on errors and shows tracebacks; here 1 means findings only."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = imported(COMMANDS[cmd_name])
        if "_KSEG_COMPLETE" in os.environ:
            imported("kseg.cli.completion:complete_paths")(command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            ctx.fail(unknown_name("command", args[0], COMMANDS))
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with file_access(warn=_warn_once()):
                return super().invoke(ctx)
        except BrokenPipeError:
            # The reader exited early (head, less). Click would exit with 1.
            redirect_to_null(sys.stdout)
            return 0

    def main(self, *args: Any, **kwargs: Any) -> Any:
        kwargs["standalone_mode"] = False
        startup.collect_rarely()
        if sys.stderr is None:
            # stderr is closed: the next opened file must not get its descriptor.
            sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
        try:
            code = super().main(*args, **kwargs)
        except click.exceptions.Exit as error:
            code = error.exit_code
        except click.ClickException as error:
            with ignore_stderr_errors():
                error.show()
            code = FAILED
        except click.Abort:
            code = fail("interrupted")
        except KsegError as error:
            code = fail(str(error))
        except MemoryError:
            code = fail("there is not enough memory for this; fewer processes (--jobs 1) need less")
        except OSError as error:
            code = fail(str(error) or type(error).__name__)
        except Exception as error:
            if os.environ.get("KSEG_DEBUG"):
                raise
            code = fail(f"internal error, please report it: {type(error).__name__}: {error} (KSEG_DEBUG=1 shows more)")
        try:
            if sys.stdout is not None:
                sys.stdout.flush()
        except OSError:
            redirect_to_null(sys.stdout)  # reported before; the interpreter would exit with 120
        startup.skip_final_collection()
        sys.exit(code)


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

    A PATH is a segment (.log), a partition folder, a log dir, a URL, or - for standard input.
    Exit codes: 0 no findings, 1 findings, 2 the command failed.
    """
