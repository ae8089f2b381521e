"""Write several reports from one run: the results are kept in a temporary file and read again for each report."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import replace

from kseg.results import FileResult

#: The bytes of results that are kept in memory; more of them are kept on disk.
_IN_MEMORY = 16 * 1024 * 1024


class Spool:
    """The results of a run, in memory or on disk."""

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115 - closed with the object

    def recorded(self, results: Iterable[FileResult]) -> Iterator[FileResult]:
        """Yield the results and keep them."""
        for result in results:
            self.add(result)
            yield result

    def add(self, result: FileResult) -> None:
        """Keep a result."""
        pickle.dump(replace(result, facts=None), self._file)

    def again(self) -> Iterator[FileResult]:
        """Yield the kept results."""
        self._file.seek(0)
        while True:
            try:
                yield pickle.load(self._file)
            except EOFError:
                return

    def close(self) -> None:
        """Delete the file."""
        self._file.close()
