"""The inputs of a broker's start for the partitions of a log directory: its last shutdown and its checkpoints.

Source: ``LogManager.loadLogs`` of Kafka 4.3.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from kseg.format.log_loader.loaded_files import MAX_TEXT, OfflineError, RefusedError, read_offsets
from kseg.format.log_loader.log_segment import INDEX_BYTES
from kseg.format.log_loader.partition_files import File
from kseg.format.log_loader.plan import Step
from kseg.format.log_loader.recovery_plan import BrokerStart
from kseg.format.sidefiles.checkpoints import CheckpointOffset
from kseg.format.sidefiles.indexes import INDEX_INTERVAL_BYTES
from kseg.format.storage import local_files
from kseg.format.storage.local_files import skip_special
from kseg.format.storage.naming import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    Partition,
)

#: The checkpoints of a log directory.
CHECKPOINTS = (RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS, CLEANER_OFFSETS)
_Offsets = dict[tuple[str, int], int]


@dataclass(frozen=True, slots=True)
class BrokerStarts:
    """The inputs of a broker for all partitions of a log directory: its last shutdown, and its checkpoints."""

    clean: bool
    index_interval: int
    index_bytes: int
    recovery_points: _Offsets
    log_starts: _Offsets

    def of(self, partition: Partition | None, stray: str = "") -> BrokerStart:
        """Return the inputs for a partition; ``stray`` is that of ``BrokerStart``."""
        key = (partition.topic, partition.partition) if partition else ("", -1)
        recovery_point, log_start = self.recovery_points.get(key, 0), self.log_starts.get(key, 0)
        return BrokerStart(self.clean, recovery_point, log_start, self.index_interval, self.index_bytes, stray)


def starts_of(
    log_dir: str,
    steps: list[Step],
    clean: bool | None = None,
    index_interval: int = INDEX_INTERVAL_BYTES,
    index_bytes: int = INDEX_BYTES,
) -> BrokerStarts:
    """Return the inputs of a broker for the partitions of a log directory. ``steps`` gets what it does to the files.

    ``clean`` overrides the state of the last shutdown; None keeps it. The others are those of ``BrokerStart``.
    """
    found = local_files.exists(os.path.join(log_dir, CLEAN_SHUTDOWN))
    if found:
        steps.append(Step("delete-file", CLEAN_SHUTDOWN, "a crash after the start must not look like a clean shutdown"))
    offsets = {name: _read_offsets(log_dir, name, steps) for name in CHECKPOINTS}
    recovery_points, log_starts = (
        {(entry.topic, entry.partition): entry.offset for entry in offsets[name]}
        for name in (RECOVERY_POINTS, LOG_STARTS)
    )
    return BrokerStarts(found if clean is None else clean, index_interval, index_bytes, recovery_points, log_starts)


def _read_offsets(log_dir: str, name: str, steps: list[Step]) -> list[CheckpointOffset]:
    """Return the entries of a checkpoint, none if a broker treats it as empty."""
    path = os.path.join(log_dir, name)
    if not local_files.exists(path) or not skip_special(log_dir, [name]):
        return []
    try:
        return read_offsets(File.at(path).read(0, MAX_TEXT + 1), name)
    except OfflineError as error:
        steps.append(Step("offline", name, f"{error.why}; until then the broker treats it as empty"))
    except RefusedError as error:
        steps.append(Step("pass-over", name, f"{error.why}; the broker treats it as empty"))
    return []
