"""Files at URLs: the same findings as on a disk, side files included, and a fault of the store is never fewer files."""

from __future__ import annotations

import json
import shutil
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

import kseg
from tests.support.cli import invoke
from tests.support.fixtures import SEGMENTS

pytest.importorskip("fsspec", reason="fsspec is not installed")

from kseg.format.storage import remote_files
from kseg.format.storage.remote_listing import reason
from tests.support.read_faults import remote_faults

FINDINGS = SEGMENTS.parent / "findings"
OF_SIDE_FILES = sorted(
    folder
    for folder in FINDINGS.iterdir()
    if any(word in folder.name for word in ("index", "snapshot", "epoch", "checkpoint", "swap", "missing"))
    and not (folder / "settings.json").exists()
)
URL = "faulty:///logs"


def validate(path: object) -> tuple[int, list[dict[str, Any]]]:
    done = invoke("validate", "--format", "jsonl", path)
    assert done.exception is None or isinstance(done.exception, SystemExit)
    lines = done.stdout.replace(str(path), "logs").splitlines()
    return done.exit_code, [json.loads(line) for line in lines]


@pytest.mark.slow
@pytest.mark.parametrize("folder", OF_SIDE_FILES, ids=lambda folder: folder.name)
def test_a_url_has_the_findings_of_its_folder(folder: Path, tmp_path: Path) -> None:
    """Nothing is sound that was not looked at: indexes, snapshots and checkpoints are checked, each against the log."""
    shutil.copytree(folder, tmp_path / "logs")
    with remote_faults(folder):
        found = validate(URL)
    assert found == validate(tmp_path / "logs")
    assert len(found[1]) > 1


@pytest.mark.slow
def test_a_fault_of_the_store_is_reported(tmp_path: Path) -> None:
    """At every call: the exit code is 2, or the findings are those without the fault."""
    folder = FINDINGS / "index-mismatch"
    with remote_faults(folder) as healthy:
        wanted = validate(URL)
    assert healthy.calls > 10
    for kind in ("EIO", "client", "short"):
        for number in range(healthy.calls):
            with remote_faults(folder, kind, range(number, number + 1)):
                found = validate(URL)
            assert found[0] == 2 or found == wanted, (kind, number)


@pytest.mark.parametrize("command", [("convert", "any-to-v2", "--compression", "gzip"), ("repair",)])
def test_a_folder_at_a_url_is_refused_with_the_way_out(command: tuple[str, ...], tmp_path: Path) -> None:
    """A result is whole folders, whose source is read twice: nothing is written, and one line says what to do."""
    with remote_faults(SEGMENTS / "4.3.0-v2-none"):
        done = invoke(*command, URL, tmp_path / "out-0")
    assert (done.exit_code, list(tmp_path.iterdir())) == (2, [])
    assert done.stderr == f"kseg: {URL} is a folder at a URL: give one of its segments, or copy it to a disk first\n"


def test_only_a_server_that_says_so_lacks_a_file() -> None:
    """A segment that a broker has deleted is left out: nothing else that a server answers may look like one."""
    pytest.importorskip("aiohttp")

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            status = int(self.path.split("/")[1])
            if status:  # without an answer the connection is lost
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

        do_GET = do_HEAD  # noqa: N815 - the name of http.server

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    raised = {}
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        for status in (404, 410, 403, 500, 503, 0):
            url = f"http://127.0.0.1:{server.server_port}/{status}/{0:020}.log"
            with pytest.raises(kseg.UnreadableError) as caught:
                list(kseg.open_partition(url).records())
            raised[status] = type(caught.value)
        server.shutdown()
    vanished = dict.fromkeys((404, 410), kseg.VanishedError)
    assert raised == {**dict.fromkeys(raised, kseg.UnreadableError), **vanished}


def test_the_reason_is_never_the_text_of_a_library_alone() -> None:
    """A timeout has no text, and a library fails at it: the line says what the server did, or that a library failed."""

    def of(error: Exception, context: Exception | None = None) -> str:
        error.__context__ = context
        return reason(error, "s3://backup/orders-3")

    assert of(IndexError("tuple index out of range"), TimeoutError()) == "the server did not answer in time"
    assert of(KeyError("Body"), OSError("reset")) == "reset"
    assert of(KeyError("Body")) == "the library that asks the store failed (KeyError: 'Body')"

    class Stalled:
        def seek(self, position: int) -> None:
            pass

        def read(self, count: int) -> bytes:
            raise TimeoutError

    with pytest.raises(OSError, match="the server did not answer in time"):
        remote_files.RemoteFile("s3://backup/x", Stalled(), 5).read(5)
