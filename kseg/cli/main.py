"""The command line: the group of commands. Exit code 0 is nothing found, 1 is findings, 2 is that it could not be done."""

from __future__ import annotations

import gc
import os
import sys
from typing import Any

import click

import kseg
from kseg.cli.audit import audit
from kseg.cli.convert import convert
from kseg.cli.diff import diff
from kseg.cli.dump import dump
from kseg.cli.messages import FAILED, fail, heard, silence
from kseg.cli.recovery import recovery
from kseg.cli.repair import repair
from kseg.cli.stats import stats
from kseg.cli.transactions import transactions
from kseg.cli.validate import rules, validate
from kseg.errors import KsegError


class Commands(click.Group):
    """Click ends with 1 where contract says 2, and shows tracebacks; here 1 means findings, and only that."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # The reader has what it wanted (head, less). Click would end with 1.
            silence(sys.stdout)
            return 0

    def main(self, *args: Any, **kwargs: Any) -> Any:
        kwargs["standalone_mode"] = False
        if sys.stderr is None:
            # Closed: the next file to be opened must not become it.
            sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
        try:
            code = super().main(*args, **kwargs)
        except click.exceptions.Exit as error:
            code = error.exit_code
        except click.ClickException as error:
            with heard():
                error.show()
            code = FAILED
        except click.Abort:
            code = fail("interrupted")
        except KsegError as error:
            code = fail(str(error))
        except (OSError, MemoryError) as error:
            code = fail(str(error) or type(error).__name__)
        except Exception as error:
            if os.environ.get("KSEG_DEBUG"):
                raise
            code = fail(f"internal error, please report it: {type(error).__name__}: {error} (KSEG_DEBUG=1 shows more)")
        try:
            if sys.stdout is not None:
                sys.stdout.flush()
        except OSError:
            silence(sys.stdout)  # what it could not take was told: the interpreter would end with 120
        gc.freeze()  # or the interpreter looks through all that was imported, before it lets go of it
        sys.exit(code)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(message="kseg %(version)s", version=kseg.version_line())
def main() -> None:
    """Inspect, validate and convert Kafka log segments.

    A PATH is a segment (.log), a partition folder, a log dir, a URL, or - for standard input.
    Exit codes: 0 nothing found, 1 findings, 2 it could not be done.
    """


for command in (dump, validate, rules, convert, repair, stats, diff, recovery, transactions, audit):
    main.add_command(command)
