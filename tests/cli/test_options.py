"""One option, one meaning: all commands take their options from one table, and rows say which exclude or need others."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from kseg.cli import option_rules
from kseg.cli.main import COMMANDS, main
from kseg.cli.option_rules import OLD_NAMES, RULES, Excludes, Needs, field_of
from kseg.cli.option_table import ABSENT, CELLS, GROUPS, OTHERS, ROWS, OptionRow, group_of
from kseg.cli.typed_command import TypedCommand, option_of
from tests.support.cli import PLAIN, ROOT, invoke, kseg
from tools.docs import option_tables

#: (command, letter) -> why it is not the letter of the other commands.
LETTERS = {
    ("grep", "-v"): "the letters of grep are those of grep and rg",
    ("diff", "--export"): "replicas become files of their own; what schemas exports is its output",
}


def commands() -> dict[str, TypedCommand]:
    context = click.Context(main)
    found = {name: main.get_command(context, name) for name in COMMANDS}
    return {name: command for name, command in found.items() if isinstance(command, TypedCommand)}


def options_of(command: click.Command) -> dict[str, click.Option]:
    return {str(one.name): one for one in command.params if isinstance(one, click.Option)}


def test_all_options_are_rows_of_the_table() -> None:
    """The same option has the same names, type and meaning in every command, unless a cell gives the reason."""
    assert commands().keys() == COMMANDS.keys()
    used = set()
    for name, command in commands().items():
        for field, option in options_of(command).items():
            row, cell = ROWS[field], CELLS.get((name, field))
            names = [one for part in row.names.split("/") for one in part.split()]
            assert [*option.opts, *option.secondary_opts] == names, (name, field)
            assert option.multiple == (row.multiple if cell is None or cell.multiple is None else cell.multiple)
            assert option.help == (row.help if cell is None else cell.help or row.help), (name, field)
            assert option.metavar == (row.metavar if cell is None else cell.metavar or row.metavar)
            used.add(field)
    assert used == set(ROWS), "a row without a command"
    assert {group_of(field) for field in ROWS} == set(GROUPS)


def test_a_name_is_in_one_row() -> None:
    """Also a letter stands for one option, but for the cells with a reason."""
    by_name: dict[str, list[str]] = {}
    for field, row in ROWS.items():
        for name in row.names.replace("/", " ").split():
            by_name.setdefault(name, []).append(field)
    twice = {name: fields for name, fields in by_name.items() if len(fields) > 1}
    own = {"invert": "grep", "export_to": "diff"}
    assert {(own[field], name) for name, fields in twice.items() for field in fields if field in own} == set(LETTERS)
    assert set(twice) == {name for _, name in LETTERS}


def test_each_cell_has_a_difference_and_a_reason() -> None:
    """A cell that says what the row says, or of an option that the command does not have, is left over."""
    for (name, field), cell in CELLS.items():
        assert field in options_of(commands()[name]), (name, field)
        row = ROWS[field]
        differs = cell.default is not ... or cell.multiple is not None or cell.least is not None
        assert differs or cell.help != row.help
        assert cell.why


def test_the_matrix_has_no_unexplained_cell() -> None:
    """Each option that several commands have is in every command, or ``ABSENT`` says why not; the page has all reasons."""
    page = (ROOT / "docs" / "reference" / "options.md").read_text(encoding="utf-8")
    for field, row in ROWS.items():
        having = {name for name, command in commands().items() if field in options_of(command)}
        missing, reasons = COMMANDS.keys() - having, ABSENT.get(field, {})
        assert not having & reasons.keys(), f"{field}: a reason, but the command has the option"
        if len(having) < 2:
            assert field not in ABSENT, field
            continue
        found = option_tables.absences(field)
        assert found.keys() == missing, (field, missing - found.keys())
        assert {*reasons} <= {*missing, OTHERS}, field
        assert OTHERS not in reasons or any(name not in reasons for name in missing), f"{field}: nothing for the others"
        assert all(f"| {why} |" in page for why in found.values()), field
        assert f"`{row.names.split()[-1]}`" in page


def _annotation(row: OptionRow, option: click.Option) -> set[str]:
    """Return the types that a field of the option's command can have."""
    if row.is_flag:
        return {"bool | None"} if option.default is None and option.secondary_opts else {"bool"}
    parsed = {
        "offsets": "tuple[int | None, int | None]", "columns": "tuple[str, ...]", "fields": "tuple[str, ...]",
        "since": "int", "until": "int", "at": "Moment", "max_rate": "float", "keys": "bytes", "key_hex": "bytes",
        "key_int32": "bytes", "key_int64": "bytes", "json_paths": "JsonPath",
        "headers": "tuple[bytes, bytes]", "nodes": "tuple[int, tuple[str, ...]]", "block_size": "int",
    }  # fmt: skip
    plain = "int" if isinstance(option.type, click.types.IntRange | click.types.IntParamType) else "str"
    parsed |= {"offsets": "PartitionOffsets"} if option.metavar == "[P:]A:B" else {}
    kind = parsed.get(str(option.name), plain)
    if option.multiple:
        return {f"tuple[{kind}, ...]"}
    return {kind, f"{kind} | None"}


def test_the_fields_of_a_class_have_the_types_of_its_options() -> None:
    """Behind the command line no code reads a mapping: mypy checks the use of every option, if its type is right."""
    for name, command in commands().items():
        own = {one.name: one for one in dataclasses.fields(command.options)}
        absent = {field for field in own if name in ABSENT.get(field, ())}
        assert own.keys() - absent == {str(one.name) for one in command.params}
        for field, option in options_of(command).items():
            assert own[field].type in _annotation(ROWS[field], option), (name, field)
            optional = str(own[field].type).endswith("| None")
            has_value = option.to_info_dict()["default"] is not None
            assert optional != has_value or option.multiple, (name, field)


def _words(name: str, command: TypedCommand) -> list[str]:
    """Return an option of a rule as words of a command line."""
    option, _, values = name.partition("=")
    field = field_of(option)
    found = options_of(command)[field]
    if ROWS[field].is_flag:
        return [option]
    samples = {"offsets": "1:2", "columns": "offset", "json_paths": "$.a", "jobs": "2", "decode": "__consumer_offsets"}
    samples |= {"headers": "name=value", "where": "offset = 1", "spark_conf": "spark.ui.enabled=false"}
    samples |= {"compression_type": "gzip"}
    choices = list(found.type.choices) if isinstance(found.type, click.Choice) else []
    known = [value for value in values.split(",") if value in choices]
    value = known[0] if known else samples.get(field) or (choices[0] if choices else "1")
    return [option, value]


def _broken(rule: Excludes | Needs) -> Iterator[tuple[str, list[str], str]]:
    """Yield command lines that break a rule: the command, its options, and a part of the message."""
    for name, command in commands().items():
        own = options_of(command)
        if rule.command not in ("", name):
            continue
        for option in (one for one in rule.options.split() if field_of(one) in own):
            if isinstance(rule, Needs):
                formats = own["format"].type.choices if isinstance(own["format"].type, click.Choice) else ()
                named = rule.others.partition("--format=")[2].split(" ")[0].split(",")
                others = [f"--format={one}" for one in formats if one not in named][:1] if named != [""] else []
                yield name, [*_words(option, command), *others], f"{option} needs"
                continue
            for other in (one for one in rule.others.split() if field_of(one) in own):
                possible = own[field_of(other)].type
                values = other.partition("=")[2].split(",") if "=" in other else []
                if values and isinstance(possible, click.Choice) and not set(values) & set(possible.choices):
                    continue
                yield name, [*_words(option, command), *_words(other, command)], "cannot be combined with"


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.options.split()[0]}-{rule.others.split()[0]}")
def test_a_broken_rule_is_one_line(rule: Excludes | Needs, tmp_path: Path) -> None:
    """Before anything is read or written, in one wording, for every pair of options and in every command."""
    broken = list(_broken(rule))
    assert broken, "no command has these options"
    first = {"convert": ["any-to-v2"], "pipeline": ["plan"], "tier": ["check"]}
    for name, words, message in broken:
        paths = [str(tmp_path / "missing"), *([str(tmp_path / "new")] if name in ("convert", "repair") else [])]
        done = invoke(name, *words, *first.get(name, []), *paths)
        assert done.exit_code == 2, (name, words)
        lines = [line for line in done.stderr.splitlines() if "no PATH" not in line]
        assert len(lines) == 1, (name, words, done.stderr)
        assert any(text in lines[0] for text in (message, "needs", "cannot be combined with")), (name, words, lines)


def test_old_names_work_with_one_line(tmp_path: Path) -> None:
    """A script of an older version runs on, and says once which name to write."""
    for (name, old), new in OLD_NAMES.items():
        own = {one for option in options_of(commands()[name]).values() for one in option.opts}
        assert new in own
        assert old not in own
        assert option_rules.current_names(commands()[name], [f"{old}=3", "PATH"]) == [f"{new}=3", "PATH"]
    done = kseg("stats", "--top", 1, PLAIN)
    assert done.stdout == kseg("stats", "--limit", 1, PLAIN).stdout
    assert done.stderr == "kseg: --top is --limit now: the old name works until version 1.0\n"
    (tmp_path / "kseg.toml").write_text("max-per-rule = 1\n")
    done = kseg("validate", PLAIN, cwd=tmp_path)
    assert "kseg: kseg.toml: max-per-rule is limit now: the old name works until version 1.0\n" in done.stderr
    assert done.returncode == 0
    for old in ("state", "top"):  # not those of what is no setting
        (tmp_path / "kseg.toml").write_text(f'{old} = "c"\n')
        assert kseg("validate", PLAIN, cwd=tmp_path).stderr.startswith(f"kseg: kseg.toml: unknown setting '{old}'")
    kept = option_rules.current_names(commands()["stats"], ["-o", "--top", "--", "--top"])
    assert kept == ["-o", "--top", "--", "--top"], "a value, and what follows --"


@pytest.mark.slow
def test_help_can_be_asked_for_a_word() -> None:
    """`kseg help`, of a command, and of a word in its options; a word that is not there is an error with the way out."""
    assert kseg("help", "dump").stdout == kseg("dump", "--help").stdout
    assert kseg("help").stdout == kseg("--help").stdout
    assert kseg("-V").stdout == kseg("--version").stdout
    about = kseg("help", "dump", "TIME").stdout
    assert "--since TIME" in about
    assert "--offsets" not in about
    found = kseg("help", "max-rate").stdout
    with_rate = [name for name, command in commands().items() if "max_rate" in options_of(command)]
    assert [line.removeprefix("kseg ") for line in found.splitlines() if line.startswith("kseg ")] == with_rate
    done = kseg("help", "dump", "xyz")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1].endswith(
        "no option or example of kseg dump contains 'xyz': `kseg help dump` lists all"
    )


@pytest.mark.slow
def test_the_help_has_groups_and_three_examples() -> None:
    """The examples can be typed: the parser of their command accepts them."""
    for name, command in commands().items():
        assert len(command.examples) == 3, name
        text = kseg(name, "--help").stdout
        for line in command.examples:
            words = shlex.split(line.replace("<(kseg completion bash)", "kseg completion bash"))
            assert f"  {line}\n" in text
            at = words.index(name)
            command.make_parser(click.Context(command, help_option_names=["-h", "--help"])).parse_args(words[at + 1 :])
        groups = [group for group in GROUPS if f"\n{group}:\n" in text]
        assert groups == sorted(groups, key=GROUPS.index)
        assert set(groups) == {group_of(field) for field, one in options_of(command).items() if not one.hidden}


def test_option_of_reads_the_cells() -> None:
    """A command without a cell has the option as the row describes it."""
    assert option_of("stats", "limit").default == 10
    assert option_of("grep", "limit").to_info_dict()["default"] is None
