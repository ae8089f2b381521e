"""A read error is not damage: a run fails, or it has exactly the rows that it has on healthy storage."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from kseg.errors import KsegError
from tests.support.fixtures import SEGMENTS
from tests.support.growing_logs import batch, write

pytest.importorskip("pyspark", reason="pyspark is not installed")
pytest.importorskip("fsspec", reason="fsspec is not installed")

from kseg.spark.data_source import KsegDataSource, KsegReader
from kseg.spark.options import parse
from kseg.spark.streaming import KsegStreamReader
from tests.support.read_faults import KINDS, Faults, local_faults, remote_faults

pytestmark = pytest.mark.spark
#: Failing calls per combination of storage, kind, view and mode; each fails once and for good. The first number makes 2,400
#: faults; ``KSEG_READ_FAULTS=50`` makes 30,000.
FEW = int(os.environ.get("KSEG_READ_FAULTS", 4))
MODES = ("permissive", "dropmalformed", "failfast")
VIEWS: tuple[dict[str, str], ...] = (
    {},
    {"columns": "*,damage"},
    {"isolation": "read_committed"},
    {"columns": "offset,transaction_state,transactional_id"},
    {"since": "1700000010000"},
    {"offsets": "30:70", "splitBytes": "9000"},
    {"view": "batches"},
    {"view": "batches", "columns": "*,damage"},
    {"view": "findings"},
    {"view": "segments"},
    {"view": "transactions"},
)
Storage = Callable[..., AbstractContextManager[Faults]]


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two partitions of two segments, and one with transactions and side files."""
    root = tmp_path_factory.mktemp("logs")
    for topic in ("orders-0", "orders-1"):
        for first in (0, 20):
            write(root / topic, [batch(number) for number in range(first, first + 20)], first=first)
    shutil.copytree(SEGMENTS / "4.3.0-v2-none-transactions", root / "payments-0")
    index = root / "orders-1" / f"{0:020}.index"
    index.write_bytes(index.read_bytes()[:-3])  # a finding, and no row is lost
    return root


def rows_of(batches: Iterator[Any]) -> list[str]:
    return [repr(row) for batch in batches for row in batch.to_pylist()]


def read(path: str, options: dict[str, str]) -> list[str]:
    """Return the rows of a batch query: load, plan and tasks."""
    given = {"path": path, **options}
    KsegDataSource(given).schema()
    reader = KsegReader(parse(given))
    splits = reader.partitions()
    return sorted(rows_of(batch for split in splits for batch in reader.read(split)))


def stream(path: str, options: dict[str, str]) -> list[str]:
    """Return the rows of a stream in two triggers, whose offsets are in its checkpoint."""
    reader = KsegStreamReader(parse({"path": path, **options}))
    end = reader.latestOffset({})
    between = {name: offset // 2 // 4 * 4 for name, offset in end.items()}
    found: list[str] = []
    for first, last in (({}, between), (between, end)):
        for split in reader.partitions(first, last):
            found += rows_of(reader.read(split))
    return [*sorted(found), json.dumps(end)]


def outcomes(
    run: Callable[[str, dict[str, str]], list[str]], storage: Storage, logs: Path, options: dict[str, str], kind: str,
    count: int,
) -> Iterator[tuple[int, str]]:  # fmt: skip
    """Yield the number of a failing call, and what became of the run: "failed", "whole" or its wrong rows."""
    path = "faulty:///logs" if storage is remote_faults else str(logs)
    with storage(logs) as healthy:
        wanted = run(path, options)
    calls = range(healthy.calls)
    assert wanted
    for number in sorted(random.Random(str(options) + kind).sample(calls, min(count, len(calls)))):
        for failing in (range(number, number + 1), range(number, 1 << 30)):
            with storage(logs, kind, failing):
                try:
                    found = run(path, options)
                except KsegError:
                    yield number, "failed"
                    continue
            yield number, "whole" if found == wanted else f"{len(found)} rows of {len(wanted)}"


def wrong(*given: Any) -> list[tuple[int, str]]:
    found = list(outcomes(*given))
    assert found
    return [(number, what) for number, what in found if what not in ("failed", "whole")]


@pytest.mark.parametrize("storage", [local_faults, remote_faults])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("options", VIEWS, ids=str)
def test_a_run_fails_or_has_all_rows(storage: Storage, mode: str, options: dict[str, str], logs: Path) -> None:
    """At every call of the storage, once and for good; also with an error of a client's library, and a short read."""
    for kind in KINDS if storage is remote_faults else KINDS[:3]:
        assert wrong(read, storage, logs, {"mode": mode, **options}, kind, FEW) == [], kind


@pytest.mark.parametrize("storage", [local_faults, remote_faults])
@pytest.mark.parametrize("options", [{}, {"isolation": "read_committed"}, {"view": "batches"}], ids=str)
def test_a_stream_fails_or_has_all_rows(storage: Storage, options: dict[str, str], logs: Path) -> None:
    """The end of a trigger goes into the checkpoint: what is missing before it is never read again."""
    for mode, kind in product(MODES, KINDS[:3]):
        assert wrong(stream, storage, logs, {"mode": mode, **options}, kind, FEW) == [], (mode, kind)
