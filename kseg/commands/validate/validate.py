"""``kseg validate`` as a library: every check over a segment, weighed by a policy, counted, and summed up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from kseg.commands.validate.file_stamps import indexes_of, stamps_of, unchanged
from kseg.errors import KsegError, NotASegmentError, VanishedError
from kseg.findings import Finding
from kseg.format.checks.check_state import CheckState
from kseg.format.checks.internal_topic_checks import with_internal_record_checks
from kseg.format.checks.record_set_checks import RecordSetChecks
from kseg.format.checks.run_checks import AfterChunk, _side_file, ignore_chunk, new_collector, run_checks
from kseg.format.segment.reader import Window
from kseg.format.storage.naming import base_offset_of
from kseg.format.storage.progress import Progress, no_progress
from kseg.format.storage.source import SegmentFile, Source, is_newest, open_source
from kseg.results import FileResult, FindingCollector, Settings, Summary

if TYPE_CHECKING:
    from kseg.commands.validate.segment_facts import SegmentFacts
    from kseg.format.sidefiles.registry import Recognised
    from kseg.format.wire.record_sets import RecordSet

#: How often a file that changes while it is read is looked at again because something seems wrong with it.
LOOKS_AGAIN = 3


def validate_segment(
    file: SegmentFile | str,
    settings: Settings | None = None,
    progress: Progress = no_progress,
    watch: AfterChunk = ignore_chunk,
) -> FileResult:
    """Validate one segment or one side file.

    ``file`` can be a path. ``settings`` None are the default settings. ``progress`` is called with the number of bytes
    read since the last call. Returns a result also for a file that cannot be read (``unread``); raises nothing.

    A file that changed while it was read is read again if something was found: the findings could be of no one moment.
    """
    settings = settings or Settings()
    file = SegmentFile(file) if isinstance(file, str) else file
    before = stamps_of(file)
    result = _validate_once(file, settings, progress, watch)
    for _ in range(LOOKS_AGAIN):
        if not file.listed or not result.suspicious:
            break
        # A truncation deletes later segments, and the file has become the newest; a roll adds one.
        active = base_offset_of(file.path) is not None and is_newest(file.path)
        if active == file.active and unchanged(file, before):
            break
        file = replace(file, indexes=indexes_of(file), active=active)
        before = stamps_of(file)
        result = _validate_once(file, settings, progress, watch)
    return result


def _validate_once(file: SegmentFile, settings: Settings, progress: Progress, watch: AfterChunk) -> FileResult:
    tally = new_collector(file, settings)
    together = None
    try:
        with open_source(file.path, listed=file.listed) as source:
            if file.framing:
                _check_wire_file(source, file, settings, tally, progress)
            elif known := _side_file(file.path):
                _walk_side_file(source, known, tally, progress)
            else:
                if file.indexes is not None and base_offset_of(file.path) is not None:
                    # Opened behind the log: an index entry is written behind its batch.
                    together = SegmentWithIndexes(file, settings, tally)
                watch = with_internal_record_checks(file.path, tally, watch)
                run_checks(source, settings, tally, progress, watch, together.check_window if together else None)
    except KsegError as error:
        if file.listed and isinstance(error, VanishedError):
            return FileResult(file.path, (), Summary(), vanished=True)
        tally.summary.unread = 1
        result = tally.result(str(error))
    else:
        result = tally.result()
    return together.joined(result) if together else result


class SegmentWithIndexes:
    """A segment and its indexes, each with a tally of its own."""

    def __init__(self, file: SegmentFile, settings: Settings, tally: FindingCollector) -> None:
        from kseg.commands.validate.index_checks import IndexChecks

        self._deep = settings.deep
        self._history = CheckState()
        self._tallies = {path: new_collector(SegmentFile(path), settings) for path in file.indexes or ()}
        self._beside = IndexChecks(file, self._tallies, tally)

    def check_window(self, window: Window, history: CheckState) -> None:
        """The next window, after all else is done with it."""
        self._history = history
        self._beside.update(window, history.misplaced, deep=self._deep)

    def joined(self, result: FileResult) -> FileResult:
        """The segment's result, with what is known beside it."""
        facts = self._beside.finish(result.summary.bytes, result.summary.lost_bytes, deep=self._deep)
        if facts:
            facts = with_record_facts(facts, [self._history], opened=self._deep)
        unread = self._beside.unread
        for path in unread:
            self._tallies[path].summary.unread = 1
        beside = tuple(tally.result(unread.get(path)) for path, tally in self._tallies.items())
        return replace(result, indexes=beside, facts=facts)


def with_record_facts(facts: SegmentFacts, histories: Sequence[CheckState], *, opened: bool) -> SegmentFacts:
    """A segment's facts with what its opened entries show; ``histories`` are those of its ranges."""
    keyless, thinned = (any(getattr(one, name) for one in histories) for name in ("keyless", "thinned"))
    return replace(facts, keyless=keyless, thinned=facts.thinned or thinned, opened=opened)


def _walk_side_file(source: Source, known: Recognised, tally: FindingCollector, progress: Progress) -> None:
    for _ in known.side.walk(source, known.base_offset, tally):
        pass
    progress(source.size or 0)


def _check_wire_file(
    source: Source, file: SegmentFile, settings: Settings, tally: FindingCollector, progress: Progress
) -> None:
    """Every check over a file that is no segment but has records in it, by its framing."""
    from kseg.format.wire.framings import framing
    from kseg.format.wire.record_sets import LOSING, UNDECODED, ReadSettings, RecordSet

    assert file.framing
    summary, done, decoded = tally.summary, 0, True

    def report(finding: Finding) -> None:
        nonlocal decoded
        summary.lost_bytes += (finding.end or 0) - (finding.position or 0) if finding.rule in LOSING else 0
        decoded = decoded and finding.rule not in UNDECODED
        tally(finding)

    for part in framing(file.framing).walk(source, report, ReadSettings(settings.verify_crc, file.requests)):
        if isinstance(part, RecordSet):
            _check_record_set(part, new_collector(file, settings), settings, tally)
        elif part["kind"] == "record":
            summary.batches += 1
            summary.records += 1
        progress(source.position - done)
        done = source.position
    progress(source.position - done)
    summary.files, summary.bytes, summary.unchecked = 1, source.position, int(not (settings.verify_crc and decoded))


def _check_record_set(part: RecordSet, own: FindingCollector, settings: Settings, tally: FindingCollector) -> None:
    report = part.report_for(own)
    try:
        run_checks(part.source, settings, own, report=report, record_set=RecordSetChecks(sent=part.sent))
    except NotASegmentError:
        if not part.place:
            raise
        report(part.without_batches)
    own.summary.lost_bytes = part.lost_bytes(own.summary.lost_bytes - report.partial)
    tally.merge(own.result())
