"""Results that are kept until the answer before them is known, and the description of the run.

Results that several reports read are kept, too: on disk if they are many.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import IO, TYPE_CHECKING, Generic, TypeVar

from kseg.engine import lazy
from kseg.format.storage import atomic_write
from kseg.results import FileResult

if TYPE_CHECKING:
    import pickle
else:
    # Importing them takes 4 ms. Few runs have results to keep, fewer have many.
    pickle = lazy("pickle")

Item = TypeVar("Item")

#: The bytes of results that are kept in memory; more of them are kept on disk.
_IN_MEMORY = 16 * 1024 * 1024


class Spool(Generic[Item]):
    """The items of a run that were added, in memory or on disk."""

    def __init__(self) -> None:
        self._file: IO[bytes] = io.BytesIO()

    def add(self, item: Item) -> None:
        """Keep an item."""
        pickle.dump(item, self._file)
        if isinstance(self._file, io.BytesIO) and self._file.tell() > _IN_MEMORY:
            on_disk = atomic_write.temporary_file()
            on_disk.write(self._file.getbuffer())
            self._file = on_disk

    def again(self) -> Iterator[Item]:
        """Yield the kept items."""
        end = self._file.tell()
        self._file.seek(0)
        while self._file.tell() < end:
            yield pickle.load(self._file)

    def close(self) -> None:
        """Delete the file."""
        self._file.close()


def recorded(results: Iterable[FileResult], spool: Spool[FileResult]) -> Iterator[FileResult]:
    """Yield the results and keep them, without the facts that reports do not need."""
    for result in results:
        spool.add(replace(result, facts=None))
        yield result


@dataclass(frozen=True, slots=True)
class Run:
    """The run that made a report: its command line, its ``paths``, the host, and the version of kseg.

    ``started`` is in epoch milliseconds. ``settings`` are options that a settings file gave. ``labels`` of
    metrics are ``NAME=VALUE``. ``help_uri`` is the address of the page of a rule, with ``{code}`` or ``{name}``.
    """

    command: str
    paths: tuple[str, ...]
    host: str
    started: int
    version: str
    settings: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    help_uri: str | None = None
