"""``kseg schemas``: options and exit codes. 1: data use an id without a schema, or two schemas have one id."""

from __future__ import annotations

import click

from kseg.cli import common
from kseg.cli.common import check_output
from kseg.cli.finding_notes import FindingNotes
from kseg.cli.messages import FAILED, FOUND, fail, note
from kseg.commands.schemas.listing import Total, exported, listed
from kseg.commands.schemas.used_ids import IdCounter
from kseg.errors import KsegError, UsageError
from kseg.findings import Report
from kseg.format.internal_topics import decode
from kseg.format.serialization.schemas_topic import TOPIC, read_schemas_topic
from kseg.format.storage.source import find_segments, once_each, topic_partition
from kseg.report import rows
from kseg.report.formats import SCHEMAS, destination, write
from kseg.text import count_of


@click.command()
@common.paths
@click.option("--used-by", metavar="PATH", multiple=True,
              help="Count the ids in these data, and list those without a schema.")  # fmt: skip
@click.option("--export", is_flag=True, help="Write what registers the schemas in a registry in IMPORT mode.")
@common.output_format(SCHEMAS)
@common.output
@common.max_rate
def schemas(
    paths: tuple[str, ...], used_by: tuple[str, ...], export: bool, format_name: str, output: str | None
) -> int:
    """List the schemas of a registry, read from its topic _schemas.

    PATHs are segments of the topic, its partition folder, or log directories with it. Deleted schemas are listed as long as
    the log has their records.

    Exit codes: 0 all is well, 1 an id without a schema or with two, or damage, 2 the command failed.
    """
    if export and (used_by or format_name != "table"):
        raise UsageError("--export writes JSON Lines of its own: omit --used-by and --format")
    notes = FindingNotes()
    files = once_each(file for path in used_by for file in find_segments(path))
    check_output(output, [*paths, *(file.path for file in files)])
    state = read_schemas_topic(paths, lambda path: _report(notes, path))
    for problem in state.unread:
        note(f"not a record of a registry: {problem}")
    if state.unread_count > len(state.unread):
        note(f"not records of a registry: {count_of(state.unread_count, 'record')} in all")
    if not any(state.all()):
        note("no schema found")
    counter, failed = IdCounter(), False
    for file in files:
        topic = topic_partition(file.path)[0]
        if topic in (TOPIC, *decode.TOPICS):
            continue
        try:
            counter.read(file.path, topic, _report(notes, file.path))
        except KsegError as error:
            failed = bool(fail(str(error)))
    total = Total()
    with destination(output) as out:
        if export:
            rows.write_jsonl(exported(state.all()), out)
        else:
            write(SCHEMAS, format_name, out, listed(state.all(), counter if used_by else None, total), total)
    return FAILED if failed else FOUND if total.missing or total.conflicts or notes.errors else 0


def _report(notes: FindingNotes, path: str) -> Report:
    return lambda finding: notes(path, finding)
