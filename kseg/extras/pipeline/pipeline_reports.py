"""The reports of a run: an HTML page, metrics for Prometheus, JSON Lines, and its lineage as events of OpenLineage.

Catalogs of data read the events, which OpenLineage's own client sends. Source: https://openlineage.io/docs/spec/object-model
and its naming of data sets.
"""

from __future__ import annotations

import io
import json
import os
import platform
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TextIO
from urllib.parse import urlsplit

import kseg
from kseg.engine import lazy
from kseg.errors import KsegError
from kseg.extras.html import page
from kseg.extras.html.page import PageSection
from kseg.extras.pipeline.pipeline_run import RunOutcome
from kseg.extras.pipeline.pipeline_settings import PipelineSettings, TableSettings
from kseg.extras.pipeline.pipeline_state import new_file
from kseg.format.storage.naming import is_url
from kseg.format.storage.remote_listing import text_of
from kseg.report.formats import Run
from kseg.report.pipeline_report import COLUMNS
from kseg.report.prometheus import Metrics, write_pipeline
from kseg.report.tables import TableColumn, cells_of
from kseg.text import count_of, inclusive_range

if TYPE_CHECKING:
    from openlineage.client import client, event_v2, facet_v2, serde
else:
    _NEEDED = "report.to = openlineage needs a library: pip install 'kseg[lineage]', which has openlineage-python"
    client = lazy("openlineage.client.client", needed=_NEEDED)
    event_v2 = lazy("openlineage.client.event_v2", needed=_NEEDED)
    facet_v2 = lazy("openlineage.client.facet_v2", needed=_NEEDED)
    serde = lazy("openlineage.client.serde", needed=_NEEDED)

#: The most rows of a table of the page.
_MOST_ROWS = 1000
_CHECKED = (
    ("bytes", "Bytes of the segments that can have rows which are not loaded."),
    ("records", "Records of these segments."),
    ("lost_bytes", "Bytes of these segments that are not in a readable batch."),
)
_VERDICTS = {
    0: ("valid", "complete"),
    1: ("warning", "damage set aside"),
    2: ("damaged", "failed"),
    3: ("damaged", "stopped"),
}
_DAMAGE_COLUMNS = (
    TableColumn("partition", text="wrap"),
    TableColumn("file", text="wrap"),
    TableColumn("rule"),
    TableColumn("offsets"),
    TableColumn("finding", text="wrap"),
)


def check_libraries(settings: PipelineSettings) -> None:
    """Raise UsageError if a report needs a library that is missing: not after the load."""
    if any(kind == "openlineage" for kind, _ in settings.reports):
        _ = client.OpenLineageClient  # imports it


def write_reports(settings: PipelineSettings, outcome: RunOutcome) -> None:
    """Write all reports of the configuration. ``{run}`` in a name is the id of the run. Raises KsegError."""
    for kind, place in settings.reports:
        place = place.replace("{run}", outcome.run)
        if kind == "openlineage":
            _send_events(settings, outcome, place)
            continue
        text = io.StringIO()
        _WRITERS[kind](settings, outcome, text)
        with new_file(place) as out:
            out.write(text.getvalue().encode())


def _write_jsonl(settings: PipelineSettings, outcome: RunOutcome, out: TextIO) -> None:
    rows: list[Mapping[str, Any]] = [
        {"kind": "pipeline", "run": outcome.run, **asdict(one), "lag": one.lag} for one in outcome.partitions
    ]
    rows += [{"kind": "damage", **one} for one in outcome.damage]
    rows.append({"kind": "run", "run": outcome.run, "pipeline": settings.name, "code": outcome.code,
                 "rows": dict(outcome.rows), "rejected": dict(outcome.rejected),
                 "failures": list(outcome.failures), "unneeded": list(outcome.unneeded),
                 "without_time": dict(outcome.without_time)})  # fmt: skip
    out.writelines(f"{json.dumps(row)}\n" for row in rows)


def _write_prometheus(settings: PipelineSettings, outcome: RunOutcome, out: TextIO) -> None:
    metrics = Metrics(out, {"pipeline": settings.name})
    topics = sorted({one.topic for one in outcome.partitions})
    metrics.write("pipeline_exit_code", "Exit code of the last run.", [({}, outcome.code)])
    loaded = [({"topic": topic}, outcome.rows.get(topic, 0)) for topic in topics]
    metrics.write("pipeline_rows", "Rows that the last run has loaded.", loaded)
    metrics.write("pipeline_damaged_places", "Rows of the quarantine list.", [({}, len(outcome.damage))])
    timeless = [({"topic": topic}, outcome.without_time.get(topic, 0)) for topic in topics]
    about = "Rows that the last run has loaded without their timestamp, which is outside of the years 1 to 9999."
    metrics.write("pipeline_rows_without_time", about, timeless)
    rejected = [({"table": table}, count) for table, count in outcome.rejected.items()]
    metrics.write("pipeline_rejected_rows", "Records that the last run has added to side tables.", rejected)
    sizes = Counter[str]()
    for one in outcome.partitions:
        sizes[one.topic] += one.size
    loaded = [({"topic": topic}, sizes[topic]) for topic in topics]
    metrics.write("pipeline_bytes", "Bytes of the segments with rows that the last run was to load.", loaded)
    for name, about in _CHECKED:
        total = sum(getattr(one, name) for one in outcome.segments)
        metrics.write(f"pipeline_checked_{name}", about, [({}, total)])
    write_pipeline(outcome.partitions, (), out, run=run_of(settings, outcome.started))


def run_of(settings: PipelineSettings, started: float, action: str = "run") -> Run:
    """Return the description of a run that ``started`` at seconds since 1970. Its metrics have the name of the pipeline."""
    return Run(
        f"kseg pipeline {action} {settings.path}", settings.paths, platform.node() or "unknown", int(started * 1000),
        kseg.__version__, labels=(f"pipeline={settings.name}",),
    )  # fmt: skip


def _write_html(settings: PipelineSettings, outcome: RunOutcome, out: TextIO) -> None:
    level, verdict = _VERDICTS[outcome.code]
    rows = ", ".join(f"{count_of(count, 'row')} of {topic}" for topic, count in outcome.rows.items() if count)
    run = run_of(settings, outcome.started)
    lead = f"Run {outcome.run}: {rows or 'no rows'} loaded, {count_of(len(outcome.damage), 'damaged place')} set aside."
    for table, count in outcome.rejected.items():
        lead += f" {count_of(count, 'record')} without a typed row: {table}."
    lead += "".join(f" {line}." for line in timeless_lines(outcome.without_time))
    head = page.header(level, verdict, f"Pipeline {settings.name}", lead, run, "kseg pipeline")
    page.write_page(out, f"kseg pipeline: {verdict}", head, list(_sections(outcome)))


def timeless_lines(without_time: Mapping[str, int]) -> Iterator[str]:
    """Yield a line for people about the rows of each topic whose timestamp is null in the table."""
    for topic, count in without_time.items():
        yield (
            f"{count_of(count, 'row')} of {topic} loaded without the timestamp, which is outside of the years 1 to 9999: "
            "a column timestamp_ms has the number"
        )


def _sections(outcome: RunOutcome) -> Iterable[PageSection]:
    if outcome.fail_if:
        yield PageSection("stopped", "Nothing was loaded", f"<p>{page.text(outcome.fail_if)}</p>\n")
    if outcome.failures:
        lines = [(line,) for line in outcome.failures]
        yield PageSection("failed", "Failed", page.folded((TableColumn("why", text="wrap"),), lines, "failure"))
    shown = [[*cells_of(COLUMNS, one), one.reason or ""] for one in outcome.partitions[:_MOST_ROWS]]
    listed = page.folded([*COLUMNS, TableColumn("reason", text="wrap")], shown, "partition")
    listed += page.more(len(outcome.partitions) - _MOST_ROWS, "partition")
    yield PageSection("partitions", "Partitions", listed)
    if outcome.damage:
        cells = [
            (f"{row['topic']}-{row['partition']}", row["file"] or "", row["rule"], _offsets(row), row["message"])
            for row in outcome.damage[:_MOST_ROWS]
        ]
        listed = page.folded(_DAMAGE_COLUMNS, cells, "damaged place")
        listed += page.more(len(outcome.damage) - _MOST_ROWS, "damaged place")
        yield PageSection("damaged", "Quarantine list", listed)


def _offsets(row: Mapping[str, Any]) -> str:
    first, last = row.get("offset"), row.get("last_offset")
    return "" if first is None else inclusive_range("", first, first if last is None else last).strip()


_WRITERS = {"jsonl": _write_jsonl, "prometheus": _write_prometheus, "html": _write_html}
#: The namespace of the jobs, and the producer that the events name.
NAMESPACE = "kseg"
PRODUCER = f"kseg {kseg.__version__}"


def _send_events(settings: PipelineSettings, outcome: RunOutcome, place: str) -> None:
    """Send the events of a run to a server's URL, to a file as JSON Lines, or for "" where OpenLineage's own settings say.

    Raises KsegError.
    """
    found = list(events(settings, outcome))
    if place and not place.startswith(("http://", "https://")):
        with new_file(place) as out:
            out.write("".join(f"{serde.Serde.to_json(event)}\n" for event in found).encode())
        return
    config = {"transport": {"type": "http", "url": place}} if place else None
    try:
        sender = client.OpenLineageClient(config=config)
        for event in found:
            sender.emit(event)
    except KsegError:
        raise
    except Exception as error:
        line = text_of(error).strip().partition("\n")[0]
        raise KsegError(f"openlineage: {place or 'its own settings'}: {line}") from error


def events(settings: PipelineSettings, outcome: RunOutcome) -> Iterator[Any]:
    """Yield the start and the end of a run."""
    job = event_v2.Job(NAMESPACE, settings.name)
    run_id = str(uuid.uuid5(uuid.NAMESPACE_URL, f"kseg:{settings.name}:{outcome.run}"))
    sources = [event_v2.InputDataset(*_named(path)) for path in settings.paths]
    tables = [_written(settings, table, outcome) for table in settings.tables.values()]
    failed = outcome.code >= 2
    facets: dict[str, facet_v2.RunFacet] = {}
    if failed:
        why = outcome.fail_if or "; ".join(outcome.failures) or "failed"
        facets["errorMessage"] = facet_v2.error_message_run.ErrorMessageRunFacet(why, "Python")
    for kind, time, more in (
        (event_v2.RunState.START, datetime.fromtimestamp(outcome.started, UTC), {}),
        (event_v2.RunState.FAIL if failed else event_v2.RunState.COMPLETE, datetime.now(UTC), facets),
    ):
        yield event_v2.RunEvent(
            eventType=kind, eventTime=time.isoformat(), run=event_v2.Run(run_id, more), job=job, producer=PRODUCER,
            inputs=sources, outputs=tables,
        )  # fmt: skip


def _written(settings: PipelineSettings, table: TableSettings, outcome: RunOutcome) -> Any:
    """Return the data set of a table, with the rows that were added."""
    if table.name:
        catalog = settings.catalogs.get(table.catalog, {})
        namespace, name = catalog.get("uri", table.catalog), table.name
    else:
        namespace, name = _named(table.path)
    rows = facet_v2.output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
        outcome.rows.get(table.topic, 0)
    )
    return event_v2.OutputDataset(namespace, name, outputFacets={"outputStatistics": rows})


def _named(place: str) -> tuple[str, str]:
    """Return the namespace and the name of a path or URL, as OpenLineage has them."""
    if not is_url(place):
        return "file", os.path.abspath(place)
    parts = urlsplit(place)
    return f"{parts.scheme}://{parts.netloc}", parts.path.strip("/") or "/"
