"""``kseg dump``: options and exit codes. 1: damage was found. 2: a file could not be read."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, TextIO

import click

from kseg.cli import (
    common,
    dump_modes,
    record_options,
    spark_session,
)
from kseg.cli.dump_jobs import FORMATS, has_parts, jobs_of, write_parts
from kseg.cli.messages import FAILED, note, note_output, until_reader_closes
from kseg.cli.outcome import DumpOutcome, FindingNotes
from kseg.cli.record_options import decode_options, decode_settings, files_of, owner_of, owner_options
from kseg.commands.dump import follow
from kseg.commands.dump.dumped_rows import at_position, dump_side_file, first_rows
from kseg.commands.dump.request import DumpRequest
from kseg.errors import UsageError
from kseg.extras.serialization import record_decoder
from kseg.format.checks.run_checks import side_file_of
from kseg.format.internal_topics import decode
from kseg.format.internal_topics.decode import BY_FOLDER, internal_topic
from kseg.format.segment.row_filter import RowFilter
from kseg.format.storage.source import SegmentFile, find_segments, local_size, once_each, open_source
from kseg.report import side_files_report, template
from kseg.report.formats import DUMP, EFFECTIVE, View, destination, write
from kseg.text import count_of, unknown_name

if TYPE_CHECKING:
    from kseg.extras.serialization.record_decoder import RecordDecoder


def _internal_topic(context: click.Context, parameter: click.Parameter, name: str | None) -> str | None:
    if name is None:
        return None
    if name not in decode.TOPICS:
        raise click.BadParameter(unknown_name("internal topic", name, decode.TOPICS))
    return name


@click.command()
@common.paths
@click.option("--shallow/--deep", default=None, help="Show batches or records. Default: shallow.")
@common.framings
@common.output_format(DUMP)
@common.output
@record_options.offsets
@record_options.since
@record_options.until
@click.option("--position", type=common.WholeNumber(min=0), metavar="N",
              help="Show the batch or the damage that contains byte N of the file.")  # fmt: skip
@click.option("--limit", type=common.WholeNumber(min=0), metavar="N", help="Stop after N rows.")
@click.option("--key", "keys", metavar="TEXT", callback=record_options.each_parsed(os.fsencode), multiple=True,
              help="Show records with exactly this key. Repeatable. Needs --deep.")  # fmt: skip
@click.option("--producer-id", type=int, metavar="N", help="Show batches of this producer.")
@click.option("--control/--no-control", default=None, help="Show only control records, or none.")
@click.option("--bytes", "encoding", type=common.Choice(["auto", "utf8", "hex", "base64"]), default="auto",
              show_default=True, help="Set the encoding of keys and values.")  # fmt: skip
@click.option("--columns", metavar="NAMES", help="Show these columns of a table or of CSV: a,b,c.")
@click.option("--full", is_flag=True, help="Do not cut texts in a table on a terminal.")
@click.option("--template", metavar="TEXT", help="Write a line for each record, such as '%o %k %v'.")
@click.option("--decode", metavar="TOPIC", callback=_internal_topic,
              help="Decode records as those of an internal topic, such as __consumer_offsets, in any "
                   "folder.")  # fmt: skip
@click.option("--no-decode", is_flag=True, help="Do not decode records of internal topics.")
@decode_options
@click.option("--effective", is_flag=True,
              help="Show the effective state of internal topics: the latest value per key, and the space used. "
                   f"Formats: {', '.join(EFFECTIVE.writers)}.")  # fmt: skip
@owner_options
@click.option("--follow", is_flag=True, help="Wait for new batches and segments until Ctrl-C.")
@common.jobs
@common.no_crc
@common.max_rate
@common.spark
def dump(paths: tuple[str, ...], shallow: bool | None, format_name: str, output: str | None, **options: Any) -> int:
    """Show the batches or records of segments, or the content of side files.

    A folder means all segments in it. To show an index, a snapshot or a checkpoint, give its own path.
    """
    common.check_outputs()
    format_name = _format(format_name, {**options, "shallow": shallow})
    owner = owner_of(options["group"], options["txn"], options["partitions"])
    keep, outcome = _filter(options), DumpOutcome()
    if options["framings"]:
        jobs_of(options, format_name, deep=False)
        return dump_modes.show_framed(paths, shallow, (output, format_name), options, keep, outcome)
    if options["effective"]:
        context = click.get_current_context()
        return dump_modes.show_effective(paths, (output, format_name), options["decode"], outcome, context, owner)
    if owner is not None:
        if shallow or options["spark"] is not None:
            raise UsageError("--group and --txn select records: they cannot be combined with --shallow and --spark")
        keep, shallow = replace(keep, search=owner), False
    # The fields of records are what these formats are for.
    decoder = _decoder(options, format_name, shallow)
    shallow = format_name not in ("hex", "template") and not decoder if shallow is None else shallow
    decode_as = _decode_as(options, shallow)
    if keep.keys and shallow:
        raise UsageError("--key selects records: add --deep")

    jobs = jobs_of(options, format_name, deep=not shallow)
    files = once_each(chain.from_iterable(outcome.attempt(find_segments(path)) for path in paths))
    if owner is not None:
        files = files_of(owner, files, options["decode"] or BY_FOLDER, options["partitions"])
    listed = {file.path: file for file in files}
    beside = {file.path: known for file in files if (known := side_file_of(file.path))}
    if beside:
        for only in ("columns", "template", "position"):
            if options[only] is not None:
                raise UsageError(f"--{only} is for segments: omit it for side files")
        side_files_report.refuse_for_side_files(
            [file.path for file in files], format_name, filtered=keep != RowFilter()
        )
    if options["spark"] is not None:
        if beside or options["limit"] is not None or options["follow"] or options["template"] is not None:
            raise UsageError("--spark accepts segments only, without --limit, --follow and --template")
        requested = (output, format_name, not shallow, options["encoding"], keep, not options["no_crc"], decode_as)
        return spark_session.export_segments(options["spark"], files, requested, outcome)
    if options["follow"]:
        if beside or format_name == "parquet" or output not in (None, "-"):
            raise UsageError("--follow writes segments to stdout, in any format but parquet")
        if outcome.failed:
            return FAILED
        _check_follow(file.path for file in files)

    request = DumpRequest(
        deep=not shallow,
        keep=keep,
        headings=format_name in ("text", "hex"),
        verify_crc=not options["no_crc"],
        damaged=format_name == "hex",
        decode_as=decode_as,
        decoder=decoder,
    )

    def show(path: str, start: int = 0, end: int | None = None) -> Iterator[Any]:
        file = listed.get(path) or SegmentFile(path, listed=path not in paths)
        outcome.begin(file)
        known = beside.get(path)
        dumped = dump_side_file(path, known, outcome) if known else request.items(file, outcome, start, end)
        yield from outcome.attempt(dumped, listed=file.listed)

    with until_reader_closes(), destination(output, to_the_end=False) as out:
        decoded = any(internal_topic(file.path, decode_as) for file in files)
        view = View(
            deep=not shallow,
            encoding=options["encoding"],
            terminal=out.isatty(),
            decoded=decoded,
            sides=decoder.sides if decoder else (),
            columns=[name.strip() for name in (options["columns"] or "").split(",") if name.strip()],
            full=options["full"],
            template=options["template"] or "",
            jobs=jobs,
        )

        def write_rows(rows: Iterable[Any], out: TextIO, view: View) -> None:
            if view.template:
                template.write_template(rows, out, view)
            else:
                write(DUMP, format_name, out, rows, view=view)

        if options["follow"]:

            def write_on(rows: Iterable[Any], first: bool) -> None:
                write_rows(rows, out, replace(view, continued=not first))
                out.flush()

            found = outcome.counted(follow.Follower(paths, show, note).rows())
            follow.write_until_interrupted(first_rows(found, options["limit"]), write_on)
            return outcome.exit_code()
        shown = at_position(chain.from_iterable(show(file.path) for file in files), options["position"])
        shown = outcome.counted(first_rows(shown, options["limit"]))
        if beside:
            side_files_report.write_mixed(format_name, shown, out, view)
        elif jobs > 1 and format_name in FORMATS and not view.terminal and has_parts(files):
            write_parts(files, request, write_rows, (out, view), outcome, jobs)
        else:
            write_rows(shown, out, view)
        if outcome.failed and not outcome.rows:
            raise click.exceptions.Exit(FAILED)  # inside the block, so that an older output file is kept
    note_output(output, count_of(outcome.written, "row"))
    return outcome.exit_code()


def _format(name: str, options: Mapping[str, Any]) -> str:
    """Return the format; ``--template`` is one. Raises UsageError for options that contradict it."""
    if options["columns"] is not None and not options["columns"].strip(" ,"):
        raise UsageError("--columns: expected names, such as offset,key,value")
    for only in ("columns", "template", "position"):
        if options[only] is not None and (options["framings"] or options["effective"]):
            raise UsageError(f"--{only} is for segments: it cannot be combined with --as or --effective")
    if options["framings"] and decode_settings(options):
        raise UsageError("--key-as, --value-as and schemas are for segments: they cannot be combined with --as")
    if options["template"] is not None:
        if not options["template"]:
            raise UsageError("--template is empty: write what a line contains, such as '%o %k %v'")
        if options["columns"]:
            raise UsageError("--template and --columns exclude each other: write the columns into the template")
        if name != "table":
            raise UsageError(f"--template writes lines of its own: it cannot be combined with --format {name}")
        if options["shallow"]:
            raise UsageError("--template writes records: it cannot be combined with --shallow")
        return "template"
    if options["columns"] and name not in ("table", "csv"):
        raise UsageError(f"--columns chooses columns of a table or of CSV, not of --format {name}")
    return name


def _filter(options: Mapping[str, Any]) -> RowFilter:
    first, end = options["offsets"] or (None, None)
    return RowFilter(
        first_offset=first,
        end_offset=end,
        since=options["since"],
        until=options["until"],
        keys=options["keys"],
        producer_id=options["producer_id"],
        control=options["control"],
    )


def _decode_as(options: Mapping[str, Any], shallow: bool) -> str | None:
    """Return the argument ``decode_as`` of ``internal_topic``. Raises UsageError for contradicting options."""
    if options["decode"] and (shallow or options["no_decode"]):
        raise UsageError("--decode decodes records: it needs --deep and excludes --no-decode")
    named: str | None = options["decode"]
    return None if shallow or options["no_decode"] else named or BY_FOLDER


def _decoder(options: Mapping[str, Any], format_name: str, shallow: bool | None) -> RecordDecoder | None:
    """Return the decoder of keys and values. Raises UsageError for contradicting options."""
    settings = decode_settings(options)
    if settings is None:
        return None
    if shallow:
        raise UsageError("--key-as, --value-as and schemas decode records: they cannot be combined with --shallow")
    if format_name in ("hex", "template") or options["spark"] is not None:
        other = "--template" if format_name == "template" else "--format hex"
        other = other if options["spark"] is None else "--spark"
        raise UsageError(f"{other} shows keys and values as they are stored: omit --key-as, --value-as and schemas")
    return record_decoder.record_decoder(settings, lambda path: partial(FindingNotes(), path))


def _check_follow(paths: Iterable[str]) -> None:
    """Raise UsageError for files that are not local, UnreadableError for unreadable files."""
    for path in paths:
        if local_size(path) is None:
            open_source(path).close()  # raises if it cannot be read, with the reason
            raise UsageError(f"{path}: --follow accepts local files only")
