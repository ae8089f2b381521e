"""``kseg grep``: options and exit codes. 0: a record matches. 1: none does. 2: a file could not be read."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import click

from kseg.cli import common, record_options
from kseg.cli.grep_run import GrepRequest, GrepRun, grep_run
from kseg.cli.messages import FAILED, note, until_reader_closes
from kseg.cli.outcome import DumpOutcome
from kseg.cli.record_options import decode_options, decode_settings
from kseg.commands.dump.dumped_rows import RecordsItem
from kseg.commands.grep.matches import FIELDS, Query, parse_json_path
from kseg.commands.grep.partitioners import PARTITIONERS, PartitionChoice, files_of_keys
from kseg.errors import UsageError
from kseg.format.segment.row_filter import RowFilter
from kseg.format.storage.source import SegmentFile, find_segments, once_each
from kseg.report import grep_report as report
from kseg.report import template
from kseg.report.formats import MATCHES, View, destination, write
from kseg.text import unknown_name

#: Of partitions that are read or not, the names of this many are printed.
_NAMES_SHOWN = 12


def _fields(context: click.Context, parameter: click.Parameter, text: str | None) -> tuple[str, ...] | None:
    names = tuple(name.strip() for name in text.split(",")) if text is not None else None
    for name in names or ():
        if name not in FIELDS:
            raise click.BadParameter(unknown_name("field", name, FIELDS))
    return names


def _hex(text: str) -> bytes:
    try:
        return bytes.fromhex(text.removeprefix("0x"))
    except ValueError:
        raise ValueError(f"expected pairs of hexadecimal digits, such as 0x00ff, got {text!r}") from None


def _big_endian(size: int) -> Callable[[str], bytes]:
    def convert(text: str) -> bytes:
        try:
            return int(text).to_bytes(size, "big", signed=True)
        except (ValueError, OverflowError):
            raise ValueError(f"expected an integer of {size * 8} bits, got {text!r}") from None

    return convert


@click.command()
@click.argument("arguments", metavar="[PATTERN] PATH...", nargs=-1, required=True, type=common.PathText())
@click.option("-e", "--regexp", "patterns", metavar="PATTERN", multiple=True,
              help="Search this pattern. All arguments are PATHs.")  # fmt: skip
@click.option("-F", "--fixed-strings", "literal", is_flag=True, help="Search texts, not regular expressions.")
@click.option("-i", "--ignore-case", is_flag=True, help="Ignore case.")
@click.option("-x", "--whole", is_flag=True, help="Match whole fields only.")
@click.option("-v", "--invert-match", "invert", is_flag=True, help="Show the records without a match.")
@click.option("--in", "fields", metavar="FIELDS", callback=_fields,
              help=f"Search these fields: {','.join(FIELDS)}. Default: all; with --json-path the value.")  # fmt: skip
@click.option("--json-path", "json_paths", metavar="PATH[=VALUE]", multiple=True,
              help="Search JSON at a path, such as $.order.id=17. Repeated: records with all of them.")  # fmt: skip
@click.option("--key", metavar="TEXT", callback=record_options.each_parsed(os.fsencode), multiple=True,
              help="Search records with exactly this key. Repeatable.")  # fmt: skip
@click.option("--key-hex", metavar="HEX", callback=record_options.each_parsed(_hex), multiple=True,
              help="The same, in hexadecimal.")  # fmt: skip
@click.option("--key-int32", metavar="N", callback=record_options.each_parsed(_big_endian(4)), multiple=True,
              help="The same, as an int of Kafka's IntegerSerializer.")  # fmt: skip
@click.option("--key-int64", metavar="N", callback=record_options.each_parsed(_big_endian(8)), multiple=True,
              help="The same, as a long of Kafka's LongSerializer.")  # fmt: skip
@click.option("--null-key", is_flag=True, help="Search records whose key is null.")
@click.option("--null-value", is_flag=True, help="Search records whose value is null.")
@click.option("--partitioner", type=common.Choice(list(PARTITIONERS)),
              help="Read only the partition that this partitioner chooses for a key. Default: all.")  # fmt: skip
@click.option("--partitions", type=common.WholeNumber(min=1), metavar="N",
              help="Set the topic's number of partitions for --partitioner. Default: number of folders.")  # fmt: skip
@click.option("--all-partitions", is_flag=True, hidden=True, help="Read all partitions for a key: the default.")
@record_options.offsets
@record_options.since
@record_options.until
@click.option("-c", "--count", is_flag=True, help="Show only the number of matches per file.")
@click.option("-l", "--files-with-matches", "files_only", is_flag=True, help="Show only the files with matches.")
@click.option("-q", "--quiet", is_flag=True, help="Show nothing, and stop at the first match.")
@click.option("--only-matching", is_flag=True, help="Show only the matching texts.")
@click.option("-m", "--max-count", type=common.WholeNumber(min=1), metavar="N", help="Stop after N matches per file.")
@click.option("-A", "--after-context", "after", type=common.WholeNumber(0, 10_000), metavar="N",
              help="Show N records after a match.")  # fmt: skip
@click.option("-B", "--before-context", "before", type=common.WholeNumber(0, 10_000), metavar="N",
              help="Show N records before a match.")  # fmt: skip
@click.option("-C", "--context", type=common.WholeNumber(0, 10_000), metavar="N", default=0,
              help="Show N records before and after a match.")  # fmt: skip
@common.output_format(MATCHES)
@common.output
@click.option("--columns", metavar="NAMES", help="Show these columns of a table or of CSV: a,b,c.")
@click.option("--template", metavar="TEXT", help="Write a line for each record, such as '%o %k %v'.")
@click.option("--bytes", "encoding", type=common.Choice(["auto", "utf8", "hex", "base64"]), default="auto",
              show_default=True, help="Set the encoding of keys and values.")  # fmt: skip
@click.option("--full", is_flag=True, help="Do not cut texts on a terminal.")
@common.jobs
@decode_options
@common.no_crc
@common.max_rate
def grep(arguments: tuple[str, ...], **options: Any) -> int:
    """Find records by a regular expression, a text, a JSON path or a key.

    PATTERN is a regular expression of Python. It is the first argument, unless -e, --json-path, --key or --null-… says what
    to search. Exit codes: 0 a record matches, 1 none does, 2 a file cannot be read.
    """
    query, paths = _query(arguments, options)
    common.check_outputs(*paths)
    outcome = DumpOutcome()
    files = once_each(chain.from_iterable(outcome.attempt(find_segments(path)) for path in paths))
    files, limited = _of_partitions(files, query.keys, options)
    request = _request(query, options)
    most = 1 if options["files_only"] else options["max_count"]
    with grep_run(files, request, outcome, most, 1 if options["quiet"] else options["jobs"]) as run:
        if options["quiet"]:
            outcome.rows = any(isinstance(item, RecordsItem) for item in run.items())
            return 0 if outcome.rows else _not_found(limited, outcome)
        with until_reader_closes(), destination(options["output"], to_the_end=False) as out:
            _write(run, out, options)
            if outcome.failed and not outcome.rows:
                raise click.exceptions.Exit(FAILED)  # inside the block, so that an older output file is kept
    if not outcome.rows:
        return _not_found(limited, outcome)
    return FAILED if outcome.failed else 0


def _request(query: Query, options: dict[str, Any]) -> GrepRequest:
    first, end = options["offsets"] or (None, None)
    before, after = (options["context"] if options[name] is None else options[name] for name in ("before", "after"))
    if options["count"] or options["files_only"] or options["quiet"]:
        before = after = 0
    limits = RowFilter(first, end, options["since"], options["until"])
    return GrepRequest(query, decode_settings(options), limits, not options["no_crc"], before, after)


def _query(arguments: tuple[str, ...], options: dict[str, Any]) -> tuple[Query, tuple[str, ...]]:
    """Return the query and the paths. Raises UsageError for options that contradict each other."""
    keys = [key for name in ("key", "key_hex", "key_int32", "key_int64") for key in options[name]]
    keys += [None] * options["null_key"]
    json_paths = tuple(map(parse_json_path, options["json_paths"]))
    patterns, paths = options["patterns"], arguments
    if not (patterns or keys or json_paths or options["null_value"]):
        patterns, paths = arguments[:1], arguments[1:]
        if not paths:
            raise UsageError("expected PATTERN and PATH: `kseg grep failed kafka-logs`")
    if paths.count("-") > 1:
        raise UsageError("standard input can be read only once: give one -")
    query = Query(
        patterns=patterns,
        literal=options["literal"],
        ignore_case=options["ignore_case"],
        whole=options["whole"],
        invert=options["invert"],
        fields=options["fields"] or (("value",) if json_paths else FIELDS),
        json_paths=json_paths,
        keys=tuple(keys),
        null_value=options["null_value"],
    )
    if not query.has_pattern:
        for name, option in (
            ("invert", "-v"),
            ("only_matching", "--only-matching"),
            ("whole", "-x"),
            ("fields", "--in"),
        ):
            if options[name]:
                raise UsageError(f"{option} needs a pattern: add -e PATTERN or --json-path")
    return query, paths


def _of_partitions(
    files: list[SegmentFile], keys: Sequence[bytes | None], options: dict[str, Any]
) -> tuple[list[SegmentFile], Sequence[PartitionChoice]]:
    """Return the files to read, and the choice for each topic of which not all partitions are read.

    Raises UsageError for options that contradict each other.
    """
    partitioner, total = options["partitioner"], options["partitions"]
    texts = [key for key in keys if key is not None]
    if partitioner is None:
        if total is not None:
            raise UsageError("--partitions is for --partitioner")
        return files, ()
    if options["all_partitions"]:
        raise UsageError("--partitioner and --all-partitions exclude each other")
    if not texts or len(texts) < len(keys):
        raise UsageError("--partitioner needs keys: add --key; a null key can be in each partition")
    files, choices = files_of_keys(files, texts, partitioner, total)
    for choice in choices:
        if choice.total is None and len(choice.read) > 1:
            note(f"{choice.topic}: all its partitions here are read: --partitions N reads only that of the key")
    limited = [choice for choice in choices if choice.unread or choice.missing]
    if len(limited) == 1:
        (choice,) = limited
        chosen = [str(number) for number in sorted({*choice.read, *choice.missing})]
        source = "" if total else " (the number of folders here; --partitions N sets another)"
        note(
            f"{choice.topic}: reads only partition{'s' * (len(chosen) > 1)} {_names(chosen)} of {choice.total}{source}, "
            f"as {partitioner} chooses"
        )
    elif limited:
        read, others = (sum(map(len, some)) for some in zip(*((c.read, c.unread) for c in limited), strict=True))
        note(f"{len(limited)} topics: reads only {read} of {read + others} partitions here, as {partitioner} chooses")
    return files, limited


def _not_found(limited: Sequence[PartitionChoice], outcome: DumpOutcome) -> int:
    """Return the exit code of a search without a match, and print which partitions it has not read."""
    missing = [f"{choice.topic}-{number}" for choice in limited for number in choice.missing]
    unread = [f"{choice.topic}-{number}" for choice in limited for number in choice.unread]
    if missing:
        note(f"no match; not in the given paths: {_names(missing)}, which can have the key")
    if unread:
        note(
            f"no match; not read: {_names(unread)}. Omit --partitioner to read all: keys from before partitions were added, "
            "or of another partitioner, are there"
        )
    return FAILED if outcome.failed or missing else 1


def _names(names: Sequence[str]) -> str:
    more = len(names) - _NAMES_SHOWN
    return ", ".join(names[:_NAMES_SHOWN]) + (f" and {more:,} more" if more > 0 else "")


def _write(run: GrepRun, out: Any, options: dict[str, Any]) -> None:
    name = options["format_name"]
    for only in ("count", "files_only", "only_matching"):
        if options[only] and name != "text":
            raise UsageError(f"--format {name} writes records: it cannot be combined with --{only.replace('_', '-')}")
    if options["columns"] and name not in ("table", "csv"):
        raise UsageError(f"--columns chooses columns of a table or of CSV, not of --format {name}")
    decoder = run.request.decoder
    view = View(
        deep=True,
        encoding=options["encoding"],
        terminal=out.isatty(),
        columns=[name.strip() for name in (options["columns"] or "").split(",") if name.strip()],
        full=options["full"],
        template=options["template"] or "",
        searched=True,
        sides=decoder.sides if decoder else (),
    )
    if options["files_only"] or options["count"]:
        report.write_files(run.counts(), out, counts=not options["files_only"])
        return
    items = run.items()
    if options["only_matching"]:
        report.write_matches(items, out, view)
    elif view.template:
        template.write_template(items, out, view)
    else:
        write(MATCHES, name, out, items, view=view)
