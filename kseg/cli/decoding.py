"""The options that decode keys and values, for the commands that print records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

from kseg.cli import common
from kseg.format.serialization import record_decoder

if TYPE_CHECKING:
    from kseg.format.serialization.record_decoder import DecodeSettings

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
    click.option("--decode-with", "command", metavar="COMMAND", help="Decode keys and values with a program."),
)  # fmt: skip


def decode_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that decode keys and values to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def decode_settings(options: Mapping[str, Any]) -> DecodeSettings | None:
    """Return the settings of the decoder, None if no option was given."""
    names = ("key_as", "value_as", "schemas", "schema_files", "registry", "registry_ca", "function", "command")
    given = {name: options[name] for name in names if options[name] not in (None, ())}
    return record_decoder.DecodeSettings(**given) if given else None
