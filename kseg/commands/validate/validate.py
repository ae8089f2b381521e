"""``kseg validate`` as a library: run every check on one file, apply the policy, and count the findings."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

from kseg.commands.validate import index_checks, result_store
from kseg.errors import KsegError, NotASegmentError, UnreadableError, VanishedError
from kseg.findings import do_nothing, read_error
from kseg.format.checks import record_set_checks
from kseg.format.checks.batch_checks import CheckState
from kseg.format.checks.offset_checks import MAX_GAPS
from kseg.format.checks.run_checks import AfterChunk, new_collector, run_checks, side_file_of
from kseg.format.segment.segment_reader import Window
from kseg.format.storage.file_access import Progress
from kseg.format.storage.naming import base_offset_of
from kseg.format.storage.segment_files import SegmentFile, is_newest
from kseg.format.storage.source import internal_topic, open_source
from kseg.results import FileResult, FindingCollector, Settings, Summary

if TYPE_CHECKING:
    from kseg.commands.validate.segment_facts import SegmentFacts

#: How often a file with findings is validated again because it changed while it was read.
MAX_RETRIES = 6


def validate_segment(
    file: SegmentFile | str,
    settings: Settings | None = None,
    progress: Progress = do_nothing,
    watch: AfterChunk = do_nothing,
) -> FileResult:
    """Validate one segment or one side file.

    ``file`` can be a path. ``settings`` None are the default settings. ``progress`` is called with the number of bytes
    read since the last call, ``watch`` after each chunk of batches. Returns a result also for a file that cannot be read
    (``unread``); raises nothing.

    If a broker changed the file during the validation, the findings may mix two states of it: the file is then
    validated again, up to ``MAX_RETRIES`` times.
    """
    settings = settings or Settings()
    file = SegmentFile(file) if isinstance(file, str) else file
    if not file.listed:
        return _validate_once(file, settings, progress, watch)
    before = result_store.stamps_of(file)
    result = _validate_once(file, settings, progress, watch)
    for _ in range(MAX_RETRIES):
        if not result.suspicious:
            break
        # A truncation deletes later segments, and the file has become the newest; a roll adds one.
        active = is_newest(file.path)
        if active == file.active and result_store.unchanged(file, before):
            break
        file = replace(file, indexes=result_store.indexes_of(file), active=active)
        before = result_store.stamps_of(file)
        result = _validate_once(file, settings, progress, watch)
    return result


def _validate_once(file: SegmentFile, settings: Settings, progress: Progress, watch: AfterChunk) -> FileResult:
    started = time.perf_counter()
    result = _checked(file, settings, progress, watch)
    return replace(result, seconds=time.perf_counter() - started)


def _checked(file: SegmentFile, settings: Settings, progress: Progress, watch: AfterChunk) -> FileResult:
    collector = new_collector(file, settings)
    with_indexes = outline = None
    try:
        with open_source(file.path, listed=file.listed) as source:
            if file.framing:
                record_set_checks.check_framed_file(source, file, settings, collector, progress)
            elif known := side_file_of(file.path):
                for _ in known.side.walk(source, known.base_offset, collector):
                    pass
                progress(source.size or 0)
            else:
                if file.indexes is not None and base_offset_of(file.path) is not None:
                    # Opened after the log, because a broker writes an index entry after its batch.
                    with_indexes = SegmentWithIndexes(file, settings, collector)
                after_window = with_indexes.check_window if with_indexes else None
                outline = run_checks(
                    source, settings, collector, progress, watch, after_window, topic=internal_topic(file.path)
                ).outline
    except KsegError as error:
        if file.listed and isinstance(error, VanishedError):
            return _vanished(file.path)
        collector.fail(error)
        result = replace(collector.result(), foreign=isinstance(error, NotASegmentError))
    except BaseException:  # such as Ctrl-C, or since several processes save time
        if with_indexes:
            with_indexes.close()
        raise
    else:
        result = replace(collector.result(), outline=outline)
    return with_indexes.joined(result) if with_indexes else result


def _vanished(path: str) -> FileResult:
    return FileResult(path, (), Summary(), vanished=True)


class SegmentWithIndexes:
    """The checks of a segment's indexes, which follow the windows of the segment. Each index has its own collector."""

    def __init__(self, file: SegmentFile, settings: Settings, collector: FindingCollector) -> None:
        self._file, self._settings = file, settings
        self._history = CheckState()
        self._collectors = {path: new_collector(SegmentFile(path), settings) for path in file.indexes or ()}
        self._indexes = index_checks.IndexChecks(file, self._collectors, collector)

    def check_window(self, window: Window, history: CheckState) -> None:
        """Check the next window. Call it after all other checks of the window."""
        self._history = history
        self._indexes.update(window, history.misplaced, deep=self._settings.deep)

    def close(self) -> None:
        """Close the indexes without checking their ends."""
        self._indexes.close()

    def joined(self, result: FileResult) -> FileResult:
        """Return the segment's result with its facts and the results of its indexes."""
        if result.unread and not result.foreign:  # a part of the log is not known, and no entry contradicts it
            self._indexes.close()
            return replace(result, indexes=tuple(collector.result() for collector in self._collectors.values()))
        try:
            facts = self._indexes.finish(result.summary.bytes, result.summary.lost_bytes, deep=self._settings.deep)
        except UnreadableError as error:
            self._indexes.close()
            return new_collector(self._file, self._settings).extended(result, [read_error(self._file.path, error)])
        if facts:
            facts = with_record_facts(facts, [self._history], opened=self._settings.deep)
        for path, why in self._indexes.unread.items():
            self._collectors[path].fail(why)
        indexes = tuple(
            _vanished(path) if path in self._indexes.vanished else collector.result()
            for path, collector in self._collectors.items()
        )
        return replace(result, indexes=indexes, facts=facts)


def with_record_facts(facts: SegmentFacts, histories: Sequence[CheckState], *, opened: bool) -> SegmentFacts:
    """Return a segment's facts with the facts about its records; ``histories`` are the states of its ranges."""
    keyless, thinned = (any(getattr(one, name) for one in histories) for name in ("keyless", "thinned"))
    facts = replace(facts, keyless=keyless, thinned=facts.thinned or thinned, opened=opened)
    if histories[0].first_opened >= 0:
        facts = replace(facts, first_offset=histories[0].first_opened, wrapped=False)
    elif opened and not facts.wrapped_start:
        facts = replace(facts, wrapped=False)
    if gaps := sum(one.wrapper_gaps for one in histories):
        missing = sorted(chain(facts.missing, *(one.before_wrappers for one in histories)))
        facts = replace(facts, gaps=facts.gaps + gaps, holes=True, missing=tuple(missing[:MAX_GAPS]))
    return facts
