"""``kseg validate --format html``: the verdict, damaged partitions, next steps, a map of segments, and findings.

For an incident (``kseg doctor --html``) the page has the parts of recovery, transactions and stats, too.
Without JavaScript, and on paper, the page has the verdict, the tables and the first folded findings. The script adds the
map, the view of a segment, and the search in all findings.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from string import Template
from typing import TextIO

from kseg.commands.next_steps import FolderTask, decisions_of, in_order, left_of
from kseg.extras.html import page
from kseg.extras.html.collected import DAMAGED, LEVELS, UNDETERMINED, VALID, WARNING, Collected, Group
from kseg.extras.html.page import PageSection, table
from kseg.findings import RULES, Consequence, Finding, Rule, Severity, consequence_of, range_of_all
from kseg.report.doctor_report import Diagnosis
from kseg.report.formats import Run
from kseg.report.partition_damage import Damage, around
from kseg.report.tables import TableColumn, cells_of
from kseg.report.wording import Prose, common_text, fold, names_text, places, printable, severities_text, times
from kseg.results import FileResult, Summary
from kseg.text import count_of, inclusive_range

#: The rows of the tables in the page itself. The script lists all of them.
_STATIC_GROUPS = 100
_STATIC_PARTITIONS = 100
_OPEN_STEPS = 12
_RANGES_SHOWN = 3
_IF_RIGHT = " (if the headers are right)"

_STEP = Template("""<li class="$level"><h3><span class="badge $level">$level</span> $code $rule
<span class="faint">$count</span></h3>
<p><strong>What to do:</strong> $remedy</p>
<p class="faint"><strong>Broker:</strong> $broker</p></li>
""")

#: The columns of partitions with equal damage: the sums of their errors and lost bytes.
_DAMAGED_COLUMNS = (
    TableColumn("partition", text="wrap", cell=lambda group: names_text(one.name for one in group)),
    TableColumn("consequence", cell=lambda group: common_text(one.damage.consequence.label for one in group)),
    TableColumn("errors", right=True, cell=lambda group: sum(one.damage.errors for one in group)),
    TableColumn("lost bytes", right=True, cell=lambda group: sum(one.damage.lost_bytes for one in group)),
    TableColumn("offsets", text="wrap", cell=lambda group: common_text(_offsets(one.damage) for one in group)),
    TableColumn(
        "rules",
        text="wrap",
        cell=lambda group: ", ".join(dict.fromkeys(cause for one in group for cause in one.damage.causes())),
    ),
)
_FINDING_COLUMNS = (
    TableColumn("severity", cell=lambda group: group.severity.label + (" (known)" if group.known else "")),
    TableColumn("rule", cell=lambda group: times(f"{group.rule.code} {group.rule.name}", group.count)),
    TableColumn("file", text="wrap", cell=lambda group: group.file),
    TableColumn("where", text="wrap", cell=lambda group: _place(group)),
    TableColumn("finding", text="wrap", cell=lambda group: ("The first: " if group.count > 1 else "") + (
        group.findings[0].message if group.findings else "not listed")),
)  # fmt: skip
_UNREAD_COLUMNS = [TableColumn("file", text="wrap"), TableColumn("why", text="wrap")]

_STEPS = Template('<ol class="steps">\n$steps</ol>\n')

#: The parts that the script fills in. They are hidden without it.
_MAP = '<div id="map" hidden></div>\n<noscript><p>The map of segments needs JavaScript.</p></noscript>\n'
_SEARCH = '<div id="search" hidden></div>\n'


def write_html(results: Iterable[FileResult], total: Summary, out: TextIO, *, run: Run | None = None) -> None:
    """Write the page. ``results`` is read to its end; ``total`` is complete after that."""
    found = Collected(results)
    head = page.header(verdict_level(total), total.verdict, headline(found, total), lead(total), run, "kseg validate")
    head += tiles(found, total)
    page.write_page(out, f"kseg validate: {total.verdict}", head, sections(found, total), found.data())


def verdict_level(total: Summary) -> str:
    """Return the class of the verdict's colour."""
    if total.verdict == "sound":
        return "warning" if total.warnings else "valid"
    return total.verdict


def headline(found: Collected, total: Summary) -> str:
    """Return the verdict in words, such as ``2 of 4 partitions need attention``."""
    if total.verdict == "sound":
        return "No errors" if total.warnings or total.infos else "No damage found"
    if total.verdict == "undetermined":
        return "No errors, but some data was not checked"
    several = [one for one in found.partitions.values() if one.segments or one.level >= WARNING]
    parts = [one for one in several if not one.damage.is_of_log_dir]
    noun = "folder" if found.framed else "partition"
    if len(parts) < 2:
        return "Damage found"
    log_dirs = sum(one.damage.is_of_log_dir for one in found.damaged())
    affected = len(found.damaged()) - log_dirs
    if not affected + log_dirs:
        return "Damage found, all of it known"
    also = f", and {count_of(log_dirs, 'log directory')}" if log_dirs else ""
    return f"{affected:,} of {count_of(len(parts), noun)} {'needs' if affected == 1 else 'need'} attention{also}"


def lead(total: Summary) -> str:
    """Return the sentences below the headline."""
    files = total.files + total.side_files
    said = [f"{severities_text(total)} in {count_of(files, 'file')}."]
    if total.lost_bytes:
        said.append(f"{count_of(total.lost_bytes, 'byte')} cannot be read.")
    if total.unread:
        said.append(f"{count_of(total.unread, 'file')} could not be opened.")
    if total.unchecked:
        said.append("CRCs or bodies of frames were not checked.")
    return " ".join(said)


def sections(found: Collected, total: Summary) -> Iterator[PageSection]:
    """Yield the sections of a validation: the page of an incident has them, too."""
    groups = found.groups()
    yield PageSection("damaged", "Partitions that need attention", _damaged(found))
    unread = table(_UNREAD_COLUMNS, found.unread[:_STATIC_PARTITIONS])
    unread += page.more(total.unread - _STATIC_PARTITIONS, "file")
    yield PageSection("unread", "Files that could not be read", unread)
    yield PageSection("steps", "What to do", _steps(groups, total))
    yield PageSection("segments", "Files" if found.framed else "Segments", _MAP if found.partitions else "")
    sizes = [(one.name, one.bytes) for one in found.partitions.values() if one.bytes]
    yield PageSection("content", "Content", found.content.plots(sizes))
    yield PageSection("findings", "Findings", _findings(groups, total))


def tiles(found: Collected, total: Summary) -> str:
    """Return the counts as a row of numbers."""

    def tile(name: str, count: int, level: int = VALID) -> tuple[str, str, str]:
        return name, f"{count:,}", LEVELS[level] if count and level else ""

    shown = [
        tile("Errors", total.errors, DAMAGED),
        tile("Warnings", total.warnings, LEVELS.index("warning")),
        tile("Infos", total.infos, LEVELS.index("info")),
        tile("Lost bytes", total.lost_bytes, DAMAGED),
        *([tile("Unreadable files", total.unread, UNDETERMINED)] if total.unread else []),
        tile("Files" if found.framed else "Segments", total.files),
        tile("Side files", total.side_files),
        tile("Batches", total.batches),
        ("Records", "not counted", "") if total.shallow else tile("Records", total.records),
        tile("Bytes", total.bytes),
    ]
    return page.tiles(shown)


def _damaged(found: Collected) -> str:
    """Return the damaged partitions, those with equal damage as one row that a click unfolds, as on a terminal."""
    damaged = found.damaged()
    groups = fold(damaged, lambda one: (one.damage.consequence, *one.damage.causes()))
    rows = [cells_of(_DAMAGED_COLUMNS, [one]) for one in damaged[:_STATIC_PARTITIONS]]
    folded = [cells_of(_DAMAGED_COLUMNS, group) for group in groups]
    listed = page.grouped(_DAMAGED_COLUMNS, folded, rows, "partition")
    return listed + page.more(len(damaged) - _STATIC_PARTITIONS, "partition")


def _offsets(damage: Damage) -> str:
    """Return the ranges in words. They are uncertain if a CRC is wrong: the header may be damaged."""
    ranges, unlisted = damage.ranges(), damage.unlisted()
    uncertain = _IF_RIGHT if "crc-mismatch" in damage.rules else ""
    if not ranges:
        return f"within {inclusive_range('offset', *unlisted)}{uncertain}" if unlisted else "-"
    (first, last), *others = ranges
    named = [inclusive_range("offset", first, last)]
    named += [f"{first}" if first == last else f"{first}..{last}" for first, last in others[: _RANGES_SHOWN - 1]]
    more = f" and {count_of(len(ranges) - _RANGES_SHOWN, 'more range')}" if len(ranges) > _RANGES_SHOWN else ""
    if unlisted:
        more = f" and more within {inclusive_range('offset', *around([*ranges[_RANGES_SHOWN:], unlisted]))}"
    return f"{', '.join(named)}{more}{uncertain}"


@dataclass(slots=True)
class _Step:
    """What to do about a rule: its highest severity and consequence, and the files that have it."""

    rule: Rule
    severity: Severity
    consequence: Consequence
    broker: str
    files: int = 0


def _steps(groups: list[Group], total: Summary) -> str:
    """Return what to do about each rule, the worst first; infos are folded."""
    steps: dict[str, _Step] = {}
    for group in groups:
        new = _Step(group.rule, group.severity, group.consequence, group.broker)
        step = steps.setdefault(group.rule.name, new)
        step.severity, step.consequence = max(step.severity, new.severity), max(step.consequence, new.consequence)
        step.files += 1
    for name in total.rules:  # those beyond the limits of the page
        rule = RULES[name]
        steps.setdefault(name, _Step(rule, rule.severity, consequence_of(Finding(name), rule.severity), rule.broker))
    ordered = sorted(steps.values(), key=lambda step: (-step.consequence, -step.severity, -total.rules[step.rule.name]))
    urgent = [_step(step, total) for step in ordered if step.severity >= Severity.WARNING]
    others = [_step(step, total) for step in ordered if step.severity < Severity.WARNING]
    shown = _STEPS.substitute(steps="".join(urgent[:_OPEN_STEPS])) if urgent else ""
    more, infos = urgent[_OPEN_STEPS:], count_of(len(others), "rule")
    return shown + _folded(more, count_of(len(more), "more rule")) + _folded(others, f"{infos} of severity info")


def _folded(steps: list[str], title: str) -> str:
    return page.details(title, _STEPS.substitute(steps="".join(steps))) if steps else ""


def _step(step: _Step, total: Summary) -> str:
    count = count_of(total.rules[step.rule.name], "finding")
    return _STEP.substitute(
        level=step.severity.label,
        code=step.rule.code,
        rule=step.rule.name,
        count=f"{count} in {count_of(step.files, 'file')}" if step.files else count,
        remedy=page.prose(step.rule.remedy),
        broker=page.prose(step.broker or "no reaction"),
    )


def _findings(groups: list[Group], total: Summary) -> str:
    if not total.rules:
        return ""
    rows = (cells_of(_FINDING_COLUMNS, group) for group in groups[:_STATIC_GROUPS])
    listed = table(_FINDING_COLUMNS, rows, "findings", "finding")
    more = page.more(len(groups) - _STATIC_GROUPS, "folded finding")
    left = sum(total.rules.values()) - sum(group.count for group in groups)
    note = f"{count_of(left, 'finding')} not in this page: use --format jsonl."
    limit = f'<p class="faint">{note}</p>\n' if left > 0 else ""
    return f'{_SEARCH}<div id="listed">{listed}{more}</div>\n{limit}'


def _place(group: Group) -> str:
    """Return the place of the only finding, or the first and the last byte and offset of all."""
    every = group.all()
    if not every:
        return ""
    if len(every) == 1 and not group.unlisted:
        return ", ".join(places(every[0]))
    whole = range_of_all(every)
    spans = []
    if whole.position is not None:
        spans.append(inclusive_range("byte", whole.position, max(whole.position, (whole.end or 0) - 1)))
    if whole.offset is not None and whole.last_offset is not None:
        spans.append(inclusive_range("offset", whole.offset, whole.last_offset))
        if group.rule.name == "crc-mismatch":
            spans[-1] += _IF_RIGHT
    return printable(", ".join(spans))


@dataclass(frozen=True, slots=True)
class IncidentPart:
    """The sections of another command, and the sentence about its result; empty without one."""

    sections: Sequence[PageSection] = ()
    answer: str = ""


@dataclass
class IncidentDiagnosis(Diagnosis):
    """A diagnosis with the additions of the page: the results of the validation, and the parts of other commands."""

    page: Collected = field(default_factory=Collected)
    parts: list[IncidentPart] = field(default_factory=list)


def _tasks(tasks: Sequence[FolderTask], head: str) -> str:
    columns = (TableColumn("folder", text="wrap"), TableColumn(head, text="wrap"))
    return page.folded(columns, [(folder, Prose(text)) for folder, text in tasks], "task")


def _next_steps(found: Diagnosis) -> PageSection:
    """Return the section with the commands for these directories in their order, and the tasks that have no command."""
    decisions, left = decisions_of(found.steps), left_of(found.steps)
    lines = in_order(found.steps, all_of_them=not decisions)
    content = _tasks(decisions, "what to decide")
    if content and lines:
        content = f"<p>Before the start of the broker, decide about these folders:</p>\n{content}"
    content += page.commands(lines)
    if any(one.replaced for one in found.steps):
        content += "<p>With another replica in sync, only move the folder away, and start the broker.</p>\n"
    if left:
        content += f"<p>No command corrects these:</p>\n{_tasks(left, 'no command')}"
    return PageSection("next", "Next steps, in order", content)


def write_incident(found: IncidentDiagnosis, out: TextIO, *, run: Run | None = None) -> None:
    """Write the page: the validation with the parts of the other commands in it.

    What to do comes first, the list of all findings last.
    """
    total = found.total
    ordered = {one.name: one for one in sections(found.page, total)}
    ordered |= {one.name: one for part in found.parts for one in part.sections}
    ordered = {"damaged": ordered.pop("damaged"), "next": _next_steps(found), **ordered}
    last = [ordered.pop(name) for name in ("segments", "content", "stats", "findings") if name in ordered]
    answers = " ".join(filter(None, (lead(total), *(part.answer for part in found.parts))))
    level, verdict = verdict_level(total), total.verdict
    title = headline(found.page, total)
    if verdict == "sound" and found.recovery.harms:
        level, verdict, title = "damaged", "loss", "The files have no errors, but a start of the broker harms its data"
    head = page.header(level, verdict, title, answers, run, "kseg doctor")
    head += tiles(found.page, total)
    page.write_page(out, f"kseg doctor: {verdict}", head, [*ordered.values(), *last], found.page.data())
