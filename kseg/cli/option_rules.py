"""Options that exclude or need others, as rows of one table; the names of older versions.

A row names options as a user writes them. ``--format=csv,text`` means the option with one of these values.
``--deep`` and ``--shallow`` mean the depth of reading, by default or because another option needs it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

import click

from kseg.cli.messages import note
from kseg.cli.option_table import ROWS
from kseg.errors import UsageError
from kseg.text import one_of

_DECODING = "--key-as --value-as --schemas --schema-file --registry --decoder"


class Excludes(NamedTuple):
    """Each of the ``options`` excludes each of ``others``, in all commands that have both, or in ``command`` only."""

    options: str
    others: str
    why: str = ""
    command: str = ""


class Needs(NamedTuple):
    """Each of the ``options`` needs one of ``others``, in all commands that have it, or in ``command`` only."""

    options: str
    others: str
    why: str = ""
    command: str = ""


#: The first row that the options of a run break is the error.
RULES: tuple[Excludes | Needs, ...] = (
    Excludes("--verbose", "--quiet"),
    Excludes("--isolation=read_committed", "--as --effective", "it is for the records of logs"),
    Excludes("--isolation=read_committed", "--follow", "a record of an open transaction is not decided yet"),
    Excludes("--effective", "--offsets --since --until --position --key --header --where --producer-id --control "
             "--no-control --limit --bytes --columns --template --no-decode --follow --jobs --no-crc --spark --as --full "
             "--last " + _DECODING, "it reads whole partitions"),
    Excludes("--columns --template --position --last " + _DECODING, "--as", "it is for segments"),
    Excludes("--spark --follow --decode --group --txn --where", "--as", "it is for segments", "dump"),
    Excludes("--as", "--inventory --cache"),
    Needs("--compression-type", "--as=requests", "it is for batches that clients send"),
    Excludes("--template", "--columns", "the template has the columns"),
    Excludes("--template", "--format=jsonl,csv,hex,parquet", "it writes lines of its own"),
    Excludes("--template", "--format=text", "it writes lines of its own", "dump"),
    Excludes("--template", "--format=table", "it writes lines of its own", "grep"),
    Excludes("--template", "--shallow", "it writes records"),
    Needs("--columns", "--format=table,csv", "other formats have all columns"),
    Excludes("--group", "--txn", "a record is of one of them"),
    Needs("--offset-map", "--format=reset-csv", "the lag is that of this cluster"),
    Excludes("--top-keys", "--as", "it is for segments"),
    Excludes("--by-key", "--shallow --allow", "it compares values, and offsets can differ"),
    Excludes("--compacted", "--shallow", "it checks the keys of records"),
    Needs("--since --until", "--history", "the lag is that at the end of the logs", "lag"),
    Excludes("--history", "--group --at --offset-map --format=reset-csv", "it is about one group, over time"),
    Needs("--partitions", "--group --txn", command="dump"),
    Needs("--partitions", "--partitioner", command="grep"),
    Excludes("--group --txn", "--shallow --spark", "they select records"),
    Excludes(_DECODING, "--shallow", "they decode records"),
    Excludes(_DECODING, "--template --format=hex --spark", "there, keys and values are as they are stored"),
    Needs("--registry-ca", "--registry"),
    Needs("--unwrap", _DECODING, "it is for decoded keys and values"),
    Excludes("--decode", "--no-decode"),
    Needs("--decode", "--deep --effective", "it decodes records"),
    Needs("--at", "--effective", "rows of a range are selected with --offsets and --until", "dump"),
    Excludes("--key --header --where", "--shallow", "they select records"),
    Excludes("--last", "--position"),
    Excludes("--last", "--before-context --after-context --context --max-count --count --files-with-matches --quiet",
             "they begin with the first match", "grep"),
    Excludes("--spark", "--limit --last --follow --template --where"),
    Excludes("--follow", "--format=parquet --output", "it writes segments to stdout while they grow"),
    Excludes("--jobs", "--follow --limit --last --position --as --spark --registry --decoder", command="dump"),
    Needs("--jobs", "--deep", "several processes write records", "dump"),
    Needs("--jobs", "--template --format=jsonl,csv,text,parquet", command="dump"),
    Excludes("--partitioner", "--all-partitions"),
    Needs("--partitioner", "--key --key-hex --key-int32 --key-int64"),
    Excludes("--partitioner", "--null-key", "a null key can be in each partition"),
    Needs("--count --files-with-matches --only-matching", "--format=text", "other formats have records"),
    Needs("--spark-conf --packages", "--spark"),
    Excludes("--spark", "--jobs", "the number of its tasks is that of the master", "pipeline"),
    Excludes("--inventory", "--shallow", "it has times of records", "validate"),
    Excludes("--inventory", "--spark", "Spark applies the conditions to the rows that it is given", "sql"),
    Excludes("--cache", "--inventory --baseline --write-baseline", "it skips unchanged files"),
    Excludes("--export --export-records", "--used-by --registry --format=jsonl,csv", "it writes lines of its own"),
    Excludes("--export", "--export-records"),
    Excludes("--recipe", "--file"),
    Excludes("--metadata", "--no-metadata"),
    Needs("--keep-producers", "--for-another-cluster", "another conversion keeps them"),
)  # fmt: skip

#: (command, name of an older version) -> the name now. The old names work until 1.0, with one line on stderr.
OLD_NAMES: Mapping[tuple[str, str], str] = {
    ("validate", "--state"): "--cache",
    ("validate", "--max-per-rule"): "--limit",
    ("doctor", "--max-per-rule"): "--limit",
    ("stats", "--top"): "--limit",
    ("sql", "--schema"): "--tables",
}

_OPTIONS = {
    name: (field, positive)
    for field, row in ROWS.items()
    for positive, names in zip((True, False), row.names.partition("/")[::2], strict=True)
    for name in names.split()
}


def field_of(name: str) -> str:
    """Return the field of the option with a name such as ``--no-crc``, of any command; "" for other names."""
    return _OPTIONS.get(name.partition("=")[0], ("", True))[0]


def current_names(command: click.Command, args: Sequence[str]) -> list[str]:
    """Return the arguments of a command with the names of today for those of older versions, and print both."""
    with_value = {name for name, has_value in option_names(command).items() if has_value}
    found: list[str] = []
    for at, word in enumerate(args):
        if word == "--":
            return [*found, *args[at:]]
        name, equals, value = word.partition("=")
        if found and found[-1] in with_value:
            found.append(word)
            continue
        new = OLD_NAMES.get((str(command.name), name))
        if new:
            note(f"{name} is {new} now: the old name works until version 1.0")
        found.append(f"{new or name}{equals}{value}")
    return found


def option_names(command: click.Command) -> dict[str, bool]:
    """Return the names of the options of a command, and whether each has a value."""
    options = [parameter for parameter in command.params if isinstance(parameter, click.Option)]
    return {name: not one.is_flag for one in options for name in (*one.opts, *one.secondary_opts)}


def check_rules(command: str, asked: object, given: Collection[str]) -> None:
    """Raise UsageError for the first row of the rules that the options break.

    ``asked`` has the values of the options as attributes, ``given`` are the fields that the user has set.
    """
    for rule in RULES:
        if rule.command not in ("", command):
            continue
        for option in _holding(rule.options, asked, given):
            why = f": {rule.why}" if rule.why else ""
            others = list(_holding(rule.others, asked, given))
            if isinstance(rule, Excludes) and others:
                raise UsageError(f"{option} cannot be combined with {others[0]}{why}")
            if isinstance(rule, Needs) and not others:
                raise UsageError(f"{option} needs {one_of([_words(term) for term in rule.others.split()])}{why}")


def _holding(terms: str, asked: object, given: Collection[str]) -> Iterator[str]:
    """Yield the terms that hold for the options, each as the user wrote it."""
    for term in terms.split():
        name, _, values = term.partition("=")
        field, positive = _OPTIONS[name]
        if not hasattr(asked, field):
            continue
        value: object = getattr(asked, field)
        if values:
            chosen = value if isinstance(value, tuple) else (value,)
            if found := [one for one in values.split(",") if one in chosen]:
                yield f"{name} {found[0]}"
        elif ROWS[field].is_flag:
            if value is positive or (name == "--deep" and getattr(asked, "reads_records", False)):
                yield name
        elif field in given and value not in ROWS[field].neutral:
            yield name


def _words(term: str) -> str:
    name, _, values = term.partition("=")
    return f"{name} {one_of(values.split(','))}" if values else name
