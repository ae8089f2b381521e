"""The metrics of ``kseg validate`` and ``kseg pipeline`` in Prometheus' text format, for its textfile collector.

The collector reads all files of a folder as one: a series that is in two of them is an error. So each series has the label
``path``, the paths of the run, and those of ``--label``.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TextIO

from kseg.findings import RULES, Consequence
from kseg.format.storage.naming import partition_of
from kseg.report.partition_damage import Damage, DamagedPartitions
from kseg.report.pipeline_report import STATUSES
from kseg.report.wording import printable
from kseg.results import FileResult, Summary

if TYPE_CHECKING:
    from kseg.extras.pipeline.pipeline_run import PartitionOutcome
    from kseg.report.formats import Run

#: The most damaged partitions with series of their own, the worst first: Prometheus keeps each series in memory.
MAX_PARTITIONS = 1000

_GAUGES = (
    ("files", "Segments that were checked."),
    ("side_files", "Indexes, snapshots and checkpoints that were checked."),
    ("unread", "Files that could not be read."),
    ("batches", "Batches in the segments."),
    ("records", "Records in the segments."),
    ("bytes", "Bytes of the segments."),
    ("lost_bytes", "Bytes that are not in a readable batch."),
)
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"'})
_VERDICTS = ("sound", "damaged", "undetermined")
_Samples = Iterable[tuple[Mapping[str, str], int]]


class Metrics:
    """Writes gauges, each series with the labels of the run."""

    def __init__(self, out: TextIO, labels: Mapping[str, str]) -> None:
        self._out = out
        self._labels = labels

    def write(self, name: str, about: str, samples: _Samples) -> None:
        self._out.write(f"# HELP kseg_{name} {about}\n# TYPE kseg_{name} gauge\n")
        for labels, value in samples:
            pairs = ",".join(
                f'{key}="{printable(text).translate(_ESCAPES)}"'
                for key, text in {**self._labels, **labels}.items()
                if text
            )
            self._out.write(f"kseg_{name}{{{pairs}}} {value}\n" if pairs else f"kseg_{name} {value}\n")


def write_prometheus(results: Iterable[FileResult], total: Summary, out: TextIO, *, run: Run | None = None) -> None:
    """Write the counts of a run as gauges, the findings by rule, the damaged partitions, and the time of its end."""
    known, damaged = 0, DamagedPartitions()
    for result in results:
        known += sum(verdict.known for verdict in result.verdicts)
        damaged.add(result)
    metrics = Metrics(out, {"path": " ".join(run.paths), **_labels_of_run(run)} if run else {})
    for name, about in _GAUGES:
        metrics.write(name, about, [({}, getattr(total, name))])
    rules = (({"rule": name, "code": RULES[name].code}, count) for name, count in sorted(total.rules.items()))
    metrics.write("findings", "Findings by rule.", rules)
    counts_by_severity = (("error", total.errors), ("warning", total.warnings), ("info", total.infos))
    severities = (({"severity": name}, count) for name, count in counts_by_severity)
    metrics.write("findings_by_severity", "Findings by severity.", severities)
    metrics.write("known_findings", "Findings of the baseline.", [({}, known)])
    counts = damaged.counts()
    consequences = (({"consequence": kind.label}, counts[kind]) for kind in reversed(Consequence) if kind)
    metrics.write("partitions_needing_attention", "Partitions by their worst consequence.", consequences)
    worst = [(_labels_of(*one), one[1]) for one in damaged.ranked()[:MAX_PARTITIONS]]
    for name, about in (
        ("errors", "Errors of a damaged partition, the worst partitions only."),
        ("lost_bytes", "Unreadable bytes of a damaged partition, the worst partitions only."),
    ):
        metrics.write(f"partition_{name}", about, [(labels, getattr(damage, name)) for labels, damage in worst])
    verdicts = (({"verdict": verdict}, int(verdict == total.verdict)) for verdict in _VERDICTS)
    metrics.write("verdict", "1 for the verdict of the run.", verdicts)
    _write_time(metrics)


def write_pipeline(
    found: Sequence[PartitionOutcome], lines: Sequence[str], out: TextIO, *, run: Run | None = None
) -> None:
    """Write the partitions of a pipeline by status, and the lag and the next offset of those with the largest lags."""
    metrics = Metrics(out, _labels_of_run(run))
    worst = sorted(found, key=lambda one: -one.lag)[:MAX_PARTITIONS]
    labels = [{"topic": one.topic, "partition": str(one.partition)} for one in worst]
    for name, about, values in (
        ("lag", "Offsets of a partition that are not loaded", (one.lag for one in worst)),
        ("next_offset", "The offset after those that are loaded", (one.end_offset for one in worst)),
    ):
        samples = zip(labels, values, strict=True)
        metrics.write(f"pipeline_{name}", f"{about}, the partitions with the largest lags only.", samples)
    statuses = Counter(one.status for one in found)
    by_status = (({"status": one}, statuses[one]) for one in STATUSES)
    metrics.write("pipeline_partitions", "Partitions by status.", by_status)
    _write_time(metrics, "pipeline_")


def _write_time(metrics: Metrics, room: str = "") -> None:
    about = "End of the run, in seconds since 1970."
    metrics.write(f"{room}last_run_timestamp_seconds", about, [({}, int(time.time()))])


def _labels_of_run(run: Run | None) -> dict[str, str]:
    return dict(one.partition("=")[::2] for one in run.labels) if run else {}


#: The labels of the series, which --label cannot set.
LABELS = ("rule", "code", "severity", "consequence", "verdict", "folder", "topic", "partition")


def _labels_of(folder: str, damage: Damage) -> dict[str, str]:
    topic, number = (partition_of(os.path.basename(folder)) or ("", ""))[:2]
    place = {"folder": folder or ".", "topic": topic, "partition": str(number)}
    return {**place, "consequence": damage.consequence.label}
