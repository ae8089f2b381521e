"""Words of other tools: the answer is the command line of kseg that does the same, which can be copied.

Tools: kafka-dump-log, kafka-console-consumer, kcat, rg and grep, git, docker logs, tail, jq, duckdb. A word that
kseg has itself keeps kseg's meaning, except ``-o`` and ``--offsets`` with an offset as kcat writes it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from kseg.text import shell_command


class OtherOption(NamedTuple):
    """The words of kseg for an option of another tool, in which ``{}`` is its value; none if it is not needed.

    ``value`` is a pattern that the value must match, None for a flag. ``command`` is the command that has the words, if
    not every command with these options. ``also_ours``: kseg has an option of this name, whose values are others.
    """

    ours: str = ""
    value: str | None = None
    command: str = ""
    also_ours: bool = False


class Tool(NamedTuple):
    """The options of a tool. Its letters are known in ``commands``, its long options everywhere.

    The first one of the commands is taken if the command of the run lacks the options.
    """

    commands: tuple[str, ...]
    options: Mapping[str, OtherOption]


# Values with a place of their own: paths with commas, a topic and a partition that are a folder's name, kcat's types, and
# what kcat and kafka-console-consumer write for a first offset.
_PATHS, _TOPIC, _PARTITION, _TYPES, _OFFSET_WORDS = "paths", "topic", "partition", "types", "offset"
# A pattern that must be a word, and a pattern or a statement: the first argument.
_WORD, _ARGUMENT = "word", "argument"
_OFFSETS = {
    "-[0-9]+": "--deep --last {}",
    "[0-9]+": "--deep --offsets {}:",
    "s@[0-9]+": "--deep --since {}",
    "e@[0-9]+": "--deep --until {}",
    "beginning|earliest|stored": "--deep",
    "end|latest": "--deep --follow",
}
_FIRST_OFFSET = OtherOption(_OFFSET_WORDS, "|".join(_OFFSETS), "dump", also_ours=True)

_DROPPED, _DROPPED_VALUE = OtherOption(), OtherOption(value=".*")
_VALIDATE = OtherOption(command="validate")
_INTERNAL = OtherOption("--deep", command="dump")
_JSONL = OtherOption("--format jsonl")

TOOLS: Mapping[str, Tool] = {
    "kafka-dump-log": Tool(("dump",), {
        "--files": OtherOption(_PATHS, ".*"),
        "--print-data-log": _INTERNAL,
        "--deep-iteration": OtherOption("--deep"),
        **dict.fromkeys(("--offsets-decoder", "--transaction-log-decoder", "--cluster-metadata-decoder",
                         "--share-group-state-decoder", "--remote-log-metadata-decoder"), _INTERNAL),
        "--key-decoder-class": OtherOption("--key-as auto", ".*", "dump"),
        "--value-decoder-class": OtherOption("--value-as auto", ".*", "dump"),
        "--skip-record-metadata": OtherOption("--deep --columns key,value", command="dump"),
        "--verify-index-only": _VALIDATE,
        "--index-sanity-check": _VALIDATE,
        "--max-message-size": _DROPPED_VALUE,
        "--max-bytes": OtherOption("--limit 100", ".*", "dump"),
    }),
    "kafka-console-consumer": Tool(("dump",), {
        "--bootstrap-server": _DROPPED_VALUE,
        "--topic": OtherOption(_TOPIC, ".*", "dump"),
        "--partition": OtherOption(_PARTITION, "[0-9]+", "dump"),
        "--offset": _FIRST_OFFSET,
        "--from-beginning": OtherOption("--deep", command="dump"),
        "--max-messages": OtherOption("--deep --limit {}", "[0-9]+", "dump"),
        **dict.fromkeys(("--timeout-ms", "--property", "--formatter", "--consumer-property", "--command-config"),
                        _DROPPED_VALUE),
        "--describe": _DROPPED,
        "--all-groups": OtherOption(command="lag"),
        "--find-hanging": OtherOption("--state hanging", command="transactions"),
    }),
    "kcat": Tool(("dump",), {
        "-C": OtherOption("--deep"),
        **dict.fromkeys(("-e", "-u", "-q", "-E", "-Z"), _DROPPED),
        **dict.fromkeys(("-b", "-X", "-d", "-m"), _DROPPED_VALUE),
        "-t": OtherOption(_TOPIC, ".*"),
        "-p": OtherOption(_PARTITION, "[0-9]+"),
        "-o": _FIRST_OFFSET,
        "-c": OtherOption("--deep --limit {}", "[0-9]+"),
        "-f": OtherOption("--template {}", ".*%.*"),
        "-J": OtherOption("--deep --format jsonl"),
        "-K": OtherOption("--template %k{}%v", ".*"),
        "-r": OtherOption("--registry {}", "https?:.*"),
        "-s": OtherOption(_TYPES, "(key=|value=)?[a-zA-Z]+"),
        "-L": OtherOption(command="stats"),
    }),
    "rg": Tool(("grep",), {
        **dict.fromkeys((
            "-n", "--line-number", "-N", "--no-line-number", "-H", "--with-filename", "-I", "--no-filename", "--heading",
            "--no-heading", "--column", "-.", "--hidden", "--no-ignore", "-u", "--no-messages", "-a", "--text", "-z",
            "--search-zip", "-U", "--multiline", "-P", "--pcre2", "--perl-regexp", "-E", "--extended-regexp", "-G",
            "--basic-regexp", "-r", "-R", "--recursive", "-s", "--case-sensitive", "--trim", "-p", "--pretty", "--vimgrep",
            "-L", "--color", "--no-color", "--stats", "-0", "--null"), _DROPPED),
        **dict.fromkeys(("-g", "--glob", "-t", "--type", "-T", "--type-not", "--colors", "--sort", "--sortr", "-M",
                         "--max-columns", "--max-filesize", "-d", "--max-depth", "--encoding", "--include", "--exclude",
                         "--engine"), _DROPPED_VALUE),
        **dict.fromkeys(("-S", "--smart-case", "-y"), OtherOption("-i")),
        **dict.fromkeys(("-j", "--threads"), OtherOption("--jobs {}", "[0-9]+")),
        **dict.fromkeys(("-w", "--word-regexp"), OtherOption(_WORD)),
        "--line-regexp": OtherOption("-x"),
        "--count-matches": OtherOption("-c"),
        "--json": _JSONL,
    }),
    "git": Tool(("dump",), {
        "--after": OtherOption("--since {}", ".*"),
        "--before": OtherOption("--until {}", ".*"),
        "--max-count": OtherOption("--last {}", "[0-9]+"),
        "--stat": OtherOption(command="stats"),
        **dict.fromkeys(("--oneline", "--reverse", "--graph", "--all", "--no-pager", "-p", "--patch"), _DROPPED),
        "--strict": _VALIDATE,
    }),
    "docker logs": Tool(("dump",), {"--tail": OtherOption("--last {}", "[0-9]+")}),
    "tail": Tool(("dump",), {
        "-n": OtherOption("--deep --last {}", "[0-9]+"),
        **{f"-{digit}": OtherOption(f"--deep --last {digit}{{}}", "[0-9]*") for digit in range(1, 10)},
        "--offsets": OtherOption("--last {}", "-[0-9]+", also_ours=True),
        "--lines": OtherOption("--last {}", "[0-9]+"),
        "-f": OtherOption("--follow"),
        "-F": OtherOption("--follow"),
        "--tail": OtherOption("--follow"),
        "--head": OtherOption("--limit 10"),
    }),
    "linters": Tool(("validate",), {
        **dict.fromkeys(("--ignore", "--disable"), OtherOption("--rule {}=ignore", ".*", "validate")),
        **dict.fromkeys(("--junit", "--junitxml", "--junit-xml"), OtherOption("--report junit={}", ".*", "validate")),
        "--sarif": OtherOption("--report sarif={}", ".*", "validate"),
    }),
    "jq": Tool(("dump", "grep"), {
        **dict.fromkeys(("-r", "--raw-output"), OtherOption("--template %v")),
        **dict.fromkeys(("-c", "--compact-output"), _JSONL),
        **dict.fromkeys(("-S", "--sort-keys", "-s", "--slurp", "--tab", "--stream", "-M", "--monochrome-output"), _DROPPED),
        "--csv": OtherOption("--format csv"),
        "--grep": OtherOption(_ARGUMENT, ".*", "grep"),
    }),
    "duckdb": Tool(("sql",), {
        "-json": _JSONL,
        "-jsonlines": _JSONL,
        "-csv": OtherOption("--format csv"),
        **dict.fromkeys(("-table", "-box", "-markdown", "-column", "-line", "-list"), OtherOption("--format table")),
        **dict.fromkeys(("-c", "-s"), OtherOption(_ARGUMENT, ".*")),
        **dict.fromkeys(("-f", "-file"), OtherOption("--file {}", ".*")),
        **dict.fromkeys(("-readonly", "-header", "-noheader", "-batch", "-bail", "-unsigned"), _DROPPED),
        **dict.fromkeys((".tables", ".schema"), OtherOption("--tables")),
    }),
}  # fmt: skip

#: The codes of kcat's ``-s`` for binary numbers -> the type of --key-as and --value-as.
_KCAT_TYPES = {"i": "int32", "q": "int64", "s": "string", "avro": "avro"}

#: Commands of other tools -> words of kseg.
OTHER_COMMANDS: Mapping[str, str] = {
    **dict.fromkeys(("verify", "check", "fsck", "lint", "test"), "validate"),
    **dict.fromkeys(("cat", "show", "view", "print", "read", "log", "dump-log"), "dump --deep"),
    **dict.fromkeys(("consume", "consumer"), "dump --deep"),
    "head": "dump --deep --limit 10",
    "tail": "dump --deep --last 10",
    **dict.fromkeys(("ls", "list", "info", "count", "describe", "du", "topics"), "stats"),
    **dict.fromkeys(("search", "find", "rg"), "grep"),
    **dict.fromkeys(("query", "duckdb"), "sql"),
    **dict.fromkeys(("tables", "schema"), "sql --tables"),
    **dict.fromkeys(("fix", "recover", "salvage", "restore"), "repair"),
    **dict.fromkeys(("compare", "cmp"), "diff"),
    **dict.fromkeys(("status", "diagnose", "triage"), "doctor"),
    **dict.fromkeys(("start", "predict", "simulate"), "recovery"),
    **dict.fromkeys(("upgrade", "downgrade", "migrate", "transcode"), "convert any-to-v2"),
    **dict.fromkeys(("groups", "offsets", "consumer-groups"), "lag"),
    **dict.fromkeys(("txn", "txns", "hanging"), "transactions"),
    **dict.fromkeys(("why", "man"), "explain"),
    **dict.fromkeys(("example", "examples", "sample", "tutorial", "init"), "demo"),
}
_SQL = re.compile(r"(select|with|from|describe|summarize)\s.*", re.IGNORECASE | re.DOTALL)


def command_words(word: str, args: Sequence[str] = ()) -> list[str] | None:
    """Return the words of kseg for a first word that is not a command, and its arguments; None for other words."""
    if word in OTHER_COMMANDS:
        words, paths = OTHER_COMMANDS[word].split(), [one for one in args if not one.startswith("-")]
        if words == ["grep"] and paths and os.path.exists(paths[0]):
            words.append("PATTERN")
        new = ["NEW"] if words[0] in ("repair", "convert") and len(paths) == 1 else []
        return [*words, *args, *new]
    if os.path.exists(word):
        return ["doctor" if os.path.isdir(word) else "dump", word, *args]
    if _SQL.fullmatch(word):
        return ["sql", word, *args]
    # A statement without quotes ends at the first path.
    end = next((n for n, one in enumerate(args) if os.path.exists(one)), len(args))
    if _SQL.fullmatch(statement := " ".join([word, *args[:end]])):
        return ["sql", statement, *args[end:]]
    return None


#: Returns the options of a command by name, and whether each has a value.
OptionsOf = Callable[[str], Mapping[str, bool]]


def replaced_words(name: str, args: Sequence[str], options_of: OptionsOf) -> tuple[list[str], str] | None:
    """Return the options of other tools in the arguments of a command, and the command line of kseg without them.

    None if there are none.
    """
    line = _Line(name, options_of)
    left = list(args)
    while left:
        word = left.pop(0)
        if _is_cluster(name, word, options_of(name)):
            left[:0] = [f"-{letter}" for letter in word[1:]]
            continue
        found = _other_option(name, word, left, options_of(name))
        if found is not None:
            line.replace(word, *found)
        elif word == "--":
            line.arguments += left
            break
        elif not word.startswith("-") or word == "-":
            line.arguments.append(word)
        else:
            line.options.append(word)
            if options_of(name).get(word) and left:
                line.options.append(left.pop(0))
    return (line.others, line.text()) if line.others else None


def _is_cluster(name: str, word: str, own: Mapping[str, bool]) -> bool:
    """Return whether a word is several letters, such as ``-rn``, that are flags of the command or of another tool."""
    if not re.fullmatch("-[a-zA-Z]{2,}", word):
        return False
    tools = [tool.options for tool in TOOLS.values() if name in tool.commands]
    letters = [f"-{letter}" for letter in word[1:]]
    if any(word in options for options in tools) or any(own.get(letter) for letter in letters[:-1]):
        return False
    flags = {known for options in tools for known, option in options.items() if option.value is None} | own.keys()
    return flags.issuperset(letters) and not own.keys() >= {*letters}


def _other_option(
    name: str, word: str, left: list[str], own: Mapping[str, bool]
) -> tuple[Tool, OtherOption, str] | None:
    """Return the option of another tool that a word is, and its value, which is removed from the words that are left."""
    if not word.startswith((*"-.",)) or word == "-":
        return None
    long = word.startswith("--")
    key, _, value = word.partition("=") if long else (word, "", "")
    for tool in TOOLS.values():
        if not (long or name in tool.commands):
            continue
        for known in (key,) if long or len(word) < 3 else (key, word[:2]):
            option = tool.options.get(known)
            if option is None or (known in own and not option.also_ours) or (known != key and not option.value):
                continue
            attached = value if long else word[len(known) :]
            given = attached or (left[0] if left else "")
            if option.value is None or (given and re.fullmatch(option.value, given, re.DOTALL)):
                if option.value is not None and not attached:
                    left.pop(0)
                return tool, option, given if option.value else ""
    return None


class _Line:
    """A command line of kseg in the making: ``others`` are the words of other tools that it replaces."""

    def __init__(self, name: str, options_of: OptionsOf) -> None:
        self._name = name
        self._options_of = options_of
        self._topic = self._partition = ""
        self._is_word = False
        self.others: list[str] = []
        self.options: list[str] = []
        self.arguments: list[str] = []

    def replace(self, word: str, tool: Tool, option: OtherOption, value: str) -> None:
        """Add the words of kseg for an option of another tool."""
        name, ours = word.partition("=")[0] if word.startswith("--") else word, option.ours
        self.others.append(f"{name[: 2 if name[1] != '-' else None]} {value}" if option.also_ours else name)
        if ours == _TOPIC:
            self._topic = value
        elif ours == _PARTITION:
            self._partition = value
        elif ours == _PATHS:
            self.arguments += value.split(",")
        elif ours == _ARGUMENT:
            self.arguments.insert(0, value)
        elif ours == _WORD:
            self._is_word = True
        elif ours == _TYPES:
            part, _, code = value.rpartition("=")
            kind = _KCAT_TYPES.get(code, "auto")
            self._add([word for side in ([part] if part else ["key", "value"]) for word in (f"--{side}-as", kind)])
        elif ours == _OFFSET_WORDS:
            pattern = next(pattern for pattern in _OFFSETS if re.fullmatch(pattern, value))
            self._add(_OFFSETS[pattern].format(value.lstrip("-se@")).split())
        else:
            number = value.lstrip("-") if option.also_ours else value
            self._add([word.format(number) for word in ours.split()])
        names = {word for word in self.options if word.startswith("-")}
        if option.command:
            self._name = option.command
        elif ours.startswith("-") and not names <= self._options_of(self._name).keys():
            self._name = tool.commands[0]

    def _add(self, words: Sequence[str]) -> None:
        if "--last" in words and "--last" in self.options:  # that of `kseg tail`
            at = self.options.index("--last")
            del self.options[at : at + 2]
        self.options += [word for word in words if word not in self.options or not word.startswith("--")]

    def text(self) -> str:
        arguments = self.arguments or ([f"{self._topic}-{self._partition or 0}"] if self._topic else [])
        if self._is_word and arguments:
            arguments = [rf"\b{arguments[0]}\b", *arguments[1:]]
        options = self.options
        if "--template" in options and "--format" in options:  # a template is a format
            at = options.index("--format")
            options = options[:at] + options[at + 2 :]
        before = ["--"] if any(word.startswith("-") and word != "-" for word in arguments) else []
        return shell_command(["kseg", self._name, *options, *before, *arguments])
