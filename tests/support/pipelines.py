"""Configurations of pipelines for tests, and the rows of their tables, read by other programs."""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import time
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from click.testing import CliRunner

from kseg.cli.main import main
from kseg.extras.pipeline.pipeline_reports import write_reports
from kseg.extras.pipeline.pipeline_run import Pipeline, RunOutcome
from kseg.extras.pipeline.pipeline_settings import read_settings
from kseg.format.segment.segment_reader import SegmentReader
from kseg.format.storage.source import open_source
from tests.support.cli import ROOT, SEGMENTS, kseg

TRANSACTIONS = SEGMENTS / "4.3.0-v2-none-transactions"
CATALOG = "catalog.db"


def config(
    folder: Path, kind: str = "parquet", *, source: str = "source", lake: str = "", state: str = "state", more: str = "",
    table: str = "", topic: str = "orders",
) -> Path:  # fmt: skip
    """Write a configuration into a folder. ``more`` are further lines of [source], ``table`` those of the table."""
    lake = lake or str(folder / "lake")
    catalog = ""
    place = f'path = "{lake}/{topic}"\nformat = "{kind}"\n'
    if kind == "iceberg":
        warehouse = lake if "://" in lake else f"file://{lake}"
        catalog = f'[catalog.ice]\ntype = "sql"\nuri = "sqlite:///{folder}/{CATALOG}"\nwarehouse = "{warehouse}"\n'
        place = f'catalog = "ice"\nname = "lake.{topic}"\n'
    text = (
        f'[pipeline]\nname = "night"\nstate = "{state}"\n[source]\npaths = ["{source}"]\n{more}\n'
        f'[quarantine]\nto = "quarantine"\n[report]\nto = ["reports/{{run}}.jsonl"]\n{catalog}'
        f'[table.{topic}]\n{place}{table}'
    )  # fmt: skip
    path = folder / "night.toml"
    path.write_text(text)
    return path


def run(path: Path, action: str = "run", *options: str) -> subprocess.CompletedProcess[str]:
    """Run an action in one process."""
    return kseg("pipeline", action, "--jobs", 1, *options, path)


def run_in_process(path: Path, action: str = "run", *options: str) -> subprocess.CompletedProcess[str]:
    """Run an action in this process."""
    done = CliRunner().invoke(main, ["pipeline", action, "--jobs", "1", *options, str(path)])
    return subprocess.CompletedProcess([], done.exit_code, done.stdout, done.stderr)


def statuses(path: Path, action: str) -> tuple[int, list[str]]:
    """Return the exit code of an action, and the statuses of the partitions."""
    done = run_in_process(path, action, "--format", "jsonl")
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return done.returncode, [row["status"] for row in found if row.get("kind") == "pipeline"]


def run_here(path: Path) -> RunOutcome:
    """Run a pipeline in this process."""
    settings = read_settings(str(path))
    with closing(Pipeline(settings)) as pipeline:
        return pipeline.run(lambda outcome: write_reports(settings, outcome))


def killed(path: Path, step: int | str, kind: str, *options: str) -> int:
    """Run a pipeline that is killed at a step, given by its number or its name, with options (in one process without any).
    With ``replay`` as the first option it is a replay.

    Returns its exit code, -9 for a kill. With step 0 the number of steps.
    """
    arguments = [str(step), str(path), kind, *options]
    if options and options[0] != "replay":  # Spark
        done = subprocess.run(
            [*_KILLED, *arguments], cwd=ROOT, capture_output=True, text=True, check=False, timeout=300
        )
        code, printed = done.returncode, done.stdout + done.stderr
    else:
        server, output = _server(), path.parent / ".printed"
        assert server.stdin
        assert server.stdout
        print(json.dumps([arguments, dict(os.environ), str(output)]), file=server.stdin, flush=True)
        code, printed = int(server.stdout.readline()), output.read_text()
        output.unlink()
    assert code in (0, 1, -9), printed
    assert "Traceback" not in printed, printed
    return int(printed.rpartition("steps: ")[2].split()[0]) if not step else code


_KILLED = (sys.executable, "-m", "tests.support.killed_pipeline")


@cache
def _server() -> subprocess.Popen[str]:
    """Start the server of killed pipelines, without the second that a process needs to import the libraries of tables."""
    server = subprocess.Popen(_KILLED, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    atexit.register(server.communicate)
    return server


def rows(folder: Path, kind: str, columns: tuple[str, ...] = ("partition", "offset", "value")) -> list[tuple[Any, ...]]:
    """Return the rows of the table of orders, in the order of partition and offset."""
    return sorted(tuple(row[name] for name in columns) for row in table_rows(folder, kind, columns=columns))


def table_rows(
    folder: Path, kind: str, suffix: str = "", columns: tuple[str, ...] | None = None
) -> list[dict[str, Any]]:
    """Return the rows of the table of orders, or of its side table, as the format's own library reads them."""
    place = folder / "lake" / f"orders{suffix}"
    if kind == "parquet":
        return parquet_rows(place, columns)
    names = columns or ("*",)
    if kind == "iceberg":
        found: list[dict[str, Any]] = (
            iceberg_table(folder, suffix=suffix).scan(selected_fields=names).to_arrow().to_pylist()
        )
        return found
    from deltalake import DeltaTable

    return list(DeltaTable(str(place)).to_pyarrow_table(columns=list(columns) if columns else None).to_pylist())


def quarantined(folder: Path) -> list[dict[str, Any]]:
    """Return the rows of the quarantine lists of all runs."""
    return [
        json.loads(line) for path in (folder / "quarantine").glob("*.jsonl") for line in path.read_text().splitlines()
    ]


def parquet_rows(folder: Path, columns: tuple[str, ...] | None) -> list[dict[str, Any]]:
    """Return the rows of the files that the commits list; after a run no other file is there."""
    listed = []
    for commit in sorted((folder / "_kseg" / "commits").iterdir()):
        content = json.loads(commit.read_text())
        listed += [folder / one["place"] for one in content["files"]]
        listed = [one for one in listed if str(one.relative_to(folder)) not in content.get("removed", [])]
    assert sorted(listed) == sorted(folder.rglob("*.parquet"))
    names = list(columns) if columns else None
    return [row for path in listed for row in pq.ParquetFile(path).read(columns=names).to_pylist()]


def iceberg_table(folder: Path, lake: str = "", suffix: str = "") -> Any:
    from pyiceberg.catalog import load_catalog

    warehouse = lake or f"file://{folder}/lake"
    address = {"s3.endpoint": os.environ["AWS_ENDPOINT_URL"]} if lake else {}
    catalog = load_catalog("ice", type="sql", uri=f"sqlite:///{folder}/{CATALOG}", warehouse=warehouse, **address)
    with catalog:
        return catalog.load_table(f"lake.orders{suffix}")


def split_log(source: Path, folder: Path) -> list[Path]:
    """Write each batch of a partition's log as a segment of its own; return them in order."""
    folder.mkdir(parents=True)
    for path in sorted(source.glob("*.log")):
        with SegmentReader(open_source(path)) as reader:
            for window in reader.windows():
                batches = window.batches
                for row in range(batches.count):
                    data = window.data[batches.at[row] : batches.at[row] + batches.size[row]]
                    (folder / f"{batches.base_offset[row]:020}.log").write_bytes(data)
    return sorted(folder.iterdir())


def leased(place: Path, began: str | None = None) -> None:
    """Write a lease of this process, or of one that began at another time: another process, which is dead."""
    own = Path(f"/proc/{os.getpid()}/stat").read_text().rpartition(")")[2].split()[19]
    lease = {"id": "x", "host": os.uname().nodename, "pid": os.getpid(), "time": time.time(), "began": began or own}
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(json.dumps(lease))
