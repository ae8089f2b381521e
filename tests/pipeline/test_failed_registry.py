"""``kseg pipeline`` with a registry or a topic of schemas that gives no answer: no record is rejected for it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed")

from kseg import open_segment
from kseg.extras.serialization import schema_sources as client
from kseg.format.writer.records_builder import PlainRecord, build_batch
from tests.support.pipelines import config, statuses, table_rows
from tests.support.pipelines import run_in_process as run
from tests.support.schema_registry import Registry, damaged_schemas, serialized_registry

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


@pytest.mark.parametrize("with_topic", [False, True])
def test_an_unknown_id_rejects_its_records(registry: Registry, path: Path, with_topic: bool) -> None:
    """That is the registry's answer: the records are in the side table with the reason, and the others in the table.

    It is one also if the topic of the registry, which is asked before, is damaged where its schema was.
    """
    registry.broken[OLD_ID] = 404
    if with_topic:
        damaged_schemas(path.parent / "_schemas-0", 2)
        path.write_text(path.read_text().replace("registry =", 'schemas = ["_schemas-0"]\nregistry ='))
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


def test_a_damaged_topic_of_schemas_holds_only_what_needs_the_lost_schema(tmp_path: Path) -> None:
    """All schemas of the records are there: their references, too. Keys with a zero and a number are no ids of schemas."""
    records = [PlainRecord(n, bytes([0, n, 7, 8, 9, 10]), value_of_orders(n), 1) for n in range(3)]
    (tmp_path / "source" / "orders-0").mkdir(parents=True)
    (tmp_path / "source" / "orders-0" / f"{0:020}.log").write_bytes(build_batch(records))
    damaged_schemas(tmp_path / "_schemas-0", 5)
    path = config(tmp_path, more='schemas = ["_schemas-0"]')
    assert statuses(path, "run") == (0, ["loaded"])
    assert (offsets(path), offsets(path, "__rejects")) == ([0, 1, 2], [])


def value_of_orders(n: int) -> bytes:
    """Return a value of the fixture that has a schema with a reference."""
    with open_segment(FIXTURE / "orders-0" / f"{0:020}.log") as segment:
        return [record.value or b"" for record in segment.records()][n]


def test_a_damaged_topic_of_schemas_rejects_no_record(tmp_path: Path) -> None:
    """A schema that no source has may be in the damaged bytes: the topic is loaded when another source has it."""
    shutil.copytree(FIXTURE / "orders-0", tmp_path / "source" / "orders-0")
    lost = damaged_schemas(tmp_path / "_schemas-0", 2)
    path = config(tmp_path, more='schemas = ["_schemas-0"]')
    failed = run(path)
    assert (failed.returncode, failed.stderr.count("\n")) == (2, 1), failed.stdout
    assert f"crc-mismatch at byte {lost}, where a schema may be lost\n" in failed.stderr
    assert (offsets(path), offsets(path, "__rejects")) == ([], [])
    with serialized_registry().serve() as url:
        config(tmp_path, more=f'schemas = ["_schemas-0"]\nregistry = "{url}"')
        assert statuses(path, "run") == (0, ["loaded"])
    assert (offsets(path), offsets(path, "__rejects")) == (list(range(7)), [])
