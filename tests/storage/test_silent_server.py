"""A store that accepts connections and never answers ends a command with an error, in bounded time."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, suppress

import pytest

from kseg.format.storage import remote_listing
from tests.support.cli import invoke

s3fs = pytest.importorskip("s3fs", reason="s3fs is not installed")

URL = "s3://backup/orders-3/00000000000000000000.log"


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[socket.socket]]:
    """The connections to a server that never answers, with a short read timeout of s3fs."""
    found: list[socket.socket] = []
    with closing(socket.create_server(("127.0.0.1", 0))) as server:

        def accept() -> None:
            with suppress(OSError):
                while True:
                    found.append(server.accept()[0])

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.getsockname()[1]}")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        monkeypatch.setattr(s3fs.S3FileSystem, "read_timeout", 0.1)
        s3fs.S3FileSystem.clear_instance_cache()
        yield found
        server.shutdown(socket.SHUT_RDWR)
        thread.join(10)
        for one in found:
            one.close()
        s3fs.S3FileSystem.clear_instance_cache()


@pytest.mark.slow
def test_the_number_of_attempts_is_bounded(connections: list[socket.socket], monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the URL. With the timeout of s3fs, 15 seconds, eight attempts are two minutes."""
    monkeypatch.delenv("AWS_MAX_ATTEMPTS", raising=False)
    done = invoke("validate", URL)
    assert done.exit_code == 2
    assert done.stderr.startswith(f"kseg: {URL}: Read timeout on endpoint URL")
    assert len(connections) == remote_listing.S3_ATTEMPTS * remote_listing.S3_ROUNDS == 8


@pytest.mark.slow
def test_the_users_number_of_attempts_is_kept(
    connections: list[socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """AWS_MAX_ATTEMPTS is the setting of all programs of AWS."""
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    assert invoke("validate", URL).exit_code == 2
    assert len(connections) == remote_listing.S3_ROUNDS
