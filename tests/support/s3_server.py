"""A server of S3's protocol on loopback, in this process: it counts the bytes of objects, and can fail as stores do."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from urllib.request import Request, urlopen

import pytest
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from s3fs import S3FileSystem
from werkzeug.serving import make_server

BUCKET = "backup"


#: How a request fails: the status line, and the body; None is the body of the right answer.
FAULTS: dict[str, tuple[str, bytes | None]] = {
    "throttled": (
        "503 Slow Down",
        b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>",
    ),
    "denied": ("403 Forbidden", b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"),
    "missing": ("404 Not Found", b"<Error><Code>NoSuchKey</Code><Message>No such key.</Message></Error>"),
    "empty": ("200 OK", b""),
    "page": ("200 OK", b"<html>Please sign in.</html>"),
    "page of a proxy": ("200 OK", b"<html><body>Please sign in.</body></html>" * 20),
    "whole object": ("200 OK", None),
}
_PART = b"<ListBucketResult><IsTruncated>true</IsTruncated>%b</ListBucketResult>"
#: Failures of single requests: the end of an upload, a part of a listing, a bucket elsewhere.
OTHER_FAULTS: dict[str, tuple[str, bytes | None]] = {
    "same token": ("200 OK", _PART % b"<NextContinuationToken>x</NextContinuationToken>"),
    "no token": ("200 OK", _PART % b""),
    "moved": ("301 Moved Permanently", b"<Error><Code>PermanentRedirect</Code><Message>Ask there.</Message></Error>"),
    "exists": (
        "412 Precondition Failed",
        b"<Error><Code>PreconditionFailed</Code><Message>At least one of the pre-conditions failed.</Message></Error>",
    ),
    "no upload": ("404 Not Found", b"<Error><Code>NoSuchUpload</Code><Message>No such upload.</Message></Error>"),
    "broken": ("500 Internal Error", b"<Error><Code>InternalError</Code><Message>Internal error.</Message></Error>"),
}


class S3Server:
    """The requests for objects and their answers.

    ``fails`` decides by method and path which requests fail, and ``fault`` how: one of FAULTS. So do listings whose query
    has all texts of ``unlisted``. The requests that ``loses`` chooses have their effect, and then fail in this way.
    """

    def __init__(self) -> None:
        self.endpoint = ""
        self.sent = 0
        self.requests: list[tuple[str, str]] = []
        self.fault = "throttled"
        self.fails: Callable[[str, str], bool] = lambda method, path: False
        self.loses: Callable[[str, str], bool] = lambda request, path: False
        self.unlisted: tuple[str, ...] = ()
        self._application = DomainDispatcherApplication(create_backend_app)

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        self.requests.append((method, path))
        query = unquote(environ.get("QUERY_STRING", ""))
        if self.fails(method, path) or (self.unlisted and all(text in query for text in self.unlisted)):
            if self.fault == "whole object":
                environ.pop("HTTP_RANGE", None)
                whole: Iterable[bytes] = self._application(environ, start_response)
                return whole
            return self._failure(start_response)
        if self.loses(f"{method} {query}", path):
            list(self._application(environ, lambda *_: None))
            return self._failure(start_response)
        answer: Iterable[bytes] = self._application(environ, start_response)
        return self._counted(answer) if method == "GET" and path.count("/") > 1 else answer

    def _failure(self, start_response: Callable[..., Any]) -> list[bytes]:
        line, body = {**FAULTS, **OTHER_FAULTS}[self.fault]
        headers = [("Content-Type", "application/xml"), ("Content-Length", str(len(body or b"")))]
        start_response(line, [*headers, ("x-amz-bucket-region", "eu-west-1")] if self.fault == "moved" else headers)
        return [body or b""]

    def _counted(self, answer: Iterable[bytes]) -> Iterator[bytes]:
        for data in answer:
            self.sent += len(data)
            yield data

    def put(self, key: str, data: bytes) -> None:
        # Under urllib's default type the server waits for a form; without a signature an object cannot be replaced.
        signature = (
            "AWS4-HMAC-SHA256 Credential=testing/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"
        )
        headers = {"Content-Type": "application/octet-stream", "Authorization": signature}
        url = f"{self.endpoint}/{BUCKET}/{key}".rstrip("/")
        urlopen(Request(url, data, headers, method="PUT"), timeout=300).close()

    def put_folder(self, folder: Path, key: str) -> str:
        """Copy a folder, and return its URL."""
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                self.put(f"{key}/{path.relative_to(folder)}", path.read_bytes())
        return f"s3://{BUCKET}/{key}"

    def count(self, work: Callable[[], Any]) -> tuple[Any, int, int]:
        """Return the result of a function, the bytes of objects that it read, and its requests."""
        self.sent = 0
        self.requests.clear()
        return work(), self.sent, len(self.requests)


@contextmanager
def s3_server() -> Iterator[S3Server]:
    """Run the server with one empty bucket; credentials and address are in the environment, as AWS's tools expect them."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # a line for each request
    server = S3Server()
    http = make_server("127.0.0.1", 0, server, threaded=True)
    server.endpoint = f"http://127.0.0.1:{http.port}"
    thread = threading.Thread(target=http.serve_forever, daemon=True)
    thread.start()
    names = {
        "AWS_ENDPOINT_URL": server.endpoint,
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_MAX_ATTEMPTS": "1",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in names.items():
            patch.setenv(name, value)
        # Two attempts in this process, not five: a store that fails for good costs 0.1 s for each request instead of 2 s.
        patch.setattr(S3FileSystem, "retries", 2)
        try:
            server.put("", b"")
            yield server
        finally:
            S3FileSystem.clear_instance_cache()  # its clients know the address of this server
            http.shutdown()
            thread.join(30)
            http.server_close()
