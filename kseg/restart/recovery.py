"""What a broker started now would do to a partition's folder: a plan, made by reading alone.

The passes are those of ``LogLoader.load`` of Kafka 4.3, in its order, over a model of the folder: its names, the
pieces of its logs, its snapshots and leader epochs. Nothing is decompressed, as a broker does not.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from dataclasses import dataclass, replace

from kseg.beside.checkpoint_files import HARMLESS, walk_leader_epochs
from kseg.beside.index_files import walk_txn_index
from kseg.beside.indexes import INDEX_INTERVAL_BYTES
from kseg.beside.metadata_files import walk_partition_metadata
from kseg.beside.producer_snapshot import walk_snapshot
from kseg.beside.side_reading import entries_of
from kseg.files.storage import open_source, partition_of
from kseg.format.log_format import INT32_MAX
from kseg.restart.broker_reading import Piece, RefusedError, read_end, recover, split
from kseg.restart.epoch_fates import Epochs
from kseg.restart.log_survey import survey
from kseg.restart.partition_folder import Folder, file_name
from kseg.restart.plan import NOTHING_LOST, Lost, PartitionPlan, Step
from kseg.restart.snapshot_fates import Snapshots

METADATA_TOPIC = "__cluster_metadata"
_INDEXES = (".index", ".timeindex", ".txnindex")
_EPOCHS = "leader-epoch-checkpoint"
_TOPIC_ID = "partition.metadata"


@dataclass(frozen=True, slots=True)
class Start:
    """What a broker goes by for a partition: whether the last stop was clean, and what the log dir's checkpoints say.

    ``index_interval`` is the topic's index.interval.bytes.
    """

    clean: bool
    recovery_point: int = 0
    log_start: int = 0
    index_interval: int = INDEX_INTERVAL_BYTES


def plan_partition(folder: str, start: Start) -> PartitionPlan:
    """The plan for one partition's folder. Raises UnreadableError where a file of it can't be read."""
    partition = partition_of(os.path.basename(os.path.abspath(folder)))
    topic, number, state = partition or (None, None, None)
    if state == "-delete":
        return PartitionPlan(folder, topic, number, (Step("delete-folder", why="its topic was deleted"),))
    if topic == METADATA_TOPIC:
        # KafkaMetadataLog: its log is recovered from the first byte on at every start.
        start = replace(start, clean=False, recovery_point=0, log_start=0)
    loading = _Loading(folder, start)
    try:
        loading.load()
        if topic != METADATA_TOPIC and state is None:
            loading.look_at_topic_id()
    except RefusedError as error:
        loading.tell("refuse", error.file or loading.at_work, error.why)
    except _OfflineError as error:
        loading.tell("offline", error.file, error.why)
    return loading.plan(topic, number)


class _OfflineError(Exception):
    """A file that takes the whole log dir offline."""

    def __init__(self, file: str, why: str) -> None:
        super().__init__(file, why)
        self.file = file
        self.why = why


class _OverflowError(Exception):
    """The segment of that base offset has to be split before loading starts anew."""


class _Loading:
    """One run of ``LogLoader.load``. ``at_work`` is the file that is being looked at."""

    def __init__(self, folder: str, start: Start) -> None:
        self.at_work: str | None = None
        self._path = folder
        self._start = start
        self._steps: list[Step] = []
        self._folder = Folder(folder, self.tell)
        self._files = self._folder.files
        self._pieces: dict[int, Piece] = {}
        # Of those that were recovered, where the log ends by them.
        self._ends: dict[int, int] = {}
        self._epochs = Epochs(())
        self._snapshots = Snapshots(set(), self._sound, self._read)
        self._log_start = self._log_end = 0
        self._loaded = False

    def tell(self, action: str, file: str | None = None, why: str = "", **facts: int | Lost | None) -> None:
        self._steps.append(Step(action, file, why, **facts))  # type: ignore[arg-type]

    def plan(self, topic: str | None, partition: int | None) -> PartitionPlan:
        return PartitionPlan(
            self._path,
            topic,
            partition,
            tuple(self._steps) or (Step("nothing"),),
            self._log_start if self._loaded else None,
            self._log_end if self._loaded else None,
            tuple((base, piece.size) for base, piece in self._pieces.items()),
            tuple(sorted(self._snapshots.offsets)),
            tuple(self._epochs.entries),
        )

    def load(self) -> None:
        stored = self._read_epochs()
        self._folder.delete_temporary()
        self._folder.swap_in()
        names = [name for name in self._files if name.endswith(".snapshot")]
        self._snapshots = Snapshots({self._folder.offset(name) for name in names}, self._sound, self._read)
        self._load_segments()
        while True:
            try:
                self._recover_log()
                break
            except _OverflowError as overflow:
                piece = self._pieces.pop(overflow.args[0])
                self._split(piece)
                self._snapshots.drop([piece.base_offset])
        emptied = self._delete_below_log_start()
        self._finish_epochs(stored, emptied)
        self._finish_snapshots(emptied)
        self._loaded = True

    def look_at_topic_id(self) -> None:
        """Without a topic id the log is taken for a stray of a topic that was never written to (KAFKA-16234)."""
        path = self._files.get(_TOPIC_ID)
        if path is None:
            pieces = [piece for piece in self._pieces.values() if piece.size]  # an empty one may only be planned
            lost = sum((survey(piece.path, piece.begin, piece.end) for piece in pieces), NOTHING_LOST)
            self._loaded = False  # what the log is afterwards, nobody reads there
            self.tell("mark-stray", why=f"there is no {_TOPIC_ID}", lost=lost)
            return
        try:
            entries_of(path, walk_partition_metadata)
        except ValueError as error:
            raise RefusedError(str(error), _TOPIC_ID) from error

    def _read_epochs(self) -> int:
        """How many the checkpoint has."""
        path = self._files.get(_EPOCHS)
        if path is None:
            return 0
        try:
            stored = entries_of(path, walk_leader_epochs, passes=HARMLESS)
        except ValueError as error:
            raise _OfflineError(_EPOCHS, str(error)) from error
        self._epochs = Epochs(stored)
        return len(stored)

    def _load_segments(self) -> None:
        for name in sorted(self._files):
            stem, _, _ = name.rpartition(".")
            if name.endswith(_INDEXES):
                if file_name(self._folder.offset(name)) not in self._files:
                    self._folder.delete(name, "there is no log to it")
            elif name.endswith(".log"):
                self._load_segment(name, stem)
        self._pieces = dict(sorted(self._pieces.items()))

    def _load_segment(self, name: str, stem: str) -> None:
        self.at_work = name
        base = self._folder.offset(name)
        piece = self._folder.piece(name, base)
        why = self._rebuild_why(stem, base)
        if why is not None:
            try:
                piece, _ = self._recover_segment(piece, "rebuild-indexes", why, set(), loading=True)
            except _OverflowError:
                # What is not yet loaded is not found when it is to be replaced: it stays beside what it is split into.
                self._pieces[base] = piece
                self._split(piece)
                return
        elif f"{stem}.timeindex" not in self._files:
            self.tell("empty-time-index", f"{stem}.timeindex", "there is none")
        self._pieces[base] = piece

    def _rebuild_why(self, stem: str, base: int) -> str | None:
        if f"{stem}.index" not in self._files:
            return "it has no offset index"
        path = self._files.get(f"{stem}.txnindex")
        if path is None:
            return None
        with open_source(path, listed=True) as source:
            for _, entry in walk_txn_index(source, base):
                # Kafka looks at the first byte of the two alone (AbortedTxn.version, 4.3).
                if entry.version >> 8 > 0:
                    raise RefusedError(f"its transaction index has version {entry.version}")
                if entry.last_offset < base:
                    return f"its transaction index has an abort at offset {entry.last_offset}"
        return None

    def _recover_segment(
        self, piece: Piece, action: str, why: str, writing: set[int], *, loading: bool = False
    ) -> tuple[Piece, int]:
        """What is left of it, and the bytes cut off. ``writing`` as for ``recover``."""
        base = piece.base_offset
        self.at_work = name = file_name(base)
        state = self._snapshots.rebuild(list(self._pieces), self._start.log_start, base, clean=False)
        if base not in self._ends:
            self.tell(action, name, why)
        result = recover(piece, self._start.index_interval, self._epochs, writing)
        if result.overflow is not None:
            end, _ = read_end(piece, result.indexed, base)
            if end is None or end <= base or 0 <= end - 1 - base <= INT32_MAX:
                raise RefusedError(f"offset {result.overflow} does not fit its indexes, and it can't be split")
            raise _OverflowError(base)
        if result.disorder:
            if loading:
                raise RefusedError("its offsets go back, and the indexes refuse them")
            result.valid_bytes, result.next_offset = 0, base
            result.why = "its offsets go back, and the indexes refuse them"
        elif result.end_of_state is not None:
            state.end = result.end_of_state
        if not result.disorder:
            self._snapshots.take(state)
        self._ends[base] = result.next_offset
        cut = piece.size - result.valid_bytes
        if cut:
            begin = piece.begin + result.valid_bytes
            self.tell(
                "truncate-segment", name, result.why or "", position=result.valid_bytes, offset=result.next_offset,
                lost=survey(piece.path, begin, piece.end),
            )  # fmt: skip
        return replace(piece, end=piece.end - cut), cut

    def _recover_log(self) -> None:
        """After an unclean stop: from the segment of the recovery point on, up to the first that has to be cut."""
        if self._start.clean:
            return
        bases = list(self._pieces)
        first = max(bisect_right(bases, self._start.recovery_point) - 1, 0)
        writing: set[int] = set()
        for at, base in enumerate(bases[first:], first):
            why = f"it may not have been flushed: the recovery point is {self._start.recovery_point}"
            self._pieces[base], cut = self._recover_segment(self._pieces[base], "recover-segment", why, writing)
            if cut:
                self._delete_segments(bases[at + 1 :], f"{file_name(base)} had to be cut")
                return

    def _delete_segments(self, bases: list[int], why: str) -> None:
        for base in bases:
            piece = self._pieces.pop(base)
            self.tell("delete-segment", file_name(base), why, lost=survey(piece.path, piece.begin, piece.end))
        self._snapshots.drop(bases)

    def _split(self, piece: Piece) -> None:
        made = split(piece)
        parts = ", ".join(file_name(part.base_offset) for part in made)
        self.tell("split-segment", file_name(piece.base_offset), f"an offset does not fit its indexes: into {parts}")
        self._ends.pop(piece.base_offset, None)
        self._pieces = dict(sorted({**self._pieces, **{part.base_offset: part for part in made}}.items()))

    def _find_end(self) -> int:
        base, piece = next(reversed(self._pieces.items()))
        if base in self._ends:
            return self._ends[base]
        self.at_work = name = file_name(base)
        end, tail = self._folder.end_by_index(piece, self._files.get(f"{name.removesuffix('.log')}.index"))
        why = "an entry before them goes past the end"
        if end is None:
            end, tail = base, 0 if piece.size else None
            why = "its index leads astray"
        if tail is not None:
            lost = survey(piece.path, piece.begin + tail, piece.end)
            if lost.records:
                self.tell("hide-records", name, why, position=tail, offset=end, lost=lost)
            else:
                why = f"{piece.size - tail} bytes are no whole entry, and a clean stop has nothing checked"
                self.tell("keep-tail", name, why, position=tail, offset=end, lost=lost)
        return end

    def _delete_below_log_start(self) -> bool:
        """Decides the log's end. True when the log had to begin anew at its start offset."""
        log_start = self._start.log_start
        emptied = False
        if self._pieces:
            self._log_end = self._find_end()
            emptied = self._log_end < log_start
            if emptied:
                why = f"the log's end, {self._log_end}, is below its start, {log_start}"
                self._delete_segments(list(self._pieces), why)
        if not self._pieces:
            name = file_name(log_start)
            if self._folder.no_files.get(name) == "a folder":
                raise _OfflineError(name, "a folder stands where a segment is to begin")
            self.tell("create-segment", name, "no segment is left" if emptied else "there is no segment")
            self._log_end = log_start
        self._log_start = max(log_start, next(iter(self._pieces), log_start))
        return emptied

    def _finish_epochs(self, stored: int, emptied: bool) -> None:
        if emptied:
            self._epochs = Epochs(())
        self._epochs.cut(self._start.log_start, self._log_end)
        if self._epochs.changed or emptied:
            self.tell("write-epochs", _EPOCHS, f"{stored} entries become {len(self._epochs.entries)}")

    def _finish_snapshots(self, emptied: bool) -> None:
        if not self._pieces:
            self._pieces[self._log_start] = Piece(self._log_start, "", 0, 0)
        if emptied:
            self._snapshots.offsets.clear()
        bases = list(self._pieces)
        self._snapshots.drop_strays(bases)
        end = self._log_start if emptied else 0
        self._snapshots.rebuild(bases, self._log_start, self._log_end, clean=self._start.clean, end=end)
        before, after = self._snapshots.before, self._snapshots.offsets
        for offset in sorted(before - after):
            self.tell("delete-snapshot", file_name(offset, ".snapshot"), self._why_deleted(offset), offset=offset)
        for offset in sorted(after - before):
            self.tell("write-snapshot", file_name(offset, ".snapshot"), offset=offset)

    def _why_deleted(self, offset: int) -> str:
        if offset > self._log_end:
            return f"it is behind the log's end, {self._log_end}"
        if offset <= self._log_start:
            return f"it is not behind the log's start, {self._log_start}"
        return "no segment begins at it" if self._sound(offset) else "it can't be read"

    def _sound(self, offset: int) -> bool:
        path = self._files.get(file_name(offset, ".snapshot"))
        if path is None:
            return False
        try:
            entries_of(path, walk_snapshot)
        except ValueError:
            return False
        return True

    def _read(self, base: int, begin: int) -> None:
        """A segment is read to learn of its producers; what recovery has been through is sound."""
        if base not in self._ends and base in self._pieces:
            self.at_work = file_name(base)
            read_end(self._pieces[base], 0, begin)
