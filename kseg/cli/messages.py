"""Messages on stderr: one line each, with control characters escaped."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

import click

from kseg import text  # loads json: few runs have a message
from kseg.errors import KsegError
from kseg.report import tables
from kseg.report.terminal import screen

#: Exit codes: findings, and a failure.
FOUND, FAILED = 1, 2
#: The key in ``click.Context.meta`` of the inputs that a command was given.
INPUTS = "kseg.inputs"


def note(line: str) -> None:
    """Print one line with the prefix ``kseg:``; a terminal shows it in several lines, broken between words."""
    message = f"kseg: {text.escape_controls(line)}\n"
    if sys.stderr is not None and sys.stderr.isatty():
        message = tables.text_lines(sys.stderr, message.rstrip("\n"), indent=2)
    with ignore_stderr_errors(), screen.writing(message):
        click.echo(message, nl=False, err=True)


def note_output(output: str | None, line: str) -> None:
    """Print a summary of the content of an output file; nothing if the output is stdout."""
    if output not in (None, "-"):
        note(f"{output}: {line}")


@contextmanager
def ignore_stderr_errors() -> Iterator[None]:
    """Ignore errors of writing to stderr (closed pipe, full disk): they do not change the outcome."""
    try:
        yield
    except OSError:
        redirect_to_null(sys.stderr)


@contextmanager
def guard_stdout() -> Iterator[None]:
    """Write results of finished work to stdout. Ignores a closed pipe; raises KsegError for a full disk."""
    try:
        yield
    except BrokenPipeError:
        redirect_to_null(sys.stdout)
    except OSError as error:
        redirect_to_null(sys.stdout)
        raise KsegError(f"standard output: {error.strerror or error}; the work itself is complete") from error


@contextmanager
def until_reader_closes() -> Iterator[None]:
    """Leave the block early and without error when the reader of stdout closes the pipe, as ``head`` does."""
    try:
        yield
    except BrokenPipeError:
        redirect_to_null(sys.stdout)


def redirect_to_null(stream: TextIO | None) -> None:
    """Redirect a stream to the null device, so that flushing its buffer at exit does not fail."""
    with suppress(OSError):
        if stream is not None:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)


def show_error(error: click.ClickException) -> None:
    """Print an error of click; a terminal shows it in several lines, broken between words."""
    line = f"Error: {error.format_message()}"
    if sys.stderr.isatty():
        line = tables.text_lines(sys.stderr, line, indent=2).rstrip("\n")
    with ignore_stderr_errors():
        click.UsageError(line.removeprefix("Error: "), getattr(error, "ctx", None)).show()


def fail(line: str) -> int:
    """Print one line with the reason of a failure; return the exit code for failures."""
    note(line)
    return FAILED
