"""The fields of binary side files as they are stored, for ``kseg dump --format hex``. Integers are big-endian."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class StoredFields(NamedTuple):
    """(size in bytes, Kafka's name) of the fields before the first entry, and of the fields of each entry."""

    header: tuple[tuple[int, str], ...]
    entry: tuple[tuple[int, str], ...]


#: The kind of a side file's rows (``SideFile.kind``) -> its fields. All other kinds are text.
STORED_FIELDS: Mapping[str, StoredFields] = {
    "offset_index_entry": StoredFields((), ((4, "relativeOffset"), (4, "position"))),
    "time_index_entry": StoredFields((), ((8, "timestamp"), (4, "relativeOffset"))),
    "aborted_transaction": StoredFields(
        (), ((2, "version"), (8, "producerId"), (8, "firstOffset"), (8, "lastOffset"), (8, "lastStableOffset"))
    ),
    "producer_state": StoredFields(
        ((2, "version"), (4, "crc"), (4, "entries")),
        (
            (8, "producerId"), (2, "epoch"), (4, "lastSequence"), (8, "lastOffset"), (4, "offsetDelta"), (8, "timestamp"),
            (4, "coordinatorEpoch"), (8, "currentTxnFirstOffset"),
        ),
    ),
}  # fmt: skip
