"""``kseg validate`` as a library: every check over a segment, weighed by a policy, counted, and summed up."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from kseg.errors import KsegError, NotASegmentError, VanishedError
from kseg.files.storage import SegmentFile, Source, base_offset_of, is_newest, open_source
from kseg.findings import RULES, Finding, Policy, Report, Severity, Verdict
from kseg.format.log_format import DEFAULT_MAX_MESSAGE_BYTES
from kseg.log.chunk import Chunk
from kseg.log.deep_iteration import DeepIterator
from kseg.log.segment import SegmentReader, Window
from kseg.validation.checks import History, Limits
from kseg.validation.file_stamps import indexes_beside, stamps_of, unchanged
from kseg.validation.internal_checks import with_internal_records
from kseg.validation.record_set_checks import RecordSetChecks
from kseg.validation.segment_checks import SegmentChecks

if TYPE_CHECKING:
    from kseg.beside.side_files import Recognised
    from kseg.frames.parts import RecordSet
    from kseg.validation.segment_watch import SegmentFacts

#: How often a file that changes while it is read is looked at again because something seems wrong with it.
LOOKS_AGAIN = 3
#: Findings of one rule that are handed on for each file; all are counted.
MAX_PER_RULE = 16


@dataclass(frozen=True, slots=True)
class Settings:
    """What to check and how to weigh it. ``max_message_bytes`` None is Kafka's default limit, and then a warning."""

    deep: bool = True
    verify_crc: bool = True
    max_message_bytes: int | None = None
    compacted: bool = False
    policy: Policy = field(default_factory=Policy)
    max_per_rule: int = MAX_PER_RULE


#: Called with the bytes read since the last call.
Progress = Callable[[int], None]


def no_progress(count: int) -> None:
    """Tells nobody."""


#: Called with each run of opened entries once they are checked.
Watch = Callable[[Chunk], None]


def look_away(chunk: Chunk) -> None:
    """Looks at nothing."""


COUNTS = (
    "files",
    "side_files",
    "unread",
    "unchecked",
    "shallow",
    "batches",
    "records",
    "bytes",
    "errors",
    "warnings",
    "infos",
    "lost_bytes",
)


@dataclass(slots=True)
class Summary:
    """Counts over one file or many; ``rules`` are findings by rule.

    ``files`` are segments, as are ``batches``, ``records`` and ``bytes`` theirs; ``side_files`` stand beside them.
    ``unread`` files could not be read, of ``unchecked`` ones the CRCs were not computed, or bodies of frames were not
    decoded, and of ``shallow`` ones no entry was opened, so that their records are not counted.
    """

    files: int = 0
    batches: int = 0
    records: int = 0
    bytes: int = 0
    errors: int = 0
    warnings: int = 0
    infos: int = 0
    lost_bytes: int = 0
    rules: Counter[str] = field(default_factory=Counter)
    unread: int = 0
    unchecked: int = 0
    shallow: int = 0
    side_files: int = 0

    @property
    def verdict(self) -> str:
        """``damaged`` with an error; ``undetermined`` where something was unread, unchecked or lost; or ``sound``."""
        return (
            "damaged"
            if self.errors
            else "undetermined"
            if self.unread or self.lost_bytes or self.unchecked or not (self.files or self.side_files)
            else "sound"
        )

    def at_least(self, severity: Severity) -> bool:
        """Whether there are findings of that severity or worse."""
        counts = ((Severity.ERROR, self.errors), (Severity.WARNING, self.warnings), (Severity.INFO, self.infos))
        return any(count for level, count in counts if level >= severity)

    def count(self, rule: str, severity: Severity, count: int) -> None:
        """Count ``count`` findings of a rule in."""
        if severity >= Severity.ERROR:
            self.errors += count
        elif severity is Severity.WARNING:
            self.warnings += count
        else:
            self.infos += count
        self.rules[rule] += count

    def retract(self, rule: str, severity: Severity, count: int) -> None:
        """Count ``count`` findings of a rule out again: another finding says what they said."""
        if count:
            self.count(rule, severity, -count)
            if not self.rules[rule]:
                del self.rules[rule]

    def add(self, other: Summary) -> None:
        """Count another's files in."""
        for name in COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.rules.update(other.rules)


@dataclass(frozen=True, slots=True)
class FileResult:
    """What became of one file: its findings (the first few of each rule) and counts, or why it could not be read.

    ``beside`` are the results of a segment's indexes where these were judged with it, ``facts`` what concerns its
    neighbours. ``found`` are the rules of all findings, including those that the policy ignores: code that needs to know
    whether something was found asks it, never the counts. ``vanished``: it is no more in the folder that it was found
    in, and counts for nothing. ``framing`` is the file's, None for a log's.
    """

    file: str
    verdicts: tuple[Verdict, ...]
    summary: Summary
    unread: str | None = None
    beside: tuple[FileResult, ...] = ()
    facts: SegmentFacts | None = None
    found: frozenset[str] = frozenset()
    vanished: bool = False
    framing: str | None = None

    @property
    def doubtful(self) -> bool:
        """Whether something is wrong, or unread, in it or beside it, whatever the policy says of it."""
        return any(one.unread or any(map(_is_doubtful, one.found)) for one in (self, *self.beside))


def _is_doubtful(rule: str) -> bool:
    return RULES[rule].severity >= Severity.WARNING or rule == "zero-tail"


class Tally:
    """A report that weighs findings of one file, counts them and keeps the first few of each rule.

    ``found`` has the rules of all findings, also of those that the policy ignores.
    """

    def __init__(
        self, file: str, policy: Policy, limit: int, *, side: bool = False, framing: str | None = None
    ) -> None:
        self.summary = Summary(files=int(not side), side_files=int(side))
        self.verdicts: list[Verdict] = []
        self.found: set[str] = set()
        self._file = file
        self._policy = policy
        self._limit = limit
        self._framing = framing

    def __call__(self, finding: Finding) -> None:
        rule = RULES[finding.rule]
        self.found.add(rule.name)
        severity = self._policy.severity(rule)
        if severity is Severity.IGNORE:
            return
        summary = self.summary
        summary.count(rule.name, severity, 1)
        if summary.rules[rule.name] <= self._limit:
            self.verdicts.append(Verdict(self._file, severity, finding, self._framing is not None))

    def absorb(self, later: FileResult) -> None:
        """Take in the result of the next part of the same file."""
        for verdict in later.verdicts:
            name = verdict.rule.name
            if sum(kept.rule.name == name for kept in self.verdicts) < self._limit:
                self.verdicts.append(verdict)
        self.found |= later.found
        self.summary.add(later.summary)
        self.summary.files = 1
        self.summary.unchecked = later.summary.unchecked
        self.summary.shallow = later.summary.shallow

    def resumed(self, result: FileResult, found: Iterable[Finding]) -> FileResult:
        """A file's result with what was found of it afterwards."""
        self.summary, self.verdicts, self.found = result.summary, list(result.verdicts), set(result.found)
        for finding in found:
            self(finding)
        return replace(result, verdicts=self.result().verdicts, found=frozenset(self.found))

    def result(self, unread: str | None = None) -> FileResult:
        """What has been gathered, in the order of the file."""
        verdicts = sorted(self.verdicts, key=lambda verdict: (verdict.finding.position or 0, verdict.rule.code))
        found = frozenset(self.found)
        return FileResult(self._file, tuple(verdicts), self.summary, unread, found=found, framing=self._framing)


def validate_segment(
    file: SegmentFile, settings: Settings, progress: Progress = no_progress, watch: Watch = look_away
) -> FileResult:
    """Validate a segment, or a file beside one. What can't be read is a result too, never an exception.

    Where a broker changed something meanwhile, what was found may be of no one moment: then it is looked at again.
    """
    before = stamps_of(file)
    result = _validate_once(file, settings, progress, watch)
    for _ in range(LOOKS_AGAIN):
        if not file.listed or not result.doubtful:
            break
        # A truncation deletes later segments, and the file has become the newest; a roll adds one.
        active = base_offset_of(file.path) is not None and is_newest(file.path)
        if active == file.active and unchanged(file, before):
            break
        file = replace(file, beside=indexes_beside(file), active=active)
        before = stamps_of(file)
        result = _validate_once(file, settings, progress, watch)
    return result


def _validate_once(file: SegmentFile, settings: Settings, progress: Progress, watch: Watch) -> FileResult:
    tally = new_tally(file, settings)
    together = None
    try:
        with open_source(file.path, listed=file.listed) as source:
            if file.framing:
                _check_parts(source, file, settings, tally, progress)
            elif known := _side_file(file.path):
                _walk_side_file(source, known, tally, progress)
            else:
                if file.beside is not None and base_offset_of(file.path) is not None:
                    # Opened behind the log: an index entry is written behind its batch.
                    together = Together(file, settings, tally)
                watch = with_internal_records(file.path, tally, watch)
                run_checks(source, settings, tally, progress, watch, together)
    except KsegError as error:
        if file.listed and isinstance(error, VanishedError):
            return FileResult(file.path, (), Summary(), vanished=True)
        tally.summary.unread = 1
        result = tally.result(str(error))
    else:
        result = tally.result()
    return together.join(result) if together else result


class Together:
    """A segment and its indexes, each with a tally of its own."""

    def __init__(self, file: SegmentFile, settings: Settings, tally: Tally) -> None:
        from kseg.validation.index_checks import Beside

        self._deep = settings.deep
        self._history = History()
        self._tallies = {path: new_tally(SegmentFile(path), settings) for path in file.beside or ()}
        self._beside = Beside(file, self._tallies, tally)

    def take(self, window: Window, history: History) -> None:
        """The next window, after all else is done with it."""
        self._history = history
        self._beside.take(window, history.misplaced, deep=self._deep)

    def join(self, result: FileResult) -> FileResult:
        """The segment's result, with what is known beside it."""
        facts = self._beside.finish(result.summary.bytes, result.summary.lost_bytes, deep=self._deep)
        if facts:
            facts = with_opened(facts, [self._history], opened=self._deep)
        unread = self._beside.unread
        for path in unread:
            self._tallies[path].summary.unread = 1
        beside = tuple(tally.result(unread.get(path)) for path, tally in self._tallies.items())
        return replace(result, beside=beside, facts=facts)


def with_opened(facts: SegmentFacts, histories: Sequence[History], *, opened: bool) -> SegmentFacts:
    """A segment's facts with what its opened entries show; ``histories`` are those of its ranges."""
    keyless, thinned = (any(getattr(one, name) for one in histories) for name in ("keyless", "thinned"))
    return replace(facts, keyless=keyless, thinned=facts.thinned or thinned, opened=opened)


def _side_file(path: str) -> Recognised | None:
    if base_offset_of(path) is not None:
        return None  # a segment: the decoders of all the others need not be loaded
    from kseg.beside.side_files import recognise

    return recognise(path)


def _walk_side_file(source: Source, known: Recognised, tally: Tally, progress: Progress) -> None:
    for _ in known.side.walk(source, known.base_offset, tally):
        pass
    progress(source.size or 0)


def _check_parts(source: Source, file: SegmentFile, settings: Settings, tally: Tally, progress: Progress) -> None:
    """Every check over a file that is no segment but has records in it, by its framing."""
    from kseg.frames.framings import framing
    from kseg.frames.parts import LOSING, UNDECODED, Reading, RecordSet

    assert file.framing
    summary, done, decoded = tally.summary, 0, True

    def report(finding: Finding) -> None:
        nonlocal decoded
        summary.lost_bytes += (finding.end or 0) - (finding.position or 0) if finding.rule in LOSING else 0
        decoded = decoded and finding.rule not in UNDECODED
        tally(finding)

    for part in framing(file.framing).walk(source, report, Reading(settings.verify_crc, file.requests)):
        if isinstance(part, RecordSet):
            _check_record_set(part, new_tally(file, settings), settings, tally)
        elif part["kind"] == "record":
            summary.batches += 1
            summary.records += 1
        progress(source.position - done)
        done = source.position
    progress(source.position - done)
    summary.files, summary.bytes, summary.unchecked = 1, source.position, int(not (settings.verify_crc and decoded))


def _check_record_set(part: RecordSet, own: Tally, settings: Settings, tally: Tally) -> None:
    report = part.judge(own)
    try:
        run_checks(part.source, settings, own, report=report, record_set=RecordSetChecks(sent=part.sent))
    except NotASegmentError:
        if not part.place:
            raise
        report(part.not_one_entry)
    own.summary.lost_bytes = part.lost(own.summary.lost_bytes - report.partial)
    tally.absorb(own.result())


def new_tally(file: SegmentFile, settings: Settings) -> Tally:
    """An empty tally under the policy for that file."""
    side = file.framing is None and _side_file(file.path) is not None
    return Tally(file.path, policy_for(file, settings), settings.max_per_rule, side=side, framing=file.framing)


@dataclass(frozen=True, slots=True)
class Checked:
    """Where the checks of a source ended. ``damaged`` is the reader's (``SegmentReader``)."""

    history: History
    damaged: bool


def run_checks(
    source: Source,
    settings: Settings,
    tally: Tally,
    progress: Progress = no_progress,
    watch: Watch = look_away,
    together: Together | None = None,
    report: Report | None = None,
    record_set: RecordSetChecks | None = None,
) -> Checked:
    """Every check over one source, into ``tally`` by way of ``report``. Raises KsegError where nothing can be read."""
    report = report or tally
    reader = SegmentReader(source, report=report, verify_crc=settings.verify_crc)
    checks = SegmentChecks(source.name, limits_of(source.name, settings), report, record_set=record_set)
    opener = DeepIterator(report)
    summary = tally.summary
    summary.unchecked = int(not settings.verify_crc)
    summary.shallow = int(not settings.deep)
    done = source.start
    for window in reader.windows():
        summary.batches += window.batches.count
        checks.check_batches(window)
        if settings.deep:
            for chunk in opener.chunks(window):
                summary.records += chunk.records.count
                checks.check_records(chunk)
                watch(chunk)
        if together:
            together.take(window, checks.history)
        progress(reader.position - done)
        done = reader.position
    checks.finish(reader.position)
    progress(reader.position - done)
    summary.bytes = reader.position - source.start
    summary.lost_bytes = reader.lost_bytes
    return Checked(checks.history, reader.damaged)


def limits_of(name: str, settings: Settings) -> Limits:
    """What the checks of a file of that name are to know."""
    return Limits(
        now=time.time_ns() // 1_000_000,
        max_message_bytes=settings.max_message_bytes or DEFAULT_MAX_MESSAGE_BYTES,
        compacted=settings.compacted,
        name_offset=base_offset_of(name),
        deep=settings.deep,
    )


#: Severities in logs, and on the way there, unlike in _BY_THEMSELVES: a consumer fails on the claim, and so does a broker
#: that looks up an offset.
IN_LOGS = {"claimed-codec": Severity.ERROR}
_BY_THEMSELVES = ("message", "wide-crc")


def policy_for(file: SegmentFile, settings: Settings) -> Policy:
    """The severities for that file: those of the settings, over defaults that its place suggests."""
    defaults: dict[str, Severity] = {}
    if settings.max_message_bytes is not None:
        defaults["oversize-entry"] = Severity.ERROR
    if file.active:
        # A broker may be writing there this moment.
        defaults["truncated-tail"] = Severity.WARNING
    elif file.listed and base_offset_of(file.path) is not None:
        # Rolling cuts preallocated space off (LogSegment.onBecomeInactiveSegment): here batches are lost, or a copy is.
        defaults["zero-tail"] = Severity.ERROR
    if file.framing not in _BY_THEMSELVES:
        defaults |= IN_LOGS
    if file.framing:
        # What a producer sends has no offsets yet, and librdkafka gives each message of old versions 0.
        defaults["non-monotonic-offset"] = Severity.WARNING
        # Nor does it know the leader's epoch: the broker writes that into the batch.
        defaults["negative-leader-epoch"] = Severity.IGNORE
    return settings.policy.with_defaults(defaults)
