"""``kseg validate``: options and exit codes. 1 is findings of ``--fail-on`` or worse, 2 that something could not be read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kseg.cli import common
from kseg.cli.messages import FAILED, FOUND, fail, note
from kseg.cli.progress import shown
from kseg.cli.settings import read_settings
from kseg.errors import KsegError, UsageError
from kseg.files.storage import SegmentFile, find_segments, is_folder, refuse_as_output, total_size
from kseg.findings import Policy, parse_severity
from kseg.frames.framings import framed_files
from kseg.output.formats import REPORT_FORMATS, destination, writer
from kseg.validation.parallel import cores, validate_files
from kseg.validation.validate import FileResult, Progress, Settings, Summary, no_progress

if TYPE_CHECKING:
    from kseg.validation.sweep_state import SweepState

# Of files that are passed over, how many are named.
_PASSED_OVER_SHOWN = 8

# What no settings file says.
_OF_ONE_RUN = {"paths", "output", "inventory", "state", "framings"}
_FAIL_ON = click.Choice(["error", "warning", "info", "never"])


@click.command()
@common.paths
@click.option(
    "--deep/--shallow", default=True, help="Open every entry (the default), or look at headers and CRCs only."
)
@common.framings
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
    from kseg.cli.spark import spark_pool

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
    if options["framings"] and (inventory is not None or options["state"] is not None):
        raise UsageError("--as goes with neither --inventory nor --state")
    for target in (inventory, options["state"]):
        if target is not None:
            from kseg.files.folders import refuse_overlap

            for path in paths:
                refuse_overlap(path, Path(target))
    if inventory is not None and options["state"] is not None:
        raise UsageError("--inventory has a row of every segment, and --state leaves out what was read before")
    fail_on = None if options["fail_on"] == "never" else parse_severity(options["fail_on"])
    total = Summary()
    vanished = 0
    files, failed = (framed_files(paths, options["framings"]), False) if options["framings"] else _files(paths)
    refuse_as_output(output, [*paths, *(file.path for file in files)])

    def results(progress: Progress) -> Iterator[FileResult]:
        nonlocal failed, vanished
        if pool is not None and inventory is not None:
            from kseg.spark.inventory import validated

            found = validated(pool, files, settings, Path(inventory))
        else:
            told = no_progress if pool else progress
            found = validate_files(files, settings, options["jobs"] or cores(), told, pool, state)
            if any(file.beside is not None for file in files):
                from kseg.validation.cross_checks import judged_together

                found = judged_together(files, settings, found)
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
        _sweep_state(options["state"], settings, files) as state,
    ):
        writer(REPORT_FORMATS, options["format_name"])(results(progress), total, out)
    if state:
        note(f"{state.taken} of {len(files)} files are as they were read before: taken from {options['state']}")
    if vanished:
        note(f"vanished before they could be read, as segments do beside a broker: {vanished}")
    if failed:
        return FAILED
    return FOUND if fail_on is not None and total.at_least(fail_on) else 0


def _sweep_state(
    path: str | None, settings: Settings, files: list[SegmentFile]
) -> AbstractContextManager[SweepState | None]:
    if path is None:
        return nullcontext()
    from kseg.validation.sweep_state import sweep_state

    return sweep_state(path, settings, files)


def _files(paths: tuple[str, ...]) -> tuple[list[SegmentFile], bool]:
    """The files to check, and whether a path could not be read; what was passed over is told."""
    files: list[SegmentFile] = []
    passed_over: list[str] = []
    failed = False
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
        named = ", ".join(passed_over[:_PASSED_OVER_SHOWN]) + ", …" * (len(passed_over) > _PASSED_OVER_SHOWN)
        note(f"passed over, not Kafka's or not in use ({len(passed_over)}): {named}")
    return files, failed


def _with_settings(context: click.Context) -> dict[str, Any]:
    """The command's options, those not given on the command line taken from the settings file."""
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
