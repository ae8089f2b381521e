"""A log while a broker loads it: its files, its segments, the steps so far, and its producers.

They are rebuilt as ``UnifiedLog.rebuildProducerState`` of Kafka 4.3 does.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from functools import cached_property
from itertools import islice
from operator import itemgetter

from kseg.format.log_loader.broker_reader import BrokerReader
from kseg.format.log_loader.loaded_files import RefusedError
from kseg.format.log_loader.log_segment import LogSegment
from kseg.format.log_loader.partition_files import File, Files, offset_of
from kseg.format.log_loader.plan import FORGET, NOTHING_LOST, Lost, Step, loss_of_range
from kseg.format.log_loader.producers import Producers
from kseg.format.storage import local_files
from kseg.format.storage.naming import base_offset_of, is_in_use
from kseg.text import count_of


class LoadingLog:
    """A partition's log while it is loaded. ``segments`` are in the order of their base offsets.

    ``at_work`` is the current file, which an error without a file concerns. ``log_start`` is the log start offset of the
    checkpoint: records below it are not lost.
    """

    def __init__(self, files: Files, log_start: int) -> None:
        self.files = files
        self._log_start = log_start
        # The newest segment before the start: base offset, path and size.
        named = ((base, files[name]) for name in files if (base := base_offset_of(name)) is not None)
        self._newest = max(((base, one.path, one.size) for base, one in named), default=None, key=itemgetter(0))
        self.segments: dict[int, LogSegment] = {}
        self.steps: list[Step] = []
        self.at_work: str | None = None

    def add_step(self, action: str, file: str | None = None, why: str = "", **facts: int | Lost | None) -> None:
        self.steps.append(Step(action, file, why, **facts))  # type: ignore[arg-type]

    def lost(self, log: File, begin: int, end: int | None = None) -> Lost:
        end = log.size if end is None else end
        if log.path is None or begin >= end:
            return NOTHING_LOST
        return loss_of_range(log.path, log.begin + begin, log.begin + end, self._usable_from)

    def lost_after(self, log: File, stop: int, end: int) -> Lost:
        """Return the loss from the byte on where a broker stopped reading, up to byte ``end``.

        A running broker can have appended to a preallocated segment since: it keeps the batches that it can read there.
        """
        if log.path is not None and is_in_use(os.path.dirname(os.path.dirname(local_files.absolute(log.path)))):
            reader = BrokerReader(log, stop, end, verify=True)
            deque(reader.windows(), maxlen=0)
            stop = reader.stop
        return self.lost(log, stop, end)

    @cached_property
    def _usable_from(self) -> int:
        """The log start, 0 if the log does not reach it: a checkpoint with a wrong offset costs all records."""
        base, path, size = self._newest or (0, None, 0)
        if path is None or not self._log_start:
            return 0
        last = None if base >= self._log_start else loss_of_range(path, 0, size).last_offset
        end = base if last is None else last + 1
        return self._log_start if end >= self._log_start else 0

    def last(self) -> LogSegment:
        return self.segments[next(reversed(self.segments))]

    def add_forgotten_producers(self, log_start: int, log_end: int) -> None:
        """Add a step if the log has producers: without any snapshot a broker does not search them after a clean shutdown."""
        at_work, known = self.at_work, Producers(self.files)
        known.end = log_start
        # The broker does not read them, so batches that it would refuse have no effect.
        with suppress(RefusedError):
            self._replay(known, set(), log_start, log_end)
        self.at_work = at_work
        if known.states:
            open_ = len(known.open_transactions)
            transactions = f", {count_of(open_, 'open transaction')}" if open_ else ""
            why = f"no producer snapshot exists, and the last shutdown was clean: {count_of(len(known.states), 'producer')}"
            self.add_step(FORGET, why=f"{why}{transactions}")

    def rebuild(self, producers: Producers, log_start: int, last_offset: int, *, clean: bool) -> None:
        """Model ``UnifiedLog.rebuildProducerState``."""
        last_two = [*islice(reversed(self.segments), 2)][::-1]
        kept = {*last_two, last_offset}
        if not producers.snapshots and clean:
            for offset in (*last_two, last_offset):
                producers.end = offset
                producers.take_snapshot()
            return
        empty = producers.end >= last_offset
        producers.truncate_and_reload(log_start, last_offset)
        if last_offset > producers.end and not empty:
            self._replay(producers, kept, log_start, last_offset)
        producers.end = last_offset
        producers.take_snapshot()

    def _replay(self, producers: Producers, kept: set[int], log_start: int, last_offset: int) -> None:
        bases = list(self.segments)
        first = max(bisect_right(bases, producers.end) - 1, 0)
        holds_last = bisect_right(bases, last_offset) - 1
        for at, base in enumerate(bases[first:], first):
            if base >= last_offset:
                break
            segment = self.segments[base]
            self.at_work = segment.name
            start = max(base, producers.end, log_start)
            producers.end = start
            if base in kept:
                producers.take_snapshot()
            end = segment.position_of(last_offset) if at == holds_last else None
            end = segment.size if end is None else end
            begin = segment.position_of(start)
            if begin is None:
                continue
            if end < begin:
                why = f"offset {last_offset} is found at byte {end}, before offset {start} at byte {begin}"
                raise RefusedError(why)
            producers.replay(segment.log, begin, end)

    def find_first_unstable(self, offset: int | None, log_start: int, log_end: int) -> None:
        """Model ``maybeIncrementFirstUnstableOffset``, which searches the first open transaction in the log."""
        if offset is None:
            return
        offset = max(offset, log_start)
        bases = list(self.segments)
        at = bisect_right(bases, offset) - 1
        if offset >= log_end or at < 0:
            return
        for base in bases[at:]:
            self.at_work = self.segments[base].name
            if self.segments[base].position_of(offset) is not None:
                return

    def add_snapshot_steps(self, found: Iterable[str], log_start: int, log_end: int) -> None:
        before = {name for name in found if name.endswith(".snapshot")}
        after = {name for name in self.files if name.endswith(".snapshot")}
        for name in sorted(before - after):
            offset = offset_of(name)
            why = "no segment starts there, or the file cannot be read"
            if offset <= log_start:
                why = f"its offset is not above the log start {log_start}"
            elif offset > log_end:
                why = f"its offset is above the log end {log_end}"
            self.add_step("delete-snapshot", name, why, offset=offset)
        for name in sorted(after - before):
            self.add_step("write-snapshot", name, offset=offset_of(name))
