"""The result of a conversion: counts before and after, and the losses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any


@dataclass(slots=True)
class Loss:
    """Data that the target's version can't contain: the number, the first and the last offset."""

    count: int
    first_offset: int
    last_offset: int


@dataclass(slots=True)
class Conversion:
    """The result of one segment. Sizes are in bytes; counts are batches unless their name says otherwise.

    ``copied`` batches already had the target's version, ``skipped`` ones are damaged; ``lost_bytes`` are the bytes of
    skipped batches and of data that is not a batch. ``codecs_before`` and ``codecs_after`` count batches by codec.
    ``lost`` is by kind, see ``LOSSES``. ``leader_epochs`` are [epoch, first offset, last offset] of the written batches.
    The batches before byte ``epochless_bytes`` of the target have no epoch in the source; None if no batch has one.
    ``transactional`` is whether a written batch belongs to a transaction. ``first_offset`` and ``last_offset`` are those of
    the converted batches, None without batches.
    """

    source: str
    target: str
    entries_before: int = 0
    entries_after: int = 0
    copied: int = 0
    skipped: int = 0
    records: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    lost_bytes: int = 0
    largest_before: int = 0
    largest_after: int = 0
    codecs_before: Counter[str] = field(default_factory=Counter)
    codecs_after: Counter[str] = field(default_factory=Counter)
    lost: dict[str, Loss] = field(default_factory=dict)
    leader_epochs: list[list[int]] = field(default_factory=list)
    epochless_bytes: int | None = None
    transactional: bool = False
    first_offset: int | None = None
    last_offset: int | None = None

    def count_loss(self, kind: str, count: int, first_offset: int, last_offset: int) -> None:
        """Count a loss of one of LOSSES."""
        if not count:
            return
        loss = self.lost.setdefault(kind, Loss(0, first_offset, last_offset))
        loss.count += count
        loss.last_offset = last_offset

    def merge(self, other: Conversion) -> None:
        """Add the result of the next range of the same segment."""
        if self.epochless_bytes is None and other.epochless_bytes is not None:
            self.epochless_bytes = self.bytes_after + other.epochless_bytes
        for each in fields(self):
            if each.name in ("epochless_bytes", "transactional", "first_offset", "last_offset"):
                continue
            mine, more = getattr(self, each.name), getattr(other, each.name)
            if each.name.startswith("largest_"):
                setattr(self, each.name, max(mine, more))
            elif isinstance(mine, (int, Counter)):
                setattr(self, each.name, mine + more)
        for kind, loss in other.lost.items():
            self.count_loss(kind, loss.count, loss.first_offset, loss.last_offset)

    def as_row(self) -> dict[str, Any]:
        """Return the result as one flat object for JSON."""
        row = {each.name: getattr(self, each.name) for each in fields(self)}
        return {**row, "lost": {kind: asdict(loss) for kind, loss in self.lost.items()}}

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> Conversion:
        """Return the result of a row that ``as_row`` returned."""
        codecs = {name: Counter(row[name]) for name in ("codecs_before", "codecs_after")}
        return cls(**{**row, **codecs, "lost": {kind: Loss(**loss) for kind, loss in row["lost"].items()}})


#: The data that a conversion can lose, most of it one to a lower version: the counted noun, and words after it.
LOSSES = {
    "wrapper-keys": ("key", " of compressed message sets"),
    "headers": ("record header", ""),
    "timestamps": ("record", " with a timestamp"),
    "control-records": ("control record", ""),
    "transactions": ("transactional batch", " (consumers will see aborted records)"),
    "sequences": ("batch", " of idempotent producers"),
    "leader-epochs": ("batch", " with a leader epoch"),
    "delete-horizons": ("batch", " with a delete horizon"),
    "empty-batches": ("empty batch", ", kept by compaction"),
}
#: Kinds of losses counted in records; the others are counted in batches.
COUNTED_BY_RECORD = ("headers", "control-records")
