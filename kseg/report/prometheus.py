"""``kseg validate --format prometheus``: metrics for the textfile collector of Prometheus' node_exporter."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TextIO

from kseg.findings import RULES
from kseg.results import FileResult, Summary

_GAUGES = (
    ("files", "Segments that were checked."),
    ("side_files", "Indexes, snapshots and checkpoints that were checked."),
    ("unread", "Files that could not be read."),
    ("batches", "Batches in the segments."),
    ("records", "Records in the segments."),
    ("bytes", "Bytes of the segments."),
    ("lost_bytes", "Bytes that are not in a readable batch."),
)
_VERDICTS = ("sound", "damaged", "undetermined")


def write_prometheus(results: Iterable[FileResult], total: Summary, out: TextIO) -> None:
    """Write the counts of a run as gauges, the findings by rule, and the time of the end of the run."""
    known = sum(verdict.known for result in results for verdict in result.verdicts)
    for name, about in _GAUGES:
        out.writelines(_metric(name, about, [("", getattr(total, name))]))
    rules = [(f'{{rule="{name}",code="{RULES[name].code}"}}', count) for name, count in sorted(total.rules.items())]
    out.writelines(_metric("findings", "Findings by rule.", rules))
    severities = (("error", total.errors), ("warning", total.warnings), ("info", total.infos))
    by_severity = [(f'{{severity="{label}"}}', count) for label, count in severities]
    out.writelines(_metric("findings_by_severity", "Findings by severity.", by_severity))
    out.writelines(_metric("known_findings", "Findings of the baseline.", [("", known)]))
    verdicts = [(f'{{verdict="{verdict}"}}', int(verdict == total.verdict)) for verdict in _VERDICTS]
    out.writelines(_metric("verdict", "1 for the verdict of the run.", verdicts))
    out.writelines(_metric("last_run_seconds", "End of the run, in seconds since 1970.", [("", int(time.time()))]))


def _metric(name: str, about: str, samples: list[tuple[str, int]]) -> Iterator[str]:
    yield f"# HELP kseg_{name} {about}\n# TYPE kseg_{name} gauge\n"
    for labels, value in samples:
        yield f"kseg_{name}{labels} {value}\n"
