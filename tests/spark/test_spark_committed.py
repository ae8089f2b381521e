"""Nightly loads with isolation=read_committed: no committed record is lost where the log was cut, and none comes twice."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from kseg.errors import UsageError
from tests.support.fixtures import SEGMENTS

pytest.importorskip("pyspark", reason="pyspark is not installed")

from kseg.spark.data_source import KsegReader
from kseg.spark.options import parse
from tests.support.pipelines import split_log

pytestmark = pytest.mark.spark
SOURCE = SEGMENTS / "4.3.0-v2-none-transactions"


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The batches of a broker's log, each as a segment: transactions begin and end in different ones."""
    return split_log(SOURCE, tmp_path_factory.mktemp("log") / "orders-0")


def offsets(*paths: Path, **options: str) -> list[int]:
    reader = KsegReader(parse({"paths": json.dumps([str(path) for path in paths]), "columns": "offset", **options}))
    found = [
        row for split in reader.partitions() for batch in reader.read(split) for row in batch.column(0).to_pylist()
    ]
    return sorted(found)


def committed(*paths: Path, **options: str) -> list[int]:
    return offsets(*paths, isolation="read_committed", **options)


def second_night(folder: Path, files: list[Path]) -> tuple[list[int], str | None]:
    """Load new files by name or, as the error says, by offsets; then the range of these is the second value."""
    try:
        return committed(*files), None
    except UsageError as error:
        start = str(error).partition("option offsets=")[2]
        return committed(folder, offsets=start), start


@pytest.mark.parametrize("there", [False, True], ids=["written later", "there already"])
def test_a_load_of_new_files_never_loses_a_committed_record(log: list[Path], there: bool, tmp_path: Path) -> None:
    """The second night names the new segments: it has all that the first one left out, or says from which offset on."""
    whole = committed(log[0].parent)
    refused = 0
    for cut in range(1, len(log)):
        folder = tmp_path / f"{cut}" / "orders-0"
        folder.mkdir(parents=True)
        files = [Path(shutil.copy(path, folder)) for path in (log if there else log[:cut])]
        first = committed(*files[:cut])
        files += [Path(shutil.copy(path, folder)) for path in log[len(files) :]]
        second, start = second_night(folder, files[cut:])
        refused += start is not None
        second = [offset for offset in second if start is None or offset not in first]
        assert sorted(first + second) == whole, cut
    assert 5 < refused < len(log) - 5


def test_loads_by_offsets_up_to_the_last_stable_offset_equal_the_whole(log: list[Path], tmp_path: Path) -> None:
    """As the guide does it: the next load begins at the last stable offset of the one before."""
    whole = committed(log[0].parent)
    folder = tmp_path / "orders-0"
    folder.mkdir()
    found: list[int] = []
    start = 0
    for path in log:
        shutil.copy(path, folder)
        reader = KsegReader(parse({"path": str(folder), "view": "transactions", "columns": "state,first_offset"}))
        rows = [row for split in reader.partitions() for batch in reader.read(split) for row in batch.to_pylist()]
        still_open = [row["first_offset"] for row in rows if row["state"] in ("open", "hanging")]
        stable = min(still_open, default=max(offsets(folder)) + 1)
        found += committed(folder, offsets=f"{start}:{stable}") if stable > start else []
        start = stable
    assert found == whole
