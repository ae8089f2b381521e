"""``kseg pipeline`` with a registry that gives no answer: no record is rejected for it, and the next run loads."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed")

from kseg.extras.serialization import schema_sources as client
from tests.support.pipelines import config, statuses, table_rows
from tests.support.pipelines import run_in_process as run
from tests.support.schema_registry import Registry, serialized_registry

FIXTURE = Path(__file__).parents[2] / "fixtures" / "serialized"
#: The oldest version of the topic's values: some records have its id.
OLD_ID = "/schemas/ids/2"


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Registry:
    monkeypatch.delenv(client.AUTH_VARIABLE, raising=False)
    monkeypatch.setattr(client, "_PAUSES", (0, 0))
    return serialized_registry()


@pytest.fixture
def path(registry: Registry, tmp_path: Path) -> Iterator[Path]:
    shutil.copytree(FIXTURE / "orders-0", tmp_path / "source" / "orders-0")
    with registry.serve() as url:
        yield config(tmp_path, more=f'registry = "{url}"')


def offsets(path: Path, suffix: str = "") -> list[int]:
    """Return the offsets of the table, or of its side table."""
    commits = path.parent / "lake" / f"orders{suffix}" / "_kseg" / "commits"
    return sorted(row["offset"] for row in table_rows(path.parent, "parquet", suffix)) if commits.exists() else []


@pytest.mark.parametrize("fault", ["busy", "page", "cut", "forbidden"])
def test_a_failed_request_rejects_no_record(registry: Registry, path: Path, fault: str) -> None:
    """The page says: what cannot be read is tried again at the next run, as a segment is."""
    if fault == "cut":
        registry.cut[OLD_ID] = 9
    elif fault == "forbidden":
        registry.broken = {f"/schemas/ids/{number}": 403 for number in (2, 3)}
    else:
        registry.broken[OLD_ID] = 503 if fault == "busy" else 404
        registry.page = b"404 page not found" * (fault == "page")
    failed = run(path)
    assert failed.returncode == 2, failed.stdout
    assert failed.stderr.startswith("kseg: topic orders: registry http://127.0.0.1:")
    assert (offsets(path), offsets(path, "__rejects")) == ([], [])
    registry.cut.clear()
    registry.broken.clear()
    assert statuses(path, "run") == (0, ["loaded"])
    assert (offsets(path), offsets(path, "__rejects")) == (list(range(7)), [])


def test_an_unknown_id_rejects_its_records(registry: Registry, path: Path) -> None:
    """That is the registry's answer: the records are in the side table with the reason, and the others in the table."""
    registry.broken[OLD_ID] = 404
    assert run(path).returncode == 1
    assert (offsets(path), offsets(path, "__rejects")) == ([3, 4, 5, 6], [0, 1, 2])
    assert {row["reason"] for row in table_rows(path.parent, "parquet", "__rejects")} == {"schema 2 is not known"}


def test_a_replay_with_a_failed_request_changes_nothing(registry: Registry, path: Path) -> None:
    """The rows of the range stay until the records can be decoded."""
    assert run(path).returncode == 0
    registry.broken[OLD_ID] = 503
    failed = run(path, "replay", "--topic", "orders", "--offsets", "0:0:7")
    assert (failed.returncode, "HTTP 503" in failed.stderr) == (2, True)
    assert (offsets(path), offsets(path, "__rejects")) == (list(range(7)), [])
