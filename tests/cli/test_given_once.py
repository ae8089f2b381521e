"""An option that is given again is combined with the first or rejected: a value is never replaced without a word."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import click
import pytest

from kseg.cli.main import COMMANDS, main
from kseg.errors import UsageError
from kseg.findings import Policy
from tests.support.cli import PLAIN
from tests.support.cli import kseg_here as kseg


def options(flags: bool) -> list[tuple[str, click.Option]]:
    """Return each option of each command that is a flag or not, and can be given once."""
    context = click.Context(main)
    commands = [(name, main.get_command(context, name)) for name in COMMANDS]
    return [
        (name, option)
        for name, command in commands
        if command
        for option in command.params
        if isinstance(option, click.Option) and option.is_flag is flags and not option.multiple
    ]


def error_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main.main(list(arguments))
    assert ended.value.code == 2
    return capsys.readouterr().err


def test_a_second_value_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    """In every command, under every name of the option, and before anything is read or written."""
    found = options(flags=False)
    assert len(found) > 60
    for command, option in found:
        for name in option.opts:
            said = error_of(capsys, command, "no such path", name, "1", option.opts[-1], "2")
            assert f"{option.opts[-1]} is given 2 times: give it once" in said
            assert f" {command} " in said.splitlines()[0]


def test_opposite_flags_are_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    """The same flag twice means the same as once."""
    pairs = [(command, option) for command, option in options(flags=True) if option.secondary_opts]
    assert len(pairs) > 5
    for command, option in pairs:
        said = error_of(capsys, command, option.opts[0], option.secondary_opts[0], "no such path")
        assert f"{option.opts[0]} and {option.secondary_opts[0]} contradict each other" in said
    assert kseg("dump", "--deep", "--deep", "--limit", 1, PLAIN).returncode == 0


def test_names_in_repeated_options_are_given_once(tmp_path: Path) -> None:
    """Two severities of a rule, and two schemas for an id, a UUID or a subject, contradict each other."""
    with pytest.raises(UsageError, match="crc-mismatch has two severities"):
        Policy.parse(["crc-mismatch=warning", "crc-mismatch=ignore"])
    assert Policy.parse(["crc-mismatch=warning", "crc-mismatch=warning"])
    for name, text in (("a", '"string"'), ("b", '"long"')):
        (tmp_path / f"{name}.avsc").write_text(text)
    for place in ("7", "orders-value", str(UUID(int=7))):
        named = [text for name in "ab" for text in ("--schema-file", f"{place}={tmp_path / name}.avsc")]
        refused = kseg("dump", "--deep", *named, PLAIN)
        assert (refused.returncode, "give each id, UUID and subject once" in refused.stderr) == (2, True)
