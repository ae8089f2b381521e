"""What becomes of a partition's leader epochs while a broker loads its log: a model of ``LeaderEpochFileCache``."""

from __future__ import annotations

import re

from kseg.beside.checkpoint_files import LeaderEpoch
from kseg.format.log_format import INT32_MAX, INT64_MAX
from kseg.restart.plan import OfflineError, RefusedError

EPOCHS = "leader-epoch-checkpoint"
#: What is read of a checkpoint; real ones have a line for each leader that wrote.
_MAX_SIZE = 64 << 20
#: A count of more entries asks for more memory than Kafka's start script gives the JVM.
_MAX_COUNT = 200_000_000
_NUMBER = re.compile(r"[+-]?[0-9]+")
# Pattern.split("\\s+") knows no other white space.
_SPACES = re.compile(r"[ \t\n\x0b\f\r]+")
_LINE_END = re.compile(r"\r\n|\r|\n")


class Epochs:
    """Leader epochs in order. Those of a checkpoint are taken one by one: later lines win over what they contradict.

    Raises RefusedError for an epoch or an offset below 0.
    """

    def __init__(self, stored: list[LeaderEpoch]) -> None:
        self.entries: list[LeaderEpoch] = []
        self._stored = stored
        for entry in stored:
            self._assign(entry)

    @property
    def changed(self) -> bool:
        """Whether they are no longer what was stored."""
        return self.entries != self._stored

    def see(self, epoch: int, start_offset: int) -> None:
        """An epoch in a batch that is recovered; only one later than all says something new. Raises RefusedError."""
        if epoch >= 0 and (not self.entries or epoch > self.entries[-1].epoch):
            self._assign(LeaderEpoch(epoch, start_offset))

    def cut(self, log_start: int, log_end: int) -> None:
        """What begins at the log's end or behind it goes; the last that began before its start begins there now."""
        kept = [entry for entry in self.entries if entry.start_offset < log_end]
        below = [entry for entry in kept if entry.start_offset <= log_start]
        if below:
            kept[: len(below)] = [below[-1]._replace(start_offset=log_start)]
        self.entries = kept

    def _assign(self, entry: LeaderEpoch) -> None:
        entries = self.entries
        if entry.epoch < 0 or entry.start_offset < 0:
            raise RefusedError(f"leader epoch {entry.epoch} begins at offset {entry.start_offset}", EPOCHS)
        if entries and entry.epoch == entries[-1].epoch and entry.start_offset >= entries[-1].start_offset:
            return
        while entries and (entries[-1].epoch >= entry.epoch or entries[-1].start_offset >= entry.start_offset):
            entries.pop()
        entries.append(entry)


def read_epochs(data: bytes) -> list[LeaderEpoch]:
    """Return the entries of a ``leader-epoch-checkpoint`` (``CheckpointFile.read``).

    Raises OfflineError for what is an IOException, RefusedError for what is any other exception: a field that is no
    number, a count that no list can have.
    """
    if len(data) > _MAX_SIZE:
        raise OfflineError(f"it has {len(data)} bytes", EPOCHS)
    lines = _lines(data)
    version = next(lines, None)
    if version is None:
        return []
    if _int(version) != 0:
        raise OfflineError(f"it has version {version!r}, not 0", EPOCHS)
    line = next(lines, None)
    if line is None:
        return []
    count = _int(line)
    if count is None:
        raise OfflineError(f"its count is {line!r}", EPOCHS)
    if not 0 <= count <= _MAX_COUNT:
        raise RefusedError(f"its count is {count}", EPOCHS)
    entries = [_entry(line) for line in lines]
    if len(entries) != count:
        raise OfflineError(f"it announces {count} entries and has {len(entries)}", EPOCHS)
    return entries


def _lines(data: bytes):  # type: ignore[no-untyped-def]
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise OfflineError(f"it is not UTF-8 at byte {error.start}", EPOCHS) from error
    lines = _LINE_END.split(text)
    if not lines[-1]:
        lines.pop()
    return iter(lines)


def _entry(line: str) -> LeaderEpoch:
    fields = _SPACES.split(line)
    while len(fields) > 1 and not fields[-1]:
        fields.pop()
    if len(fields) != 2:
        raise OfflineError(f"the line {line[:80]!r} has {len(fields)} fields, not 2", EPOCHS)
    epoch, start = _int(fields[0]), _int(fields[1], INT64_MAX)
    if epoch is None or start is None:
        raise RefusedError(f"the line {line[:80]!r} is not two numbers", EPOCHS)
    return LeaderEpoch(epoch, start)


def _int(text: str, largest: int = INT32_MAX) -> int | None:
    """``Integer.parseInt`` or ``Long.parseLong``."""
    value = int(text) if len(text) < 1000 and _NUMBER.fullmatch(text) else None
    return value if value is not None and -largest - 1 <= value <= largest else None
