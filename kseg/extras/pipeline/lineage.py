"""The lineage of a run for catalogs of data: its sources and tables as events of OpenLineage, sent by its own client.

Source: https://openlineage.io/docs/spec/object-model and its naming of data sets.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import kseg
from kseg.engine import lazy
from kseg.errors import KsegError
from kseg.extras.pipeline.pipeline_run import RunOutcome
from kseg.extras.pipeline.pipeline_settings import PipelineSettings, TableSettings
from kseg.extras.pipeline.pipeline_state import new_file
from kseg.format.storage.naming import is_url

if TYPE_CHECKING:
    from openlineage.client import client, event_v2, facet_v2, serde
else:
    _NEEDED = "report.to = openlineage needs a library: pip install 'kseg[lineage]', which has openlineage-python"
    client = lazy("openlineage.client.client", needed=_NEEDED)
    event_v2 = lazy("openlineage.client.event_v2", needed=_NEEDED)
    facet_v2 = lazy("openlineage.client.facet_v2", needed=_NEEDED)
    serde = lazy("openlineage.client.serde", needed=_NEEDED)

#: The namespace of the jobs, and the producer that the events name.
NAMESPACE = "kseg"
PRODUCER = f"kseg {kseg.__version__}"


def check_library() -> None:
    """Raise UsageError if the client is not installed."""
    _ = client.OpenLineageClient  # imports it


def send(settings: PipelineSettings, outcome: RunOutcome, place: str) -> None:
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
        line = next(iter(str(error).splitlines()), "") or type(error).__name__
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
