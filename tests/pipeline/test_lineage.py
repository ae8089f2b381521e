"""The lineage of a run: catalogs of data get its sources, tables and rows from OpenLineage's own client."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.support import pipelines
from tests.support.cli import invoke

pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pytest.importorskip("openlineage.client", reason="openlineage-python is not installed")


@contextmanager
def catalog(status: int = 200) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield the URL of a server, and the events that it has received."""
    received: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.append({"path": self.path, **json.loads(body)})
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_: Any) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", received
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def configured(home: Path, place: str) -> Path:
    path = pipelines.config(home)
    path.write_text(path.read_text().replace("reports/{run}.jsonl", place))
    return path


@pytest.mark.slow
def test_a_server_gets_the_start_and_the_end(tmp_path: Path) -> None:
    """Both have the same run, the source and the table with its rows."""
    shutil.copytree(pipelines.TRANSACTIONS, tmp_path / "source" / "orders-0")
    with catalog() as (url, received):
        done = invoke("pipeline", "run", "--jobs", 1, configured(tmp_path, f"openlineage:{url}"))
        assert done.exit_code == 0, done.output
    assert [(event["path"], event["eventType"]) for event in received] == [
        ("/api/v1/lineage", "START"),
        ("/api/v1/lineage", "COMPLETE"),
    ]
    start, end = received
    assert start["run"]["runId"] == end["run"]["runId"]
    assert end["job"]["namespace"] == "kseg"
    assert [(one["namespace"], one["name"]) for one in end["inputs"]] == [("file", str(tmp_path / "source"))]
    (table,) = end["outputs"]
    rows = pipelines.rows(tmp_path, "parquet")
    assert (table["namespace"], table["outputFacets"]["outputStatistics"]["rowCount"]) == ("file", len(rows))
    assert Path(table["name"]).is_dir()


def test_a_file_has_the_events_of_a_run_that_failed(tmp_path: Path) -> None:
    """As JSON Lines; the end says why."""
    shutil.copytree(pipelines.TRANSACTIONS, tmp_path / "source" / "orders-0")
    path = configured(tmp_path, "openlineage:lineage/{run}.jsonl")
    text = path.read_text().replace("[report]", '[validate]\nfail_if = "damaged > 0 segments"\n\n[report]')
    path.write_text(text)
    log = max((tmp_path / "source").rglob("*.log"))
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    assert invoke("pipeline", "run", "--jobs", 1, path).exit_code == 3
    (file,) = (tmp_path / "lineage").iterdir()
    start, end = map(json.loads, file.read_text().splitlines())
    assert (start["eventType"], end["eventType"]) == ("START", "FAIL")
    assert "damaged > 0 segments" in end["run"]["facets"]["errorMessage"]["message"]


@pytest.mark.slow
def test_a_server_that_fails_is_one_line(tmp_path: Path) -> None:
    """The rows are loaded; the exit code says that a report is missing."""
    shutil.copytree(pipelines.TRANSACTIONS, tmp_path / "source" / "orders-0")
    with catalog(status=403) as (url, _):
        done = invoke("pipeline", "run", "--jobs", 1, configured(tmp_path, f"openlineage:{url}"))
    assert done.exit_code == 2
    assert f"openlineage: {url}: 403" in done.stderr
    assert "Traceback" not in done.stderr
    assert pipelines.rows(tmp_path, "parquet")
