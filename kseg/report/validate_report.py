"""Output of ``kseg validate`` as a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TextIO

from kseg.findings import Severity, Verdict, consequence_of, range_of_all
from kseg.report.partition_damage import COLUMNS, DamagedPartitions
from kseg.report.row_formats import Spool
from kseg.report.tables import FOLDED, TableColumn, cell_rows, print_cells, print_note, print_text
from kseg.report.wording import MOST_ROWS, STYLES, advice, first_text, grouped, produced_text, summary_text, times
from kseg.results import FileResult, Summary
from kseg.schema import Row
from kseg.text import count_of, escape_controls, shortened, span

# What an empty file lacks; the default is for streams.
_NOTHING = {None: "no batch yet", "message-set": "no batch", "message": "no message", "wide-crc": "no message"}


def write_table(results: Iterable[FileResult], total: Summary, out: TextIO, *, detail: int = 0) -> None:
    """Write the partitions that need attention, the findings, and a line for the whole run.

    Each file with findings has a table, unless many files have some: then each rule has a row. With ``detail`` 1 each
    finding has a row and each valid segment a line, with -1 findings are left out. The partitions come first, so the
    results are kept until the end of the run; an interrupted run shows them, too.
    """
    spool = Spool[FileResult]()
    damaged, listed = DamagedPartitions(), ListedFiles()
    old_requests = False
    try:
        for result in results:
            old_requests |= any(row["api_version"] < _FIRST_VERSION for row in result.produced)
            if _is_listed(result, detail):
                spool.add(replace(result, facts=None))
                listed.add(result)
            damaged.add(result)
    finally:
        several = len(damaged.by_folder) > 1 or bool(damaged.by_folder and total.files + total.side_files > 1)
        if several:
            print_cells(out, COLUMNS, damaged.rows(whole=detail > 0), title=damaged.answer())
        if detail == 0 and listed.files > MOST_ROWS:
            listed.write(out)
        else:
            advised: set[tuple[str, ...]] = set()
            for result in spool.again():
                _write_file(result, out, detail, advised)
        spool.close()
    if total.produced:
        print_text(out, produced_text(total))
    if old_requests:
        print_text(out, _OLD_REQUESTS)
    print_text(out, summary_text(total) + (f"; {damaged.worst()}" if several and damaged.worst() else ""))


def _is_listed(result: FileResult, detail: int) -> bool:
    if detail < 0 or not (result.verdicts or _changed(result) or (result.summary.files and not result.unread)):
        return False
    valid = (
        not result.verdicts
        and not _changed(result)
        and result.summary.verdict == "sound"
        and not _limits_of_verdict(result)
    )
    return bool(detail) or not valid or result.file == "-"


@dataclass(slots=True)
class _RuleTotal:
    """The findings of one rule over many files: their number, and the first one of the worst file."""

    verdict: Verdict
    files: int = 0
    findings: int = 0

    @property
    def rank(self) -> tuple[int, ...]:
        """Worst first."""
        return -consequence_of(self.verdict.finding, self.verdict.severity), -self.verdict.severity, -self.files


class ListedFiles:
    """The files with something to list, as one row for each rule. Memory is bounded by the number of rules."""

    def __init__(self) -> None:
        self.files = 0
        self._rules: dict[tuple[str, Severity], _RuleTotal] = {}
        self._known = self._limited = 0

    def add(self, result: FileResult) -> None:
        self.files += 1
        new = {(one.rule.name, one.severity): one for one in reversed(result.verdicts) if not one.known}
        self._known += bool(result.verdicts) and not new
        self._limited += not result.verdicts
        known = Counter(one.rule.name for one in result.verdicts if one.known)
        for key, verdict in new.items():
            total = self._rules.setdefault(key, _RuleTotal(verdict))
            total.files += 1
            total.findings += result.summary.rules[key[0]] - known[key[0]]

    def write(self, out: TextIO) -> None:
        """Write a row for each rule, what to do about the worst, and the number of files that have no row."""
        totals = sorted(self._rules.values(), key=lambda one: one.rank)
        styled = cell_rows(_RULE_COLUMNS, totals[:_RULES_LISTED], lambda one: STYLES[one.verdict.severity])
        print_cells(out, _RULE_COLUMNS, styled)
        advised = [one.verdict for one in totals if one.verdict.severity >= Severity.WARNING]
        for verdict in advised[:_RULES_ADVISED]:
            _write_advice(verdict, advice(verdict), out)
        others = [*dict.fromkeys(verdict.rule.name for verdict in advised[_RULES_ADVISED:])]
        if others:
            named = ", ".join(others[:_RULES_LISTED]) + (", …" if len(others) > _RULES_LISTED else "")
            print_note(out, f"`kseg rules NAME` says what to do about {named}")
        for count, what in ((self._known, "known findings only"), (self._limited, "a limited verdict or no content")):
            if count:
                print_note(out, f"{count_of(count, 'file')} with {what}")
        print_note(out, f"-v lists each of the {count_of(self.files, 'file')}")
        out.write("\n")


#: If findings are listed by rule: the rules with a row, of them those with advice, and the length of the first finding.
_RULES_LISTED = 5
_RULES_ADVISED = 1
_MOST_CHARACTERS = 80


_RULE_COLUMNS = (
    TableColumn("severity", cell=lambda one: one.verdict.severity.label),
    TableColumn("rule", text="wrap", cell=lambda one: times(
        f"{one.verdict.rule.code} {one.verdict.rule.name}", one.findings)),
    TableColumn("files", right=True, cell=lambda one: one.files),
    TableColumn("the first", text="wrap", cell=lambda one: shortened(
        escape_controls(f"{one.verdict.file}: {one.verdict.message}"), _MOST_CHARACTERS)),
)  # fmt: skip


def _write_file(result: FileResult, out: TextIO, detail: int, advised: set[tuple[str, ...]]) -> None:
    """Write a file. ``advised`` is the advice that earlier files had."""
    if any(not verdict.known for verdict in result.verdicts):
        known_rules = Counter(verdict.finding.rule for verdict in result.verdicts if verdict.known)
        summary = replace(result.summary, rules=result.summary.rules - known_rules)
        new = replace(result, verdicts=tuple(one for one in result.verdicts if not one.known), summary=summary)
        _write_findings(new, out, FOLDED if detail < 1 else len(new.verdicts) + 1, advised)
    elif result.verdicts:
        known = count_of(len(result.verdicts), "known finding")
        print_text(out, f"{result.file}: {result.summary.verdict} ({known})")
    elif result.summary.files and not result.unread:
        print_text(out, f"{result.file}: {result.summary.verdict}{_limits_of_verdict(result)}")
    if _changed(result):
        _write_produced(result, out)


def _limits_of_verdict(result: FileResult) -> str:
    """Return the restrictions of the verdict of a file without listed findings, in parentheses; empty if none."""
    summary = result.summary
    limits = [] if summary.bytes else [f"empty: {_NOTHING.get(result.framing, 'no frame')}"]
    if summary.unchecked:
        limits.append("not everything was checked" if result.framing else "CRCs were not checked")
    if summary.lost_bytes:
        limits.append(f"{count_of(summary.lost_bytes, 'byte')} lost")
    return f" ({', '.join(limits)})" if limits else ""


def _changed(result: FileResult) -> bool:
    """Return whether a leader rewrites or rejects a record set of the file."""
    return bool(result.summary.produced.keys() - {"accepted"})


# Kafka 4 reads no Produce request before this version.
_FIRST_VERSION = 3
_OLD_REQUESTS = (
    "Kafka 4 closes the connection of a client that sends Produce version 0, 1 or 2: the verdicts on these requests are "
    "those of Kafka 3.9"
)
_OUTCOMES = {"rejected": "red", "undetermined": "yellow", "rewritten": "cyan"}
#: The columns of record sets with the same outcome.
_PRODUCED_COLUMNS = (
    TableColumn("outcome", cell=lambda same: times(same[0]["outcome"], len(same))),
    TableColumn("error", cell=lambda same: same[0]["error"] or "-"),
    TableColumn("by Kafka", priority=2, cell=lambda same: same[0]["broker"]),
    TableColumn("request", right=True, priority=1, cell=lambda same: str(same[0]["frame"])),
    TableColumn("partition", cell=lambda same: _partition(same[0])),
    TableColumn("why", text="wrap", cell=lambda same: same[0]["why"]),
)


def _partition(row: Row) -> str:
    return f"{row['topic'] or row['topic_id']}-{row['partition']}"


def _write_produced(result: FileResult, out: TextIO) -> None:
    """Write the record sets of produce requests that a leader does not accept as they are, equal ones as one row."""
    rows = [row for outcome in _OUTCOMES for row in result.produced if row["outcome"] == outcome]  # the worst first
    equal = grouped(rows, lambda row: (row["outcome"], row["error"], row["broker"], _partition(row), row["why"]))
    styled = cell_rows(_PRODUCED_COLUMNS, equal.values(), lambda same: _OUTCOMES[same[0]["outcome"]])
    print_cells(out, _PRODUCED_COLUMNS, styled, title=f"{result.file}: produce requests")


_COLUMNS = (
    TableColumn("severity"),
    TableColumn("rule"),
    TableColumn("bytes", priority=1),
    TableColumn("offsets"),
    TableColumn("message", text="wrap"),
)


def _write_findings(result: FileResult, out: TextIO, folded: int, advised: set[tuple[str, ...]]) -> None:
    """Write the findings of a file; from ``folded`` equal ones on, they are one row. Equal advice is written once."""
    by_rule = grouped(result.verdicts, lambda verdict: (verdict.rule.name, verdict.severity))
    rows = []
    for verdict in result.verdicts:
        equal = by_rule[verdict.rule.name, verdict.severity]
        if len(equal) < folded:
            rows.append((_cells([verdict]), STYLES[verdict.severity]))
        elif verdict is equal[0]:
            rows.append((_cells(equal, result), STYLES[verdict.severity]))
    print_cells(out, _COLUMNS, rows, title=result.file)
    reported = {verdict.rule.name: verdict for verdict in result.verdicts if verdict.severity >= Severity.WARNING}
    end = ""
    for name, verdict in reported.items():
        listed = by_rule[name, verdict.severity]
        more = result.summary.rules[name] - len(listed) if len(listed) < folded else 0
        text = (name, *advice(verdict))
        if more or text not in advised:
            lines = [] if text in advised else text[1:]
            _write_advice(verdict, lines, out, f" ({more:,} more, not listed: see --limit)" if more else "")
            end = "\n"
        advised.add(text)
    out.write(end)


def _write_advice(verdict: Verdict, lines: Sequence[str], out: TextIO, more: str = "") -> None:
    """Write the reaction of a broker to a finding, and what to do about it."""
    if more or lines:
        print_note(out, f"{verdict.rule.name}{more}")
    for line in lines:
        print_note(out, line, indent=4)
    if lines and verdict.rule.remedy_for(verdict.file).actions:
        print_note(out, f"Commands: kseg rules {verdict.rule.name}", indent=4)


def _cells(equal: Sequence[Verdict], result: FileResult | None = None) -> tuple[str, ...]:
    """Return the cells of one finding, or of all those of a rule in a file: their range, and the message of the first."""
    verdict, rule = equal[0], equal[0].finding.rule
    finding, count = verdict.finding, 1
    if result:
        count = result.summary.rules[rule]
        others = [result.unlisted[rule]] if rule in result.unlisted else []
        finding = range_of_all([*(one.finding for one in equal), *others])
    return (
        verdict.severity.label,
        times(f"{verdict.rule.code} {rule}", count),
        _bytes(finding.position, finding.end),
        # A header with a wrong CRC may itself be damaged.
        span(finding.offset, finding.last_offset) + ("?" if rule == "crc-mismatch" else ""),
        first_text(verdict.message, count),
    )


def _bytes(first: int | None, end: int | None) -> str:
    """Return the cell of bytes; both are inclusive there. Without an end it is a place."""
    if first is None or end is None:
        return "-" if first is None else str(first)
    return span(first, max(first, end - 1))
