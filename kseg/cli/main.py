"""The command line: options and exit codes only. 0 is nothing found, 1 is findings, 2 is that it could not be done."""

from __future__ import annotations

import gc
import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import click

import kseg
from kseg.cli import common
from kseg.cli.audit import audit
from kseg.cli.convert import convert
from kseg.cli.diff import diff
from kseg.cli.messages import FAILED, FOUND, Notes, fail, heard, note, silence
from kseg.cli.recovery import recovery
from kseg.cli.repair import repair
from kseg.cli.stats import stats
from kseg.cli.transactions import transactions
from kseg.errors import KsegError, UsageError, VanishedError
from kseg.files import pace
from kseg.findings import Finding, Policy, known_rule, parse_severity
from kseg.output.formats import DUMP_FORMATS, REPORT_FORMATS, View, destination, writer

# Of files that are passed over, how many are named.
_PASSED_OVER_SHOWN = 8

# What is imported stays, and the loops leave no cycles: collecting every 700 objects is a tenth of a short run.
gc.set_threshold(50_000)

# What no settings file says.
_OF_ONE_RUN = {"paths", "output", "inventory", "state"}
_FAIL_ON = click.Choice(["error", "warning", "info", "never"])


class Commands(click.Group):
    """Click ends with 1 where contract says 2, and shows tracebacks; here 1 means findings, and only that."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # The reader has what it wanted (head, less). Click would end with 1.
            silence(sys.stdout)
            return 0

    def main(self, *args: Any, **kwargs: Any) -> Any:
        kwargs["standalone_mode"] = False
        if sys.stderr is None:
            # Closed: the next file to be opened must not become it.
            sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
        try:
            code = super().main(*args, **kwargs)
        except click.exceptions.Exit as error:
            code = error.exit_code
        except click.ClickException as error:
            with heard():
                error.show()
            code = FAILED
        except click.Abort:
            code = fail("interrupted")
        except KsegError as error:
            code = fail(str(error))
        except (OSError, MemoryError) as error:
            code = fail(str(error) or type(error).__name__)
        except Exception as error:
            if os.environ.get("KSEG_DEBUG"):
                raise
            code = fail(f"internal error, please report it: {type(error).__name__}: {error} (KSEG_DEBUG=1 shows more)")
        try:
            if sys.stdout is not None:
                sys.stdout.flush()
        except OSError:
            silence(sys.stdout)  # what it could not take was told: the interpreter would end with 120
        sys.exit(code)


def _offsets(context: click.Context, parameter: click.Parameter, text: str | None) -> tuple[int | None, int | None]:
    if text is None:
        return None, None
    first, colon, end = text.partition(":")
    try:
        bounds = (int(first) if first else None, int(end) if end else None)
    except ValueError:
        bounds = None, None
    if not colon or bounds == (None, None):
        raise click.BadParameter("give A:B, A: or :B; B itself is not taken")
    if None not in bounds and bounds[0] >= bounds[1]:  # type: ignore[operator]
        raise click.BadParameter("B is not taken itself, so it must be more than A")
    return bounds


def _time(context: click.Context, parameter: click.Parameter, text: str | None) -> int | None:
    """ISO 8601 (without a zone: UTC) or epoch milliseconds, as epoch milliseconds."""
    if text is None:
        return None
    if re.fullmatch(r"-?[0-9]{1,19}", text) and abs(int(text)) < 1 << 63:
        return int(text)
    from datetime import UTC, datetime

    try:
        moment = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise click.BadParameter("give ISO 8601, as 2024-05-01T12:00:00Z, or epoch milliseconds") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(message="kseg %(version)s", version=kseg.version_line())
def main() -> None:
    """Inspect, validate and convert Kafka log segments.

    A PATH is a segment (.log), a partition folder, a log dir, a URL, or - for standard input.
    Exit codes: 0 nothing found, 1 findings, 2 it could not be done.
    """


@main.command()
@common.paths
@click.option("--shallow/--deep", default=True, help="One row an entry (the default), or one row a record.")
@common.output_format(DUMP_FORMATS)
@common.output
@click.option("--offsets", metavar="A:B", callback=_offsets, help="Offsets A <= offset < B; either may be left out.")
@click.option("--since", metavar="TIME", callback=_time, help="From that time on: ISO 8601 or epoch milliseconds.")
@click.option("--until", metavar="TIME", callback=_time, help="Before that time.")
@click.option("--limit", type=click.IntRange(min=0), metavar="N", help="Stop after N rows.")
@click.option("--key", metavar="TEXT", help="Records with exactly that key (needs --deep).")
@click.option("--producer-id", type=int, metavar="N", help="Batches of that producer.")
@click.option("--control/--no-control", default=None, help="Only control records, or none of them.")
@click.option("--bytes", "encoding", type=click.Choice(["auto", "utf8", "hex", "base64"]), default="auto",
              show_default=True, help="How keys and values are written.")  # fmt: skip
@click.option("--follow", is_flag=True, help="Go on with what is appended, and with new segments, until Ctrl-C.")
@common.no_crc
@common.max_rate
@common.spark
def dump(paths: tuple[str, ...], shallow: bool, format_name: str, output: str | None, **options: Any) -> int:
    """Show what is in segments: entries, or with --deep their records; and in the files beside them.

    A folder stands for the segments in it; an index, a snapshot or a checkpoint is shown where it is named itself.
    """
    from kseg.beside.side_files import recognise
    from kseg.dumping.dump import Entry, Filter, Item, Run, SideEntry, dump_segment, dump_side_file, limited
    from kseg.files.storage import find_segments, local_size, open_source, refuse_as_output
    from kseg.output.side import refuse_for_side_files, write_mixed

    first, end = options["offsets"]
    key = options["key"]
    keep = Filter(
        first_offset=first,
        end_offset=end,
        since=options["since"],
        until=options["until"],
        key=None if key is None else os.fsencode(key),
        producer_id=options["producer_id"],
        control=options["control"],
    )
    if key is not None and shallow:
        raise UsageError("--key looks into records: it needs --deep")
    met = _Met()

    files = list(met.attempt(chain.from_iterable(map(find_segments, paths))))
    refuse_as_output(output, [*paths, *(file.path for file in files)])
    beside = {file.path: known for file in files if (known := recognise(file.path))}
    if beside:
        refuse_for_side_files([file.path for file in files], format_name, filtered=keep != Filter())
    if options["spark"] is not None:
        if beside or options["limit"] is not None or options["follow"]:
            raise UsageError("--spark takes segments only, and neither --limit nor --follow")
        from kseg.cli.spark import export_segments

        asked = (output, format_name, not shallow, options["encoding"], keep, not options["no_crc"])
        return export_segments(options["spark"], files, asked, met)
    if options["follow"]:
        if beside or format_name == "parquet" or output not in (None, "-"):
            raise UsageError("--follow shows segments, on stdout, and not as parquet: that is whole or not at all")
        if met.failed:
            return FAILED
        for file in files:
            if local_size(file.path) is None:
                open_source(file.path).close()  # which may say why
                raise UsageError(f"{file.path}: --follow needs local files")

    def show(path: str, start: int = 0, end: int | None = None) -> Iterator[Any]:
        met.file = path
        if known := beside.get(path):
            dumped: Iterator[Item] = dump_side_file(path, known, met)
        else:
            dumped = dump_segment(
                path,
                deep=not shallow,
                headings=format_name == "text",
                keep=keep,
                verify_crc=not options["no_crc"],
                report=met,
                start=start,
                end=end,
            )
        for item in met.attempt(dumped, listed=path not in paths):
            met.rows |= isinstance(item, (Entry, Run, SideEntry))
            yield item

    with destination(output) as out:
        view = View(deep=not shallow, encoding=options["encoding"], terminal=out.isatty())
        if options["follow"]:
            from kseg.dumping.following import Follower, write_as_they_come

            def write_on(rows: Iterable[Any], first: bool) -> None:
                writer(DUMP_FORMATS, format_name)(rows, out, replace(view, continued=not first))
                out.flush()

            write_as_they_come(limited(Follower(paths, show, note).rows(), options["limit"]), write_on)
            return met.exit_code()
        write = partial(write_mixed, format_name) if beside else writer(DUMP_FORMATS, format_name)
        shown = chain.from_iterable(show(file.path) for file in files)
        write(limited(shown, options["limit"]), out, view)
        if met.failed and not met.rows:
            raise click.exceptions.Exit(FAILED)  # within, so that an older result stays in its place
    return met.exit_code()


class _Met:
    """What a dump meets on its way: findings on stderr, and the exit code at the end."""

    def __init__(self) -> None:
        self.file = ""
        self.rows = False
        self.failed = False
        self._notes = Notes()

    def __call__(self, finding: Finding) -> None:
        self._notes(self.file, finding)

    def attempt(self, rows: Iterator[Any], *, listed: bool = False) -> Iterator[Any]:
        """The rows; where something can't be read, one line, and on to the next. A ``listed`` file may have vanished."""
        try:
            yield from rows
        except KsegError as error:
            if isinstance(error, UsageError):
                raise
            if listed and isinstance(error, VanishedError):
                return
            self.failed = True
            fail(str(error))

    def exit_code(self) -> int:
        if not (self.rows or self.failed):
            note("no rows")
        return FAILED if self.failed else FOUND if self._notes.errors else 0


@main.command()
@common.paths
@click.option(
    "--deep/--shallow", default=True, help="Open every entry (the default), or look at headers and CRCs only."
)
@common.output_format(REPORT_FORMATS)
@common.output
@common.no_crc
@click.option("--max-message-bytes", type=click.IntRange(min=1), metavar="N",
              help="The topic's limit: larger entries are errors. Without it 1048588, and a warning.")  # fmt: skip
@click.option("--compacted", is_flag=True, help="A compacted topic: every record needs a key, sequences have holes.")
@click.option(
    "--fail-on", type=_FAIL_ON, default="error", show_default=True, help="The severity that makes exit code 1."
)
@click.option("--rule", multiple=True, metavar="NAME=SEVERITY", help="error, warning, info or ignore for that rule.")
@click.option("--max-per-rule", type=click.IntRange(min=1), default=16, show_default=True, metavar="N",
              help="Findings shown of one rule in one file; all are counted.")  # fmt: skip
@common.jobs
@common.max_rate
@click.option("--state", metavar="FILE",
              help="Keep results there: a next sweep goes on from it, and reads only what has changed.")  # fmt: skip
@common.spark
@click.option("--inventory", metavar="DIR",
              help="With --spark, write findings.parquet and segments.parquet there, too: a row each.")  # fmt: skip
@click.pass_context
def validate(context: click.Context, /, paths: tuple[str, ...], output: str | None, **_: Any) -> int:
    """Check segments: framing, CRCs, batches, records, codecs; and the files beside them.

    A file that is named alone is judged by itself, those of a folder against each other, too.
    Findings are listed by byte and offset.
    """
    from kseg.cli.progress import shown
    from kseg.cli.spark import spark_pool
    from kseg.files.storage import SegmentFile, find_segments, is_folder, refuse_as_output, total_size
    from kseg.validation.cross_checks import judged_together
    from kseg.validation.parallel import cores, validate_files
    from kseg.validation.sweep_state import sweep_state
    from kseg.validation.validate import FileResult, Progress, Settings, Summary, no_progress

    options = _with_settings(context)
    settings = Settings(
        deep=options["deep"],
        verify_crc=not options["no_crc"],
        max_message_bytes=options["max_message_bytes"],
        compacted=options["compacted"],
        policy=Policy.parse(options["rule"]),
        max_per_rule=options["max_per_rule"],
    )
    inventory = options["inventory"]
    if inventory is not None and not (options["spark"] and settings.deep):
        raise UsageError("--inventory needs --spark, and --deep")
    for target in (inventory, options["state"]):
        if target is not None:
            from kseg.files.folders import refuse_overlap

            for path in paths:
                refuse_overlap(path, Path(target))
    if options["spark"] and (options["state"] is not None or pace.limited()):
        raise UsageError("--state and --max-rate are for sweeps of one machine, without --spark")
    fail_on = None if options["fail_on"] == "never" else parse_severity(options["fail_on"])
    total = Summary()
    failed = False
    vanished = 0

    files: list[SegmentFile] = []
    passed_over: list[str] = []
    for path in paths:
        try:
            if is_folder(path):
                from kseg.beside.side_files import find_files

                files += find_files(path, passed_over.append)
            else:
                files += find_segments(path)
        except KsegError as error:
            failed = bool(fail(str(error)))
    if passed_over and files:
        shown_names = ", ".join(passed_over[:_PASSED_OVER_SHOWN]) + ", …" * (len(passed_over) > _PASSED_OVER_SHOWN)
        note(f"passed over, not Kafka's or not in use ({len(passed_over)}): {shown_names}")

    refuse_as_output(output, [*paths, *(file.path for file in files)])

    def results(progress: Progress) -> Iterator[FileResult]:
        nonlocal failed, vanished
        if pool is not None and inventory is not None:
            from kseg.spark.inventory import validated

            found = validated(pool, files, settings, Path(inventory))
        else:
            told = no_progress if pool else progress
            alone = validate_files(files, settings, options["jobs"] or cores(), told, pool, state)
            found = judged_together(files, settings, alone)
        for result in found:
            total.add(result.summary)
            vanished += result.vanished
            if result.unread:
                failed = bool(fail(result.unread))
            yield result

    with (
        destination(output) as out,
        shown(total_size(files)) as progress,
        spark_pool(options["spark"], files, progress) as pool,
        sweep_state(options["state"], settings, files) if options["state"] else nullcontext() as state,
    ):
        writer(REPORT_FORMATS, options["format_name"])(results(progress), total, out)
    if state:
        note(f"{state.taken} of {len(files)} files are as they were read before: taken from {options['state']}")
    if vanished:
        note(f"vanished before they could be read, as segments do beside a broker: {vanished}")
    if failed:
        return FAILED
    return FOUND if fail_on is not None and total.at_least(fail_on) else 0


def _with_settings(context: click.Context) -> dict[str, Any]:
    """The command's options, those not given on the command line taken from the settings file."""
    from kseg.cli.settings import read_settings

    names = {"format" if name == "format_name" else name for name in context.params} - _OF_ONE_RUN
    found = read_settings(Path.cwd(), names)
    options = dict(context.params)
    for parameter in context.command.params:
        name = parameter.name or ""
        setting = "format" if name == "format_name" else name
        given = context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
        if setting in found and not given:
            try:
                options[name] = parameter.type_cast_value(context, found[setting])
            except click.BadParameter as error:
                raise UsageError(f"the settings file: {setting}: {error.message}") from error
    return options


@main.command()
@click.argument("name", required=False)
def rules(name: str | None) -> None:
    """List the rules, or explain one: NAME is a rule's name or code."""
    from kseg.output.rule_docs import explain, table

    click.echo(explain(known_rule(name)) if name else table())


main.add_command(convert)
main.add_command(repair)
main.add_command(stats)
main.add_command(diff)
main.add_command(recovery)
main.add_command(transactions)
main.add_command(audit)
