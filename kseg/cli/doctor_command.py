"""``kseg doctor``: options and exit codes. 1: damage, a loss at the start of a broker, or a hanging transaction."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain
from typing import TextIO

from kseg.cli import common
from kseg.cli.messages import FAILED, FOUND, fail_after, note_output, progress_bar, redacted_messages
from kseg.cli.typed_command import TableOptions, command, this_run
from kseg.cli.validate_command import files_of
from kseg.commands.next_steps import TriedRepair, steps_of
from kseg.commands.recovery import places_of, plans_of
from kseg.commands.repair.repair import repair
from kseg.commands.repair.repair_losses import LostRange
from kseg.commands.repair.repaired_segment import RepairPlan
from kseg.commands.stats.levels import levels, sorted_by_folder, stats_of
from kseg.commands.transactions import end_without_transactions, items_of
from kseg.commands.validate.folder_checks import check_folders
from kseg.commands.validate.validate_ranges import validate_files
from kseg.errors import KsegError, UnreadableError
from kseg.extras.html.collected import Collected
from kseg.extras.html.command_pages import recovery_sections, stats_sections, transaction_sections
from kseg.extras.html.page import PageSection
from kseg.extras.html.redaction import Redaction, absolute
from kseg.extras.html.validation_page import IncidentDiagnosis, IncidentPart, write_incident
from kseg.findings import Policy, do_nothing
from kseg.format.log_loader.log_dir_start import has_metadata_log, owner_of
from kseg.format.log_loader.plan import MARK_FORGOTTEN, LogDirPlan, PartitionPlan
from kseg.format.log_loader.recovery_plan import BrokerStart
from kseg.format.log_loader.start_harm import harm_of, is_affected
from kseg.format.storage import file_access, local_files
from kseg.format.storage.file_access import Progress
from kseg.format.storage.local_files import entries
from kseg.format.storage.naming import METADATA_FOLDER, base_offset_of, is_url, leftover_of
from kseg.format.storage.segment_files import SegmentFile, total_size
from kseg.report import recovery_report, transactions_report
from kseg.report.doctor_report import Diagnosis
from kseg.report.formats import DOCTOR, Run, destination
from kseg.report.wording import some_text, summary_text
from kseg.results import FileResult, Settings, Summary
from kseg.text import count_of

_STATES = ("hanging", "open", "unknown", "aborted")
_TOP_PRODUCERS = 10


@dataclass(frozen=True, kw_only=True)
class DoctorOptions(TableOptions):
    html: str | None
    redact: bool
    deep: bool
    clean: bool | None
    max_age: int
    rule: tuple[str, ...]
    limit: int


@command(
    DoctorOptions,
    results=DOCTOR,
    examples=(
        "kseg doctor /var/kafka-logs",
        "kseg doctor --html incident.html --redact kafka-logs",
        "kseg doctor --unclean --max-rate 50M broker1/logs",
    ),
)
def doctor(asked: DoctorOptions) -> int:
    """Say whether a broker will start on log directories, what is lost, and what to do next.

    Checks all files, predicts the start, lists hanging transactions and free space, and prints the commands that repair
    these directories, in their order. Changes nothing. With --html FILE or --format html, one page for an incident. It has
    no keys and values; with --redact, for other people, also no names.

    Exit codes: 0 nothing found, 1 damage, data that a broker would lose at its start, or a hanging transaction, 2 a file
    could not be read.
    """
    common.check_outputs()
    paths = tuple(map(absolute, asked.paths)) if asked.redact else asked.paths
    run = _DoctorRun(asked, paths, *files_of(paths))
    if not asked.redact:
        return run.diagnose(None)
    redaction = Redaction(paths, {os.path.dirname(file.path) for file in run.files})
    with redacted_messages(redaction.message):
        return run.diagnose(redaction)


def _brokers(paths: tuple[str, ...], segments: list[SegmentFile]) -> list[list[str]]:
    """Return the log directories and partition folders of each broker, as ``kseg recovery`` does.

    Those that the command line names are one broker. Log directories below a named folder, such as a backup of several
    brokers, are those of the brokers that their meta.properties name. A named folder of neither kind is returned, too, if
    it has ``segments``: the prediction says what it is.
    """
    found: dict[tuple[str | int | None, ...], list[str]] = {}
    folders = {os.path.dirname(os.path.normpath(file.path)) for file in segments if not is_url(file.path)}
    folders |= {os.path.dirname(folder) or "." for folder in folders}
    named = sorted({os.path.normpath(path) for path in paths if not is_url(path) and local_files.is_folder(path)})
    for path in named:
        try:
            places = places_of(path)
        except UnreadableError:
            places = [path] if path in folders else []
        for place in places:
            found.setdefault(() if place == path else owner_of(place), []).append(place)
    return list(found.values())


@dataclass
class _DoctorRun:
    """A diagnosis: the checks of all files, and then the parts next to them. Of these each returns its sections of a page.

    ``ends`` are those of ``end_without_transactions``: such files need not be read again for transactions. ``unread`` says
    why files could not be read that the validation has read: the answers lack their content.
    """

    asked: DoctorOptions
    paths: tuple[str, ...]
    files: list[SegmentFile]
    unreadable: list[FileResult]
    ends: dict[str, int] = field(default_factory=dict)
    unread: dict[str, None] = field(default_factory=dict)
    progress: Progress = do_nothing

    def __post_init__(self) -> None:
        self.segments = [file for file in self.files if base_offset_of(file.path) is not None]
        self.as_page = self.asked.format == "html" or self.asked.html is not None
        self.page = IncidentDiagnosis(Summary()) if self.as_page else None
        self.found = self.page or Diagnosis(Summary())

    def diagnose(self, redaction: Redaction | None) -> int:
        """Write the diagnosis, and return the exit code."""
        asked, found, page = self.asked, self.found, self.page
        settings = Settings(deep=asked.deep, policy=Policy.parse(asked.rule), max_per_rule=asked.limit, outline=True)
        found.folder = next((os.path.dirname(path) or "." for path in self.paths[:1] if os.path.isfile(path)), "")
        size = total_size(self.files)

        def opened(path: str | None) -> AbstractContextManager[TextIO]:
            return redaction.written(destination(path)) if redaction else destination(path)

        def run() -> Run:
            return redaction.run(this_run()) if redaction else this_run()

        with opened(asked.output) as out, progress_bar(size and size * (1 + self.as_page)) as self.progress:
            results = self.results(settings)
            if page:
                page.page = Collected(results)
            else:
                _exhausted(results)
            brokers = _brokers(self.paths, self.segments)
            found.brokers = len(brokers)
            parts = [self.recovery(brokers), self.transactions()]
            if page:
                page.parts = [*parts, self.stats()]
            _add_steps(found)
            asked.write(DOCTOR, out, found, run=run)
        if page and asked.html is not None:
            with opened(asked.html) as out:
                write_incident(page, out, run=run())
            note_output(asked.html, summary_text(found.total))
        note_output(asked.output, summary_text(found.total))
        if not found.total.unread:  # otherwise the validation has printed the reason
            for why in self.unread:
                fail_after(why)
        if found.total.unread or self.unread:
            return FAILED
        return FOUND if found.found else 0

    def results(self, settings: Settings) -> Iterator[FileResult]:
        """Yield the results of all files, with their sums in the diagnosis."""
        found = self._with_ends(validate_files(self.files, settings, self.asked.jobs, self.progress))
        if any(file.indexes is not None for file in self.files):
            found = check_folders(self.files, settings, found)
        for result in chain(self.unreadable, found):
            self.found.total.add(result.summary)
            self.found.damaged.add(result)
            if result.vanished:
                file_access.current().deleted(result.file)
            if result.unread:
                fail_after(result.unread)
            yield result

    def _with_ends(self, results: Iterable[FileResult]) -> Iterator[FileResult]:
        for result in results:
            if (end := end_without_transactions(result)) is not None:
                self.ends[result.file] = end
            yield result

    def recovery(self, brokers: list[list[str]]) -> IncidentPart:
        """Add the prediction for the log directories and partition folders among the paths."""
        total, harms = self.found.recovery, self.found.harms

        def unread(why: str) -> None:
            total.unread += 1
            self.unread[why] = None

        def noted(plans: recovery_report.Plans) -> Iterator[LogDirPlan | PartitionPlan]:
            for plan in plans:
                if is_affected(plan):
                    harms.append(harm_of(plan))
                if isinstance(plan, LogDirPlan):
                    _add_log_dir(self.found, plan.folder)
                yield plan

        request = BrokerStart(self.asked.clean)
        counted = noted(total.counted(chain.from_iterable(plans_of(one, request, unread) for one in brokers)))
        sections = recovery_sections(counted, total) if self.as_page else _exhausted(counted)
        harms.sort(key=lambda harm: harm.rank)
        if not (total.partitions or total.log_dirs):
            return IncidentPart()
        answer = f"If a broker started now: {recovery_report.summary_line(total)}."
        return IncidentPart(sections, answer if total.harms else "")

    def transactions(self) -> IncidentPart:
        """Add the hanging transactions; the sections have all."""
        total, now = transactions_report.TransactionsTotal(), time.time_ns() // 1_000_000

        def noted(items: transactions_report.Items) -> transactions_report.Items:
            for item in items:
                if getattr(item, "state", "") == "hanging":
                    self.found.hanging[item.folder] += 1
                yield item

        def unread(error: KsegError) -> None:
            if isinstance(error, UnreadableError):
                self.unread[str(error)] = None

        found = items_of(self.segments, now, self.asked.max_age, do_nothing, unread, self.ends)
        items = noted(total.counted(found))
        sections = transaction_sections(items, total, _STATES) if self.as_page else _exhausted(items)
        if not any(total.states.values()):
            return IncidentPart()
        hanging = count_of(total.states["hanging"], "transaction")
        verb = "hangs" if total.states["hanging"] == 1 else "hang"
        return IncidentPart(sections, f"{hanging} {verb}." if total.states["hanging"] else "")

    def stats(self) -> IncidentPart:
        """Return the counts of the headers of valid batches."""
        if not self.segments:
            return IncidentPart()
        counted = stats_of(sorted_by_folder(self.segments), Settings(deep=False), self.asked.jobs, self.progress)
        return IncidentPart(stats_sections(levels(counted, deep=False), _TOP_PRODUCERS))


def _exhausted(items: Iterable[object]) -> list[PageSection]:
    """Read all items, for their counts, and return an empty list of sections."""
    for _ in items:
        pass
    return []


def _add_log_dir(found: Diagnosis, log_dir: str) -> None:
    """Add the facts of a log directory itself: its metadata log, and folders that no broker uses."""
    found.log_dirs.add(os.path.normpath(log_dir))
    for name, _ in entries(log_dir):
        if name == METADATA_FOLDER and has_metadata_log(log_dir):
            found.metadata = "the metadata log is here"
        if (kind := leftover_of(name)) is not None:
            found.leftovers[f"{kind} folder"] += 1


def _add_steps(found: Diagnosis) -> None:
    """Add what to do about each folder that needs attention, the worst first, and the space that it takes."""
    forgets = any(MARK_FORGOTTEN in harm.causes for harm in found.harms)
    needed, try_repair = 0, lru_cache(maxsize=2)(_try_repair)  # several findings of a folder ask for the same repair
    for folder, _, damage, harm in found.folders:
        if is_url(folder) or not local_files.is_folder(folder) or local_files.is_in_archive(folder):
            continue  # no command changes a bucket or an archive
        files = damage.files if damage else {}
        step = steps_of(folder, files, harm, try_repair, log_dirs=found.log_dirs, forgets=forgets)
        if damage is not None and damage.unread:
            step = replace(step, left=(*step.left, f"read-error: {damage.why_unread}"))
        found.steps.append(step)
        needed += _bytes_in(folder) if any(line.startswith("kseg repair") for line in step.commands) else 0
    if needed:
        found.space = shutil.disk_usage(found.steps[0].folder).free, needed


def _try_repair(folder: str, salvage_records: bool) -> TriedRepair:
    """Repair a folder without writing anything."""
    rows: list[LostRange] = []
    plan = RepairPlan(salvage_records=salvage_records, dry_run=True)
    try:
        done = repair(folder, None, plan, rows.append)
    except KsegError as error:
        return TriedRepair(str(error))
    if not any(one.kept for one in done.segments) and any(one.lost_bytes or one.zeros for one in done.segments):
        return TriedRepair("no batch in it can be read")
    # Of a segment without a place the valid batches are left out, too.
    unplaced = {one.source for one in done.segments if one.unplaced and not one.kept}
    readable = [row for row in rows if row.drops_readable or (row.kind == "lost" and row.file in unplaced)]
    rules = dict.fromkeys(row.rule for row in readable)
    left_out = {rule: some_text([row.offsets_text for row in readable if row.rule == rule]) for rule in rules}
    # A dry run leaves out segments only.
    return TriedRepair(changes=bool(done.changes or done.left_out), left_out=left_out)


def _bytes_in(folder: str) -> int:
    with os.scandir(folder) as entries:
        return sum(entry.stat().st_size for entry in entries if entry.is_file())
