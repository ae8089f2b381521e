"""Words of other tools: each answer is a command line of kseg that works as it is printed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from kseg.cli.main import COMMANDS, main
from kseg.cli.option_rules import option_names
from kseg.cli.other_tools import OTHER_COMMANDS, TOOLS
from tests.support.cli import PLAIN, invoke
from tests.support.cli import kseg as kseg_process
from tests.support.cli import kseg_here as kseg

FOLDER = PLAIN.parent
#: A value for each pattern of a value.
SAMPLES = {
    ".*": "value", ".*%.*": "%k=%v", "[0-9]+": "3", "[0-9]*": "0", "-[0-9]+": "-3", "https?:.*": "http://localhost:8081",
    "(key=|value=)?[a-zA-Z]+": "key=s",
}  # fmt: skip
#: Options whose value is a path, a time or a statement.
VALUES = {
    "--files": str(PLAIN), "--after": "yesterday", "--before": "2024-05-01", "-s": "select 1", "-c": "select 1",
    "-f": "query.sql", "-file": "query.sql", "--ignore": "crc-mismatch", "--disable": "K201",
}  # fmt: skip
OFFSETS = ("-3", "3", "s@1700000000000", "e@1700000000000", "beginning", "end")


def samples() -> Iterator[tuple[str, list[str]]]:
    """Yield each word of each tool, with a value of each kind that it has, as the user of that tool would write it."""
    for name, tool in TOOLS.items():
        for word, option in tool.options.items():
            if option.value is None:
                yield name, [word]
                continue
            values = OFFSETS if "|" in option.value and "@" in option.value else (SAMPLES.get(option.value, "value"),)
            if name == "duckdb" or word.startswith("--"):
                values = (VALUES.get(word, values[0]), *values[1:])
            for value in values:
                yield name, ([f"{word}{value}"] if option.value == "[0-9]*" else [word, value])


def line_of(error: str) -> list[str]:
    """Return the words of the command line that an error prints."""
    found = re.search(r": write\s+kseg (.*)\n", error)
    assert found, error
    return shlex.split(found[1])


def parse(words: list[str]) -> None:
    """Check that kseg has these words."""
    command = main.get_command(click.Context(main), words[0])
    assert command is not None
    command.make_parser(click.Context(command)).parse_args(words[1:])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tool", "words"), [pytest.param(*case, id="-".join([case[0], *case[1]])) for case in samples()]
)
def test_the_answer_is_a_command_line_that_works(
    tool: str, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new user copies it. It is run here, unless it waits for new records or asks a registry."""
    home = TOOLS[tool].commands[0]
    (tmp_path / "query.sql").write_text("select 1")
    before = {"grep": ["value"], "sql": ["select 1"] if words[0] in ("-f", "-file") or len(words) == 1 else []}.get(
        home, []
    )
    if words[0] in ("-f", "-file"):
        before = []
    path = [] if words[0] in ("--files", ".tables", ".schema") else [str(FOLDER)]
    monkeypatch.chdir(tmp_path)
    done = invoke(home, *words, *before, *path)
    assert done.exit_code == 2, done.stdout
    assert f"no option {words[0][:2]}" in done.stderr
    ours = line_of(done.stderr)
    parse(ours)
    if ours[0] != "lag" and not {"--follow", "--registry"} & {*ours}:
        again = invoke(*ours)
        assert again.exit_code in (0, 1), (ours, again.stderr)


def test_no_word_hides_an_option() -> None:
    """An option of kseg keeps its meaning; a row for one of the same name, in a command that has it, would never be used."""
    context = click.Context(main)
    for name, tool in TOOLS.items():
        for command in tool.commands:
            own = option_names(main.get_command(context, command) or click.Command(""))
            for word, option in tool.options.items():
                others = [one for one in tool.commands if one != command]
                assert word not in own or option.also_ours or others, (name, word)
                assert option.command in ("", *COMMANDS)
    assert kseg_process("dump", "-o", "-", PLAIN).returncode == 0


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("dump --files A,B --print-data-log --deep-iteration", "dump --deep A B"),
        ("dump --print-data-log --files=A", "dump --deep A"),
        ("validate --print-data-log A", "dump --deep A"),
        ("validate --deep-iteration A", "validate --deep A"),
        ("dump -C -b host:9092 -t orders -p 3 -o -10 -e -c 5", "dump --deep --last 10 --limit 5 orders-3"),
        ("dump -o-10 A", "dump --deep --last 10 A"),
        ("dump -t orders -f '%k %v' A/orders-0", "dump --template '%k %v' A/orders-0"),
        ("dump --offsets -10 A", "dump --last 10 A"),
        ("dump -s avro -r http://host A", "dump --key-as avro --value-as avro --registry http://host A"),
        ("dump -f A", "dump --follow A"),
        ("dump -25 A", "dump --deep --last 25 A"),
        ("dump -r -c A", "dump --template %v A"),
        ("grep -rn failed A", "grep failed A"),
        ("grep -inw failed -- A -B", "grep -i -- '\\bfailed\\b' A -B"),
        ("grep -j4 -g '*.log' failed A", "grep --jobs 4 failed A"),
        ("sql -csv -c 'select 1' A", "sql --format csv 'select 1' A"),
        ("stats --json A", "stats --format jsonl A"),
        ("tail -f A", "dump --deep --last 10 --follow A"),
        ("log -n 5 --oneline A", "dump --deep --last 5 A"),
        ("tail -n 5 A", "dump --deep --last 5 A"),
        ("fsck --strict A", "validate A"),
        ("'select 1' A", "sql 'select 1' A"),
    ],
)
def test_a_whole_line_is_answered_at_once(words: str, line: str) -> None:
    """Several words of one tool, or of several, and what kseg has of them itself."""
    done = invoke(*shlex.split(words))
    assert done.exit_code == 2
    assert f": write\n  kseg {line}\n" in done.stderr


@pytest.mark.slow
def test_a_command_of_another_tool(tmp_path: Path) -> None:
    """Also a path alone: the answer is the command that one begins with."""
    for word, ours in OTHER_COMMANDS.items():
        assert word not in COMMANDS
        assert line_of(invoke(word, "A").stderr)[: len(ours.split())] == ours.split()
        parse(ours.split())
    assert line_of(kseg(FOLDER).stderr) == ["doctor", str(FOLDER)]
    assert line_of(kseg(PLAIN).stderr) == ["dump", str(PLAIN)]
    assert kseg("rg", "value", PLAIN).returncode == 2
    done = kseg("grep", "-o", tmp_path / "found", PLAIN)
    assert (done.returncode, "--only-matching shows the matching texts" in done.stderr) == (2, True)


def test_a_file_is_not_a_folder_that_a_broker_starts_on() -> None:
    """The answer of recovery names the folder."""
    done = kseg("recovery", PLAIN)
    assert done.returncode == 2
    assert line_of(done.stderr.splitlines()[0] + "\n") == ["recovery", str(FOLDER)]


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["--print-data-log", "--files", str(PLAIN)], ["dump", "--deep", str(PLAIN)]),
        (["select", "count(*)", "from", "records", str(FOLDER)], ["sql", "select count(*) from records", str(FOLDER)]),
        (["dump", "--tail", "3", str(FOLDER)], ["dump", "--last", "3", str(FOLDER)]),
    ],
)
def test_a_line_without_a_command_or_without_quotes(words: list[str], answer: list[str]) -> None:
    """The options of kafka-dump-log without a command, a statement as it is written, and the last lines of a log."""
    done = kseg(*words)
    assert done.returncode == 2
    assert line_of(done.stderr) == answer


@pytest.mark.slow
def test_an_option_of_other_commands_is_named_with_them() -> None:
    """Not the most similar name of an option that does something else."""
    done = kseg("validate", "--since", "2h", FOLDER)
    assert done.returncode == 2
    assert (
        "kseg validate has no --since: it is about whole partitions. kseg dump, kseg grep and kseg lag have it."
        in done.stderr
    )
    assert kseg("grep", "--", "--since", FOLDER).returncode == 1  # a pattern
