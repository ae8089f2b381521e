"""``kseg validate --format html``: the verdict, damaged partitions, next steps, a map of segments, and findings.

Without JavaScript, and on paper, the page has the verdict, the tables and the first folded findings. The script adds the
map, the view of a segment, and the search in all findings.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from string import Template
from typing import TextIO

from kseg.consequences import Consequence, consequence_of
from kseg.extras.html import page
from kseg.extras.html.collected import DAMAGED, LEVELS, UNDETERMINED, VALID, WARNING, Collected, Group, PartitionTotal
from kseg.extras.html.page import PageSection, table
from kseg.findings import RULES, Finding, Rule, Severity, range_of_all
from kseg.report.partition_damage import Damage, around
from kseg.report.ranking import common_text, fold, names_text
from kseg.report.spool import Run
from kseg.report.tables import TableColumn
from kseg.report.wording import places, printable
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

_DAMAGED_COLUMNS = [
    TableColumn("partition", text="wrap"), TableColumn("consequence"), TableColumn("errors", right=True),
    TableColumn("lost bytes", right=True), TableColumn("offsets", text="wrap"), TableColumn("rules", text="wrap"),
]  # fmt: skip
_FINDING_COLUMNS = [
    TableColumn("severity"),
    TableColumn("rule"),
    *(TableColumn(name, text="wrap") for name in ("file", "where", "finding")),
]
_UNREAD_COLUMNS = [TableColumn("file", text="wrap"), TableColumn("why", text="wrap")]

_STEPS = Template('<ol class="steps">\n$steps</ol>\n')

#: The parts that the script fills in. They are hidden without it.
_MAP = '<div id="map" hidden></div>\n<noscript><p>The map of segments needs JavaScript.</p></noscript>\n'
_SEARCH = '<div id="search" hidden></div>\n'


def write_html(results: Iterable[FileResult], total: Summary, out: TextIO, *, run: Run | None = None) -> None:
    """Write the page. ``results`` is read to its end; ``total`` is complete after that."""
    found = collect(results)
    head = page.header(verdict_level(total), total.verdict, headline(found, total), lead(total), run, "kseg validate")
    head += tiles(found, total)
    page.write_page(out, f"kseg validate: {total.verdict}", head, sections(found, total), found.data())


def collect(results: Iterable[FileResult]) -> Collected:
    """Read the results to their end."""
    found = Collected()
    for result in results:
        found.add(result)
    return found


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
    counts = (count_of(total.errors, "error"), count_of(total.warnings, "warning"), count_of(total.infos, "info"))
    said = [f"{', '.join(counts)} in {count_of(files, 'file')}."]
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
    unread = table(_UNREAD_COLUMNS, found.unread[:_STATIC_PARTITIONS]) + page.more(
        total.unread - _STATIC_PARTITIONS, "file"
    )
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
    rows = [_damaged_cells([one]) for one in damaged[:_STATIC_PARTITIONS]]
    listed = page.grouped(_DAMAGED_COLUMNS, list(map(_damaged_cells, groups)), rows, "partition")
    return listed + page.more(len(damaged) - _STATIC_PARTITIONS, "partition")


def _damaged_cells(group: Sequence[PartitionTotal]) -> tuple[str, ...]:
    """Return the cells of partitions with equal damage: the sums of their errors and lost bytes."""
    damages = [one.damage for one in group]
    return (
        names_text(one.name for one in group),
        common_text(damage.consequence.label for damage in damages),
        f"{sum(damage.errors for damage in damages):,}",
        f"{sum(damage.lost_bytes for damage in damages):,}",
        common_text(map(_offsets, damages)),
        ", ".join(dict.fromkeys(cause for damage in damages for cause in damage.causes())),
    )


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
    rows = (
        (
            group.severity.label + (" (known)" if group.known else ""),
            f"{group.rule.code} {group.rule.name}" + (f" \u00d7{group.count:,}" if group.count > 1 else ""),
            group.file,
            _place(group),
            ("The first: " if group.count > 1 else "")
            + (group.findings[0].message if group.findings else "not listed"),
        )
        for group in groups[:_STATIC_GROUPS]
    )
    listed = table(_FINDING_COLUMNS, rows, "findings", "finding")
    more = page.more(len(groups) - _STATIC_GROUPS, "folded finding")
    left = sum(total.rules.values()) - sum(group.count for group in groups)
    limit = (
        f'<p class="faint">{count_of(left, "finding")} not in this page: use --format jsonl.</p>\n' if left > 0 else ""
    )
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
