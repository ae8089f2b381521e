"""Options of the commands that show records: decode, select by offset and time, and by group or transactional id.

The options that decode keys and values, for the commands that print records.

Options that select rows by offset and time, for the commands that show records.

``--group`` and ``--txn``: the records of one group or of one transactional id in the internal topics.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kseg.cli import common
from kseg.cli.messages import note
from kseg.errors import UsageError
from kseg.extras.serialization import record_decoder
from kseg.format.internal_topics.decode import internal_topic
from kseg.format.internal_topics.effective_state import Owner
from kseg.format.storage.source import SegmentFile, topic_partition
from kseg.text import parse_offsets, parse_time

if TYPE_CHECKING:
    from kseg.extras.serialization.record_decoder import DecodeSettings


_OPTIONS = (
    click.option("--key-as", metavar="TYPE", help="Decode keys as int32, string, avro, auto, …"),
    click.option("--value-as", metavar="TYPE", help="Decode values as json, avro, protobuf, auto, …"),
    click.option("--schemas", metavar="PATH", type=common.InputPath(), multiple=True,
                 help="Read schemas from the segments of a registry's topic _schemas."),
    click.option("--schema-file", "schema_files", metavar="[NAME=]FILE", type=common.InputPath(named=True),
                 multiple=True,
                 help="Read a schema from a file, for a subject or an id."),
    click.option("--registry", metavar="URL", help="Ask a schema registry for schemas."),
    click.option("--registry-ca", metavar="FILE", type=common.InputPath(),
                 help="Trust the certificates in FILE for --registry."),
    click.option("--decoder", "function", metavar="MODULE:FUNCTION", help="Decode keys and values with a Python function."),
)  # fmt: skip


def decode_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that decode keys and values to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def decode_settings(options: Mapping[str, Any]) -> DecodeSettings | None:
    """Return the settings of the decoder, None if no option was given."""
    names = ("key_as", "value_as", "schemas", "schema_files", "registry", "registry_ca", "function")
    given = {name: options[name] for name in names if options[name] not in (None, ())}
    return record_decoder.DecodeSettings(**given) if given else None


_Value = TypeVar("_Value")


def parsed(parse: Callable[[str], _Value]) -> Callable[[click.Context, click.Parameter, str | None], _Value | None]:
    """Return the callback of an option whose text ``parse`` converts."""

    def callback(context: click.Context, parameter: click.Parameter, text: str | None) -> _Value | None:
        try:
            return None if text is None else parse(text)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    return callback


def each_parsed(
    parse: Callable[[str], _Value],
) -> Callable[[click.Context, click.Parameter, tuple[str, ...]], tuple[_Value | None, ...]]:
    """Return the callback of an option that can be repeated, whose texts ``parse`` converts."""
    one = parsed(parse)
    return lambda context, parameter, texts: tuple(one(context, parameter, text) for text in texts)


offsets = click.option(
    "--offsets",
    metavar="A:B",
    callback=parsed(parse_offsets),
    help="Show offsets from A to before B; also A: or :B.",
)
since = click.option(
    "--since",
    metavar="TIME",
    callback=parsed(parse_time),
    help="Show rows from TIME: ISO 8601 or epoch milliseconds.",
)
until = click.option("--until", metavar="TIME", callback=parsed(parse_time), help="Show rows before TIME.")


def owner_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options to a command."""
    for option in (
        click.option("--partitions", type=common.WholeNumber(min=1), metavar="N",
                     help="Set the number of partitions of that internal topic, to read only one. Default: all."),
        click.option("--txn", metavar="ID", help="Show the records of this transactional id."),
        click.option("--group", metavar="GROUP", help="Show the records of this group."),
    ):  # fmt: skip
        command = option(command)
    return command


def owner_of(group: str | None, txn: str | None, partitions: int | None) -> Owner | None:
    """Return the owner that the options name. Raises UsageError for contradicting options."""
    if group is not None and txn is not None:
        raise UsageError("--group and --txn exclude each other")
    owner = Owner.of(group, txn)
    if owner is None and partitions is not None:
        raise UsageError("--partitions is for --group and --txn")
    return owner


def files_of(
    owner: Owner, files: Sequence[SegmentFile], decode_as: str | None, partitions: int | None
) -> list[SegmentFile]:
    """Return the files that can have the owner's records: of ``partitions`` those of one partition, which is printed.

    With ``partitions`` None these are all: a broker has only some partitions, so the folders do not show their number.
    Raises UsageError if that partition is missing.
    """
    own = [file for file in files if internal_topic(file.path, decode_as) == owner.topic]
    if not own and files:
        raise UsageError(f"{owner.name}: no folder of {owner.topic} found; for other folder names add --decode TOPIC")
    if partitions is None:
        return own
    numbers = {number for file in own if (number := topic_partition(file.path)[1]) is not None}
    if numbers and partitions <= max(numbers):
        raise UsageError(f"--partitions {partitions}: {owner.topic} has a partition {max(numbers)}")
    partition = owner.partition(partitions)
    note(f"{owner.name}: reads only partition {partition} of {partitions} of {owner.topic}")
    if numbers and partition not in numbers:
        raise UsageError(f"{owner.name}: no folder {owner.topic}-{partition} found: give the log directory that has it")
    return [file for file in own if topic_partition(file.path)[1] in (None, partition)]
