"""``kseg schemas``: options and exit codes. 1: data use an id without a schema, or two schemas have one id."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from kseg.cli import common
from kseg.cli.messages import FOUND, fail, note
from kseg.cli.outcome import FindingNotes
from kseg.cli.typed_command import ReadOptions, command
from kseg.commands.schemas import IdCounter, SchemasTotal, exported, listed, record_lines
from kseg.errors import KsegError
from kseg.extras.serialization.schema_set import RegistryError
from kseg.extras.serialization.schema_sources import Registry
from kseg.extras.serialization.schemas_topic import TOPIC, RegistryState, applied_records
from kseg.format.storage.naming import INTERNAL_TOPICS
from kseg.format.storage.segment_files import find_segments, once_each
from kseg.format.storage.source import topic_partition
from kseg.report import row_formats
from kseg.report.formats import SCHEMAS, binary, destination, write
from kseg.text import count_of


@dataclass(frozen=True, kw_only=True)
class SchemasOptions(ReadOptions):
    used_by: tuple[str, ...]
    export: bool
    export_records: bool
    registry: str | None
    registry_ca: str | None
    format: str
    columns: tuple[str, ...] | None


@command(
    SchemasOptions,
    results=SCHEMAS,
    arguments=(common.LOG_PATHS,),
    examples=(
        "kseg schemas kafka-logs",
        "kseg schemas --used-by kafka-logs/orders-0 kafka-logs/_schemas-0",
        "kseg schemas --export -o schemas.jsonl kafka-logs/_schemas-0",
    ),
)
def schemas(asked: SchemasOptions) -> int:
    """List the schemas of a registry, read from its topic _schemas.

    PATHs are segments of the topic, its partition folder, or log directories with it. Deleted schemas are listed as long as
    the log has their records.

    Exit codes: 0 all is well, 1 an id without a schema or with two, a difference, or damage, 2 the command failed.
    """
    compared = Registry(asked.registry, asked.registry_ca) if asked.registry is not None else None
    common.check_outputs()
    notes = FindingNotes()
    files = once_each(file for path in asked.used_by for file in find_segments(path))
    notes.weigh([*files, *(file for path in asked.paths for file in find_segments(path))])
    state = RegistryState()
    records = applied_records(asked.paths, state, lambda path: partial(notes, path))
    if asked.export_records:
        with destination(asked.output) as out:
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
    if asked.export_records:
        return FOUND if notes.errors or state.unread_count else 0
    counter = IdCounter()
    for file in files:
        topic = topic_partition(file.path)[0]
        if topic in (TOPIC, *INTERNAL_TOPICS):
            continue
        try:
            counter.read(file.path, topic, partial(notes, file.path))
        except KsegError as error:
            note(str(error))
            notes.failed = True
    try:
        registered = list(compared.registered()) if compared else None
    except RegistryError as error:
        return fail(str(error))
    total = SchemasTotal()
    with destination(asked.output) as out:
        if asked.export:
            row_formats.write_jsonl(exported(state.all()), out)
        else:
            found = listed(state.all(), counter if asked.used_by else None, total, registered)
            write(SCHEMAS, asked.format, out, found, total, columns=asked.columns)
    return notes.exit_code(total.missing or total.conflicts or total.differing)
