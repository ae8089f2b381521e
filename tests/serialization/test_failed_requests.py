"""A registry that gives no answer: commands do not answer without its schemas."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pytest.importorskip("duckdb", reason="duckdb is not installed")

import kseg
from kseg.errors import UnreadableError
from kseg.extras.serialization import schema_sources as client
from tests.support.cli import kseg_here, rows_of
from tests.support.schema_registry import Registry, serialized_registry

FIXTURE = Path(__file__).parents[2] / "fixtures" / "serialized"
ORDERS = FIXTURE / "orders-0"


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Registry:
    monkeypatch.delenv(client.AUTH_VARIABLE, raising=False)
    monkeypatch.setattr(client, "_PAUSES", (0, 0))
    return serialized_registry()


@pytest.fixture
def url(registry: Registry) -> Iterator[str]:
    with registry.serve() as found:
        yield found


def fail(registry: Registry, fault: str) -> tuple[str, int]:
    """Have the registry fail; return the reason, and the number of schemas that are not read."""
    if fault == "forbidden":
        registry.user = "ann:secret"
        return "HTTP 401 Unauthorized", 2
    if fault == "cut":
        registry.cut["/schemas/ids/2"] = 9
        return "the connection ended before the end of the answer", 1
    if fault == "page":
        registry.page = b"404 page not found"
    registry.broken["/schemas/ids/2"] = {"busy": 503, "limit": 429, "page": 404}[fault]
    reasons = {
        "busy": "HTTP 503 Service Unavailable",
        "limit": "HTTP 429 Too Many Requests",
        "page": "HTTP 404 Not Found, which is not the answer of a registry",
    }
    return reasons[fault], 1


ANSWERS: dict[str, tuple[object, ...]] = {
    "path": ("grep", "--json-path", "$.id=17"),
    "others": ("grep", "-c", "-v", "--json-path", "$.id=17"),
    "quiet": ("grep", "-q", "no such text"),
    "last": ("grep", "--last", "5", "no such text"),
    "grep where": ("grep", "--where", "value.id = 17"),
    "dump where": ("dump", "--where", "value.id = 17"),
    "sql": ("sql", "select count(*) from records where value_decoded.id = 17", "--value-as", "struct"),
    "sql json": ("sql", "select max(value_decoded) from records"),
}


@pytest.mark.parametrize("name", ANSWERS)
@pytest.mark.parametrize("fault", ["busy", "forbidden"])
def test_no_answer_without_the_schemas(registry: Registry, url: str, name: str, fault: str) -> None:
    """The table of exit codes says 2 for what cannot be read: "no match" would be an answer."""
    reason, count = fail(registry, fault)
    done = kseg_here(*ANSWERS[name], "--registry", url, ORDERS)
    assert done.returncode == 2, done.stdout
    (line,) = done.stderr.splitlines()
    if name == "sql" and fault == "forbidden":  # the types of the columns are not known
        assert line == f"kseg: registry {url}: {reason}"
    else:
        assert line == f"kseg: registry {url}: {reason}: {count} schema{'s' * (count > 1)} not read"


@pytest.mark.parametrize("fault", ["busy", "limit", "forbidden", "cut", "page"])
def test_what_was_not_searched_is_no_other_record(registry: Registry, url: str, fault: str) -> None:
    """``-v`` counts records that do not match. One that cannot be decoded now is not known to be one."""
    fail(registry, fault)
    counted = kseg_here("grep", "-c", "-v", "--json-path", "$.id=17", "--registry", url, ORDERS)
    rows = rows_of("dump", "--registry", url, ORDERS)
    unread = sum(row["value_error"] is not None for row in rows)
    assert unread
    assert counted.stdout.rpartition(":")[2].strip() == str(len(rows) - unread)


def test_a_dump_without_a_condition_names_the_registry(registry: Registry, url: str) -> None:
    """The page on decoding says: values stay as they are, with the reason, which is one line on stderr, too."""
    reason, _ = fail(registry, "busy")
    for options in ((), ("--where", "offset >= 0")):
        done = kseg_here("dump", "--format", "jsonl", "--registry", url, *options, ORDERS)
        assert (done.returncode, done.stderr) == (0, f"kseg: registry {url}: {reason}: 1 schema not read\n")
        errors = [
            row["value_error"] for row in map(json.loads, done.stdout.splitlines()) if row["value_schema_id"] == 2
        ]
        assert set(errors) == {f"registry {url}: {reason}"}


def test_a_search_of_headers_alone_needs_no_schema(registry: Registry, url: str) -> None:
    """The registry's reason is named, and the answer is whole."""
    fail(registry, "busy")
    done = kseg_here("grep", "--in", "header-key", "no such header", "--registry", url, ORDERS)
    assert (done.returncode, done.stdout) == (1, "")


def test_an_unknown_id_is_an_answer(registry: Registry, url: str) -> None:
    """A registry that does not know an id has answered: the record does not match."""
    registry.schemas = []
    done = kseg_here("grep", "--json-path", "$.id=17", "--registry", url, ORDERS)
    assert (done.returncode, done.stderr) == (1, "kseg: no match in 1 segment\n")


def test_a_refused_connection_is_no_match(monkeypatch: pytest.MonkeyPatch) -> None:
    """Offline, the search ends with the reason."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    done = kseg_here("grep", "--json-path", "$.id=17", "--registry", f"http://127.0.0.1:{port}", ORDERS)
    assert done.returncode == 2
    assert done.stderr == f"kseg: registry http://127.0.0.1:{port}: Connection refused: 2 schemas not read\n"


def test_functions_raise(registry: Registry, url: str) -> None:
    """A scan and a search raise, or tell ``unread`` the reason; they ask a registry anew. A value has the schema's id."""
    schemas = kseg.Schemas(registry=url)
    reason, _ = fail(registry, "busy")
    lines: list[str] = []
    with pytest.raises(UnreadableError, match=reason):
        list(kseg.scan(ORDERS, schemas=schemas).to_batches())
    rows = [
        row
        for batch in kseg.scan(ORDERS, schemas=schemas, unread=lines.append).to_batches()
        for row in batch.to_pylist()
    ]
    assert [row["value_error"] for row in rows] == [f"registry {url}: {reason}"] * 3 + [None] * 4
    assert lines == [f"registry {url}: {reason}"]
    with pytest.raises(UnreadableError, match=reason):
        list(kseg.grep(ORDERS, "no such text", schemas=schemas))
    found = schemas.decode(b"\0\0\0\0\2", "orders")
    assert (found.unread, found.schema_id, found.error) == ("2", 2, f"registry {url}: {reason}")
    registry.broken.clear()
    assert list(kseg.grep(ORDERS, "no such text", schemas=schemas)) == []
    assert schemas.decode(b"\0\0\0\0\x63", "orders").unread is None
