"""Write the producer snapshots of a new partition folder from its batches and the valid snapshots of its source.

Without any snapshot a broker takes a log for one of an old version after a clean shutdown, and forgets its producers and
open transactions (``UnifiedLog.rebuildProducerState``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from kseg.format.log_loader.broker_reader import position_of
from kseg.format.log_loader.partition_files import Files, file_name
from kseg.format.log_loader.producers import Producers
from kseg.format.sidefiles.producer_snapshot import ProducerState, packed, read_snapshot
from kseg.format.storage.atomic_write import whole_file
from kseg.format.storage.naming import base_offset_of
from kseg.format.storage.special_files import read_file
from kseg.format.writer.output_guards import copy_file


def write_snapshots(folder: Path, end: int, stored: Mapping[int, Path]) -> list[str]:
    """Write the snapshots that a broker keeps: at the starts of the last two segments, at the log end, and those ``stored``.

    ``end`` is the log end offset. ``stored`` are the source's valid snapshots by their offset. They describe only batches
    that the new log has, and those before its start. Returns the names of the written files: none for a log that never had
    a producer. Raises RefusedError if a broker cannot read the producers either, and KsegError.
    """
    snapshots = _Rebuilding(folder, end, stored).run()
    if not stored and not any(snapshots.values()):
        return []
    names = []
    for offset, producers in snapshots.items():
        name = file_name(offset, ".snapshot")
        known = _read(stored[offset]) if offset in stored else None
        if known is not None and {*known} == {*producers}:
            copy_file(stored[offset], folder / name)
        else:
            with whole_file(folder / name, replace=False) as file:
                file.write(packed(producers))
        names.append(name)
    return names


class _Rebuilding:
    """Reads the log of a folder once, from its first batch to its end."""

    def __init__(self, folder: Path, end: int, stored: Mapping[int, Path]) -> None:
        self._files = Files(str(folder))
        self._end = end
        self._stored = stored
        self._bases = sorted(base for name in self._files if (base := base_offset_of(name)) is not None)
        self._producers = Producers(self._files)
        self._found: dict[int, Sequence[ProducerState]] = {}

    def run(self) -> dict[int, Sequence[ProducerState]]:
        """Return the producers of each snapshot by its offset."""
        if not self._bases:
            return {}
        for base, following in zip(self._bases, [*self._bases[1:], None], strict=True):
            self._stop_at(base)
            self._replay(base, following)
        self._stop_at(self._end)
        return self._found

    def _replay(self, base: int, following: int | None) -> None:
        """Add the batches of a segment. The last segment can have a snapshot of an earlier shutdown within it."""
        log = self._files[file_name(base)]
        inside = sorted(offset for offset in self._stored if following is None and base < offset < self._end)
        position = 0
        for offset in inside:
            stop = position_of(log, offset, position)
            if stop is not None:
                self._producers.replay(log, position, stop)
                self._stop_at(offset)
                position = stop
        self._producers.replay(log, position, log.size)

    def _stop_at(self, offset: int) -> None:
        """Add the snapshot at an offset, if a broker keeps one there."""
        start = self._bases[0]
        if offset in self._stored:
            self._add_stored(_read(self._stored[offset]))
        elif offset <= start or offset not in (*self._bases[-2:], self._end):
            return  # a broker deletes a snapshot at the log start
        self._found[offset] = list(self._producers.states.values())

    def _add_stored(self, producers: Sequence[ProducerState]) -> None:
        """Add the producers of a snapshot that the log does not have or does not contradict.

        Their batches may be before the log start, or compacted away. A later snapshot lacks expired producers: these stay.
        """
        start = self._bases[0]
        for state in producers:
            known = self._producers.states.get(state.producer_id)
            first = state.current_txn_first_offset
            if known is None:
                valid = first is None or first < start
            elif state.producer_epoch == known.producer_epoch:
                valid = (*state[2:5], first) == (*known[2:5], known.current_txn_first_offset)
            else:
                valid = state.producer_epoch > known.producer_epoch and first is known.current_txn_first_offset is None
            if valid:
                self._producers.load([state])


def _read(path: Path) -> Sequence[ProducerState]:
    return read_snapshot(read_file(str(path))) or ()
