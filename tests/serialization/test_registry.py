"""Schemas of a registry over HTTP: answers, failures and limits, on loopback."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from kseg.errors import UsageError
from kseg.extras.serialization import schema_sources as client
from kseg.extras.serialization.schema_set import RegistryError
from tests.support.cli import rows_of
from tests.support.schema_registry import Registry, serialized_registry

FIXTURE = Path(__file__).parents[2] / "fixtures" / "serialized"


@pytest.fixture
def registry() -> Registry:
    return serialized_registry()


@pytest.fixture
def url(registry: Registry) -> Iterator[str]:
    with registry.serve() as found:
        yield found


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(client.AUTH_VARIABLE, raising=False)
    monkeypatch.setattr(client, "_PAUSES", (0, 0))


def dump(topic: str, url: str) -> list[dict[str, object]]:
    return rows_of("dump", FIXTURE / f"{topic}-0", "--registry", url)


@pytest.mark.slow
@pytest.mark.parametrize("topic", ["orders", "users", "events"])
def test_schemas_come_from_the_registry(topic: str, url: str, registry: Registry) -> None:
    """By id, by GUID, and referenced schemas by subject and version; each is requested once."""
    lines = (FIXTURE / "expect.jsonl").read_text(encoding="utf-8").splitlines()
    expected = [row["value"] for row in map(json.loads, lines) if row["topic"] == topic]
    assert [row["value_decoded"] for row in dump(topic, url)] == expected
    assert len(registry.requests) == len(set(registry.requests))


@pytest.mark.slow
def test_credentials_are_sent(registry: Registry, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the URL, or in the environment, where the list of processes does not show them."""
    registry.user = "ann:p@ss"
    assert dump("orders", url.replace("//", "//ann:p%40ss@"))[0]["value_error"] is None
    error = str(dump("orders", url.replace("//", "//bob:secret@"))[0]["value_error"])
    assert "HTTP 401" in error
    assert "secret" not in error
    monkeypatch.setenv(client.AUTH_VARIABLE, "ann:p@ss")
    assert dump("orders", url)[0]["value_error"] is None


@pytest.mark.slow
def test_an_unknown_id_is_a_reason(registry: Registry, url: str) -> None:
    """The registry is there, and does not know the id."""
    registry.schemas = []
    assert dump("orders", url)[0]["value_error"] == "schema 2 is not known"


def test_a_registry_that_is_not_there_is_asked_once() -> None:
    """Offline, each value has the reason, and the run does not wait for each of them."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    rows = dump("orders", f"http://127.0.0.1:{port}")
    assert {row["value_error"] for row in rows[:-1]} == {f"registry http://127.0.0.1:{port}: Connection refused"}


@pytest.mark.slow
def test_an_error_of_one_schema_is_not_one_of_others(registry: Registry, url: str) -> None:
    """A registry that cannot read one schema, or has no time for it, is asked for the next one, but not for ever."""
    paths = [f"/schemas/ids/{number}" for number in range(100, 106)]
    registry.broken = dict(zip(paths, (500, 429, 503, 500, 500, 500), strict=True))
    source = client.Registry(url)
    for number in (100, 101, 100, 2, 102, 103):
        if number == 2:
            assert source.by_id(number, "")
        else:
            with pytest.raises(RegistryError, match=r"HTTP (500|429|503)"):
                source.by_id(number, "")
    paths = [f"/schemas/ids/{number}" for number in (100, 101, 2, 102, 103)]
    assert registry.requests == [path for path in paths for _ in range(3 if path in registry.broken else 1)]
    for number in (104, 105, 3):
        with pytest.raises(RegistryError, match="HTTP 500"):
            source.by_id(number, "")
    assert registry.requests[13:] == ["/schemas/ids/104"] * 3


@pytest.mark.slow
def test_a_silent_registry_has_a_limit(registry: Registry, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that accepts and does not answer does not hold up the run."""
    registry.delay = 1
    monkeypatch.setattr(client, "_TIMEOUT", 0.05)
    assert "no answer within" in str(dump("orders", url)[0]["value_error"])


@pytest.mark.slow
def test_large_answers_have_a_limit(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory of an answer is bounded."""
    monkeypatch.setattr(client, "_MOST_BYTES", 50)
    with pytest.raises(RegistryError, match="the answer is larger than 50 bytes"):
        client.Registry(url).by_id(2, "")


@pytest.mark.parametrize("times", [2, 3])
def test_a_cut_answer_is_a_failed_request(registry: Registry, url: str, times: int) -> None:
    """A connection that ends before the announced bytes is not an answer: it is asked again, and then named as such."""
    registry.cut["/schemas/ids/2"] = times
    source = client.Registry(url)
    if times < len(client._PAUSES) + 1:
        assert source.by_id(2, "")
    else:
        with pytest.raises(RegistryError, match="the connection ended before the end of the answer"):
            source.by_id(2, "")
    assert source.by_id(3, "")
    assert registry.requests == ["/schemas/ids/2"] * 3 + ["/schemas/ids/3"]


@pytest.mark.slow
def test_answers_that_are_not_schemas(registry: Registry, url: str) -> None:
    """Something else that speaks HTTP at this address."""
    registry.schemas = [{"id": 2, "schema": 7}]
    with pytest.raises(RegistryError, match="the answer is not a schema: schema is not a text"):
        client.Registry(url).by_id(2, "")


@pytest.mark.parametrize("url", ["file:///etc/passwd", "localhost:8081", "http://", "ftp://ann:secret@host/"])
def test_wrong_urls_are_rejected(url: str) -> None:
    """Only HTTP and HTTPS; a password is not repeated."""
    with pytest.raises(UsageError, match="expected http://HOST") as caught:
        client.Registry(url)
    assert "secret" not in str(caught.value)
    with pytest.raises(UsageError, match="--registry-ca absent: No such file"):
        client.Registry("https://localhost", "absent")
