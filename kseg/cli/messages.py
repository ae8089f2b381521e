"""Messages on stderr: one line each, with control characters escaped. And a progress bar, only on a terminal."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, TextIO

import click

from kseg import findings, text  # loads json: few runs have a message
from kseg.errors import KsegError
from kseg.report import formats, tables, terminal

if TYPE_CHECKING:
    from kseg.format.storage.file_access import Progress
    from kseg.format.storage.segment_files import SegmentFile

#: Exit codes: findings, and a failure.
FOUND, FAILED = 1, 2
#: The key in ``click.Context.meta`` of the inputs that a command was given.
INPUTS = "kseg.inputs"
_AFTER, _REDACTED = "kseg.after", "kseg.redacted"
_MOST_AFTER = 6


def note(line: str) -> None:
    """Print one line with the prefix ``kseg:``; a terminal shows it in several lines, broken between words."""
    context = click.get_current_context(silent=True)
    redacted = context.meta.get(_REDACTED) if context else None
    message = f"kseg: {text.escape_controls(redacted(line) if redacted else line)}\n"
    if sys.stderr is not None and sys.stderr.isatty():
        message = tables.text_lines(sys.stderr, message.rstrip("\n"), indent=2)
    with ignore_stderr_errors(), terminal.screen.writing(message):
        click.echo(message, nl=False, err=True)


@contextmanager
def redacted_messages(redacted: Callable[[str], str]) -> Iterator[None]:
    """Print the messages of a command as ``redacted`` returns them, also why it failed."""
    click.get_current_context().meta[_REDACTED] = redacted
    try:
        yield
    except BrokenPipeError:
        raise
    except (KsegError, OSError) as error:
        why = text.os_error_text(error) if isinstance(error, OSError) else str(error)
        raise KsegError(redacted(why)) from error


def note_after(line: str) -> None:
    """Print one line after the results of the command: their answer comes first.

    A terminal shows the first ``_MOST_AFTER`` such lines and the number of the others, a pipe all.
    """
    context = click.get_current_context(silent=True)
    if context is None:
        note(line)
        return
    if _AFTER not in context.meta:
        context.call_on_close(partial(_print_after, context.meta.setdefault(_AFTER, [])))
    context.meta[_AFTER].append(line)


def _print_after(lines: list[str]) -> None:
    folded = sys.stderr is not None and sys.stderr.isatty() and len(lines) > _MOST_AFTER
    for line in lines[:_MOST_AFTER] if folded else lines:
        note(line)
    if folded:
        note(f"and {len(lines) - _MOST_AFTER:,} more such messages: `2> FILE` keeps all")
    lines.clear()


def note_output(output: str | None, line: str) -> None:
    """Print a summary of the content of an output file; nothing if the output is stdout."""
    if output not in (None, "-"):
        note(f"{output}: {line}")


def check_stdout() -> None:
    """Raise KsegError if standard output is closed: click writes nothing then, and has no error."""
    if sys.stdout is None:
        raise KsegError(f"{formats.STDOUT_NAME} is closed")


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
        redirect_to_null(formats.stdout_of_results())
    except OSError as error:
        redirect_to_null(formats.stdout_of_results())
        raise KsegError(f"standard output: {error.strerror or error}; the work itself is complete") from error


@contextmanager
def until_reader_closes() -> Iterator[None]:
    """Leave the block early and without error when the reader of stdout closes the pipe, as ``head`` does."""
    try:
        yield
    except BrokenPipeError:
        redirect_to_null(formats.stdout_of_results())


def redirect_to_null(stream: TextIO | None) -> None:
    """Redirect a stream to the null device, so that flushing its buffer at exit does not fail."""
    with suppress(OSError):
        if stream is not None:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)


def show_error(error: click.ClickException) -> None:
    """Print an error of click; a terminal shows it in several lines, broken between words.

    A command line after it is on a separate line, unbroken, so that it can be copied.
    """
    line, newline, command_line = f"Error: {error.format_message()}".partition("\n")
    if sys.stderr.isatty():
        line = tables.text_lines(sys.stderr, line, indent=2).rstrip("\n")
    if newline:
        line += f"{newline}  {command_line}"
    with ignore_stderr_errors():
        click.UsageError(line.removeprefix("Error: "), getattr(error, "ctx", None)).show()


def fail(line: str) -> int:
    """Print one line with the reason of a failure; return the exit code for failures."""
    note(line)
    return FAILED


def fail_after(line: str) -> int:
    """Print one line with the reason of a failure after the results of other files; return the exit code for failures."""
    note_after(line)
    return FAILED


#: Seconds before the bar of progress appears, and between its updates.
DELAY = 1.0
INTERVAL = 0.2


@contextmanager
def progress_bar(total: int | None) -> Iterator[Progress]:
    """Yield a function that adds processed bytes; ``total`` is the number of bytes in all, None if unknown."""
    if not _is_shown():
        yield findings.do_nothing
        return
    bar = _Bar(total)
    thread = threading.Thread(target=bar.run, daemon=True)
    thread.start()
    try:
        yield bar.add
    finally:
        bar.finished.set()
        thread.join()


def _is_shown() -> bool:
    """Return whether there is a terminal for the bar."""
    return sys.stderr.isatty()


def index_sizes(files: Iterable[SegmentFile]) -> dict[str, int]:
    """Return the bytes on disk of the indexes that are checked with segments, by path; empty if no bar is shown.

    The holes of preallocated indexes are not read, so they do not count.
    """
    sizes: dict[str, int] = {}
    if _is_shown():
        for path in (path for file in files for path in file.indexes or ()):
            with suppress(OSError):
                found = os.stat(path)
                sizes[path] = min(found.st_size, 512 * getattr(found, "st_blocks", found.st_size))
    return sizes


class _Bar:
    def __init__(self, total: int | None) -> None:
        self.finished = threading.Event()
        self._total = total
        self._done = 0

    def add(self, count: int) -> None:
        self._done += count

    def run(self) -> None:
        """Wait for DELAY seconds before importing rich: short work does not need a bar."""
        began = time.monotonic()
        if self.finished.wait(DELAY):
            return
        rich = terminal.progress
        columns = (rich.BarColumn(), rich.DownloadColumn(), rich.TransferSpeedColumn(), rich.TimeRemainingColumn())
        console = terminal.Console(stderr=True)
        bar = rich.Progress(*columns, console=console, transient=True, auto_refresh=False)
        task = bar.add_task("", total=self._total, completed=self._done)
        bar.tasks[0].start_time = bar.get_time() - (time.monotonic() - began)
        while True:
            bar.update(task, completed=self._done)
            with terminal.screen.drawing(bar) as visible:
                if visible:
                    bar.refresh()
            if self.finished.wait(INTERVAL):
                break
        terminal.screen.hide()
