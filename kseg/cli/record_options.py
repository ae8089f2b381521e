"""The common part of commands that show records: their options, and the files of a group or of a transactional id."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, TextIO

from kseg.cli.messages import note
from kseg.cli.typed_command import FileOptions
from kseg.errors import UsageError
from kseg.extras.serialization import record_decoder
from kseg.extras.sql import statement, where
from kseg.format.record.layout import READ_COMMITTED
from kseg.format.segment.row_filter import HasHeader, KeyIsOneOf, RecordCondition, RowFilter
from kseg.format.sidefiles import transaction_states
from kseg.format.storage.naming import base_offset_of, end_offsets
from kseg.format.storage.segment_files import SegmentFile
from kseg.format.storage.source import internal_topic, topic_partition
from kseg.report import formats

if TYPE_CHECKING:
    from kseg.cli.outcome import FindingNotes
    from kseg.extras.serialization.record_decoder import DecodeSettings, RecordDecoder
    from kseg.format.internal_topics.effective_state import Owner
    from kseg.report.formats import View


@dataclass(frozen=True, kw_only=True)
class DecodeOptions:
    """The options that decode keys and values."""

    key_as: str | None
    value_as: str | None
    schemas: tuple[str, ...]
    schema_files: tuple[str, ...]
    registry: str | None
    registry_ca: str | None
    function: str | None
    unwrap: bool

    @property
    def decoding(self) -> DecodeSettings | None:
        """The settings of the decoder, None if no option was given."""
        given = {one.name: getattr(self, one.name) for one in fields(DecodeOptions)}
        given = {name: value for name, value in given.items() if value not in (None, (), False)}
        return record_decoder.DecodeSettings(**given) if given else None


@dataclass(frozen=True, kw_only=True)
class RecordOptions(DecodeOptions, FileOptions):
    """The options of both dump and grep: which rows, and how they are written."""

    offsets: tuple[int | None, int | None] | None
    since: int | None
    until: int | None
    keys: tuple[bytes, ...]
    headers: tuple[tuple[bytes, bytes], ...]
    where: str | None
    isolation: str
    partitions: int | None
    encoding: str
    format: str
    columns: tuple[str, ...] | None
    template: str | None
    full: bool
    limit: int | None
    last: int | None
    no_crc: bool
    jobs: int

    @property
    def offset_range(self) -> tuple[int | None, int | None]:
        """The first offset and the end, exclusive; None is unbounded."""
        return self.offsets or (None, None)

    @property
    def all_keys(self) -> tuple[bytes | None, ...]:
        """The keys of which a record must have one, none for any key; None is null."""
        return self.keys

    @property
    def own_conditions(self) -> tuple[RecordCondition, ...]:
        """Further conditions that only one command has."""
        return ()

    @cached_property
    def limits(self) -> RowFilter:
        """The rows within the ranges, with the conditions on records. Raises UsageError."""
        conditions: list[RecordCondition] = []
        if self.all_keys:
            conditions.append(KeyIsOneOf(self.all_keys))
        conditions += self.own_conditions
        conditions += (HasHeader(name, value) for name, value in self.headers)
        if self.since is not None and self.until is not None and self.since >= self.until:
            raise UsageError("--since: expected a time before that of --until, which is exclusive")
        limits = RowFilter(*self.offset_range, self.since, self.until, committed=self.isolation == READ_COMMITTED)
        if self.where is None:  # without DuckDB and pyarrow, which the module of conditions in SQL needs
            return limits.with_conditions(conditions)
        statement.import_libraries("--where")  # before that module, whose classes are those of pyarrow
        sides = self.decoding.sides if self.decoding else ()
        return limits.with_conditions(conditions, where.parse_where(self.where, sides))

    @property
    def selects_by_contents(self) -> bool:
        """Whether ``where`` reads decoded keys or values."""
        return self.where is not None and any(
            isinstance(one, where.Where) and one.reads_contents for one in self.limits.conditions
        )

    def view(self, out: TextIO, decoder: RecordDecoder | None) -> View:
        """Return how records are written to an output."""
        return formats.View(
            deep=True,
            encoding=self.encoding,
            terminal=out.isatty(),
            contents=decoder.columns if decoder else (),
            columns=self.columns or (),
            full=self.full,
            template=self.template or "",
        )

    def files_within(self, files: Sequence[SegmentFile]) -> list[SegmentFile]:
        """Return the files that can have the wanted rows, by the names of their folders and the offsets in their names."""
        limits = self.limits
        found = [file for file in files if limits.accepts_file(*topic_partition(file.path))]
        if (limits.first_offset, limits.end_offset) == (None, None):
            return found
        ends = end_offsets([file.path for file in found])
        return [
            file
            for file, end in zip(found, ends, strict=True)
            if limits.accepts_offsets(base_offset_of(file.path), end)
        ]


def transaction_logs(
    isolation: str, files: Sequence[SegmentFile], outcome: FindingNotes
) -> transaction_states.TransactionLogs:
    """Return the logs of segments, with their last stable offsets of now if they limit the rows."""
    if isolation == READ_COMMITTED:
        return transaction_states.TransactionLogs.at_stable_offsets([file.path for file in files], outcome.unread)
    return transaction_states.TransactionLogs(unread=outcome.unread)


def files_of(
    owner: Owner, files: Sequence[SegmentFile], decode_as: str | None, partitions: int | None
) -> list[SegmentFile]:
    """Return the files that can have the owner's records: of ``partitions`` those of one partition, which is printed.

    With ``partitions`` None these are all: a broker has only some partitions, so the folders do not show their number.
    Raises UsageError if that partition is missing.
    """
    own = [file for file in files if internal_topic(file.path, decode_as) == owner.topic]
    if not own and files:
        raise UsageError(f"{owner.name}: no folder of {owner.topic} found; for other folder names add --decode TOPIC")
    if partitions is None:
        return own
    numbers = {number for file in own if (number := topic_partition(file.path)[1]) is not None}
    if numbers and partitions <= max(numbers):
        raise UsageError(f"--partitions {partitions}: {owner.topic} has a partition {max(numbers)}")
    partition = owner.partition(partitions)
    note(f"{owner.name}: reads only partition {partition} of {partitions} of {owner.topic}")
    if numbers and partition not in numbers:
        raise UsageError(f"{owner.name}: no folder {owner.topic}-{partition} found: give the log directory that has it")
    return [file for file in own if topic_partition(file.path)[1] in (None, partition)]
