"""A schema registry on loopback: the part of its HTTP interface that serializers and readers use, and its topic."""

from __future__ import annotations

import base64
import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from kseg import open_segment
from kseg.extras.serialization.schema_set import Reference, guid_of
from kseg.format.writer.records_builder import build_batch
from tests.support.records import plain

SERIALIZED = Path(__file__).parents[2] / "fixtures" / "serialized"


class Registry:
    """Registered schemas, as the JSON that the interface returns. ``texts`` replace the texts of schemas by subject.

    ``requests`` are the paths that were requested. With ``user`` ("name:password") other requests are rejected. Requests
    wait ``delay`` seconds, and those of paths in ``broken`` get its status, with ``page`` instead of a registry's JSON if it
    is not empty; of paths in ``cut`` the first answers, as many as its number, end in the middle. In the mode IMPORT,
    schemas get the id and version of the request, unless ``imports`` is false.
    """

    def __init__(self, texts: dict[str, str] | None = None) -> None:
        self.schemas: list[dict[str, Any]] = []
        self.requests: list[str] = []
        self.user = ""
        self.delay = 0.0
        self.broken: dict[str, int] = {}
        self.page = b""
        self.cut: dict[str, int] = {}
        self.mode = "READWRITE"
        self.imports = True
        self._texts = texts or {}

    def register(self, subject: str, body: dict[str, Any]) -> dict[str, Any]:
        """Register a schema, or return the registered one if it is equal."""
        content = {name: body[name] for name in ("schemaType", "references") if body.get(name)}
        content["schema"] = self._texts.get(subject, body["schema"])
        if self.mode == "IMPORT" and self.imports:
            content["id"] = body["id"]
        equal = [schema for schema in self.schemas if content.items() <= schema.items()]
        for schema in equal:
            if schema["subject"] == subject:
                return schema
        references = [Reference(**reference) for reference in content.get("references", ())]
        versions = [schema["version"] for schema in self.schemas if schema["subject"] == subject]
        ids = [schema["id"] for schema in self.schemas]
        found = {
            "subject": subject,
            "version": max(versions, default=0) + 1,
            "id": equal[0]["id"] if equal else max(ids, default=0) + 1,
            "guid": guid_of(content["schema"], references),
            **content,
        }
        if self.mode == "IMPORT" and self.imports:
            found |= {"id": body["id"], "version": body["version"]}
        self.schemas.append(found)
        return found

    def answer(self, path: str) -> Any:
        """Return the JSON of a GET request, None for what is not known."""
        parts = [unquote(part) for part in urlsplit(path).path.strip("/").split("/")]
        deleted = "deleted=true" in urlsplit(path).query
        known = [schema for schema in self.schemas if deleted or not schema.get("deleted")]
        if parts[:2] == ["schemas", "ids"]:
            return self._first(id=int(parts[2]))
        if parts[:2] == ["schemas", "guids"]:
            return self._first(guid=parts[2])
        if parts[0] == "subjects" and len(parts) == 4:
            if parts[3] == "latest":
                return max(
                    (schema for schema in self.schemas if schema["subject"] == parts[1]),
                    key=lambda schema: int(schema["version"]),
                    default=None,
                )
            return self._first(subject=parts[1], version=int(parts[3]))
        if parts[0] == "subjects" and len(parts) == 3:
            return [schema["version"] for schema in known if schema["subject"] == parts[1]] or None
        return list(dict.fromkeys(schema["subject"] for schema in known)) if parts == ["subjects"] else None

    def change(self, path: str, body: dict[str, Any] | None) -> Any:
        """Set the mode, or without a body soft-delete a version."""
        if body is not None:
            self.mode = body["mode"]
            return body
        _, subject, _, version = [unquote(part) for part in path.strip("/").split("/")]
        self._first(subject=subject, version=int(version))["deleted"] = True  # type: ignore[index]
        return int(version)

    def topic(self) -> Iterator[tuple[dict[str, Any], dict[str, Any] | None]]:
        """Yield the keys and values of the registry's topic."""
        yield {"keytype": "NOOP", "magic": 0}, None
        for schema in self.schemas:
            key = {"keytype": "SCHEMA", "subject": schema["subject"], "version": schema["version"], "magic": 1}
            yield key, {"deleted": False, **{name: schema[name] for name in schema if name != "guid"}}

    def _first(self, **wanted: Any) -> dict[str, Any] | None:
        return next((schema for schema in self.schemas if wanted.items() <= schema.items()), None)

    @contextmanager
    def serve(self) -> Iterator[str]:
        """Answer requests on loopback in the block; the value is the URL."""
        server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


def _handler(registry: Registry) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._send(registry.answer(self.path))

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            found = re.fullmatch(r"/subjects/([^/?]+)(/versions)?(\?.*)?", self.path)
            self._send(registry.register(unquote(found[1]), body) if found else None)

        def do_PUT(self) -> None:
            self._send(registry.change(self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"])))))

        def do_DELETE(self) -> None:
            self._send(registry.change(self.path, None))

        def _send(self, answer: Any) -> None:
            registry.requests.append(self.path)
            time.sleep(registry.delay)
            expected = f"Basic {base64.b64encode(registry.user.encode()).decode()}"
            status = 404 if answer is None else 200
            if self.path in registry.broken:
                status, answer = registry.broken[self.path], None
            if registry.user and self.headers.get("Authorization") != expected:
                status, answer = 401, None
            data = json.dumps({"error_code": status * 100, "message": "no"} if answer is None else answer).encode()
            data = registry.page if self.path in registry.broken and registry.page else data
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if registry.cut.get(self.path, 0) > 0:
                registry.cut[self.path] -= 1
                data = data[: len(data) // 2]
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            """Print nothing."""

    return Handler


def serialized_registry() -> Registry:
    """Return a registry with the schemas of ``fixtures/serialized``."""
    found = Registry()
    found.schemas = [
        json.loads(line) for line in (SERIALIZED / "registry.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    return found


def damaged_schemas(folder: Path, number: int) -> int:
    """Write the topic of the schemas in batches of one record; return the byte of the one with this id, which is damaged."""
    with open_segment(SERIALIZED / "_schemas-0" / f"{0:020}.log") as segment:
        records = [plain(record) for record in segment.records()]
    registered = [build_batch([record]) for record in records]
    (lost,) = (n for n, record in enumerate(records) if json.loads(record.value or b"{}").get("id") == number)
    folder.mkdir()
    damaged = [data[:-1] + bytes([data[-1] ^ 1]) if n == lost else data for n, data in enumerate(registered)]
    (folder / f"{0:020}.log").write_bytes(b"".join(damaged))
    return sum(map(len, registered[:lost]))
