"""The state of a pipeline: a folder or a URL with the lease of the run, its manifest, and the inventory of segments.

    lease            the run that works now
    manifest.json    the last run: its state and its findings
    inventory.parquet    one row per segment that was checked, so that it is not read again

The loaded offsets are in the tables alone. So each of these files can be lost: the next run checks all segments again.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from kseg.errors import KsegError, UnreadableError, UsageError, VanishedError
from kseg.format.storage import atomic_write, local_files, remote_files, remote_outputs
from kseg.format.storage.naming import is_url, without_file_scheme
from kseg.format.storage.segment_files import path_in

LEASE = "lease"
MANIFEST = "manifest.json"
INVENTORY = "inventory.parquet"
#: The states of a run in their order.
STATES = ("LISTED", "CHECKED", "PLACED", "LOADED", "REPORTED", "DONE")
#: Seconds after which the lease of a run on another machine is taken over, and between two renewals of an own one.
LEASE_SECONDS = 600
_RENEWAL = 60


@contextmanager
def new_file(place: str, *, new: bool = False) -> Iterator[Any]:
    """Yield a binary file at a path or URL, which gets its name if the block succeeds.

    With ``new`` one that exists is not replaced: UsageError. Raises KsegError.
    """
    place = without_file_scheme(place)
    if is_url(place):
        with remote_outputs.whole_object(place, new=new) as raw:
            yield raw
        return
    target = Path(place)
    with atomic_write.writing(target.parent):
        target.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write.whole_file(target, replace=not new) as raw:
        yield raw


def remove_file(place: str) -> None:
    """Remove a file that kseg has written, if it exists."""
    if not is_url(place):
        Path(place).unlink(missing_ok=True)
        return
    filesystem, path = remote_files.filesystem_of(place)
    with suppress(FileNotFoundError):
        filesystem.rm_file(path)
    remote_files.forget(place.rpartition("/")[0])


def read_if_exists(place: str) -> bytes | None:
    """Return the bytes of a file, None if it does not exist. Raises UnreadableError."""
    if is_url(place):
        remote_files.forget(place.rpartition("/")[0])
    try:
        return local_files.read_file(place)
    except VanishedError:
        return None
    except UnreadableError:
        if is_url(place) and remote_files.kind_of(place) is None:
            return None
        raise


class PipelineState:
    """The files of a pipeline's state at a folder or URL."""

    def __init__(self, place: str) -> None:
        self.place = place

    def path(self, name: str) -> str:
        """Return the path or URL of a file of the state."""
        return path_in(self.place, name)

    def read(self, name: str) -> dict[str, Any]:
        """Return a JSON object, empty if the file does not exist. Raises UsageError for another file."""
        data = read_if_exists(self.path(name))
        if data is None:
            return {}
        try:
            found = json.loads(data)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise UsageError(f"{self.path(name)}: not a file of kseg's: give pipeline.state another folder")
        return found

    def write(self, name: str, value: dict[str, Any], *, new: bool = False) -> None:
        """Write a JSON object atomically. Raises KsegError."""
        with new_file(self.path(name), new=new) as out:
            out.write(json.dumps(value, indent=1).encode() + b"\n")

    @contextmanager
    def leased(self) -> Iterator[None]:
        """Hold the lease of the pipeline. Raises UsageError if another run holds it.

        The lease protects from work that is done twice. Rows are not loaded twice for another reason: the commit of a
        table fails if another run has committed meanwhile.
        """
        own = self._take_lease()
        stop = threading.Event()
        thread = threading.Thread(target=self._renew, args=(own, stop), daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
            with suppress(KsegError, OSError):
                if self.read(LEASE).get("id") == own["id"]:
                    remove_file(self.path(LEASE))

    def _take_lease(self) -> dict[str, Any]:
        own = {"id": os.urandom(8).hex(), "host": socket.gethostname(), "pid": os.getpid(), "time": time.time()}
        own["began"] = _began(os.getpid())
        for _ in range(3):
            holder = self.read(LEASE)
            if holder:
                _check_over(self.path(LEASE), holder)
                remove_file(self.path(LEASE))
            try:
                self.write(LEASE, own, new=True)
            except UsageError:
                continue  # another run was faster
            return own
        raise UsageError(f"{self.place}: another run has just begun")

    def _renew(self, own: dict[str, Any], stop: threading.Event) -> None:
        while not stop.wait(_RENEWAL):
            with suppress(KsegError, OSError):
                if self.read(LEASE).get("id") == own["id"]:
                    self.write(LEASE, {**own, "time": time.time()})


def _began(pid: int) -> str | None:
    """Return when a process of this machine began, as its system counts; None without such a process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return text.rpartition(")")[2].split()[19]


def _check_over(place: str, holder: dict[str, Any]) -> None:
    """Raise UsageError unless the run that holds a lease has ended without removing it."""
    age = time.time() - float(holder.get("time", 0))
    here = holder.get("host") == socket.gethostname()
    if here and os.path.isdir("/proc/self") and _began(int(holder["pid"])) != holder.get("began"):
        return
    if age > LEASE_SECONDS:
        return
    raise UsageError(
        f"{place}: another run works: process {holder.get('pid')} on {holder.get('host')}, {age:.0f} s ago. "
        f"If it is dead, wait {LEASE_SECONDS - age:.0f} s, or delete this file"
    )
