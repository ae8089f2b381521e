"""What several commands share: types of parameters, arguments, the check of outputs, and work by several processes."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kseg import rule_table, schema
from kseg.cli.messages import INPUTS, note
from kseg.commands.carve import carving
from kseg.commands.grep import matches
from kseg.engine import imported, lazy
from kseg.errors import UsageError
from kseg.extras.serialization import schema_sources
from kseg.format.record.layout import INT32_MAX
from kseg.format.segment import several_processes
from kseg.format.storage import process_pool
from kseg.format.storage.file_access import Progress
from kseg.format.storage.naming import INTERNAL_TOPICS, has_manifests, is_url, tiered_view
from kseg.format.storage.segment_files import without_unused
from kseg.format.storage.source import STDIN
from kseg.format.writer import output_guards, output_rule  # loads the registry; few runs have an output file
from kseg.report import row_schema
from kseg.text import unknown_name

if TYPE_CHECKING:
    from click import shell_completion
    from click.shell_completion import CompletionItem
else:
    shell_completion = lazy("click.shell_completion")


MAX_JOBS = 1024


class Choice(click.Choice[str]):
    """A choice of names that suggests the nearest one for a wrong name. The metavar has the names: an error is one line."""

    def get_missing_message(self, param: click.Parameter, ctx: click.Context | None) -> str:
        return ""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            self.fail(unknown_name("value", value, self.choices), param, ctx)


class WholeNumber(click.IntRange):
    """A whole number from ``min`` to ``max``, both inclusive."""

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            number: int = super().convert(int(value), param, ctx)
        except (ValueError, click.BadParameter):
            least = "" if self.min is None else f" of at least {self.min}"
            limits = least if self.max is None else f" from {self.min} to {self.max}"
            self.fail(f"expected a whole number{limits}, got {value!r}", param, ctx)
        return number


class Parsed(click.ParamType):  # type: ignore[type-arg]  # it has parameters from click 8.5 on
    """A text that ``parse`` converts; its ValueError is the error. ``names`` returns the texts that the shell completes."""

    name = "text"

    def __init__(self, parse: Callable[[str], object], names: Callable[[], Iterable[str]] = tuple) -> None:
        self._parse = parse
        self._names = names

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> object:
        try:
            return self._parse(value) if isinstance(value, str) else value
        except ValueError as error:
            self.fail(str(error), param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return _completions(self._names(), incomplete)


class ColumnNames(Parsed):
    """The names of columns, separated by commas. The shell completes those of the rows of the command."""

    def __init__(self) -> None:
        super().__init__(column_names)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        if ctx.command.name in ("dump", "grep"):  # their other columns depend on the options
            batches = schema.BATCH_COLUMNS if ctx.command.name == "dump" else ()
            columns = (*batches, *schema.RECORD_COLUMNS, *schema.PLACE_COLUMNS)
        else:
            kinds = [kind for kind in row_schema.row_kinds() if kind.command == ctx.command.name]
            columns = kinds[ctx.command.name == "recovery"].columns  # the table of partitions, not that of steps
        return _completions(dict.fromkeys(schema.names_of(columns)), incomplete)


def text_like(pattern: str, expected: str) -> Parsed:
    """Return the type of texts that match a pattern. ``expected`` is the error of another one, with ``{!r}`` for it."""

    def parse(text: str) -> str:
        if not re.fullmatch(pattern, text, re.DOTALL):
            raise ValueError(expected.format(text))
        return text

    return Parsed(parse)


def _completions(names: Iterable[str], incomplete: str) -> list[CompletionItem]:
    """Return the completions of the last name of a list with commas. What follows ``=`` is completed after it."""
    done, comma, last = incomplete.rpartition(",")
    found = dict.fromkeys(name if "=" in last else name.partition("=")[0] for name in names if name.startswith(last))
    return [shell_completion.CompletionItem(done + comma + name) for name in found]


class PathText(click.types.StringParamType):
    """A path or a URL, as it was given. The shell completes it. Its subclasses state its use by the command.

    ``named``: the text is ``NAME=PATH``, or the path alone. ``names`` are the names that the shell completes.
    """

    def __init__(self, *, named: bool = False, names: Iterable[str] = ()) -> None:
        self._named = named
        self._names = names

    def path(self, text: str) -> str:
        return text.partition("=")[2] or text if self._named else text

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "" and isinstance(param, click.Option):  # an argument can be a pattern
            self.fail("expected a path or a URL, got an empty text", param, ctx)
        return super().convert(value, param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        if self._names and "=" not in incomplete:
            return [shell_completion.CompletionItem(f"{name}=") for name in self._names if name.startswith(incomplete)]
        return [shell_completion.CompletionItem(incomplete, type="file")]


class InputPath(PathText):
    """A path that is read."""

    def path(self, text: str) -> str:
        return schema_sources.named_file(text)[1] if self._named else text

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = super().convert(value, param, ctx)
        if ctx is not None:
            ctx.meta.setdefault(INPUTS, []).append(path)
        return decoded_folder(path) or path


def decoded_folder(path: str) -> str | None:
    """Return the decoded view of a local folder with a partition's objects in remote storage, None for other paths."""
    view = None if is_url(path) else tiered_view(os.path.normpath(path))
    try:
        return view if view and has_manifests(os.listdir(path)) else None
    except OSError:  # the command reports it
        return None


class OutputPath(PathText):
    """A file that is written. The command calls ``check_outputs`` before its work.

    ``stdout``: ``-`` is standard output. A file that a later run reads cannot be there.
    """

    def __init__(self, *, stdout: bool = True, named: bool = False, names: Iterable[str] = ()) -> None:
        super().__init__(named=named, names=names)
        self._stdout = stdout

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == STDIN and not self._stdout:
            self.fail("expected a file, got '-'", param, ctx)
        return super().convert(value, param, ctx)


class OutputFolder(OutputPath):
    """A folder in which files are written. The command calls ``check_outputs`` before its work."""


class ResultPath(PathText):
    """DST of ``convert`` and ``repair``, which check it themselves."""


def check_outputs(*inputs: str, written: Iterable[str] = ()) -> None:
    """Raise UsageError if an output of the current command could harm a file of Kafka, an input, or another output.

    ``inputs`` are inputs that no parameter of type InputPath has, and ``written`` are outputs that no option names.
    """
    context = click.get_current_context()
    context.meta.setdefault(INPUTS, []).extend(inputs)
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
    outputs = [*written, *(path for parameter, path in given if isinstance(parameter.type, OutputPath))]
    if any(one.name == "output" and type(one.type) is OutputPath for one in context.command.params):
        outputs += [STDIN] * (context.params.get("output") is None)
    if len(outputs) > 1:  # most runs need no module for one
        output_rule.check_distinct(outputs)


def new_folder(given: str) -> Path:
    """Return the path of a folder that a command makes. Raises UsageError if it exists."""
    target = output_guards.target_path(given)
    if os.path.lexists(target):
        raise UsageError(f"{target} exists: give a folder that does not")
    return target


def once(context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    """The callback of paths: standard input is one of them at most once. Raises click.BadParameter."""
    if given.count(STDIN) > 1:
        raise click.BadParameter("standard input can be read only once: give one -")
    return given


def of_logs(context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    """The callback of paths with segments: a log directory without a partition is not a mistake if others are given."""
    return tuple(without_unused(once(context, parameter, given)))


def or_current_folder(context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    """The callback of paths that can be left out."""
    if not given and not context.resilient_parsing:
        note(f"no PATH: checking the current folder, {Path.cwd()}")
    return once(context, parameter, given or (".",))


PATHS = click.Argument(["paths"], metavar="PATH...", nargs=-1, required=True, callback=once, type=InputPath())
LOG_PATHS = click.Argument(["paths"], metavar="PATH...", nargs=-1, required=True, callback=of_logs, type=InputPath())


def cores() -> int:
    """Return the number of processors that this process may use, at most MAX_JOBS."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(usable, MAX_JOBS)


def column_names(text: str) -> tuple[str, ...]:
    """Return the names in a list with commas. Raises ValueError if there is none."""
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise ValueError("expected names, such as offset,key,value")
    return names


def severity_settings() -> Iterator[str]:
    """Yield the values of --rule, for the completion."""
    for name in rule_table.RULES:
        yield from (f"{name}={severity}" for severity in rule_table.SEVERITIES)


def rule_names_and_codes() -> Iterator[str]:
    """Yield the names and the codes of the rules, for the completion."""
    yield from rule_table.RULES
    yield from (rule.code for rule in rule_table.RULES.values())


def deserializers() -> Iterable[str]:
    """Return the names of --key-as and --value-as, for the completion."""
    names: Iterable[str] = imported("kseg.extras.serialization.decoding:NAMES")
    return names


def field_names(text: str) -> tuple[str, ...]:
    """Return the names of fields of records in a list with commas. Raises ValueError."""
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if name not in matches.FIELDS:
            raise ValueError(unknown_name("field", name, matches.FIELDS))
    return names


def header_and_value(text: str) -> tuple[bytes, bytes]:
    """Return the name and the value of a header. Raises ValueError."""
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError("expected NAME=VALUE, such as source=web")
    return os.fsencode(name), os.fsencode(value)


def node_and_folders(text: str) -> tuple[int, tuple[str, ...]]:
    """Return a node id and its log directories. Raises ValueError."""
    node, equals, folders = text.partition("=")
    if not equals or not node.isascii() or not node.isdecimal() or int(node) > INT32_MAX or not all(folders.split(",")):
        raise ValueError("expected ID=DIR or ID=DIR,DIR, such as 1=/disk1/kafka-logs")
    return int(node), tuple(folders.split(","))


def block_size(text: str) -> int:
    """Return the size of a file system's blocks in bytes. Raises ValueError."""
    if text not in map(str, carving.BLOCKS):
        raise ValueError(f"expected one of {', '.join(map(str, sorted(carving.BLOCKS)))}, got {text!r}")
    return int(text)


def topic_name(text: str) -> str:
    """Return the name of an internal topic. Raises ValueError."""
    if text not in INTERNAL_TOPICS:
        raise ValueError(unknown_name("internal topic", text, INTERNAL_TOPICS))
    return text


def metric_label(text: str) -> str:
    """Return a label of metrics, ``NAME=VALUE``. Raises ValueError."""
    name, equals, _ = text.partition("=")
    if not (equals and name.isascii() and name.isidentifier()) or name.startswith("__"):
        raise ValueError(f"expected NAME=VALUE with letters, digits and _ in NAME, such as broker=1, got {text!r}")
    if name in imported("kseg.report.prometheus:LABELS"):
        raise ValueError(f"{name!r} is a label of kseg's own metrics: choose another name")
    return text


def hex_bytes(text: str) -> bytes:
    """Return the bytes of hexadecimal digits. Raises ValueError."""
    try:
        return bytes.fromhex(text.removeprefix("0x"))
    except ValueError:
        raise ValueError(f"expected pairs of hexadecimal digits, such as 0x00ff, got {text!r}") from None


def integer_bytes(size: int, text: str) -> bytes:
    """Return an integer as ``size`` bytes in network order, as Kafka's serializers write it. Raises ValueError."""
    try:
        return int(text).to_bytes(size, "big", signed=True)
    except (ValueError, OverflowError):
        raise ValueError(f"expected an integer of {size * 8} bits, got {text!r}") from None


@contextmanager
def parallel_map(jobs: int, parts: int, size: int, progress: Progress) -> Iterator[Callable[..., Iterator[Any]]]:
    """Yield ``map``, or a function like it that runs in ``jobs`` processes.

    One process is enough for a single part, and for a few bytes: ``parts`` with ``size`` bytes in all. ``progress`` is
    called with the bytes that the calls pass to ``add_progress``.
    """
    if jobs == 1 or parts < 2 or size < 4 * several_processes.RANGE_SIZE:
        with process_pool.progress_to(progress):
            yield map
        return
    with process_pool.process_pool(jobs, progress) as pool:
        yield partial(process_pool.map_ordered, pool)
