"""Load the planned offsets of a topic into its table: read the rows, write data files, commit them with the offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from kseg.commands.validate.folder_checks import stamp_of
from kseg.errors import KsegError
from kseg.extras.pipeline.data_files import DataFiles
from kseg.extras.pipeline.lake_table import LakeTable, TableState
from kseg.extras.pipeline.offset_plan import Loaded, LoadPlan, Part
from kseg.extras.pipeline.rejected_load import RejectedLoad
from kseg.extras.serialization.record_decoder import DecodeSettings
from kseg.extras.views.planning import Request, SegmentRange, Split
from kseg.extras.views.split_rows import Notices, read
from kseg.findings import RULES, Finding, Severity, do_nothing
from kseg.format.segment.row_filter import RowFilter
from kseg.format.storage.naming import is_url
from kseg.format.storage.source import SegmentFile
from kseg.report.arrow_table import pa
from kseg.schema import Column

#: The bytes of data files after which a commit is made: a run that is killed continues there.
COMMIT_BYTES = 1024 * 1024 * 1024


def part_rows(
    part: Part, plan: LoadPlan, columns: Sequence[Column], decoding: DecodeSettings | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a part. Raises KsegError if its bytes cannot be read, or are not those that were checked."""

    def notice(file: SegmentFile, finding: Finding) -> None:
        if part.checked.is_sound and RULES[finding.rule].severity >= Severity.ERROR:
            raise KsegError(f"{file.path}: {finding.rule} at byte {finding.position}: it has changed since its check")

    ranges: list[SegmentRange] = part.ranges(plan.committed)
    request = Request(
        paths=(),
        columns=tuple(columns),
        decoding=decoding,
        mode="dropmalformed",
        isolation="read_uncommitted" if plan.committed is None else "read_committed",
        control=False,
    )
    limits = RowFilter(part.first, part.end)
    yield from read(request, limits, Split(tuple(ranges)), Notices(finding=notice))
    _check_unchanged(part)


def _check_unchanged(part: Part) -> None:
    """Raise KsegError if a local segment was replaced while it was read. Requests for objects name the version."""
    listed = part.listed
    if not is_url(listed.path) and not listed.file.active:
        stamp = stamp_of(listed.path)
        if stamp is None or ":".join(map(str, stamp)) != listed.stamp:
            raise KsegError(f"{listed.path}: it was changed or deleted since it was listed: run again")


class TableLoad:
    """The load of a topic's partitions. ``loaded`` is called after each commit."""

    def __init__(
        self, table: LakeTable, run: str, before: TableState, loaded: Callable[[TableState], object] = do_nothing
    ) -> None:
        self._table = table
        self._committed = before
        self._loaded = loaded
        rows = before.rows if before.run == run else 0
        self._next = replace(before, run=run, rows=rows)
        self._run = run
        self._rejected = RejectedLoad(table.rejected, run) if table.rejected else None
        self._files = DataFiles(
            table.schema,
            table.new_place,
            by_day=table.settings.by_day,
            file_bytes=table.settings.file_bytes,
        )

    def load(self, plans: Sequence[LoadPlan]) -> TableState:
        """Load the plans, and return the state of the table. Raises KsegError; commits before it stay."""
        try:
            for plan in plans:
                for part in plan.parts:
                    self._load_part(part, plan)
                if plan.end > plan.first:
                    self._set(plan, plan.end)
            if self._next.offsets != self._committed.offsets:
                self._commit()
        finally:
            self._files.discard()
            if self._rejected:
                self._rejected.discard()
        return self._committed

    def _load_part(self, part: Part, plan: LoadPlan) -> None:
        rows = self._table.rows
        for batch in part_rows(part, plan, rows.needed, rows.decoding):
            if not batch.num_rows:
                continue
            loaded, rejected = rows.split(batch, self._run)
            if rejected is not None and self._rejected:
                self._rejected.add(plan.name, rejected)
            self._next = replace(self._next, rows=self._next.rows + loaded.num_rows)
            if loaded.num_rows:
                self._files.add(loaded)
            if self._files.bytes >= COMMIT_BYTES and part.checked.ordered and part.checked.is_sound:
                offsets = batch.column("offset")
                self._set(plan, offsets[len(offsets) - 1].as_py() + 1)
                self._commit()
        self._set(plan, part.end)
        if self._files.bytes >= COMMIT_BYTES:
            self._commit()

    def _set(self, plan: LoadPlan, offset: int) -> None:
        known = self._next.offsets.get(plan.name)
        topic_id = plan.topic_id or (known.topic_id if known else None)
        self._next = replace(self._next, offsets={**self._next.offsets, plan.name: Loaded(offset, topic_id)})

    def _commit(self) -> None:
        if self._rejected:
            self._rejected.commit(self._next)
        files = self._files.take()
        self._table.commit(files, self._committed, self._next)
        self._committed = self._next
        self._loaded(self._committed)
