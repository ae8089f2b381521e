"""``kseg schemas``: options and exit codes. 1: data use an id without a schema, or two schemas have one id."""

from __future__ import annotations

from typing import Any

import click

from kseg.cli import common
from kseg.cli.messages import FAILED, FOUND, fail, note
from kseg.cli.outcome import FindingNotes
from kseg.commands.schemas import (
    IdCounter,
    SchemasTotal,
    exported,
    listed,
    record_lines,
)
from kseg.errors import KsegError, UsageError
from kseg.extras.serialization.schema_set import SchemaError
from kseg.extras.serialization.schema_sources import Registry
from kseg.extras.serialization.schemas_topic import TOPIC, RegistryState, applied_records
from kseg.findings import Report
from kseg.format.internal_topics import decode
from kseg.format.storage.source import find_segments, once_each, topic_partition
from kseg.report import row_formats
from kseg.report.formats import SCHEMAS, binary, destination, write
from kseg.text import count_of


@click.command()
@common.paths
@click.option("--used-by", metavar="PATH", type=common.InputPath(), multiple=True,
              help="Count the ids in these data, and list those without a schema.")  # fmt: skip
@click.option("--export", is_flag=True, help="Write what registers the schemas in a registry in IMPORT mode.")
@click.option("--export-records", is_flag=True,
              help="Write the topic's records for a producer: a line with key, tab and value, empty for null.")  # fmt: skip
@click.option("--registry", "url", metavar="URL", help="Compare the topic with a registry.")
@click.option("--registry-ca", "ca_file", metavar="FILE", type=common.InputPath(),
              help="Trust the certificates in FILE for --registry.")  # fmt: skip
@common.output_format(SCHEMAS)
@common.output
@common.max_rate
def schemas(
    paths: tuple[str, ...], used_by: tuple[str, ...], format_name: str, output: str | None, **options: Any
) -> int:
    """List the schemas of a registry, read from its topic _schemas.

    PATHs are segments of the topic, its partition folder, or log directories with it. Deleted schemas are listed as long as
    the log has their records.

    Exit codes: 0 all is well, 1 an id without a schema or with two, a difference, or damage, 2 the command failed.
    """
    exports = [name for name in ("export", "export_records") if options[name]]
    if exports and (len(exports) > 1 or used_by or options["url"] or format_name != "table"):
        name = exports[-1].replace("_", "-")
        raise UsageError(f"--{name} writes lines of its own: omit --used-by, --registry, --format and other exports")
    if options["ca_file"] is not None and options["url"] is None:
        raise UsageError("--registry-ca needs --registry")
    compared = Registry(options["url"], options["ca_file"]) if options["url"] is not None else None
    common.check_outputs()
    notes = FindingNotes()
    files = once_each(file for path in used_by for file in find_segments(path))
    state = RegistryState()
    records = applied_records(paths, state, lambda path: _report(notes, path))
    if options["export_records"]:
        with destination(output) as out:
            binary(out).writelines(record_lines(records))
            binary(out).flush()
    for _ in records:
        pass
    for problem in state.unread:
        note(f"not a record of a registry: {problem}")
    if state.unread_count > len(state.unread):
        note(f"not records of a registry: {count_of(state.unread_count, 'record')} in all")
    if not any(state.all()):
        note("no schema found")
    if options["export_records"]:
        return FOUND if notes.errors or state.unread_count else 0
    counter, failed = IdCounter(), False
    for file in files:
        topic = topic_partition(file.path)[0]
        if topic in (TOPIC, *decode.TOPICS):
            continue
        try:
            counter.read(file.path, topic, _report(notes, file.path))
        except KsegError as error:
            failed = bool(fail(str(error)))
    try:
        registered = list(compared.registered()) if compared else None
    except SchemaError as error:
        return fail(str(error))
    total = SchemasTotal()
    with destination(output) as out:
        if options["export"]:
            row_formats.write_jsonl(exported(state.all()), out)
        else:
            found = listed(state.all(), counter if used_by else None, total, registered)
            write(SCHEMAS, format_name, out, found, total)
    return FAILED if failed else FOUND if total.missing or total.conflicts or total.differing or notes.errors else 0


def _report(notes: FindingNotes, path: str) -> Report:
    return lambda finding: notes(path, finding)
